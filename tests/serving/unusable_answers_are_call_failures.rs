//! A hook that answers garbage, for another request, with a patch, without end, or not at all: each is a CallFailure
//! with its own message, judged by the failure policy alone, and the next call is unharmed.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use crate::support::{
    gate::{ask, document, gate, hook, revision},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};
use bytes::Bytes;
use gatepost::review::Reasons;
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionResponse;

async fn message_under_fail(script: Script) -> String {
    // Only what never answers is to run out of time.
    let timeout = if matches!(script, Script::Hang) { "timeout: 150ms" } else { "timeout: 30s" };
    let scripted = ScriptedHook::start(script).await;
    let gate = gate(&document(&[hook("h.example.com", &scripted.url(), timeout)]), Reasons::First);
    let verdict = ask(&gate, create_pod("u-1", 2048)).await;
    let refusal = verdict.refusal.expect("closed");
    assert_eq!((refusal.code, &*refusal.reason), (500, "InternalError"), "{}", refusal.message);

    // The same hook, well again, on the same gate.
    scripted.set(Script::Allow);
    assert!(ask(&gate, create_pod("u-2", 2048)).await.allowed());
    refusal
        .message
        .strip_prefix("Internal error occurred: failed calling webhook \"h.example.com\": ")
        .expect("upstream's words")
        .to_owned()
}

fn respond(response: AdmissionResponse) -> Script {
    Script::Respond(AdmissionResponse { allowed: Some(true), ..response })
}

#[tokio::test]
async fn each_has_its_own_message() {
    let cases: Vec<(Script, &str)> = vec![
        (
            Script::Message(Bytes::from_static(b"\xff\xff\xff")),
            "failed to call webhook: the answer cannot be decoded: ",
        ),
        (Script::Message(Bytes::new()), "received invalid webhook response: webhook response was absent"),
        (
            respond(AdmissionResponse { uid: Some("u-9".into()), ..Default::default() }),
            "received invalid webhook response: expected response.uid=\"u-1\", got \"u-9\"",
        ),
        (
            respond(AdmissionResponse { patch: Some(Bytes::from_static(b"[]")), ..Default::default() }),
            "received invalid webhook response: validating webhook may not return response.patch",
        ),
        (Script::Hang, "failed to call webhook: no answer within 150ms"),
        (Script::Endless, "failed to call webhook: the answer is larger than the limit of 16777216 bytes"),
        (
            Script::Status(14, "go away"),
            "failed to call webhook: the hook answered with gRPC status UNAVAILABLE: go away",
        ),
        (Script::Status(99, ""), "failed to call webhook: the hook answered with gRPC status UNKNOWN: "),
        (Script::Http(503), "failed to call webhook: the hook does not speak gRPC: it answered with HTTP status 503"),
        (
            Script::Reset(h2::Reason::INTERNAL_ERROR),
            "failed to call webhook: connection lost: the hook reset the call: INTERNAL_ERROR",
        ),
        (Script::HangUp, "failed to call webhook: connection lost: the hook closed the connection"),
        (
            Script::Body(Bytes::from_static(&[0, 0, 0, 0, 9, 1])),
            "failed to call webhook: the answer cannot be decoded: the message is not as long as its head says",
        ),
        (
            Script::Body(Bytes::from_static(&[1, 0, 0, 0, 1, 1])),
            "failed to call webhook: the answer cannot be decoded: the message is compressed, which was not offered",
        ),
    ];
    for (script, want) in cases {
        let got = message_under_fail(script.clone()).await;
        assert!(got.starts_with(want), "{script:?}: {got}");
    }
}

#[tokio::test]
async fn under_ignore_they_are_passed_over_and_named() {
    let (bad, good) = (ScriptedHook::start(Script::Http(500)).await, ScriptedHook::start(Script::Allow).await);
    let yaml =
        document(&[hook("a.example.com", &good.url(), ""), hook("b.example.com", &bad.url(), "failurePolicy: Ignore")]);
    let verdict = ask(&gate(&yaml, Reasons::First), create_pod("u", 100)).await;
    assert!(verdict.allowed());
    let note =
        ("failed-open.validating.webhook.admission.k8s.io/round_0_index_1".to_owned(), "b.example.com".to_owned());
    assert_eq!(verdict.audit_annotations, [note, revision()]);
}

#[tokio::test]
async fn refused_connection_names_the_address() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("address");
    let gate = gate(&document(&[hook("h.example.com", &format!("grpc://{free}"), "")]), Reasons::First);
    let verdict = ask(&gate, create_pod("u", 100)).await;
    let message = verdict.refusal.expect("closed").message;
    assert!(message.contains(&format!("failed to call webhook: cannot connect: {free}: ")), "{message}");
}

/// gRPC servers end a call by themselves when the `grpc-timeout` they were sent has passed.
#[tokio::test]
async fn a_hook_that_rings_first_has_run_out_of_time_too() {
    let scripted = ScriptedHook::start(Script::Status(4, "")).await;
    let gate = gate(&document(&[hook("h.example.com", &scripted.url(), "timeout: 5ms")]), Reasons::First);
    let message = ask(&gate, create_pod("u", 10)).await.refusal.expect("closed").message;
    assert!(message.ends_with("failed to call webhook: no answer within 5ms"), "{message}");
}
