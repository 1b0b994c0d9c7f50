//! Initializers that have no time left because those before them use it up.

use std::time::Duration;

use super::{
    finding::FindingDraft,
    mend::Mend,
    severity::Severity,
    view::{HookView, View, listed},
};
use gatepost_api::{FailurePolicy, Initializer};

/// Timeout of an apiserver for a webhook whose registration has none.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Reports initializers without time. Only processes take time: a built-in initializer acts whatever time is left.
pub(super) fn turns_too_long(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    let all: Vec<(usize, &HookView<'_>)> =
        view.hooks.iter().enumerate().filter(|(_, seen)| seen.initializes.is_some()).collect();
    for seen in all.chunk_by(|(_, one), (_, other)| one.initializes == other.initializes) {
        let Some(entry) = seen.first().and_then(|(_, seen)| seen.initializes).filter(|entry| !entry.by_label) else {
            continue;
        };
        let turns = entry.initializers.iter().zip(seen).filter(|(one, _)| one.attach.is_some());
        let turns: Vec<(&Initializer, &(usize, &HookView<'_>))> = turns.collect();
        let (mut before, mut sum) = (Vec::new(), Duration::ZERO);
        for together in turns.chunk_by(|(one, _), (other, _)| one.parallel && other.parallel) {
            if sum >= REQUEST_TIMEOUT {
                found.extend(together.first().map(|(one, seen)| without_time(one, seen, &before, sum)));
                break;
            }
            let passed_over = together.iter().filter(|(one, _)| one.failure_policy == FailurePolicy::Ignore);
            sum += passed_over.clone().map(|(one, _)| one.timeout).max().unwrap_or_default();
            before.extend(passed_over.map(|(_, seen)| *seen));
        }
    }
}

fn without_time(
    one: &Initializer,
    (number, seen): &(usize, &HookView<'_>),
    before: &[&(usize, &HookView<'_>)],
    sum: Duration,
) -> FindingDraft {
    let effect = match one.failure_policy {
        FailurePolicy::Ignore => "objects are created without it",
        FailurePolicy::Fail | FailurePolicy::Retry => "new objects are refused",
    };
    let numbers = before.iter().map(|(number, _)| *number).chain([*number]);
    FindingDraft {
        rule: "initializers-without-time",
        severity: Severity::Gap,
        what: format!(
            "{seen} acts behind {}, which may take {} before the object goes on without them",
            listed(before.iter().map(|(_, seen)| format!("{:?}", seen.hook.name))),
            humantime::format_duration(sum),
        ),
        why: format!(
            "so while they hang, too little is left for it of the {} that an apiserver waits where its registration says \
             nothing else, and {effect}",
            humantime::format_duration(REQUEST_TIMEOUT),
        ),
        fix: Some(
            "give those before it timeouts that sum to less, such as 1s each; or say parallel: true where neighbours change \
             parts of their own; or let it act before them, by their `after`"
                .to_owned(),
        ),
        outages: &[],
        mends: numbers.map(|number| (number, Mend::default())).collect(),
    }
}
