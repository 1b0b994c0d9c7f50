//! Checks CustomResourceDefinitions, whose schemas policies merge objects by. Only what is needed for that is read: the
//! apiserver checks the rest.

use std::{collections::HashSet, sync::Arc};

use crate::document::node::{Node, Value};
use gatepost_policy::CustomSchema;

/// Consequence of a missing part.
const NO_SCHEMA: &str = "so which objects have this schema is not known";

const AS_PRINTED: &str = "add the document as kubectl get crd -o yaml prints it";

/// Checks a definition and reports its problems. Returns the schema of each version.
pub(crate) fn check(at: &Node<'_>) -> Vec<Arc<CustomSchema>> {
    let spec = at.key("spec");
    let names = spec.key("names");
    let (group, resource, kind, versions) =
        (spec.key("group"), names.key("plural"), names.key("kind"), spec.key("versions"));
    let parts = [&group, &resource, &kind, &versions];
    if parts.into_iter().filter(|part| !part.required(NO_SCHEMA, AS_PRINTED)).count() > 0 || !versions.is_list() {
        return Vec::new();
    }
    let (Some(group), Some(resource), Some(kind)) = (group.text(), resource.text(), kind.text()) else {
        return Vec::new();
    };
    let metadata = at.key("metadata");
    let name = metadata.key("name");
    if name.text().is_some_and(|name| name != format!("{resource}.{group}")) {
        // As an apiserver has it. Else two definitions could be of one kind.
        let fix = format!("write {resource}.{group}, or add the document as kubectl get crd -o yaml prints it");
        name.problem("is not that of its resource and group", NO_SCHEMA, fix);
    }
    let mut seen = HashSet::new();
    let compiled = versions.items().filter_map(|item| {
        let (name, of) = (item.key("name"), item.key("schema"));
        let of = of.key("openAPIV3Schema");
        let version = if name.required(NO_SCHEMA, AS_PRINTED) { name.text()? } else { return None };
        if !seen.insert(version.to_owned()) {
            name.problem("is that of two versions", NO_SCHEMA, AS_PRINTED);
            return None;
        }
        let schema = (!matches!(of.value, Value::Null)).then(|| of.value.to_json());
        match CustomSchema::compile([group, version, resource, kind], schema.as_ref()) {
            Ok(schema) => Some(Arc::new(schema)),
            Err(why) => {
                of.problem(why, "so no object can be merged by this schema", AS_PRINTED);
                None
            }
        }
    });
    compiled.collect()
}
