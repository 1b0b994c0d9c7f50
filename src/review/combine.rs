//! Outcomes to the one Verdict. Pure, and independent of the order in which the answers came.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    annotations::Annotations,
    decider::Decider,
    mutate::{Change, HookTurn},
    outcome::{Ending, Outcome},
    status,
    warnings::Warnings,
};
use crate::{
    model::{StatusCause, StatusInfo, Verdict},
    telemetry::DroppedAnnotation,
    wire::answer::JSON_PATCH,
};

/// Prefix of the annotations that name validating hooks which failed open. Upstream: `W/validating/dispatcher.go`.
const FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io";
/// The same of mutating hooks. Upstream: `W/mutating/dispatcher.go`, as the next two.
const MUTATION_FAILED_OPEN: &str = "failed-open.mutation.webhook.admission.k8s.io";
/// Prefix of the annotations that say of each call of a mutating hook whether it changed the object.
const MUTATION: &str = "mutation.webhook.admission.k8s.io";
/// The most bytes of a patch that is put into an annotation.
const LARGEST_PATCH: usize = 256 << 10;
/// Prefix of the annotations with the patches that were applied.
const PATCH: &str = "patch.webhook.admission.k8s.io";
/// Prefix of the annotations that name validating hooks which were not asked because they are still being probed.
const PROBING: &str = "probing.validating.gatepost.dev";
/// The same of mutating hooks.
const MUTATION_PROBING: &str = "probing.mutation.gatepost.dev";

/// The verdict, and what of the answers did not get into it.
#[derive(Debug, Default)]
pub struct Combined {
    /// The one answer to the caller.
    pub verdict: Verdict,
    /// Audit annotations that are left out.
    pub dropped: Vec<Dropped>,
}

/// Audit annotations of one answer that are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Index of the outcome whose answer had them.
    pub outcome: usize,
    /// Reason why they are left out.
    pub cause: DroppedAnnotation,
    /// Number of annotations left out.
    pub count: usize,
}

/// Combines the calls of both phases into the verdict: `turns` of the mutating hooks that counted, in order, and the
/// `outcomes` of the validating ones, in configuration order. `probing` are deciders that would have been asked were
/// they in rotation, mutating and validating ones. `patches`: the patches are put into annotations.
///
/// Any rejection rejects. Where there are several, every reason is given, ordered by name, with the code of the first;
/// upstream would give whichever came first.
pub fn combine(
    turns: &[HookTurn<'_>],
    outcomes: &[Outcome<'_>],
    probing: [&[Decider<'_>]; 2],
    patches: bool,
) -> Combined {
    let mut parts = Parts::default();
    for turn in turns {
        parts.turn(turn, patches);
    }
    for (index, outcome) in outcomes.iter().enumerate() {
        parts.outcome(outcome, FAILED_OPEN, || format!("round_0_index_{index}"));
    }
    for (prefix, probing) in [MUTATION_PROBING, PROBING].into_iter().zip(probing) {
        for (index, Decider { name, .. }) in probing.iter().enumerate() {
            let warning = format!("admission hook \"{name}\" was not called: it has not yet passed its probe");
            parts.warnings.add(warning);
            parts.annotations.add(prefix, &format!("round_0_index_{index}"), name);
        }
    }
    parts.combined()
}

/// A verdict in the making.
#[derive(Default)]
struct Parts<'a> {
    /// Outcomes so far.
    outcomes: usize,
    warnings: Warnings<'a>,
    annotations: Annotations,
    dropped: Vec<Dropped>,
    rejections: Vec<(&'a str, StatusInfo)>,
}

impl<'a> Parts<'a> {
    fn outcome(&mut self, outcome: &'a Outcome<'a>, failed_open: &str, key: impl Fn() -> String) {
        let Self { annotations, dropped, rejections, warnings, .. } = self;
        let index = self.outcomes;
        self.outcomes += 1;
        let Decider { name, chained, .. } = outcome.decider;
        if let Some(answer) = outcome.said() {
            answer.warnings.iter().for_each(|text| warnings.add(&**text));
            let mut drop = |cause, count| dropped.push(Dropped { outcome: index, cause, count });
            // Only a hook that is itself a sidecar names its own hooks in keys; upstream's hooks may not.
            annotations.add_all(name, chained, &answer.audit_annotations, &mut drop);
            if answer.annotations_left_out > 0 {
                drop(DroppedAnnotation::Limit, answer.annotations_left_out);
            }
        }
        match &outcome.ending {
            Ending::Answered(answer) => {
                rejections.extend(answer.denial.as_ref().map(|denial| (name, status::denied(name, denial))));
            }
            Ending::FailedOpen(_) => annotations.add(failed_open, &key(), name),
            Ending::FailedClosed(failure) => rejections.push((name, status::failed(name, failure))),
            Ending::DryRunRefused => rejections.push((name, status::dry_run_refused(name))),
            Ending::Cancelled => {}
        }
    }

    fn turn(&mut self, turn: &'a HookTurn<'a>, patches: bool) {
        let key = || format!("round_{}_index_{}", turn.round, turn.place);
        let Decider { name, .. } = turn.outcome.decider;
        self.outcome(&turn.outcome, MUTATION_FAILED_OPEN, key);
        let configuration = turn.outcome.decider.configuration();
        let mutated = matches!(turn.change, Change::Patched(_));
        self.annotations.add(MUTATION, &key(), &json(&Mutated { configuration, webhook: name, mutated }));
        match &turn.change {
            Change::None => {}
            Change::Refused(refusal) => self.rejections.push((name, (**refusal).clone())),
            Change::Patched(text) | Change::Unchanged(text) if patches && text.len() <= LARGEST_PATCH => {
                // It has been read as JSON.
                if let Ok(patch) = serde_json::from_slice(text) {
                    let patch = PatchAnnotation { configuration, webhook: name, patch, patch_type: JSON_PATCH };
                    self.annotations.add(PATCH, &key(), &json(&patch));
                }
            }
            Change::Patched(_) | Change::Unchanged(_) => {}
        }
    }

    fn combined(self) -> Combined {
        let Self { warnings, annotations, dropped, mut rejections, .. } = self;
        rejections.sort_by_key(|(name, _)| *name);
        let verdict = Verdict {
            refusal: all_reasons(rejections),
            patch: None,
            warnings: warnings.into_vec(),
            audit_annotations: annotations.into_vec(),
        };
        Combined { verdict, dropped }
    }
}

/// The text of an annotation about a call. Fields in upstream's order.
#[derive(Serialize)]
struct Mutated<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

/// The text of an annotation about a patch. Fields in upstream's order.
#[derive(Serialize)]
struct PatchAnnotation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    patch: &'a RawValue,
    #[serde(rename = "patchType")]
    patch_type: &'static str,
}

fn json(text: &impl Serialize) -> String {
    serde_json::to_string(text).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FailurePolicy;

    #[test]
    fn hooks_that_are_being_probed_are_named_by_what_they_do() {
        let decider = |name| Decider { name, id: name, failure_policy: FailurePolicy::Fail, chained: false };
        let Combined { verdict, .. } = combine(&[], &[], [&[decider("m")], &[decider("a"), decider("b")]], false);
        let named: Vec<_> = verdict.audit_annotations.iter().map(|(key, name)| (&**key, &**name)).collect();
        let wanted = [
            ("probing.mutation.gatepost.dev/round_0_index_0", "m"),
            ("probing.validating.gatepost.dev/round_0_index_0", "a"),
            ("probing.validating.gatepost.dev/round_0_index_1", "b"),
        ];
        assert_eq!(named, wanted);
        assert_eq!(verdict.warnings.len(), 3);
    }
}
