//! The right to `initialize` a resource, and so to write the list of a new object, is asked of the apiserver where
//! there is one.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gatepost::{
    review::{AdmissionDeps, Caller, Reasons, decide},
    source::AccessReviews,
};
use gatepost_api::{Phase, Rope, Verdict};
use gatepost_kube_support::KubeAccess;
use gatepost_wire::{
    inbound::view,
    pb::k8s::io::{
        api::{
            admission::v1::AdmissionRequest,
            authentication::v1::{ExtraValue, UserInfo},
        },
        apimachinery::pkg::runtime::RawExtension,
    },
};
use serde_json::json;

use crate::apiserver::{Apiserver, Asked};
use crate::support::{
    gate::{caller, gate},
    reviews::{create_pod, message},
};

const CONFIGURATION: &str = "
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: test}
resourceInitializers:
- resource: pods
  mayInitialize: {users: [admin]}
  initializers: [{name: a.example.com, builtIn: {labels: {a: x}}}]
";

/// A gate that asks this apiserver.
async fn asking(apiserver: &Apiserver) -> AdmissionDeps {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    apiserver.write_kubeconfig(&path);
    let access = KubeAccess::Kubeconfig { path: Some(path), context: None };
    let reviews = AccessReviews::new(access, Arc::default()).await.unwrap();
    let authorizer = Some(reviews.authorizer());
    tokio::spawn(async move {
        // The client reads it when it is asked first.
        let _folder = folder;
        reviews.run().await;
    });
    AdmissionDeps { authorizer, ..Arc::into_inner(gate(CONFIGURATION, Reasons::First)).unwrap() }
}

/// A Pod with an empty list of initializers, by this user.
async fn create(gate: &AdmissionDeps, user: &str) -> Verdict {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"gatepost.dev/initializers": ""}},
    });
    let request = AdmissionRequest {
        user_info: Some(UserInfo {
            username: Some(user.to_owned()),
            uid: Some("7".to_owned()),
            groups: vec!["dev".to_owned()],
            extra: BTreeMap::from([("scopes".to_owned(), ExtraValue { items: vec!["all".to_owned()] })]),
        }),
        object: Some(RawExtension { raw: Some(object.to_string().into()) }),
        ..create_pod("u", 0)
    };
    let review = view(Rope::new([message(request)])).unwrap();
    decide(gate, &review, &Caller { phase: Phase::Mutate, ..caller(Duration::from_secs(20)) }).await
}

#[tokio::test]
async fn users_permitted_by_the_apiserver_write_the_list() {
    for (allowed, code) in [(true, None), (false, Some(403))] {
        let apiserver = Apiserver::start(&[]).await;
        if allowed {
            apiserver.allows("initialize");
        }
        let gate = asking(&apiserver).await;
        let verdict = create(&gate, "ann").await;
        assert_eq!((verdict.refusal.map(|refusal| refusal.code), verdict.patch), (code, None), "{allowed}");
        let of = json!({"verb": "initialize", "namespace": "shop", "group": "", "version": "*", "resource": "pods", "subresource": "", "name": "web"});
        let spec = json!({"user": "ann", "uid": "7", "groups": ["dev"], "extra": {"scopes": ["all"]}, "resourceAttributes": of});
        assert_eq!(apiserver.reviewed(), [spec]);
        // Whom the configuration names need not be asked about.
        assert_eq!(create(&gate, "admin").await.refusal, None);
        assert_eq!(apiserver.reviewed().len(), 1);
    }
}

#[tokio::test]
async fn unanswered_access_review_permits_no_user() {
    // It refuses to say, or says something else.
    for code in [403, 201] {
        let apiserver = Apiserver::start(&[]).await;
        apiserver.allows("initialize");
        apiserver.refuses(Asked::AccessReview, code);
        let refusal = create(&asking(&apiserver).await, "ann").await.refusal.unwrap();
        assert_eq!((refusal.code, &*refusal.reason), (500, "InternalError"));
        assert!(refusal.message.contains("cannot find out whether you may \"initialize\""), "{}", refusal.message);
        let ours = ["127.0.0.1", "subjectaccessreviews", "not for you"];
        assert!(!ours.iter().any(|part| refusal.message.contains(part)), "{}", refusal.message);
    }
}
