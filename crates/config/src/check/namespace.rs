//! Checks a `Namespace`, its name and labels, and the `metadata` of any object.

use std::sync::Arc;

use super::{
    names::{LABEL, is_dns_label},
    selector,
};
use crate::document::{
    node::{Node, Value},
    problem::quoted,
};
use gatepost_api::Labels;

/// Fields of Kubernetes' ObjectMeta. Any other key of `metadata` is a problem.
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

/// Returns the name in an object's metadata. Reports a missing or invalid name.
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

/// Label that every namespace has, with its own name as the value.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Name and labels of a namespace.
pub(crate) type Named = (Arc<str>, Arc<Labels>);

/// Checks a namespace and reports its problems.
pub(crate) fn check(at: &Node<'_>) -> Option<Named> {
    let metadata = at.key("metadata");
    let name = metadata_name(&metadata, is_dns_label, LABEL);
    let labels = metadata.key("labels");
    let written: Vec<_> = if labels.present() { selector::labelled(&labels) } else { Vec::new() };
    let name = name?;
    if written.iter().any(|(key, value)| *key == NAME_LABEL && *value != name) {
        labels.key(NAME_LABEL).problem(
            format!("is not {}", quoted(name)),
            "and this label is always the namespace's own name",
            "remove it; it is implied",
        );
    }
    let labels: Labels = written.into_iter().chain([(NAME_LABEL, name)]).collect();
    Some((name.into(), labels.into()))
}
