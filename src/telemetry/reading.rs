//! Readings: values that others own, and that are read when the metrics are.

use std::sync::{Mutex, PoisonError};

/// A value that somebody else owns and that is read when the metrics are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Reviews being read or decided.
    InflightRequests,
    /// Bytes held for them.
    HeldForReviews,
    /// Bytes held for hooks' answers.
    HeldForAnswers,
    /// Bytes held by queues towards hooks, of calls nobody waits for any more.
    HeldForQueues,
    /// Bytes held for verdicts that are not yet sent.
    HeldForVerdicts,
    /// The most that may be held for all of these.
    MemoryLimit,
    /// Callers' connections.
    OpenConnections,
    /// Connections to hooks.
    HookConnections,
    /// The most of them that there may be.
    HookConnectionsLimit,
    /// Age of the configuration in seconds.
    ConfigAge,
    /// Number of the configuration.
    ConfigGeneration,
    /// 1 while the newest configuration is not in force as it was written.
    ConfigRejected,
    /// Documents in force in their last good state.
    DocumentsHeldBack,
    /// Documents of which nothing is in force.
    DocumentsLeftOut,
    /// 1 while the last good configuration on disk is in use.
    ConfigFromLastGood,
    /// 1 while it cannot be written.
    LastGoodUnwritten,
    /// Audit lines not written.
    AuditLost,
    /// Namespaces whose labels are known.
    Namespaces,
    /// Time since the apiserver last spoke of them, in seconds.
    NamespacesAge,
    /// Time since the endpoints of hooks' Services were confirmed, in seconds.
    EndpointsAge,
    /// Break-glass documents that are open.
    BreakGlassOpen,
    /// Hooks in force.
    Hooks,
    /// Hooks that are asked where they are configured.
    HooksActive,
    /// Hooks that are asked although no probe has passed in time.
    HooksUnproven,
    /// Hooks that are asked at their former endpoint.
    HooksMoving,
    /// Hooks that are not asked before a probe has passed.
    HooksProbing,
    /// Hooks that are asked no more, but by reviews under way.
    HooksDraining,
    /// Hooks that are configured and not asked.
    HooksUnasked,
    /// Hooks that have passed no probe in time.
    HooksOverdue,
    /// Hooks of which the registration does not send everything.
    RegistrationUncovered,
    /// Objects that apiservers report as stored and not initialized.
    StoredUnfinished,
    /// CREATEs of such objects that are held.
    StoredHolds,
    /// Processor time that the process has used, in seconds.
    ProcessCpu,
    /// Memory of the process in use, in bytes.
    ProcessResident,
    /// Address space of the process, in bytes.
    ProcessVirtual,
    /// Open files.
    ProcessOpenFiles,
    /// The most files that may be open.
    ProcessMostFiles,
    /// Start of the process, in seconds since 1970.
    ProcessStart,
}

/// Number of readings.
const READINGS: usize = Reading::ProcessStart as usize + 1;

impl Reading {
    /// All of them.
    pub const ALL: [Self; READINGS] = [
        Self::InflightRequests,
        Self::HeldForReviews,
        Self::HeldForAnswers,
        Self::HeldForQueues,
        Self::HeldForVerdicts,
        Self::MemoryLimit,
        Self::OpenConnections,
        Self::HookConnections,
        Self::HookConnectionsLimit,
        Self::ConfigAge,
        Self::ConfigGeneration,
        Self::ConfigRejected,
        Self::DocumentsHeldBack,
        Self::DocumentsLeftOut,
        Self::ConfigFromLastGood,
        Self::LastGoodUnwritten,
        Self::AuditLost,
        Self::Namespaces,
        Self::NamespacesAge,
        Self::EndpointsAge,
        Self::BreakGlassOpen,
        Self::Hooks,
        Self::HooksActive,
        Self::HooksUnproven,
        Self::HooksMoving,
        Self::HooksProbing,
        Self::HooksDraining,
        Self::HooksUnasked,
        Self::HooksOverdue,
        Self::RegistrationUncovered,
        Self::StoredUnfinished,
        Self::StoredHolds,
        Self::ProcessCpu,
        Self::ProcessResident,
        Self::ProcessVirtual,
        Self::ProcessOpenFiles,
        Self::ProcessMostFiles,
        Self::ProcessStart,
    ];
}

/// Reads a value; `None` leaves the metric out.
type Read = Box<dyn Fn() -> Option<f64> + Send + Sync>;

/// Source of each value.
pub(super) struct Readings(Mutex<[Option<Read>; READINGS]>);

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
}
