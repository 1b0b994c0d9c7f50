//! Metrics of one hook, looked up once per generation, and the cells that count calls by outcome and duration.
//!
//! Recording a call costs two uncontended additions: every worker has its own row, on its own cache lines, so an
//! addition never waits for another core. A row has one counter for each outcome and duration bucket, and one sum for
//! each outcome. Calls by outcome, their total and the histogram are all derived from these, so nothing is counted
//! twice.

use std::{
    array,
    collections::BTreeMap,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crossbeam::utils::CachePadded;
use gatepost_api::{FailureKind, Operation};
use gatepost_base::labels;

use super::{
    ShadowMetrics, Throttle,
    recent::{Counts, RecentCallFailures, RecentDiscards, RecentResults},
    table::BOUNDS_NANOS,
};

/// Outcome of a hook call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookOutcome {
    /// The hook allowed the request.
    Allowed,
    /// The hook denied the request.
    Denied,
    /// The call failed, and the failure policy ignored that.
    FailedOpen(FailureKind),
    /// The call failed, and that rejected the request.
    FailedClosed(FailureKind),
    /// The hook denied the request, which passes, as the hook does not enforce.
    WouldDeny,
    /// The request was decided before this hook answered.
    Cancelled,
}

impl HookOutcome {
    /// Labels, by index.
    pub(super) const LABELS: [&'static str; 6] =
        ["allowed", "denied", "failed_open", "failed_closed", "would_deny", "cancelled"];
    /// Index of `failed_open`.
    pub(super) const OPEN: usize = 2;
    /// Index of `failed_closed`.
    pub(super) const CLOSED: usize = 3;
    /// Index of `would_deny`.
    const WOULD_DENY: usize = 4;
    /// Index of `cancelled`, the last one.
    pub(super) const CANCELLED: usize = 5;
}

labels! {
    /// Reason why an audit annotation of a hook is dropped.
    pub enum DroppedAnnotation {
        /// `<hook>/<key>` is no qualified name.
        Key = "key",
        /// The key already has another value.
        Value = "value",
        /// The answer has too many annotations.
        Limit = "limit",
    }
}

labels! {
    /// Reason why a hook is called again about the same review.
    pub enum Repeat {
        /// The hook answered 429 or 5xx with `Retry-After`.
        RetryAfter = "retry_after",
        /// The hook's failure policy is Retry.
        Policy = "policy",
    }
}

/// Reason why match conditions excluded a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmetConditions {
    /// A condition is false.
    False,
    /// No condition is false, and at least one has an error: the hook is skipped, or the request rejected.
    Error,
}

/// Metrics of one hook. Recording on the hot path takes no lock and no lookup.
#[derive(Debug, Default)]
pub struct HookMetrics {
    pub(super) calls: Cells<{ HookOutcome::LABELS.len() }>,
    /// Calls in shadow, which are no others.
    pub shadow: ShadowMetrics,
    /// Failed calls by kind; the first of each pair under Ignore, the second under Fail.
    pub(super) failures: [[AtomicU64; 2]; FailureKind::ALL.len()],
    /// Requests that the hook rejected.
    pub(super) rejections: Rejections,
    /// Dropped annotations, by cause.
    pub(super) annotations_dropped: [AtomicU64; DroppedAnnotation::LABELS.len()],
    /// Repeated calls, by cause.
    pub(super) repeats: [AtomicU64; Repeat::LABELS.len()],
    /// Reviews that skipped the hook since it has not passed a probe.
    pub(super) skipped_unproven: AtomicU64,
    /// Speculative calls that were discarded.
    pub(super) discarded: AtomicU64,
    /// Reviews that the hook's match conditions excluded, by [`UnmetConditions`].
    pub(super) unmet: [AtomicU64; 2],
    /// Evaluations of the match conditions; created at the first one, since most hooks have no conditions.
    pub(super) conditions: OnceLock<Cells<1>>,
    workers: usize,
    /// Timeout of one call in nanoseconds; 0 while no hook of the name is in force.
    timeout: AtomicU64,
    recent: RecentResults,
    /// Rate limiter for logs about failed calls.
    failure_lines: Throttle,
    /// Rate limiter for logs about dropped annotations.
    dropped: Throttle,
}

impl HookMetrics {
    /// Creates metrics for that many workers.
    pub(super) fn new(workers: usize) -> Self {
        Self { calls: Cells::new(workers), workers, ..Self::default() }
    }

    /// Records the end of a call.
    pub fn record(&self, worker: usize, outcome: HookOutcome, took: Duration) {
        let index = match outcome {
            HookOutcome::Allowed => {
                self.recent.record_success();
                0
            }
            HookOutcome::Denied => {
                self.recent.record_success();
                1
            }
            HookOutcome::WouldDeny => {
                self.recent.record_success();
                HookOutcome::WOULD_DENY
            }
            HookOutcome::FailedOpen(kind) => {
                self.failed(kind, 0);
                HookOutcome::OPEN
            }
            HookOutcome::FailedClosed(kind) => {
                self.failed(kind, 1);
                HookOutcome::CLOSED
            }
            HookOutcome::Cancelled => HookOutcome::CANCELLED,
        };
        self.calls.record(worker, index, took);
    }

    /// Records that the hook rejected a request with this code.
    pub fn record_rejection(&self, operation: Operation, cause: RejectionCause, code: i32) {
        self.rejections.count(operation, cause, code);
    }

    /// Records dropped audit annotations of an answer.
    pub fn annotations_dropped(&self, cause: DroppedAnnotation, count: u64) {
        self.annotations_dropped[cause as usize].fetch_add(count, Relaxed);
    }

    /// Records a review that matched the hook and skipped it, since the hook has not passed a probe.
    pub fn record_skipped_unproven(&self) {
        self.skipped_unproven.fetch_add(1, Relaxed);
    }

    /// Records a discarded speculative call.
    pub fn record_discard(&self) {
        self.discarded.fetch_add(1, Relaxed);
    }

    /// Records a review that matched the hook's rules and was excluded by its match conditions.
    pub fn conditions_unmet(&self, how: UnmetConditions) {
        self.unmet[how as usize].fetch_add(1, Relaxed);
    }

    /// Records one evaluation of the match conditions.
    pub fn conditions_evaluated(&self, worker: usize, took: Duration) {
        self.conditions.get_or_init(|| Cells::new(self.workers)).record(worker, 0, took);
    }

    /// Removes the timeout, before those of the next generation are set.
    pub fn forget_timeout(&self) {
        self.timeout.store(0, Relaxed);
    }

    /// Sets the timeout of a hook of this name in force. Of several such hooks, the shortest timeout counts.
    pub fn set_timeout(&self, timeout: Duration) {
        let (nanos, before) = (timeout.as_nanos() as u64, self.timeout.load(Relaxed));
        self.timeout.store(if before == 0 { nanos } else { nanos.min(before) }, Relaxed);
    }

    /// Returns the timeout of one call; `None` while no hook of the name is in force.
    pub(super) fn timeout(&self) -> Option<Duration> {
        Some(self.timeout.load(Relaxed)).filter(|nanos| *nanos > 0).map(Duration::from_nanos)
    }

    /// Samples the counters for [`HookMetrics::recent_failures`]. Not for threads that call hooks.
    pub fn sample(&self, now: Instant) {
        self.recent.sample(now, self.counts());
    }

    /// Returns the failed calls of the last minutes; `None` if there are none.
    pub fn recent_failures(&self, now: Instant) -> Option<RecentCallFailures> {
        if !self.recent.have_failed() {
            return None;
        }
        let kind = |kind: u8| FailureKind::ALL.get(usize::from(kind)).map(|kind| kind.as_str());
        self.recent.failures((now, self.counts()), kind)
    }

    /// Returns the discarded calls of the last minutes, and the number of all calls; `None` if none was discarded.
    pub fn recently_discarded(&self, now: Instant) -> Option<RecentDiscards> {
        if self.discarded.load(Relaxed) == 0 {
            return None;
        }
        let (over, grown) = self.recent.grown(now, self.counts());
        let calls = grown.calls + grown.cancelled;
        (grown.discarded > 0).then_some(RecentDiscards { discarded: grown.discarded, calls, over })
    }

    /// Returns the current counts of calls.
    fn counts(&self) -> Counts {
        let sums = self.calls.sums();
        Counts {
            calls: (0..HookOutcome::CANCELLED).map(|outcome| sums.count(outcome)).sum(),
            failed: sums.count(HookOutcome::OPEN) + sums.count(HookOutcome::CLOSED),
            cancelled: sums.count(HookOutcome::CANCELLED),
            discarded: self.discarded.load(Relaxed),
        }
    }

    /// Records that the hook is called again.
    pub fn repeated(&self, cause: Repeat) {
        self.repeats[cause as usize].fetch_add(1, Relaxed);
    }

    /// Returns the number of suppressed lines if a failure of this hook may be logged now; otherwise `None`.
    pub fn failure_log_permit(&self) -> Option<u64> {
        self.failure_lines.pass()
    }

    /// Returns the number of suppressed lines if dropped annotations may be logged now; otherwise `None`.
    pub fn dropped_log_permit(&self) -> Option<u64> {
        self.dropped.pass()
    }

    fn failed(&self, kind: FailureKind, policy: usize) {
        self.failures[kind as usize][policy].fetch_add(1, Relaxed);
        self.recent.record_failure(kind as u8, self.counts());
    }
}

/// Maximum number of kinds of rejections that are counted separately, since a hook chooses its codes. Further denials
/// are counted without their code.
const MAX_REJECTION_KINDS: usize = 64;

/// Maximum code; larger ones are counted as this. Upstream: `pkg/admission/metrics/metrics.go`.
const MAX_CODE: i32 = 600;

labels! {
    /// Cause of a rejection by a hook. Labels are those of `gatepost_hook_calls_total` if it has them.
    pub enum RejectionCause {
        /// The hook denied the request.
        Denied = "denied",
        /// The call failed and the failure policy rejects, or the hook must not be called in a dry run.
        FailedClosed = "failed_closed",
        /// The hook's patch cannot be applied.
        PatchRefused = "patch_refused",
    }
}

/// Indexes of the operation and the cause, and the code; `None` for all other codes.
type Key = (usize, usize, Option<u16>);

/// Counts of rejections. Only rejected requests take the lock.
#[derive(Debug, Default)]
pub(super) struct Rejections(Mutex<BTreeMap<Key, u64>>);

impl Rejections {
    /// Counts one rejection.
    pub(super) fn count(&self, operation: Operation, cause: RejectionCause, code: i32) {
        let code = u16::try_from(code.clamp(0, MAX_CODE)).ok();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (operation.index(), cause as usize, code);
        let has_own_count =
            cause != RejectionCause::Denied || counts.len() < MAX_REJECTION_KINDS || counts.contains_key(&key);
        let key = if has_own_count { key } else { (operation.index(), cause as usize, None) };
        *counts.entry(key).or_default() += 1;
    }

    /// Returns all counts, with operation, cause and code.
    pub(super) fn all(&self) -> Vec<(&'static str, &'static str, String, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let shown = |((operation, cause, code), count): (Key, u64)| {
            let operation = Operation::ALL.get(operation).map_or("", |operation| operation.as_str());
            (
                operation,
                RejectionCause::LABELS[cause],
                code.map_or_else(|| "other".to_owned(), |code| code.to_string()),
                count,
            )
        };
        counts.into_iter().map(shown).collect()
    }
}

/// Number of buckets of a histogram: one for each bound, and one beyond the last.
pub(super) const BUCKETS: usize = BOUNDS_NANOS.len() + 1;

#[derive(Debug)]
struct Row<const OUTCOMES: usize> {
    counts: [[AtomicU64; BUCKETS]; OUTCOMES],
    nanos: [AtomicU64; OUTCOMES],
}

/// Counts and durations by outcome.
#[derive(Debug)]
pub(super) struct Cells<const OUTCOMES: usize> {
    rows: Box<[CachePadded<Row<OUTCOMES>>]>,
}

/// Sums of all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sums<const OUTCOMES: usize> {
    pub(super) counts: [[u64; BUCKETS]; OUTCOMES],
    pub(super) nanos: [u64; OUTCOMES],
}

impl<const OUTCOMES: usize> Default for Cells<OUTCOMES> {
    fn default() -> Self {
        Self::new(1)
    }
}

impl<const OUTCOMES: usize> Cells<OUTCOMES> {
    /// Creates one row for each worker, at least one.
    pub(super) fn new(workers: usize) -> Self {
        let row = || {
            CachePadded::new(Row {
                counts: array::from_fn(|_| array::from_fn(|_| AtomicU64::new(0))),
                nanos: array::from_fn(|_| AtomicU64::new(0)),
            })
        };
        Self { rows: (0..workers.max(1)).map(|_| row()).collect() }
    }

    /// Records an event. Workers beyond the rows share the last one.
    #[inline]
    pub(super) fn record(&self, worker: usize, outcome: usize, took: Duration) {
        let row = &self.rows[worker.min(self.rows.len() - 1)];
        let nanos = took.as_nanos() as u64;
        let bucket = BOUNDS_NANOS.partition_point(|bound| *bound < nanos);
        row.counts[outcome][bucket].fetch_add(1, Relaxed);
        row.nanos[outcome].fetch_add(nanos, Relaxed);
    }

    /// Returns the sums of all rows.
    pub(super) fn sums(&self) -> Sums<OUTCOMES> {
        let sum = |cell: &dyn Fn(&Row<OUTCOMES>) -> u64| self.rows.iter().map(|row| cell(row)).sum();
        Sums {
            counts: array::from_fn(|o| array::from_fn(|b| sum(&|row| row.counts[o][b].load(Relaxed)))),
            nanos: array::from_fn(|o| sum(&|row| row.nanos[o].load(Relaxed))),
        }
    }
}

impl<const OUTCOMES: usize> Sums<OUTCOMES> {
    /// Returns the count of that outcome.
    pub(super) fn count(&self, outcome: usize) -> u64 {
        self.counts[outcome].iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_failed_lately_are_reported_with_the_last_one() {
        let (metrics, now) = (HookMetrics::new(2), Instant::now());
        metrics.record(0, HookOutcome::Allowed, Duration::ZERO);
        assert_eq!(metrics.recent_failures(now), None);
        metrics.record(1, HookOutcome::FailedOpen(FailureKind::Connect), Duration::ZERO);
        metrics.record(0, HookOutcome::FailedClosed(FailureKind::Timeout), Duration::ZERO);
        metrics.record(0, HookOutcome::Cancelled, Duration::ZERO);
        let failures = metrics.recent_failures(now).unwrap();
        assert_eq!(failures.recovery, None, "what came before the failure is no recovery");
        let last = failures.last.unwrap();
        assert_eq!((failures.failed, failures.calls, last.kind), (2, 3, "timeout"));
        assert!(last.at.elapsed().is_ok_and(|ago| ago < Duration::from_secs(60)));
        let discarded = metrics.recently_discarded(now);
        assert_eq!(discarded, None);
        metrics.record_discard();
        let discarded = metrics.recently_discarded(now).unwrap();
        assert_eq!((discarded.discarded, discarded.calls), (1, 4), "those that were cancelled are calls too");
        for minute in 0..7 {
            metrics.sample(now + Duration::from_secs(60 * minute));
        }
        assert_eq!(metrics.recent_failures(now + Duration::from_secs(420)), None, "no longer");
        assert_eq!(metrics.recently_discarded(now + Duration::from_secs(420)), None, "no longer");
    }

    #[test]
    fn successes_after_the_last_failure_are_counted() {
        let (metrics, now) = (HookMetrics::new(2), Instant::now());
        let record = |outcome| metrics.record(0, outcome, Duration::ZERO);
        let successes = || metrics.recent_failures(now).unwrap().recovery.map(|recovery| recovery.successes);
        record(HookOutcome::Allowed);
        record(HookOutcome::FailedOpen(FailureKind::Connect));
        record(HookOutcome::Allowed);
        record(HookOutcome::Denied);
        record(HookOutcome::Cancelled);
        let recovery = metrics.recent_failures(now).unwrap().recovery.unwrap();
        assert_eq!(recovery.successes, 2, "an answer is a success, also a no");
        assert!(recovery.last.elapsed().is_ok_and(|ago| ago < Duration::from_secs(60)));
        record(HookOutcome::FailedClosed(FailureKind::Connect));
        assert_eq!(successes(), None, "it fails again");
        record(HookOutcome::Allowed);
        assert_eq!(successes(), Some(1));
    }

    #[test]
    fn every_kind_of_call_failure_is_counted_by_itself() {
        let metrics = HookMetrics::new(1);
        for kind in FailureKind::ALL {
            metrics.record(0, HookOutcome::FailedClosed(*kind), Duration::ZERO);
            let last = metrics.recent_failures(Instant::now()).and_then(|failures| failures.last);
            assert_eq!(last.map(|last| last.kind), Some(kind.as_str()));
        }
        for (kind, [open, closed]) in FailureKind::ALL.iter().zip(&metrics.failures) {
            assert_eq!((open.load(Relaxed), closed.load(Relaxed)), (0, 1), "{}", kind.as_str());
        }
    }

    #[test]
    fn rejection_codes_are_distinguished_up_to_a_limit() {
        let rejections = Rejections::default();
        for code in [403, 403, 601, i32::MAX, -1] {
            rejections.count(Operation::Create, RejectionCause::Denied, code);
        }
        rejections.count(Operation::Connect, RejectionCause::FailedClosed, 500);
        let of = |operation, cause, code: &str, count| (operation, cause, code.to_owned(), count);
        assert_eq!(
            rejections.all(),
            [
                of("CREATE", "denied", "0", 1),
                of("CREATE", "denied", "403", 2),
                of("CREATE", "denied", "600", 2),
                of("CONNECT", "failed_closed", "500", 1),
            ]
        );
        for code in 0..1000 {
            rejections.count(Operation::Delete, RejectionCause::Denied, code);
        }
        rejections.count(Operation::Create, RejectionCause::Denied, 403);
        let all = rejections.all();
        assert_eq!(all.len(), MAX_REJECTION_KINDS + 1);
        rejections.count(Operation::Delete, RejectionCause::FailedClosed, 500);
        assert!(
            rejections.all().contains(&of("DELETE", "failed_closed", "500", 1)),
            "a code of ours is always counted"
        );
        assert!(all.contains(&of("CREATE", "denied", "403", 3)), "known ones count on: {all:?}");
        let deleted: Vec<_> = all.iter().filter(|(operation, ..)| *operation == "DELETE").collect();
        assert_eq!(deleted.iter().map(|(.., count)| count).sum::<u64>(), 1000, "none is lost");
        assert!(deleted.iter().any(|(_, _, code, _)| code == "other"), "{deleted:?}");
    }
}
