//! `dispatch.json`: whole requests over hooks whose backends are played here.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use gatepost::review::decide;
use gatepost_api::{Hook, Rope, SideEffects, Verdict};
use gatepost_json_patch::{Document, Patch, PatchLimits};
use gatepost_wire::pb::k8s::io::api::{admission::v1::AdmissionRequest, authentication::v1::UserInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    asking::{LONG, Namespaces, namespaces, on_runtime},
    backend::{Backend, Played},
    reviews::{self, Three, text},
    run::{Outcome, Understood, decoded, equal},
    webhooks::{Instead, gate, mutating, validating},
};
use crate::support::gate::caller;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    request: Request,
    backends: BTreeMap<String, Backend>,
    rules: BTreeMap<String, Vec<Value>>,
    configuration_name: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    operation: String,
    namespace: String,
    namespace_labels: BTreeMap<String, String>,
    user: User,
    pod: Object,
    custom_resource: Object,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct User {
    username: String,
    uid: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    kind: Three,
    resource: Three,
    name: String,
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    phase: Phase,
    hooks: Vec<Entry>,
    /// Is the request about the custom resource, or about the pod?
    custom_resource: bool,
    dry_run: bool,
    #[serde(default)]
    extra_labels: BTreeMap<String, String>,
    #[serde(default, rename = "client_panics")]
    _client_panics: bool,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Phase {
    Validating,
    Mutating,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    /// Missing or null where there is no client that could call one.
    backend: Option<String>,
    client_config: ClientConfig,
    rules: String,
    namespace_selector: Value,
    object_selector: Value,
    failure_policy: Option<String>,
    side_effects: Option<Effects>,
    admission_review_versions: Vec<String>,
    /// Of mutating hooks.
    reinvocation_policy: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ClientConfig {
    Service,
    Url,
    /// Neither: no client can be made, and every call fails.
    None,
}

#[derive(Clone, Copy, Deserialize)]
enum Effects {
    None,
    NoneOnDryRun,
    Some,
    Unknown,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    allowed: bool,
    code: Option<i32>,
    error_contains: Option<String>,
    /// Words of Go's own that nobody can be held to.
    #[serde(rename = "upstream_error_text")]
    _upstream_error_text: Option<String>,
    annotations: BTreeMap<String, String>,
    #[serde(rename = "annotation_note")]
    _annotation_note: Option<String>,
    labels_after: Option<BTreeMap<String, String>>,
    marked_for_reinvocation: Option<BTreeMap<String, bool>>,
    rejection_metric: Option<Rejection>,
}

/// One sample of upstream's count of rejections, by its labels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rejection {
    name: String,
    error_type: ErrorType,
    /// Ours have no operation, no code and one type.
    #[serde(rename = "operation")]
    _operation: String,
    #[serde(rename = "rejection_code")]
    _rejection_code: String,
    #[serde(rename = "type")]
    _type: String,
}

#[derive(Deserialize)]
enum ErrorType {
    #[serde(rename = "calling_webhook_error")]
    Calling,
    #[serde(rename = "apiserver_internal_error")]
    Internal,
    /// A denial.
    #[serde(rename = "no_error")]
    None,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (shared, case): (Shared, Case) = (decoded(shared)?, decoded(case)?);
    for entry in &case.hooks {
        match &entry.backend {
            None if matches!(entry.client_config, ClientConfig::None) => {}
            Some(name) if shared.backends.contains_key(name) => {}
            other => return Err(format!("not understood: no backend {other:?}")),
        }
        if !shared.rules.contains_key(&entry.rules) {
            return Err(format!("not understood: no rules {}", entry.rules));
        }
    }
    match case.phase {
        Phase::Validating | Phase::Mutating => Ok(Box::new(|| on_runtime(judge(shared, case)))),
    }
}

async fn judge(shared: Shared, case: Case) -> Outcome {
    let (mut webhooks, mut instead, mut played) = (Vec::new(), Vec::new(), Vec::new());
    for (index, entry) in case.hooks.iter().enumerate() {
        let backend = match (entry.client_config, &entry.backend) {
            (ClientConfig::None, _) | (_, None) => Played::Nowhere,
            (ClientConfig::Service | ClientConfig::Url, Some(name)) => {
                Played::start(&shared.backends[name], &entry.admission_review_versions).await?
            }
        };
        webhooks.push(webhook(index, entry, &shared.rules[&entry.rules], &case.phase));
        let entry = entry.clone();
        instead.push(Instead { endpoint: backend.endpoint(), change: Box::new(move |hook| as_said(&entry, hook)) });
        played.push(backend);
    }
    let Request { namespace, namespace_labels, .. } = &shared.request;
    let known = Namespaces::from([(namespace.clone(), namespace_labels.clone())]);
    let compiled = match case.phase {
        Phase::Validating => validating,
        Phase::Mutating => mutating,
    };
    let snapshot = compiled(&shared.configuration_name, json!(webhooks), namespaces(&known).collect())?;
    let gate = gate(snapshot, instead);
    let asked = request(&shared.request, &case);
    let object = asked.object.as_ref().and_then(|object| object.raw.clone()).unwrap_or_default();
    let review = reviews::review(asked)?;
    let verdict = decide(&gate, &review, &caller(LONG)).await;
    judge_verdict(&verdict, &case, object)?;
    match &case.expect.rejection_metric {
        Some(rejection) => judge_metric(&gate.metrics.render().map_err(|error| error.to_string())?, rejection),
        None => Ok(()),
    }
}

fn judge_verdict(verdict: &Verdict, case: &Case, object: Bytes) -> Outcome {
    let expect = &case.expect;
    equal("allowed", verdict.allowed(), expect.allowed)?;
    equal("code", verdict.refusal.as_ref().map(|refusal| refusal.code), expect.code)?;
    let message = verdict.refusal.as_ref().map_or("", |refusal| &refusal.message);
    if expect.error_contains.as_ref().is_some_and(|part| !message.contains(part.as_str())) {
        return Err(format!("message: ours {message:?}, upstream {:?}", expect.error_contains));
    }
    // The table is of one round; here the hooks that are marked are asked again at once.
    let (again, once): (Vec<_>, Vec<_>) = verdict
        .audit_annotations
        .iter()
        .filter(|(key, _)| key != gatepost_api::verdict::REVISION_ANNOTATION)
        .partition(|(key, _)| key.contains("/round_1_index_"));
    // Patches are written as the hook wrote them.
    let plain = |text: &String| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    let ours: BTreeMap<_, Value> = once.into_iter().map(|(key, text)| (key.clone(), plain(text))).collect();
    let wanted = expect.annotations.iter().map(|(key, text)| (key.clone(), plain(text))).collect();
    equal("annotations", ours, wanted)?;
    if let Some(labels) = &expect.labels_after {
        let object = Rope::new([object]);
        let patch = Patch::parse(verdict.patch.clone().unwrap_or_else(|| "[]".into())).map_err(|e| e.to_string())?;
        let patched = Document::new(object).and_then(|object| object.patched(&patch, PatchLimits::default()));
        let rope = patched.map_err(|error| error.to_string())?.rope().clone();
        let object: Value = serde_json::from_slice(&rope.to_bytes()).map_err(|error| error.to_string())?;
        equal("labels", &object["metadata"]["labels"], &json!(labels))?;
    }
    for (backend, marked) in expect.marked_for_reinvocation.iter().flatten() {
        let place = case
            .hooks
            .iter()
            .position(|entry| entry.backend.as_ref() == Some(backend))
            .ok_or("not understood: backend")?;
        let key = format!("mutation.webhook.admission.k8s.io/round_1_index_{place}");
        equal("asked again", again.iter().any(|(name, _)| **name == key), *marked)?;
    }
    Ok(())
}

fn judge_metric(metrics: &str, rejection: &Rejection) -> Outcome {
    let outcome = match rejection.error_type {
        ErrorType::Calling | ErrorType::Internal => "failed_closed",
        ErrorType::None => "denied",
    };
    let name = &rejection.name;
    let sample = |hook_type: &str| {
        format!("gatepost_hook_calls_total{{hook=\"{name}\",type=\"{hook_type}\",outcome=\"{outcome}\"}} 1")
    };
    let wanted = ["validating", "mutating"].map(sample);
    match metrics.lines().any(|line| wanted.iter().any(|sample| line == sample)) {
        true => Ok(()),
        false => Err(format!("metrics: no {}", wanted.join(" or "))),
    }
}

/// The entry as a configuration can say it; [`as_said`] puts right what none can.
fn webhook(index: usize, entry: &Entry, rules: &[Value], phase: &Phase) -> Value {
    // A rule with an empty list sees nothing, and no configuration can hold one.
    let rules: Vec<&Value> = rules.iter().filter(|rule| !sees_nothing(rule)).collect();
    let client_config = match entry.client_config {
        // No configuration can leave it out; that there is no client is played.
        ClientConfig::Url | ClientConfig::None => {
            json!({"url": format!("https://127.0.0.1/{}", entry.backend.as_deref().unwrap_or("none"))})
        }
        ClientConfig::Service => {
            json!({"service": {"namespace": "default", "name": "webhook-test", "path": "/hook"}})
        }
    };
    let mut webhook = json!({
        "name": format!("hook-{index}.vectors.example"),
        "clientConfig": client_config,
        "rules": rules,
        "failurePolicy": entry.failure_policy,
        "matchPolicy": "Exact",
        "namespaceSelector": entry.namespace_selector,
        "objectSelector": entry.object_selector,
        "sideEffects": "None",
        "admissionReviewVersions": entry.admission_review_versions,
    });
    if matches!(phase, Phase::Mutating) {
        webhook["reinvocationPolicy"] = json!(entry.reinvocation_policy);
    }
    webhook
}

/// Names that are no names, paths in capitals, and side effects of every class: in upstream's tests nothing checks
/// them.
fn as_said(entry: &Entry, hook: &mut Hook) {
    hook.name = Arc::from(&*entry.name);
    hook.side_effects = match entry.side_effects {
        None => SideEffects::Undeclared,
        Some(Effects::None) => SideEffects::None,
        Some(Effects::NoneOnDryRun) => SideEffects::NoneOnDryRun,
        Some(Effects::Some) => SideEffects::Some,
        Some(Effects::Unknown) => SideEffects::Unknown,
    };
}

/// Has the rule an empty list? Then `Rule::matches` says no to everything.
fn sees_nothing(rule: &Value) -> bool {
    let lists = ["operations", "apiGroups", "apiVersions", "resources"];
    lists.iter().any(|key| rule[*key].as_array().is_none_or(Vec::is_empty))
}

fn request(shared: &Request, case: &Case) -> AdmissionRequest {
    let Request { operation, namespace, user, pod, custom_resource, .. } = shared;
    let Object { kind, resource, name, labels } = if case.custom_resource { custom_resource } else { pod };
    let labels: BTreeMap<_, _> = labels.iter().chain(&case.extra_labels).collect();
    let api_version = [&*kind[0], &kind[1]].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    let mut object =
        json!({"apiVersion": api_version, "kind": kind[2], "metadata": {"name": name, "namespace": namespace}});
    let old_object = object.clone();
    object["metadata"]["labels"] = json!(labels);
    AdmissionRequest {
        kind: reviews::kind(kind),
        resource: reviews::resource(resource),
        request_kind: reviews::kind(kind),
        request_resource: reviews::resource(resource),
        name: text(name),
        namespace: text(namespace),
        operation: text(operation),
        user_info: Some(UserInfo { username: text(&user.username), uid: text(&user.uid), ..Default::default() }),
        object: reviews::object(&object),
        old_object: reviews::object(&old_object),
        options: reviews::object(&json!({"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions"})),
        dry_run: Some(case.dry_run),
        ..Default::default()
    }
}
