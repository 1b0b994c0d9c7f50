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
    gate::{ask_within, caller, document, gate, hook},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{
    live::{Namespaces, namespaces::TOO_OLD_AFTER},
    review::{AdmissionDeps, Caller, Reasons, decide},
    source::NamespaceWatcher,
    telemetry::UnreadableObjects,
};
use gatepost_api::{Phase, Rope, Verdict};
use gatepost_wire::{inbound::view, pb::k8s::io::api::admission::v1::AdmissionRequest};
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
async fn interrupted_watch_is_relisted() {
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
async fn apiserver_that_hangs_up_is_retried_with_a_pause() {
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
async fn refused_list_is_retried_and_known_labels_stay() {
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
async fn gate_of(namespaces: &Arc<Namespaces>, no: &ScriptedHook) -> AdmissionDeps {
    gate_by_policy(namespaces, no, "Fail").await
}

async fn gate_by_policy(namespaces: &Arc<Namespaces>, no: &ScriptedHook, policy: &str) -> AdmissionDeps {
    let more = format!("namespaceSelector: {{matchLabels: {{team: a}}}}\nfailurePolicy: {policy}");
    let team_a = hook("h.example.com", &no.url(), &more);
    let gate = Arc::into_inner(gate(&document(&[team_a]), Reasons::First)).expect("nobody else has it");
    AdmissionDeps { namespaces: Some(Arc::clone(namespaces)), ..gate }
}

async fn ask(gate: &AdmissionDeps, namespace: &str, budget: Duration) -> Verdict {
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
async fn unknown_namespace_is_looked_up_for_the_request() {
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
async fn unavailable_labels_fail_each_hook_by_its_policy() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let (namespaces, questions) = Namespaces::new(Instant::now());
    drop(questions);
    let gate = gate_by_policy(&namespaces, &no, "Ignore").await;
    let verdict = ask(&gate, "shop", LONG).await;
    assert!(verdict.allowed(), "{:?}", verdict.refusal);
    let failed_open = verdict.audit_annotations.iter().any(|(key, _)| key.contains("failed-open"));
    assert!(failed_open, "{:?}", verdict.audit_annotations);
    let gate = gate_by_policy(&namespaces, &no, "Fail").await;
    refused_with(&ask(&gate, "shop", LONG).await, 500, "looking up namespace \"shop\"");
}

#[tokio::test]
async fn labels_that_cannot_be_had_pass_over_initializers_that_may_be() {
    let (namespaces, questions) = Namespaces::new(Instant::now());
    drop(questions);
    for (policy, code) in [("Ignore", None), ("Fail", Some(500))] {
        let yaml = format!(
            r"
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {{name: test}}
resourceInitializers:
- resource: pods
  initializers:
  - {{name: a.example.com, failurePolicy: {policy}, builtIn: {{labels: {{a: b}}}}, namespaceSelector: {{matchLabels: {{team: a}}}}}}
"
        );
        let gate = Arc::into_inner(gate(&yaml, Reasons::First)).expect("nobody else has it");
        let gate = AdmissionDeps { namespaces: Some(Arc::clone(&namespaces)), ..gate };
        let review = view(Rope::new([message(create_pod("u", 0))])).expect("a review");
        let verdict = decide(&gate, &review, &Caller { phase: Phase::Mutate, ..caller(LONG) }).await;
        assert_eq!(verdict.refusal.as_ref().map(|refusal| refusal.code), code, "{policy}: {:?}", verdict.refusal);
        let passed_over = verdict.warnings.iter().any(|warning| warning.contains("looking up namespace"));
        assert_eq!(passed_over, policy == "Ignore", "{:?}", verdict.warnings);
    }
}

#[tokio::test]
async fn namespaces_are_looked_up_before_the_first_list() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let apiserver = Apiserver::start(&[("shop", "a")]).await;
    (0..100).for_each(|_| apiserver.refuses(Asked::List, 403));
    let gate = gate_of(&following(&apiserver).await, &no).await;
    refused_with(&ask(&gate, "shop", LONG).await, 400, "seen");
    apiserver.refuses(Asked::Get, 401);
    refused_with(&ask(&gate, "shop", LONG).await, 500, "looking up namespace \"shop\": the apiserver did not tell");
}

#[tokio::test]
async fn silent_apiserver_costs_at_most_the_request_deadline() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let apiserver = Apiserver::start(&[("shop", "a")]).await;
    let namespaces = followed(&apiserver).await;
    let gate = gate_of(&namespaces, &no).await;
    apiserver.falls_silent();
    let began = Instant::now();
    refused_with(&ask(&gate, "new", Duration::from_millis(200)).await, 500, "the apiserver did not answer in time");
    let lenient = gate_by_policy(&namespaces, &no, "Ignore").await;
    assert!(ask(&lenient, "new", Duration::from_millis(200)).await.allowed());
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    refused_with(&ask(&gate, "shop", LONG).await, 400, "seen");
}

#[tokio::test]
async fn stale_labels_are_looked_up_one_by_one() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let then = Instant::now().checked_sub(TOO_OLD_AFTER).expect("a machine that has been up for a while");
    let (namespaces, mut questions) = Namespaces::new(then);
    namespaces.replace([("shop".into(), [("team", "a")].into_iter().collect())]);
    namespaces.stamp(then);
    tokio::spawn(async move {
        while let Some(question) = questions.recv().await {
            let _ = question.answer.send(Ok(Some([("team", "b")].into_iter().collect())));
        }
    });
    let gate = gate_of(&namespaces, &no).await;
    assert!(ask(&gate, "shop", LONG).await.allowed(), "it is of team b by now");
    namespaces.stamp(Instant::now());
    refused_with(&ask(&gate, "shop", LONG).await, 400, "seen");
}

#[tokio::test]
async fn labels_are_known_however_large_namespaces_are() {
    let apiserver = Apiserver::start(&[]).await;
    for number in 0..300 {
        apiserver.has(&format!("ns-{number}"), "a");
    }
    apiserver.has_annotations_of(250_000);
    let namespaces = followed(&apiserver).await;
    assert_eq!((namespaces.len(), apiserver.times(Asked::List)), (300, 3));
    assert_eq!(team(&namespaces, "ns-299").as_deref(), Some("a"));
}

#[tokio::test]
async fn a_list_has_no_more_bytes_than_its_caller_takes() {
    let apiserver = Apiserver::start(&[]).await;
    // Two pages of 500 at most.
    for number in 0..700 {
        apiserver.has(&format!("ns-{number}"), "a");
    }
    apiserver.has_annotations_of(1_000);
    let client = apiserver.client().await;
    let list = client.list_labelled("/api/v1/namespaces", "", 1 << 20).await.expect("a list");
    assert_eq!(list.items.len(), 700);
    for most in [100, 600_000] {
        let error = client.list_labelled("/api/v1/namespaces", "", most).await.expect_err("it is larger");
        assert!(error.to_string().ends_with(&format!("is larger than {most} bytes")), "{error}");
    }
}

#[tokio::test]
async fn interrupted_page_is_requested_in_halves() {
    let apiserver = Apiserver::start(&[]).await;
    for number in 0..60 {
        apiserver.has(&format!("ns-{number}"), "a");
    }
    apiserver.breaks_pages_over(25);
    let namespaces = followed(&apiserver).await;
    // Of 100 and of 50, which break off, and three of 25.
    assert_eq!((namespaces.len(), apiserver.times(Asked::List)), (60, 5));
    assert!(apiserver.last(Asked::List).contains("limit=25"), "{}", apiserver.last(Asked::List));
}

#[tokio::test]
async fn a_namespace_that_goes_while_a_page_breaks_off_is_not_known() {
    let apiserver = Apiserver::start(&[("a-gone", "a")]).await;
    for number in 0..60 {
        apiserver.has(&format!("ns-{number}"), "a");
    }
    // So large that objects are handed on before the page breaks off.
    apiserver.has_annotations_of(100_000);
    apiserver.breaks_pages_over(25);
    apiserver.loses_at_break("a-gone");
    let namespaces = followed(&apiserver).await;
    assert_eq!((namespaces.len(), team(&namespaces, "a-gone")), (60, None));
}

/// An object nested so deep.
fn nested(depth: usize) -> serde_json::Value {
    (0..depth).fold(json!({}), |inner, _| json!({"f:a": inner}))
}

#[tokio::test]
async fn a_namespace_that_cannot_be_read_costs_only_itself() {
    let unreadable =
        |revision: &str| json!({"metadata": {"name": "odd", "labels": {"team": 7}, "resourceVersion": revision}});
    let apiserver = Apiserver::start(&[("bank", "b"), ("shop", "a")]).await;
    apiserver.has_object("odd", unreadable("1"));
    let before = UnreadableObjects::Namespaces.counted();
    let namespaces = followed(&apiserver).await;
    assert_eq!((namespaces.len(), team(&namespaces, "shop").as_deref()), (2, Some("a")));
    assert!(UnreadableObjects::Namespaces.counted() > before);

    // Of one that was known nothing outdated is kept, and others are followed on.
    apiserver.send_event("MODIFIED", namespace("odd", "c", 20));
    team_is(&namespaces, "odd", Some("c")).await;
    apiserver.send_event("MODIFIED", unreadable("21"));
    team_is(&namespaces, "odd", None).await;
    let mut deep = namespace("shop", "d", 22);
    deep["metadata"]["managedFields"] = json!([{"fieldsV1": nested(120)}]);
    apiserver.send_event("MODIFIED", deep);
    team_is(&namespaces, "shop", Some("d")).await;
    apiserver.ends();
    until("it is watched on", || apiserver.times(Asked::Watch) == 2).await;
    assert!(apiserver.last(Asked::Watch).ends_with("resourceVersion=22"), "{}", apiserver.last(Asked::Watch));
    assert_eq!(apiserver.times(Asked::List), 1);
}
