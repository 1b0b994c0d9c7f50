//! A patch comes from a hook in any protocol, and goes back to the caller in the encoding of its call.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use base64::Engine as _;
use bytes::Bytes;
use gatepost::{
    front::{FrontLimits, Listener},
    review::{AdmissionDeps, Reasons},
};
use gatepost_api::Rope;
use gatepost_json_patch::{Document, Patch, PatchLimits};
use gatepost_wire::pb::k8s::io::api::admission::v1::{AdmissionResponse, AdmissionReview};
use http::StatusCode;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    front::{REVIEW, Sidecar, before, caller, grpc, with},
    support::{
        gate::{document, gate, hook},
        http_hook::{HttpHook, HttpScript},
        mutating::{entry, judging, labels},
        reviews::{create_pod, message, pod},
        scripted_hook::{Script, ScriptedHook},
    },
    webhook::{self, Connection, TypeMeta, Unknown, post},
};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PATCH: &str = r#"[{"op":"add","path":"/metadata/labels","value":{"a":"1"}}]"#;

async fn front_of(gate: Arc<AdmissionDeps>) -> Sidecar {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    gate.current.freshness().stamp_awake(Instant::now() + Duration::from_secs(3600));
    before(gate, FrontLimits::default(), address, Listener::Tcp(listener))
}

/// A review in Kubernetes' protobuf envelope.
fn enveloped(review: Bytes) -> Bytes {
    let types = Some(TypeMeta { api_version: "admission.k8s.io/v1".into(), kind: "AdmissionReview".into() });
    [&b"k8s\0"[..], &Unknown { types, raw: review }.encode_to_vec()].concat().into()
}

fn yes() -> AdmissionResponse {
    AdmissionResponse {
        uid: Some("u".into()),
        allowed: Some(true),
        patch: Some(PATCH.into()),
        patch_type: Some("JSONPatch".into()),
        ..AdmissionResponse::default()
    }
}

/// The same in JSON.
fn in_json() -> HttpScript {
    let patch = base64::engine::general_purpose::STANDARD.encode(PATCH);
    HttpScript::Respond(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

/// Ways to call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// gRPC, by this method.
    Grpc(&'static str),
    Json,
    Protobuf,
}

/// The object that was sent that way, and the patch that came back.
async fn called(sidecar: &Sidecar, way: Way) -> (Bytes, Bytes) {
    let caller = caller(sidecar.address).await;
    let whole = message(create_pod("u", 0));
    let response = |review: AdmissionReview| {
        let AdmissionResponse { allowed, patch, patch_type, .. } = review.response.expect("a response");
        assert_eq!((allowed, patch_type.as_deref()), (Some(true), Some("JSONPatch")), "{way:?}");
        patch.expect("a patch")
    };
    match way {
        Way::Grpc(path) => {
            let reply = caller.call(grpc(path), [whole]).await;
            assert_eq!(reply.status, Some(0), "{reply:?}");
            (pod(0), response(AdmissionReview::decode(&reply.body[5..]).unwrap()))
        }
        Way::Json => {
            let body = webhook::review("u", 0);
            let object = serde_json::from_slice::<Value>(&body).unwrap()["request"]["object"].to_string();
            let mut connection = Connection::<tokio::io::DuplexStream>::Http2(caller);
            let reply = connection.call(post("/mutate?timeout=10s"), body).await;
            let response = serde_json::from_slice::<Value>(&reply.body).unwrap()["response"].take();
            assert_eq!(
                (&response["allowed"], &response["patchType"]),
                (&json!(true), &json!("JSONPatch")),
                "{response}"
            );
            let patch = base64::engine::general_purpose::STANDARD.decode(response["patch"].as_str().unwrap());
            (object.into(), patch.unwrap().into())
        }
        Way::Protobuf => {
            let mut connection = Connection::<tokio::io::DuplexStream>::Http2(caller);
            let request = with(post("/mutate?timeout=10s"), "content-type", PROTOBUF);
            let reply = connection.call(request, enveloped(whole.slice(5..))).await;
            assert_eq!((reply.http, &reply.headers["content-type"]), (StatusCode::OK, &PROTOBUF.parse().unwrap()));
            let unknown = Unknown::decode(reply.body.strip_prefix(b"k8s\0").expect("an envelope")).unwrap();
            (pod(0), response(AdmissionReview::decode(unknown.raw).unwrap()))
        }
    }
}

#[tokio::test]
async fn whatever_hook_and_caller_speak_the_patch_comes_back() {
    let json = HttpHook::plain(in_json()).await;
    let answer = AdmissionReview { response: Some(yes()), ..AdmissionReview::default() }.encode_to_vec();
    let headers = vec![("content-type", PROTOBUF.to_owned())];
    let protobuf = HttpHook::plain(HttpScript::Reply(200, headers, enveloped(answer.into()))).await;
    let over_grpc = ScriptedHook::start(Script::Respond(yes())).await;
    let judges = judging(|request| json!({"allowed": *labels(request) == json!({"a": "1"})})).await;
    let of = |url: String, protocol: &str| {
        hook("m.example.com", &url, &format!("type: Mutating\n{protocol}sideEffects: None"))
    };
    for (spoken, entry_of_hook) in [
        ("json", of(format!("{}/", json.url()), "protocol: json\n")),
        ("protobuf", of(format!("{}/", protobuf.url()), "protocol: protobuf\n")),
        ("grpc", of(over_grpc.url(), "")),
    ] {
        let validating = entry("v", "Validating", &judges, "sideEffects: None");
        let sidecar = front_of(gate(&document(&[entry_of_hook, validating]), Reasons::First)).await;
        for way in [Way::Grpc(REVIEW), Way::Grpc("/gatepost.v1.Admission/Mutate"), Way::Json, Way::Protobuf] {
            judges.forget();
            let (object, patch) = called(&sidecar, way).await;
            let document = Document::new(Rope::new([object])).unwrap();
            let patched = document.patched(&Patch::parse(patch).unwrap(), PatchLimits::default()).unwrap();
            let patched: Value = serde_json::from_slice(&patched.rope().to_bytes()).unwrap();
            assert_eq!(patched["metadata"]["labels"], json!({"a": "1"}), "{spoken} {way:?}");
            // Only Review goes on to the validating hooks, about the changed object.
            assert_eq!(judges.seen().len(), usize::from(way == Way::Grpc(REVIEW)), "{spoken} {way:?}");
        }
    }
    let seen = protobuf.seen();
    assert!(seen.len() == 4 && seen.iter().all(|seen| seen.body.starts_with(b"k8s\0")), "{}", seen.len());
}

/// Where the caller sends each version in a review of its own, hooks of other versions are left to these.
#[tokio::test]
async fn one_version_is_mutated_apart() {
    let (one, two) = (HttpHook::plain(in_json()).await, HttpHook::plain(HttpScript::Allow).await);
    let any = r#"apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"]"#;
    let entry = |version: &str, at: &HttpHook| {
        let wanted = format!("apiGroups: [x.io], apiVersions: [{version}], resources: [things]");
        entry(version, "Mutating", at, "sideEffects: None").replace(any, &wanted)
    };
    let sidecar = front_of(gate(&document(&[entry("v1", &one), entry("v2", &two)]), Reasons::First)).await;
    let mut connection = Connection::<tokio::io::DuplexStream>::Http2(caller(sidecar.address).await);
    let pods = String::from_utf8(webhook::review("u", 0).to_vec()).unwrap();
    let things = pods.replace(r#""group":"""#, r#""group":"x.io""#).replace(r#""pods""#, r#""things""#);
    // The one that can be asked is asked first, and once more.
    for (path, code, asked) in [("/mutate", Some(500), [1, 0]), ("/mutate/one-version", None, [2, 0])] {
        let reply = connection.call(post(&format!("{path}?timeout=10s")), things.clone().into()).await;
        let response = serde_json::from_slice::<Value>(&reply.body).unwrap()["response"].take();
        assert_eq!(response["status"]["code"].as_u64(), code, "{path}: {response}");
        assert_eq!(response["patch"].is_string(), code.is_none(), "{path}: {response}");
        assert_eq!([one.seen().len(), two.seen().len()], asked, "{path}");
    }
}
