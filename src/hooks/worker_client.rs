//! WorkerClient: one worker's client of one endpoint, kept connected where that costs the hook nothing.
//!
//! ```text
//!           dialled, handshake done
//! Dialling ────────────────────> Connected ──lost, or no more calls taken──> Dialling
//!    │  ^                            │
//!    │  └── a call, or the pause ends│ no more calls, last answer in
//!    └─failed──> Pausing <─unanswered┤
//!                  └──no call──> over
//! ```
//!
//! Connected is one HTTP/2 connection; or, where the hook speaks HTTP/1.1, a pool, which may be empty: a hook that
//! serves one connection at a time would wait for a call on one that carries none. A connection dialled to learn the
//! protocol is closed unless a call waits for it. A plaintext hook's protocol is known, so its client begins connected,
//! and dials only when a probe asks.
//!
//! While dialling, calls wait (each no longer than its own timeout). When dialling fails, all of them fail with the
//! reason; the next call then dials anew, so that a hook that has come back is found at once, as kube-apiserver would.
//! A hook that takes connections and answers nothing on them is dialled less and less often (`dial_pace`).
//!
//! A client is never without a task: one that panics has failed its calls, and is restarted.

use std::{
    future::{Future, pending},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use tokio::{
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    time::{sleep, sleep_until},
};

use super::{
    call::Call,
    command::{Command, Probe},
    dial::Socket,
    dial_pace::{DialOutcome, DialPace},
    dialler::{Dialled, Dialler},
    draining::DrainingConnections,
    http1::{IdleArbiter, Pool},
    http2::Http2Connection,
    pending_calls::PendingCalls,
};
use crate::{
    clock::now,
    model::{CallFailure, Step, Unreachable},
    telemetry::faults,
};

/// A task that panics again and again must not make its worker spin.
const AFTER_PANIC: Duration = Duration::from_millis(50);
/// Calls that wait for a connection are let go no later than so long after their time is over. None is sent after it.
const LATE_BY: Duration = Duration::from_millis(50);

/// The sending end of a client. Dropping it lets the client end once its last answer is in.
#[derive(Clone, Debug)]
pub(super) struct WorkerClient {
    commands: UnboundedSender<Command>,
    /// Rings when calls were abandoned.
    swept: Arc<Notify>,
}

impl WorkerClient {
    /// A client and the task that drives it; the caller spawns the task where it shall live.
    pub(super) fn new(
        dialler: Arc<Dialler>,
        arbiter: Arc<IdleArbiter>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, commands) = unbounded_channel();
        let swept = Arc::new(Notify::new());
        let draining = DrainingConnections::new(swept.clone());
        let task = Task {
            dialler,
            arbiter,
            commands,
            pending: PendingCalls::default(),
            open: true,
            draining,
            pace: DialPace::default(),
        };
        (Self { commands: sender, swept }, task.run())
    }

    pub(super) fn ask(&self, call: Call) {
        if let Err(refused) = self.commands.send(Command::Ask(call))
            && let Command::Ask(call) = refused.0
        {
            // Only when the worker's runtime is gone, at the end of the process.
            call.responses.deliver(call.tag, Err(CallFailure::Connection("gatepost is stopping".into()).into()));
        }
    }

    /// Calls whose responses are closed are to be reset.
    pub(super) fn cancel_abandoned(&self) {
        // A client that is gone has nothing to reset.
        let _ = self.commands.send(Command::CancelAbandoned);
        self.swept.notify_waiters();
    }

    /// Answers the probe, once it is known, whether the hook can be connected to. A client that is gone drops it.
    pub(super) fn probe(&self, probe: Probe) {
        let _ = self.commands.send(Command::Probe(probe));
    }
}

struct Task {
    dialler: Arc<Dialler>,
    arbiter: Arc<IdleArbiter>,
    commands: UnboundedReceiver<Command>,
    pending: PendingCalls,
    /// Somebody may still ask.
    open: bool,
    /// Connections on which answers are due, and nothing is asked any more.
    draining: DrainingConnections,
    pace: DialPace,
}

impl Task {
    /// Drives the client for as long as somebody may ask, whatever happens to it.
    async fn run(mut self) {
        while AssertUnwindSafe(self.drive()).catch_unwind().await.is_err() {
            faults::hook_worker_panicked();
            tracing::error!(endpoint = %self.dialler.endpoint, "the client of a hook panicked and was restarted; this is a bug in Gatepost");
            self.pending.give_up("gatepost gave the connection up");
            sleep(AFTER_PANIC).await;
        }
    }

    async fn drive(&mut self) {
        while self.open || !self.pending.is_empty() {
            if self.dialler.speaks_http1() && self.pending.probes.is_empty() && self.pool(None).await.is_none() {
                return;
            }
            self.rest().await;
            if !self.open && self.pending.is_empty() {
                return;
            }
            self.pace.dials(now());
            match self.connect().await {
                Ok(dialled) => {
                    let ended = match dialled {
                        Dialled::Http2(connection) => self.carry_over(connection).await,
                        Dialled::Http1(socket) => self.pool(Some(socket)).await.map(|why| (why, DialOutcome::Answers)),
                    };
                    let Some((why, outcome)) = ended else { return };
                    self.pace.ended(now(), outcome);
                    tracing::debug!(endpoint = %self.dialler.endpoint, why, ?outcome, "dialling a hook anew");
                }
                Err(why) => {
                    tracing::debug!(endpoint = %self.dialler.endpoint, step = %why.step, %why, "cannot connect to a hook");
                    self.pending.fail(&why);
                    let refused = why.step == Step::Connect;
                    self.pace.ended(now(), if refused { DialOutcome::Refused } else { DialOutcome::Nothing });
                }
            }
        }
    }

    /// Carries calls over one HTTP/2 connection, and says why it takes no more; `None` when nobody will ask.
    async fn carry_over(&mut self, connection: Http2Connection<Socket>) -> Option<(String, DialOutcome)> {
        let first = self.pending.connected();
        let ended = connection.drive(&mut self.commands, first).await;
        self.pending.calls = ended.unsent;
        if ended.starved {
            faults::connection_starved();
            tracing::warn!(
                endpoint = %self.dialler.endpoint,
                fix = "see whether the hook, or a proxy before it, gives back the flow-control window of calls that are reset",
                "the HTTP/2 window of a hook's connection stays used up; its calls go over a new connection"
            );
        }
        if let Some(leaving) = ended.leaving {
            // The next calls do not wait for the answers still due here.
            self.draining.add(leaving);
        }
        Some((ended.why?, if ended.answered { DialOutcome::Answers } else { DialOutcome::Nothing }))
    }

    /// Carries calls over HTTP/1.1 connections, and says why the client is to dial; `None` when nobody will ask.
    async fn pool(&mut self, dialled: Option<Socket>) -> Option<String> {
        let pool = Pool::new(self.dialler.clone(), self.arbiter.clone());
        pool.drive(dialled, &mut self.commands, &mut self.pending).await
    }

    /// Dials, with the handshake; calls that come meanwhile are held, and let go when nobody waits for them any more.
    async fn connect(&mut self) -> Result<Dialled, Unreachable> {
        let Self { dialler, arbiter, commands, pending, open, .. } = self;
        let attempt = arbiter.run_or_evict_idle(dialler.dial());
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                result = &mut attempt => return result,
                () = pending.receive(commands, open, LATE_BY) => {
                    if !*open && pending.is_empty() {
                        return Err(Unreachable::at(Step::Connect, "nobody asks any more"));
                    }
                }
            }
        }
    }

    /// Waits until the client may dial. Whether somebody asks makes a difference.
    async fn rest(&mut self) {
        let Self { commands, pending, open, pace, .. } = self;
        loop {
            let until = pace.next(!pending.is_empty());
            if until.is_none_or(|until| until <= now()) || (!*open && pending.is_empty()) {
                return;
            }
            tokio::select! {
                () = pending.receive(commands, open, LATE_BY) => {}
                () = at(until) => {}
            }
        }
    }
}

/// Waits until then; without a time, for ever.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
