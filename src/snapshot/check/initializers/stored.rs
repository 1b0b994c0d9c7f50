//! `stored: Label`: resources whose objects may be stored before they are initialized.

use crate::{
    initialize::label::{Unfit, unfit},
    model::Initializer,
    snapshot::document::{node::Node, problem::quoted},
};

/// Reports what keeps objects of that resource from being stored unfinished.
pub(super) fn check(at: &Node<'_>, (group, resource): (&str, &str), initializers: &[Initializer]) {
    let place = at.key("stored");
    let what = unfit(group, resource).map(|unfit| match unfit {
        Unfit::NotKept => format!("marks objects that are stored, and those of {} are not", quoted(resource)),
        Unfit::Needed(why) => {
            format!("hides objects until they are initialized, and those of {} must be seen: {why}", quoted(resource))
        }
    });
    if let Some(what) = what {
        return place.problem(what, "remove it: they are initialized in flight");
    }
    if (group, resource) != ("", "pods") {
        return;
    }
    for one in initializers.iter().filter(|one| !one.leaves_spec()) {
        let what =
            format!("stores Pods before {} acts, and the spec of a stored Pod cannot be changed", quoted(&one.name));
        place.problem(
            what,
            "remove it, so that Pods are initialized in flight; or, where it changes labels and annotations alone, say \
             `changes: Metadata` of that initializer",
        );
    }
}
