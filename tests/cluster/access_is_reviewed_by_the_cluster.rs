//! `authorizer` in `matchConditions`: the followed cluster decides what a user may do.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{fs, sync::Arc, time::Duration};

use crate::apiserver::{Apiserver, Asked};
use crate::support::{
    gate::{ask, document, gate, hook},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{
    review::Reasons,
    runtime::{Settings, Sidecar},
    source::AccessReviews,
    telemetry::Metrics,
};
use gatepost_kube_support::KubeAccess;
use gatepost_wire::pb::k8s::io::api::{admission::v1::AdmissionRequest, authentication::v1::UserInfo};
use serde_json::json;

fn request() -> AdmissionRequest {
    let user = UserInfo { username: Some("alice".to_owned()), groups: vec!["dev".to_owned()], ..UserInfo::default() };
    AdmissionRequest { user_info: Some(user), name: Some("web".to_owned()), ..create_pod("u", 0) }
}

fn asking(expression: &str, url: &str) -> String {
    let more = format!("matchConditions:\n- {{name: c, expression: {expression:?}}}\n");
    document(&[hook("h.example.com", url, &more)])
}

#[tokio::test]
async fn the_apiserver_decides_within_the_request() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let apiserver = Apiserver::start(&[("shop", "a")]).await;
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("kubeconfig");
    apiserver.write_kubeconfig(&path);
    let (access, metrics) = (KubeAccess::Kubeconfig { path: Some(path), context: None }, Arc::new(Metrics::default()));
    let reviews = AccessReviews::new(access, Arc::clone(&metrics)).await.expect("credentials");
    let authorizer = reviews.authorizer();
    tokio::spawn(reviews.run());
    let gate = |expression: &str| {
        let mut gate = gate(&asking(expression, &no.url()), Reasons::First);
        Arc::get_mut(&mut gate).expect("nobody else has it").authorizer = Some(Arc::clone(&authorizer));
        gate
    };
    let verdict = ask(&gate("authorizer.path('/x').check('get').allowed()"), request()).await;
    assert!(!verdict.allowed(), "the condition is true");
    let spec = &apiserver.reviewed()[0];
    assert_eq!((&spec["user"], &spec["groups"]), (&json!("alice"), &json!(["dev"])));
    assert_eq!(spec["nonResourceAttributes"], json!({"path": "/x", "verb": "get"}));

    let expression = "authorizer.requestResource.check('skip').reason() != 'made up'";
    assert!(ask(&gate(expression), request()).await.allowed(), "the condition is false");
    assert_eq!(apiserver.reviewed()[1]["resourceAttributes"]["resource"], "pods");

    apiserver.refuses(Asked::AccessReview, 403);
    let verdict = ask(&gate("authorizer.path('/x').check('get').allowed()"), request()).await;
    let refusal = verdict.refusal.expect("refused");
    assert!(refusal.code == 403 && refusal.message.contains("the authorizer cannot be asked"), "{}", refusal.message);
    assert!(!refusal.message.contains("127.0.0.1") && !refusal.message.contains("POST"), "{}", refusal.message);

    let exposition = metrics.render().expect("text");
    for sample in [
        "gatepost_access_reviews_total{outcome=\"allowed\"} 1",
        "gatepost_access_reviews_total{outcome=\"denied\"} 1",
        "gatepost_access_reviews_total{outcome=\"failed\"} 1",
        "gatepost_access_review_duration_seconds_count 3",
    ] {
        assert!(exposition.lines().any(|line| line == sample), "{sample} in\n{exposition}");
    }
}

#[tokio::test]
async fn a_sidecar_without_a_cluster_refuses_the_condition() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let apiserver = Apiserver::start(&[("shop", "a")]).await;
    let folder = tempfile::tempdir().expect("folder");
    let (config, kubeconfig) = (folder.path().join("a.yaml"), folder.path().join("kubeconfig"));
    fs::write(&config, asking("authorizer.path('/x').check('get').allowed()", &no.url())).expect("written");
    apiserver.write_kubeconfig(&kubeconfig);
    let settings = Settings { read_every: Duration::from_secs(1), ..Settings::local(&config) };
    let refused = Sidecar::start(settings.clone()).map(drop).expect_err("no cluster").to_string();
    let what = "a.yaml: externalAdmissionHooks[0].matchConditions[0].expression: asks the authorizer, and there is no \
                cluster to ask; name the cluster: serve --namespaces-from KUBECONFIG";
    assert!(refused.contains(what), "{refused}");
    let access = KubeAccess::Kubeconfig { path: Some(kubeconfig), context: None };
    let sidecar = Sidecar::start(Settings { namespaces_from: Some(access), ..settings }).expect("starts");
    assert!(sidecar.stop().complete());
}
