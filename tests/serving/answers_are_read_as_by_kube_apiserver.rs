//! Answers of a webhook, and their effects, as when it is registered with kube-apiserver directly. Source:
//! `docs/reference/webhook-semantics.md` §9.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{io::Write as _, sync::Arc, time::Duration};

use crate::support::{
    gate::{ask, ask_within, document, gate, hook},
    http_hook::{HttpHook, HttpScript},
    reviews::create_pod,
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use gatepost::review::{AdmissionDeps, Reasons};
use gatepost_api::Verdict;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// The longest anything may take here.
const LONG: Duration = Duration::from_secs(30);

/// A gate with one hook there, under that failure policy.
fn gated(url: &str, policy: &str) -> Arc<AdmissionDeps> {
    let more = format!("timeout: 30s\nsideEffects: None\nfailurePolicy: {policy}");
    gate(&document(&[hook("h.example.com", url, &more)]), Reasons::First)
}

/// Verdict on a write whose hook answers so, under Ignore: `None` where the call has failed.
async fn judged(script: HttpScript) -> Option<Verdict> {
    let scripted = HttpHook::plain(script).await;
    let verdict = ask_within(&gated(&scripted.url(), "Ignore"), create_pod("u", 10), LONG).await;
    let failed_open = |(key, _): &(String, String)| key.starts_with("failed-open.");
    (!verdict.audit_annotations.iter().any(failed_open)).then_some(verdict)
}

/// Message for the caller of a hook that answers so, under Fail.
async fn refused(script: HttpScript) -> String {
    let scripted = HttpHook::plain(script).await;
    let verdict = ask_within(&gated(&scripted.url(), "Fail"), create_pod("u", 10), LONG).await;
    verdict.refusal.expect("refused").message
}

fn review(response: &str) -> String {
    format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",{response}}}"#)
}

fn gzipped(plain: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).expect("room");
    encoder.finish().expect("room").into()
}

fn in_gzip(body: Bytes) -> HttpScript {
    HttpScript::Reply(200, vec![("content-encoding", "gzip".into())], body)
}

#[tokio::test]
async fn a_denial_in_gzip_denies() {
    let no = review(r#""response":{"uid":"u","allowed":false,"status":{"message":"no"}}"#);
    let packed = gzipped(no.as_bytes());
    assert!(judged(in_gzip(packed.clone())).await.is_some_and(|verdict| !verdict.allowed()));
    let whole = HttpScript::Stream(200, vec![("content-encoding", "GZIP".into())], packed.clone());
    assert!(judged(whole).await.is_some_and(|verdict| !verdict.allowed()));
    let cut = refused(in_gzip(packed.slice(..packed.len() - 1))).await;
    assert!(cut.ends_with("its body is not the gzip that its head says"), "{cut}");
    let other = HttpScript::Reply(200, vec![("content-encoding", "deflate".into())], packed);
    assert!(judged(other).await.is_none(), "another encoding is left as it is");
}

#[tokio::test]
async fn a_bomb_is_cut_where_any_answer_is() {
    let bomb = gzipped(&vec![b' '; (16 << 20) + 1]);
    assert!(bomb.len() < 20_000);
    let message = refused(in_gzip(bomb)).await;
    assert!(message.ends_with("the answer is larger than the limit of 16777216 bytes"), "{message}");
    let message = refused(in_gzip(gzipped(&vec![b' '; 16 << 20]))).await;
    assert!(message.ends_with("the body is empty"), "{message}");
}

#[tokio::test]
async fn a_content_type_that_is_none_is_no_answer() {
    let yes = Bytes::from(review(r#""response":{"uid":"u","allowed":true}"#));
    let typed = |content_type: &str| HttpScript::Reply(200, vec![("content-type", content_type.into())], yes.clone());
    for readable in ["application/json; charset=utf-8", "text/html", "json", "application/json;"] {
        assert!(judged(typed(readable)).await.is_some_and(|verdict| verdict.allowed()), "{readable}");
    }
    for unreadable in ["application/json, text/plain", "application/json; charset", "a/b/c"] {
        assert!(judged(typed(unreadable)).await.is_none(), "{unreadable}");
    }
    let message = refused(typed("/")).await;
    assert!(message.ends_with("the answer cannot be decoded: its Content-Type is not a media type"), "{message}");
}

#[tokio::test]
async fn a_response_given_twice_is_one() {
    let twice =
        r#""response":{"uid":"u","allowed":false,"status":{"code":403}},"response":{"status":{"message":"no"}}"#;
    let verdict = judged(HttpScript::Reply(200, Vec::new(), review(twice).into())).await.expect("an answer");
    let refusal = verdict.refusal.expect("denied");
    assert_eq!((refusal.code, &*refusal.message), (403, "admission webhook \"h.example.com\" denied the request: no"));
}

#[tokio::test]
async fn metadata_and_empty_details_of_a_denial_are_kept() {
    let no =
        review(r#""response":{"uid":"u","allowed":false,"status":{"metadata":{"resourceVersion":"5"},"details":{}}}"#);
    let verdict = judged(HttpScript::Reply(200, Vec::new(), no.into())).await.expect("an answer");
    let refusal = verdict.refusal.expect("denied");
    assert!(refusal.has_details);
    assert_eq!(refusal.metadata.expect("metadata").resource_version, "5");
}

#[tokio::test]
async fn redirect_is_a_failure_and_not_followed() {
    let elsewhere = HttpHook::plain(HttpScript::Allow).await;
    for status in [301, 302, 303, 307, 308] {
        let redirect = HttpScript::Reply(status, vec![("location", format!("{}/v", elsewhere.url()))], Bytes::new());
        let scripted = HttpHook::plain(redirect).await;
        let gate = gated(&scripted.url(), "Fail");
        let message = ask(&gate, create_pod("u", 10)).await.refusal.expect("refused").message;
        assert!(
            message.contains(&format!("HTTP status {status}: a redirect, and redirects are not followed")),
            "{message}"
        );
        assert_eq!((scripted.seen().len(), elsewhere.connections()), (1, 0));
    }
}

#[tokio::test]
async fn retry_after_dates_are_ignored() {
    for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Fri, 06 Nov 2076 08:49:37 GMT", "1.5"] {
        let scripted = HttpHook::plain(HttpScript::Status(503, Some(date))).await;
        assert!(!ask(&gated(&scripted.url(), "Fail"), create_pod("u", 10)).await.allowed());
        assert_eq!(scripted.seen().len(), 1, "{date}");
    }
    // ask() has two seconds: after the first, less than one is left.
    let scripted = HttpHook::plain(HttpScript::Status(429, Some("1"))).await;
    let gate = gated(&scripted.url(), "Fail");
    assert!(!ask(&gate, create_pod("u", 10)).await.allowed());
    let paths: Vec<_> = scripted.seen().into_iter().map(|seen| seen.path).collect();
    assert!(paths.len() == 2 && paths.iter().all(|path| path.ends_with("timeout=2s")), "{paths:?}");
    let metrics = gate.metrics.render().expect("text");
    let line = r#"gatepost_hook_repeated_calls_total{hook="h.example.com",type="validating",cause="retry_after"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
}

/// Over HTTP/1.1, and more than hyper makes room for.
#[tokio::test]
async fn an_answer_may_have_150_headers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let answering = async {
        let (mut socket, _) = listener.accept().await.expect("accepted");
        let mut heard = [0; 64 << 10];
        let mut len = 0;
        while !heard[..len].ends_with(b"}") {
            len += socket.read(&mut heard[len..]).await.expect("a call");
        }
        let headers: String = (0..150).map(|n| format!("x-header-{n}: {n}\r\n")).collect();
        let yes = review(r#""response":{"uid":"u","allowed":true}"#);
        let answer = format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\n\r\n{yes}", yes.len());
        socket.write_all(answer.as_bytes()).await.expect("said");
        socket
    };
    let gate = gated(&url, "Fail");
    let (verdict, _socket) = tokio::join!(ask(&gate, create_pod("u", 10)), answering);
    assert_eq!(verdict.refusal, None);
}
