//! WorkerClient: one worker's client of one endpoint, kept connected if that costs the hook nothing; and Channel, the
//! live connections to that endpoint.
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
//! Connected means one HTTP/2 connection; or, if the hook speaks HTTP/1.1, a pool, which may be empty: a hook that
//! serves one connection at a time would wait for a call on an idle one. A connection dialled to learn the protocol is
//! closed unless a call waits for it. The protocol of a plaintext hook is known, so its client begins connected, and
//! dials only for a probe.
//!
//! While dialling, calls wait, each no longer than its own timeout. If dialling fails, all of them fail with the
//! reason. The next call then dials again, so that a hook that has come back is found immediately, as by
//! kube-apiserver. A hook that accepts connections and answers nothing on them is dialled less and less often
//! ([`DialPace`]).
//!
//! The task of a client that panics fails its calls, and is restarted.

use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use gatepost_api::{CallFailure, Endpoint, Step, Unreachable};
use gatepost_base::clock::now;
use tokio::{
    runtime::Handle,
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    time::sleep,
};

use super::{
    call::Call,
    commands::{Command, PendingCalls, Probe, sleep_until_some},
    connect::Socket,
    dialler::{DialOutcome, DialPace, Dialler, HookConnection, Resources},
    http1::{IdleArbiter, Pool},
    http2::Http2Connection,
    patch_rates::PatchRates,
};
use crate::telemetry::reading;

/// Pause after a panic, so that a task that panics repeatedly does not make its worker spin.
const RESTART_DELAY: Duration = Duration::from_millis(50);
/// Interval at which waiting calls past their deadlines are dropped. None of them is sent.
const LATE_CALLS_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of draining connections of a client, so that a hook that takes no calls does not pile them up.
const MAX_DRAINING_CONNECTIONS: usize = 8;

/// Handle of a client. When the last one is dropped, the client ends with its last answer.
#[derive(Clone, Debug)]
pub(super) struct WorkerClient {
    commands: UnboundedSender<Command>,
    /// Notifies draining connections of abandoned calls.
    abandoned_calls: Arc<Notify>,
}

impl WorkerClient {
    /// Creates a client, and the task that drives it, which the caller spawns.
    pub(super) fn new(
        dialler: Arc<Dialler>,
        arbiter: Arc<IdleArbiter>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, commands) = unbounded_channel();
        let abandoned_calls = Arc::new(Notify::new());
        let draining = DrainingConnections { keepers: VecDeque::new(), abandoned_calls: Arc::clone(&abandoned_calls) };
        let (pending, pace) = (PendingCalls::default(), DialPace::default());
        let task = Task { dialler, arbiter, commands, pending, commands_open: true, draining, pace };
        (Self { commands: sender, abandoned_calls }, task.run())
    }

    /// Queues a call. Its result is delivered to its responses.
    pub(super) fn submit(&self, call: Call) {
        if let Err(refused) = self.commands.send(Command::Call(call))
            && let Command::Call(call) = refused.0
        {
            // The worker's runtime has ended, at the end of the process.
            call.responses.deliver(call.tag, Err(CallFailure::Connection("gatepost is stopping".into()).into()));
        }
    }

    /// Resets calls whose responses are closed.
    pub(super) fn cancel_abandoned(&self) {
        // A client that has ended has nothing to reset.
        let _ = self.commands.send(Command::CancelAbandoned);
        self.abandoned_calls.notify_waiters();
    }

    /// Reports to the probe whether the hook can be connected to. A client that has ended drops it.
    pub(super) fn probe(&self, probe: Probe) {
        let _ = self.commands.send(Command::Probe(probe));
    }
}

struct Task {
    dialler: Arc<Dialler>,
    arbiter: Arc<IdleArbiter>,
    commands: UnboundedReceiver<Command>,
    pending: PendingCalls,
    /// True while further commands can arrive.
    commands_open: bool,
    draining: DrainingConnections,
    pace: DialPace,
}

impl Task {
    /// Drives the client until there are no further commands, also after a panic.
    async fn run(mut self) {
        while AssertUnwindSafe(self.drive()).catch_unwind().await.is_err() {
            reading::hook_worker_panicked();
            tracing::error!(endpoint = %self.dialler.endpoint, "the client of a hook panicked and was restarted; this is a bug in Gatepost");
            self.pending.fail_calls("gatepost gave the connection up");
            sleep(RESTART_DELAY).await;
        }
    }

    async fn drive(&mut self) {
        while self.commands_open || !self.pending.is_empty() {
            if self.dialler.speaks_http1() && self.pending.probes.is_empty() && self.pool(None).await.is_none() {
                return;
            }
            self.pause().await;
            if !self.commands_open && self.pending.is_empty() {
                return;
            }
            self.pace.record_dial(now());
            match self.connect().await {
                Ok(dialled) => {
                    let ended = match dialled {
                        HookConnection::Http2(connection) => self.carry_over(connection).await,
                        HookConnection::Http1(socket) => {
                            self.pool(Some(socket)).await.map(|why| (why, DialOutcome::Answered))
                        }
                    };
                    let Some((why, outcome)) = ended else { return };
                    self.pace.record_outcome(now(), outcome);
                    tracing::debug!(endpoint = %self.dialler.endpoint, why, ?outcome, "dialling a hook anew");
                }
                Err(why) => {
                    tracing::debug!(endpoint = %self.dialler.endpoint, step = %why.step, %why, "cannot connect to a hook");
                    self.pending.fail(&why);
                    let refused = why.step == Step::Connect;
                    self.pace
                        .record_outcome(now(), if refused { DialOutcome::Refused } else { DialOutcome::Unanswered });
                }
            }
        }
    }

    /// Carries calls over one HTTP/2 connection, and returns why it takes no more calls; `None` if there are no further
    /// commands.
    async fn carry_over(&mut self, connection: Http2Connection<Socket>) -> Option<(String, DialOutcome)> {
        let first = self.pending.connected();
        let ended = connection.drive(&mut self.commands, first).await;
        self.pending.calls = ended.unsent;
        if ended.starved {
            reading::connection_starved();
            tracing::warn!(
                endpoint = %self.dialler.endpoint,
                fix = "see whether the hook, or a proxy before it, gives back the flow-control window of calls that are reset",
                "the HTTP/2 window of a hook's connection stays used up; its calls go over a new connection"
            );
        }
        if let Some(connection) = ended.draining {
            // The next calls do not wait for the answers still due on it.
            self.draining.add(connection);
        }
        Some((ended.why?, if ended.answered { DialOutcome::Answered } else { DialOutcome::Unanswered }))
    }

    /// Carries calls over HTTP/1.1 connections, and returns why the client must dial; `None` if there are no further
    /// commands.
    async fn pool(&mut self, dialled: Option<Socket>) -> Option<String> {
        let pool = Pool::new(self.dialler.clone(), self.arbiter.clone());
        pool.drive(dialled, &mut self.commands, &mut self.pending).await
    }

    /// Dials, handshake included. Calls wait until then.
    async fn connect(&mut self) -> Result<HookConnection, Unreachable> {
        let Self { dialler, arbiter, commands, pending, commands_open, .. } = self;
        let attempt = arbiter.run_or_evict_idle(dialler.dial());
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                result = &mut attempt => return result,
                () = pending.receive(commands, commands_open, LATE_CALLS_INTERVAL) => {
                    if !*commands_open && pending.is_empty() {
                        return Err(Unreachable::at(Step::Connect, "the client was closed"));
                    }
                }
            }
        }
    }

    /// Waits until the client may dial.
    async fn pause(&mut self) {
        let Self { commands, pending, commands_open, pace, .. } = self;
        loop {
            let until = pace.next_dial(!pending.is_empty());
            if until.is_none_or(|until| until <= now()) || (!*commands_open && pending.is_empty()) {
                return;
            }
            tokio::select! {
                () = pending.receive(commands, commands_open, LATE_CALLS_INTERVAL) => {}
                () = sleep_until_some(until) => {}
            }
        }
    }
}

/// Connections on which the hook takes no new calls, but still answers those it has. Each ends with its last call,
/// which has a deadline.
#[derive(Debug)]
struct DrainingConnections {
    /// One for each connection, the oldest first. A connection ends when its sender is dropped.
    keepers: VecDeque<oneshot::Sender<()>>,
    /// Notifies of abandoned calls.
    abandoned_calls: Arc<Notify>,
}

impl DrainingConnections {
    /// Spawns a task that waits for the answers still due on this connection.
    fn add(&mut self, connection: Http2Connection<Socket>) {
        self.keepers.retain(|keeper| !keeper.is_closed());
        while self.keepers.len() >= MAX_DRAINING_CONNECTIONS {
            self.keepers.pop_front();
        }
        let (keeper, keeper_dropped) = oneshot::channel();
        self.keepers.push_back(keeper);
        tokio::spawn(drain(connection, keeper_dropped, self.abandoned_calls.clone()));
    }
}

async fn drain(
    mut connection: Http2Connection<Socket>,
    mut keeper_dropped: oneshot::Receiver<()>,
    abandoned_calls: Arc<Notify>,
) {
    let mut abandoned = pin!(abandoned_calls.notified());
    while !connection.protocol.is_idle() {
        tokio::select! {
            biased;
            _ = &mut keeper_dropped => {
                connection.protocol.fail("the hook has left too many connections without answering on them");
            }
            () = &mut abandoned => {
                // Before the check, so that no later notice is missed.
                abandoned.set(abandoned_calls.notified());
                abandoned.as_mut().enable();
                connection.protocol.cancel_abandoned();
            }
            () = connection.finish_calls() => {}
        }
    }
}

/// Live connections to one endpoint: one client for each worker, so that a request crosses no thread, and a spare one
/// for retries. HTTP/2 connections are opened ahead. When the last reference is dropped, they close with their last
/// calls.
#[derive(Debug)]
pub struct Channel {
    dialler: Arc<Dialler>,
    arbiter: Arc<IdleArbiter>,
    clients: Vec<WorkerClient>,
    /// Created at the first retry.
    spare: OnceLock<WorkerClient>,
    /// Patch rates of the channel's hooks, by path.
    patch_rates: Mutex<Vec<(Arc<str>, Arc<PatchRates>)>>,
}

/// Number of paths from which on unused patch rates are dropped.
const PATHS_BEFORE_CLEANUP: usize = 64;

impl Channel {
    /// Opens a channel as [`Channel::open_within`] does, without limits.
    pub fn open(endpoint: Endpoint, tls: Option<Arc<rustls::ClientConfig>>, workers: &[Handle]) -> Arc<Self> {
        Self::open_within(&Resources::unlimited(), endpoint, tls, workers)
    }

    /// Opens one client on each worker's runtime (at least one). The channel shares `resources` with the channels to
    /// all other hooks. Returns immediately: connections are dialled in the background.
    pub fn open_within(
        resources: &Resources,
        endpoint: Endpoint,
        tls: Option<Arc<rustls::ClientConfig>>,
        workers: &[Handle],
    ) -> Arc<Self> {
        let dialler = Arc::new(Dialler::new(endpoint, tls, resources, workers.len() + 1));
        let arbiter = Arc::new(IdleArbiter::default());
        let clients = workers
            .iter()
            .map(|worker| {
                let (client, task) = WorkerClient::new(dialler.clone(), arbiter.clone());
                worker.spawn(task);
                client
            })
            .collect();
        Arc::new(Self { dialler, arbiter, clients, spare: OnceLock::new(), patch_rates: Mutex::default() })
    }

    /// Returns the endpoint of the channel.
    pub fn endpoint(&self) -> &Endpoint {
        &self.dialler.endpoint
    }

    /// Returns the patch rates of the hook at this path; all calls return the same ones while they are in use. Takes a
    /// lock: call it once for each generation.
    pub fn patch_rates(&self, path: &Arc<str>) -> Arc<PatchRates> {
        let mut known = self.patch_rates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, rates)) = known.iter().find(|(known, _)| known == path) {
            return Arc::clone(rates);
        }
        if known.len() >= PATHS_BEFORE_CLEANUP {
            known.retain(|(_, rates)| Arc::strong_count(rates) > 1);
        }
        let rates = Arc::<PatchRates>::default();
        known.push((Arc::clone(path), Arc::clone(&rates)));
        rates
    }

    /// Submits a call to the worker's own client. The answer arrives in the call's `responses`.
    pub fn submit(&self, worker: usize, call: Call) {
        self.client(worker).submit(call);
    }

    /// Submits a call, for a retry, to the spare client, whose connection is no worker's own.
    pub fn submit_to_spare(&self, call: Call) {
        let client = self.spare.get_or_init(|| {
            let (client, task) = WorkerClient::new(self.dialler.clone(), self.arbiter.clone());
            tokio::spawn(task);
            client
        });
        client.submit(call);
    }

    /// Resets calls of the worker, and of the spare client, whose responses are closed, so that the hook can stop
    /// working on them.
    pub fn cancel_abandoned(&self, worker: usize) {
        self.client(worker).cancel_abandoned();
        if let Some(spare) = self.spare.get() {
            spare.cancel_abandoned();
        }
    }

    #[allow(clippy::indexing_slicing)]
    pub(super) fn client(&self, worker: usize) -> &WorkerClient {
        &self.clients[worker % self.clients.len()]
    }
}

#[cfg(test)]
mod tests;
