//! Pool: the HTTP/1.1 connections of one lane.
//!
//! ```text
//!            a call                        reply in
//! idle ──────────────────> carrying it ──────────────> idle (the one used last is used next)
//!  │                        ^      │
//!  │ ended, too many,       │      │ abandoned, failed, hook wants no more
//!  v or unused for long   dialled  v
//! gone <──────────────────────── gone
//! ```
//!
//! One connection is kept however long it is unused. When there is none, and none is being used, the pool is over: the
//! lane dials ahead of the next call.

use std::{
    collections::VecDeque,
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use http::HeaderValue;
use rustc_hash::FxHashMap;
use tokio::{
    sync::{Notify, mpsc::UnboundedReceiver},
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::sleep_until,
};

use super::{
    super::{
        call::Call,
        dial::Socket,
        dialler::Dialler,
        held::{Held, connected},
        inbox::Inbox,
        lane::{BETWEEN_DIALS, Command},
    },
    carry::{Carried, Carrier},
    link::Link,
};
use crate::model::CallFailure;

/// Idle connections that are kept; more than Go's 25, of which kube-apiserver runs out.
const MOST_IDLE: usize = 64;
/// So long is an idle connection kept, as by Go.
const IDLE_FOR: Duration = Duration::from_secs(90);

/// The connections of one lane.
#[derive(Debug)]
pub(in super::super) struct Pool {
    carrier: Carrier,
    /// Idle connections, since when, the longest first.
    idle: VecDeque<(Instant, Link)>,
    carrying: JoinSet<Carried>,
    /// Whose calls they are.
    asked_by: FxHashMap<Id, Asked>,
    /// When a connection was last dialled.
    dialled_at: Instant,
    /// What the lane dialled ahead.
    first: Option<Socket>,
}

#[derive(Debug)]
struct Asked {
    inbox: Arc<Inbox>,
    tag: u32,
    carrying: AbortHandle,
}

impl Pool {
    /// A pool whose first connection was dialled already.
    pub(in super::super) fn new(dialler: Arc<Dialler>, first: Socket) -> Self {
        // An endpoint's host was checked to be one; were it not, the hook would refuse the call.
        let host = HeaderValue::from_str(&dialler.authority()).unwrap_or(HeaderValue::from_static(""));
        Self {
            carrier: Carrier { dialler, host, gone: Arc::default() },
            idle: VecDeque::new(),
            carrying: JoinSet::new(),
            asked_by: FxHashMap::default(),
            dialled_at: Instant::now(),
            first: Some(first),
        }
    }

    /// Carries out commands until there is no connection left, and says so; `None` when nobody will ask any more, and
    /// the last answer is in.
    pub(in super::super) async fn drive(
        mut self,
        commands: &mut UnboundedReceiver<Command>,
        held: &mut Held,
    ) -> Option<String> {
        if let Some(socket) = self.first.take() {
            match Link::over(socket, self.carrier.gone.clone()).await {
                Ok(link) => self.idle.push_back((Instant::now(), link)),
                Err(failure) => return Some(failure.to_string()),
            }
        }
        held.connected().into_iter().for_each(|call| self.ask(call));
        let gone: Arc<Notify> = self.carrier.gone.clone();
        let mut open = true;
        loop {
            self.tidy(Instant::now());
            if !open && self.carrying.is_empty() {
                return None;
            }
            let alarm = self.alarm();
            tokio::select! {
                biased;
                Some(ended) = self.carrying.join_next_with_id() => self.carried(ended),
                () = gone.notified() => {}
                command = commands.recv(), if open => match command {
                    Some(Command::Ask(call)) => self.ask(call),
                    Some(Command::Sweep) => self.sweep(),
                    Some(Command::Probe(probe)) if self.is_bare() => {
                        held.probes.push(probe);
                        return Some(BARE.to_owned());
                    }
                    Some(Command::Probe(probe)) => connected(probe),
                    None => open = false,
                },
                () = at(alarm) => if self.is_bare() {
                    return Some(BARE.to_owned());
                },
            }
        }
    }

    fn is_bare(&self) -> bool {
        self.idle.is_empty() && self.carrying.is_empty()
    }

    /// When something is to be done though nothing happens: the pool is over, or an idle connection is.
    fn alarm(&self) -> Option<Instant> {
        if self.is_bare() {
            return Some(self.dialled_at + BETWEEN_DIALS);
        }
        let (since, _) = self.idle.front().filter(|_| self.idle.len() > 1)?;
        Some(*since + IDLE_FOR)
    }

    fn ask(&mut self, call: Call) {
        if call.is_abandoned() {
            return;
        }
        let idle = self.take_idle();
        if idle.is_none() {
            self.dialled_at = Instant::now();
        }
        let (inbox, tag) = (call.inbox.clone(), call.tag);
        let carrying = self.carrying.spawn(self.carrier.clone().carry(call, idle));
        self.asked_by.insert(carrying.id(), Asked { inbox, tag, carrying });
    }

    /// The one used last, as its hook is least likely to have closed it.
    fn take_idle(&mut self) -> Option<Link> {
        loop {
            let (_, link) = self.idle.pop_back()?;
            if link.is_alive() {
                return Some(link);
            }
        }
    }

    /// A call is over. Its connection is idle before its answer is known: who asks next finds it.
    fn carried(&mut self, ended: Result<(Id, Carried), JoinError>) {
        let (id, Carried { result, link }) = match ended {
            Ok(carried) => carried,
            // Abandoned; or it panicked, which would be our fault, and must not leave the caller waiting.
            Err(error) => (error.id(), Carried { result: Err(CallFailure::Connection(error.to_string())), link: None }),
        };
        if let Some(link) = link {
            self.idle.push_back((Instant::now(), link));
        }
        if let Some(asked) = self.asked_by.remove(&id) {
            asked.inbox.deliver(asked.tag, result);
        }
    }

    /// HTTP/1.1 has no way to call off a call but to hang up.
    fn sweep(&self) {
        self.asked_by.values().filter(|asked| asked.inbox.is_closed()).for_each(|asked| asked.carrying.abort());
    }

    /// Lets go of connections that ended, that are too many, or that were unused for long.
    fn tidy(&mut self, now: Instant) {
        self.idle.retain(|(_, link)| link.is_alive());
        let unused = |since: &Instant| now.duration_since(*since) >= IDLE_FOR;
        while self.idle.len() > MOST_IDLE
            || self.idle.len() > 1 && self.idle.front().is_some_and(|(since, _)| unused(since))
        {
            self.idle.pop_front();
        }
    }
}

/// Why the lane dials.
const BARE: &str = "the hook closed the last connection";

/// Waits until then; without a time, for ever.
async fn at(alarm: Option<Instant>) {
    match alarm {
        Some(alarm) => sleep_until(alarm.into()).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;
    use crate::model::{Endpoint, Transport, hook::Address};

    async fn pool(idle: usize) -> (Pool, Vec<UnixStream>) {
        let endpoint = Endpoint { address: Address::Unix("/none".into()), tls: None, transport: Transport::Http };
        let (first, hook) = UnixStream::pair().expect("a pair");
        let mut pool = Pool::new(Arc::new(Dialler::new(endpoint, None)), Socket::Unix(first));
        let mut hooks = vec![hook];
        for _ in 0..idle {
            let (ours, hook) = UnixStream::pair().expect("a pair");
            let link = Link::over(Socket::Unix(ours), pool.carrier.gone.clone()).await.expect("a link");
            pool.idle.push_back((Instant::now(), link));
            hooks.push(hook);
        }
        (pool, hooks)
    }

    #[tokio::test]
    async fn idle_connections_are_few_and_not_old_and_one_always_stays() {
        let (mut pool, _hooks) = pool(MOST_IDLE + 5).await;
        let now = Instant::now();
        pool.tidy(now);
        assert_eq!(pool.idle.len(), MOST_IDLE);
        assert!(pool.alarm().is_some_and(|alarm| alarm <= now + IDLE_FOR));
        pool.tidy(now + IDLE_FOR);
        assert_eq!(pool.idle.len(), 1);
        assert_eq!(pool.alarm(), None);
    }

    #[tokio::test]
    async fn a_connection_that_ended_while_idle_is_let_go() {
        let (mut pool, hooks) = pool(2).await;
        drop(hooks);
        while pool.idle.iter().any(|(_, link)| link.is_alive()) {
            pool.carrier.gone.notified().await;
        }
        assert!(pool.take_idle().is_none());
        assert!(pool.is_bare() && pool.alarm().is_some());
    }
}
