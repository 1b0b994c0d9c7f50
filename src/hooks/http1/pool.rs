//! Pool: the HTTP/1.1 connections of one lane.
//!
//! ```text
//!     a call finds none idle          reply in
//! dialled ────────────> carrying it ──────────────> idle (the one used last is used next)
//!                        ^   │                       │ │
//!                        └───┼───────── a call ──────┘ │ ended, too many, unused for long,
//!                            │                         │ or a call of another connection waits
//!   abandoned, late, failed, v                         v
//!   hook wants no more      gone                      gone
//! ```
//!
//! Where the hook's share of the connection budget has no room, calls wait in order for a connection of this lane that
//! becomes idle, or for room; idle connections of the other lanes give way then.
//!
//! Every connection here carries a call or has carried one. The pool is over when the lane is to dial: for a probe, or
//! because the hook was found to speak HTTP/2; either way not while it has a connection.

use std::{
    collections::VecDeque,
    future::pending,
    pin::pin,
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
        call::Call, dial::Socket, dialler::Dialler, held::Held, inbox::Inbox, lane::Command,
        unanswered::ConnectionChoice,
    },
    carry::{Carried, Carrier, Way, failed},
    link::Link,
    queue::{Queue, Room},
    turns::{PATIENCE, Resting, Turns},
};
use crate::{
    clock::now,
    model::{CallFailure, Step, Unreachable},
};

/// Time for which an idle connection is kept, as by Go.
const IDLE_FOR: Duration = Duration::from_secs(90);
/// Interval at which idle connections beyond the hook's guaranteed ones check whether other hooks want their room.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// The connections of one lane.
#[derive(Debug)]
pub(in super::super) struct Pool {
    carrier: Carrier,
    /// The longest idle first.
    idle: VecDeque<Idle>,
    carrying: JoinSet<Carried>,
    /// Callers of the open exchanges.
    asked_by: FxHashMap<Id, Asked>,
    /// Calls that wait for a connection.
    queue: Queue,
    /// The hook was found to speak HTTP/2.
    http2: bool,
}

#[derive(Debug)]
struct Idle {
    since: Instant,
    link: Link,
    _resting: Resting,
}

#[derive(Debug)]
struct Asked {
    inbox: Arc<Inbox>,
    tag: u32,
    carrying: AbortHandle,
}

impl Pool {
    /// A pool without connections.
    pub(in super::super) fn new(dialler: Arc<Dialler>, turns: Arc<Turns>) -> Self {
        // An endpoint's host was checked to be one; were it not, the hook would refuse the call.
        let host = HeaderValue::from_str(&dialler.authority()).unwrap_or(HeaderValue::from_static(""));
        Self {
            carrier: Carrier { dialler, host, gone: Arc::default(), turns },
            idle: VecDeque::new(),
            carrying: JoinSet::new(),
            asked_by: FxHashMap::default(),
            queue: Queue::default(),
            http2: false,
        }
    }

    /// Carries out commands until the client is to dial, and returns the reason; `None` when there will be no more
    /// commands, and the last answer is in. A connection dialled already is for a call that waits, or for none.
    pub(in super::super) async fn drive(
        mut self,
        dialled: Option<Socket>,
        commands: &mut UnboundedReceiver<Command>,
        held: &mut Held,
    ) -> Option<String> {
        self.begin(dialled, held).await;
        let (gone, turns): (Arc<Notify>, Arc<Turns>) = (self.carrier.gone.clone(), self.carrier.turns.clone());
        let mut open = true;
        loop {
            // Before the look at who waits, so that none is missed who begins to wait after it.
            let mut call = pin!(turns.call());
            call.as_mut().enable();
            self.tidy(now());
            if !open && self.carrying.is_empty() {
                return None;
            }
            if let Some(why) = self.is_over(held) {
                return Some(why.to_owned());
            }
            let alarm = self.alarm();
            tokio::select! {
                biased;
                Some(ended) = self.carrying.join_next_with_id() => self.carried(ended),
                () = gone.notified() => {}
                () = call => {}
                room = self.queue.room(&self.carrier) => self.has_room(room),
                command = commands.recv(), if open => match command {
                    Some(Command::Ask(call)) => self.ask(call, None),
                    Some(Command::Sweep) => self.sweep(),
                    Some(Command::Probe(probe)) => held.probes.push(probe),
                    #[cfg(test)]
                    Some(Command::Panic) => panic!("a test said so"),
                    None => open = false,
                },
                () = at(alarm) => {}
            }
        }
    }

    /// The first call that was held takes what was dialled. Without one it is closed.
    async fn begin(&mut self, dialled: Option<Socket>, held: &mut Held) {
        held.sweep();
        let mut calls = std::mem::take(&mut held.calls).into_iter();
        if let Some(socket) = dialled {
            held.connected();
            match calls.next() {
                Some(call) => self.ask(call, Some(socket)),
                None => socket.leave().await,
            }
        }
        calls.for_each(|call| self.ask(call, None));
    }

    /// Is the lane to dial, and why? Probes that an idle connection answers are told.
    fn is_over(&self, held: &mut Held) -> Option<&'static str> {
        if !self.idle.is_empty() {
            held.connected();
        }
        match (self.is_bare(), held.probes.is_empty()) {
            (true, false) => Some("a probe asks"),
            (true, true) if self.http2 => Some("the hook speaks HTTP/2"),
            _ => None,
        }
    }

    fn is_bare(&self) -> bool {
        self.idle.is_empty() && self.carrying.is_empty()
    }

    /// Time at which an idle connection ends though nothing happens.
    fn alarm(&self) -> Option<Instant> {
        let longest = self.idle.front()?.since + self.idle_for();
        let beyond = self.idle.iter().any(|idle| idle.link.is_beyond_guarantee());
        Some(if beyond { longest.min(now() + LOOK_AROUND) } else { longest })
    }

    /// Time for which connections may be idle, as things are.
    fn idle_for(&self) -> Duration {
        if self.carrier.turns.are_called() { PATIENCE } else { IDLE_FOR }
    }

    fn ask(&mut self, call: Call, dialled: Option<Socket>) {
        if call.is_abandoned() || now() >= call.deadline {
            return;
        }
        let way = match (dialled, call.connection) {
            (Some(socket), _) => Way::Dialled(socket),
            (None, ConnectionChoice::Any) => self.way(),
            // The room of the one that was stale is given back, and taken again in turn.
            (None, ConnectionChoice::New) => Way::DialInTurn,
        };
        let (inbox, tag) = (call.inbox.clone(), call.tag);
        let carrying = self.carrying.spawn(self.carrier.clone().carry(call, way));
        self.asked_by.insert(carrying.id(), Asked { inbox, tag, carrying });
    }

    /// Connection that a call begins with.
    fn way(&mut self) -> Way {
        if let Some(link) = self.take_idle() {
            return Way::Used(link);
        }
        let room = if self.queue.is_empty() { self.carrier.dialler.room_at_once() } else { None };
        match room {
            Some(Ok(slot)) => Way::Dial(slot),
            Some(Err(why)) => Way::None(why),
            None => self.queue.join().unwrap_or_else(|waiting| {
                let why = format!("its connections are all in use, and {waiting} calls wait for one");
                Way::None(Unreachable::at(Step::Connect, why))
            }),
        }
    }

    /// There is room for a connection, for whoever has waited longest.
    fn has_room(&mut self, room: Room) {
        self.queue.offer(match room {
            Ok(slot) => Way::Dial(slot),
            Err(why) => Way::None(why),
        });
    }

    /// The one used last, as its hook is least likely to have closed it.
    fn take_idle(&mut self) -> Option<Link> {
        loop {
            let Idle { link, .. } = self.idle.pop_back()?;
            if link.is_alive() {
                return Some(link);
            }
        }
    }

    /// A connection is free for the call that has waited longest; without one, or while another lane has waited and this
    /// one has more than its part, it is idle.
    fn free(&mut self, link: Link) {
        let others_wait = self.carrier.dialler.waiting() > usize::from(self.queue.seeks());
        if others_wait && !self.queue.is_empty() && self.connections() > self.carrier.dialler.fair() {
            return;
        }
        if let Some(Way::Used(link)) = self.queue.offer(Way::Used(link)) {
            self.rest(link);
        }
    }

    /// The connections of this lane, of which one is just free.
    fn connections(&self) -> usize {
        self.idle.len() + 1 + self.carrying.len().saturating_sub(self.queue.waiting())
    }

    fn rest(&mut self, link: Link) {
        self.idle.push_back(Idle { since: now(), link, _resting: self.carrier.turns.rest() });
    }

    /// A call is over. Its connection is idle before its answer is known: who asks next finds it.
    fn carried(&mut self, ended: Result<(Id, Carried), JoinError>) {
        let (id, Carried { result, link, http2 }) = match ended {
            Ok(carried) => carried,
            // Abandoned; or it panicked, which would be our fault, and must not leave the caller waiting.
            Err(error) => (error.id(), failed(CallFailure::Connection(error.to_string()))),
        };
        self.http2 |= http2;
        if let Some(link) = link {
            self.free(link);
        }
        if let Some(asked) = self.asked_by.remove(&id)
            && let Some(result) = result
        {
            asked.inbox.deliver(asked.tag, result);
        }
    }

    /// HTTP/1.1 has no way to call off a call but to hang up.
    fn sweep(&self) {
        self.asked_by.values().filter(|asked| asked.inbox.is_closed()).for_each(|asked| asked.carrying.abort());
    }

    /// Lets go of connections that ended, that were unused for long, or whose room others want.
    fn tidy(&mut self, now: Instant) {
        self.idle.retain(|idle| idle.link.is_alive());
        let idle_for = self.idle_for();
        let over = |idle: &Idle| now.duration_since(idle.since) >= idle_for;
        while self.idle.front().is_some_and(over) {
            self.idle.pop_front();
        }
        let dialler = &self.carrier.dialler;
        let mut wanted = dialler.waiting();
        self.idle.retain(|idle| {
            let gives_way = wanted > 0 || idle.link.is_beyond_guarantee() && dialler.others_wait();
            wanted = wanted.saturating_sub(1);
            !gives_way
        });
    }
}

/// Waits until then; without a time, for ever.
async fn at(alarm: Option<Instant>) {
    match alarm {
        Some(alarm) => sleep_until(alarm.into()).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
