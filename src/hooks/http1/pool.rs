//! Pool: the HTTP/1.1 connections of one client.
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
//! Where the hook's share of the connection budget has no room, calls wait in order for a connection of this client
//! that becomes idle, or for room; idle connections of the other clients give way then.
//!
//! Every connection here carries a call or has carried one. The pool is over when the client is to dial: for a probe,
//! or because the hook was found to speak HTTP/2; either way not while it has a connection.

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
        call::Call, command::Command, dial::Socket, dialler::Dialler, failed_call::Reuse, pending_calls::PendingCalls,
        responses::Responses,
    },
    connection::Http1Connection,
    exchange::{Completed, ConnectionChoice, Exchange, failed},
    idle_arbiter::{IdleArbiter, IdleGuard, PATIENCE},
    queue::{Queue, Room},
};
use crate::{
    clock::now,
    model::{CallFailure, Step, Unreachable},
};

/// Time for which an idle connection is kept, as by Go.
const IDLE_FOR: Duration = Duration::from_secs(90);
/// Interval at which idle connections beyond the hook's guaranteed ones check whether other hooks want their room.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// The connections of one client.
#[derive(Debug)]
pub(in super::super) struct Pool {
    exchange: Exchange,
    /// The longest idle first.
    idle: VecDeque<Idle>,
    exchanges: JoinSet<Completed>,
    /// Callers of the open exchanges.
    callers: FxHashMap<Id, PendingCall>,
    /// Calls that wait for a connection.
    queue: Queue,
    /// The hook was found to speak HTTP/2.
    http2: bool,
}

#[derive(Debug)]
struct Idle {
    since: Instant,
    connection: Http1Connection,
    _guard: IdleGuard,
}

#[derive(Debug)]
struct PendingCall {
    responses: Arc<Responses>,
    tag: u32,
    task: AbortHandle,
}

impl Pool {
    /// A pool without connections.
    pub(in super::super) fn new(dialler: Arc<Dialler>, arbiter: Arc<IdleArbiter>) -> Self {
        // An endpoint's host was checked to be one; were it not, the hook would refuse the call.
        let host = HeaderValue::from_str(&dialler.authority()).unwrap_or(HeaderValue::from_static(""));
        Self {
            exchange: Exchange { dialler, host, gone: Arc::default(), arbiter },
            idle: VecDeque::new(),
            exchanges: JoinSet::new(),
            callers: FxHashMap::default(),
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
        pending: &mut PendingCalls,
    ) -> Option<String> {
        self.begin(dialled, pending).await;
        let (gone, arbiter): (Arc<Notify>, Arc<IdleArbiter>) =
            (self.exchange.gone.clone(), self.exchange.arbiter.clone());
        let mut open = true;
        loop {
            // Before the look at who waits, so that none is missed who begins to wait after it.
            let mut call = pin!(arbiter.changed());
            call.as_mut().enable();
            self.tidy(now());
            if !open && self.exchanges.is_empty() {
                return None;
            }
            if let Some(why) = self.is_over(pending) {
                return Some(why.to_owned());
            }
            let alarm = self.alarm();
            tokio::select! {
                biased;
                Some(ended) = self.exchanges.join_next_with_id() => self.completed(ended),
                () = gone.notified() => {}
                () = call => {}
                room = self.queue.room(&self.exchange) => self.has_room(room),
                command = commands.recv(), if open => match command {
                    Some(Command::Ask(call)) => self.ask(call, None),
                    Some(Command::CancelAbandoned) => self.cancel_abandoned(),
                    Some(Command::Probe(probe)) => pending.probes.push(probe),
                    #[cfg(test)]
                    Some(Command::Panic) => panic!("a test said so"),
                    None => open = false,
                },
                () = at(alarm) => {}
            }
        }
    }

    /// The first call that was held takes what was dialled. Without one it is closed.
    async fn begin(&mut self, dialled: Option<Socket>, pending: &mut PendingCalls) {
        pending.drop_abandoned();
        let mut calls = std::mem::take(&mut pending.calls).into_iter();
        if let Some(socket) = dialled {
            pending.connected();
            match calls.next() {
                Some(call) => self.ask(call, Some(socket)),
                None => socket.leave().await,
            }
        }
        calls.for_each(|call| self.ask(call, None));
    }

    /// Is the client to dial, and why? Probes that an idle connection answers get their result.
    fn is_over(&self, pending: &mut PendingCalls) -> Option<&'static str> {
        if !self.idle.is_empty() {
            pending.connected();
        }
        match (self.is_bare(), pending.probes.is_empty()) {
            (true, false) => Some("a probe asks"),
            (true, true) if self.http2 => Some("the hook speaks HTTP/2"),
            _ => None,
        }
    }

    fn is_bare(&self) -> bool {
        self.idle.is_empty() && self.exchanges.is_empty()
    }

    /// Time at which an idle connection ends though nothing happens.
    fn alarm(&self) -> Option<Instant> {
        let longest = self.idle.front()?.since + self.idle_for();
        let beyond = self.idle.iter().any(|idle| idle.connection.is_beyond_guarantee());
        Some(if beyond { longest.min(now() + LOOK_AROUND) } else { longest })
    }

    /// Time for which connections may be idle, as things are.
    fn idle_for(&self) -> Duration {
        if self.exchange.arbiter.eviction_wanted() { PATIENCE } else { IDLE_FOR }
    }

    fn ask(&mut self, call: Call, dialled: Option<Socket>) {
        if call.is_abandoned() || now() >= call.deadline {
            return;
        }
        let choice = match (dialled, call.reuse) {
            (Some(socket), _) => ConnectionChoice::Dialled(socket),
            (None, Reuse::Allowed) => self.choose(),
            // The room of the one that was stale is given back, and taken again in turn.
            (None, Reuse::Forbidden) => ConnectionChoice::DialInTurn,
        };
        let (responses, tag) = (call.responses.clone(), call.tag);
        let task = self.exchanges.spawn(self.exchange.clone().run(call, choice));
        self.callers.insert(task.id(), PendingCall { responses, tag, task });
    }

    /// Connection that a call begins with.
    fn choose(&mut self) -> ConnectionChoice {
        if let Some(connection) = self.take_idle() {
            return ConnectionChoice::Used(connection);
        }
        let room = if self.queue.is_empty() { self.exchange.dialler.room_at_once() } else { None };
        match room {
            Some(Ok(slot)) => ConnectionChoice::Dial(slot),
            Some(Err(why)) => ConnectionChoice::None(why),
            None => self.queue.join().unwrap_or_else(|waiting| {
                let why = format!("its connections are all in use, and {waiting} calls wait for one");
                ConnectionChoice::None(Unreachable::at(Step::Connect, why))
            }),
        }
    }

    /// There is room for a connection, for whoever has waited longest.
    fn has_room(&mut self, room: Room) {
        self.queue.offer(match room {
            Ok(slot) => ConnectionChoice::Dial(slot),
            Err(why) => ConnectionChoice::None(why),
        });
    }

    /// The one used last, as its hook is least likely to have closed it.
    fn take_idle(&mut self) -> Option<Http1Connection> {
        loop {
            let Idle { connection, .. } = self.idle.pop_back()?;
            if connection.is_alive() {
                return Some(connection);
            }
        }
    }

    /// A connection is free for the call that has waited longest; without one, or while another client has waited and
    /// this one has more than its part, it is idle.
    fn release(&mut self, connection: Http1Connection) {
        let others_wait = self.exchange.dialler.waiting() > usize::from(self.queue.seeks());
        if others_wait && !self.queue.is_empty() && self.connections() > self.exchange.dialler.fair() {
            return;
        }
        if let Some(ConnectionChoice::Used(connection)) = self.queue.offer(ConnectionChoice::Used(connection)) {
            self.keep_idle(connection);
        }
    }

    /// The connections of this client, of which one is just free.
    fn connections(&self) -> usize {
        self.idle.len() + 1 + self.exchanges.len().saturating_sub(self.queue.waiting())
    }

    fn keep_idle(&mut self, connection: Http1Connection) {
        self.idle.push_back(Idle { since: now(), connection, _guard: self.exchange.arbiter.idle_guard() });
    }

    /// A call is over. Its connection is idle before its answer is known: who asks next finds it.
    fn completed(&mut self, ended: Result<(Id, Completed), JoinError>) {
        let (id, Completed { result, connection, http2 }) = match ended {
            Ok(completed) => completed,
            // Abandoned; or it panicked, which would be our fault, and must not leave the caller waiting.
            Err(error) => (error.id(), failed(CallFailure::Connection(error.to_string()))),
        };
        self.http2 |= http2;
        if let Some(connection) = connection {
            self.release(connection);
        }
        if let Some(asked) = self.callers.remove(&id)
            && let Some(result) = result
        {
            asked.responses.deliver(asked.tag, result);
        }
    }

    /// HTTP/1.1 has no way to call off a call but to hang up.
    fn cancel_abandoned(&self) {
        self.callers.values().filter(|asked| asked.responses.is_closed()).for_each(|asked| asked.task.abort());
    }

    /// Lets go of connections that ended, that were unused for long, or whose room others want.
    fn tidy(&mut self, now: Instant) {
        self.idle.retain(|idle| idle.connection.is_alive());
        let idle_for = self.idle_for();
        let over = |idle: &Idle| now.duration_since(idle.since) >= idle_for;
        while self.idle.front().is_some_and(over) {
            self.idle.pop_front();
        }
        let dialler = &self.exchange.dialler;
        let mut wanted = dialler.waiting();
        self.idle.retain(|idle| {
            let gives_way = wanted > 0 || idle.connection.is_beyond_guarantee() && dialler.others_wait();
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
