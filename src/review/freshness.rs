//! Freshness: may the generation in force decide a request?

use super::{case::Case, status};
use crate::{clock::now, model::StatusInfo, telemetry::RequestOutcome};

/// Rejection before any hook is selected: the configuration is too old, or is another than the one by which another segment
/// of the request may be decided. Neither counts where a bypass opens every hook.
pub(super) fn refusal(case: Case<'_>) -> Option<(StatusInfo, RequestOutcome)> {
    let Case { gate, caller, age, bypass, .. } = case;
    if bypass.opens_everything() {
        return None;
    }
    let trusted = gate.current.trusted_for();
    if age.is_none_or(|age| age >= trusted) {
        let rejected = age.is_none().then(|| gate.status.rejected.get()).flatten();
        return Some((status::stale(age, trusted, rejected.as_deref()), RequestOutcome::Stale));
    }
    let unsettled = caller.segment.is_some_and(|segment| gate.current.segments_are_unsettled(segment, now()));
    unsettled.then(|| (status::segments_moved(), RequestOutcome::Failed))
}
