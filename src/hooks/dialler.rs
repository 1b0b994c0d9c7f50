//! Dialler: makes connections to one endpoint that are ready for calls, and the pauses between dials.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rustls::ClientConfig;
use tokio::time::{self, timeout_at};

use super::{
    answer_buffer::AnswerBudget,
    connect::{ConnectParams, Socket, Tls, connect},
    connection_budget::{ConnectionBudget, Exhausted, Share, Slot},
    http2::{Http2Connection, Limits},
    protocol::request_head::RequestHeads,
    reply::MAX_ANSWER,
    resolver::{Resolver, ServiceAddresses},
};
use gatepost_api::{Endpoint, Step, Transport, Unreachable, hook::Address};
use gatepost_base::{
    clock::{Backoff, chance, jittered},
    memory::MemoryBudget,
};

/// Maximum time for lookup, connection, TLS and HTTP handshake together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// First and maximum pause after connections without an answer, while no call waits.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Factors between which pauses vary.
const JITTER: (f64, f64) = (0.75, 1.25);
/// Maximum pause while calls wait, so that a hook that has come back is found soon.
const MAX_PAUSE_WITH_CALLS: Duration = Duration::from_millis(250);
/// Minimum interval between dials of a client.
const MIN_DIAL_INTERVAL: Duration = Duration::from_millis(20);

/// Resources shared by the connections to all hooks.
#[derive(Clone, Debug)]
pub struct Resources {
    /// Memory for answers.
    pub memory: Arc<MemoryBudget>,
    /// Budget of connections.
    pub connections: Arc<ConnectionBudget>,
    resolver: Arc<Resolver>,
}

impl Resources {
    /// Creates resources with a new resolver.
    pub fn new(memory: Arc<MemoryBudget>, connections: Arc<ConnectionBudget>) -> Self {
        Self { memory, connections, resolver: Arc::default() }
    }

    /// Returns these resources with names of Services resolved to their known endpoints.
    #[must_use]
    pub fn with_services(self, services: Arc<ServiceAddresses>) -> Self {
        Self { resolver: Arc::new(Resolver::with_services(services)), ..self }
    }

    /// Creates resources without limits, for callers of a few hooks.
    pub fn unlimited() -> Self {
        Self::new(MemoryBudget::unlimited(), ConnectionBudget::new(usize::MAX))
    }
}

/// A new connection to a hook, by its protocol.
#[derive(Debug)]
pub(super) enum HookConnection {
    /// A connection that carries concurrent calls. The handshake is done.
    Http2(Http2Connection<Socket>),
    /// A connection that carries one call at a time.
    Http1(Socket),
}

/// Makes connections to one endpoint.
#[derive(Debug)]
pub(super) struct Dialler {
    pub(super) endpoint: Endpoint,
    tls: Result<Option<Tls>, Unreachable>,
    resources: Resources,
    /// Memory for the hook's answers over all connections.
    pub(super) answers: Arc<AnswerBudget>,
    pub(super) share: Arc<Share>,
    /// Number of the next dial. It begins with a random number. Each dial begins with another address.
    turn: AtomicUsize,
}

impl Dialler {
    /// Creates a dialler for `clients` clients.
    pub(super) fn new(
        endpoint: Endpoint,
        tls: Option<Arc<ClientConfig>>,
        resources: &Resources,
        clients: usize,
    ) -> Self {
        let tls = Tls::of(&endpoint, tls);
        let turn = AtomicUsize::new(RandomState::new().build_hasher().finish() as usize);
        let share = resources.connections.share(clients);
        let answers = AnswerBudget::new(&resources.memory);
        Self { endpoint, tls, resources: resources.clone(), answers, share, turn }
    }

    /// Waits for a slot, dials, and does the HTTP/2 handshake if there is one.
    ///
    /// # Errors
    /// No connection was made; the error names the attempts.
    pub(super) async fn dial(&self) -> Result<HookConnection, Unreachable> {
        let until = time::Instant::now() + DIAL_TIMEOUT;
        let slot = timeout_at(until, self.slot()).await;
        let late = || format!("{}: its connections were all in use for {DIAL_TIMEOUT:?}", self.endpoint);
        let slot = slot.unwrap_or_else(|_| Err(Unreachable::at(Step::Connect, late())))?;
        self.dial_until(slot, until).await
    }

    /// Dials as [`Dialler::dial`] does, with a slot.
    pub(super) async fn dial_with(&self, slot: Slot) -> Result<HookConnection, Unreachable> {
        self.dial_until(slot, time::Instant::now() + DIAL_TIMEOUT).await
    }

    async fn dial_until(&self, slot: Slot, until: time::Instant) -> Result<HookConnection, Unreachable> {
        let tls = self.tls.as_ref().map_err(Unreachable::clone)?.as_ref();
        let turn = self.turn.fetch_add(1, Relaxed);
        let further_attempts = &self.resources.connections.further_attempts;
        let params = ConnectParams { resolver: &self.resources.resolver, further_attempts, turn, until };
        let socket = connect(&self.endpoint.address, tls, slot, params).await?;
        if self.endpoint.transport == Transport::Http && !socket.is_http2() {
            return Ok(HookConnection::Http1(socket));
        }
        if tls.is_some() && !socket.is_http2() {
            let why = format!("TLS with {}: the hook does not offer HTTP/2", self.authority());
            return Err(Unreachable::at(Step::Tls, why));
        }
        let limits = Limits {
            batch: socket.batch(),
            answer: MAX_ANSWER,
            answers: Arc::clone(&self.answers),
            memory: Arc::clone(&self.resources.memory),
        };
        let heads = RequestHeads::new(tls.is_some(), &self.authority(), self.endpoint.authorization.clone());
        let mut connection = Http2Connection::new(socket, limits, heads);
        let ready = timeout_at(until, connection.handshake()).await;
        let ready = ready.unwrap_or_else(|_| Err(format!("no HTTP/2 handshake within {DIAL_TIMEOUT:?}")));
        ready.map_err(|why| Unreachable::at(Step::Handshake, why))?;
        Ok(HookConnection::Http2(connection))
    }

    /// Waits for a slot for a connection. Slots are given in the order of the calls.
    pub(super) async fn slot(&self) -> Result<Slot, Unreachable> {
        self.share.clone().take().await.map_err(|why| self.exhausted(&why))
    }

    /// Takes a slot for a connection if one is free.
    pub(super) fn try_slot(&self) -> Option<Result<Slot, Unreachable>> {
        Some(self.share.try_take()?.map_err(|why| self.exhausted(&why)))
    }

    fn exhausted(&self, why: &Exhausted) -> Unreachable {
        Unreachable::at(Step::Connect, format!("{}: {why}", self.endpoint))
    }

    /// Returns true if the hook certainly speaks HTTP/1.1: HTTP/2 needs ALPN, and so TLS.
    pub(super) fn speaks_http1(&self) -> bool {
        self.endpoint.transport == Transport::Http && self.endpoint.tls.is_none()
    }

    /// Returns the `:authority` of HTTP/2 and `host` of HTTP/1.1.
    pub(super) fn authority(&self) -> String {
        match &self.endpoint.address {
            Address::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Address::Tcp { host, port } => format!("{host}:{port}"),
            Address::Unix(_) => "localhost".to_owned(),
        }
    }
}

/// Outcome of a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DialOutcome {
    /// A connection on which a call was answered, or that has lasted.
    Answered,
    /// A connection without an answer, or one that broke before its handshakes were complete.
    Unanswered,
    /// The connection was refused, which costs neither side anything.
    Refused,
}

/// Times at which a worker's client may dial.
#[derive(Debug)]
pub(super) struct DialPace {
    /// Time of the last dial.
    dialled: Option<Instant>,
    /// Outcome of the last dial, with the end of the pause after it.
    outcome: Option<(Instant, DialOutcome)>,
    backoff: Backoff,
    /// Random number from 0 to 1, so that replicas and workers do not dial in step.
    chance: fn() -> f64,
}

impl Default for DialPace {
    fn default() -> Self {
        Self { dialled: None, outcome: None, backoff: Backoff::new(FIRST_PAUSE, MAX_PAUSE), chance }
    }
}

impl DialPace {
    /// Records a dial.
    pub(super) fn record_dial(&mut self, now: Instant) {
        self.dialled = Some(now);
        self.outcome = None;
    }

    /// Records the outcome of the last dial.
    pub(super) fn record_outcome(&mut self, now: Instant, outcome: DialOutcome) {
        let lasted = self.dialled.is_some_and(|dialled| now.duration_since(dialled) >= MAX_PAUSE);
        if outcome == DialOutcome::Answered || outcome == DialOutcome::Unanswered && lasted {
            self.backoff.reset();
            self.outcome = Some((now, DialOutcome::Answered));
            return;
        }
        if self.outcome.is_none() && self.dialled.is_some() {
            self.outcome = Some((now + jittered(self.backoff.pause(), JITTER, (self.chance)()), outcome));
        }
    }

    /// Returns the time of the next dial, which depends on whether calls wait; `None` for the first dial.
    pub(super) fn next_dial(&self, calls_wait: bool) -> Option<Instant> {
        let dialled = self.dialled?;
        let soon = dialled + MIN_DIAL_INTERVAL;
        Some(match self.outcome {
            None | Some((_, DialOutcome::Answered)) => soon,
            Some((_, DialOutcome::Refused)) if calls_wait => soon,
            Some((then, _)) if calls_wait => then.min(dialled + MAX_PAUSE_WITH_CALLS).max(soon),
            Some((then, _)) => then.max(soon),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> DialPace {
        DialPace { chance: || 0.5, ..DialPace::default() }
    }

    /// Dials in a minute, when every dial has this outcome at once.
    fn dials_a_minute(outcome: DialOutcome, calls_wait: bool) -> usize {
        let (mut pace, began) = (pace(), Instant::now());
        let mut now = began;
        let mut dials = 0;
        while now < began + Duration::from_secs(60) {
            pace.record_dial(now);
            pace.record_outcome(now, outcome);
            dials += 1;
            now = pace.next_dial(calls_wait).expect("it has dialled");
        }
        dials
    }

    #[test]
    fn a_hook_that_closes_connections_is_dialled_less_and_less() {
        // 50 ms, 100 ms, … 3.2 s, then every 5 s.
        assert_eq!(dials_a_minute(DialOutcome::Unanswered, false), 18);
        // 50 ms, 100 ms, 200 ms, then every 250 ms.
        assert_eq!(dials_a_minute(DialOutcome::Unanswered, true), 242);
        assert_eq!(dials_a_minute(DialOutcome::Refused, false), 18);
    }

    #[test]
    fn a_waiting_call_dials_an_absent_hook_at_once() {
        let (mut pace, now) = (pace(), Instant::now());
        assert_eq!(pace.next_dial(false), None, "the first dial waits for nothing");
        for _ in 0..20 {
            pace.record_dial(now);
            pace.record_outcome(now, DialOutcome::Refused);
        }
        assert_eq!(pace.next_dial(true), Some(now + MIN_DIAL_INTERVAL));
        assert_eq!(pace.next_dial(false), Some(now + MAX_PAUSE));
    }

    #[test]
    fn answers_and_lasting_connections_end_dial_pauses() {
        for (outcome, after) in [(DialOutcome::Answered, Duration::ZERO), (DialOutcome::Unanswered, MAX_PAUSE)] {
            let (mut pace, now) = (pace(), Instant::now());
            for _ in 0..9 {
                pace.record_dial(now);
                pace.record_outcome(now, DialOutcome::Unanswered);
            }
            pace.record_dial(now);
            pace.record_outcome(now + after, outcome);
            assert_eq!(pace.next_dial(false), Some(now + MIN_DIAL_INTERVAL), "{outcome:?}");
            pace.record_dial(now);
            pace.record_outcome(now, DialOutcome::Unanswered);
            assert_eq!(pace.next_dial(false), Some(now + FIRST_PAUSE), "{outcome:?}");
        }
    }

    #[test]
    fn dial_pauses_are_jittered() {
        let mut pauses: Vec<_> = (0..50)
            .map(|_| {
                let (mut pace, now) = (DialPace::default(), Instant::now());
                pace.record_dial(now);
                pace.record_outcome(now, DialOutcome::Unanswered);
                pace.next_dial(false).expect("it has dialled").duration_since(now)
            })
            .collect();
        pauses.sort();
        pauses.dedup();
        assert!(pauses.len() > 10 && pauses[0] >= FIRST_PAUSE * 3 / 4);
        assert!(pauses[pauses.len() - 1] <= FIRST_PAUSE * 5 / 4);
    }
}
