//! Lane: one worker's way to one endpoint, kept connected where that costs the hook nothing.
//!
//! ```text
//!             dialled, greeted
//! Dialling ────────────────────> Connected ──lost, or no more calls taken──> Dialling
//!    │  ^                            │
//!    │  └── a call, or the pause ends│ nobody asks any more, last answer in
//!    └─failed──> Pausing             v
//!                  └──nobody asks──> over
//! ```
//!
//! Connected is one HTTP/2 connection; or, where the hook speaks HTTP/1.1, a pool, which may be empty: a hook that serves
//! one connection at a time would wait for a call on one that carries none. What was dialled to learn the protocol is
//! closed unless a call waits for it. A plaintext hook's protocol is known, so its lane begins connected, and dials only
//! when a probe asks.
//!
//! While dialling, calls wait (each no longer than its own timeout). When dialling fails, all of them fail with the
//! reason; the next call then dials anew, so that a hook that has come back is found at once, as kube-apiserver would.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{sleep, timeout},
};

use super::{
    call::Call,
    dial::Socket,
    dialler::{Dialled, Dialler},
    held::{Held, Probe},
    http1::{Pool, Turns},
    http2::Connection,
};
use crate::model::{CallFailure, Step, Unreachable};

/// Pauses between attempts when nobody asks: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A lane does not dial more often than this.
const BETWEEN_DIALS: Duration = Duration::from_millis(20);
/// A connection that takes no more calls is closed by then: no hook's own timeout is longer.
const LEAVING_WITHIN: Duration = Duration::from_secs(30);

/// What a lane is told.
#[derive(Debug)]
pub(super) enum Command {
    /// Ask this.
    Ask(Call),
    /// Some calls are abandoned; reset them.
    Sweep,
    /// Say whether the hook can be connected to, once that is known.
    Probe(Probe),
}

/// The sending end of a lane. Dropping it lets the lane end once its last answer is in.
#[derive(Clone, Debug)]
pub(super) struct Lane(UnboundedSender<Command>);

impl Lane {
    /// A lane and the task that drives it; the caller spawns the task where it shall live.
    pub(super) fn new(dialler: Arc<Dialler>, turns: Arc<Turns>) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, commands) = unbounded_channel();
        let task = Task { dialler, turns, commands, held: Held::default(), open: true };
        (Self(sender), task.run())
    }

    pub(super) fn ask(&self, call: Call) {
        if let Err(refused) = self.0.send(Command::Ask(call))
            && let Command::Ask(call) = refused.0
        {
            // Only when the worker's runtime is gone, at the end of the process.
            call.inbox.deliver(call.tag, Err(CallFailure::Connection("gatepost is stopping".into())));
        }
    }

    /// Calls whose inbox was closed are to be reset.
    pub(super) fn sweep(&self) {
        // A lane that is gone has nothing to reset.
        let _ = self.0.send(Command::Sweep);
    }

    /// Tells the probe whether the hook can be connected to, once that is known. A lane that is gone drops it.
    pub(super) fn probe(&self, probe: Probe) {
        let _ = self.0.send(Command::Probe(probe));
    }
}

struct Task {
    dialler: Arc<Dialler>,
    turns: Arc<Turns>,
    commands: UnboundedReceiver<Command>,
    held: Held,
    /// Somebody may still ask.
    open: bool,
}

impl Task {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        while self.open || !self.held.is_empty() {
            if self.dialler.speaks_http1() && self.held.probes.is_empty() && self.pool(None).await.is_none() {
                return;
            }
            let dialled_at = Instant::now();
            match self.connect().await {
                Ok(dialled) => {
                    pause = FIRST_PAUSE;
                    let ended = match dialled {
                        Dialled::Http2(connection) => self.carry_over(connection).await,
                        Dialled::Http1(socket) => self.pool(Some(socket)).await,
                    };
                    let Some(why) = ended else { return };
                    tracing::debug!(endpoint = %self.dialler.endpoint, why, "dialling a hook anew");
                }
                Err(why) => {
                    tracing::debug!(endpoint = %self.dialler.endpoint, step = %why.step, %why, "cannot connect to a hook");
                    self.held.fail(&why);
                    self.rest(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
            // A hook that hangs up as soon as it is called must not make us spin.
            sleep(BETWEEN_DIALS.saturating_sub(dialled_at.elapsed())).await;
        }
    }

    /// Carries calls over one HTTP/2 connection, and says why it takes no more; `None` when nobody will ask.
    async fn carry_over(&mut self, connection: Connection<Socket>) -> Option<String> {
        let first = self.held.connected();
        let ended = connection.drive(&mut self.commands, first).await;
        self.held.calls = ended.unseen;
        if let Some(mut leaving) = ended.leaving {
            // The next calls do not wait for the answers still due here.
            tokio::spawn(async move { timeout(LEAVING_WITHIN, leaving.finish_calls()).await });
        }
        ended.why
    }

    /// Carries calls over HTTP/1.1 connections, and says why the lane is to dial; `None` when nobody will ask.
    async fn pool(&mut self, dialled: Option<Socket>) -> Option<String> {
        let pool = Pool::new(self.dialler.clone(), self.turns.clone());
        pool.drive(dialled, &mut self.commands, &mut self.held).await
    }

    /// Dials and greets; calls that come meanwhile are held, and let go when nobody waits for them any more.
    async fn connect(&mut self) -> Result<Dialled, Unreachable> {
        let Self { dialler, turns, commands, held, open } = self;
        let attempt = turns.patiently(dialler.dial());
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                result = &mut attempt => return result,
                command = commands.recv(), if *open => match command {
                    Some(Command::Ask(call)) => held.calls.push(call),
                    Some(Command::Probe(probe)) => held.probes.push(probe),
                    Some(Command::Sweep) => held.sweep(),
                    None if held.is_empty() => return Err(Unreachable::at(Step::Connect, "nobody asks any more")),
                    None => *open = false,
                },
            }
        }
    }

    /// Waits until somebody asks, or the pause is over.
    async fn rest(&mut self, pause: Duration) {
        let wait = async {
            loop {
                match self.commands.recv().await {
                    Some(Command::Ask(call)) => return self.held.calls.push(call),
                    Some(Command::Probe(probe)) => return self.held.probes.push(probe),
                    Some(Command::Sweep) => {}
                    None => {
                        self.open = false;
                        return;
                    }
                }
            }
        };
        // Running out of time is the ordinary end of a pause.
        let _ = timeout(pause, wait).await;
    }
}
