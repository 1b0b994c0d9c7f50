//! Bad answers of a mutating hook to one caller's requests: each gets its own error, and requests of other callers, to
//! other hooks of the same sidecar, are decided meanwhile as if there were none.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{net::SocketAddr, sync::LazyLock};

use gatepost::{
    front::{FrontLimits, Listener},
    review::Reasons,
};
use gatepost_wire::{
    pb::k8s::io::api::admission::v1::{AdmissionRequest, AdmissionResponse, AdmissionReview},
    request,
};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    front::{Caller, REVIEW, before, caller, grpc},
    support::{
        gate::{document, gate},
        http_hook::HttpHook,
        mutating::{add_label, entry, judging, labels, patch},
        reviews::{create_pod, message},
    },
};

/// Callers of each kind, each with a connection of its own.
const CALLERS: usize = 3;
/// Requests of each, one after another.
const ROUNDS: usize = 10;

/// Answers of the bad hook, and whether its request is refused.
static BAD: LazyLock<Vec<(Value, bool)>> = LazyLock::new(|| {
    let operations = |count: usize| {
        let one = json!({"op": "replace", "path": "/data/a", "value": "b"});
        patch(std::iter::repeat_n(one, count).collect())
    };
    let nested = (0..1000).fold(json!({}), |inner, _| Value::Object([("a".to_owned(), inner)].into_iter().collect()));
    let deep = json!([
        {"op": "add", "path": "/deep", "value": nested},
        {"op": "add", "path": format!("/deep{}/b", "/a".repeat(1000)), "value": 1},
    ]);
    vec![
        (json!({"allowed": true, "patchType": "JSONPatch", "patch": "no base64"}), true),
        (json!({"allowed": true, "patchType": "JSONPatch", "patch": "e30="}), true),
        (patch(json!([1, 2])), true),
        (patch(json!([{"op": "remove", "path": "/nowhere/at/all"}])), true),
        (patch(json!([{"op": "replace", "path": "/data".repeat(1000), "value": 1}])), true),
        (patch(deep), false),
        (operations(10_000), false),
        (operations(10_001), true),
        (patch(json!([{"op": "replace", "path": "/kind", "value": "Secret"}])), true),
        (json!({"uid": "other", "allowed": true}), true),
    ]
});

/// The number that a request's uid ends with.
fn number(uid: &str) -> usize {
    uid.rsplit('-').next().unwrap().parse().unwrap()
}

fn of(resource: &str, name: &str, hook_type: &str, at: &HttpHook) -> String {
    let any = r#"apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"]"#;
    let entry = entry(name, hook_type, at, "sideEffects: None\nfailurePolicy: Fail\ntimeout: 30s");
    let narrow = entry.replace(any, &format!("apiGroups: [''], apiVersions: [v1], resources: [{resource}]"));
    assert_ne!(narrow, entry);
    narrow
}

async fn reviewed(caller: &Caller, request: AdmissionRequest) -> AdmissionResponse {
    let uid = request.uid().to_owned();
    let ended = caller.call(grpc(REVIEW), [message(request)]).await;
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let response = AdmissionReview::decode(&ended.body[5..]).unwrap().response.expect("a response");
    assert_eq!(response.uid(), uid);
    response
}

/// Requests of a caller whose hook answers badly.
async fn disturbing(to: SocketAddr, n: usize) {
    let caller = caller(to).await;
    for round in 0..ROUNDS {
        let config_map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"hunter2"}}"#;
        let number = n + round;
        let uid = format!("bad-{n}-{number}");
        let request = request::create(&uid, "ConfigMap", "configmaps", config_map.into());
        let response = reviewed(&caller, AdmissionRequest { namespace: Some("shop".into()), ..request }).await;
        let (_, refused) = BAD[number % BAD.len()];
        assert_eq!(response.allowed(), !refused, "{number}: {:?}", response.status);
        assert_eq!(response.patch.is_some(), !refused, "{number}");
        if refused {
            let message = response.status.expect("why").message.expect("a message");
            assert!(message.contains("\"bad.example.com\"") && !message.contains("hunter2"), "{number}: {message}");
        }
    }
}

/// Requests of a caller whose hooks do no wrong: one adds a label, the next refuses every third.
async fn undisturbed(to: SocketAddr, n: usize) {
    let caller = caller(to).await;
    for round in 0..ROUNDS {
        let number = n + round;
        let uid = format!("good-{n}-{number}");
        let response = reviewed(&caller, create_pod(&uid, 2000)).await;
        let message = response.status.as_ref().and_then(|status| status.message.as_deref());
        if number.is_multiple_of(3) {
            assert_eq!((response.allowed(), response.patch.is_some()), (false, false), "{uid}");
            assert!(message.is_some_and(|message| message.contains(&format!("no to {uid}"))), "{message:?}");
        } else {
            assert!(response.allowed(), "{uid}: {message:?}");
            let operations: Value = serde_json::from_slice(&response.patch.expect("a patch")).unwrap();
            assert_eq!(operations[0]["path"], "/metadata/labels/of", "{uid}: {operations}");
            assert_eq!(operations[0]["value"], json!(uid), "{operations}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_answer_to_one_caller_affects_no_other() {
    let bad = judging(|request| BAD[number(request["uid"].as_str().unwrap()) % BAD.len()].0.clone()).await;
    let label = judging(|request| add_label("of", request["uid"].as_str().unwrap())).await;
    // It allows nothing that was not labelled for just this request.
    let judge = judging(|request| {
        let uid = request["uid"].as_str().unwrap();
        let labelled = labels(request)["of"] == json!(uid);
        let refused = number(uid).is_multiple_of(3);
        json!({"allowed": labelled && !refused, "status": {"message": format!("no to {uid}, {labelled}")}})
    })
    .await;
    let gate = gate(
        &document(&[
            of("configmaps", "bad", "Mutating", &bad),
            of("pods", "label", "Mutating", &label),
            of("pods", "judge", "Validating", &judge),
        ]),
        Reasons::First,
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sidecar = before(gate, FrontLimits::default(), address, Listener::Tcp(listener));

    let mut callers = JoinSet::new();
    for n in 0..CALLERS {
        callers.spawn(disturbing(address, n));
        callers.spawn(undisturbed(address, n));
    }
    while let Some(ended) = callers.join_next().await {
        ended.expect("every verdict is right");
    }
    for seen in [bad.seen().len(), label.seen().len(), judge.seen().len()] {
        assert_eq!(seen, CALLERS * ROUNDS, "each request was asked about once");
    }
    let metrics = sidecar.metrics.render().unwrap();
    let failed = |line: &&str| line.starts_with("gatepost_hook_call_failures_total{") && !line.ends_with(" 0");
    let failed: Vec<_> = metrics.lines().filter(failed).collect();
    assert!(!failed.is_empty() && failed.iter().all(|line| line.contains("bad.example.com")), "{failed:?}");
    let rejected = |what: &str| sidecar.metric(&format!("gatepost_hook_rejections_total{{{what},code=\"500\"}}")) > 0.0;
    for cause in ["failed_closed", "patch_refused"] {
        let bad = format!(r#"hook="bad.example.com",type="mutating",operation="CREATE",cause="{cause}""#);
        assert!(rejected(&bad), "{metrics}");
    }
    let denied = r#"hook="judge.example.com",type="validating",operation="CREATE",cause="denied",code="400""#;
    let denials = (0..CALLERS).flat_map(|n| n..n + ROUNDS).filter(|number| number.is_multiple_of(3)).count();
    assert_eq!(sidecar.metric(&format!("gatepost_hook_rejections_total{{{denied}}}")), denials as f64, "{metrics}");
}
