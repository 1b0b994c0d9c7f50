//! Shared parts of the tests of mutating hooks.

use std::time::Duration;

use gatepost::review::{AdmissionDeps, Caller, decide};
use gatepost_api::{Phase, Rope, Verdict};
use gatepost_json_patch::{Document, Patch, PatchLimits};
use gatepost_wire::{inbound::view, pb::k8s::io::api::admission::v1::AdmissionRequest};
use serde_json::{Value, json};

use super::{
    gate::{caller, hook},
    http_hook::{HttpHook, HttpScript, Judge},
    reviews::{message, pod},
};

pub const LONG: Duration = Duration::from_secs(60);

/// A yes with these operations.
pub fn patch(operations: Value) -> Value {
    use base64::Engine as _;
    let patch = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
}

pub fn add_label(key: &str, value: &str) -> Value {
    patch(json!([{"op": "add", "path": format!("/metadata/labels/{key}"), "value": value}]))
}

pub fn labels(request: &Value) -> &Value {
    &request["object"]["metadata"]["labels"]
}

pub async fn judging(judge: impl Fn(&Value) -> Value + Send + Sync + 'static) -> HttpHook {
    HttpHook::plain(HttpScript::Judge(Judge::new(judge))).await
}

/// An entry of a mutating hook, or of a validating one.
pub fn entry(name: &str, hook_type: &str, at: &HttpHook, more: &str) -> String {
    hook(
        &format!("{name}.example.com"),
        &format!("{}/", at.url()),
        &format!("type: {hook_type}\nprotocol: json\n{more}"),
    )
}

pub async fn ask(gate: &AdmissionDeps, phase: Phase, request: AdmissionRequest) -> Verdict {
    let review = view(Rope::new([message(request)])).unwrap();
    decide(gate, &review, &Caller { phase, ..caller(LONG) }).await
}

/// The Pod of [`create_pod`] with the verdict's patch applied.
pub fn patched(verdict: &Verdict) -> Value {
    let object = Document::new(Rope::new([pod(0)])).unwrap();
    let patch = Patch::parse(verdict.patch.clone().unwrap_or_else(|| "[]".into())).unwrap();
    let patched = object.patched(&patch, PatchLimits::default()).unwrap();
    serde_json::from_slice(&patched.rope().to_bytes()).unwrap()
}
