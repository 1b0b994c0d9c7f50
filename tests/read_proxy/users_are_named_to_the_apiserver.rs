//! The user of a request is known to the apiserver by the front proxy's fields or by the client's own token, and by nothing
//! else that a client says.
#![allow(clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use http::Request;
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::json;

use crate::world::{World, ask, reply};

async fn world() -> World {
    World::new(async |_: Request<Incoming>| reply(200, &json!({"kind": "PodList"}))).await
}

const TARGET: &str = "/api/v1/namespaces/shop/pods?limit=5";

#[tokio::test]
async fn the_owner_of_a_certificate_is_named_by_the_front_proxy() {
    let world = world().await;
    let request = ask("GET", TARGET, "").header("x-remote-user", "admin").header("X-Remote-Group", "system:masters");
    let request = request.header("x-remote-extra-scopes", "all").header("impersonate-user", "bob");
    // A token beside a certificate counts for nothing, as at the apiserver.
    let request = request.header("authorization", "Bearer of-somebody");
    let pair = world.pair("ann");
    world.http2(Some(&pair)).await.send_request(request.body(Full::default()).unwrap()).await.unwrap();
    let asked = world.asked().pop().unwrap();
    assert_eq!((asked.certificate.as_deref(), asked.target()), (Some("front-proxy"), TARGET));
    assert_eq!(asked.header("x-remote-user"), ["ann"]);
    assert_eq!(asked.header("x-remote-group"), [""; 0]);
    assert_eq!(asked.header("x-remote-extra-scopes"), [""; 0]);
    let credential = asked.header("x-remote-extra-authentication.kubernetes.io%2fcredential-id");
    assert!(matches!(*credential, [id] if id.starts_with("X509SHA256=")), "{credential:?}");
    assert_eq!(asked.header("authorization"), [""; 0]);
    assert_eq!(asked.header("impersonate-user"), ["bob"], "the apiserver decides whether she may");
    assert_eq!(asked.header("x-forwarded-for"), ["127.0.0.1"]);
}

#[tokio::test]
async fn token_passes_untouched_without_a_certificate() {
    let world = world().await;
    for token in ["of-bob", ""] {
        let request = ask("GET", TARGET, token).header("x-remote-user", "admin").body(Full::default()).unwrap();
        assert_eq!(world.call(request).await.0, 200);
        let asked = world.asked().pop().unwrap();
        assert_eq!(asked.certificate, None);
        assert_eq!(asked.header("x-remote-user"), [""; 0]);
        let wanted: &[&str] = if token.is_empty() { &[] } else { &["Bearer of-bob"] };
        assert_eq!(asked.header("authorization"), wanted);
    }
}

#[tokio::test]
async fn both_versions_of_http_are_spoken_on_either_side() {
    for upstream in [&["h2", "http/1.1"][..], &["http/1.1"]] {
        let world = World::with(async |_: Request<Incoming>| reply(200, &json!({})), upstream, |_| {}).await;
        let pair = world.pair("ann");
        for _ in 0..2 {
            let request = || ask("GET", TARGET, "").body(Full::default()).unwrap();
            assert_eq!(world.http2(Some(&pair)).await.send_request(request()).await.unwrap().status(), 200);
            let mut http1 = Request::get(TARGET).header("host", "proxy").body(Full::default()).unwrap();
            *http1.version_mut() = http::Version::HTTP_11;
            assert_eq!(world.http1(Some(&pair)).await.send_request(http1).await.unwrap().status(), 200);
        }
        let asked = world.asked();
        assert!(asked.iter().all(|asked| asked.header("x-remote-user") == ["ann"] && asked.target() == TARGET));
        assert_eq!(asked.len(), 4);
    }
}

/// A connection may last for days: its certificate is worth no more than in a new handshake.
#[tokio::test]
async fn certificate_of_a_replaced_ca_is_rejected() {
    let world = world().await;
    let pair = world.pair("ann");
    for http2 in [true, false] {
        let request = || Request::get(format!("https://proxy{TARGET}")).header("host", "proxy").body(Full::default());
        let (mut two, mut one) = (world.http2(Some(&pair)).await, world.http1(Some(&pair)).await);
        let mut nobody = world.http2(None).await;
        let mut ask = async || match http2 {
            true => two.send_request(request().unwrap()).await.unwrap().status(),
            false => one.send_request(request().unwrap()).await.unwrap().status(),
        };
        assert_eq!(ask().await, 200);
        world.replace_clients();
        assert_eq!(ask().await, 401);
        assert_eq!(nobody.send_request(request().unwrap()).await.unwrap().status(), 200, "without a certificate");
        world.restore_clients();
    }
    assert!(
        world
            .asked()
            .iter()
            .filter(|asked| asked.certificate.is_some())
            .all(|asked| asked.header("x-remote-user") == ["ann"])
    );
}
