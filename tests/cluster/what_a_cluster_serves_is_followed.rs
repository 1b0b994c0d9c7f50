//! In which versions a cluster serves a resource decides which rules mean it; what is not known is never passed over.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::apiserver::{Apiserver, Asked};
use crate::front::until;
use crate::support::{
    gate::{ask_within, document, gate, hook},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{
    live::Discovery,
    review::{AdmissionDeps, Reasons},
    source::NamespaceWatcher,
};
use gatepost_api::Served;
use gatepost_kube_support::Discoverer;
use gatepost_wire::pb::k8s::io::{
    api::admission::v1::AdmissionRequest,
    apimachinery::pkg::apis::meta::v1::{GroupVersionKind, GroupVersionResource},
};

const SERVES: [[&str; 3]; 5] = [
    ["", "v1", "events"],
    ["example.com", "v1", "widgets"],
    ["example.com", "v2", "widgets"],
    ["example.com", "v2", "gadgets"],
    ["apps", "v1", "deployments"],
];

async fn discovery(apiserver: &Apiserver) -> Arc<Discovery> {
    let following = NamespaceWatcher::new(apiserver.client().await);
    let discovery = following.discovery();
    tokio::spawn(following.run());
    discovery
}

/// A hook for v1 of everything there is, that says no to all.
async fn refusing(discovery: &Arc<Discovery>, no: &ScriptedHook) -> AdmissionDeps {
    let hooks = document(&[hook("h.example.com", &no.url(), "")]);
    let gate = gate(&hooks.replace("apiVersions: [\"*\"]", "apiVersions: [v1]"), Reasons::First);
    let gate = Arc::into_inner(gate).expect("nobody else has it");
    assert_eq!(gate.current.load().snapshot.hooks[0].rules[0].api_versions, ["v1".into()]);
    AdmissionDeps { discovery: Some(Arc::clone(discovery)), ..gate }
}

/// The message of the refusal, if any, of an object of this resource.
async fn refusal_message(gate: &AdmissionDeps, [group, version, resource]: [&str; 3]) -> Option<String> {
    let text = |text: &str| Some(text.to_owned());
    let request = AdmissionRequest {
        kind: Some(GroupVersionKind { group: text(group), version: text(version), kind: text("Thing") }),
        resource: Some(GroupVersionResource { group: text(group), version: text(version), resource: text(resource) }),
        ..create_pod("u", 0)
    };
    Some(ask_within(gate, request, Duration::from_secs(10)).await.refusal?.message)
}

fn cannot_convert(message: Option<String>) -> bool {
    message.is_some_and(|message| message.contains("only the caller can convert"))
}

async fn is_known(discovery: &Discovery) {
    until("what is served is known", || discovery.look(Instant::now()).served() != Served::UNKNOWN).await;
}

#[tokio::test]
async fn served_versions_decide_which_hooks_match() {
    for old in [false, true] {
        let apiserver = Apiserver::start(&[]).await;
        apiserver.serves(&SERVES);
        if old {
            apiserver.is_old();
        }
        let discovery = discovery(&apiserver).await;
        is_known(&discovery).await;
        let no = ScriptedHook::start(Script::Deny("seen")).await;
        let gate = refusing(&discovery, &no).await;
        assert!(cannot_convert(refusal_message(&gate, ["example.com", "v2", "widgets"]).await), "served in v1, too");
        assert_eq!(refusal_message(&gate, ["example.com", "v2", "gadgets"]).await, None, "served in v2 alone");
        assert_eq!(
            refusal_message(&gate, ["apps", "v1beta1", "deployments"]).await.map(|message| message.contains("convert")),
            Some(true)
        );
        assert!(no.seen().is_empty());
        let seen = refusal_message(&gate, ["example.com", "v1", "widgets"]).await.expect("denied");
        assert!(seen.contains("seen"), "{seen}");
    }
}

/// A CustomResourceDefinition and then its first object: kube-apiserver knows, and so must we.
#[tokio::test]
async fn newer_resource_is_looked_up_by_conditional_request() {
    let apiserver = Apiserver::start(&[]).await;
    apiserver.serves(&SERVES);
    let discovery = discovery(&apiserver).await;
    is_known(&discovery).await;
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let gate = refusing(&discovery, &no).await;
    assert!(cannot_convert(refusal_message(&gate, ["example.com", "v2", "sprockets"]).await), "not known");
    let read = apiserver.times(Asked::Discovery);
    until("it is read again", || {
        let discovery = Arc::clone(&discovery);
        tokio::spawn(async move { discovery.refresh(Instant::now()).await });
        apiserver.times(Asked::Unchanged) >= 2
    })
    .await;
    assert_eq!(apiserver.times(Asked::Discovery), read, "no more than its tag");

    let mut more = SERVES.to_vec();
    more.push(["example.com", "v2", "sprockets"]);
    apiserver.serves(&more);
    let began = Instant::now();
    while refusal_message(&gate, ["example.com", "v2", "sprockets"]).await.is_some() {
        assert!(began.elapsed() < Duration::from_secs(20), "never asked for again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(no.seen().is_empty());
}

/// Discovery has two documents: the first one counts once the second has been read, and not before.
#[tokio::test]
async fn half_a_reading_is_no_reading() {
    let apiserver = Apiserver::start(&[]).await;
    apiserver.serves(&[["", "v1", "pods"], ["apps", "v1", "deployments"]]);
    let (client, mut discoverer) = (apiserver.client().await, Discoverer::default());
    assert_eq!(discoverer.read(&client).await.unwrap().map(|served| served.len()), Some(2));

    apiserver.serves(&[["", "v1", "pods"], ["", "v1", "gadgets"], ["apps", "v1", "deployments"]]);
    apiserver.serves_core_only(true);
    discoverer.read(&client).await.unwrap_err();
    apiserver.serves_core_only(false);
    assert_eq!(discoverer.read(&client).await.unwrap().map(|served| served.len()), Some(3), "changed now");
    assert_eq!(discoverer.read(&client).await.unwrap().map(|served| served.len()), None, "and once");
}

#[tokio::test]
async fn unreadable_discovery_is_unknown() {
    let apiserver = Apiserver::start(&[]).await;
    apiserver.serves(&SERVES);
    apiserver.refuses(Asked::Discovery, 403);
    let discovery = discovery(&apiserver).await;
    until("it was asked for", || apiserver.times(Asked::Discovery) > 0).await;
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let gate = refusing(&discovery, &no).await;
    assert_eq!(discovery.look(Instant::now()).served(), Served::UNKNOWN);
    assert!(cannot_convert(refusal_message(&gate, ["example.com", "v2", "gadgets"]).await));
    assert!(
        cannot_convert(refusal_message(&gate, ["autoscaling", "v2", "horizontalpodautoscalers"]).await),
        "built in"
    );
    assert_eq!(
        refusal_message(&gate, ["coordination.k8s.io", "v2", "pods"]).await.map(|message| message.contains("convert")),
        Some(true)
    );
    assert!(no.seen().is_empty());
}
