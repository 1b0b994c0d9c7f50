//! Check: documents to what they mean, and every problem on the way.

use std::collections::HashMap;

use super::{
    ReadFile, SourceFile,
    at::{At, Report},
    document::File,
    hook::{self, Entry},
    initializers, names,
    problem::{Problem, quoted},
    selector,
    value::Value,
};
use crate::model::{Labels, ResourceInitializers};

/// The API version of what we define.
pub(super) const API_VERSION: &str = "gatepost.dev/v1alpha1";
const KIND: &str = "AdmissionControlConfiguration";

/// The label that every namespace carries without saying so.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// What Kubernetes' ObjectMeta may hold. Only the name and a namespace's labels mean anything here.
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

/// One `AdmissionControlConfiguration`, without a problem.
pub(super) struct Configuration {
    pub(super) name: Box<str>,
    pub(super) hooks: Vec<Entry>,
    pub(super) initializers: Vec<ResourceInitializers>,
}

/// Everything the files say, without a problem.
pub(super) struct Checked {
    /// By name.
    pub(super) configurations: Vec<Configuration>,
    pub(super) namespaces: Vec<(Box<str>, Labels)>,
}

/// Names and where they were first used, by what they name.
#[derive(Default)]
struct Names {
    configurations: HashMap<Box<str>, String>,
    namespaces: HashMap<Box<str>, String>,
    hooks: HashMap<Box<str>, String>,
    resources: HashMap<(Box<str>, Box<str>), String>,
}

/// Reads and checks every file.
pub(super) fn check(files: &[SourceFile], read: ReadFile<'_>) -> Result<Checked, Vec<Problem>> {
    let report = Report::default();
    let mut names = Names::default();
    let mut checked = Checked { configurations: Vec::new(), namespaces: Vec::new() };
    for file in files {
        File::read(file, &report).each(&report, |document| {
            match kind(document) {
                Some(Kind::Configuration) => {
                    checked.configurations.extend(configuration(document, read, &mut names));
                }
                Some(Kind::Namespace) => checked.namespaces.extend(namespace(document, &mut names)),
                None => {}
            };
        });
    }
    checked.configurations.sort_by(|a, b| a.name.cmp(&b.name));
    match report.into_problems() {
        none if none.is_empty() => Ok(checked),
        problems => Err(problems),
    }
}

enum Kind {
    Configuration,
    Namespace,
}

fn kind(at: &At<'_>) -> Option<Kind> {
    const FIX: &str = "write apiVersion: gatepost.dev/v1alpha1 and kind: AdmissionControlConfiguration, \
         or apiVersion: v1 and kind: Namespace";
    if !matches!(at.value, Value::Map(_)) {
        at.problem(format!("the document is {}, not a map", at.value.kind()), FIX);
        return None;
    }
    let (version, kind) = (at.key("apiVersion"), at.key("kind"));
    let both = version.required(FIX) & kind.required(FIX);
    let (version_text, kind_text) = if both { (version.text()?, kind.text()?) } else { return None };
    match (version_text, kind_text) {
        (API_VERSION, KIND) => Some(Kind::Configuration),
        ("v1", "Namespace") => Some(Kind::Namespace),
        (_, KIND) => {
            version.problem(
                format!("{} is not a version of {KIND}", quoted(version_text)),
                format!("write {API_VERSION}"),
            );
            None
        }
        (API_VERSION, _) => {
            kind.problem(format!("{} is not a kind of {API_VERSION}", quoted(kind_text)), format!("write {KIND}"));
            None
        }
        _ => {
            at.problem(format!("{} of {} is not read here", quoted(kind_text), quoted(version_text)), FIX);
            None
        }
    }
}

fn configuration(at: &At<'_>, read: ReadFile<'_>, names: &mut Names) -> Option<Configuration> {
    at.is_map_of(&["apiVersion", "kind", "metadata", "resourceInitializers", "externalAdmissionHooks"]);
    let metadata = at.key("metadata");
    let place = metadata.key("name");
    let name = metadata_name(&metadata, names::is_dns_subdomain, names::SUBDOMAIN);
    if let Some(name) = name {
        first_use(&mut names.configurations, name.into(), &place, "the configuration", name);
    }
    let mut initializers = Vec::new();
    let list = at.key("resourceInitializers");
    if list.present() && list.is_list() {
        for item in list.items() {
            let Some(entry) = initializers::check(&item) else { continue };
            let key = (entry.api_group.clone(), entry.resource.clone());
            let shown = if key.0.is_empty() { key.1.to_string() } else { format!("{}.{}", key.1, key.0) };
            first_use(&mut names.resources, key, &item, "the resource", &shown);
            initializers.push(entry);
        }
    }
    let mut hooks = Vec::new();
    let list = at.key("externalAdmissionHooks");
    if list.present() && list.is_list() {
        for item in list.items() {
            // The name is compared even where the rest of the entry is wrong, so that one run reports both.
            let place = item.key("name");
            if let Value::Text(name) = place.value {
                first_use(&mut names.hooks, name.clone(), &place, "the hook", name);
            }
            hooks.extend(hook::check(&item, read));
        }
    }
    Some(Configuration { name: name?.into(), hooks, initializers })
}

/// The name in an object's metadata, which must be there.
fn metadata_name<'a>(metadata: &'a At<'_>, good: fn(&str) -> bool, fix: &str) -> Option<&'a str> {
    if metadata.present() && !metadata.is_map_of(&METADATA) {
        return None;
    }
    let Value::Text(name) = metadata.value.get("name").unwrap_or(&Value::Null) else {
        let place = metadata.key("name");
        if place.required("every object has a name: metadata: {name: ...}") {
            place.wrong_type("a text");
        }
        return None;
    };
    if !good(name) {
        metadata.key("name").problem(format!("{} is not a name", quoted(name)), fix);
        return None;
    }
    Some(name)
}

/// Reports a name that was used before.
fn first_use<K: std::hash::Hash + Eq>(seen: &mut HashMap<K, String>, key: K, place: &At<'_>, what: &str, shown: &str) {
    match seen.get(&key) {
        Some(first) => place
            .problem(format!("{what} {} is already defined at {first}", quoted(shown)), "rename one, or remove one"),
        None => _ = seen.insert(key, place.place_name()),
    }
}

/// A Namespace: its name and labels; the rest is not looked at.
fn namespace(at: &At<'_>, names: &mut Names) -> Option<(Box<str>, Labels)> {
    let metadata = at.key("metadata");
    let name = metadata_name(&metadata, names::is_dns_label, names::LABEL);
    let labels = metadata.key("labels");
    let written: Vec<_> = if labels.present() { selector::labelled(&labels) } else { Vec::new() };
    let name = name?;
    first_use(&mut names.namespaces, name.into(), &metadata.key("name"), "the namespace", name);
    if written.iter().any(|(key, value)| *key == NAME_LABEL && *value != name) {
        labels.key(NAME_LABEL).problem(
            format!("is not {}: this label is always the namespace's own name", quoted(name)),
            "remove it; it is implied",
        );
    }
    Some((name.into(), written.into_iter().chain([(NAME_LABEL, name)]).collect()))
}
