//! `stored: Label`: resources whose objects may be stored before they are initialized.

use crate::{
    model::Initializer,
    model::initialization::{Unfit, unfit},
    snapshot::document::{node::Node, problem::quoted},
};

/// Reports what keeps objects of that resource from being stored unfinished.
pub(super) fn check(at: &Node<'_>, (group, resource): (&str, &str), initializers: &[Initializer]) {
    let place = at.key("stored");
    let these = quoted(resource);
    let unfit = unfit(group, resource).map(|unfit| match unfit {
        Unfit::NotStored => ("marks objects that are stored", format!("and those of {these} are not")),
        Unfit::Needed(why) => {
            ("hides objects until they are initialized", format!("and those of {these} must be seen: {why}"))
        }
    });
    if let Some((what, why)) = unfit {
        return place.problem(what, why, "remove it: they are initialized in flight");
    }
    if (group, resource) != ("", "pods") {
        return;
    }
    for one in initializers.iter().filter(|one| !one.leaves_spec()) {
        place.problem(
            format!("stores Pods before {} acts", quoted(&one.name)),
            "and the spec of a stored Pod cannot be changed",
            "remove it, so that Pods are initialized in flight; or, where it changes labels and annotations alone, say \
             `changes: Metadata` of that initializer",
        );
    }
}
