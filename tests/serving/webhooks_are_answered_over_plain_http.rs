//! A stock apiserver's reviews: JSON over HTTP/1.1 and HTTP/2, answered, or refused with a precise status.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use crate::front::{Ended, LONG, Sidecar, ended, sidecar, sidecar_with_budget, until, with};
use crate::webhook::{Connection, assert_allowed, assert_allowed_in_protobuf, enveloped, post, review};
use crate::{front, webhook};
use bytes::Bytes;
use gatepost::front::FrontLimits;
use http::{Request, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

fn limits() -> FrontLimits {
    FrontLimits { message_bytes: 1 << 20, ..FrontLimits::default() }
}

async fn http1(sidecar: &Sidecar) -> Connection<TcpStream> {
    Connection::Http1(TcpStream::connect(sidecar.address).await.expect("connects"))
}

/// One connection of each version.
async fn both(sidecar: &Sidecar) -> [Connection<TcpStream>; 2] {
    [http1(sidecar).await, Connection::Http2(front::caller(sidecar.address).await)]
}

#[tokio::test]
async fn reviews_are_answered_one_after_the_other_on_one_connection() {
    let sidecar = sidecar(limits()).await;
    for mut connection in both(&sidecar).await {
        for (uid, path) in [("1", "/validate?timeout=10s"), ("2", "/mutate"), ("3", "/validate?timeout=500ms")] {
            assert_allowed(&connection.call(post(path), review(uid, 3000)).await, uid);
        }
        let kind = with(post("/validate"), "content-type", "application/json; charset=utf-8");
        assert_allowed(&connection.call(kind, review("4", 10)).await, "4");
        assert_allowed(&connection.call(post("/validate"), review("5", 900_000)).await, "5");
    }
    until("nothing is in flight", || sidecar.front.inflight.requests() == 0).await;
    assert_eq!(sidecar.front.inflight.bytes(), 0);
}

#[tokio::test]
async fn a_review_is_answered_in_its_own_encoding_and_version() {
    let sidecar = sidecar(limits()).await;
    let protobuf = || with(post("/validate"), "content-type", "application/vnd.kubernetes.protobuf");
    for mut connection in both(&sidecar).await {
        for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
            let reply = connection.call(protobuf(), enveloped(version, "p", 300_000)).await;
            assert_allowed_in_protobuf(&reply, version, "p");
            let json =
                String::from_utf8(review("j", 300_000).to_vec()).unwrap().replace("admission.k8s.io/v1", version);
            let reply = connection.call(post("/validate"), json.into()).await;
            assert_eq!(reply.headers["content-type"], "application/json");
            let answer: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
            assert_eq!((&answer["apiVersion"], &answer["response"]["uid"]), (&version.into(), &"j".into()));
        }
        assert_eq!(connection.call(protobuf(), review("1", 10)).await.http, StatusCode::BAD_REQUEST, "JSON is not");
    }
    // A protobuf body is not joined, whatever frames it comes in.
    let before = sidecar.metrics.copied_bytes();
    let caller = front::caller(sidecar.address).await;
    let whole = enveloped("admission.k8s.io/v1", "p", 300_000);
    let pieces = [whole.slice(..100_000), whole.slice(100_000..200_000), whole.slice(200_000..)];
    assert_allowed_in_protobuf(&caller.call(protobuf(), pieces).await, "admission.k8s.io/v1", "p");
    assert_eq!(sidecar.metrics.copied_bytes(), before);
}

/// Refused requests, with the status and words of each.
fn refusals() -> Vec<(Request<()>, Bytes, u16, &'static str)> {
    let good = || review("1", 10);
    let mut get = post("/validate");
    *get.method_mut() = http::Method::GET;
    let mut put = post("/mutate");
    *put.method_mut() = http::Method::PUT;
    let untyped = Request::post("https://gatepost/validate").body(()).unwrap();
    let types = "the content-type must be application/json or application/vnd.kubernetes.protobuf";
    let timeouts = "?timeout= must be given once, as a duration of more than zero such as 10s, 1m30s or 500ms";
    let nothing = "there is nothing at /validate/: this port serves POST /validate, POST /mutate and gRPC";
    vec![
        (get, Bytes::new(), 405, "calls are made with POST"),
        (put, good(), 405, "calls are made with POST"),
        (post("/validate/"), good(), 404, nothing),
        (untyped, good(), 415, types),
        (with(post("/validate"), "content-type", "text/plain"), good(), 415, types),
        (with(post("/validate"), "content-type", "application/json-patch+json"), good(), 415, types),
        (
            with(post("/validate"), "content-encoding", "gzip"),
            good(),
            415,
            "the body must not be compressed: send it with content-encoding identity",
        ),
        (post("/validate?timeout=10"), good(), 400, timeouts),
        (post("/validate?timeout=0s"), good(), 400, timeouts),
        (post("/validate?timeout=-1s"), good(), 400, timeouts),
        (post("/validate?timeout=1s&timeout=2s"), good(), 400, timeouts),
        (post("/validate"), Bytes::new(), 400, "the request has no body: send one AdmissionReview"),
    ]
}

#[tokio::test]
async fn bad_request_is_answered_and_the_connection_stays_open() {
    let sidecar = sidecar(limits()).await;
    for (request, body, status, message) in refusals() {
        for mut connection in both(&sidecar).await {
            let refused = connection.call(request.clone(), body.clone()).await;
            assert_eq!(refused.http.as_u16(), status, "{request:?}");
            refused.assert_says(message);
            match status {
                405 => assert_eq!(refused.headers["allow"], "POST"),
                415 if message.contains("compressed") => assert_eq!(refused.headers["accept-encoding"], "identity"),
                _ => {}
            }
            // HTTP/1.1 cannot go on where a body was left unread.
            if matches!(connection, Connection::Http2(_)) || body.is_empty() {
                assert_allowed(&connection.call(post("/validate"), review("next", 10)).await, "next");
            }
        }
    }
}

#[tokio::test]
async fn bodies_that_are_no_reviews() {
    let sidecar = sidecar(limits()).await;
    for mut connection in both(&sidecar).await {
        for body in ["{", "secret", "[]", "null", "{}", r#"{"apiVersion":"v1","kind":"Pod"}"#] {
            let refused = connection.call(post("/validate"), body.into()).await;
            assert_eq!(refused.http, StatusCode::BAD_REQUEST, "{body}");
            assert!(!String::from_utf8_lossy(&refused.body).contains("secret"), "content is not repeated");
            assert_allowed(&connection.call(post("/validate"), review("next", 10)).await, "next");
        }
        let protobuf = with(post("/validate"), "content-type", "application/vnd.kubernetes.protobuf");
        let refused = connection.call(protobuf, "k8s".into()).await;
        assert_eq!(refused.http, StatusCode::BAD_REQUEST);
    }
    assert_eq!(sidecar.metric("gatepost_refused_total{reason=\"not_a_review\"}"), 14.0);
}

/// Rules could not see them; a field that is named twice is read in two ways.
#[tokio::test]
async fn incomplete_webhook_reviews_are_rejected() {
    let sidecar = sidecar(limits()).await;
    let whole = String::from_utf8(review("1", 10).to_vec()).unwrap();
    for mut connection in both(&sidecar).await {
        for (from, to, message) in [
            (r#""resource":"pods""#, r#""resource":"""#, "request.resource.resource is missing or empty"),
            (r#""kind":"Pod","version":"v1""#, r#""kind":"Pod""#, "request.kind.version is missing or empty"),
            (
                r#""name":"web","namespace":"shop""#,
                r#""requestResource":{},"name":"web","namespace":"shop""#,
                "request.requestResource.version is missing or empty",
            ),
            (
                r#""namespace":"shop""#,
                r#""namespace":"""#,
                "request.namespace is missing or empty, and pods is a resource in namespaces",
            ),
            (
                r#""resource":"pods""#,
                r#""resource":"pods","resource":"nodes""#,
                "request.resource.resource is given twice",
            ),
        ] {
            for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
                assert!(whole.contains(from), "{from}");
                let body = whole.replacen(from, to, 1).replace("admission.k8s.io/v1", version);
                let refused = connection.call(post("/validate"), body.into()).await;
                assert_eq!(refused.http, StatusCode::BAD_REQUEST, "{from}");
                refused.assert_says(message);
            }
        }
        assert_allowed(&connection.call(post("/validate"), review("next", 10)).await, "next");
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_before_it_is_read() {
    let sidecar = sidecar(limits()).await;
    let message = "the message is 2000000 bytes long, the limit is 1048576";
    let request = with(post("/validate"), "content-length", "2000000");
    let mut stream = TcpStream::connect(sidecar.address).await.expect("connects");
    stream.write_all(webhook::head(&request).as_bytes()).await.expect("sent");
    let refused = webhook::ended(&mut stream).await;
    assert_eq!(refused.http, StatusCode::PAYLOAD_TOO_LARGE);
    refused.assert_says(message);
    // A client that sends the body all the same still gets the reason of the refusal.
    let mut stream = TcpStream::connect(sidecar.address).await.expect("connects");
    stream.write_all(webhook::head(&request).as_bytes()).await.expect("sent");
    let _ = stream.write_all(&vec![b' '; 2_000_000]).await;
    assert_eq!(webhook::ended(&mut stream).await.http, StatusCode::PAYLOAD_TOO_LARGE);

    let caller = front::caller(sidecar.address).await;
    let (response, _stream) = caller.begin(request).await;
    let refused = ended(response).await;
    assert_eq!(refused.http, StatusCode::PAYLOAD_TOO_LARGE);
    refused.assert_says(message);
    let reply = Connection::<TcpStream>::Http2(caller).call(post("/validate"), review("next", 10)).await;
    assert_allowed(&reply, "next");
}

#[tokio::test]
async fn a_body_of_undeclared_length_is_taken_up_to_the_limit() {
    let sidecar = sidecar(limits()).await;
    let chunked = with(post("/validate"), "transfer-encoding", "chunked");
    let send = async |chunks: &[Bytes]| -> Ended {
        let mut stream = TcpStream::connect(sidecar.address).await.expect("connects");
        stream.write_all(webhook::head(&chunked).as_bytes()).await.expect("sent");
        for chunk in chunks {
            let framed = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
            if stream.write_all(&framed).await.is_err() {
                break;
            }
        }
        let _ = stream.write_all(b"0\r\n\r\n").await;
        webhook::ended(&mut stream).await
    };
    let whole = review("chunked", 50_000);
    assert_allowed(&send(&[whole.slice(..7), whole.slice(7..30_000), whole.slice(30_000..)]).await, "chunked");
    send(&vec![Bytes::from(vec![b' '; 100_000]); 11])
        .await
        .assert_says("the body is longer than the limit of 1048576 bytes");
    send(&[]).await.assert_says("the request has no body: send one AdmissionReview");

    let caller = front::caller(sidecar.address).await;
    let pieces = [whole.slice(..7), whole.slice(7..)];
    assert_allowed(&caller.call(post("/validate"), pieces).await, "chunked");
    let refused = caller.call(post("/validate"), vec![Bytes::from(vec![b' '; 100_000]); 11]).await;
    refused.assert_says("the body is longer than the limit of 1048576 bytes");
}

#[tokio::test]
async fn broken_chunks_are_reported() {
    let sidecar = sidecar(limits()).await;
    let mut stream = TcpStream::connect(sidecar.address).await.expect("connects");
    let chunked = with(post("/validate"), "transfer-encoding", "chunked");
    stream.write_all(webhook::head(&chunked).as_bytes()).await.expect("sent");
    stream.write_all(b"zz\r\n").await.expect("sent");
    webhook::ended(&mut stream).await.assert_says("the body cannot be read: its chunks are broken");
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_bounded_by_the_deadline() {
    let sidecar = sidecar(limits()).await;
    let half = with(post("/validate?timeout=100ms"), "content-length", "1000");
    let mut stream = TcpStream::connect(sidecar.address).await.expect("connects");
    stream.write_all(format!("{}{{}}", webhook::head(&half)).as_bytes()).await.expect("sent");
    let late = webhook::ended(&mut stream).await;
    assert_eq!(late.http, StatusCode::REQUEST_TIMEOUT);
    late.assert_says("the message was not complete within 75ms: 2 bytes had arrived");
    let caller = front::caller(sidecar.address).await;
    let (response, mut body) = caller.begin(half).await;
    body.send_data("{}".into(), false).expect("sent");
    ended(response).await.assert_says("the message was not complete within 75ms: 2 bytes had arrived");
}

#[tokio::test]
async fn no_room_in_the_memory_budget() {
    // Reviews have three quarters of it: 270,000.
    let sidecar = sidecar_with_budget(limits(), 360_000).await;
    let whole = review("first", 120_000);
    let request = with(post("/validate"), "content-length", &whole.len().to_string());
    let mut first = TcpStream::connect(sidecar.address).await.expect("connects");
    first.write_all(webhook::head(&request).as_bytes()).await.expect("sent");
    let (most, rest) = whole.split_at(whole.len() - 10);
    first.write_all(most).await.expect("sent");
    until("room is reserved", || sidecar.front.inflight.bytes() > 120_000).await;
    for mut second in both(&sidecar).await {
        let refused = second.call(post("/validate"), review("second", 110_000)).await;
        assert_eq!(
            (refused.http, &refused.headers["retry-after"]),
            (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
        );
    }
    first.write_all(rest).await.expect("sent");
    assert_allowed(&webhook::ended(&mut first).await, "first");
    assert_allowed(&http1(&sidecar).await.call(post("/validate"), review("second", 110_000)).await, "second");
}

#[tokio::test]
async fn body_in_several_payloads_is_copied_once() {
    let sidecar = sidecar(limits()).await;
    let caller = front::caller(sidecar.address).await;
    let whole = review("1", 5000);
    assert_allowed(&caller.call(post("/validate"), [whole.clone()]).await, "1");
    assert_eq!(sidecar.metrics.copied_bytes(), 0);
    let declared = with(post("/validate"), "content-length", &whole.len().to_string());
    let pieces = (0..whole.len()).step_by(100).map(|at| whole.slice(at..(at + 100).min(whole.len())));
    assert_allowed(&caller.call(declared, pieces.collect::<Vec<_>>()).await, "1");
    assert_eq!(sidecar.metrics.copied_bytes(), whole.len() as u64);
}

#[tokio::test]
async fn grpc_over_http_1_is_refused_with_advice() {
    let sidecar = sidecar(limits()).await;
    let grpc = with(post(front::REVIEW), "content-type", "application/grpc");
    let refused = http1(&sidecar).await.call(grpc, "x".into()).await;
    assert_eq!(refused.http, StatusCode::HTTP_VERSION_NOT_SUPPORTED);
    refused.assert_says("gRPC is spoken over HTTP/2 only");
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let sidecar = sidecar(limits()).await;
    let long = with(post("/validate"), "x-long", &"x".repeat(20_000));
    let mut stream = TcpStream::connect(sidecar.address).await.expect("connects");
    let _ = stream.write_all(webhook::head(&long).as_bytes()).await;
    assert_eq!(webhook::ended(&mut stream).await.http, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    until("counted", || sidecar.metric("gatepost_refused_total{reason=\"protocol\"}") == 1.0).await;
}

#[tokio::test]
async fn a_drain_ends_idle_connections_and_lets_requests_end() {
    let sidecar = sidecar(limits()).await;
    let whole = review("last", 1000);
    let request = with(post("/validate"), "content-length", &whole.len().to_string());
    let (mut idle, mut busy) = (http1(&sidecar).await, TcpStream::connect(sidecar.address).await.expect("connects"));
    assert_allowed(&idle.call(post("/validate"), review("1", 10)).await, "1");
    busy.write_all(webhook::head(&request).as_bytes()).await.expect("sent");
    until("the request is read", || sidecar.front.inflight.requests() == 1).await;
    sidecar.shutdown.send(()).expect("serving");
    let Connection::Http1(mut idle) = idle else { unreachable!() };
    assert_eq!(timeout(LONG, idle.read(&mut [0; 10])).await.expect("in time").expect("no reset"), 0, "closed");
    drop(idle);
    busy.write_all(&whole).await.expect("sent");
    let last = webhook::ended(&mut busy).await;
    assert_allowed(&last, "last");
    assert_eq!(last.headers["connection"], "close");
    drop(busy);
    assert_eq!(timeout(Duration::from_secs(20), sidecar.serving).await.expect("ends").expect("joined").cut, 0);
}
