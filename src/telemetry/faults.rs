//! Faults: events that should never happen, counted for the whole process.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static LANE_PANICS: AtomicU64 = AtomicU64::new(0);
static STARVED_CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// The task that carries one worker's calls to one hook has panicked.
pub fn client_panicked() {
    LANE_PANICS.fetch_add(1, Relaxed);
}

/// Number of panics in workers' clients.
pub fn client_panics() -> u64 {
    LANE_PANICS.load(Relaxed)
}

/// A connection to a hook was replaced, as the hook's flow control left no room for calls.
pub fn connection_starved() {
    STARVED_CONNECTIONS.fetch_add(1, Relaxed);
}

/// Number of connections that were replaced for that.
pub fn starved_connections() -> u64 {
    STARVED_CONNECTIONS.load(Relaxed)
}
