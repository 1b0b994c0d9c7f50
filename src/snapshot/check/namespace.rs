//! A `Namespace`: its name and labels; the rest is not looked at.

use std::sync::Arc;

use super::{metadata::metadata_name, names, selector};
use crate::{
    model::Labels,
    snapshot::document::{node::Node, problem::quoted},
};

/// The label that every namespace carries without saying so.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A namespace's name and labels.
pub(crate) type Named = (Arc<str>, Arc<Labels>);

/// Checks a namespace; what is wrong is reported.
pub(crate) fn check(at: &Node<'_>) -> Option<Named> {
    let metadata = at.key("metadata");
    let name = metadata_name(&metadata, names::is_dns_label, names::LABEL);
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
