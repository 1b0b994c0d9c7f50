//! Counter: totals over the whole process, in atomics, because the allocator is called from every thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tracking_allocator::{AllocationGroupId, AllocationTracker};

/// From this size on an allocation counts as large: a page.
const LARGE: usize = 4096;

static BYTES: AtomicU64 = AtomicU64::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LARGE_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

/// Counter of the allocator's blocks. A reallocation arrives as a new block and the end of the old one.
pub(super) struct Counter;

impl AllocationTracker for Counter {
    fn allocated(&self, _: usize, object_size: usize, _: usize, _: AllocationGroupId) {
        let bytes = object_size as u64;
        BYTES.fetch_add(bytes, Relaxed);
        ALLOCATIONS.fetch_add(1, Relaxed);
        LARGE_ALLOCATIONS.fetch_add(u64::from(object_size >= LARGE), Relaxed);
        let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(live, Relaxed);
    }

    fn deallocated(&self, _: usize, object_size: usize, _: usize, _: AllocationGroupId, _: AllocationGroupId) {
        LIVE.fetch_sub(object_size as u64, Relaxed);
    }
}

/// Everything counted so far, as one line of JSON.
pub(super) fn read() -> String {
    let [bytes, allocations, large, live, peak] =
        [&BYTES, &ALLOCATIONS, &LARGE_ALLOCATIONS, &LIVE, &PEAK].map(|counter| counter.load(Relaxed));
    format!(r#"{{"bytes":{bytes},"allocations":{allocations},"large":{large},"live":{live},"peak":{peak}}}"#)
}

/// Lets the peak begin again at what is live now. Totals go on: they are only ever subtracted.
pub(super) fn reset() {
    PEAK.store(LIVE.load(Relaxed), Relaxed);
}
