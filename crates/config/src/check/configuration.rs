//! Configuration: one document with hooks, and the check of an `AdmissionControlConfiguration`.

use std::sync::Arc;

use super::{
    bypass,
    hook::{self, CheckedHook},
    initializers,
    names::{self, Identities},
    namespace::metadata_name,
};
use crate::{
    Origin, ReadFile,
    document::{
        node::{Node, Value},
        unique_names::{UniqueNames, first_use},
    },
};
use gatepost_api::{Bypass, Hook, Initializer, ResourceInitializers};

/// Keys of the document. A cluster's `status` is accepted, but is not part of the configuration.
pub(crate) const KEYS: [&str; 7] =
    ["apiVersion", "kind", "metadata", "resourceInitializers", "externalAdmissionHooks", "bypass", "status"];

/// Keys of which a document must have at least one, even as an empty list: a document without any was probably cut
/// short.
const LIST_KEYS: [&str; 3] = ["resourceInitializers", "externalAdmissionHooks", "bypass"];

/// One document with hooks. Entries with problems are omitted.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) name: Arc<str>,
    /// Prefix of the name in the hooks' ids; it marks static configurations.
    pub(crate) prefix: &'static str,
    /// Hooks, each with its origin.
    pub(crate) hooks: Vec<(Arc<Hook>, Arc<Origin>)>,
    pub(crate) initializers: Vec<ResourceInitializers>,
    /// Files and paths of the initializers, in the same order as `initializers`.
    pub(crate) initializer_places: Vec<Vec<(String, String)>>,
    /// Bypasses, each with its file and the path of its `hooks`.
    pub(crate) bypasses: Vec<(Arc<Bypass>, (String, String))>,
}

impl Configuration {
    /// Returns a configuration with these hooks, each of which gets its id.
    pub(crate) fn of(name: &str, prefix: &'static str, entries: Vec<CheckedHook>) -> Self {
        let (name, mut identities) = (Arc::<str>::from(name), Identities::default());
        let placed = |entry: CheckedHook| {
            let CheckedHook { mut hook, declared_policy, rolling_out, rollout, conditions, state, place: (file, path) } =
                entry;
            hook.id = identities.next(prefix, &name, &hook.name);
            let configuration = Arc::clone(&name);
            let origin = Origin { configuration, declared_policy, rolling_out, rollout, conditions, state, file, path };
            (Arc::new(hook), Arc::new(origin))
        };
        let hooks = entries.into_iter().map(placed).collect();
        Self { name, prefix, hooks, initializers: Vec::new(), initializer_places: Vec::new(), bypasses: Vec::new() }
    }
}

/// Checks an `AdmissionControlConfiguration` and reports its problems.
pub(crate) fn check(at: &Node<'_>, read: ReadFile<'_>, used: &mut UniqueNames) -> Option<Configuration> {
    at.is_map_of(&KEYS);
    if !LIST_KEYS.iter().any(|key| at.key(key).is_written()) {
        at.problem(
            "a configuration without any of its lists says nothing",
            "and was probably cut short",
            "to have no hooks, write externalAdmissionHooks: []; otherwise see what has done so",
        );
    }
    let metadata = at.key("metadata");
    let name = metadata_name(&metadata, names::is_dns_subdomain, names::SUBDOMAIN);
    let (mut initializers, mut initializer_places) = (Vec::new(), Vec::new());
    let list = at.key("resourceInitializers");
    if list.present() && list.is_list() {
        for item in list.items() {
            let Some(entry) = initializers::check(&item) else { continue };
            let key = (entry.api_group.clone(), entry.resource.clone());
            first_use(&mut used.resources, key, &item, "the resource", &entry.noun());
            let listed = item.key("initializers");
            let place = |one: &Initializer| {
                let is_it = |item: &Node<'_>| item.value.text_of("name") == Some(&*one.name);
                listed.items().find(is_it).unwrap_or(item).place()
            };
            initializer_places.push(entry.initializers.iter().map(place).collect());
            initializers.push(entry);
        }
    }
    let mut hooks = Vec::new();
    let list = at.key("externalAdmissionHooks");
    used.unclear |= list.is_written() && !matches!(list.value, Value::List(_));
    // A key without a value is a problem: the file is probably incomplete.
    if list.is_written() && list.is_list() {
        for item in list.items() {
            // The name is checked even if the rest of the entry is wrong, so that one run reports both.
            let place = item.key("name");
            match place.value {
                Value::Text(name) => first_use(&mut used.hooks, name.clone(), &place, "the hook", name),
                _ => used.unclear = true,
            }
            hooks.extend(hook::check(&item, read));
        }
    }
    let mut bypasses = Vec::new();
    let list = at.key("bypass");
    if list.present() && list.is_list() {
        for item in list.items() {
            let place = item.key("name");
            if let Value::Text(name) = place.value {
                first_use(&mut used.bypasses, name.clone(), &place, "the bypass", name);
            }
            bypasses.extend(bypass::check(&item).map(|bypass| (Arc::new(bypass), item.key("hooks").place())));
        }
    }
    Some(Configuration { initializers, initializer_places, bypasses, ..Configuration::of(name?, "", hooks) })
}
