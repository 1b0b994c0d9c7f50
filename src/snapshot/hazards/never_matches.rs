//! A rule that names what no request has, so that the hook is not asked about what its author means; or initializers of a
//! resource that there is not.

use super::{finding::Found, mend::Mend, severity::Severity, view::View};
use crate::{model::ResourceInitializers, snapshot::check::never_matches::dead};

/// Most entries of one hook that are reported.
const MOST: usize = 8;

pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    let mut former = None;
    for (number, seen) in view.hooks.iter().enumerate() {
        let resource = seen.initializes.map(ResourceInitializers::noun);
        if resource.is_some() && resource == former {
            continue;
        }
        former = resource;
        let rules = (0..).zip(&seen.hook.rules);
        let dead = rules.flat_map(|(rule, it)| dead(it).into_iter().map(move |dead| (rule, dead)));
        found.extend(dead.take(MOST).map(|(rule, dead)| Found {
            rule: "never-matches",
            severity: Severity::Gap,
            what: match seen.initializes {
                None => format!("{seen}, rules[{rule}].{}[{}]: {}", dead.key, dead.entry, dead.what),
                Some(_) => format!("{seen}: {}", dead.what),
            },
            why: dead.why.to_owned(),
            fix: Some(dead.fix),
            outages: &[],
            mends: vec![(number, Mend::default())],
        }));
    }
}
