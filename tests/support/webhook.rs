//! Reviews over plain HTTP, as a stock apiserver sends them, by HTTP/1.1 and HTTP/2.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, reason = "test support")]

use bytes::Bytes;
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionReview;
use http::{HeaderMap, HeaderName, Request, StatusCode};
use prost::Message;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

use super::front::{Caller, Ended, LONG};

/// A good review in JSON with an object of about that size.
pub fn review(uid: &str, object: usize) -> Bytes {
    let group = json!({ "group": "", "version": "v1" });
    let mut kind = group.clone();
    kind["kind"] = "Pod".into();
    let mut resource = group;
    resource["resource"] = "pods".into();
    let request = json!({
        "uid": uid, "kind": kind, "resource": resource, "name": "web", "namespace": "shop", "operation": "CREATE",
        "userInfo": { "username": "ann", "groups": ["dev"] }, "dryRun": false, "oldObject": null,
        "object": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" }, "text": "x".repeat(object) },
        "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" },
    });
    json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request }).to_string().into()
}

/// `runtime.Unknown`, what is inside Kubernetes' protobuf envelope.
#[derive(Clone, PartialEq, Message)]
pub struct Unknown {
    #[prost(message, optional, tag = "1")]
    pub types: Option<TypeMeta>,
    #[prost(bytes = "bytes", tag = "2")]
    pub raw: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct TypeMeta {
    #[prost(string, tag = "1")]
    pub api_version: String,
    #[prost(string, tag = "2")]
    pub kind: String,
}

/// A good review in Kubernetes' protobuf envelope.
pub fn enveloped(api_version: &str, uid: &str, object: usize) -> Bytes {
    let raw = super::front::review(uid, object).slice(5..);
    let types = Some(TypeMeta { api_version: api_version.to_owned(), kind: "AdmissionReview".to_owned() });
    [&b"k8s\0"[..], &Unknown { types, raw }.encode_to_vec()].concat().into()
}

/// 200 and a review in an envelope of that version that allows that uid.
pub fn assert_allowed_in_protobuf(reply: &Ended, api_version: &str, uid: &str) {
    assert_eq!(reply.http, StatusCode::OK, "{reply:?}");
    assert_eq!(reply.headers["content-type"], "application/vnd.kubernetes.protobuf");
    let unknown = Unknown::decode(reply.body.strip_prefix(b"k8s\0").expect("an envelope")).expect("protobuf");
    let types = unknown.types.expect("types");
    assert_eq!((&*types.api_version, &*types.kind), (api_version, "AdmissionReview"));
    let response = AdmissionReview::decode(unknown.raw).expect("a review").response.expect("a response");
    assert_eq!((response.uid(), response.allowed()), (uid, true));
}

/// A POST of JSON.
pub fn post(path: &str) -> Request<()> {
    Request::post(format!("https://gatepost{path}")).header("content-type", "application/json").body(()).unwrap()
}

/// 200 and a review of the same version that allows that uid.
pub fn assert_allowed(reply: &Ended, uid: &str) {
    assert_eq!(reply.http, StatusCode::OK, "{reply:?}");
    assert_eq!(reply.headers["content-type"], "application/json");
    let review: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(
        (&review["apiVersion"], &review["kind"], &review["response"]["uid"], &review["response"]["allowed"]),
        (&"admission.k8s.io/v1".into(), &"AdmissionReview".into(), &uid.into(), &true.into()),
        "{review}"
    );
}

/// A connection that speaks one version of HTTP.
pub enum Connection<Io> {
    Http1(Io),
    Http2(Caller),
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Connection<Io> {
    /// A whole request; its length is declared.
    pub async fn call(&mut self, mut request: Request<()>, body: Bytes) -> Ended {
        if !body.is_empty() {
            request.headers_mut().insert("content-length", body.len().into());
        }
        match self {
            Self::Http1(io) => {
                // The answer may come before all of the body is sent, and is then what counts.
                let _ = io.write_all(&[head(&request).as_bytes(), &body].concat()).await;
                ended(io).await
            }
            Self::Http2(caller) => caller.call(request, [body]).await,
        }
    }
}

/// The head of an HTTP/1.1 request.
pub fn head(request: &Request<()>) -> String {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut head = format!("{} {path} HTTP/1.1\r\nhost: gatepost\r\n", request.method());
    for (name, value) in request.headers() {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    head + "\r\n"
}

/// The next answer on an HTTP/1.1 connection.
pub async fn ended<Io: AsyncRead + Unpin>(io: &mut Io) -> Ended {
    timeout(LONG, reading(io)).await.expect("answered")
}

async fn reading<Io: AsyncRead + Unpin>(io: &mut Io) -> Ended {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(
            io.read_u8().await.unwrap_or_else(|error| panic!("{error} after {:?}", String::from_utf8_lossy(&head))),
        );
    }
    let head = String::from_utf8(head).expect("ASCII");
    let mut lines = head.trim_end().split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status line");
    let headers: HeaderMap = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (HeaderName::try_from(name).unwrap(), value.parse().unwrap()))
        .collect();
    let length = headers.get("content-length").map_or(0, |length| length.to_str().unwrap().parse().unwrap());
    let mut body = vec![0; length];
    io.read_exact(&mut body).await.expect("the body");
    Ended { http: status.parse().unwrap(), headers, body: body.into(), status: None, message: String::new() }
}
