//! Outcomes to the one Verdict. Pure but for counters, and independent of the order in which the answers came.

use super::{
    annotations::Annotations,
    outcome::{Ending, Outcome},
    status,
    warnings::Warnings,
};
use crate::{
    live::LiveHook,
    model::{Protocol, StatusCause, StatusInfo, Verdict},
    telemetry::DroppedAnnotation,
};

/// Prefix of the annotations that name hooks which failed open. Upstream: `W/validating/dispatcher.go`.
const FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io";
/// Prefix of the annotations that name hooks which were not asked because they are still being probed.
const PROBING: &str = "probing.validating.gatepost.dev";

/// Combines what became of the selected hooks (in configuration order) into the verdict. `probing` are hooks that would
/// have been selected were they in rotation.
///
/// Any rejection rejects. Where there are several, every reason is given, ordered by hook name, with the code of the
/// first; upstream would give whichever came first.
pub fn combine(outcomes: &[Outcome<'_>], probing: &[&LiveHook]) -> Verdict {
    let mut warnings = Warnings::default();
    let mut annotations = Annotations::default();
    let mut rejections: Vec<(&str, StatusInfo)> = Vec::new();
    for (index, outcome) in outcomes.iter().enumerate() {
        let name = &*outcome.live.hook.name;
        match &outcome.ending {
            Ending::Answered(answer) => {
                answer.warnings.iter().for_each(|text| warnings.add(&**text));
                // Only a hook that is itself a sidecar names its own hooks in keys; upstream's hooks may not.
                let chained = *outcome.live.target.protocol() == Protocol::Grpc;
                annotations.add_all(name, chained, &answer.audit_annotations, |cause, count| {
                    tell_dropped(outcome.live, cause, count);
                });
                if answer.annotations_left_out > 0 {
                    tell_dropped(outcome.live, DroppedAnnotation::Limit, answer.annotations_left_out);
                }
                rejections.extend(answer.denial.as_ref().map(|denial| (name, status::denied(name, denial))));
            }
            Ending::FailedOpen(_) => annotations.add(FAILED_OPEN, &format!("round_0_index_{index}"), name),
            Ending::FailedClosed(failure) => rejections.push((name, status::failed(name, failure))),
            Ending::DryRunRefused => rejections.push((name, status::dry_run_refused(name))),
            Ending::Cancelled => {}
        }
    }
    for (index, live) in probing.iter().enumerate() {
        let name = &*live.hook.name;
        warnings.add(format!("admission hook \"{name}\" was not asked: it has not yet passed its probe"));
        annotations.add(PROBING, &format!("round_0_index_{index}"), name);
    }
    rejections.sort_by_key(|(name, _)| *name);
    Verdict {
        refusal: all_reasons(rejections),
        warnings: warnings.into_vec(),
        audit_annotations: annotations.into_vec(),
    }
}

/// Every annotation that is left out is counted, and one line a second is logged for each hook.
fn tell_dropped(live: &LiveHook, cause: DroppedAnnotation, count: usize) {
    live.metrics.annotations_dropped(cause, count as u64);
    if let Some(held_back) = live.metrics.may_tell_dropped() {
        let cause = cause.as_str();
        tracing::warn!(hook = %live.hook.name, cause, count, held_back, "dropped audit annotations of an answer");
    }
}

fn all_reasons(mut rejections: Vec<(&str, StatusInfo)>) -> Option<StatusInfo> {
    if rejections.len() < 2 {
        return rejections.pop().map(|(_, only)| only);
    }
    let messages: Vec<&str> = rejections.iter().map(|(_, status)| &*status.message).collect();
    let message = messages.join("; ");
    let causes = rejections
        .iter()
        .map(|(name, status)| StatusCause {
            reason: status.reason.clone(),
            message: status.message.clone(),
            field: (*name).to_owned(),
        })
        .collect();
    let (_, first) = rejections.swap_remove(0);
    Some(StatusInfo { message, causes, ..first })
}
