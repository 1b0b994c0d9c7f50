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
    /// Break-glass documents that are open.
    BreakGlassOpen,
    /// Hooks that are configured and not asked.
    HooksUnasked,
    /// Hooks that have passed no probe in time.
    HooksOverdue,
}

/// How many there are.
const READINGS: usize = Reading::HooksOverdue as usize + 1;

/// Reads a value; `None` leaves the metric out.
type Read = Box<dyn Fn() -> Option<f64> + Send + Sync>;

/// Who knows which value.
#[derive(Default)]
pub(super) struct Readings(Mutex<[Option<Read>; READINGS]>);

impl Readings {
    /// Who knows a value; the last one to say so counts.
    pub(super) fn set(&self, reading: Reading, read: impl Fn() -> Option<f64> + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[reading as usize] = Some(Box::new(read));
    }

    /// The value, where somebody knows it.
    pub(super) fn get(&self, reading: Reading) -> Option<f64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[reading as usize].as_ref().and_then(|read| read())
    }
}
