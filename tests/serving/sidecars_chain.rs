//! A sidecar is itself a hook: one behind another sees the same review and the same namespace labels.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::time::Duration;

use crate::support::{
    gate::{caller, document, gate, hook, revision},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use gatepost::{
    review::{Reasons, decide},
    runtime::{Settings, Sidecar},
};
use gatepost_api::{Rope, TraceContext};
use gatepost_wire::{
    inbound::view,
    pb::{gatepost::v1::NamespaceLabels, k8s::io::api::admission::v1::AdmissionResponse},
};
use prost::Message;

#[tokio::test(flavor = "multi_thread")]
async fn the_review_its_labels_and_its_notes_pass_through() {
    let noted = AdmissionResponse {
        allowed: Some(true),
        warnings: vec!["mind the gap".into()],
        audit_annotations: [("checked".to_owned(), "yes".to_owned())].into(),
        ..Default::default()
    };
    let leaf = ScriptedHook::start(Script::Respond(noted)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("inner.yaml");
    let only_prod = "namespaceSelector: {matchLabels: {environment: prod}}";
    std::fs::write(&path, document(&[hook("leaf.example.com", &leaf.url(), only_prod)])).expect("written");
    let inner = Sidecar::start(Settings::local(path)).expect("starts");

    let url = format!("grpc://{}", inner.addresses.tcp);
    let outer = gate(&document(&[hook("inner.example.com", &url, "")]), Reasons::First);
    let whole = message(create_pod("u-1", 100 << 10));
    let review = view(Rope::new([whole.clone()])).expect("a review");
    let labels = NamespaceLabels { labels: [("environment".to_owned(), "prod".to_owned())].into() };
    let mut caller = caller(Duration::from_secs(10));
    caller.namespace_labels_text = Some(STANDARD_NO_PAD.encode(labels.encode_to_vec()).into());

    let trace = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("baggage", "tenant=a")];
    let lines = |name| trace.iter().filter(move |(of, _)| *of == name).map(|(_, value)| value.as_bytes());
    caller.forwarded.trace = TraceContext::new(lines);

    let verdict = decide(&outer, &review, &caller).await;
    assert!(verdict.allowed(), "{:?}", verdict.refusal);
    assert_eq!(verdict.warnings, ["mind the gap"]);
    assert_eq!(
        verdict.audit_annotations,
        [
            ("inner.example.com/gatepost.dev.revision".to_owned(), inner.current.load().revision.to_string()),
            ("inner.example.com/leaf.example.com.checked".to_owned(), "yes".to_owned()),
            revision(),
        ]
    );
    let seen = leaf.seen().pop().expect("asked");
    assert!(seen.body == whole, "the same bytes, two hops on");
    for (name, value) in trace {
        assert_eq!(seen.headers.get(name).map(|value| value.as_bytes()), Some(value.as_bytes()), "{name}");
    }
    assert_eq!(seen.headers.get("tracestate"), None);
    tokio::task::spawn_blocking(move || inner.stop()).await.expect("stops");
}
