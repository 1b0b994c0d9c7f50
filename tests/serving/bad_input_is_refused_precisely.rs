//! Any input of a caller: a precise status and message; the connection and every other call unharmed.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use crate::front;
use crate::front::{Ended, LONG, REVIEW, ended, framed, grpc, review, sidecar, sidecar_with_budget, until, with};
use bytes::Bytes;
use gatepost::front::FrontLimits;
use gatepost_wire::pb::k8s::io::{
    api::admission::v1::{AdmissionRequest, AdmissionReview},
    apimachinery::pkg::apis::meta::v1::{GroupVersionKind, GroupVersionResource},
};
use http::{Request, StatusCode};
use prost::Message;
use tokio::time::timeout;

const INVALID_ARGUMENT: i32 = 3;
const DEADLINE_EXCEEDED: i32 = 4;
const RESOURCE_EXHAUSTED: i32 = 8;
const UNIMPLEMENTED: i32 = 12;
const INTERNAL: i32 = 13;

fn limits() -> FrontLimits {
    FrontLimits { message_bytes: 1 << 20, ..FrontLimits::default() }
}

/// Makes a bad call between the two halves of a good one and before another good one, all on one connection.
async fn between_good_calls(bad: Request<()>, payloads: Vec<Bytes>) -> Ended {
    let sidecar = sidecar(limits()).await;
    let caller = front::caller(sidecar.address).await;
    let (slow, mut rest) = caller.begin(grpc(REVIEW)).await;
    let mut message = review("slow", 50_000);
    rest.send_data(message.split_to(30_000), false).expect("sent");
    let refused = caller.call(bad, payloads).await;
    caller.review("next", 2048).await.assert_allowed("next");
    rest.send_data(message, true).expect("sent");
    ended(slow).await.assert_allowed("slow");
    until("everything in flight has ended", || sidecar.front.inflight.requests() == 0).await;
    assert_eq!(sidecar.front.inflight.bytes(), 0);
    refused
}

async fn refused(bad: Request<()>, payloads: impl IntoIterator<Item = Bytes>, status: i32, message: &str) -> Ended {
    let ended = between_good_calls(bad, payloads.into_iter().collect()).await;
    ended.assert(status, message);
    ended
}

fn bytes(bytes: &'static [u8]) -> [Bytes; 1] {
    [Bytes::from_static(bytes)]
}

#[tokio::test]
async fn undecodable_protobuf() {
    let ended = between_good_calls(grpc(REVIEW), vec![framed(b"\x0a\xff\xff\xff\xff\x0f secret")]).await;
    assert_eq!(ended.status, Some(INVALID_ARGUMENT));
    assert!(ended.message.starts_with("the message is not a protobuf AdmissionReview: "), "{}", ended.message);
    assert!(!ended.message.contains("secret"));
}

#[tokio::test]
async fn a_review_without_a_request() {
    let empty = framed(&AdmissionReview::default().encode_to_vec());
    refused(grpc(REVIEW), [empty], INVALID_ARGUMENT, "the review has no request").await;
}

#[tokio::test]
async fn a_review_without_a_uid() {
    refused(grpc(REVIEW), [review("", 10)], INVALID_ARGUMENT, "the review's request has no uid").await;
}

#[tokio::test]
async fn review_without_fields_that_rules_need_is_rejected() {
    let mut request =
        AdmissionRequest { uid: Some("1".into()), operation: Some("CREATE".into()), ..Default::default() };
    let kind = request.kind.insert(GroupVersionKind { version: Some("v1".into()), ..Default::default() });
    kind.kind = Some("Pod".into());
    let bare = |request: &AdmissionRequest| {
        framed(&AdmissionReview { request: Some(request.clone()), response: None }.encode_to_vec())
    };
    let message = "request.resource.version is missing or empty";
    refused(grpc(REVIEW), [bare(&request)], INVALID_ARGUMENT, message).await;
    let pods = GroupVersionResource { version: Some("v1".into()), resource: Some("pods".into()), ..Default::default() };
    request.resource = Some(pods);
    let message = "request.namespace is missing or empty, and pods is a resource in namespaces";
    refused(grpc(REVIEW), [bare(&request)], INVALID_ARGUMENT, message).await;
    request.namespace = Some("shop".into());
    request.request_resource = Some(GroupVersionResource::default());
    let message = "request.requestResource.version is missing or empty";
    refused(grpc(REVIEW), [bare(&request)], INVALID_ARGUMENT, message).await;
}

/// Protobuf would merge the two; a hook that reads JSON, or its bytes in another way, would see another kind.
#[tokio::test]
async fn a_message_of_the_review_given_twice() {
    let once = review("1", 10);
    let kind = GroupVersionKind { kind: Some("Secret".into()), ..Default::default() };
    let again = AdmissionRequest { kind: Some(kind), ..Default::default() };
    let again = AdmissionReview { request: Some(again), response: None }.encode_to_vec();
    let twice = framed(&[&once[5..], &again].concat());
    refused(grpc(REVIEW), [twice], INVALID_ARGUMENT, "request is given twice").await;
}

#[tokio::test]
async fn a_message_beyond_the_limit() {
    let declared = [&[0], &2_000_000_u32.to_be_bytes()[..]].concat();
    let payloads = [Bytes::from(declared), vec![0; 100_000].into(), vec![0; 1_900_000].into()];
    refused(grpc(REVIEW), payloads, RESOURCE_EXHAUSTED, "the message is 2000000 bytes long, the limit is 1048576")
        .await;
}

#[tokio::test]
async fn a_frame_head_that_declares_4_gib() {
    let message = "the message is 4294967295 bytes long, the limit is 1048576";
    refused(grpc(REVIEW), bytes(b"\0\xff\xff\xff\xff"), RESOURCE_EXHAUSTED, message).await;
}

#[tokio::test]
async fn deadlines_that_are_none() {
    let malformed = "grpc-timeout must be 1 to 8 digits and one of the units H, M, S, m, u, n";
    for value in ["-5S", "5", "123456789S", "soon"] {
        let bad = with(grpc(REVIEW), "grpc-timeout", value);
        refused(bad, [review("1", 10)], INVALID_ARGUMENT, malformed).await;
    }
    let zero = with(grpc(REVIEW), "grpc-timeout", "0m");
    let message = "the deadline had already passed when the call arrived";
    refused(zero, [review("1", 10)], DEADLINE_EXCEEDED, message).await;
}

#[tokio::test]
async fn unknown_methods_and_services() {
    let message = "unknown method Destroy: gatepost.v1.Admission has Review, Mutate and Validate";
    refused(grpc("/gatepost.v1.Admission/Destroy"), [review("1", 10)], UNIMPLEMENTED, message).await;
    let message = "unknown service in /other.Service/Call: \
                   this port serves gatepost.v1.Admission, grpc.health.v1.Health and reflection";
    refused(grpc("/other.Service/Call"), [], UNIMPLEMENTED, message).await;
}

#[tokio::test]
async fn compressed_messages() {
    let message = "messages must not be compressed: send them with grpc-encoding identity";
    let announced = with(grpc(REVIEW), "grpc-encoding", "gzip");
    let ended = refused(announced, [review("1", 10)], UNIMPLEMENTED, message).await;
    assert_eq!(ended.headers["grpc-accept-encoding"], "identity");
    refused(grpc(REVIEW), bytes(b"\x01\0\0\0\x02ab"), UNIMPLEMENTED, message).await;
}

#[tokio::test]
async fn requests_that_are_not_grpc_are_refused() {
    let json = with(grpc(REVIEW), "content-type", "application/json");
    let ended = between_good_calls(json, vec![Bytes::from_static(b"{}")]).await;
    assert_eq!((ended.http, ended.status), (StatusCode::UNSUPPORTED_MEDIA_TYPE, None));
    ended.assert_says("the content-type must be application/grpc or application/grpc+proto");
    let get = Request::get(format!("http://gatepost{REVIEW}")).body(()).expect("request");
    let ended = between_good_calls(get, vec![]).await;
    assert_eq!((ended.http, ended.status), (StatusCode::METHOD_NOT_ALLOWED, None));
    ended.assert_says("calls are made with POST");
    let get = Request::get("http://gatepost/").body(()).expect("request");
    let ended = between_good_calls(get, vec![]).await;
    assert_eq!((ended.http, ended.status), (StatusCode::NOT_FOUND, None));
    ended.assert_says("there is nothing at /: this port serves POST /validate, POST /mutate and gRPC");
}

#[tokio::test]
async fn broken_frames() {
    let message = "the call has no message: the stream ended after 0 of the 5 bytes of a frame head";
    refused(grpc(REVIEW), [], INTERNAL, message).await;
    let message = "the call has no message: the stream ended after 3 of the 5 bytes of a frame head";
    refused(grpc(REVIEW), bytes(b"\0\0\0"), INTERNAL, message).await;
    let message = "the message is incomplete: the stream ended after 2 of the 9 bytes its frame head declares";
    refused(grpc(REVIEW), bytes(b"\0\0\0\0\x09ab"), INTERNAL, message).await;
    let message = "more follows the message of 2 bytes, but the call takes exactly one";
    refused(grpc(REVIEW), bytes(b"\0\0\0\0\x02ab\0\0\0\0\x01c"), INTERNAL, message).await;
    let message = "the frame head begins with 7, but only 0 (plain) and 1 (compressed) exist";
    refused(grpc(REVIEW), bytes(b"\x07\0\0\0\x02ab"), INTERNAL, message).await;
}

#[tokio::test]
async fn namespace_labels_that_are_none() {
    let message = "gatepost-namespace-labels-bin must be base64 of a protobuf gatepost.v1.NamespaceLabels, once";
    let bad = with(grpc(REVIEW), "gatepost-namespace-labels-bin", "%%%");
    refused(bad, [review("1", 10)], INVALID_ARGUMENT, message).await;
}

#[tokio::test]
async fn a_body_without_end_is_bounded_by_the_deadline() {
    let sidecar = sidecar(limits()).await;
    let caller = front::caller(sidecar.address).await;
    let (response, mut stream) = caller.begin(with(grpc(REVIEW), "grpc-timeout", "100m")).await;
    stream.send_data(review("1", 5000).slice(..500), false).expect("sent");
    ended(response).await.assert(DEADLINE_EXCEEDED, "the message was not complete within 95ms: 500 bytes had arrived");
    // Whole, but the stream stays open.
    let (response, mut stream) = caller.begin(with(grpc(REVIEW), "grpc-timeout", "100m")).await;
    stream.send_data(framed(b"ab"), false).expect("sent");
    ended(response).await.assert(DEADLINE_EXCEEDED, "the message was not complete within 95ms: 7 bytes had arrived");
    caller.review("2", 100).await.assert_allowed("2");
    assert_eq!(sidecar.metric("gatepost_refused_total{reason=\"deadline\"}"), 2.0);
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_its_call() {
    let sidecar = sidecar(limits()).await;
    let caller = front::caller(sidecar.address).await;
    let (response, mut stream) = caller.begin(grpc(REVIEW)).await;
    stream.send_data(review("1", 5000).slice(..500), false).expect("sent");
    until("the call is read", || sidecar.front.inflight.bytes() > 500).await;
    stream.send_reset(h2::Reason::CANCEL);
    until("the call has ended", || sidecar.front.inflight.requests() == 0).await;
    assert!(response.await.is_err());
    assert_eq!(sidecar.front.inflight.bytes(), 0);
    assert_eq!(sidecar.metric("gatepost_refused_total{reason=\"cancelled\"}"), 1.0);
    caller.review("2", 100).await.assert_allowed("2");
}

#[tokio::test]
async fn no_room_in_the_memory_budget() {
    // Reviews have three quarters of it: 135,000.
    let sidecar = sidecar_with_budget(limits(), 180_000).await;
    let caller = front::caller(sidecar.address).await;
    let (first, mut rest) = caller.begin(grpc(REVIEW)).await;
    let mut message = review("first", 80_000);
    rest.send_data(message.split_to(79_990), false).expect("sent");
    until("room is reserved", || sidecar.front.inflight.bytes() > 80_000).await;
    let second = review("second", 50_000);
    let refused = caller.call(grpc(REVIEW), [second.clone()]).await;
    assert_eq!(refused.status, Some(RESOURCE_EXHAUSTED), "{refused:?}");
    assert!(refused.message.starts_with("no room for ") && refused.message.ends_with("try again"), "{refused:?}");
    assert_eq!(refused.headers["grpc-retry-pushback-ms"], "100");
    rest.send_data(message, true).expect("sent");
    ended(first).await.assert_allowed("first");
    caller.call(grpc(REVIEW), [second]).await.assert_allowed("second");
}

#[tokio::test]
async fn review_above_the_memory_budget_gets_no_retry_hint() {
    let sidecar = sidecar_with_budget(limits(), 180_000).await;
    let caller = front::caller(sidecar.address).await;
    let refused = caller.call(grpc(REVIEW), [review("never", 140_000)]).await;
    assert_eq!(refused.status, Some(RESOURCE_EXHAUSTED), "{refused:?}");
    assert!(refused.message.contains("raise --max-inflight-bytes, or send less"), "{refused:?}");
    assert!(!refused.headers.contains_key("grpc-retry-pushback-ms"), "{refused:?}");
    assert_eq!(sidecar.metric("gatepost_refused_total{reason=\"too_large\"}"), 1.0);
}

#[tokio::test]
async fn a_thousand_oversize_messages_leave_the_connection_alive() {
    let sidecar = sidecar(limits()).await;
    let caller = front::caller(sidecar.address).await;
    let body = Bytes::from([&[0], &1_500_000_u32.to_be_bytes()[..], &vec![0; 1_500_000]].concat());
    // More than the 1024 late frames of refused calls that h2 by default forgives a connection.
    for _ in 0..1100 {
        let refused = caller.call(grpc(REVIEW), [body.clone()]).await;
        refused.assert(RESOURCE_EXHAUSTED, "the message is 1500000 bytes long, the limit is 1048576");
    }
    caller.review("after", 100).await.assert_allowed("after");
    assert_eq!(sidecar.metric("gatepost_refused_total{reason=\"too_large\"}"), 1100.0);
}

#[tokio::test]
async fn garbage_instead_of_http_is_dropped() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let sidecar = sidecar(limits()).await;
    let mut stream = tokio::net::TcpStream::connect(sidecar.address).await.expect("connects");
    stream.write_all(b"\x16\x03\x01 this is no HTTP\r\n\r\n").await.expect("sent");
    let mut rest = Vec::new();
    let closed = timeout(LONG, stream.read_to_end(&mut rest)).await.expect("closed in time");
    assert!(closed.is_ok() || closed.is_err(), "a reset is as good as an end");
    until("counted", || sidecar.metric("gatepost_refused_total{reason=\"protocol\"}") == 1.0).await;
    front::caller(sidecar.address).await.review("1", 100).await.assert_allowed("1");
}

#[tokio::test]
async fn excess_connection_replaces_only_idle_ones() {
    let sidecar = sidecar(FrontLimits { connections: 1, ..limits() }).await;
    let caller = front::caller(sidecar.address).await;
    let (slow, mut rest) = caller.begin(grpc(REVIEW)).await;
    let mut message = review("slow", 1000);
    rest.send_data(message.split_to(100), false).expect("sent");
    until("the call is read", || sidecar.front.inflight.requests() == 1).await;
    let stream = tokio::net::TcpStream::connect(sidecar.address).await.expect("connects");
    let (mut send, connection) = h2::client::handshake(stream).await.expect("our own preface");
    let closed = tokio::spawn(connection);
    let _ = send.send_request(grpc(REVIEW), true);
    assert!(timeout(LONG, closed).await.expect("in time").expect("joined").is_err(), "closed");
    assert_eq!(sidecar.metric("gatepost_refused_total{reason=\"client_share\"}"), 1.0);
    rest.send_data(message, true).expect("sent");
    ended(slow).await.assert_allowed("slow");
    until("the call has ended", || sidecar.front.inflight.requests() == 0).await;
    front::caller(sidecar.address).await.review("next", 100).await.assert_allowed("next");
    assert_eq!(sidecar.metric("gatepost_refused_total{reason=\"evicted\"}"), 1.0);
}

#[tokio::test]
async fn reviews_arrive_in_any_pieces() {
    let sidecar = sidecar(FrontLimits { timeout: Duration::from_secs(20), ..limits() }).await;
    let caller = front::caller(sidecar.address).await;
    let message = review("pieces", 4000);
    for size in [1, 3, 5, 7, 1000, 1024, 4000] {
        let payloads = (0..message.len()).step_by(size).map(|at| message.slice(at..(at + size).min(message.len())));
        caller.call(grpc(REVIEW), payloads.collect::<Vec<_>>()).await.assert_allowed("pieces");
    }
    let before = sidecar.metrics.copied_bytes();
    assert!(before > 3 * 4000, "tiny frames were joined: {before}");
    caller.review("large", 1_000_000).await.assert_allowed("large");
    caller.review("small", 100).await.assert_allowed("small");
    assert_eq!(sidecar.metrics.copied_bytes(), before, "whole frames were not");
}
