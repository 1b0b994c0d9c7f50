//! `in_flight.json`: whole reviews of Pods that are created, and the initializers that act on them.

use std::collections::BTreeMap;

use gatepost::review::{Caller, Reasons, decide};
use gatepost_api::{Phase, Rope, Verdict};
use gatepost_json_patch::{Document, Patch, PatchLimits};
use gatepost_wire::pb::k8s::io::api::{admission::v1::AdmissionRequest, authentication::v1::UserInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{
    asking::{LONG, on_runtime},
    documents::snapshot,
    reviews,
    run::{Nothing, Outcome, Understood, decoded, equal},
};
use crate::support::gate::{caller, in_force};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    /// An entry's `initializers`, and who may pass them by.
    initializers: Value,
    #[serde(default)]
    may_initialize: Value,
    request: Request,
    /// One for each review; each is of the object as the one before has left it, as an apiserver reinvokes.
    expect: Vec<Expect>,
    /// Difference of 1.13: for people.
    #[serde(default, rename = "upstream")]
    _upstream: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    operation: String,
    user: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    /// 0 where it is allowed.
    code: i32,
    #[serde(default)]
    reason: String,
    /// Whether the object is changed.
    patched: bool,
    labels: BTreeMap<String, String>,
    warnings: usize,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || on_runtime(judge(case))))
}

async fn judge(case: Case) -> Outcome {
    let mut entry = json!({"resource": "pods", "initializers": case.initializers});
    if !case.may_initialize.is_null() {
        entry["mayInitialize"] = case.may_initialize.clone();
    }
    let document = json!({
        "apiVersion": "gatepost.dev/v1alpha1",
        "kind": "AdmissionControlConfiguration",
        "metadata": {"name": "vectors"},
        "resourceInitializers": [entry],
    });
    let gate = in_force(snapshot(&[document])?, &[], Reasons::First);
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "annotations": case.request.annotations, "labels": {}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    });
    for (number, expect) in case.expect.iter().enumerate() {
        let review = reviews::review(request(&case.request, &object, number))?;
        let verdict = decide(&gate, &review, &Caller { phase: Phase::Mutate, ..caller(LONG) }).await;
        let patched = verdict.patch.is_some();
        object = after(&object, &verdict)?;
        let labels = serde_json::from_value(object["metadata"]["labels"].clone()).map_err(|error| error.to_string())?;
        let (code, reason) = verdict
            .refusal
            .as_ref()
            .map_or_else(Default::default, |refusal| (refusal.code, refusal.reason.to_string()));
        let ours = Expect { code, reason, patched, labels, warnings: verdict.warnings.len() };
        equal(&format!("review {number}"), &ours, expect)?;
    }
    Ok(())
}

fn request(asked: &Request, object: &Value, number: usize) -> AdmissionRequest {
    let user = UserInfo { username: reviews::text(&asked.user), groups: asked.groups.clone(), ..UserInfo::default() };
    let pods = ["".to_owned(), "v1".to_owned(), "pods".to_owned()];
    let is_update = asked.operation == "UPDATE";
    AdmissionRequest {
        uid: Some(format!("review-{number}")),
        kind: reviews::kind(&["".to_owned(), "v1".to_owned(), "Pod".to_owned()]),
        resource: reviews::resource(&pods),
        operation: reviews::text(&asked.operation),
        name: reviews::text("web"),
        namespace: reviews::text("shop"),
        user_info: Some(user),
        dry_run: Some(asked.dry_run),
        object: reviews::object(object),
        old_object: if is_update { reviews::object(object) } else { None },
        ..AdmissionRequest::default()
    }
}

fn after(object: &Value, verdict: &Verdict) -> Result<Value, String> {
    let Some(patch) = &verdict.patch else { return Ok(object.clone()) };
    let patch = Patch::parse(patch.clone()).map_err(|error| error.to_string())?;
    let document = Document::new(Rope::new([object.to_string().into()])).map_err(|error| error.to_string())?;
    let patched = document.patched(&patch, PatchLimits::default()).map_err(|error| error.to_string())?;
    let rope = patched.rope();
    serde_json::from_slice(&rope.to_bytes()).map_err(|error| error.to_string())
}
