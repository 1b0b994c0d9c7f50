//! Readings: values that others own, and that are read when the metrics are.

use std::sync::{Mutex, PoisonError};

use super::table::{self, Family};

/// Defines the readings, each with its family and the value of the family's label, if it has one.
macro_rules! readings {
    ($($id:ident = $family:ident $label:literal,)*) => {
        /// A value that somebody else owns and that is read when the metrics are.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reading { $(#[doc = concat!("Of [`", stringify!($family), "`](table::", stringify!($family), ").")] $id,)* }

        impl Reading {
            /// All of them.
            pub const ALL: [Self; [$(Self::$id),*].len()] = [$(Self::$id),*];

            /// Family, and value of its label, or "".
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
    ProcessCpu = PROCESS_CPU "",
    ProcessResident = PROCESS_RESIDENT "",
    ProcessVirtual = PROCESS_VIRTUAL "",
    ProcessOpenFiles = PROCESS_OPEN_FDS "",
    ProcessMostFiles = PROCESS_MAX_FDS "",
    ProcessStart = PROCESS_START "",
}

/// Reads a value; `None` leaves the metric out.
type Read = Box<dyn Fn() -> Option<f64> + Send + Sync>;

/// Source of each value.
pub(super) struct Readings(Mutex<[Option<Read>; Reading::ALL.len()]>);

impl Default for Readings {
    fn default() -> Self {
        Self(Mutex::new(std::array::from_fn(|_| None)))
    }
}

impl Readings {
    /// Sets the source of a value; the last one set counts.
    pub(super) fn set(&self, reading: Reading, read: impl Fn() -> Option<f64> + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[reading as usize] = Some(Box::new(read));
    }

    /// The value, where somebody knows it.
    pub(super) fn get(&self, reading: Reading) -> Option<f64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[reading as usize].as_ref().and_then(|read| read())
    }

    /// The values of that family that somebody knows, each with the value of its label.
    pub(super) fn of(&self, family: &Family) -> impl Iterator<Item = (&'static str, f64)> {
        let of_family = Reading::ALL.into_iter().filter(move |reading| reading.place().0.name == family.name);
        of_family.filter_map(|reading| Some((reading.place().1, self.get(reading)?)))
    }
}
