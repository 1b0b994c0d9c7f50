//! Metrics: what is counted, and how an outcome is counted without a lock or a look-up.

use std::{
    array,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use super::{bypass::BypassMetrics, cells::Cells, throttle::Throttle};

/// How one hook call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookOutcome {
    /// The hook said yes.
    Allowed,
    /// The hook said no.
    Denied,
    /// A CallFailure that the policy ignored; the label is [`crate::model::CallFailure::kind`].
    FailedOpen(&'static str),
    /// A CallFailure that rejected the request.
    FailedClosed(&'static str),
    /// The request was decided before this hook answered.
    Cancelled,
}

impl HookOutcome {
    /// Labels, by index.
    pub(super) const LABELS: [&'static str; 5] = ["allowed", "denied", "failed_open", "failed_closed", "cancelled"];
    /// Index of failed_open.
    pub(super) const OPEN: usize = 2;
    /// Index of cancelled.
    pub(super) const CANCELLED: usize = 4;
}

/// How one request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The write may happen.
    Allowed,
    /// A hook said no.
    Denied,
    /// A CallFailure under Fail, or a held error of matching, rejected it.
    Failed,
    /// Refused unasked: stale configuration.
    Stale,
    /// Our fault.
    Internal,
    /// Allowed without asking a hook, as a bypass says so.
    Bypassed,
}

impl RequestOutcome {
    /// Labels, by index.
    pub(super) const LABELS: [&'static str; 6] = ["allowed", "denied", "failed", "stale", "internal", "bypassed"];
}

/// Why a call or connection ended at the front. The bounded label of `gatepost_refused_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Neither HTTP/2 nor HTTP/1.1, or a head that is broken or too long.
    Protocol,
    /// The TLS handshake failed.
    TlsHandshake,
    /// No TLS where TLS is spoken.
    NotTls,
    /// Another method than POST.
    Method,
    /// Neither gRPC nor a review by its content type.
    ContentType,
    /// Nothing is served at this path.
    UnknownPath,
    /// No such method or service.
    UnknownMethod,
    /// A compressed message.
    Compressed,
    /// An unreadable `grpc-timeout` or `?timeout=`.
    Timeout,
    /// Unreadable namespace labels.
    NamespaceLabels,
    /// Not exactly one whole gRPC message, or no body.
    Framing,
    /// A message beyond the limit.
    TooLarge,
    /// No room in the memory budget.
    Overloaded,
    /// The deadline passed before the message had arrived.
    Deadline,
    /// The message is not a review.
    NotAReview,
    /// The caller went away before the verdict.
    Cancelled,
    /// Too many connections.
    Connections,
}

impl Refused {
    /// Labels, by index.
    pub(super) const LABELS: [&'static str; 17] = [
        "protocol",
        "tls_handshake",
        "not_tls",
        "method",
        "content_type",
        "unknown_path",
        "unknown_method",
        "compressed",
        "timeout",
        "namespace_labels",
        "framing",
        "too_large",
        "overloaded",
        "deadline",
        "not_a_review",
        "cancelled",
        "connections",
    ];
}

/// How one read of the configuration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// It is as it was.
    Unchanged,
    /// It has changed and is in force.
    Changed,
    /// It has changed and is invalid: what was in force stays.
    Rejected,
    /// It could not be read; why, as the source's error names it.
    Failed(&'static str),
}

impl ReadOutcome {
    /// Labels, by index: what came of good reads, then why others failed; anything else is counted as the last.
    pub(super) const LABELS: [&'static str; 15] = [
        "unchanged",
        "changed",
        "rejected",
        "failed_unreadable",
        "failed_not_a_file",
        "failed_too_large",
        "failed_unsettled",
        "failed_hung",
        "failed_unreachable",
        "failed_refused",
        "failed_garbled",
        "failed_not_installed",
        "failed_went_back",
        "failed_other_store",
        "failed_other",
    ];
    /// How many of them are good reads.
    pub(super) const GOOD: usize = 3;

    fn index(self) -> usize {
        match self {
            Self::Unchanged => 0,
            Self::Changed => 1,
            Self::Rejected => 2,
            Self::Failed(why) => {
                let failed = Self::LABELS.iter().position(|label| label.strip_prefix("failed_") == Some(why));
                failed.unwrap_or(Self::LABELS.len() - 1)
            }
        }
    }
}

/// What became of a change of the TLS files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsReload {
    /// In force for new connections.
    Replaced,
    /// Unusable.
    Rejected,
}

impl TlsReload {
    /// Labels, by index.
    pub(super) const LABELS: [&'static str; 2] = ["replaced", "rejected"];
}

/// A value that somebody else owns and that is read when the metrics are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Reviews being read or decided.
    InflightRequests,
    /// Their declared size.
    InflightBytes,
    /// Callers' connections.
    OpenConnections,
    /// Age of the configuration in seconds.
    ConfigAge,
    /// Number of the configuration.
    ConfigGeneration,
    /// 1 while the newest configuration is invalid.
    ConfigRejected,
    /// Audit lines not written.
    AuditLost,
    /// Namespaces whose labels are known.
    Namespaces,
    /// Time since the apiserver last spoke of them, in seconds.
    NamespacesAge,
    /// Break-glass documents that are open.
    BreakGlassOpen,
}

/// How many there are.
const READINGS: usize = 10;

/// The kinds of CallFailure, as [`crate::model::CallFailure::kind`] names them; anything else is counted as the last.
pub(super) const FAILURE_KINDS: [&str; 18] = [
    "dry_run",
    "timeout",
    "connect",
    "connection",
    "grpc_status",
    "not_grpc",
    "too_large",
    "undecodable",
    "no_response",
    "wrong_uid",
    "patch_from_validating",
    "side_effects_undeclared",
    "http_status",
    "not_http",
    "unwritable",
    "other_version",
    "invalid",
    "other",
];

/// Counters of one hook, resolved once so that the hot path takes no lock and looks nothing up.
#[derive(Debug)]
pub struct HookMetrics {
    pub(super) calls: Cells<5>,
    /// By kind; the first of each pair under Ignore, the second under Fail.
    pub(super) failures: [[AtomicU64; 2]; FAILURE_KINDS.len()],
    /// Log lines about its failures.
    told: Throttle,
}

impl Default for HookMetrics {
    fn default() -> Self {
        Self::new(1)
    }
}

impl HookMetrics {
    fn new(workers: usize) -> Self {
        Self {
            calls: Cells::new(workers),
            failures: array::from_fn(|_| array::from_fn(|_| AtomicU64::new(0))),
            told: Throttle::default(),
        }
    }

    /// One call ended.
    pub fn record(&self, worker: usize, outcome: HookOutcome, took: Duration) {
        let index = match outcome {
            HookOutcome::Allowed => 0,
            HookOutcome::Denied => 1,
            HookOutcome::FailedOpen(kind) => {
                self.failed(kind, 0);
                HookOutcome::OPEN
            }
            HookOutcome::FailedClosed(kind) => {
                self.failed(kind, 1);
                3
            }
            HookOutcome::Cancelled => HookOutcome::CANCELLED,
        };
        self.calls.record(worker, index, took);
    }

    /// May a failure of this hook be logged now? Then: how many lines were held back since the last.
    pub fn may_tell(&self) -> Option<u64> {
        self.told.pass(Instant::now())
    }

    fn failed(&self, kind: &str, policy: usize) {
        let last = FAILURE_KINDS.len() - 1;
        let index = FAILURE_KINDS.iter().position(|known| *known == kind).unwrap_or(last);
        self.failures[index][policy].fetch_add(1, Relaxed);
    }
}

/// Reads a value; `None` leaves the metric out.
type Read = Box<dyn Fn() -> Option<f64> + Send + Sync>;

/// All counters.
pub struct Metrics {
    workers: usize,
    pub(super) requests: Cells<6>,
    pub(super) refused: [AtomicU64; Refused::LABELS.len()],
    pub(super) copied: AtomicU64,
    pub(super) config_reads: Cells<{ ReadOutcome::LABELS.len() }>,
    pub(super) tls_reloads: [AtomicU64; TlsReload::LABELS.len()],
    /// Which certificate ends when.
    ends: Mutex<Vec<(String, SystemTime)>>,
    hooks: Mutex<BTreeMap<Arc<str>, Arc<HookMetrics>>>,
    bypasses: Mutex<BTreeMap<Arc<str>, Arc<BypassMetrics>>>,
    /// Requests about our own configuration.
    pub(super) own_configuration: AtomicU64,
    /// Requests that break-glass has let past.
    pub(super) break_glass: AtomicU64,
    readings: Mutex<[Option<Read>; READINGS]>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("workers", &self.workers).finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(1)
    }
}

/// Beyond this many names, counters of hooks, and of bypasses, that nobody holds any longer are forgotten when a new name comes: a
/// configuration that keeps inventing names must not grow us for ever.
const HOOKS_KEPT: usize = 4096;

impl Metrics {
    /// Counters for that many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            requests: Cells::new(workers),
            refused: array::from_fn(|_| AtomicU64::new(0)),
            copied: AtomicU64::new(0),
            config_reads: Cells::new(1),
            tls_reloads: array::from_fn(|_| AtomicU64::new(0)),
            ends: Mutex::default(),
            hooks: Mutex::default(),
            bypasses: Mutex::default(),
            own_configuration: AtomicU64::new(0),
            break_glass: AtomicU64::new(0),
            readings: Mutex::default(),
        }
    }

    /// The counters of the hook of that name, the same ones at every call. Takes a lock: call it once per generation.
    pub fn hook(&self, name: &Arc<str>) -> Arc<HookMetrics> {
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        if hooks.len() >= HOOKS_KEPT && !hooks.contains_key(name) {
            hooks.retain(|_, metrics| Arc::strong_count(metrics) > 1);
        }
        hooks.entry(Arc::clone(name)).or_insert_with(|| Arc::new(HookMetrics::new(self.workers))).clone()
    }

    /// The counters of the bypass of that name, the same ones at every call. Takes a lock: call it once per generation.
    pub fn bypass(&self, name: &Arc<str>) -> Arc<BypassMetrics> {
        let mut bypasses = self.bypasses.lock().unwrap_or_else(PoisonError::into_inner);
        if bypasses.len() >= HOOKS_KEPT && !bypasses.contains_key(name) {
            bypasses.retain(|_, metrics| Arc::strong_count(metrics) > 1);
        }
        bypasses.entry(Arc::clone(name)).or_default().clone()
    }

    /// A request about our own configuration was let past.
    pub fn let_ourselves_past(&self) {
        self.own_configuration.fetch_add(1, Relaxed);
    }

    /// Break-glass has let a request past every hook, or past one that meant it.
    pub fn let_past_broken_glass(&self) {
        self.break_glass.fetch_add(1, Relaxed);
    }

    /// Every bypass's counters, by name.
    pub(super) fn bypasses(&self) -> Vec<(Arc<str>, Arc<BypassMetrics>)> {
        let bypasses = self.bypasses.lock().unwrap_or_else(PoisonError::into_inner);
        bypasses.iter().map(|(name, metrics)| (Arc::clone(name), Arc::clone(metrics))).collect()
    }

    /// One request ended.
    pub fn request(&self, worker: usize, outcome: RequestOutcome, took: Duration) {
        self.requests.record(worker, outcome as usize, took);
    }

    /// A call or connection ended at the front.
    pub fn refused(&self, reason: Refused) {
        self.refused[reason as usize].fetch_add(1, Relaxed);
    }

    /// One read of the configuration ended.
    pub fn config_read(&self, outcome: ReadOutcome, took: Duration) {
        self.config_reads.record(0, outcome.index(), took);
    }

    /// The TLS files have changed.
    pub fn tls_reload(&self, outcome: TlsReload) {
        self.tls_reloads[outcome as usize].fetch_add(1, Relaxed);
    }

    /// These certificates, and no others, are in use, and end then.
    pub fn set_ends(&self, ends: Vec<(String, SystemTime)>) {
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = ends;
    }

    pub(super) fn ends(&self) -> Vec<(String, SystemTime)> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Object bytes that were copied in user space after they were read.
    pub fn copied(&self, bytes: usize) {
        self.copied.fetch_add(bytes as u64, Relaxed);
    }

    /// How many object bytes were copied so far.
    pub fn copied_bytes(&self) -> u64 {
        self.copied.load(Relaxed)
    }

    /// Registers who knows a value; the last one to say so counts.
    pub fn observe(&self, reading: Reading, read: impl Fn() -> Option<f64> + Send + Sync + 'static) {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)[reading as usize] = Some(Box::new(read));
    }

    pub(super) fn read(&self, reading: Reading) -> Option<f64> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)[reading as usize].as_ref().and_then(|read| read())
    }

    /// Every hook's counters, by name.
    pub(super) fn hooks(&self) -> Vec<(Arc<str>, Arc<HookMetrics>)> {
        let hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        hooks.iter().map(|(name, metrics)| (Arc::clone(name), Arc::clone(metrics))).collect()
    }
}

#[cfg(test)]
#[path = "metrics/tests.rs"]
mod tests;
