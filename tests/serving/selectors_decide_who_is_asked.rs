//! Namespace and object selectors: the labels that count, and the cost of an error in deciding. Source:
//! `docs/reference/webhook-semantics.md` §4.3, §4.4.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::time::Duration;

use crate::support;
use crate::support::{
    gate::{caller, document, gate, hook},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use bytes::Bytes;
use gatepost::review::{AdmissionDeps, Reasons, decide};
use gatepost_api::{Labels, Rope, Verdict};
use gatepost_wire::{
    inbound::view,
    pb::k8s::io::{
        api::admission::v1::AdmissionRequest,
        apimachinery::pkg::{apis::meta::v1::GroupVersionResource, runtime::RawExtension},
    },
};

const NAMESPACES: &str =
    "\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {environment: prod}}\n";

async fn ask(gate: &AdmissionDeps, request: AdmissionRequest, namespace_labels: Option<Labels>) -> Verdict {
    let review = view(Rope::new([message(request)])).expect("a review");
    let caller = gatepost::review::Caller { namespace_labels, ..caller(Duration::from_secs(5)) };
    decide(gate, &review, &caller).await
}

fn labels(key: &str, value: &str) -> Option<Labels> {
    Some([(key, value)].into_iter().collect())
}

fn object(json: &'static str) -> Option<RawExtension> {
    Some(RawExtension { raw: Some(Bytes::from_static(json.as_bytes())) })
}

fn namespace_request(operation: &str, own: &'static str) -> AdmissionRequest {
    let text = |text: &str| Some(text.to_owned());
    let resource = GroupVersionResource { group: text(""), version: text("v1"), resource: text("namespaces") };
    AdmissionRequest {
        operation: text(operation),
        resource: Some(resource),
        object: object(own),
        name: text("shop"),
        ..create_pod("u", 0)
    }
}

#[tokio::test]
async fn labels_come_from_the_object_the_caller_or_the_configuration() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let only_prod = "namespaceSelector: {matchExpressions: [{key: environment, operator: In, values: [prod]}]}";
    let gate = gate(&(document(&[hook("h.example.com", &no.url(), only_prod)]) + NAMESPACES), Reasons::First);
    let elsewhere = AdmissionRequest { namespace: Some("attic".into()), ..create_pod("u", 0) };
    let text = |text: &str| Some(text.to_owned());
    let nodes = GroupVersionResource { group: text(""), version: text("v1"), resource: text("nodes") };
    let cluster = AdmissionRequest { namespace: None, resource: Some(nodes), ..create_pod("u", 0) };
    let staging = r#"{"metadata":{"name":"shop","labels":{"environment":"staging"}}}"#;
    let prod = r#"{"metadata":{"name":"shop","labels":{"environment":"prod"}}}"#;
    for (what, request, sent, asked) in [
        ("configured labels match", create_pod("u", 0), None, true),
        ("the caller's labels win", create_pod("u", 0), labels("environment", "staging"), false),
        ("the caller's labels suffice", elsewhere, labels("environment", "prod"), true),
        ("cluster-scoped objects are never exempt", cluster, None, true),
        ("a new namespace is judged by its own labels", namespace_request("CREATE", staging), None, false),
        ("so is a changed one", namespace_request("UPDATE", prod), None, true),
        ("a deleted one by those known", namespace_request("DELETE", staging), None, true),
    ] {
        let verdict = ask(&gate, request, sent).await;
        assert_eq!(!verdict.allowed(), asked, "{what}: {:?}", verdict.refusal);
    }
}

#[tokio::test]
async fn labels_of_a_large_object_count_like_those_of_a_small_one() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let selector = "objectSelector: {matchExpressions: [{key: skip, operator: DoesNotExist}]}";
    let gate = gate(&document(&[hook("h.example.com", &no.url(), selector)]), Reasons::First);
    let large = |labels: &str| {
        let json = format!(r#"{{"data":"{}","metadata":{{"labels":{labels}}}}}"#, "x".repeat(2 << 20));
        Some(RawExtension { raw: Some(json.into()) })
    };
    for (what, new, old, asked) in [
        ("the new one matches", large("{}"), None, true),
        ("the new one does not", large(r#"{"skip":"yes"}"#), None, false),
        ("the old one does", large(r#"{"skip":"yes"}"#), large("{}"), true),
        ("neither does", large(r#"{"skip":"yes"}"#), large(r#"{"skip":""}"#), false),
    ] {
        let request = AdmissionRequest { object: new, old_object: old, ..create_pod("u", 0) };
        assert_eq!(!ask(&gate, request, None).await.allowed(), asked, "{what}");
    }
    let broken = AdmissionRequest { object: large("oops"), ..create_pod("u", 0) };
    let refusal = ask(&gate, broken, None).await.refusal.expect("refused");
    assert!(refusal.message.contains("the object is not JSON"), "{}", refusal.message);
}

#[tokio::test]
async fn unknown_namespace_is_not_found_if_a_rule_matches() {
    let yes = ScriptedHook::start(Script::Allow).await;
    let selector = "failurePolicy: Ignore\nnamespaceSelector: {matchLabels: {a: b}}";
    let gate = gate(&document(&[hook("h.example.com", &yes.url(), selector)]), Reasons::First);
    let refusal = ask(&gate, create_pod("u", 0), None).await.refusal.expect("refused, even under Ignore");
    assert_eq!((refusal.code, &*refusal.reason), (404, "NotFound"));
    assert_eq!(refusal.message, "namespaces \"shop\" not found");
    assert_eq!((&*refusal.details_name, &*refusal.details_kind), ("shop", "namespaces"));

    let narrow = document(&[hook("h.example.com", &yes.url(), selector)]).replace("\"*/*\"", "\"secrets\"");
    let gate = support::gate::gate(&narrow, Reasons::First);
    assert!(ask(&gate, create_pod("u", 0), None).await.allowed(), "no rule matches: nobody minds");
    assert!(yes.seen().is_empty());
}

#[tokio::test]
async fn the_new_object_or_the_old_one_suffices() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let selector = "objectSelector: {matchExpressions: [{key: skip, operator: DoesNotExist}]}";
    let gate = gate(&document(&[hook("h.example.com", &no.url(), selector)]), Reasons::First);
    let request = |new: Option<RawExtension>, old: Option<RawExtension>| AdmissionRequest {
        object: new,
        old_object: old,
        ..create_pod("u", 0)
    };
    let (plain, skipped) = (r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"labels":{"skip":"yes"}}}"#);
    for (what, new, old, asked) in [
        ("the new one matches", object(plain), None, true),
        ("the new one does not", object(skipped), None, false),
        ("the old one does", object(skipped), object(plain), true),
        ("neither does", object(skipped), object(skipped), false),
        ("an object without metadata never does", object(r#"{"kind":"PodExecOptions"}"#), None, false),
    ] {
        assert_eq!(!ask(&gate, request(new, old), None).await.allowed(), asked, "{what}");
    }
    let exec = AdmissionRequest {
        operation: Some("CONNECT".into()),
        sub_resource: Some("exec".into()),
        ..request(None, None)
    };
    assert!(ask(&gate, exec, None).await.allowed(), "some apiservers send no object of a CONNECT");
    let refusal = ask(&gate, request(object("{oops"), None), None).await.refusal.expect("refused");
    assert_eq!(refusal.code, 500);
    assert!(refusal.message.contains("the object is not JSON"), "{}", refusal.message);
}

/// Every apiserver sends it, and its labels might have matched.
#[tokio::test]
async fn an_object_that_a_selector_looks_at_must_be_there() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let selector = "objectSelector: {matchLabels: {guarded: \"yes\"}}";
    let gate = gate(&document(&[hook("h.example.com", &no.url(), selector)]), Reasons::First);
    let plain = || object(r#"{"metadata":{"name":"a"}}"#);
    for (operation, new, old, lacks) in [
        ("CREATE", None, None, Some("object")),
        ("CREATE", plain(), None, None),
        ("UPDATE", None, plain(), Some("object")),
        ("UPDATE", plain(), None, Some("oldObject")),
        ("UPDATE", plain(), plain(), None),
        ("DELETE", None, None, Some("oldObject")),
        ("DELETE", None, plain(), None),
    ] {
        let request =
            AdmissionRequest { operation: Some(operation.into()), object: new, old_object: old, ..create_pod("u", 0) };
        let shown = ask(&gate, request, None).await.refusal.map(|refusal| (refusal.code, refusal.message));
        let wanted = |field| format!("the review has no {field}, by whose labels a hook's objectSelector decides");
        assert_eq!(shown, lacks.map(|field| (400, wanted(field))), "{operation}");
    }
    assert!(no.seen().is_empty());
}

#[tokio::test]
async fn a_namespace_without_its_object_is_not_judged_by_no_labels() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let selector = "namespaceSelector: {matchLabels: {environment: prod}}";
    let gate = gate(&(document(&[hook("h.example.com", &no.url(), selector)]) + NAMESPACES), Reasons::First);
    let request = AdmissionRequest { object: None, ..namespace_request("CREATE", "") };
    let refusal = ask(&gate, request, None).await.refusal.expect("refused");
    let shown = "the review has no object, by whose labels a hook's namespaceSelector decides";
    assert_eq!((refusal.code, &*refusal.message), (400, shown));
}
