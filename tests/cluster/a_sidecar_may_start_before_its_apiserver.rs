//! A sidecar that reads its configuration from a cluster starts before the apiserver does: it refuses until it has a
//! configuration, and catches up by itself.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use crate::cluster::{CONFIGURATIONS, Cluster, configuration};
use crate::front::{REVIEW, caller, grpc, until};
use crate::support::{
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{
    runtime::{Settings, Sidecar},
    source::{KubernetesLocation, SourceLocation, kubernetes::ObjectSelection},
};
use gatepost_kube_support::KubeAccess;
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionReview;
use http::Request;
use prost::Message;
use serde_json::json;

const STOCK: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","namespace":"shop","name":"web","userInfo":{"username":"ann"},"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"}}}}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_refused_until_the_apiserver_answers() {
    let hook = ScriptedHook::start(Script::Deny("not today")).await;
    let (listener, cluster) = Cluster::listening().await;
    let mut object = configuration("main", "a.example.com");
    object["externalAdmissionHooks"][0]["clientConfig"]["url"] = json!(hook.url());
    cluster.has(CONFIGURATIONS, object);
    let folder = tempfile::tempdir().unwrap();
    let path = cluster.kubeconfig(folder.path(), json!({"token": "t"}), None);
    let access = KubeAccess::Kubeconfig { path: Some(path), context: None };
    let source = SourceLocation::Kubernetes(KubernetesLocation::new(access, ObjectSelection::default()));
    let settings = Settings { source, read_every: Duration::from_millis(20), ..Settings::local("unused") };
    let running = tokio::task::spawn_blocking(|| Sidecar::start(settings)).await.unwrap().expect("starts");

    let caller = caller(running.addresses.tcp).await;
    let verdict = async |uid: &str| {
        let ended = caller.call(grpc(REVIEW), [message(create_pod(uid, 1000))]).await;
        AdmissionReview::decode(&ended.body[5..]).unwrap().response.unwrap()
    };
    let status = verdict("1").await.status.expect("refused");
    assert_eq!((status.code(), status.reason()), (503, "LoadingConfiguration"), "{status:?}");
    assert_eq!(running.current.load().number, 0);

    cluster.serve(listener);
    until("the configuration is in force", || running.current.load().number == 1).await;
    let status = verdict("2").await.status.expect("denied");
    assert!(status.message().contains("not today"), "{status:?}");
    assert_eq!(running.current.load().revision.to_string(), "11");
    tokio::task::spawn_blocking(|| drop(running)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_with_one_bad_object_reports_it_to_callers() {
    let cluster = Cluster::start().await;
    let mut bad = configuration("bad", "a.example.com");
    bad["externalAdmissionHooks"][0]["clientConfig"]["url"] = json!("https://me:secret@");
    cluster.has(CONFIGURATIONS, bad);
    let folder = tempfile::tempdir().unwrap();
    let path = cluster.kubeconfig(folder.path(), json!({"token": "t"}), None);
    let access = KubeAccess::Kubeconfig { path: Some(path), context: None };
    let source = SourceLocation::Kubernetes(KubernetesLocation::new(access, ObjectSelection::default()));
    let settings = Settings { source, read_every: Duration::from_millis(20), ..Settings::local("unused") };
    let running = tokio::task::spawn_blocking(|| Sidecar::start(settings)).await.unwrap().expect("starts");

    let caller = caller(running.addresses.tcp).await;
    let ended = caller.call(grpc(REVIEW), [message(create_pod("1", 1000))]).await;
    let status = AdmissionReview::decode(&ended.body[5..]).unwrap().response.unwrap().status.expect("refused");
    assert_eq!(status.code(), 503);
    let said = status.message();
    assert!(said.contains("was rejected: admissioncontrolconfigurations/bad: externalAdmissionHooks[0]"), "{said}");
    assert!(!said.contains("secret") && !said.contains("not been read"), "{said}");

    // A stock apiserver is told the same.
    let review = Request::post("http://gatepost/validate").header("content-type", "application/json").body(());
    let ended = caller.call(review.unwrap(), [STOCK.into()]).await;
    let answer: serde_json::Value = serde_json::from_slice(&ended.body).expect("JSON");
    assert_eq!(answer["response"]["allowed"], false, "{answer}");
    assert_eq!(answer["response"]["status"]["code"], 503, "{answer}");
    assert_eq!(answer["response"]["status"]["message"], said, "{answer}");
    tokio::task::spawn_blocking(|| drop(running)).await.unwrap();
}
