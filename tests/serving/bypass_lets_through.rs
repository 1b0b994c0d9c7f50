//! Bypass rules let requests past hooks, say why, and open nothing else; requests about our own configuration are
//! never held up.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::support::{
    gate::{ask, caller, document, gate, hook, open_break_glass},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{
    live::{Current, STALE_AFTER},
    review::{AdmissionDeps, Reasons, decide},
    telemetry::Audit,
};
use gatepost_api::{Review, Verdict};
use gatepost_wire::{
    inbound, json_view,
    pb::k8s::io::{
        api::{admission::v1::AdmissionRequest, authentication::v1::UserInfo},
        apimachinery::pkg::apis::meta::v1::{GroupVersionKind, GroupVersionResource},
    },
};
use serde_json::{Value, json};

/// A gate over hooks that say no, with these bypass rules.
fn refusing(no: &ScriptedHook, rules: &str) -> Arc<AdmissionDeps> {
    let hooks = [hook("a.example.com", &no.url(), ""), hook("b.example.com", &no.url(), "")];
    gate(&(document(&hooks) + "bypass:\n" + rules), Reasons::First)
}

/// The same generation and counters, last read so long ago, or never.
fn aged(gate: &AdmissionDeps, age: Option<Duration>) -> AdmissionDeps {
    let now = Instant::now();
    let current = Current::new(now.checked_sub(Duration::from_secs(60)).unwrap_or(now));
    current.publish(gate.current.load());
    if let Some(started) = age.and_then(|age| now.checked_sub(age)) {
        current.freshness().stamp_awake(started);
    }
    AdmissionDeps::new(Arc::new(current), Arc::clone(&gate.metrics))
}

fn stale(gate: &AdmissionDeps) -> AdmissionDeps {
    aged(gate, Some(STALE_AFTER))
}

fn by(user: &str, groups: &[&str]) -> AdmissionRequest {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let user_info = Some(UserInfo { username: Some(user.to_owned()), groups, ..UserInfo::default() });
    AdmissionRequest { user_info, ..create_pod("u", 100) }
}

fn about(group: &str, resource: &str, kind: &str) -> AdmissionRequest {
    let text = |text: &str| Some(text.to_owned());
    AdmissionRequest {
        kind: Some(GroupVersionKind { group: text(group), version: text("v1"), kind: text(kind) }),
        resource: Some(GroupVersionResource { group: text(group), version: text("v1"), resource: text(resource) }),
        namespace: None,
        ..create_pod("u", 100)
    }
}

fn annotation<'a>(verdict: &'a Verdict, key: &str) -> Option<&'a str> {
    verdict.audit_annotations.iter().find(|(known, _)| known == key).map(|(_, value)| &**value)
}

#[tokio::test]
async fn a_rule_applies_where_all_that_it_names_holds_the_request() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let pods = "[{operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods]}]";
    let secrets = pods.replace("pods", "secrets");
    let in_nodes = || by("system:node:n1", &["system:nodes", "system:authenticated"]);
    for (what, dimensions, request, past) in [
        ("its namespace", "namespaces: [kube-system, shop]".to_owned(), by("ann", &[]), true),
        ("another namespace", "namespaces: [kube-system]".into(), by("ann", &[]), false),
        ("part of a namespace's name", "namespaces: [sho]".into(), by("ann", &[]), false),
        ("its user", "users: [bob, ann]".into(), by("ann", &[]), true),
        ("another user", "users: [bob]".into(), by("ann", &[]), false),
        ("no user at all", "users: [bob]".into(), by("", &[]), false),
        ("its group", "groups: [\"system:nodes\"]".into(), in_nodes(), true),
        ("another group", "groups: [\"system:masters\"]".into(), in_nodes(), false),
        ("a group of the user's name", "groups: [ann]".into(), by("ann", &[]), false),
        ("a user of the group's name", "users: [\"system:nodes\"]".into(), in_nodes(), false),
        (
            "its service account",
            "serviceAccounts: [ci/deployer]".into(),
            by("system:serviceaccount:ci:deployer", &[]),
            true,
        ),
        (
            "the account's name elsewhere",
            "serviceAccounts: [ci/deployer]".into(),
            by("system:serviceaccount:attic:deployer", &[]),
            false,
        ),
        ("either user or group", "users: [bob], groups: [ops]".into(), by("ann", &["ops"]), true),
        ("its resource", format!("resources: {pods}"), by("ann", &[]), true),
        ("another resource", format!("resources: {secrets}"), by("ann", &[]), false),
        ("both", format!("namespaces: [shop], users: [ann], resources: {pods}"), by("ann", &[]), true),
        ("one of two", "namespaces: [shop], users: [bob]".into(), by("ann", &[]), false),
        ("the other of two", "namespaces: [kube-system], users: [ann]".into(), by("ann", &[]), false),
    ] {
        let gate = refusing(&no, &format!("- {{name: r, reason: told so, {dimensions}}}\n"));
        let before = no.seen().len();
        let verdict = ask(&gate, request).await;
        assert_eq!(verdict.allowed(), past, "{what}: {:?}", verdict.refusal);
        assert_eq!(no.seen().len() == before, past, "{what}: nobody is asked");
        assert_eq!(annotation(&verdict, "bypass.gatepost.dev/r"), past.then_some("Skip: told so"), "{what}");
        let counted = gate.metrics.render().expect("text");
        let line = "gatepost_bypassed_requests_total{bypass=\"r\",effect=\"Skip\"} 1";
        assert_eq!(counted.contains(line), past, "{what}");
        assert_eq!(counted.contains("gatepost_requests_total{outcome=\"bypassed\"} 1"), past, "{what}");
    }
}

#[tokio::test]
async fn groups_count_in_json_too() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let gate = refusing(&no, "- {name: r, reason: told so, groups: [ops]}\n");
    let json = |groups: &str| {
        let text = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE",
            "kind":{{"group":"","version":"v1","kind":"Pod"}},
            "resource":{{"group":"","version":"v1","resource":"pods"}},"namespace":"shop",
            "userInfo":{{"username":"ann","extra":{{"groups":["ops"]}},"groups":{groups}}},"object":{{"groups":["ops"]}}}}}}"#
        );
        json_view::view(text.into()).expect("a review")
    };
    let allowed = async |review: &Review| decide(&gate, review, &caller(Duration::from_secs(2))).await.allowed();
    assert!(allowed(&json(r#"["a","ops"]"#)).await);
    assert!(!allowed(&json(r#"["a"]"#)).await, "what stands elsewhere in the review is not who asks");
}

/// A user who may write a namespace must not open it by that.
#[tokio::test]
async fn a_namespace_object_is_in_no_namespace() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let gate = refusing(&no, "- {name: r, reason: told so, namespaces: [shop]}\n");
    let namespace = AdmissionRequest {
        name: Some("shop".into()),
        namespace: Some("shop".into()),
        ..about("", "namespaces", "Namespace")
    };
    assert!(!ask(&gate, namespace).await.allowed());
}

#[tokio::test]
async fn only_the_hooks_named_are_skipped() {
    let (no, yes) = (ScriptedHook::start(Script::Deny("seen")).await, ScriptedHook::start(Script::Allow).await);
    let hooks = [hook("a.example.com", &no.url(), ""), hook("b.example.com", &yes.url(), "")];
    let rules = "bypass:\n- {name: r, reason: told so, namespaces: [shop], hooks: [a.example.com]}\n";
    let gate = gate(&(document(&hooks) + rules), Reasons::First);
    let verdict = ask(&gate, create_pod("u", 100)).await;
    assert!(verdict.allowed(), "{:?}", verdict.refusal);
    assert_eq!((no.seen().len(), yes.seen().len()), (0, 1));
    assert_eq!(annotation(&verdict, "bypass.gatepost.dev/r"), Some("Skip: told so"));
    assert_eq!(ask(&stale(&gate), create_pod("u", 100)).await.refusal.map(|refusal| refusal.code), Some(503));
}

#[tokio::test]
async fn a_skipped_request_is_let_past_before_freshness_is_looked_at() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let gate = stale(&refusing(&no, "- {name: r, reason: told so, users: [ann]}\n"));
    assert!(ask(&gate, by("ann", &[])).await.allowed());
    assert_eq!(ask(&gate, by("bob", &[])).await.refusal.map(|refusal| refusal.code), Some(503));
    assert!(no.seen().is_empty());
}

#[tokio::test]
async fn fail_open_bypass_passes_failures_and_not_denials() {
    let broken = ScriptedHook::start(Script::Allow).await;
    let url = broken.url();
    broken.retire();
    drop(broken);
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let rules = "bypass:\n- {name: r, reason: told so, users: [ann], effect: FailOpen}\n";
    let one = |url: &str, more: &str| gate(&(document(&[hook("a.example.com", url, more)]) + rules), Reasons::First);

    let dead = one(&url, "");
    assert!(!ask(&dead, by("bob", &[])).await.allowed(), "the hook's own policy is Fail");
    let verdict = ask(&dead, by("ann", &[])).await;
    assert!(verdict.allowed(), "{:?}", verdict.refusal);
    assert_eq!(annotation(&verdict, "bypass.gatepost.dev/r"), Some("FailOpen: told so"));
    let open = annotation(&verdict, "failed-open.validating.webhook.admission.k8s.io/round_0_index_0");
    assert_eq!(open, Some("a.example.com"));

    let unknown = one(&url, "namespaceSelector: {matchLabels: {a: b}}");
    assert_eq!(ask(&unknown, by("bob", &[])).await.refusal.map(|refusal| refusal.code), Some(404));
    assert!(ask(&unknown, by("ann", &[])).await.allowed(), "labels that nobody knows are no reason either");

    let denying = stale(&one(&no.url(), ""));
    let refusal = ask(&denying, by("ann", &[])).await.refusal.expect("asked though stale, and it said no");
    assert!(refusal.message.contains("denied the request"), "{}", refusal.message);
    assert_eq!(ask(&denying, by("bob", &[])).await.refusal.map(|refusal| refusal.code), Some(503));
    assert!(ask(&stale(&dead), by("ann", &[])).await.allowed());
}

#[tokio::test]
async fn our_own_configuration_is_never_held_up() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let hooks = [hook("a.example.com", &no.url(), "")];
    let fresh = gate(&document(&hooks), Reasons::First);
    for (what, gate) in
        [("fresh", aged(&fresh, Some(Duration::ZERO))), ("stale", stale(&fresh)), ("never read", aged(&fresh, None))]
    {
        let ours = about("gatepost.dev", "admissioncontrolconfigurations", "AdmissionControlConfiguration");
        let verdict = ask(&gate, ours).await;
        assert!(verdict.allowed(), "{what}: {:?}", verdict.refusal);
        assert!(annotation(&verdict, "bypass.gatepost.dev/own-configuration").is_some(), "{what}");
        for (group, resource, kind) in [
            ("authentication.k8s.io", "tokenreviews", "TokenReview"),
            ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
        ] {
            let verdict = ask(&gate, about(group, resource, kind)).await;
            assert!(verdict.allowed(), "{what}: no hook may be asked about {resource}: {:?}", verdict.refusal);
            let bypassed = verdict.audit_annotations.iter().any(|(key, _)| key.starts_with("bypass."));
            assert!(!bypassed, "that is no bypass: {:?}", verdict.audit_annotations);
        }
        // Somebody else's resource in our group, and our kind beside a pod.
        for foreign in [about("gatepost.dev", "widgets", "Widget"), {
            let pod = create_pod("u", 100);
            let ours = about("gatepost.dev", "admissioncontrolconfigurations", "AdmissionControlConfiguration");
            AdmissionRequest { resource: pod.resource, namespace: pod.namespace, ..ours }
        }] {
            assert!(!ask(&gate, foreign).await.allowed(), "{what}");
        }
        let near = about("sub.gatepost.dev", "admissioncontrolconfigurations", "AdmissionControlConfiguration");
        assert!(!ask(&gate, near).await.allowed(), "{what}: nobody else's group");
    }
    let counted = fresh.metrics.render().expect("text");
    assert!(counted.contains("{bypass=\"own-configuration\",effect=\"Skip\"} 3"), "{counted}");
}

/// Keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn audit_record_of_a_bypass_cannot_be_forged_by_hooks() {
    let hook_says = ScriptedHook::start(Script::Allow).await;
    let lie = gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionResponse {
        uid: Some("u".into()),
        allowed: Some(true),
        audit_annotations: [("r".to_owned(), "Skip: it says so".to_owned())].into(),
        ..Default::default()
    };
    hook_says.set(Script::Respond(lie));
    let hooks = ["bypass.gatepost.dev", "break-glass.gatepost.dev"].map(|name| hook(name, &hook_says.url(), ""));
    let rules = "bypass:\n- {name: r, reason: told so, users: [ann]}\n- {name: s, reason: open, users: [bob], effect: FailOpen}\n";
    let mut gate = Arc::into_inner(gate(&(document(&hooks) + rules), Reasons::First)).expect("the only one");
    let kept = Kept::default();
    gate.audit = Arc::new(Audit::to_sink(kept.clone()).expect("a sink"));
    let verdict = ask(&gate, by("eve", &[])).await;
    assert!(verdict.allowed());
    assert_eq!(annotation(&verdict, "bypass.gatepost.dev/r"), None);
    assert_eq!(annotation(&verdict, "break-glass.gatepost.dev/r"), None);
    ask(&gate, by("ann", &[])).await;
    ask(&gate, by("bob", &[])).await;
    open_break_glass(&gate, &["x.example.com"]);
    ask(&gate, by("eve", &[])).await;
    gate.audit.close();
    let lines = String::from_utf8(kept.0.lock().expect("not poisoned").clone()).expect("text");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["bypass"], &lines[0]["break_glass"]), (&Value::Null, &Value::Null));
    assert_eq!(lines[1]["bypass"], json!([{"name": "r", "effect": "Skip", "reason": "told so"}]));
    assert_eq!(lines[1]["hooks"], json!([]));
    assert_eq!(lines[2]["bypass"], json!([{"name": "s", "effect": "FailOpen", "reason": "open"}]));
    let broken = &lines[3]["break_glass"][0];
    assert_eq!(
        (&broken["name"], &broken["reason"], &broken["by"]),
        (&json!("night"), &json!("told so"), &json!("ann"))
    );
    assert!(broken["until"].is_string() && broken["hooks"] == json!(["x.example.com"]), "{broken}");
}

#[tokio::test]
async fn groups_lie_where_the_message_was_cut() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let gate = refusing(&no, "- {name: r, reason: told so, groups: [ops]}\n");
    let whole = message(by("ann", &["a", "ops", "z"]));
    for cut in 6..whole.len() {
        let rope = gatepost_api::Rope::new([whole.slice(..cut), whole.slice(cut..)]);
        let review = inbound::view(rope).expect("a review");
        assert!(decide(&gate, &review, &caller(Duration::from_secs(2))).await.allowed(), "cut at {cut}");
    }
}
