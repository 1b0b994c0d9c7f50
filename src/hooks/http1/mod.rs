//! HTTP/1.1 to hooks that speak nothing newer. hyper implements the protocol; this module has the [`Pool`] of
//! connections of one client.
//!
//! | file | owns |
//! | --- | --- |
//! | `exchange` | one call, from a connection or a dial to its result |
//! | `reader` | the reply to one POST, within bounds |
//! | `idle_arbiter` | state that all clients of one endpoint share: idle connections that give way, failure pauses |
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
//! If the hook's share of the connection budget is used up, calls wait in order for a connection of this client that
//! becomes idle, or for a slot; idle connections of other clients give way then.
//!
//! Every connection of a pool carries a call or has carried one. The pool ends when it has no connection and the client
//! must dial: for a probe, or because the hook speaks HTTP/2.

mod exchange;
mod idle_arbiter;
mod reader;

use std::{
    collections::VecDeque,
    future::{pending, ready},
    pin::{Pin, pin},
    sync::Arc,
    time::{Duration, Instant},
};

use http::HeaderValue;
use rustc_hash::FxHashMap;
use tokio::{
    sync::{mpsc::UnboundedReceiver, oneshot},
    task::{AbortHandle, Id, JoinError, JoinSet},
};

use self::{
    exchange::{CallOutcome, CallRunner, ConnectionChoice, Http1Connection, failed},
    idle_arbiter::{EVICTION_DELAY, IdleGuard},
};
use super::{
    call::{Call, Responses, Reuse},
    commands::{Command, PendingCalls, sleep_until_some},
    connect::Socket,
    connection_budget::Slot,
    dialler::Dialler,
};
use gatepost_api::{CallFailure, Step, Unreachable};
use gatepost_base::clock::now;

pub(super) use self::idle_arbiter::IdleArbiter;
pub use self::reader::read_http1;

/// Time for which an idle connection is kept, as by Go.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Interval of the check whether other hooks wait for connections that this hook keeps idle beyond its guaranteed ones.
const EVICTION_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of waiting calls. Further calls fail immediately.
const MAX_WAITING_CALLS: usize = 1024;

/// The connections of one client.
pub(super) struct Pool {
    runner: CallRunner,
    /// Idle connections, the longest idle first.
    idle: VecDeque<Idle>,
    running: JoinSet<CallOutcome>,
    /// Calls that run, by task.
    calls: FxHashMap<Id, RunningCall>,
    /// Calls that wait for a connection.
    queue: Queue,
    /// True if the hook has turned out to speak HTTP/2.
    http2: bool,
}

#[derive(Debug)]
struct Idle {
    since: Instant,
    connection: Http1Connection,
    _guard: IdleGuard,
}

#[derive(Debug)]
struct RunningCall {
    responses: Arc<Responses>,
    tag: u32,
    task: AbortHandle,
}

impl Pool {
    /// Creates a pool without connections.
    pub(super) fn new(dialler: Arc<Dialler>, arbiter: Arc<IdleArbiter>) -> Self {
        // The host of an endpoint is valid; if it were not, the hook would refuse the call.
        let host = HeaderValue::from_str(&dialler.authority()).unwrap_or(HeaderValue::from_static(""));
        let authorization = dialler.endpoint.authorization.as_ref().and_then(|authorization| {
            let mut value = HeaderValue::from_str(authorization.as_str()).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        Self {
            runner: CallRunner { dialler, host, authorization, gone: Arc::default(), arbiter },
            idle: VecDeque::new(),
            running: JoinSet::new(),
            calls: FxHashMap::default(),
            queue: Queue::default(),
            http2: false,
        }
    }

    /// Carries out commands until the client must dial, and returns the reason; `None` if there are no further commands
    /// and the last call has ended. A dialled connection is given to a waiting call, or closed.
    pub(super) async fn drive(
        mut self,
        dialled: Option<Socket>,
        commands: &mut UnboundedReceiver<Command>,
        pending: &mut PendingCalls,
    ) -> Option<String> {
        self.begin(dialled, pending).await;
        let (gone, arbiter) = (Arc::clone(&self.runner.gone), Arc::clone(&self.runner.arbiter));
        let mut commands_open = true;
        loop {
            // Before the check, so that no later change is missed.
            let mut changed = pin!(arbiter.changed());
            changed.as_mut().enable();
            self.tidy(now());
            if !commands_open && self.running.is_empty() {
                return None;
            }
            if let Some(why) = self.is_over(pending) {
                return Some(why.to_owned());
            }
            let alarm = self.alarm();
            tokio::select! {
                biased;
                Some(ended) = self.running.join_next_with_id() => self.completed(ended),
                () = gone.notified() => {}
                () = changed => {}
                slot = self.queue.slot(&self.runner) => self.offer_slot(slot),
                command = commands.recv(), if commands_open => match command {
                    Some(Command::Call(call)) => self.start(call, None),
                    Some(Command::CancelAbandoned) => self.cancel_abandoned(),
                    Some(Command::Probe(probe)) => pending.probes.push(probe),
                    None => commands_open = false,
                },
                () = sleep_until_some(alarm) => {}
            }
        }
    }

    /// Gives the dialled connection to the first waiting call. Without one it is closed.
    async fn begin(&mut self, dialled: Option<Socket>, pending: &mut PendingCalls) {
        pending.drop_abandoned();
        let mut calls = std::mem::take(&mut pending.calls).into_iter();
        if let Some(socket) = dialled {
            pending.connected();
            match calls.next() {
                Some(call) => self.start(call, Some(socket)),
                None => socket.close().await,
            }
        }
        calls.for_each(|call| self.start(call, None));
    }

    /// Returns the reason why the client must dial, if there is one. An idle connection answers probes.
    fn is_over(&self, pending: &mut PendingCalls) -> Option<&'static str> {
        if !self.idle.is_empty() {
            pending.connected();
        }
        match (self.idle.is_empty() && self.running.is_empty(), pending.probes.is_empty()) {
            (true, false) => Some("a probe asks"),
            (true, true) if self.http2 => Some("the hook speaks HTTP/2"),
            _ => None,
        }
    }

    /// Returns the time at which idle connections must be checked.
    fn alarm(&self) -> Option<Instant> {
        let longest = self.idle.front()?.since + self.idle_for();
        let beyond = self.idle.iter().any(|idle| idle.connection.is_beyond_guarantee);
        Some(if beyond { longest.min(now() + EVICTION_CHECK_INTERVAL) } else { longest })
    }

    /// Returns the time for which connections may be idle now.
    fn idle_for(&self) -> Duration {
        if self.runner.arbiter.eviction_wanted() { EVICTION_DELAY } else { IDLE_TIMEOUT }
    }

    fn start(&mut self, call: Call, dialled: Option<Socket>) {
        if call.is_abandoned() || now() >= call.deadline {
            return;
        }
        let choice = match (dialled, call.reuse) {
            (Some(socket), _) => ConnectionChoice::Dialled(socket),
            (None, Reuse::Allowed) => self.choose(),
            // The slot of the stale connection is released; the call waits for a slot in turn.
            (None, Reuse::Forbidden) => ConnectionChoice::DialInTurn,
        };
        let (responses, tag) = (call.responses.clone(), call.tag);
        let task = self.running.spawn(self.runner.clone().run(call, choice));
        self.calls.insert(task.id(), RunningCall { responses, tag, task });
    }

    /// Returns the connection for a call.
    fn choose(&mut self) -> ConnectionChoice {
        if let Some(connection) = self.take_idle() {
            return ConnectionChoice::Reused(connection);
        }
        let slot = if self.queue.is_empty() { self.runner.dialler.try_slot() } else { None };
        match slot {
            Some(Ok(slot)) => ConnectionChoice::Dial(slot),
            Some(Err(why)) => ConnectionChoice::None(why),
            None => self.queue.join().unwrap_or_else(|waiting| {
                let why = format!("its connections are all in use, and {waiting} calls wait for one");
                ConnectionChoice::None(Unreachable::at(Step::Connect, why))
            }),
        }
    }

    /// Offers a slot to the call that has waited longest.
    fn offer_slot(&mut self, slot: SlotResult) {
        self.queue.offer(match slot {
            Ok(slot) => ConnectionChoice::Dial(slot),
            Err(why) => ConnectionChoice::None(why),
        });
    }

    /// Takes the connection used last: its hook is least likely to have closed it.
    fn take_idle(&mut self) -> Option<Http1Connection> {
        loop {
            let Idle { connection, .. } = self.idle.pop_back()?;
            if connection.is_alive() {
                return Some(connection);
            }
        }
    }

    /// Offers a free connection to the call that has waited longest. If no call waits, it becomes idle. It is closed if
    /// another client waits while this one has more than its part.
    fn release(&mut self, connection: Http1Connection) {
        let share = &self.runner.dialler.share;
        let others_wait = share.waiting() > usize::from(self.queue.slot.is_some());
        let per_client = share.per_client;
        if others_wait && !self.queue.is_empty() && self.connections() > per_client {
            return;
        }
        if let Some(ConnectionChoice::Reused(connection)) = self.queue.offer(ConnectionChoice::Reused(connection)) {
            let _guard = self.runner.arbiter.idle_guard();
            self.idle.push_back(Idle { since: now(), connection, _guard });
        }
    }

    /// Returns the number of connections of this client, one of which has just become free.
    fn connections(&self) -> usize {
        self.idle.len() + 1 + self.running.len().saturating_sub(self.queue.waiting())
    }

    /// Ends a call. Its connection becomes idle before its result is delivered, so that the next call finds it.
    fn completed(&mut self, ended: Result<(Id, CallOutcome), JoinError>) {
        let (id, CallOutcome { result, connection, http2 }) = match ended {
            Ok(completed) => completed,
            // The call was abandoned, or its task panicked; its caller must not wait for ever.
            Err(error) => (error.id(), failed(CallFailure::Connection(error.to_string()))),
        };
        self.http2 |= http2;
        if let Some(connection) = connection {
            self.release(connection);
        }
        if let Some(call) = self.calls.remove(&id)
            && let Some(result) = result
        {
            call.responses.deliver(call.tag, result);
        }
    }

    /// Cancels abandoned calls by closing their connections, as HTTP/1.1 has no other way.
    fn cancel_abandoned(&self) {
        self.calls.values().filter(|call| call.responses.is_closed()).for_each(|call| call.task.abort());
    }

    /// Closes idle connections that have ended, were unused for long, or whose slots are wanted.
    fn tidy(&mut self, now: Instant) {
        self.idle.retain(|idle| idle.connection.is_alive());
        let idle_for = self.idle_for();
        let over = |idle: &Idle| now.duration_since(idle.since) >= idle_for;
        while self.idle.front().is_some_and(over) {
            self.idle.pop_front();
        }
        let share = &self.runner.dialler.share;
        let mut wanted = share.waiting();
        self.idle.retain(|idle| {
            let gives_way = wanted > 0 || idle.connection.is_beyond_guarantee && share.others_wait();
            wanted = wanted.saturating_sub(1);
            !gives_way
        });
    }
}

/// A slot for a connection, or the reason why there is none.
type SlotResult = Result<Slot, Unreachable>;

/// Calls of one client that wait for a connection, in order. Each of them has a task, which ends at the call's
/// deadline. An offer to an ended task goes to the next call.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<oneshot::Sender<ConnectionChoice>>,
    /// Slot that the first call waits for, besides a connection that becomes free.
    slot: Option<Pin<Box<dyn Future<Output = SlotResult> + Send>>>,
}

impl Queue {
    /// Adds a call. If too many calls wait, returns their number instead.
    fn join(&mut self) -> Result<ConnectionChoice, usize> {
        if self.waiting.len() >= MAX_WAITING_CALLS {
            self.waiting.retain(|call| !call.is_closed());
        }
        if self.waiting.len() >= MAX_WAITING_CALLS {
            return Err(self.waiting.len());
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.push_back(sender);
        Ok(ConnectionChoice::Wait(receiver))
    }

    /// Returns true if no call waits.
    fn is_empty(&mut self) -> bool {
        while self.waiting.front().is_some_and(oneshot::Sender::is_closed) {
            self.waiting.pop_front();
        }
        if self.waiting.is_empty() {
            self.slot = None;
        }
        self.waiting.is_empty()
    }

    /// Returns the number of calls that wait.
    fn waiting(&self) -> usize {
        self.waiting.iter().filter(|call| !call.is_closed()).count()
    }

    /// Offers a connection to the call that has waited longest. Returns it if no call waits.
    fn offer(&mut self, mut choice: ConnectionChoice) -> Option<ConnectionChoice> {
        while let Some(call) = self.waiting.pop_front() {
            match call.send(choice) {
                Ok(()) => return None,
                // Its deadline has passed.
                Err(back) => choice = back,
            }
        }
        Some(choice)
    }

    /// Waits for a slot, or for ever if no call waits.
    async fn slot(&mut self, runner: &CallRunner) -> SlotResult {
        if self.is_empty() {
            return pending().await;
        }
        let slot = self.slot.get_or_insert_with(|| {
            let (dialler, arbiter) = (runner.dialler.clone(), runner.arbiter.clone());
            Box::pin(async move {
                let mut slot = pin!(dialler.slot());
                tokio::select! {
                    biased;
                    slot = &mut slot => return slot,
                    // The budget counts it as waiting by now.
                    () = ready(()) => arbiter.want_slot(),
                }
                slot.await
            })
        });
        let result = slot.as_mut().await;
        self.slot = None;
        result
    }
}

#[cfg(test)]
mod tests;
