//! Checks Kubernetes' own `ValidatingWebhookConfiguration` and `MutatingWebhookConfiguration`.

use std::{collections::HashMap, time::Duration};

use super::{
    client_config,
    configuration::Configuration,
    hook::{self, CheckedHook, DEFAULT_TIMEOUT, DISPATCHES, ENFORCEMENTS, REINVOCATIONS, match_policy, whole_seconds},
    names,
    namespace::metadata_name,
    rules, selector,
};
use crate::{
    ReadFile,
    document::{
        Dialect,
        node::{Node, Value, given},
        problem::quoted,
        unique_names::first_use,
    },
};
use gatepost_api::{
    Canary, Enforcement, FailurePolicy, Hook, HookType, HttpForm, OnProbeFailure, Protocol, Reinvocation, Rollout,
    SideEffects, Transport,
    registration::{MANAGED_BY, is_our_webhook},
};

/// Suffix of the names of static configurations, which are files of the apiserver instead of objects in its store:
/// `docs/reference/webhook-semantics.md` §13. Their hooks are called first, and also for admission configuration.
pub const STATIC: &str = ".static.k8s.io";

/// Annotation, with its value, of a configuration that is not static although its name has the suffix: it comes from
/// the store of an apiserver that does not reserve such names. A `uid`, which only a store assigns, has the same
/// effect.
pub const NOT_STATIC: (&str, &str) = ("gatepost.dev/static", "false");

/// Annotation, with its value, of a configuration of mutating webhooks: each is registered apart, as by `isolate: true`
/// in our own kind.
const ISOLATE: (&str, &str) = ("gatepost.dev/isolate", "true");

/// Annotation of a configuration of mutating webhooks: calling mode of each, as `dispatch` in our own kind.
const DISPATCH: &str = "gatepost.dev/dispatch";

/// Annotation of a configuration: treatment of each webhook that is not called yet and passes no probe in time, as
/// `rollout.onProbeFailure` in our own kind.
const ON_PROBE_FAILURE: &str = "gatepost.dev/on-probe-failure";

/// Annotations whose value must be one of these words.
const ALLOWED_VALUES: [(&str, &[&str]); 3] = [
    (DISPATCH, &[DISPATCHES[0].0, DISPATCHES[1].0]),
    (ON_PROBE_FAILURE, &[hook::ON_PROBE_FAILURE[0].0, hook::ON_PROBE_FAILURE[1].0]),
    (Enforcement::ANNOTATION, &[ENFORCEMENTS[0].0, ENFORCEMENTS[1].0, ENFORCEMENTS[2].0, ENFORCEMENTS[3].0]),
];

/// Returns true if the annotation has a value that is not allowed.
pub fn is_misspelt(annotation: &str, word: Option<&str>) -> bool {
    let known = ALLOWED_VALUES.iter().find(|(known, _)| *known == annotation);
    known.is_some_and(|(_, words)| word.is_none_or(|word| !words.contains(&word)))
}

/// Annotation of a configuration: space-separated names of webhooks that are called before their endpoint has passed a
/// probe, because the apiserver no longer calls them.
pub const CALL_AT_ONCE: &str = "gatepost.dev/call-at-once";

/// Annotation of a configuration: space-separated `name=state` for its webhooks, so that the state in force can be
/// reported.
pub const ENTRY_STATES: &str = "gatepost.dev/entry-states";

/// Checks a configuration and reports its problems.
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
    // As in an apiserver, an absent or null list is a configuration without webhooks. A file that ends with the key was
    // rejected before: it may be incomplete.
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
            hooks.extend(check_webhook(&item, hook_type, read));
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
    let on_probe_failure = on_probe_failure.and_then(|at| at.choice(&hook::ON_PROBE_FAILURE)).unwrap_or_default();
    let enforcement = hook::annotated_enforcement(&metadata).unwrap_or_default();
    let canary = hook::annotated_canary(&metadata, Some(enforcement));
    if canary.is_some() && hooks.len() > 1 {
        annotations.key(Canary::ANNOTATION).problem(
            "only a configuration of one webhook has it",
            "since it names one webhook, which each of these would replace",
            "write a configuration for each webhook",
        );
    }
    for entry in &mut hooks {
        (entry.hook.enforcement, entry.hook.canary) = (enforcement, canary.clone());
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

/// Returns true if this is a registration of Gatepost, by its label or by the names of all its webhooks.
pub(crate) fn is_our_own(at: &Node<'_>) -> bool {
    let labels = at.value.get("metadata").and_then(|metadata| metadata.get("labels"));
    let webhooks = at.key("webhooks");
    let is_ours = |hook: Node<'_>| hook.value.text_of("name").is_some_and(is_our_webhook);
    labels.and_then(|labels| labels.text_of(MANAGED_BY.0)) == Some(MANAGED_BY.1)
        || webhooks.items().count() > 0 && webhooks.items().all(is_ours)
}

/// Reports that our own registration is no configuration. A silent skip would hide a hook that was intended.
pub(crate) fn refuse_our_own(at: &Node<'_>) {
    at.problem(
        "is Gatepost's own registration with an apiserver, and no configuration",
        "so Gatepost would ask itself",
        "keep it out of here and apply it with kubectl; `gatepost check CONFIGURATION --against FILE` compares the two",
    );
}

const KEYS: [&str; 12] = [
    "name",
    "clientConfig",
    "rules",
    "failurePolicy",
    "matchPolicy",
    "namespaceSelector",
    "objectSelector",
    "sideEffects",
    "timeoutSeconds",
    "admissionReviewVersions",
    "matchConditions",
    // Key of mutating webhooks only. It is last, so that the keys of validating webhooks are those before it.
    "reinvocationPolicy",
];

const POLICIES: [(&str, FailurePolicy); 2] = [("Fail", FailurePolicy::Fail), ("Ignore", FailurePolicy::Ignore)];

const SIDE_EFFECTS: [(&str, SideEffects); 2] =
    [("None", SideEffects::None), ("NoneOnDryRun", SideEffects::NoneOnDryRun)];

/// Checks one entry and reports its problems.
pub(crate) fn check_webhook(at: &Node<'_>, hook_type: HookType, read: ReadFile<'_>) -> Option<CheckedHook> {
    let keys = match hook_type {
        HookType::Validating => &KEYS[..KEYS.len() - 1],
        HookType::Mutating => &KEYS[..],
    };
    if !at.is_map_of(keys) {
        return None;
    }
    let before = at.problems();
    let name = name(&at.key("name"));
    let client = client_config::check(&at.key("clientConfig"), Dialect::Kubernetes, read);
    let rules = given(at.key("rules")).map_or(Vec::new(), |list| rules::list(&list, Dialect::Kubernetes));
    let failure_policy = given(at.key("failurePolicy")).map_or(Some(FailurePolicy::Fail), |at| at.choice(&POLICIES));
    let match_policy = match_policy(&at.key("matchPolicy"));
    let namespace_selector = selector::check(&at.key("namespaceSelector"), Dialect::Kubernetes);
    let object_selector = selector::check(&at.key("objectSelector"), Dialect::Kubernetes);
    let side_effects = side_effects(&at.key("sideEffects"));
    let timeout = given(at.key("timeoutSeconds")).map_or(Some(DEFAULT_TIMEOUT), |at| whole_seconds(&at));
    let version = hook::review_versions(&at.key("admissionReviewVersions"));
    let conditions = selector::check_match_conditions(&at.key("matchConditions"));
    // On a validating webhook, the key was reported above as unknown.
    let reinvocation =
        given(at.key("reinvocationPolicy")).map_or(Some(Reinvocation::Never), |at| at.choice(&REINVOCATIONS));
    if at.problems() > before {
        return None;
    }
    let (failure_policy, mut client) = (failure_policy?, client?);
    client.endpoint.transport = Transport::Http;
    let hook = Hook {
        name: name?.into(),
        hook_type,
        id: "".into(),
        rules,
        match_policy: match_policy?,
        sees_admission_config: false,
        endpoint: client.endpoint,
        protocol: Protocol::Http { path: client.path.into(), form: HttpForm::Json(version?) },
        takes_protobuf: false,
        failure_policy,
        enforcement: Enforcement::Deny,
        canary: None,
        timeout: timeout?,
        side_effects: side_effects?,
        reinvocation: reinvocation?,
        dispatch: None,
        after: Box::default(),
        is_transactional: false,
        isolated: false,
        namespace_selector,
        object_selector,
    };
    Some(CheckedHook {
        hook,
        declared_policy: failure_policy,
        rolling_out: false,
        rollout: Rollout::default(),
        conditions,
        state: None,
        place: at.place(),
    })
}

const REFUSED: &str = "which no apiserver accepts";

fn name<'a>(at: &Node<'a>) -> Option<&'a str> {
    const FIX: &str = "write a DNS name of at least three parts: no-latest.policy.example.com";
    let text = if at.required(REFUSED, FIX) { at.text()? } else { return None };
    if text.is_empty() {
        at.problem("is empty", REFUSED, FIX);
    } else if !names::is_dns_subdomain(text) || text.split('.').count() < 3 {
        at.problem(format!("{} is not a name of a webhook", quoted(text)), REFUSED, FIX);
    }
    Some(text)
}

fn side_effects(at: &Node<'_>) -> Option<SideEffects> {
    if at.required("so whether a dry run may reach it is not known", "declare sideEffects: None or NoneOnDryRun") {
        at.choice(&SIDE_EFFECTS)
    } else {
        None
    }
}
