//! Readings: values that other modules own, read at each scrape; and the counters of the whole process, for events that
//! should never happen.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use gatepost_base::labels;

use super::table::{self, Family};

/// Defines the readings, each with its family and the value of the family's label, if it has one.
macro_rules! readings {
    ($($id:ident = $family:ident $label:literal,)*) => {
        /// Value that another module owns, read at each scrape.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reading { $(#[doc = concat!("Of [`", stringify!($family), "`](table::", stringify!($family), ").")] $id,)* }

        impl Reading {
            /// All readings.
            pub const ALL: [Self; [$(Self::$id),*].len()] = [$(Self::$id),*];

            /// Returns the family, and the value of its label, or "".
            fn place(self) -> (&'static Family, &'static str) {
                match self { $(Self::$id => (&table::$family, $label),)* }
            }
        }
    };
}

readings! {
    InflightRequests = INFLIGHT_REQUESTS "",
    HeldForReviews = INFLIGHT_BYTES "review",
    HeldForAnswers = INFLIGHT_BYTES "answer",
    HeldForQueues = INFLIGHT_BYTES "queue",
    HeldForVerdicts = INFLIGHT_BYTES "verdict",
    MemoryLimit = INFLIGHT_LIMIT "",
    OpenConnections = OPEN_CONNECTIONS "",
    HookConnections = HOOK_CONNECTIONS "",
    HookConnectionsLimit = HOOK_CONNECTIONS_LIMIT "",
    ConfigAge = CONFIG_AGE "",
    ConfigGeneration = CONFIG_GENERATION "",
    ConfigRejected = CONFIG_REJECTED "",
    BindingsAwaitingParams = BINDINGS_AWAITING_PARAMS "",
    DocumentsHeldBack = DOCUMENTS_HELD_BACK "",
    DocumentsLeftOut = DOCUMENTS_LEFT_OUT "",
    ConfigFromLastGood = CONFIG_FROM_LAST_GOOD "",
    LastGoodUnwritten = LAST_GOOD_UNWRITTEN "",
    AuditLost = AUDIT_LOST "",
    Namespaces = NAMESPACES "",
    NamespacesAge = NAMESPACES_AGE "",
    EndpointsAge = ENDPOINTS_AGE "",
    BreakGlassOpen = BREAK_GLASS_OPEN "",
    Hooks = HOOKS "",
    HooksActive = HOOKS_BY_STATE "active",
    HooksUnproven = HOOKS_BY_STATE "unproven",
    HooksMoving = HOOKS_BY_STATE "moving",
    HooksProbing = HOOKS_BY_STATE "probing",
    HooksDraining = HOOKS_BY_STATE "draining",
    HooksUnasked = HOOKS_UNASKED "",
    HooksOverdue = HOOKS_OVERDUE "",
    RegistrationUncovered = REGISTRATION_UNCOVERED "",
    StoredUnfinished = STORED_UNFINISHED "",
    StoredHolds = STORED_HOLDS "",
    IndexFollowers = INDEX_FOLLOWERS "",
    IndexAcknowledgement = INDEX_ACKNOWLEDGEMENT "",
    ProcessCpu = PROCESS_CPU "",
    ProcessResident = PROCESS_RESIDENT "",
    ProcessVirtual = PROCESS_VIRTUAL "",
    ProcessOpenFiles = PROCESS_OPEN_FDS "",
    ProcessMostFiles = PROCESS_MAX_FDS "",
    ProcessStart = PROCESS_START "",
}

/// Returns a value; `None` omits the metric.
type Read = Box<dyn Fn() -> Option<f64> + Send + Sync>;

/// Source of each value.
pub(super) struct Readings(Mutex<[Option<Read>; Reading::ALL.len()]>);

impl Default for Readings {
    fn default() -> Self {
        Self(Mutex::new(std::array::from_fn(|_| None)))
    }
}

impl Readings {
    /// Sets the source of a value; replaces an earlier one.
    pub(super) fn set(&self, reading: Reading, read: impl Fn() -> Option<f64> + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[reading as usize] = Some(Box::new(read));
    }

    /// Returns the value; `None` if it has no source, or is unknown.
    pub(super) fn get(&self, reading: Reading) -> Option<f64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[reading as usize].as_ref().and_then(|read| read())
    }

    /// Returns the known values of that family, each with the value of its label.
    pub(super) fn of(&self, family: &Family) -> impl Iterator<Item = (&'static str, f64)> {
        let of_family = Reading::ALL.into_iter().filter(move |reading| reading.place().0.name == family.name);
        of_family.filter_map(|reading| Some((reading.place().1, self.get(reading)?)))
    }
}

pub(super) static UNREADABLE: [AtomicU64; UnreadableObjects::LABELS.len()] = [const { AtomicU64::new(0) }; 3];
static HOOK_WORKER_PANICS: AtomicU64 = AtomicU64::new(0);
static STARVED_CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// Records a panic of the task that makes one worker's calls of one hook.
pub fn hook_worker_panicked() {
    HOOK_WORKER_PANICS.fetch_add(1, Relaxed);
}

/// Returns the number of these panics.
pub fn hook_worker_panics() -> u64 {
    HOOK_WORKER_PANICS.load(Relaxed)
}

/// Records the replacement of a connection to a hook whose flow control window stayed exhausted.
pub fn connection_starved() {
    STARVED_CONNECTIONS.fetch_add(1, Relaxed);
}

/// Returns the number of these replacements.
pub fn starved_connections() -> u64 {
    STARVED_CONNECTIONS.load(Relaxed)
}

labels! {
    /// Kinds of objects of the cluster that could not be read.
    pub enum UnreadableObjects {
        /// Namespaces, for their labels.
        Namespaces = "namespaces",
        /// EndpointSlices of hooks' Services.
        EndpointSlices = "endpointslices",
        /// Objects that are stored unfinished, by their label.
        StoredUnfinished = "stored_unfinished",
    }
}

impl UnreadableObjects {
    /// Records an object that could not be read.
    pub fn count(self) {
        UNREADABLE[self as usize].fetch_add(1, Relaxed);
    }

    /// Returns the number of objects of this kind that could not be read.
    pub fn counted(self) -> u64 {
        UNREADABLE[self as usize].load(Relaxed)
    }
}
