//! Lane: one worker's way to one endpoint, kept connected where that costs the hook nothing.
//!
//! ```text
//!             dialled, greeted
//! Dialling ────────────────────> Connected ──lost, or no more calls taken──> Dialling
//!    │  ^                            │
//!    │  └── a call, or the pause ends│ nobody asks any more, last answer in
//!    └─failed──> Pausing <─unanswered┤
//!                  └──nobody asks──> over
//! ```
//!
//! Connected is one HTTP/2 connection; or, where the hook speaks HTTP/1.1, a pool, which may be empty: a hook that
//! serves one connection at a time would wait for a call on one that carries none. A connection dialled to learn the
//! protocol is closed unless a call waits for it. A plaintext hook's protocol is known, so its client begins connected,
//! and dials only when a probe asks.
//!
//! While dialling, calls wait (each no longer than its own timeout). When dialling fails, all of them fail with the
//! reason; the next call then dials anew, so that a hook that has come back is found at once, as kube-apiserver would.
//! A hook that takes connections and answers nothing on them is dialled less and less often (`pace`).
//!
//! A lane is never without a task: one that panics has failed its calls, and is started anew.

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
    dial::Socket,
    dialler::{Dialled, Dialler},
    held::{Held, Probe},
    http1::{Pool, Turns},
    http2::Http2Connection,
    leavers::Leavers,
    pace::{Fruit, Pace},
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

/// Command to a worker's client.
#[derive(Debug)]
pub(super) enum Command {
    /// Ask this.
    Ask(Call),
    /// Some calls are abandoned; reset them.
    Sweep,
    /// Say whether the hook can be connected to, once that is known.
    Probe(Probe),
    /// Panic.
    #[cfg(test)]
    Panic,
}

/// The sending end of a lane. Dropping it lets the lane end once its last answer is in.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    commands: UnboundedSender<Command>,
    /// Rings when calls were abandoned.
    swept: Arc<Notify>,
}

impl Lane {
    /// A lane and the task that drives it; the caller spawns the task where it shall live.
    pub(super) fn new(dialler: Arc<Dialler>, turns: Arc<Turns>) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, commands) = unbounded_channel();
        let swept = Arc::new(Notify::new());
        let leavers = Leavers::new(swept.clone());
        let task = Task { dialler, turns, commands, held: Held::default(), open: true, leavers, pace: Pace::default() };
        (Self { commands: sender, swept }, task.run())
    }

    pub(super) fn ask(&self, call: Call) {
        if let Err(refused) = self.commands.send(Command::Ask(call))
            && let Command::Ask(call) = refused.0
        {
            // Only when the worker's runtime is gone, at the end of the process.
            call.inbox.deliver(call.tag, Err(CallFailure::Connection("gatepost is stopping".into()).into()));
        }
    }

    /// Calls whose inbox was closed are to be reset.
    pub(super) fn sweep(&self) {
        // A lane that is gone has nothing to reset.
        let _ = self.commands.send(Command::Sweep);
        self.swept.notify_waiters();
    }

    /// Tells the probe whether the hook can be connected to, once that is known. A lane that is gone drops it.
    pub(super) fn probe(&self, probe: Probe) {
        let _ = self.commands.send(Command::Probe(probe));
    }
}

struct Task {
    dialler: Arc<Dialler>,
    turns: Arc<Turns>,
    commands: UnboundedReceiver<Command>,
    held: Held,
    /// Somebody may still ask.
    open: bool,
    /// Connections on which answers are due, and nothing is asked any more.
    leavers: Leavers,
    pace: Pace,
}

impl Task {
    /// Drives the lane for as long as somebody may ask, whatever happens to it.
    async fn run(mut self) {
        while AssertUnwindSafe(self.drive()).catch_unwind().await.is_err() {
            faults::lane_panicked();
            tracing::error!(endpoint = %self.dialler.endpoint, "a hook's lane panicked and is started anew; this is a bug in gatepost");
            self.held.give_up("gatepost gave the connection up");
            sleep(AFTER_PANIC).await;
        }
    }

    async fn drive(&mut self) {
        while self.open || !self.held.is_empty() {
            if self.dialler.speaks_http1() && self.held.probes.is_empty() && self.pool(None).await.is_none() {
                return;
            }
            self.rest().await;
            if !self.open && self.held.is_empty() {
                return;
            }
            self.pace.dials(now());
            match self.connect().await {
                Ok(dialled) => {
                    let ended = match dialled {
                        Dialled::Http2(connection) => self.carry_over(connection).await,
                        Dialled::Http1(socket) => self.pool(Some(socket)).await.map(|why| (why, Fruit::Answers)),
                    };
                    let Some((why, fruit)) = ended else { return };
                    self.pace.ended(now(), fruit);
                    tracing::debug!(endpoint = %self.dialler.endpoint, why, ?fruit, "dialling a hook anew");
                }
                Err(why) => {
                    tracing::debug!(endpoint = %self.dialler.endpoint, step = %why.step, %why, "cannot connect to a hook");
                    self.held.fail(&why);
                    let refused = why.step == Step::Connect;
                    self.pace.ended(now(), if refused { Fruit::Refusal } else { Fruit::Nothing });
                }
            }
        }
    }

    /// Carries calls over one HTTP/2 connection, and says why it takes no more; `None` when nobody will ask.
    async fn carry_over(&mut self, connection: Http2Connection<Socket>) -> Option<(String, Fruit)> {
        let first = self.held.connected();
        let ended = connection.drive(&mut self.commands, first).await;
        self.held.calls = ended.unsent;
        if let Some(leaving) = ended.leaving {
            // The next calls do not wait for the answers still due here.
            self.leavers.add(leaving);
        }
        Some((ended.why?, if ended.answered { Fruit::Answers } else { Fruit::Nothing }))
    }

    /// Carries calls over HTTP/1.1 connections, and says why the lane is to dial; `None` when nobody will ask.
    async fn pool(&mut self, dialled: Option<Socket>) -> Option<String> {
        let pool = Pool::new(self.dialler.clone(), self.turns.clone());
        pool.drive(dialled, &mut self.commands, &mut self.held).await
    }

    /// Dials and greets; calls that come meanwhile are held, and let go when nobody waits for them any more.
    async fn connect(&mut self) -> Result<Dialled, Unreachable> {
        let Self { dialler, turns, commands, held, open, .. } = self;
        let attempt = turns.patiently(dialler.dial());
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                result = &mut attempt => return result,
                () = held.hear(commands, open, LATE_BY) => {
                    if !*open && held.is_empty() {
                        return Err(Unreachable::at(Step::Connect, "nobody asks any more"));
                    }
                }
            }
        }
    }

    /// Waits until the lane may dial. Whether somebody asks makes a difference.
    async fn rest(&mut self) {
        let Self { commands, held, open, pace, .. } = self;
        loop {
            let until = pace.next(!held.is_empty());
            if until.is_none_or(|until| until <= now()) || (!*open && held.is_empty()) {
                return;
            }
            tokio::select! {
                () = held.hear(commands, open, LATE_BY) => {}
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
