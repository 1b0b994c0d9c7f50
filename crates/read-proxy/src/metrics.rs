//! Counters of a read proxy. No label value is chosen by a client.

use std::{
    array,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use gatepost_base::labels;

/// Outcome of one request to a read proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyOutcome {
    /// The request passed unchanged.
    Passed,
    /// A LIST or WATCH without uninitialized objects.
    Filtered,
    /// The object was inspected and shown.
    Shown,
    /// The object was inspected and hidden.
    Hidden,
    /// A write whose response was not held.
    Written,
    /// A CREATE whose response was held.
    Held,
    /// The proxy refused the request or could not pass it.
    Refused(ProxyRefused),
    /// The client disconnected before the response.
    Abandoned,
}

impl ProxyOutcome {
    /// Label values, by index.
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
    /// Reason of a response in place of the apiserver's. The bounded label of `gatepost_read_proxy_refused_total`.
    pub enum ProxyRefused {
        /// The certificate or the token is invalid.
        Unauthorized = "unauthorized",
        /// An apiserver may interpret the request differently.
        BadRequest = "bad_request",
        /// The method does not belong to the API.
        Method = "method",
        /// The URL is too long with the selector.
        TooLong = "too_long",
        /// The token or the named user is too large for a review.
        LargeUser = "large_user",
        /// Too many writes are in progress.
        Holds = "holds",
        /// No memory is left for inspected objects.
        Memory = "memory",
        /// Too many reviews are in progress.
        Questions = "questions",
        /// A request of the proxy itself got no answer.
        Unanswered = "unanswered",
        /// There is no connection to the apiserver.
        Unreachable = "unreachable",
        /// The apiserver was lost before its response.
        Lost = "lost",
        /// The object is larger than the limit.
        LargeObject = "large_object",
        /// The response shows no object.
        UnknownObject = "unknown_object",
        /// The object was deleted or replaced during its inspection.
        Replaced = "replaced",
        /// The object was stored, but cannot be shown to its creator.
        Unread = "unread",
    }
}

labels! {
    /// End of a hold of a CREATE's response.
    pub enum ProxyHoldEnd {
        /// The object is initialized.
        Completed = "completed",
        /// An initializer has failed.
        Failed = "failed",
        /// The object was deleted.
        Deleted = "deleted",
        /// The hold timed out.
        TimedOut = "timed_out",
        /// The creator disconnected.
        Abandoned = "abandoned",
    }
}

labels! {
    /// Kind of a review about a user.
    pub enum ProxyQuestion {
        /// Review of a token: who is its owner.
        Token = "token",
        /// Review of access: whether the user may initialize.
        Access = "access",
    }
}

labels! {
    /// End of a review about a user.
    pub enum QuestionEnd {
        /// The token is valid; or the user may initialize.
        Yes = "yes",
        /// The token is invalid; or the user is not permitted to initialize.
        No = "no",
        /// The apiserver gave no answer.
        Failed = "failed",
        /// Too many reviews were in progress.
        Busy = "busy",
        /// The request ended before the review.
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
    /// Reviews about users, by [`ProxyQuestion`] and [`QuestionEnd`].
    pub questions: [[AtomicU64; QuestionEnd::LABELS.len()]; ProxyQuestion::LABELS.len()],
    /// Failed reviews, reads and watches of the proxy itself.
    pub own_failures: AtomicU64,
    /// Failed TLS handshakes of clients.
    pub handshake_failures: AtomicU64,
    /// Open connections of clients.
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
    /// Counts a failed review, read or watch of the proxy itself.
    pub fn own_failure(&self) {
        self.own_failures.fetch_add(1, Relaxed);
    }

    /// Counts a failed TLS handshake of a client.
    pub fn handshake_failure(&self) {
        self.handshake_failures.fetch_add(1, Relaxed);
    }

    /// Counts an opened connection of a client.
    pub fn connection_begins(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    /// Counts a closed connection of a client.
    pub fn connection_ends(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }

    /// Returns a guard that counts an end when it is dropped: `default_end`, unless another end was set.
    pub fn begin<E: ProxyEnd>(&self, default_end: E) -> PendingEnd<'_, E> {
        PendingEnd { metrics: self, end: default_end }
    }
}

/// An end that can be counted.
pub trait ProxyEnd: Copy {
    /// Counts the end.
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

/// Guard that counts an end when it is dropped.
#[derive(Debug)]
pub struct PendingEnd<'a, E: ProxyEnd> {
    metrics: &'a ReadProxyMetrics,
    /// The end to count.
    pub end: E,
}

impl<E: ProxyEnd> Drop for PendingEnd<'_, E> {
    fn drop(&mut self) {
        self.end.count(self.metrics);
    }
}

/// Resources that a read proxy has in use, and their limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProxyLoad {
    /// Writes in progress, and their limit.
    pub holds: (usize, usize),
    /// Age of the oldest write in progress.
    pub oldest_hold: Option<Duration>,
    /// Memory in use for objects inspected for GET, and its limit, in bytes.
    pub read: (usize, usize),
    /// Memory in use for objects inspected for CREATE, and its limit, in bytes.
    pub written: (usize, usize),
    /// Reviews in progress, and their limit.
    pub questions: (usize, usize),
    /// Number of requests that wait for a review's turn.
    pub waiting: usize,
    /// Maximum number of client connections.
    pub max_connections: usize,
}
