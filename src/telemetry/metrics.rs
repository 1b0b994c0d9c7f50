//! Metrics: every counter there is; counting takes no lock and looks nothing up.

use std::{
    array,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use super::{
    AccessReviewOutcome, Attendance, DroppedReport, HookMetrics, InitializerMetrics, ReadOutcome, Reading, Refused,
    RequestOutcome, TlsReload, hook::Cells, initializer::Attended, reading::Readings, table::Family,
};
use gatepost_adopt::AdoptionMetrics;
use gatepost_api::{BypassEffect, HookType};

/// All counters.
pub struct Metrics {
    workers: usize,
    pub(super) requests: Cells<6>,
    /// Mutating phases.
    pub(super) mutations: Cells<1>,
    pub(super) refused: [AtomicU64; Refused::LABELS.len()],
    pub(super) copied: AtomicU64,
    pub(super) config_reads: Cells<{ ReadOutcome::LABELS.len() }>,
    pub(super) access_reviews: Cells<{ AccessReviewOutcome::LABELS.len() }>,
    pub(super) tls_reloads: [AtomicU64; TlsReload::LABELS.len()],
    /// Which certificate ends when.
    ends: Mutex<Vec<(String, SystemTime)>>,
    validating: ByName<HookMetrics>,
    mutating: ByName<HookMetrics>,
    bypasses: ByName<BypassMetrics>,
    initializers: ByName<InitializerMetrics>,
    /// Reports of stored objects.
    pub(super) dropped_reports: [AtomicU64; DroppedReport::LABELS.len()],
    /// Requests about our own configuration.
    pub(super) own_configuration: AtomicU64,
    /// Requests that break-glass has let past.
    pub(super) break_glass: AtomicU64,
    adoption: AdoptionMetrics,
    readings: Readings,
    attended: Attended,
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

impl Metrics {
    /// Counters for that many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            requests: Cells::new(workers),
            mutations: Cells::new(workers),
            refused: array::from_fn(|_| AtomicU64::new(0)),
            copied: AtomicU64::new(0),
            config_reads: Cells::new(1),
            access_reviews: Cells::new(1),
            tls_reloads: array::from_fn(|_| AtomicU64::new(0)),
            ends: Mutex::default(),
            validating: ByName::default(),
            mutating: ByName::default(),
            bypasses: ByName::default(),
            initializers: ByName::default(),
            dropped_reports: array::from_fn(|_| AtomicU64::new(0)),
            own_configuration: AtomicU64::new(0),
            break_glass: AtomicU64::new(0),
            adoption: AdoptionMetrics::default(),
            readings: Readings::default(),
            attended: Attended::default(),
        }
    }

    /// The counters of the hook of that type and name, the same ones at every call. Takes a lock: call it once per
    /// generation.
    pub fn hook(&self, hook_type: HookType, name: &Arc<str>) -> Arc<HookMetrics> {
        self.of_type(hook_type).get(name, || HookMetrics::new(self.workers))
    }

    fn of_type(&self, hook_type: HookType) -> &ByName<HookMetrics> {
        match hook_type {
            HookType::Validating => &self.validating,
            HookType::Mutating => &self.mutating,
        }
    }

    /// The counters of the bypass of that name, the same ones at every call. Takes a lock: call it once per generation.
    pub fn bypass(&self, name: &Arc<str>) -> Arc<BypassMetrics> {
        self.bypasses.get(name, BypassMetrics::default)
    }

    /// The counters of the initializer of that name, the same ones at every call. Takes a lock: call it once per
    /// generation.
    pub fn initializer(&self, name: &Arc<str>) -> Arc<InitializerMetrics> {
        self.initializers.get(name, || InitializerMetrics::new(self.workers))
    }

    /// A request about our own configuration was let past.
    pub fn let_ourselves_past(&self) {
        self.own_configuration.fetch_add(1, Relaxed);
    }

    /// Break-glass has let a request past every hook, or past one that meant it.
    pub fn record_break_glass(&self) {
        self.break_glass.fetch_add(1, Relaxed);
    }

    /// Every bypass's counters, by name.
    pub(super) fn bypasses(&self) -> Vec<(Arc<str>, Arc<BypassMetrics>)> {
        self.bypasses.all()
    }

    /// Every initializer's counters, by name.
    pub(super) fn initializers(&self) -> Vec<(Arc<str>, Arc<InitializerMetrics>)> {
        self.initializers.all()
    }

    /// One request ended.
    pub fn request(&self, worker: usize, outcome: RequestOutcome, took: Duration) {
        self.requests.record(worker, outcome as usize, took);
    }

    /// The mutating phase of a request ended.
    pub fn mutation(&self, worker: usize, took: Duration) {
        self.mutations.record(worker, 0, took);
    }

    /// A call or connection ended at the front.
    pub fn refused(&self, reason: Refused) {
        self.refused[reason as usize].fetch_add(1, Relaxed);
    }

    /// A report of a stored object was dropped.
    pub fn dropped_report(&self, reason: DroppedReport) {
        self.dropped_reports[reason as usize].fetch_add(1, Relaxed);
    }

    /// Webhooks that were taken over from the apiserver.
    pub const fn adoption(&self) -> &AdoptionMetrics {
        &self.adoption
    }

    /// One read of the configuration ended.
    pub fn config_read(&self, outcome: ReadOutcome, took: Duration) {
        self.config_reads.record(0, outcome.index(), took);
    }

    /// One access review ended.
    pub fn access_review(&self, outcome: AccessReviewOutcome, took: Duration) {
        self.access_reviews.record(0, outcome as usize, took);
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

    /// Object bytes copied so far.
    pub fn copied_bytes(&self) -> u64 {
        self.copied.load(Relaxed)
    }

    /// Registers who knows a value; the last one to say so counts.
    pub fn observe(&self, reading: Reading, read: impl Fn() -> Option<f64> + Send + Sync + 'static) {
        self.readings.set(reading, read);
    }

    /// Registers who knows the instances and holds of initializers; the last one to say so counts.
    pub fn observe_attendance(&self, read: impl Fn() -> Vec<Attendance> + Send + Sync + 'static) {
        self.attended.set(read);
    }

    /// Instances and holds of each initializer that a process acts for.
    pub(super) fn attendance(&self) -> Vec<Attendance> {
        self.attended.get()
    }

    /// The counters of every hook.
    pub fn hook_counters(&self) -> Vec<Arc<HookMetrics>> {
        self.hooks().into_iter().map(|(_, _, counters)| counters).collect()
    }

    /// The counters of every initializer.
    pub fn initializer_counters(&self) -> Vec<Arc<InitializerMetrics>> {
        self.initializers().into_iter().map(|(_, counters)| counters).collect()
    }

    pub(super) fn read(&self, reading: Reading) -> Option<f64> {
        self.readings.get(reading)
    }

    /// Values of that family that others own, each with the value of its label.
    pub(super) fn read_all(&self, family: &Family) -> impl Iterator<Item = (&'static str, f64)> {
        self.readings.of(family)
    }

    /// Every hook's counters, by type and name.
    pub(super) fn hooks(&self) -> Vec<(HookType, Arc<str>, Arc<HookMetrics>)> {
        let of_type = |hook_type| {
            let named = self.of_type(hook_type).all().into_iter();
            named.map(move |(name, counters)| (hook_type, name, counters))
        };
        of_type(HookType::Validating).chain(of_type(HookType::Mutating)).collect()
    }
}

/// Number of names from which on a new name removes the counters that nothing uses any longer, so that a configuration
/// whose names keep changing does not fill the memory.
const NAMES_BEFORE_REMOVAL: usize = 4096;

/// Counters by name.
#[derive(Debug)]
pub(super) struct ByName<T>(Mutex<BTreeMap<Arc<str>, Arc<T>>>);

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> ByName<T> {
    /// Value of that name, the same one at every call while it is in use.
    pub(super) fn get(&self, name: &Arc<str>, new: impl FnOnce() -> T) -> Arc<T> {
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() >= NAMES_BEFORE_REMOVAL && !named.contains_key(name) {
            named.retain(|_, counters| Arc::strong_count(counters) > 1);
        }
        named.entry(Arc::clone(name)).or_insert_with(|| Arc::new(new())).clone()
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<(Arc<str>, Arc<T>)> {
        let named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        named.iter().map(|(name, counters)| (Arc::clone(name), Arc::clone(counters))).collect()
    }
}

/// Counts of requests that a bypass has applied to, by its effect, which a change of the configuration may change.
#[derive(Debug, Default)]
pub struct BypassMetrics([AtomicU64; BypassEffect::ALL.len()]);

impl BypassMetrics {
    /// It applied to one request.
    pub fn record(&self, effect: BypassEffect) {
        self.0[effect.index()].fetch_add(1, Relaxed);
    }

    /// Count for each effect.
    pub(super) fn counts(&self) -> impl Iterator<Item = (BypassEffect, u64)> {
        BypassEffect::ALL.into_iter().zip(&self.0).map(|(effect, cell)| (effect, cell.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests;
