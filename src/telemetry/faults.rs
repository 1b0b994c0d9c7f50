//! Faults: events that should never happen, counted for the whole process.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static UNREADABLE: [AtomicU64; UnreadableObjects::LABELS.len()] = [const { AtomicU64::new(0) }; 3];
static HOOK_WORKER_PANICS: AtomicU64 = AtomicU64::new(0);
static STARVED_CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// The task that carries one worker's calls to one hook has panicked.
pub fn hook_worker_panicked() {
    HOOK_WORKER_PANICS.fetch_add(1, Relaxed);
}

/// Number of panics in workers' clients.
pub fn hook_worker_panics() -> u64 {
    HOOK_WORKER_PANICS.load(Relaxed)
}

/// A connection to a hook was replaced, as the hook's flow control left no room for calls.
pub fn connection_starved() {
    STARVED_CONNECTIONS.fetch_add(1, Relaxed);
}

/// Number of connections that were replaced for that.
pub fn starved_connections() -> u64 {
    STARVED_CONNECTIONS.load(Relaxed)
}

/// Objects of the cluster that could not be read, by what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadableObjects {
    /// Namespaces, for their labels.
    Namespaces,
    /// EndpointSlices of hooks' Services.
    EndpointSlices,
    /// Objects that are stored unfinished by their label.
    StoredUnfinished,
}

impl UnreadableObjects {
    /// Value of the label for each.
    pub const LABELS: [&'static str; 3] = ["namespaces", "endpointslices", "stored_unfinished"];

    /// One could not be read.
    pub fn count(self) {
        UNREADABLE[self as usize].fetch_add(1, Relaxed);
    }

    /// Number of these events since the start.
    pub fn counted(self) -> u64 {
        UNREADABLE[self as usize].load(Relaxed)
    }

    /// Numbers of all, each with its label.
    pub(super) fn all() -> impl Iterator<Item = (&'static str, u64)> {
        Self::LABELS.into_iter().zip(&UNREADABLE).map(|(label, count)| (label, count.load(Relaxed)))
    }
}
