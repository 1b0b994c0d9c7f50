//! Reviews of an apiserver that stores objects before they are initialized: the list in the object, who may change it, and
//! who acts where.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use gatepost::review::{AdmissionDeps, Caller, Reasons, decide};
use gatepost_api::{Phase, Rope, StatusInfo, Verdict};
use gatepost_base::memory::Purpose;
use gatepost_initializers::hub::ToInstance;
use gatepost_json_patch::{Document, Patch, PatchLimits};
use gatepost_wire::{
    inbound::view,
    pb::k8s::io::{
        api::{admission::v1::AdmissionRequest, authentication::v1::UserInfo},
        apimachinery::pkg::runtime::RawExtension,
    },
};
use serde_json::{Value, json};

use crate::support::{
    gate::{caller, gate},
    http_hook::{HttpHook, HttpScript, Judge},
    reviews::{create_pod, message},
};

const LONG: Duration = Duration::from_secs(20);

fn configured(initializers: &str, hooks: &str) -> Arc<AdmissionDeps> {
    gate(&document(initializers, hooks), Reasons::First)
}

fn document(initializers: &str, hooks: &str) -> String {
    format!(
        r"
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {{name: test}}
resourceInitializers:
- resource: pods
  mayInitialize: {{users: [admin]}}
  initializers:
{initializers}
externalAdmissionHooks: [{hooks}]
"
    )
}

const IN_TURNS: &str = "  - {name: a.example.com, owners: {users: [a]}}\n  \
     - {name: mid.example.com, builtIn: {labels: {by: '${user}'}}}\n  \
     - {name: b.example.com, owners: {users: [b]}}\n";

/// `a` and `b` are owned by somebody of that name, and between them stands one that is built in.
fn in_turns() -> Arc<AdmissionDeps> {
    configured(IN_TURNS, "")
}

async fn ask(gate: &AdmissionDeps, request: AdmissionRequest) -> Verdict {
    let review = view(Rope::new([message(request)])).unwrap();
    decide(gate, &review, &Caller { phase: Phase::Review, stores_unfinished: true, ..caller(LONG) }).await
}

fn raw(object: &Value) -> Option<RawExtension> {
    Some(RawExtension { raw: Some(object.to_string().into()) })
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}})
}

fn pod_with_spec() -> Value {
    let mut pod = pod();
    pod["spec"] = json!({"containers": [{"name": "web", "image": "web:1"}]});
    pod
}

fn create(object: &Value) -> AdmissionRequest {
    AdmissionRequest { object: raw(object), ..create_pod("u", 0) }
}

fn update(user: &str, old: &Value, new: &Value) -> AdmissionRequest {
    AdmissionRequest {
        operation: Some("UPDATE".to_owned()),
        user_info: Some(UserInfo { username: Some(user.to_owned()), ..UserInfo::default() }),
        old_object: raw(old),
        ..create(new)
    }
}

/// The object as the verdict leaves it.
fn patched(verdict: &Verdict, object: &Value) -> Value {
    assert_eq!(verdict.refusal, None);
    let patch = Patch::parse(verdict.patch.clone().unwrap_or_else(|| "[]".into())).unwrap();
    let object = Document::new(Rope::new([Bytes::from(object.to_string())])).unwrap();
    let patched = object.patched(&patch, PatchLimits::default()).unwrap();
    serde_json::from_slice(&patched.rope().to_bytes()).unwrap()
}

fn pending(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["initializers"]["pending"].as_array();
    entries.into_iter().flatten().map(|entry| entry["name"].as_str().unwrap()).collect()
}

fn without_head(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["initializers"]["pending"].as_array_mut().unwrap().remove(0);
    object
}

fn code(verdict: &Verdict) -> i32 {
    verdict.refusal.as_ref().map_or(0, |refusal| refusal.code)
}

#[tokio::test]
async fn the_list_is_stored_and_each_acts_where_its_turn_comes() {
    let gate = in_turns();
    let stored = patched(&ask(&gate, create(&pod())).await, &pod());
    assert_eq!(pending(&stored), ["a.example.com", "mid.example.com", "b.example.com"]);
    assert_eq!(stored["metadata"]["initializers"]["creator"]["username"], "ann");
    assert_eq!(stored["metadata"]["labels"]["by"], Value::Null, "it is not its turn");
    // The owner of the head does its part, forgets the creator, and removes itself.
    let mut new = without_head(&stored);
    new["metadata"]["labels"]["a"] = "1".into();
    new["metadata"]["initializers"].as_object_mut().unwrap().remove("creator");
    let second = patched(&ask(&gate, update("a", &stored, &new)).await, &new);
    assert_eq!(pending(&second), ["b.example.com"]);
    assert_eq!(second["metadata"]["labels"], json!({"app": "web", "a": "1", "by": "ann"}), "by the creator");
    assert_eq!(second["metadata"]["initializers"]["creator"]["username"], "ann");
    let last = without_head(&second);
    let done = patched(&ask(&gate, update("b", &second, &last)).await, &last);
    assert_eq!(done["metadata"].get("initializers"), None, "{done}");
    // Nothing is initialized twice.
    assert_eq!(code(&ask(&gate, update("b", &done, &second)).await), 422);
    assert_eq!(ask(&gate, update("anybody", &done, &done)).await, ask(&gate, update("a", &done, &done)).await);
}

#[tokio::test]
async fn caller_without_the_capability_is_unaffected() {
    let gate = in_turns();
    let review = view(Rope::new([message(create(&pod()))])).unwrap();
    let verdict = decide(&gate, &review, &Caller { phase: Phase::Review, ..caller(LONG) }).await;
    let object = patched(&verdict, &pod());
    assert_eq!((object["metadata"].get("initializers"), &object["metadata"]["labels"]["by"]), (None, &"ann".into()));
}

#[tokio::test]
async fn only_the_head_s_owner_changes_the_list() {
    let gate = in_turns();
    let stored = patched(&ask(&gate, create(&pod())).await, &pod());
    let next = without_head(&stored);
    for (user, new, expected) in [
        ("eve", &stored, 403),
        ("eve", &next, 403),
        ("b", &next, 403),
        // It may initialize, and still the head is another's.
        ("admin", &stored, 0),
        ("admin", &next, 403),
        ("a", &next, 0),
        ("system:apiserver", &next, 0),
        ("a", &pod(), 422),
    ] {
        assert_eq!(code(&ask(&gate, update(user, &stored, new)).await), expected, "{user}");
    }
    let status = AdmissionRequest { sub_resource: Some("status".into()), ..update("admin", &stored, &stored) };
    assert_eq!(code(&ask(&gate, status).await), 403, "it has no status yet");
    let status = AdmissionRequest { sub_resource: Some("status".into()), ..update("eve", &pod(), &pod()) };
    assert_eq!(code(&ask(&gate, status).await), 0);
}

#[tokio::test]
async fn an_own_list_needs_permission_and_the_empty_one_passes_all_by() {
    let gate = in_turns();
    let listed = |list: Value| {
        let mut object = pod();
        object["metadata"]["initializers"] = list;
        object
    };
    let empty = listed(json!({"pending": []}));
    assert_eq!(code(&ask(&gate, create(&empty)).await), 403);
    let by_admin = |object: &Value| {
        let user_info = Some(UserInfo { username: Some("admin".to_owned()), ..UserInfo::default() });
        AdmissionRequest { user_info, ..create(object) }
    };
    let object = patched(&ask(&gate, by_admin(&empty)).await, &empty);
    assert_eq!(object["metadata"].get("initializers"), None);
    let own = listed(
        json!({"pending": [{"name": "mid.example.com"}, {"name": "someone.example.com"}], "creator": {"username": "root"}}),
    );
    let object = patched(&ask(&gate, by_admin(&own)).await, &own);
    assert_eq!(pending(&object), ["someone.example.com"], "who is not configured acts on the stored object");
    assert_eq!(object["metadata"]["initializers"]["creator"]["username"], "admin", "nobody chooses the creator");
    assert_eq!(object["metadata"]["labels"]["by"], "admin");
    let broken = listed(json!({"pending": 1}));
    assert_eq!(code(&ask(&gate, by_admin(&broken)).await), 422);
}

#[tokio::test]
async fn result_stays_and_failed_in_flight_turn_becomes_one() {
    let gate = configured(
        "  - {name: a.example.com}\n  - {name: gone.example.com, failurePolicy: Fail, attach: {commonNames: [x]}}\n",
        "",
    );
    gate.current.hub().tick();
    let stored = patched(&ask(&gate, create(&pod())).await, &pod());
    let mut failed = stored.clone();
    failed["metadata"]["initializers"]["result"] = json!({"status": "Failure", "code": 403, "message": "no"});
    let verdict = ask(&gate, update("admin", &stored, &failed)).await;
    assert_eq!(patched(&verdict, &failed)["metadata"]["initializers"]["result"]["message"], "no");
    assert_eq!(code(&ask(&gate, update("admin", &failed, &stored)).await), 422, "a result never changes");
    // The next one is attached to nobody, and must act: its time ends with the request's.
    let next = without_head(&stored);
    let review = view(Rope::new([message(update("admin", &stored, &next))])).unwrap();
    let soon = Caller { phase: Phase::Review, stores_unfinished: true, ..caller(Duration::from_millis(300)) };
    let object = patched(&decide(&gate, &review, &soon).await, &next);
    assert_eq!(pending(&object), ["gone.example.com"]);
    let result = &object["metadata"]["initializers"]["result"];
    assert_eq!((&result["code"], &result["status"]), (&504.into(), &"Failure".into()), "{object}");
}

/// Two hooks: one that may change objects and one that may not. Each judges as told.
async fn two_hooks(judge: impl Fn(&Value) -> Value + Clone + Send + Sync + 'static) -> ([HttpHook; 2], String) {
    let hooks = [
        HttpHook::plain(HttpScript::Judge(Judge::new(judge.clone()))).await,
        HttpHook::plain(HttpScript::Judge(Judge::new(judge))).await,
    ];
    let configured = ["Validating", "Mutating"].iter().zip(&hooks).map(|(hook_type, hook)| {
        format!(
            "{{name: {}.example.com, type: {hook_type}, protocol: json, sideEffects: None, clientConfig: {{url: '{}/'}}, \
             rules: [{{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}}]}}",
            hook_type.to_lowercase(),
            hook.url()
        )
    });
    let configured = configured.collect::<Vec<_>>().join(", ");
    (hooks, configured)
}

#[tokio::test]
async fn no_hook_keeps_an_unfinished_object_from_its_end() {
    // The hooks let nobody change such objects, nor make them with that label.
    let judge = |request: &Value| {
        let has_label = !request["object"]["metadata"]["labels"]["bad"].is_null();
        json!({"allowed": request["operation"] == "CREATE" && !has_label})
    };
    let (hooks, configuration) = two_hooks(judge).await;
    let gate = configured("  - {name: a.example.com}\n  - {name: b.example.com}\n", &configuration);
    let stored = patched(&ask(&gate, create(&pod())).await, &pod());
    let asked = || hooks.each_ref().map(|hook| hook.seen().len());
    assert_eq!(asked(), [0, 1], "the validating one when the object is initialized");
    let mut failed = stored.clone();
    failed["metadata"]["initializers"]["result"] = json!({"status": "Failure", "code": 504, "message": "late"});
    let mut next = without_head(&stored);
    next["metadata"]["labels"]["bad"] = "yes".into();
    let done = without_head(&next);
    for user in ["admin", "system:apiserver"] {
        for (old, new) in [(&stored, &stored), (&stored, &failed), (&stored, &next), (&next, &done)] {
            assert_eq!(code(&ask(&gate, update(user, old, new)).await), 0, "{user}: {new}");
        }
    }
    assert_eq!(asked(), [0, 1]);
    // It is judged as what is created, and from then on as what is updated.
    let object = patched(&ask(&gate, update("admin", &next, &done)).await, &done);
    assert_eq!(object["metadata"].get("initializers"), None);
    let review = view(Rope::new([message(create(&object))])).unwrap();
    let validate = Caller { phase: Phase::Validate, stores_unfinished: true, ..caller(LONG) };
    assert_eq!(code(&decide(&gate, &review, &validate).await), 400);
    assert_eq!(asked(), [1, 1]);
    assert_eq!(code(&ask(&gate, update("admin", &object, &object)).await), 400);
    assert_eq!(asked(), [1, 2]);
}

#[tokio::test]
async fn a_bypass_of_all_hooks_opens_no_list() {
    let bypass = "bypass:\n- {name: r, reason: told so, namespaces: [shop]}\n";
    let gate = gate(&(document(IN_TURNS, "") + bypass), Reasons::First);
    let stored = patched(&ask(&in_turns(), create(&pod())).await, &pod());
    // A running object is not hidden, nor one made with a list and a creator of one's own choice.
    assert_eq!(code(&ask(&gate, update("eve", &pod(), &stored)).await), 422);
    assert_eq!(code(&ask(&gate, create(&stored)).await), 403);
    let next = without_head(&stored);
    for (user, new, expected) in [("eve", &stored, 403), ("eve", &next, 403), ("eve", &pod(), 422), ("a", &pod(), 422)]
    {
        assert_eq!(code(&ask(&gate, update(user, &stored, new)).await), expected, "{user}");
    }
    let object = patched(&ask(&gate, update("a", &stored, &next)).await, &next);
    assert_eq!((pending(&object), &object["metadata"]["labels"]["by"]), (vec!["b.example.com"], &"ann".into()));
    // It opens what it is for: nobody must act, not even who is listed by somebody who may.
    let verdict = ask(&gate, create(&pod())).await;
    assert_eq!((&verdict.refusal, &verdict.patch), (&None, &None));
    assert_eq!(code(&ask(&gate, update("eve", &pod(), &pod())).await), 0);
    let user_info = Some(UserInfo { username: Some("admin".to_owned()), ..UserInfo::default() });
    let listed = patched(&ask(&gate, AdmissionRequest { user_info, ..create(&stored) }).await, &stored);
    assert_eq!(listed["metadata"].get("initializers"), None);
}

#[tokio::test]
async fn an_initializer_may_refuse_with_any_code_and_many_words() {
    let names = "  - {name: a.example.com}\n  - {name: no.example.com, attach: {commonNames: [x]}}\n";
    let gate = configured(names, "");
    let mut attached = gate.current.hub().attach(&"no.example.com".into(), 1, Instant::now()).unwrap();
    let stored = patched(&ask(&gate, create(&pod())).await, &pod());
    let next = without_head(&stored);
    for code in [429, 503] {
        let refusing = async {
            let Some(ToInstance::Task { task, attempt, .. }) = attached.recv().await else { panic!("no task") };
            let status = StatusInfo { code, message: "x".repeat(1 << 20), ..StatusInfo::default() };
            let room = gate.memory.empty(Purpose::Answer);
            assert!(attached.answer(task, attempt, Err(Box::new(status)), room));
        };
        let request = AdmissionRequest { uid: Some(code.to_string()), ..update("admin", &stored, &next) };
        let (verdict, ()) = tokio::join!(ask(&gate, request), refusing);
        let result = patched(&verdict, &next)["metadata"]["initializers"]["result"].take();
        assert_eq!(result["code"], code);
        assert!(result["message"].as_str().unwrap().len() <= 16 << 10, "as long as can be reported");
    }
}

#[tokio::test]
async fn a_list_that_is_too_long_becomes_shorter() {
    let gate = in_turns();
    let names = |from: usize| (from..130).map(|n| json!({"name": format!("n{n}.example.com")})).collect::<Vec<_>>();
    let listed = |from| {
        let mut object = pod();
        object["metadata"]["initializers"] = json!({"pending": names(from), "creator": {"username": "ann"}});
        object
    };
    assert_eq!(code(&ask(&gate, update("admin", &listed(0), &listed(1))).await), 0);
    let mut failed = listed(0);
    failed["metadata"]["initializers"]["result"] = json!({"status": "Failure", "code": 504, "message": "late"});
    assert_eq!(code(&ask(&gate, update("system:apiserver", &listed(0), &failed)).await), 0);
    assert_eq!(code(&ask(&gate, update("admin", &listed(1), &listed(0))).await), 422);
}

/// Only the owner whose turn it is adds a container; nobody else does while the object is unfinished.
#[tokio::test]
async fn an_initializer_may_change_the_spec_of_an_unfinished_pod() {
    let gate = in_turns();
    let stored = patched(&ask(&gate, create(&pod_with_spec())).await, &pod_with_spec());
    let mut changed = stored.clone();
    changed["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "proxy", "image": "proxy:1"}));
    assert_ne!(code(&ask(&gate, update("eve", &stored, &changed)).await), 0);
    let object = patched(&ask(&gate, update("a", &stored, &changed)).await, &changed);
    assert_eq!(object["spec"]["containers"][1]["name"], "proxy");
    let next = without_head(&changed);
    let object = patched(&ask(&gate, update("a", &stored, &next)).await, &next);
    assert_eq!((pending(&object), &object["spec"]), (vec!["b.example.com"], &changed["spec"]));
}

#[tokio::test]
async fn validating_hooks_of_a_create_see_the_initialized_object() {
    let judge = Judge::new(|request| {
        let (labels, spec) = (&request["object"]["metadata"]["labels"], &request["object"]["spec"]);
        let user = &request["userInfo"]["username"];
        json!({"allowed": false, "status": {"message": format!("{} {user} {labels} {spec}", request["operation"])}})
    });
    let hook = HttpHook::plain(HttpScript::Judge(judge)).await;
    let hooks = format!(
        "{{name: no.example.com, type: Validating, protocol: json, sideEffects: None, clientConfig: {{url: '{}/'}}, \
         rules: [{{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}}]}}",
        hook.url()
    );
    let gate = configured("  - {name: a.example.com}\n", &hooks);
    let stored = patched(&ask(&gate, create(&pod())).await, &pod());
    assert_eq!(pending(&stored), ["a.example.com"], "it will be asked when the object is initialized");
    assert!(hook.seen().is_empty(), "not about an object that is unfinished");
    let mut done = without_head(&stored);
    done["metadata"]["labels"]["by"] = json!("a");
    done["spec"] = pod_with_spec()["spec"].take();
    let done = patched(&ask(&gate, update("admin", &stored, &done)).await, &done);
    assert!(hook.seen().is_empty(), "not about the step of an initializer either");
    let review = view(Rope::new([message(create(&done))])).unwrap();
    let validate = Caller { phase: Phase::Validate, stores_unfinished: true, ..caller(LONG) };
    let says = |verdict: Verdict| verdict.refusal.unwrap().message;
    let said = says(decide(&gate, &review, &validate).await);
    let (labels, spec) = (json!({"app": "web", "by": "a"}), &done["spec"]);
    assert!(said.ends_with(&format!(r#""CREATE" "ann" {labels} {spec}"#)), "{said}");
    let gate = configured("  - {name: mid.example.com, builtIn: {labels: {by: x}}}\n", &hooks);
    let said = says(ask(&gate, create(&pod())).await);
    let labels = json!({"app": "web", "by": "x"});
    assert!(said.ends_with(&format!(r#""CREATE" "ann" {labels} null"#)), "nobody is left who must act: {said}");
}
