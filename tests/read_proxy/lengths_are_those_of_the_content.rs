//! Over HTTP/1.1 a connection to the apiserver carries one user's request after another's. Each ends where its head says.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    time::timeout,
};

use crate::world::{LONG, ServerStream, World, config_map, reply};

const ONE: &str = "/api/v1/namespaces/shop/configmaps/a";
const ALL: &str = "/api/v1/namespaces/shop/configmaps";
const OTHERS: &str = "/api/v1/namespaces/kube-system/secrets";

/// Request as the bytes of its connection say.
struct Message {
    head: String,
    content: Vec<u8>,
}

impl Message {
    fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    /// Method and path.
    fn line(&self) -> &str {
        self.head.split(['?', '\r']).next().unwrap().trim_end_matches(" HTTP/1.1")
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// An HTTP/1.1 apiserver that answers at the end of a head, and only then reads the content. Tells of clients' requests.
async fn answers_early(mut stream: ServerStream, requests: mpsc::UnboundedSender<Message>) {
    let mut bytes = Vec::new();
    loop {
        let ends = |bytes: &[u8]| bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        let end = loop {
            match ends(&bytes) {
                Some(end) => break end,
                None if stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) => {}
                None => return,
            }
        };
        let head = String::from_utf8(bytes.drain(..end).collect()).expect("a head");
        let (form, text) = match field(&head, "accept") {
            Some(accept) if accept.contains("PartialObjectMetadata") => {
                ("application/json", config_map("a", 7, None).to_string())
            }
            _ => ("application/yaml", "kind: ConfigMap".to_owned()),
        };
        let text = if head.starts_with("HEAD ") { String::new() } else { text };
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: {form}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        stream.write_all(answer.as_bytes()).await.expect("written");
        let length = field(&head, "content-length").map_or(0, |length| length.parse().expect("a length"));
        while bytes.len() < length {
            if !stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
                return;
            }
        }
        let content = bytes.drain(..length).collect();
        if field(&head, "authorization") != Some("Bearer of-the-proxy") {
            requests.send(Message { head, content }).expect("the test goes on");
        }
    }
}

#[tokio::test]
async fn no_request_has_a_length_that_its_content_does_not_have() {
    let (sender, mut requests) = mpsc::unbounded_channel();
    let world = World::over(&["http/1.1"], move |stream| answers_early(stream, sender.clone())).await;
    let mallory = world.pair("mallory");
    let mut admin = world.http1(Some(&world.pair("admin"))).await;
    for (method, target, content, passed) in [
        // Its answer shows no head, so that it is sent a second time.
        ("GET", ONE, "hello", &[None, None][..]),
        ("HEAD", ONE, "hello", &[None]),
        ("GET", ALL, "hello", &[Some("hello")]),
        ("GET", OTHERS, "hello", &[Some("hello")]),
        ("POST", OTHERS, "hello", &[Some("hello")]),
        ("POST", OTHERS, "", &[Some("")]),
        ("DELETE", ONE, "hello", &[Some("hello")]),
        ("DELETE", ONE, "", &[None]),
    ] {
        let request = Request::builder().method(method).uri(target).header("host", "proxy");
        let request = request.header("accept", "application/yaml").header("content-type", "application/json");
        let request = request.body(Full::from(content)).unwrap();
        let answer =
            timeout(LONG, world.http1(Some(&mallory)).await.send_request(request)).await.expect("in time").unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{method} {target}");
        answer.into_body().collect().await.unwrap();
        // The next one on that connection.
        let request = Request::get(OTHERS).header("host", "proxy").body(Full::default()).unwrap();
        let answer = timeout(LONG, admin.send_request(request)).await.expect("in time").unwrap();
        answer.into_body().collect().await.unwrap();
        for passed in passed {
            let request = timeout(LONG, requests.recv()).await.expect("in time").unwrap();
            assert_eq!(
                (request.line(), request.field("x-remote-user")),
                (&*format!("{method} {target}"), Some("mallory"))
            );
            let length = passed.map(|content| content.len().to_string());
            assert_eq!(request.field("content-length"), length.as_deref(), "{}", request.head);
            assert_eq!(request.content, passed.unwrap_or_default().as_bytes(), "{}", request.head);
            let is_repeated = target == ONE && method != "DELETE";
            assert_eq!(request.field("content-type").is_some(), !is_repeated, "{}", request.head);
        }
        let request = timeout(LONG, requests.recv()).await.expect("in time").unwrap();
        assert_eq!((request.line(), request.field("x-remote-user")), (&*format!("GET {OTHERS}"), Some("admin")));
    }
}

#[tokio::test]
async fn trailers_of_a_client_are_dropped() {
    for protocol in ["h2", "http/1.1"] {
        let script = async |request: Request<Incoming>| {
            let content = request.into_body().collect().await.unwrap();
            let trailers = content.trailers().map(|trailers| trailers.len());
            reply(200, &json!({"trailers": trailers, "content": String::from_utf8_lossy(&content.to_bytes())}))
        };
        let world = World::with(script, &[protocol], |_| {}).await;
        let mut client = world.raw_http1(Some(&world.pair("mallory"))).await;
        let head = format!("POST {OTHERS} HTTP/1.1\r\nhost: proxy\r\nconnection: close, te\r\nte: trailers\r\n");
        let rest =
            "transfer-encoding: chunked\r\ntrailer: X-Remote-User\r\n\r\n2\r\n{}\r\n0\r\nX-Remote-User: admin\r\n\r\n";
        client.write_all(format!("{head}{rest}").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A connection that ends without a word of TLS is none of this test's affairs.
        let _ = timeout(LONG, client.read_to_end(&mut answer)).await.expect("in time");
        let body = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let told: Value = serde_json::from_slice(&Bytes::from(answer).slice(body..)).expect("an answer");
        assert_eq!(told, json!({"trailers": null, "content": "{}"}), "{protocol}");
        let asked = world.asked().pop().unwrap();
        assert_eq!((asked.header("trailer"), asked.header("x-remote-user")), (vec![], vec!["mallory"]), "{protocol}");
    }
}
