//! An object's `metadata`, as it is written or as a live object carries it.

use crate::snapshot::document::{node::Node, problem::quoted, value::Value};

/// Fields of Kubernetes' ObjectMeta. Only the name and a namespace's labels mean anything here.
const METADATA: [&str; 15] = [
    "name",
    "labels",
    "annotations",
    "namespace",
    "generateName",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "selfLink",
];

/// The name in an object's metadata, which must be there.
pub(crate) fn metadata_name<'a>(metadata: &'a Node<'_>, good: fn(&str) -> bool, fix: &str) -> Option<&'a str> {
    if metadata.present() && !metadata.is_map_of(&METADATA) {
        return None;
    }
    let Value::Text(name) = metadata.value.get("name").unwrap_or(&Value::Null) else {
        let place = metadata.key("name");
        if place
            .required("and messages speak of an object by its name", "every object has a name: metadata: {name: ...}")
        {
            place.wrong_type("a text");
        }
        return None;
    };
    if !good(name) {
        metadata.key("name").problem(format!("{} is not a name", quoted(name)), "which no apiserver accepts", fix);
        return None;
    }
    Some(name)
}
