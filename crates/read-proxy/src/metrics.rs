//! Counters of a read proxy. Nothing that a client chooses is a label.

use std::{
    array,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use gatepost_base::labels;

/// End of one request to a read proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyOutcome {
    /// It has passed as it is.
    Passed,
    /// A LIST or WATCH, from which unfinished objects are left out.
    Filtered,
    /// An object that was looked at, and may be seen.
    Shown,
    /// An object that was looked at, and may not.
    Hidden,
    /// A write whose answer was not held.
    Written,
    /// A CREATE whose answer was held.
    Held,
    /// The proxy has refused it, or could not pass it.
    Refused(ProxyRefused),
    /// The client has left before there was an answer.
    Abandoned,
}

impl ProxyOutcome {
    /// Labels, by index.
    pub const LABELS: [&'static str; 8] =
        ["passed", "filtered", "shown", "hidden", "written", "held", "refused", "abandoned"];

    fn index(self) -> usize {
        match self {
            Self::Passed => 0,
            Self::Filtered => 1,
            Self::Shown => 2,
            Self::Hidden => 3,
            Self::Written => 4,
            Self::Held => 5,
            Self::Refused(_) => 6,
            Self::Abandoned => 7,
        }
    }
}

labels! {
    /// Reason why a read proxy answers in the apiserver's place. The bounded label of `gatepost_read_proxy_refused_total`.
    pub enum ProxyRefused {
        /// The certificate or the token is nobody's.
        Unauthorized = "unauthorized",
        /// A request of which nobody can say what an apiserver will make.
        BadRequest = "bad_request",
        /// A method that is none of the API's.
        Method = "method",
        /// No URL has room for the selector.
        TooLong = "too_long",
        /// The token, or the user that is named, is too large to ask about.
        LargeUser = "large_user",
        /// No place for a write.
        Holds = "holds",
        /// No memory for objects that are looked at.
        Memory = "memory",
        /// No turn to ask about a user.
        Questions = "questions",
        /// A question of the proxy had no answer.
        Unanswered = "unanswered",
        /// There is no connection to the apiserver.
        Unreachable = "unreachable",
        /// The apiserver was lost before its answer.
        Lost = "lost",
        /// The object is larger than any.
        LargeObject = "large_object",
        /// The answer shows no object.
        UnknownObject = "unknown_object",
        /// The object has gone while it was looked at, or another has taken its name.
        Replaced = "replaced",
        /// The object was stored, and cannot be shown to its creator.
        Unread = "unread",
    }
}

labels! {
    /// End of a hold: of an answer to CREATE.
    pub enum ProxyHoldEnd {
        /// The object is initialized.
        Completed = "completed",
        /// An initializer has refused it.
        Failed = "failed",
        /// It was deleted.
        Deleted = "deleted",
        /// Time is up.
        TimedOut = "timed_out",
        /// The creator has left.
        Abandoned = "abandoned",
    }
}

labels! {
    /// Question about a user.
    pub enum ProxyQuestion {
        /// Whose is this token?
        Token = "token",
        /// May this user initialize?
        Access = "access",
    }
}

labels! {
    /// End of a question about a user.
    pub enum QuestionEnd {
        /// It is somebody's; the user may.
        Yes = "yes",
        /// It is nobody's; the user may not.
        No = "no",
        /// No answer.
        Failed = "failed",
        /// No turn to ask.
        Busy = "busy",
        /// The request has ended before.
        Abandoned = "abandoned",
    }
}

/// Counters of a read proxy.
#[derive(Debug)]
pub struct ReadProxyMetrics {
    /// Requests answered, by [`ProxyOutcome`].
    pub requests: [AtomicU64; ProxyOutcome::LABELS.len()],
    /// Requests refused, by [`ProxyRefused`].
    pub refused: [AtomicU64; ProxyRefused::LABELS.len()],
    /// Ends of holds, by [`ProxyHoldEnd`].
    pub hold_ends: [AtomicU64; ProxyHoldEnd::LABELS.len()],
    /// Questions about users, by [`ProxyQuestion`] and [`QuestionEnd`].
    pub questions: [[AtomicU64; QuestionEnd::LABELS.len()]; ProxyQuestion::LABELS.len()],
    /// Questions, reads and watches of the proxy itself that failed.
    pub own_failures: AtomicU64,
    /// Clients' TLS handshakes that failed.
    pub handshake_failures: AtomicU64,
    /// Connections that are open now.
    pub connections: AtomicUsize,
}

impl Default for ReadProxyMetrics {
    fn default() -> Self {
        fn zeros<const N: usize>() -> [AtomicU64; N] {
            array::from_fn(|_| AtomicU64::new(0))
        }
        Self {
            requests: zeros(),
            refused: zeros(),
            hold_ends: zeros(),
            questions: array::from_fn(|_| zeros()),
            own_failures: AtomicU64::new(0),
            handshake_failures: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
        }
    }
}

impl ReadProxyMetrics {
    /// A question, read or watch of the proxy itself has failed.
    pub fn own_failure(&self) {
        self.own_failures.fetch_add(1, Relaxed);
    }

    /// A client's TLS handshake has failed.
    pub fn handshake_failure(&self) {
        self.handshake_failures.fetch_add(1, Relaxed);
    }

    /// A client's connection has begun.
    pub fn connection_begins(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    /// A client's connection has ended.
    pub fn connection_ends(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }

    /// Something begins. Its end is counted when this is dropped: `unless_told`, unless it was set to another.
    pub fn begin<E: ProxyEnd>(&self, unless_told: E) -> PendingEnd<'_, E> {
        PendingEnd { metrics: self, end: unless_told }
    }
}

/// End of something that is counted.
pub trait ProxyEnd: Copy {
    /// Counts it.
    fn count(self, metrics: &ReadProxyMetrics);
}

impl ProxyEnd for ProxyOutcome {
    fn count(self, metrics: &ReadProxyMetrics) {
        metrics.requests[self.index()].fetch_add(1, Relaxed);
        if let Self::Refused(reason) = self {
            metrics.refused[reason as usize].fetch_add(1, Relaxed);
        }
    }
}

impl ProxyEnd for ProxyHoldEnd {
    fn count(self, metrics: &ReadProxyMetrics) {
        metrics.hold_ends[self as usize].fetch_add(1, Relaxed);
    }
}

impl ProxyEnd for (ProxyQuestion, QuestionEnd) {
    fn count(self, metrics: &ReadProxyMetrics) {
        metrics.questions[self.0 as usize][self.1 as usize].fetch_add(1, Relaxed);
    }
}

/// Something whose end is counted when this is dropped.
#[derive(Debug)]
pub struct PendingEnd<'a, E: ProxyEnd> {
    metrics: &'a ReadProxyMetrics,
    /// Its end, as far as it is known.
    pub end: E,
}

impl<E: ProxyEnd> Drop for PendingEnd<'_, E> {
    fn drop(&mut self) {
        self.end.count(self.metrics);
    }
}

/// Resources that a read proxy has in use, and the most that it may.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProxyLoad {
    /// Writes under way, and the most of them.
    pub holds: (usize, usize),
    /// Time since the oldest of them came.
    pub oldest_hold: Option<Duration>,
    /// Bytes for objects that are looked at: of GET.
    pub read: (usize, usize),
    /// The same of CREATE.
    pub written: (usize, usize),
    /// Questions about users that are being asked, and the most of them.
    pub questions: (usize, usize),
    /// Requests that wait for their turn to ask.
    pub waiting: usize,
    /// Most connections of clients.
    pub most_connections: usize,
}
