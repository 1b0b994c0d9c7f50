//! `matchConditions`: in order, any that is false excludes the hook; an error goes by the failure policy.
//! Source: `docs/reference/webhook-semantics.md` §7.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use crate::support::{
    gate::{ask, document, gate, hook},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};
use bytes::Bytes;
use gatepost::{
    admit::Reasons,
    wire::pb::k8s::io::{
        api::{admission::v1::AdmissionRequest, authentication::v1::UserInfo},
        apimachinery::pkg::runtime::RawExtension,
    },
};

fn conditions(policy: &str, expressions: &[&str]) -> String {
    let conditions = expressions
        .iter()
        .enumerate()
        .map(|(at, expression)| format!("- {{name: c{at}, expression: {expression:?}}}\n"));
    format!("failurePolicy: {policy}\nmatchConditions:\n{}", conditions.collect::<String>())
}

fn request(object: &str) -> AdmissionRequest {
    let user = UserInfo { username: Some("alice".to_owned()), groups: vec!["dev".to_owned()], ..UserInfo::default() };
    AdmissionRequest {
        object: Some(RawExtension { raw: Some(Bytes::copy_from_slice(object.as_bytes())) }),
        name: Some("web".to_owned()),
        user_info: Some(user),
        ..create_pod("u", 0)
    }
}

const POD: &str =
    r#"{"kind":"Pod","metadata":{"name":"web","labels":{"app":"web"}},"spec":{"containers":[{"image":"a:1"}]}}"#;

#[tokio::test]
async fn conditions_decide_after_rules_and_selectors() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let asked = "admission webhook \"h.example.com\" denied the request: seen";
    let forbidden = |why: &str| format!("pods \"web\" is forbidden: {why}");
    let missing = "expression 'object.missing == 1' resulted in error: no such key: missing";
    let large = format!(r#"{{"spec":{{"data":[{}"last"]}}}}"#, r#""0123456789abcdef","#.repeat(20_000));
    for (policy, expressions, object, wanted) in [
        ("Fail", &["object.metadata.labels.app == 'web'"][..], POD, Some(asked.to_owned())),
        ("Fail", &["object.metadata.labels.app == 'api'"], POD, None),
        (
            "Fail",
            &["request.userInfo.username == 'alice' && 'dev' in request.userInfo.groups"],
            POD,
            Some(asked.to_owned()),
        ),
        ("Fail", &["!('dev' in request.userInfo.groups)"], POD, None),
        ("Fail", &["true", "request.operation == 'DELETE'", "true"], POD, None),
        ("Fail", &["object.missing == 1"], POD, Some(forbidden(missing))),
        ("Fail", &["object.missing == 1", "false"], POD, None),
        ("Fail", &["true", "object.missing == 1"], POD, Some(forbidden(missing))),
        ("Ignore", &["true", "object.missing == 1"], POD, None),
        ("Ignore", &["true", "true"], POD, Some(asked.to_owned())),
        // Too large, or too long, for the worker.
        ("Fail", &["object.spec.data.all(x, x != '')"], &large, Some(asked.to_owned())),
        ("Fail", &["object.spec.data.exists(x, x == 'first')"], &large, None),
        ("Fail", &["lists.range(100).all(x, lists.range(100).all(y, x + y >= 0))"], POD, Some(asked.to_owned())),
        (
            "Fail",
            &["object.kind == 'Pod'"],
            "k8s\0protobuf",
            Some(forbidden(
                "expression 'object.kind == 'Pod'' resulted in error: the object is written in protobuf, and can only be \
                 read in JSON",
            )),
        ),
        ("Fail", &["request.resource.resource == 'pods'"], "k8s\0protobuf", Some(asked.to_owned())),
    ] {
        let more = conditions(policy, expressions);
        let gate = gate(&document(&[hook("h.example.com", &no.url(), &more)]), Reasons::First);
        let verdict = ask(&gate, request(object)).await;
        let refusal = verdict.refusal.as_ref().map(|refusal| refusal.message.clone());
        assert_eq!(refusal, wanted, "{policy} {expressions:?}");
        let code = verdict.refusal.map(|refusal| (refusal.code, refusal.reason));
        if wanted.is_some_and(|wanted| wanted.contains("forbidden")) {
            assert_eq!(code, Some((403, "Forbidden".to_owned())));
        }
    }
}

#[tokio::test]
async fn an_error_rejects_before_any_hook_is_asked() {
    let (first, second) = (ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Allow).await);
    let slow = conditions("Fail", &["lists.range(100).all(x, lists.range(100).all(y, x + y >= 0))"]);
    let failing = conditions("Fail", &["object.missing == 1"]);
    let hooks = [hook("a.example.com", &first.url(), &slow), hook("b.example.com", &second.url(), &failing)];
    let verdict = ask(&gate(&document(&hooks), Reasons::First), request(POD)).await;
    assert_eq!(verdict.refusal.map(|refusal| refusal.code), Some(403));
    assert!(first.seen().is_empty() && second.seen().is_empty());
}
