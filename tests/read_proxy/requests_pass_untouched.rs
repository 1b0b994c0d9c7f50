//! Requests that have nothing to do with unfinished objects pass as they are: streams, upgrades, compressed content,
//! errors.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    time::timeout,
};

use crate::world::{Content, LONG, World, ask, chunks, content, reply};

#[tokio::test]
async fn watch_events_arrive_one_by_one() {
    let senders = Arc::new(Mutex::new(Vec::new()));
    let scripted = Arc::clone(&senders);
    let world = World::new(move |_: Request<Incoming>| {
        let (sender, receiver) = mpsc::unbounded_channel();
        scripted.lock().unwrap().push(sender);
        async { Response::new(chunks(receiver)) }
    })
    .await;
    for http2 in [true, false] {
        let target = "/api/v1/configmaps?watch=1&allowWatchBookmarks=true";
        let request = ask("GET", target, "").body(Full::default()).unwrap();
        let answer = match http2 {
            true => world.http2(None).await.send_request(request).await.unwrap(),
            false => {
                let request = Request::get(target).header("host", "proxy").body(Full::default()).unwrap();
                world.http1(None).await.send_request(request).await.unwrap()
            }
        };
        let mut events = answer.into_body();
        let sender = senders.lock().unwrap().pop().expect("a watch");
        for event in ["{\"type\":\"ADDED\"}\n", "{\"type\":\"BOOKMARK\"}\n"] {
            sender.send(Bytes::from(event)).expect("it is watched");
            let frame = timeout(LONG, events.frame()).await.expect("at once").expect("an event").expect("it lasts");
            assert_eq!(frame.into_data().unwrap(), event);
        }
        drop(events);
        timeout(LONG, sender.closed()).await.expect("the apiserver's watch ends, too");
    }
}

/// An apiserver that goes on in another protocol, and says everything once more in capitals.
async fn upgrades(mut request: Request<Incoming>) -> Response<Content> {
    assert_eq!(request.headers()["upgrade"], "SPDY/3.1");
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.expect("upgraded"));
        let mut read = [0; 5];
        while stream.read_exact(&mut read).await.is_ok() {
            stream.write_all(&read.map(|byte| byte.to_ascii_uppercase())).await.expect("written");
        }
    });
    let answer = Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
    answer.header("x-stream-protocol-version", "v4.channel.k8s.io").body(content("")).unwrap()
}

const EXEC: &str = "/api/v1/namespaces/shop/pods/web/exec?command=sh&stdin=true";

/// A connection of ann that has become another protocol.
async fn upgraded(world: &World) -> TokioIo<Upgraded> {
    let request = Request::post(EXEC).header("host", "proxy").header("connection", "Upgrade");
    let request = request.header("upgrade", "SPDY/3.1").body(Full::default()).unwrap();
    let mut answer = world.http1(Some(&world.pair("ann"))).await.send_request(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(answer.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
    TokioIo::new(hyper::upgrade::on(&mut answer).await.unwrap())
}

async fn echoes(stream: &mut TokioIo<Upgraded>) {
    stream.write_all(b"hello").await.unwrap();
    let mut read = [0; 5];
    timeout(LONG, stream.read_exact(&mut read)).await.expect("in time").unwrap();
    assert_eq!(&read, b"HELLO");
}

#[tokio::test]
async fn an_upgraded_connection_passes_bytes_both_ways() {
    let world = World::new(upgrades).await;
    let mut stream = upgraded(&world).await;
    echoes(&mut stream).await;
    echoes(&mut stream).await;
    let asked = world.asked().pop().unwrap();
    assert_eq!((asked.certificate.as_deref(), asked.target()), (Some("front-proxy"), EXEC));
    assert_eq!(asked.header("x-remote-user"), ["ann"]);
}

#[tokio::test]
async fn an_upgraded_connection_is_drained_as_any_other() {
    let world = World::draining(upgrades, &["http/1.1"], |_| {}, LONG).await;
    let mut stream = upgraded(&world).await;
    world.stop();
    for _ in 0..20 {
        echoes(&mut stream).await;
    }
    assert!(!world.serving.is_finished(), "it is under way");
    drop(stream);
    timeout(LONG, world.serving).await.expect("it was the last").unwrap();
}

#[tokio::test]
async fn an_upgraded_connection_is_cut_when_time_is_up() {
    let world = World::new(upgrades).await;
    let mut stream = upgraded(&world).await;
    world.stop();
    let ended = timeout(LONG, stream.read(&mut [0])).await.expect("it ends");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn a_refused_upgrade_is_an_answer() {
    let world = World::new(async |_: Request<Incoming>| reply(403, &json!({"kind": "Status", "code": 403}))).await;
    let request = Request::get("/api/v1/namespaces/shop/pods/web/attach").header("connection", "upgrade");
    let request = request.header("host", "proxy").header("upgrade", "websocket").body(Full::default()).unwrap();
    assert_eq!(world.http1(None).await.send_request(request).await.unwrap().status(), 403);
}

#[tokio::test]
async fn content_and_fields_pass_as_they_are() {
    let world = World::new(async |request: Request<Incoming>| {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let answer = Response::builder().status(409).header("content-type", "application/vnd.kubernetes.protobuf");
        let answer = answer.header("content-encoding", "gzip").header("x-kubernetes-pf-flowschema-uid", "f");
        let answer = answer.header("warning", "299 - \"a\"").header("warning", "299 - \"b\"");
        assert_eq!(parts.headers["accept-encoding"], "gzip");
        answer.body(content([&body[..], &[0x1f, 0x8b, 0]].concat())).unwrap()
    })
    .await;
    let big = vec![7; 3 << 20];
    for target in ["/api/v1/namespaces/shop/secrets", "/apis/apps/v1/namespaces/a/deployments/b/scale?x=%2F&y"] {
        let request = ask("PUT", target, "t").header("accept-encoding", "gzip").header("x-mine", "1");
        let (status, headers, body) = world.call(request.body(Full::from(big.clone())).unwrap()).await;
        assert_eq!((status.as_u16(), body.len()), (409, big.len() + 3));
        assert_eq!(headers["content-encoding"], "gzip");
        assert_eq!(headers.get_all("warning").iter().count(), 2);
        let asked = world.asked().pop().unwrap();
        assert_eq!((asked.target(), &*asked.header("x-mine")), (target, &["1"][..]));
    }
}

#[tokio::test]
async fn an_apiserver_that_is_away_is_a_503_and_nothing_is_sent_twice() {
    // Its answer breaks off before it has begun.
    let world = World::with(
        async |_: Request<Incoming>| -> Response<Content> { panic!("the connection is cut") },
        &["http/1.1"],
        |_| {},
    )
    .await;
    let request = ask("POST", "/api/v1/namespaces/shop/secrets", "t").body(Full::from("{}")).unwrap();
    let (status, headers, body) = world.call(request).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{body:?}");
    assert!(!headers.contains_key("retry-after"), "it may have been done");
    assert_eq!(world.asked().len(), 1);
}
