//! Metrics: every name, unit and label in one table.

use std::{sync::Arc, time::Duration};

/// How one hook call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookOutcome {
    /// The hook said yes.
    Allowed,
    /// The hook said no.
    Denied,
    /// A CallFailure that the policy ignored; the label is [`crate::model::CallFailure::kind`].
    FailedOpen(&'static str),
    /// A CallFailure that rejected the request.
    FailedClosed(&'static str),
    /// The request was decided before this hook answered.
    Cancelled,
}

/// How one request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The write may happen.
    Allowed,
    /// A hook said no.
    Denied,
    /// A CallFailure under Fail, or a held error of matching, rejected it.
    Failed,
    /// Refused unasked: stale configuration.
    Stale,
    /// Our fault.
    Internal,
}

/// Counters of one hook, resolved once so that the hot path takes no lock and looks nothing up.
#[derive(Debug, Default)]
pub struct HookMetrics {}

impl HookMetrics {
    /// One call ended.
    pub fn record(&self, _worker: usize, _outcome: HookOutcome, _took: Duration) {}
}

/// All counters.
#[derive(Debug, Default)]
pub struct Metrics {}

impl Metrics {
    /// The counters of the hook of that name, the same ones at every call.
    pub fn hook(&self, _name: &Arc<str>) -> Arc<HookMetrics> {
        Arc::new(HookMetrics {})
    }

    /// One request ended.
    pub fn request(&self, _worker: usize, _outcome: RequestOutcome, _took: Duration) {}

    /// Object bytes that were copied in user space after they were read.
    pub fn copied(&self, _bytes: usize) {}
}
