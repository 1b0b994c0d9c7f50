//! Lane: one worker's way to one endpoint, kept connected.
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
    dial::{Socket, dial},
    http2::{Connection, Limits},
};
use crate::model::{CallFailure, Endpoint};

/// Resolve, connect, TLS and greeting together.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Pauses between attempts when nobody asks: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Calls do not dial more often than this.
const BETWEEN_DIALS: Duration = Duration::from_millis(20);
/// A connection that takes no more calls is closed by then: no hook's own timeout is longer.
const LEAVING_WITHIN: Duration = Duration::from_secs(30);
/// The largest answer taken from a hook. It may echo the review's object, so this is above the largest object.
const LARGEST_ANSWER: usize = 8 << 20;

/// What a lane is told.
#[derive(Debug)]
pub(super) enum Command {
    /// Ask this.
    Ask(Call),
    /// Some calls are abandoned; reset them.
    Sweep,
}

/// The sending end of a lane. Dropping it lets the lane end once its last answer is in.
#[derive(Clone, Debug)]
pub(super) struct Lane(UnboundedSender<Command>);

impl Lane {
    /// A lane and the task that drives it; the caller spawns the task where it shall live.
    pub(super) fn new(
        endpoint: Endpoint,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, commands) = unbounded_channel();
        let task = Task { endpoint, tls, commands, held: Vec::new(), open: true };
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
}

struct Task {
    endpoint: Endpoint,
    tls: Option<Arc<rustls::ClientConfig>>,
    commands: UnboundedReceiver<Command>,
    /// Calls that wait for a connection.
    held: Vec<Call>,
    /// Somebody may still ask.
    open: bool,
}

impl Task {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        while self.open || !self.held.is_empty() {
            let dialled_at = Instant::now();
            match self.connect().await {
                Ok(connection) => {
                    pause = FIRST_PAUSE;
                    let held = std::mem::take(&mut self.held);
                    let ended = connection.drive(&mut self.commands, held).await;
                    self.held = ended.unseen;
                    if let Some(mut leaving) = ended.leaving {
                        // The next calls do not wait for the answers still due here.
                        tokio::spawn(async move { timeout(LEAVING_WITHIN, leaving.finish_calls()).await });
                    }
                    match ended.why {
                        Some(why) => tracing::debug!(endpoint = %self.endpoint, why, "connection to a hook ended"),
                        None => return,
                    }
                    // A hook that hangs up as soon as it is called must not make us spin.
                    sleep(BETWEEN_DIALS.saturating_sub(dialled_at.elapsed())).await;
                }
                Err(why) => {
                    tracing::debug!(endpoint = %self.endpoint, why, "cannot connect to a hook");
                    for call in self.held.drain(..) {
                        call.inbox.deliver(call.tag, Err(CallFailure::Connect(why.clone())));
                    }
                    self.rest(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    sleep(BETWEEN_DIALS.saturating_sub(dialled_at.elapsed())).await;
                }
            }
        }
    }

    /// Dials and greets; calls that come meanwhile are held, and let go when nobody waits for them any more.
    async fn connect(&mut self) -> Result<Connection<Socket>, String> {
        let Self { endpoint, tls, commands, held, open } = self;
        let attempt = timeout(CONNECT_WITHIN, async {
            let socket = dial(endpoint, tls.as_ref()).await?;
            let limits = Limits { batch: socket.batch(), answer: LARGEST_ANSWER };
            let mut connection = Connection::new(socket, limits, endpoint.tls.is_some(), &authority(endpoint));
            connection.greet().await?;
            Ok(connection)
        });
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                result = &mut attempt => {
                    return result.unwrap_or_else(|_| Err(format!("{endpoint}: no connection within {CONNECT_WITHIN:?}")));
                }
                command = commands.recv(), if *open => match command {
                    Some(Command::Ask(call)) => held.push(call),
                    Some(Command::Sweep) => held.retain(|call| !call.is_abandoned()),
                    None if held.is_empty() => return Err("nobody asks any more".into()),
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
                    Some(Command::Ask(call)) => {
                        self.held.push(call);
                        return;
                    }
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

/// What HTTP calls `:authority`.
fn authority(endpoint: &Endpoint) -> String {
    match &endpoint.address {
        crate::model::hook::Address::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
        crate::model::hook::Address::Tcp { host, port } => format!("{host}:{port}"),
        crate::model::hook::Address::Unix(_) => "localhost".to_owned(),
    }
}
