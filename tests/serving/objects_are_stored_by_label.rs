//! Reviews of objects that a stock apiserver stores unfinished: how they are marked, and what becomes of the marks when
//! others write the object.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use gatepost::review::{AdmissionDeps, Caller, Reasons, decide};
use gatepost_api::initialization::{PENDING_LABEL, STATE_ANNOTATION, id_in_pending_warning, pending_warning};
use gatepost_api::{Phase, Rope, Verdict};
use gatepost_initializers::{Initializers, marks::InitState};
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
    reviews::{create_pod, message},
};

fn by_label() -> Arc<AdmissionDeps> {
    let yaml = r"
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: test}
resourceInitializers:
- resource: pods
  stored: Label
  mayInitialize: {users: [admin]}
  initializers:
  - {name: a.example.com, owners: {users: [a]}, changes: Metadata, objectSelector: &web {matchLabels: {app: web}}}
  - {name: b.example.com, builtIn: {labels: {by: '${user}'}}, objectSelector: *web}
";
    let gate = gate(yaml, Reasons::First);
    gate.current.labelled().set_account("gatepost");
    gate
}

async fn ask(gate: &AdmissionDeps, phase: Phase, request: AdmissionRequest) -> Verdict {
    let review = view(Rope::new([message(request)])).unwrap();
    decide(gate, &review, &Caller { phase, ..caller(Duration::from_secs(20)) }).await
}

fn raw(object: &Value) -> Option<RawExtension> {
    Some(RawExtension { raw: Some(object.to_string().into()) })
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}})
}

fn create(user: &str, object: &Value) -> AdmissionRequest {
    let user_info = Some(UserInfo { username: Some(user.to_owned()), ..UserInfo::default() });
    AdmissionRequest { object: raw(object), user_info, ..create_pod("u", 0) }
}

fn update(user: &str, old: &Value, new: &Value) -> AdmissionRequest {
    AdmissionRequest { operation: Some("UPDATE".to_owned()), old_object: raw(old), ..create(user, new) }
}

/// The object as the verdict leaves it.
fn patched(verdict: &Verdict, object: &Value) -> Value {
    assert_eq!(verdict.refusal, None);
    let patch = Patch::parse(verdict.patch.clone().unwrap_or_else(|| "[]".into())).unwrap();
    let object = Document::new(Rope::new([Bytes::from(object.to_string())])).unwrap();
    let patched = object.patched(&patch, PatchLimits::default()).unwrap();
    serde_json::from_slice(&patched.rope().to_bytes()).unwrap()
}

fn code(verdict: &Verdict) -> i32 {
    verdict.refusal.as_ref().map_or(0, |refusal| refusal.code)
}

fn state(object: &Value) -> InitState {
    InitState::read(object["metadata"]["annotations"][STATE_ANNOTATION].as_str().unwrap()).unwrap()
}

fn with(object: &Value, state: &InitState, label: bool) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"][STATE_ANNOTATION] = state.write().unwrap().into();
    if !label {
        object["metadata"]["labels"].as_object_mut().unwrap().remove(PENDING_LABEL);
    }
    object
}

async fn stored(gate: &AdmissionDeps) -> Value {
    patched(&ask(gate, Phase::Mutate, create("ann", &pod())).await, &pod())
}

#[tokio::test]
async fn a_new_object_is_marked_with_its_list_and_its_creator_and_nobody_has_acted() {
    let gate = by_label();
    // Also where the manifest is that of one that was finished.
    let mut again = pod();
    again["metadata"]["annotations"] = json!({STATE_ANNOTATION: InitState::completed().write().unwrap()});
    let marked = patched(&ask(&gate, Phase::Mutate, create("bob", &again)).await, &again);
    assert_eq!(state(&marked).username(), Some("bob"));
    let verdict = ask(&gate, Phase::Mutate, create("ann", &pod())).await;
    let stored = patched(&verdict, &pod());
    let id = stored["metadata"]["labels"][PENDING_LABEL].as_str().unwrap();
    assert_eq!(verdict.warnings, [pending_warning(id)]);
    assert!(
        id_in_pending_warning(&pending_warning(id)).is_some() && stored["metadata"]["labels"]["by"].is_null(),
        "{stored}"
    );
    let state = state(&stored);
    assert_eq!(state.list.pending.iter().map(|name| &**name).collect::<Vec<_>>(), ["a.example.com", "b.example.com"]);
    assert_eq!((state.username(), state.list.result.is_none()), (Some("ann"), true));
    assert_eq!(code(&ask(&gate, Phase::Validate, create("ann", &stored)).await), 0);
    let again = patched(&ask(&gate, Phase::Mutate, create("ann", &stored)).await, &stored);
    assert_ne!(again["metadata"]["labels"][PENDING_LABEL], *id, "an id that a client could choose counts for nothing");
    // No caller waits for a dry run, and nothing is stored.
    let dry = AdmissionRequest { dry_run: Some(true), ..create("ann", &pod()) };
    assert_eq!(patched(&ask(&gate, Phase::Mutate, dry).await, &pod()), pod());
}

#[tokio::test]
async fn permitted_users_skip_initializers_and_marks_of_clients_are_refused() {
    let gate = by_label();
    let listed = |names: &str| {
        let mut pod = pod();
        pod["metadata"]["annotations"] = json!({"gatepost.dev/initializers": names});
        pod
    };
    let passed = ask(&gate, Phase::Mutate, create("admin", &listed(""))).await;
    assert_eq!((patched(&passed, &listed("")), passed.warnings.len()), (listed(""), 0));
    assert_eq!(code(&ask(&gate, Phase::Mutate, create("ann", &listed(""))).await), 403);
    let one = ask(&gate, Phase::Mutate, create("admin", &listed("b.example.com"))).await;
    assert_eq!(state(&patched(&one, &listed("b.example.com"))).list.pending.len(), 1);
    let mut faked = pod();
    faked["metadata"]["labels"][PENDING_LABEL] = "1".into();
    for user in ["ann", "admin"] {
        assert_eq!(code(&ask(&gate, Phase::Mutate, create(user, &faked)).await), 403, "{user}");
        assert_eq!(code(&ask(&gate, Phase::Validate, create(user, &faked)).await), 403, "{user}");
    }
    let of_ann = stored(&gate).await;
    assert_eq!(code(&ask(&gate, Phase::Mutate, create("bob", &of_ann)).await), 403);
    assert_eq!(code(&ask(&gate, Phase::Validate, create("bob", &of_ann)).await), 403);
}

/// A webhook behind us changes the object so that nobody must act, and the apiserver asks us again.
#[tokio::test]
async fn marks_of_an_earlier_call_are_removed_where_nobody_must_act_any_more() {
    let gate = by_label();
    let mut changed = stored(&gate).await;
    changed["metadata"]["labels"]["app"] = json!("db");
    let verdict = ask(&gate, Phase::Mutate, create("ann", &changed)).await;
    let unmarked = patched(&verdict, &changed);
    assert_eq!(unmarked["metadata"]["labels"][PENDING_LABEL], Value::Null);
    assert_eq!(unmarked["metadata"]["annotations"][STATE_ANNOTATION], Value::Null);
    assert_eq!(code(&ask(&gate, Phase::Mutate, create("bob", &changed)).await), 403, "they name ann");
}

#[tokio::test]
async fn the_marks_are_changed_by_the_owner_of_the_head_and_by_gatepost_alone() {
    let gate = by_label();
    let first = stored(&gate).await;
    let before = state(&first);
    let second = with(&first, &before.done("a.example.com", Vec::new()).unwrap(), true);
    let last = with(&second, &state(&second).done("b.example.com", Vec::new()).unwrap(), false);
    let mut changed = first.clone();
    changed["metadata"]["labels"]["x"] = "y".into();
    for phase in [Phase::Mutate, Phase::Validate] {
        for (user, old, new, wanted) in [
            ("a", &first, &second, 0),
            ("admin", &first, &second, 403),
            ("ann", &first, &second, 403),
            ("gatepost", &first, &second, 0),
            ("gatepost", &second, &last, 0),
            ("gatepost", &first, &last, 422),
            ("admin", &second, &last, 0),
            ("admin", &first, &changed, 0),
            ("ann", &first, &changed, 403),
            ("gatepost", &last, &first, 422),
            ("gatepost", &pod(), &first, 422),
            ("ann", &last, &last, 0),
            ("ann", &pod(), &pod(), 0),
        ] {
            let verdict = ask(&gate, phase, update(user, old, new)).await;
            assert_eq!(code(&verdict), wanted, "{phase:?} {user} {old} {new}");
            assert_eq!(verdict.patch, None);
        }
    }
    // A subresource writes metadata, too.
    let status = AdmissionRequest { sub_resource: Some("status".to_owned()), ..update("ann", &first, &pod()) };
    assert_eq!(code(&ask(&gate, Phase::Validate, status).await), 403);
    // A user who deletes it must not wait.
    let mut leaving = first.clone();
    leaving["metadata"]["deletionTimestamp"] = "2026-11-23T08:00:00Z".into();
    assert_eq!(code(&ask(&gate, Phase::Validate, update("ann", &leaving, &leaving)).await), 0);
    let delete =
        AdmissionRequest { operation: Some("DELETE".to_owned()), object: None, ..update("ann", &first, &pod()) };
    assert_eq!(code(&ask(&gate, Phase::Mutate, delete).await), 0);
}

#[tokio::test]
async fn whose_turn_is_over_is_recorded_for_clients_that_do_not_say_so() {
    let gate = by_label();
    let first = stored(&gate).await;
    let before = state(&first);
    let rest = before.list.pending.iter().skip(1).map(|name| &**name);
    let second = with(&first, &InitState { list: Initializers::of(rest), ..before.clone() }, true);
    let recorded = patched(&ask(&gate, Phase::Mutate, update("a", &first, &second)).await, &second);
    assert_eq!(state(&recorded).done, ["a.example.com".into()]);
    assert_eq!(code(&ask(&gate, Phase::Validate, update("a", &first, &recorded)).await), 0);
}

#[tokio::test]
async fn marks_that_an_update_forgets_are_restored_and_else_it_is_refused() {
    let gate = by_label();
    let first = stored(&gate).await;
    let mut without_labels = pod();
    without_labels["metadata"].as_object_mut().unwrap().remove("labels");
    let mut without_label = first.clone();
    without_label["metadata"]["labels"].as_object_mut().unwrap().remove(PENDING_LABEL);
    for new in [pod(), without_labels, without_label] {
        let verdict = ask(&gate, Phase::Mutate, update("admin", &first, &new)).await;
        let restored = patched(&verdict, &new);
        assert_eq!(restored["metadata"]["labels"][PENDING_LABEL], first["metadata"]["labels"][PENDING_LABEL]);
        assert_eq!(
            restored["metadata"]["annotations"][STATE_ANNOTATION],
            first["metadata"]["annotations"][STATE_ANNOTATION]
        );
        assert_eq!(code(&ask(&gate, Phase::Validate, update("admin", &first, &new)).await), 422);
        assert_eq!(code(&ask(&gate, Phase::Mutate, update("ann", &first, &new)).await), 403);
    }
}
