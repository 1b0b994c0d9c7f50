//! Call record: metrics and log line of one call of a hook, once it is known that it counts.

use super::{
    Caller,
    outcome::{Ending, Outcome},
};
use crate::{live::LiveHook, model::Review};

/// Counts a call, and logs it where it has failed.
pub(super) fn record(live: &LiveHook, caller: &Caller, review: &Review, outcome: &Outcome<'_>) {
    live.metrics.record(caller.worker, outcome.label(), outcome.took);
    log(live, &review.uid, &outcome.ending);
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
