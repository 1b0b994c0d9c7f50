//! Our own mark on a hook that is served from a copy: its apiserver does not call it, and its condition keeps Gatepost from
//! calling it, too.

use super::{finding::Found, mend::Mend, severity::Severity, view::View};
use crate::model::{ServedCondition, registration::SERVED};

pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    for (number, seen) in view.hooks.iter().enumerate() {
        let (name, _) = SERVED;
        let is_ours =
            |condition: &crate::cel::Condition| ServedCondition::of(&condition.name, &condition.expression).is_some();
        if seen.origin.conditions.iter().any(is_ours) {
            found.push(Found {
                rule: "called-by-nobody",
                severity: Severity::Gap,
                what: format!(
                    "hook {:?} has the match condition {name}, by which a Gatepost with --adopt keeps the apiserver from \
                     calling it",
                    seen.hook.name
                ),
                why: "so nobody calls it by this entry".to_owned(),
                fix: Some("remove the condition here, or run gatepost release and copy the entry again".to_owned()),
                outages: &[],
                mends: vec![(number, Mend::default())],
            });
        }
    }
}
