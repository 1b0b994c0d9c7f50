use serde_json::json;

use super::*;
use gatepost_adopt::{Claims, replica_lease, webhooks_of};

#[test]
fn status_names_replicas_that_do_not_call_a_taken_webhook() {
    let condition = json!([{"name": "gatepost.dev/served", "expression": "false"}]);
    let object = json!({"metadata": {"name": "c"}, "webhooks": [{"name": "w", "matchConditions": condition}]});
    let standing = webhooks_of(HookType::Validating, &object).remove(0);
    let mut seen = AssessedEntry {
        standing: standing.clone(),
        unservable: None,
        reason_not_to_adopt: None,
        unsent: false,
        wanted: Ok(()),
        uses_authorizer: false,
        reads: Vec::new(),
        guarded: true,
        in_flight: Duration::ZERO,
    };
    let lease = |holder: &str, calls: bool| {
        let ids = calls.then(|| standing.id.clone()).into_iter().collect();
        Lease::of(&replica_lease(holder, "2026-11-21T00:00:00.000000Z", Some(&Claims { epoch: 1, ids }))).unwrap()
    };
    let began = humantime::parse_rfc3339_weak("2026-11-21T00:00:10Z").unwrap();
    let uncalled = |leases: &[Lease]| uncalled(&seen, leases, began);
    assert!(uncalled(&[]).unwrap().contains("nobody may use it"));
    assert_eq!(uncalled(&[lease("a/1", true), lease("b/1", true)]), None);
    assert!(uncalled(&[lease("a/1", true), lease("b/1", false)]).unwrap().ends_with("and b may not use it"));
    let later = super::uncalled(&seen, &[lease("a/1", true)], began + DEAD_REPLICA_AGE);
    assert!(later.unwrap().contains("nobody may use it"), "whatever it said");
    seen.unsent = true;
    seen.reason_not_to_adopt = Some(Reason::Uncovered("a gap".to_owned()));
    let told = super::uncalled(&seen, &[lease("a/1", true)], began);
    assert!(told.unwrap().contains("a gap"), "although all replicas would call it");
    seen.standing.carries = false;
    assert_eq!(super::uncalled(&seen, &[lease("a/1", true)], began), None, "the apiserver calls it");
}

#[test]
fn binding_of_a_deleted_policy_stays_parked() {
    let is = |policy_name: &str| {
        let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": policy_name}});
        let standing = gatepost_adopt::bindings_of(HookType::Validating, &[], &[binding]).remove(0);
        (is_in(TargetState::Taken, &standing), is_in(TargetState::Released, &standing))
    };
    assert_eq!(is("p.parked.gatepost.dev"), (false, false));
    assert_eq!(is("p"), (false, true));
}
