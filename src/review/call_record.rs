//! Call record: metrics and log line of one call of a hook, once it is known that it counts.

use std::time::Duration;

use super::{
    caller::Caller,
    outcome::{Ending, Outcome},
    status,
};
use crate::{
    live::LiveHook,
    model::Review,
    telemetry::{HookOutcome, RejectionCause},
};

/// Counts a call that decides its request, and logs it where it has failed.
pub(super) fn record(live: &LiveHook, caller: &Caller, review: &Review, outcome: &Outcome<'_>) {
    record_in_vain(live, caller, review, outcome);
    if let Some((cause, code)) = rejection(&outcome.ending) {
        live.metrics.rejected(review.operation, cause, code);
    }
}

/// The same of a call that decides nothing: it was ahead of its turn, or its caller has gone.
pub(super) fn record_in_vain(live: &LiveHook, caller: &Caller, review: &Review, outcome: &Outcome<'_>) {
    live.metrics.record(caller.worker, outcome.label(), outcome.took);
    log(live, &review.uid, &outcome.ending);
}

/// Cause and code by which a call that ended so rejects its request, if it does.
fn rejection(ending: &Ending) -> Option<(RejectionCause, i32)> {
    Some(match ending {
        Ending::Answered(answer) => (RejectionCause::Denied, status::denial_code(answer.denial.as_ref()?)),
        Ending::FailedClosed(_) => (RejectionCause::FailedClosed, 500),
        Ending::DryRunRefused => (RejectionCause::FailedClosed, 400),
        Ending::FailedOpen(_) | Ending::Cancelled => return None,
    })
}

/// Count of a call that counts also where its caller goes away while its patch is applied.
pub(super) struct CountedAnyway<'a> {
    live: &'a LiveHook,
    worker: usize,
    outcome: HookOutcome,
    took: Duration,
    is_over: bool,
}

impl<'a> CountedAnyway<'a> {
    /// Counts the call as this outcome, unless [`CountedAnyway::end`] comes first.
    pub(super) fn new(live: &'a LiveHook, caller: &Caller, outcome: &Outcome<'_>) -> Self {
        Self { live, worker: caller.worker, outcome: outcome.label(), took: outcome.took, is_over: false }
    }

    /// The patch is applied or not: [`record`] counts the call as what that has made of it.
    pub(super) fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for CountedAnyway<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.live.metrics.record(self.worker, self.outcome, self.took);
        }
    }
}

/// One line a second for each hook; every failure is in the metrics, the annotations and the audit log.
fn log(live: &LiveHook, uid: &str, ending: &Ending) {
    let (failure, what) = match ending {
        Ending::FailedOpen(failure) => (failure, "failed calling hook, failing open"),
        Ending::FailedClosed(failure) => (failure, "failed calling hook, failing closed"),
        Ending::Answered(_) | Ending::DryRunRefused | Ending::Cancelled => return,
    };
    if let Some(held_back) = live.metrics.may_log_failure() {
        let failure = failure.class();
        tracing::warn!(hook = %live.hook.name, uid, %failure, held_back, "{what}");
    }
}
