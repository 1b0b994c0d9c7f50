//! Faults: events that should never happen, counted for the whole process.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static LANE_PANICS: AtomicU64 = AtomicU64::new(0);

/// The task that carries one worker's calls to one hook has panicked.
pub fn client_panicked() {
    LANE_PANICS.fetch_add(1, Relaxed);
}

/// Number of panics in workers' clients.
pub fn client_panics() -> u64 {
    LANE_PANICS.load(Relaxed)
}
