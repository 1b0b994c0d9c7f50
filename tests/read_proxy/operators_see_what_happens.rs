//! Operators see on the admin address whether clients may be sent to the proxy, and what has become of their requests.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Notify, mpsc},
    time::timeout,
};

use crate::world::{
    Content, LONG, World, ask, chunks, config_map, content, is_review, page, reply, review, until_metric,
};

const ALL: &str = "/api/v1/namespaces/shop/configmaps";

/// Objects that begin with `new` are not initialized; a new one is at once. Everybody's token is the owner's name, but for
/// `nobody`.
async fn apiserver(request: Request<Incoming>) -> Response<Content> {
    if is_review(&request) {
        let answer = review(request).await;
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        let mut answer: serde_json::Value = serde_json::from_slice(&body).unwrap();
        if answer["spec"]["token"] == "nobody" {
            answer["status"] = json!({"authenticated": false});
        }
        return reply(201, &answer);
    }
    let name = request.uri().path().split('/').nth(6).unwrap_or_default();
    let query = request.uri().query().unwrap_or_default();
    match *request.method() {
        Method::POST => reply(201, &config_map("a", 5, Some(&["x"]))),
        Method::GET if query.contains("watch=1") => {
            let event = json!({"type": "MODIFIED", "object": config_map("a", 9, None)});
            Response::new(content(format!("{event}\n")))
        }
        Method::GET if name.is_empty() => reply(200, &json!({"kind": "ConfigMapList", "metadata": {}, "items": []})),
        _ if name == "a" => reply(200, &config_map("a", 9, None)),
        _ => reply(200, &config_map(name, 7, name.starts_with("new").then_some(&["x"]))),
    }
}

#[tokio::test]
async fn each_outcome_is_counted() {
    let world = World::new(apiserver).await;
    let admin = world.admin().await;
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    for (token, target, code) in [
        ("ann", "/api/v1/secrets", 200),
        ("ann", ALL, 200),
        ("ann", ALL, 200),
        (collector, ALL, 200),
        ("ann", &format!("{ALL}?includeUninitialized=true"), 200),
        ("ann", &format!("{ALL}/old"), 200),
        ("ann", &format!("{ALL}/new"), 202),
        ("nobody", ALL, 401),
        ("ann", &format!("{ALL}//a"), 400),
    ] {
        assert_eq!(world.get(token, target).await.0, code, "{token} {target}");
    }
    let object = json!({"kind": "ConfigMap"});
    assert_eq!(world.post(&format!("{ALL}?dryRun=All"), &object).await.0, 201);
    assert_eq!(world.post(ALL, &object).await.0, 201);
    let (status, metrics) = page(admin, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "requests_total{outcome=\"passed\"} 2",
        "requests_total{outcome=\"filtered\"} 3",
        "requests_total{outcome=\"shown\"} 1",
        "requests_total{outcome=\"hidden\"} 1",
        "requests_total{outcome=\"written\"} 1",
        "requests_total{outcome=\"held\"} 1",
        "requests_total{outcome=\"refused\"} 2",
        "requests_total{outcome=\"abandoned\"} 0",
        "refused_total{reason=\"unauthorized\"} 1",
        "refused_total{reason=\"bad_request\"} 1",
        "hold_ends_total{end=\"completed\"} 1",
        "holds 0.0",
        "questions_total{question=\"token\",outcome=\"yes\"} 2",
        "questions_total{question=\"token\",outcome=\"no\"} 1",
        "questions_total{question=\"access\",outcome=\"no\"} 1",
        "questions_asked 0.0",
        "upstream_failures_total{kind=\"own\"} 0",
        "inspected_limit_bytes{purpose=\"read\"} 201326592.0",
    ] {
        let line = format!("gatepost_read_proxy_{line}");
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    assert!(metrics.contains("\nprocess_resident_memory_bytes "), "{metrics}");
    for secret in ["ann", "nobody", "collector", "configmaps"] {
        assert!(!metrics.contains(secret), "what a client chooses is no label: {secret}");
    }
}

#[tokio::test]
async fn holds_and_connections_that_are_under_way_are_seen() {
    let (opened, watches) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::new())));
    let (opens, kept) = (Arc::clone(&opened), Arc::clone(&watches));
    let world = World::new(move |request: Request<Incoming>| {
        let (opens, kept) = (Arc::clone(&opens), Arc::clone(&kept));
        async move {
            if !request.uri().query().is_some_and(|query| query.contains("watch=1")) {
                return apiserver(request).await;
            }
            let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
            kept.lock().unwrap().push(sender);
            opens.notify_one();
            Response::new(chunks(receiver))
        }
    })
    .await;
    let admin = world.admin().await;
    let mut creator = world.http2(None).await;
    let request = ask("POST", ALL, "ann").body(Full::from("{}")).unwrap();
    let held = tokio::spawn(async move { creator.send_request(request).await });
    timeout(LONG, opened.notified()).await.expect("it is held");
    let metrics = page(admin, "/metrics").await.1;
    for line in ["holds 1.0", "holds_limit 16.0", "open_connections 1.0", "connections_limit 64.0"] {
        let line = format!("gatepost_read_proxy_{line}");
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    let oldest = metrics.lines().find_map(|line| line.strip_prefix("gatepost_read_proxy_oldest_hold_seconds "));
    assert!(oldest.unwrap().parse::<f64>().unwrap() > 0.0, "{metrics}");
    held.abort();
    until_metric(admin, "gatepost_read_proxy_hold_ends_total{end=\"abandoned\"} 1").await;
    until_metric(admin, "gatepost_read_proxy_requests_total{outcome=\"abandoned\"} 1").await;
    until_metric(admin, "gatepost_read_proxy_holds 0.0").await;
    until_metric(admin, "gatepost_read_proxy_open_connections 0.0").await;
}

#[tokio::test]
async fn an_apiserver_that_fails_is_seen() {
    let world = World::with(
        async |request: Request<Incoming>| -> Response<Content> {
            match is_review(&request) {
                true => reply(500, &json!({"kind": "Status", "code": 500})),
                false => panic!("the connection is cut"),
            }
        },
        &["http/1.1"],
        |_| {},
    )
    .await;
    let admin = world.admin().await;
    assert_eq!(world.get("ann", "/api/v1/secrets").await.0, 502);
    assert_eq!(world.get("ann", ALL).await.0, 503);
    for line in [
        "refused_total{reason=\"lost\"} 1",
        "refused_total{reason=\"unanswered\"} 1",
        "upstream_failures_total{kind=\"lost\"} 1",
        "upstream_failures_total{kind=\"own\"} 1",
        "questions_total{question=\"token\",outcome=\"failed\"} 1",
    ] {
        until_metric(admin, &format!("gatepost_read_proxy_{line}")).await;
    }
}

#[tokio::test]
async fn proxy_is_ready_from_the_first_answer_until_the_drain() {
    let refusals = AtomicUsize::new(1);
    let world = World::new(move |request: Request<Incoming>| {
        let refused = refusals.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        async move {
            match refused {
                true => reply(403, &json!({"kind": "Status", "reason": "Forbidden", "code": 403})),
                false => apiserver(request).await,
            }
        }
    })
    .await;
    let admin = world.admin().await;
    let unanswered = "not ready: the apiserver has not answered a question about a user yet; see the log\n";
    assert_eq!(page(admin, "/readyz").await, (503, unanswered.to_owned()));
    assert_eq!(page(admin, "/livez").await, (200, "ok\n".to_owned()));
    timeout(LONG, world.proxy.await_apiserver()).await.expect("it answers the second time");
    assert_eq!(world.own().len(), 2, "a refusal is no answer");
    assert_eq!(page(admin, "/readyz").await, (200, "ok\n".to_owned()));
    assert_eq!(page(admin, "/x").await, (404, "there are /livez, /readyz and /metrics\n".to_owned()));
    world.stop();
    let draining = async {
        while page(admin, "/readyz").await != (503, "not ready: shutting down\n".to_owned()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, draining).await.expect("it drains");
}

#[tokio::test]
async fn an_upload_that_breaks_off_is_no_failure_of_the_apiserver() {
    let world = World::new(|request: Request<Incoming>| async move {
        let _ = http_body_util::BodyExt::collect(request.into_body()).await;
        reply(201, &config_map("a", 5, None))
    })
    .await;
    let admin = world.admin().await;
    let mut client = world.raw_http1(None).await;
    let begun =
        format!("POST {ALL} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ann\r\ncontent-length: 100\r\n\r\n{{");
    client.write_all(begun.as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = Vec::new();
    timeout(LONG, client.read_to_end(&mut answer)).await.expect("it is answered").unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("ends before its end"), "{answer}");
    until_metric(admin, "gatepost_read_proxy_requests_total{outcome=\"abandoned\"} 1").await;
    let metrics = page(admin, "/metrics").await.1;
    let lost = "gatepost_read_proxy_refused_total{reason=\"lost\"} 0";
    assert!(metrics.lines().any(|found| found == lost), "{metrics}");
}
