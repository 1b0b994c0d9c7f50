//! One entry of `webhooks`, checked exactly as kube-apiserver does on creation, and compiled.
//! Source: `docs/reference/webhook-semantics.md` §5 and §14.

use super::{
    client_config,
    hook::{CheckedHook, DEFAULT_TIMEOUT, REINVOCATIONS, match_policy, whole_seconds},
    match_conditions, names, protocol, rules, selector,
};
use crate::{
    model::{FailurePolicy, Hook, HookType, HttpForm, Protocol, Reinvocation, Rollout, SideEffects, Transport},
    snapshot::{
        ReadFile,
        document::{
            dialect::Dialect,
            node::{Node, given},
            problem::quoted,
        },
    },
};

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
    // Only a mutating webhook's; last, so that the others' list is this one without it.
    "reinvocationPolicy",
];

const POLICIES: [(&str, FailurePolicy); 2] = [("Fail", FailurePolicy::Fail), ("Ignore", FailurePolicy::Ignore)];

const SIDE_EFFECTS: [(&str, SideEffects); 2] =
    [("None", SideEffects::None), ("NoneOnDryRun", SideEffects::NoneOnDryRun)];

/// Checks one entry; what is wrong is reported.
pub(crate) fn check(at: &Node<'_>, hook_type: HookType, read: ReadFile<'_>) -> Option<CheckedHook> {
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
    let version = protocol::review_versions(&at.key("admissionReviewVersions"));
    let conditions = match_conditions::check(&at.key("matchConditions"));
    // Of a validating webhook the key is unknown, and found so above.
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
        failure_policy,
        timeout: timeout?,
        side_effects: side_effects?,
        reinvocation: reinvocation?,
        dispatch: None,
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
