//! Metrics: all counters but those of [`reading`](super::reading). Counting on the hot path takes no lock.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use super::{
    AccessReviewOutcome, Attendance, DroppedReport, HookMetrics, InitializerMetrics, PolicyMetrics, ReadOutcome,
    Reading, RefusalReason, RequestOutcome, ShadowDrop, TlsReload, hook::Cells, reading::Readings,
};
use gatepost_adopt::AdoptionMetrics;
use gatepost_api::{BypassEffect, HookType};

/// Counters, and the sources of [`Reading`]s.
#[derive(Default)]
pub struct Metrics {
    workers: usize,
    pub(super) requests: Cells<7>,
    /// Mutating phases of requests.
    pub(super) mutations: Cells<1>,
    pub(super) refused: [AtomicU64; RefusalReason::LABELS.len()],
    pub(super) copied: AtomicU64,
    pub(super) config_reads: Cells<{ ReadOutcome::LABELS.len() }>,
    pub(super) access_reviews: Cells<{ AccessReviewOutcome::LABELS.len() }>,
    pub(super) tls_reloads: [AtomicU64; TlsReload::LABELS.len()],
    /// End of each certificate, by its name.
    ends: Mutex<Vec<(String, SystemTime)>>,
    /// Metrics of validating and of mutating hooks.
    hooks: [ByName<HookMetrics>; 2],
    pub(super) bypasses: ByName<BypassMetrics>,
    pub(super) initializers: ByName<InitializerMetrics>,
    /// Metrics of validating and of mutating policies.
    policies: [ByName<PolicyMetrics>; 2],
    /// Requests that were not decided in shadow, by reason.
    pub(super) shadow_dropped: [AtomicU64; ShadowDrop::LABELS.len()],
    /// Dropped reports of stored objects, by reason.
    pub(super) dropped_reports: [AtomicU64; DroppedReport::LABELS.len()],
    /// Requests about our own configuration, which skip hooks.
    pub(super) own_configuration: AtomicU64,
    /// Requests to which break-glass applied.
    pub(super) break_glass: AtomicU64,
    /// Reviews that waited for a change in vain, and until it was in force.
    pub(super) held: [AtomicU64; 2],
    adoption: AdoptionMetrics,
    pub(super) readings: Readings,
    /// Source of the instances and holds of initializers.
    attendance: Mutex<Option<AttendanceSource>>,
}

/// Returns the attendance of each initializer.
type AttendanceSource = Box<dyn Fn() -> Vec<Attendance> + Send + Sync>;

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("workers", &self.workers).finish_non_exhaustive()
    }
}

impl Metrics {
    /// Creates counters for that many workers.
    pub fn new(workers: usize) -> Self {
        Self { workers, requests: Cells::new(workers), mutations: Cells::new(workers), ..Self::default() }
    }

    /// Returns the metrics of the hook of that type and name, the same ones for every call. Takes a lock: call this
    /// once per generation.
    pub fn hook(&self, hook_type: HookType, name: &Arc<str>) -> Arc<HookMetrics> {
        self.hooks[hook_type as usize].get(name, || HookMetrics::new(self.workers))
    }

    /// Returns the metrics of the bypass of that name, always the same. Takes a lock: call this once per generation.
    pub fn bypass(&self, name: &Arc<str>) -> Arc<BypassMetrics> {
        self.bypasses.get(name, BypassMetrics::default)
    }

    /// Returns the metrics of the initializer of that name, the same ones for every call. Takes a lock: call this once
    /// per generation.
    pub fn initializer(&self, name: &Arc<str>) -> Arc<InitializerMetrics> {
        self.initializers.get(name, || InitializerMetrics::new(self.workers))
    }

    /// Returns the metrics of the policy of that type and name, the same ones for every call. Takes a lock: call this
    /// once per generation.
    pub fn policy(&self, hook_type: HookType, name: &Arc<str>) -> Arc<PolicyMetrics> {
        self.policies[hook_type as usize].get(name, || PolicyMetrics::new(self.workers))
    }

    /// Returns the metrics of every policy, by type and name.
    pub(super) fn policies(&self) -> impl Iterator<Item = (HookType, Arc<str>, Arc<PolicyMetrics>)> {
        by_type(&self.policies)
    }

    /// Records a request about our own configuration that skipped hooks.
    pub fn record_own_configuration(&self) {
        self.own_configuration.fetch_add(1, Relaxed);
    }

    /// Counts a review that waited for a change of the configuration, and whether that is in force now.
    pub fn request_held(&self, caught_up: bool) {
        self.held[usize::from(caught_up)].fetch_add(1, Relaxed);
    }

    /// Records a request in which break-glass skipped every hook, or a hook that matched.
    pub fn record_break_glass(&self) {
        self.break_glass.fetch_add(1, Relaxed);
    }

    /// Records the end of a request.
    pub fn request(&self, worker: usize, outcome: RequestOutcome, took: Duration) {
        self.requests.record(worker, outcome as usize, took);
    }

    /// Records the end of the mutating phase of a request.
    pub fn mutation(&self, worker: usize, took: Duration) {
        self.mutations.record(worker, 0, took);
    }

    /// Records a call or connection that ended without a verdict.
    pub fn record_refusal(&self, reason: RefusalReason) {
        self.refused[reason as usize].fetch_add(1, Relaxed);
    }

    /// Records a request that was not decided in shadow.
    pub fn record_shadow_drop(&self, reason: ShadowDrop) {
        self.shadow_dropped[reason as usize].fetch_add(1, Relaxed);
    }

    /// Records a dropped report of a stored object.
    pub fn dropped_report(&self, reason: DroppedReport) {
        self.dropped_reports[reason as usize].fetch_add(1, Relaxed);
    }

    /// Returns the metrics of adopted webhooks.
    pub const fn adoption(&self) -> &AdoptionMetrics {
        &self.adoption
    }

    /// Records a read of the configuration.
    pub fn config_read(&self, outcome: ReadOutcome, took: Duration) {
        self.config_reads.record(0, outcome.index(), took);
    }

    /// Records the end of an access review.
    pub fn record_access_review(&self, outcome: AccessReviewOutcome, took: Duration) {
        self.access_reviews.record(0, outcome as usize, took);
    }

    /// Records a change of the TLS files.
    pub fn record_tls_reload(&self, outcome: TlsReload) {
        self.tls_reloads[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Sets the certificates in use, each with its end. Replaces all earlier ones.
    pub fn set_ends(&self, ends: Vec<(String, SystemTime)>) {
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = ends;
    }

    pub(super) fn ends(&self) -> Vec<(String, SystemTime)> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records object bytes that were copied in user space after they were read.
    pub fn copied(&self, bytes: usize) {
        self.copied.fetch_add(bytes as u64, Relaxed);
    }

    /// Returns the number of object bytes copied so far.
    pub fn copied_bytes(&self) -> u64 {
        self.copied.load(Relaxed)
    }

    /// Registers the source of a value; replaces an earlier one.
    pub fn observe(&self, reading: Reading, read: impl Fn() -> Option<f64> + Send + Sync + 'static) {
        self.readings.set(reading, read);
    }

    /// Registers the source of instances and holds of initializers; replaces an earlier one.
    pub fn observe_attendance(&self, read: impl Fn() -> Vec<Attendance> + Send + Sync + 'static) {
        *self.attendance.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(read));
    }

    /// Returns the instances and holds of each initializer in this process.
    pub(super) fn attendance(&self) -> Vec<Attendance> {
        let source = self.attendance.lock().unwrap_or_else(PoisonError::into_inner);
        source.as_ref().map(|read| read()).unwrap_or_default()
    }

    /// Returns the metrics of every hook.
    pub fn hook_counters(&self) -> Vec<Arc<HookMetrics>> {
        self.hooks().into_iter().map(|(_, _, counters)| counters).collect()
    }

    /// Returns the metrics of every initializer.
    pub fn initializer_counters(&self) -> Vec<Arc<InitializerMetrics>> {
        self.initializers.all().into_iter().map(|(_, counters)| counters).collect()
    }

    /// Returns the metrics of every hook, by type and name.
    pub(super) fn hooks(&self) -> Vec<(HookType, Arc<str>, Arc<HookMetrics>)> {
        by_type(&self.hooks).collect()
    }
}

/// Returns the metrics of both types, indexed by [`HookType`], by type and name.
fn by_type<T>(both: &[ByName<T>; 2]) -> impl Iterator<Item = (HookType, Arc<str>, Arc<T>)> {
    let types = [HookType::Validating, HookType::Mutating].into_iter().zip(both);
    types.flat_map(|(hook_type, named)| named.all().into_iter().map(move |(name, one)| (hook_type, name, one)))
}

/// Number of names from which a new name removes unused counters, so that a configuration whose names keep changing
/// does not use ever more memory.
const NAMES_BEFORE_REMOVAL: usize = 4096;

/// Metrics by name.
#[derive(Debug, Default)]
pub(super) struct ByName<T>(Mutex<BTreeMap<Arc<str>, Arc<T>>>);

impl<T> ByName<T> {
    /// Returns the metrics of that name, the same ones for every call while they are in use.
    pub(super) fn get(&self, name: &Arc<str>, new: impl FnOnce() -> T) -> Arc<T> {
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() >= NAMES_BEFORE_REMOVAL && !named.contains_key(name) {
            named.retain(|_, counters| Arc::strong_count(counters) > 1);
        }
        named.entry(Arc::clone(name)).or_insert_with(|| Arc::new(new())).clone()
    }

    /// Returns all metrics, by name.
    pub(super) fn all(&self) -> Vec<(Arc<str>, Arc<T>)> {
        let named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        named.iter().map(|(name, counters)| (Arc::clone(name), Arc::clone(counters))).collect()
    }
}

/// Number of requests to which a bypass applied, by effect. A change of the configuration may change the effect.
#[derive(Debug, Default)]
pub struct BypassMetrics([AtomicU64; BypassEffect::ALL.len()]);

impl BypassMetrics {
    /// Records that the bypass applied to a request.
    pub fn record(&self, effect: BypassEffect) {
        self.0[effect.index()].fetch_add(1, Relaxed);
    }

    /// Returns the count for each effect.
    pub(super) fn counts(&self) -> impl Iterator<Item = (BypassEffect, u64)> {
        BypassEffect::ALL.into_iter().zip(&self.0).map(|(effect, cell)| (effect, cell.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests;
