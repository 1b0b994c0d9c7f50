//! A validating hook over pods that does not see the containers added to a running one.

use super::{
    finding::Found,
    mend::Mend,
    requests::{POD, Request},
    severity::Severity,
    view::{Seen, View, by_rules},
};
use crate::model::Operation::Update;

/// Any namespace: rules do not look at its name.
const SOMEWHERE: &str = "default";
/// Request that adds a container.
const ADDED: Request = POD.with(Update).sub("ephemeralcontainers");

pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    for (number, seen) in view.hooks.iter().enumerate().filter(|(_, seen)| seen.validates()) {
        let sees = |request| by_rules(seen, request, SOMEWHERE);
        let over_pods = sees(POD) || sees(POD.with(Update));
        if !over_pods || sees(ADDED) {
            continue;
        }
        let mends = vec![(number, Mend::updates([ADDED]))];
        found.push(if by_star(seen) {
            Found {
                rule: "star-without-subresources",
                severity: Severity::Gap,
                what: format!(
                    "hook {:?} sees \"*\", which is every resource and none of their subresources",
                    seen.hook.name,
                ),
                why: "so containers that kubectl debug adds to a running pod (pods/ephemeralcontainers) pass unseen, as do \
                      */scale and pods/exec; \"*/*\" would be everything"
                    .to_owned(),
                fix: None,
                outages: &["kubernetes/kubernetes#113594", "deckhouse/deckhouse#22398"],
                mends,
            }
        } else {
            Found {
                rule: "misses-ephemeral-containers",
                severity: Severity::Gap,
                what: format!(
                    "hook {:?} looks at pods and is not asked about pods/ephemeralcontainers",
                    seen.hook.name,
                ),
                why: "so containers that kubectl debug adds to a running pod pass unseen".to_owned(),
                fix: None,
                outages: &[
                    "CVE-2023-2727",
                    "CVE-2023-2728 (kubernetes/kubernetes#118640)",
                    "deckhouse/deckhouse#22398",
                ],
                mends,
            }
        });
    }
}

/// Does it see pods only because a star does?
fn by_star(seen: &Seen<'_>) -> bool {
    !seen.hook.rules.iter().any(|rule| rule.resources.iter().any(|entry| &**entry == "pods"))
}
