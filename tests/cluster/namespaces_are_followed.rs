//! The cluster's namespaces: listed, watched, asked about one by one; and the answer to a request when that fails.
//! Source: `docs/reference/webhook-semantics.md` §4.3.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::apiserver::{Apiserver, Asked, namespace};
use crate::front::until;
use crate::support::{
    gate::{ask_within, document, gate, hook},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{
    admit::{Gate, Reasons},
    live::{Namespaces, namespaces::TOO_OLD_AFTER},
    model::Verdict,
    watch::NamespaceWatcher,
    wire::pb::k8s::io::api::admission::v1::AdmissionRequest,
};
use serde_json::json;

/// Follows this apiserver; the first watch is open when it returns.
async fn followed(apiserver: &Apiserver) -> Arc<Namespaces> {
    let namespaces = following(apiserver).await;
    until("a watch is open", || apiserver.times(Asked::Watch) == 1).await;
    namespaces
}

async fn following(apiserver: &Apiserver) -> Arc<Namespaces> {
    let following = NamespaceWatcher::new(apiserver.client().await);
    let namespaces = following.namespaces();
    tokio::spawn(following.run());
    namespaces
}

/// The label `team` of a namespace that is known.
fn team(namespaces: &Namespaces, name: &str) -> Option<String> {
    Some(namespaces.get(name)?.get("team")?.to_owned())
}

async fn team_is(namespaces: &Namespaces, name: &str, wanted: Option<&str>) {
    until(&format!("the team of {name} is {wanted:?}"), || team(namespaces, name).as_deref() == wanted).await;
}

#[tokio::test]
async fn a_list_and_then_its_changes() {
    let apiserver = Apiserver::start(&[("shop", "a"), ("bank", "b")]).await;
    let namespaces = followed(&apiserver).await;
    assert_eq!(team(&namespaces, "shop").as_deref(), Some("a"));
    assert_eq!(namespaces.len(), 2);

    apiserver.send_event("ADDED", namespace("new", "c", 20));
    apiserver.send_event("MODIFIED", namespace("shop", "d", 21));
    apiserver.send_event("DELETED", namespace("bank", "b", 22));
    team_is(&namespaces, "bank", None).await;
    assert_eq!(team(&namespaces, "new").as_deref(), Some("c"));
    assert_eq!(team(&namespaces, "shop").as_deref(), Some("d"));
    assert_eq!(apiserver.times(Asked::List), 1);
}

#[tokio::test]
async fn a_watch_that_ends_goes_on_where_it_was() {
    let apiserver = Apiserver::start(&[("shop", "a")]).await;
    let namespaces = followed(&apiserver).await;
    assert!(apiserver.last(Asked::Watch).ends_with("resourceVersion=11"), "{}", apiserver.last(Asked::Watch));
    apiserver.send_event("MODIFIED", namespace("shop", "b", 20));
    apiserver.ends();
    until("it is watched on", || apiserver.times(Asked::Watch) == 2).await;
    assert!(apiserver.last(Asked::Watch).ends_with("resourceVersion=20"), "{}", apiserver.last(Asked::Watch));

    apiserver.send_event("BOOKMARK", json!({"metadata": {"resourceVersion": "30"}}));
    apiserver.ends();
    until("it is watched on", || apiserver.times(Asked::Watch) == 3).await;
    assert!(apiserver.last(Asked::Watch).ends_with("resourceVersion=30"), "{}", apiserver.last(Asked::Watch));
    assert_eq!((team(&namespaces, "shop").as_deref(), apiserver.times(Asked::List)), (Some("b"), 1));
}

#[tokio::test]
async fn what_cannot_be_watched_on_is_listed_anew() {
    type Way = (&'static str, fn(&Apiserver));
    let ways: [Way; 6] = [
        ("the revision is forgotten", |apiserver| apiserver.send_event("ERROR", json!({"code": 410}))),
        ("the revision is forgotten when the watch goes on", |apiserver| {
            apiserver.refuses(Asked::Watch, 410);
            apiserver.ends();
        }),
        ("the watch is forbidden", |apiserver| {
            apiserver.refuses(Asked::Watch, 403);
            apiserver.ends();
        }),
        ("the connection breaks", Apiserver::breaks),
        ("a line is no JSON", |apiserver| apiserver.says("<html>")),
        ("a change is of no type", |apiserver| apiserver.send_event("NEWS", json!({}))),
    ];
    for (way, how) in ways {
        let apiserver = Apiserver::start(&[("shop", "a"), ("bank", "b")]).await;
        let namespaces = followed(&apiserver).await;
        apiserver.has("shop", "c");
        apiserver.has_no("bank");
        assert_eq!(team(&namespaces, "bank").as_deref(), Some("b"), "no event has come");
        how(&apiserver);
        until(way, || apiserver.times(Asked::List) == 2).await;
        team_is(&namespaces, "bank", None).await;
        assert_eq!(team(&namespaces, "shop").as_deref(), Some("c"), "{way}");
    }
}

#[tokio::test]
async fn an_apiserver_that_hangs_up_at_once_is_not_asked_without_pause() {
    let apiserver = Apiserver::start(&[]).await;
    let began = Instant::now();
    let _namespaces = followed(&apiserver).await;
    for watches in 1..4 {
        apiserver.ends();
        until("it is watched on", || apiserver.times(Asked::Watch) == watches + 1).await;
    }
    assert!(began.elapsed() > Duration::from_millis(700), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_refused_list_is_asked_for_again_and_what_is_known_stays() {
    let apiserver = Apiserver::start(&[("shop", "a")]).await;
    let namespaces = followed(&apiserver).await;
    apiserver.refuses(Asked::List, 403);
    apiserver.refuses(Asked::List, 500);
    apiserver.has("shop", "b");
    apiserver.breaks();
    until("two lists are refused", || apiserver.times(Asked::List) == 3).await;
    assert_eq!(team(&namespaces, "shop").as_deref(), Some("a"));
    team_is(&namespaces, "shop", Some("b")).await;
}

/// Or a cluster that says nothing but no would be taken for known.
#[tokio::test]
async fn a_refused_list_is_no_sign_of_life() {
    let apiserver = Apiserver::start(&[("shop", "a")]).await;
    let namespaces = followed(&apiserver).await;
    apiserver.send_event("MODIFIED", namespace("shop", "b", 20));
    team_is(&namespaces, "shop", Some("b")).await;
    let age = || namespaces.age(Instant::now()).expect("it was listed");
    // An event is stamped right after it is taken up, on this very thread: the next look comes after that.
    let before = Instant::now();
    for _ in 0..8 {
        apiserver.refuses(Asked::List, 403);
    }
    apiserver.breaks();
    until("two lists are refused, and a third is asked for", || apiserver.times(Asked::List) == 4).await;
    assert!(age() >= before.elapsed(), "{:?} {:?}", age(), before.elapsed());
}

/// A gate whose only hook says no to what is in a namespace of team a, and asks the cluster which those are.
async fn gate_of(namespaces: &Arc<Namespaces>, no: &ScriptedHook) -> Gate {
    let team_a = hook("h.example.com", &no.url(), "namespaceSelector: {matchLabels: {team: a}}");
    let gate = Arc::into_inner(gate(&document(&[team_a]), Reasons::First)).expect("nobody else has it");
    Gate { namespaces: Some(Arc::clone(namespaces)), ..gate }
}

async fn ask(gate: &Gate, namespace: &str, budget: Duration) -> Verdict {
    let request = AdmissionRequest { namespace: Some(namespace.to_owned()), ..create_pod("u", 0) };
    ask_within(gate, request, budget).await
}

#[track_caller]
fn refused_with(verdict: &Verdict, code: i32, says: &str) {
    let refusal = verdict.refusal.as_ref().expect("a refusal");
    assert_eq!(refusal.code, code, "{}", refusal.message);
    assert!(refusal.message.contains(says), "{}", refusal.message);
}

const LONG: Duration = Duration::from_secs(5);

#[tokio::test]
async fn an_unknown_namespace_is_asked_about_for_this_request() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let apiserver = Apiserver::start(&[("shop", "a")]).await;
    let namespaces = followed(&apiserver).await;
    let gate = gate_of(&namespaces, &no).await;

    refused_with(&ask(&gate, "shop", LONG).await, 400, "seen");
    assert_eq!(apiserver.times(Asked::Get), 0, "it is known");
    apiserver.has("new", "a");
    refused_with(&ask(&gate, "new", LONG).await, 400, "seen");
    apiserver.has("other", "b");
    assert!(ask(&gate, "other", LONG).await.allowed());
    assert_eq!(apiserver.last(Asked::Get), "/api/v1/namespaces/other");
    assert_eq!(team(&namespaces, "new"), None, "only the watch says what is known");

    refused_with(&ask(&gate, "never", LONG).await, 404, "namespaces \"never\" not found");
    apiserver.refuses(Asked::Get, 403);
    refused_with(&ask(&gate, "new", LONG).await, 500, "looking up namespace \"new\": the apiserver did not tell");
}

#[tokio::test]
async fn before_the_first_list_every_namespace_is_asked_about() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let apiserver = Apiserver::start(&[("shop", "a")]).await;
    (0..100).for_each(|_| apiserver.refuses(Asked::List, 403));
    let gate = gate_of(&following(&apiserver).await, &no).await;
    refused_with(&ask(&gate, "shop", LONG).await, 400, "seen");
    apiserver.refuses(Asked::Get, 401);
    refused_with(&ask(&gate, "shop", LONG).await, 500, "looking up namespace \"shop\": the apiserver did not tell");
}

#[tokio::test]
async fn an_apiserver_that_is_silent_costs_no_more_than_the_requests_time() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let apiserver = Apiserver::start(&[("shop", "a")]).await;
    let namespaces = followed(&apiserver).await;
    let gate = gate_of(&namespaces, &no).await;
    apiserver.falls_silent();
    let began = Instant::now();
    refused_with(&ask(&gate, "new", Duration::from_millis(200)).await, 504, "did not complete");
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    refused_with(&ask(&gate, "shop", LONG).await, 400, "seen");
}

#[tokio::test]
async fn what_is_too_old_is_not_decided_on() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let then = Instant::now().checked_sub(TOO_OLD_AFTER).expect("a machine that has been up for a while");
    let (namespaces, _questions) = Namespaces::new(then);
    namespaces.replace([("shop".into(), [("team", "a")].into_iter().collect())]);
    namespaces.stamp(then);
    let gate = gate_of(&namespaces, &no).await;
    refused_with(&ask(&gate, "shop", LONG).await, 500, "no news of namespaces from the apiserver for 90 s");
    namespaces.stamp(Instant::now());
    refused_with(&ask(&gate, "shop", LONG).await, 400, "seen");
}
