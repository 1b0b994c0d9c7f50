//! Kubernetes' own `ValidatingWebhookConfiguration` and `MutatingWebhookConfiguration`, unchanged.

use std::{collections::HashMap, time::Duration};

use super::{configuration::Configuration, hook::DISPATCHES, metadata::metadata_name, names, rollout, webhook};
use crate::{
    model::{
        HookType, OnProbeFailure, Rollout,
        registration::{MANAGED_BY, is_our_webhook},
    },
    snapshot::{
        ReadFile,
        document::{
            node::{Node, given},
            unique_names::first_use,
            value::Value,
        },
    },
};

/// Suffix of a configuration's name that stands beside the apiserver and not in its store:
/// `docs/reference/webhook-semantics.md` §13. Such ones are asked first, and also about the configuration of admission.
pub const STATIC: &str = ".static.k8s.io";
/// Annotation, and its value, of a configuration that is not static, whatever its name ends with: it comes from an
/// apiserver's store, which takes such names where it knows of no static ones. As good is a `uid`, which only a store
/// gives.
pub const NOT_STATIC: (&str, &str) = ("gatepost.dev/static", "false");

/// Annotation, and its value, of a configuration of mutating webhooks each of which is registered apart, as our own
/// kind says by `isolate: true`.
const ISOLATE: (&str, &str) = ("gatepost.dev/isolate", "true");

/// Annotation of a configuration of mutating webhooks: calling mode of each, as our own kind says by `dispatch`.
const DISPATCH: &str = "gatepost.dev/dispatch";

/// Annotation of a configuration: treatment of each of its webhooks that is not called yet and passes no probe in time, as
/// our own kind says by `rollout.onProbeFailure`.
const ON_PROBE_FAILURE: &str = "gatepost.dev/on-probe-failure";

/// Annotations of which another word than these is a problem.
const WORDS: [(&str, [&str; 2]); 2] = [
    (DISPATCH, [DISPATCHES[0].0, DISPATCHES[1].0]),
    (ON_PROBE_FAILURE, [rollout::ON_PROBE_FAILURE[0].0, rollout::ON_PROBE_FAILURE[1].0]),
];

/// Has this annotation a word that it cannot have?
pub fn is_misspelt(annotation: &str, word: Option<&str>) -> bool {
    let known = WORDS.iter().find(|(known, _)| *known == annotation);
    known.is_some_and(|(_, words)| word.is_none_or(|word| !words.contains(&word)))
}

/// Annotation of a configuration: names of its webhooks, by spaces, that are called before their endpoint has passed a
/// probe, because the apiserver does not call them any more.
pub const CALL_AT_ONCE: &str = "gatepost.dev/call-at-once";

/// Annotation of a configuration: names of its webhooks, by spaces, each with `=` and a word for the state that its entry is
/// in, for whoever wants to know which state is in force.
pub const ENTRY_STATES: &str = "gatepost.dev/entry-states";

/// Checks a configuration; what is wrong is reported.
pub(crate) fn check(at: &Node<'_>, hook_type: HookType, read: ReadFile<'_>) -> Option<Configuration> {
    at.is_map_of(&["apiVersion", "kind", "metadata", "webhooks"]);
    let metadata = at.key("metadata");
    let name = metadata_name(&metadata, names::is_dns_subdomain, names::SUBDOMAIN);
    let annotated = |(key, value): (&str, &str)| {
        metadata.value.get("annotations").and_then(|annotations| annotations.text_of(key)) == Some(value)
    };
    let stored = annotated(NOT_STATIC) || metadata.value.text_of("uid").is_some();
    let is_static = name.is_some_and(|name| name.ends_with(STATIC)) && !stored;
    let mut hooks = Vec::new();
    let mut names = HashMap::new();
    let list = at.key("webhooks");
    // Without the key, or with null, an apiserver stores one without webhooks. A file that ends with the key may be still
    // being written, and is refused before.
    if list.present() && list.is_list() {
        for item in list.items() {
            let place = item.key("name");
            if let Value::Text(name) = place.value
                && !name.is_empty()
            {
                first_use(&mut names, name.clone(), &place, "the webhook", name);
            }
            let (client, service) = (item.key("clientConfig"), "service");
            if is_static && client.key(service).present() {
                client.key(service).problem(
                    format!("a configuration whose name ends with {STATIC} names no service"),
                    "since a static webhook must be reachable before the cluster's network is",
                    "write the url",
                );
            }
            hooks.extend(webhook::check(&item, hook_type, read));
        }
    }
    let at_once = metadata.value.get("annotations").and_then(|annotations| annotations.text_of(CALL_AT_ONCE));
    let states = metadata.value.get("annotations").and_then(|annotations| annotations.text_of(ENTRY_STATES));
    let states = states.unwrap_or_default().split(' ').filter_map(|state| state.split_once('='));
    let states: HashMap<&str, &str> = states.collect();
    let annotations = metadata.key("annotations");
    let dispatch = given(annotations.key(DISPATCH)).filter(|_| hook_type == HookType::Mutating);
    let dispatch = dispatch.and_then(|at| at.choice(&DISPATCHES));
    let on_probe_failure = given(annotations.key(ON_PROBE_FAILURE));
    let on_probe_failure = on_probe_failure.and_then(|at| at.choice(&rollout::ON_PROBE_FAILURE)).unwrap_or_default();
    for entry in &mut hooks {
        entry.rollout.on_probe_failure = on_probe_failure;
        entry.state = states.get(&*entry.hook.name).map(|state| Box::from(*state));
        if at_once.is_some_and(|names| names.split(' ').any(|name| *name == *entry.hook.name)) {
            entry.rollout = Rollout { probe_within: Duration::ZERO, on_probe_failure: OnProbeFailure::Enforce };
        }
        entry.hook.sees_admission_config = is_static;
        entry.hook.dispatch = dispatch;
        entry.hook.isolated = hook_type == HookType::Mutating && annotated(ISOLATE);
    }
    let prefix = if is_static { "manifest/" } else { "" };
    Some(Configuration::of(name?, prefix, hooks))
}

/// Is it a registration of Gatepost? By its label, or by the names of all its webhooks.
pub(crate) fn is_our_own(at: &Node<'_>) -> bool {
    let labels = at.value.get("metadata").and_then(|metadata| metadata.get("labels"));
    let webhooks = at.key("webhooks");
    let is_ours = |hook: Node<'_>| hook.value.text_of("name").is_some_and(is_our_webhook);
    labels.and_then(|labels| labels.text_of(MANAGED_BY.0)) == Some(MANAGED_BY.1)
        || webhooks.items().count() > 0 && webhooks.items().all(is_ours)
}

/// Reports that our own registration is no configuration. Left out in silence, it might have been meant as a hook.
pub(crate) fn refuse_our_own(at: &Node<'_>) {
    at.problem(
        "is Gatepost's own registration with an apiserver, and no configuration",
        "so Gatepost would ask itself",
        "keep it out of here and apply it with kubectl; `gatepost check CONFIGURATION --against FILE` compares the two",
    );
}
