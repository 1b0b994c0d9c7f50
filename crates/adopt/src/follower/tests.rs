//! Webhooks that one replica calls, read by read.

use serde_json::{Value, json};

use super::*;
use crate::webhooks_of;
use gatepost_api::HookType;

fn seen(name: &str, carries: bool, state: u32) -> AssessedEntry {
    let mut entry = json!({"name": name, "timeoutSeconds": state});
    if carries {
        entry["matchConditions"] = json!([{"name": "gatepost.dev/served", "expression": "false"}]);
    }
    let object = json!({"metadata": {"name": "c", "uid": "u"}, "webhooks": [entry]});
    let standing = webhooks_of(HookType::Validating, &object).remove(0);
    AssessedEntry::sound(standing)
}

fn announced() -> Announcement {
    Announcement { epoch: 1, ids: [seen("w", false, 1).standing.id].into(), ending: BTreeSet::new() }
}

fn ending() -> Announcement {
    Announcement { epoch: 2, ids: BTreeSet::new(), ending: announced().ids }
}

fn summary(calls: &[CalledEntry]) -> Vec<(Cause, u64, bool)> {
    calls.iter().map(|it| (it.cause, it.content["timeoutSeconds"].as_u64().unwrap(), it.at_once)).collect()
}

const fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[test]
fn webhook_with_condition_is_called_until_the_grace_period_ends() {
    let (mut webhooks, none) = (Follower::default(), Announcement::default());
    assert_eq!(summary(&webhooks.update(at(0), &[seen("w", false, 1)], &none, false)), []);
    assert_eq!(summary(&webhooks.update(at(1000), &[seen("w", true, 1)], &none, false)), [(Cause::Carries, 1, true)]);
    assert_eq!(summary(&webhooks.update(at(2000), &[seen("w", false, 2)], &none, false)), [(Cause::Grace, 2, true)]);
    assert_eq!(summary(&webhooks.update(at(2999), &[seen("w", false, 2)], &none, false)), [(Cause::Grace, 2, true)]);
    assert_eq!(summary(&webhooks.update(at(3000), &[seen("w", false, 2)], &none, false)), []);
}

fn of_version(version: &str, carries: bool) -> AssessedEntry {
    let mut seen = AssessedEntry { in_flight: at(3000), ..seen("w", carries, 1) };
    seen.standing.version = version.to_owned();
    seen
}

#[test]
fn webhook_that_lost_the_condition_is_called_for_grace_and_in_flight_time() {
    let (mut webhooks, ends) = (Follower::default(), ending());
    let mut causes = |milliseconds, seen: AssessedEntry, announcement: &Announcement| {
        let calls = webhooks.update(at(milliseconds), &[seen], announcement, false);
        calls.first().map(|calls| calls.cause)
    };
    assert_eq!(causes(0, of_version("1", true), &announced()), Some(Cause::Carries));
    assert_eq!(causes(1000, of_version("2", false), &announced()), Some(Cause::Announced));
    assert_eq!(causes(2000, of_version("2", false), &ends), Some(Cause::Grace));
    assert_eq!(causes(3000, of_version("3", false), &ends), Some(Cause::Grace));
    assert_eq!(causes(5999, of_version("4", false), &ends), Some(Cause::Grace));
    assert_eq!(causes(6000, of_version("4", false), &ends), None, "changes meanwhile make no difference");
    assert_eq!(causes(6001, of_version("4", false), &ends), None, "nor that it ends");
    // Its owner drops the condition before this replica has read it.
    assert_eq!(causes(10_000, of_version("5", false), &announced()), Some(Cause::Announced));
    assert_eq!(causes(11_000, of_version("7", false), &ends), Some(Cause::Grace));
    assert_eq!(causes(15_999, of_version("7", false), &ends), Some(Cause::Grace));
    assert_eq!(causes(16_000, of_version("7", false), &ends), None);
}

#[test]
fn ending_webhook_is_called_at_once_by_a_starting_replica() {
    let (mut webhooks, none) = (Follower::default(), Announcement::default());
    let mut update = |milliseconds, announcement: &Announcement| {
        summary(&webhooks.update(at(milliseconds), &[of_version("1", false)], announcement, false))
    };
    let called = [(Cause::Grace, 1, true)];
    assert_eq!(update(0, &ending()), called);
    assert_eq!(update(3000, &ending()), called, "as long as it is announced");
    assert_eq!((update(4999, &none).len(), update(5000, &none).len()), (1, 0));
    assert_eq!(update(6000, &ending()), [], "it does not start any more");
}

#[test]
fn ending_webhook_is_called_at_once_after_a_read_gap() {
    for (gap, lease_is_stale, expected) in [(5000, false, 0), (5001, false, 1), (1400, true, 0), (1401, true, 1)] {
        let mut webhooks = Follower::default();
        webhooks.update(at(0), &[], &Announcement::default(), lease_is_stale);
        let calls = webhooks.update(at(gap), &[of_version("3", false)], &ending(), lease_is_stale);
        assert_eq!(summary(&calls), vec![(Cause::Grace, 1, true); expected], "{gap} {lease_is_stale}");
    }
    // It called that before, and was about to stop.
    let mut webhooks = Follower::default();
    let mut update = |milliseconds, version: &str, announcement: &Announcement| {
        webhooks.update(at(milliseconds), &[of_version(version, false)], announcement, false).len()
    };
    let none = Announcement::default();
    assert_eq!((update(0, "1", &none), update(1000, "1", &announced()), update(2000, "1", &none)), (0, 1, 1));
    assert_eq!(update(40_000, "3", &ending()), 1, "taken and given back meanwhile");
    assert_eq!((update(43_000, "3", &ending()), update(44_999, "3", &ending())), (1, 1));
    assert_eq!((update(46_998, "3", &none), update(46_999, "3", &none)), (1, 0));
}

#[test]
fn webhook_changed_between_reads_is_called_as_if_it_had_carried_the_condition() {
    let none = Announcement::default();
    let mut webhooks = Follower::default();
    let mut update = |milliseconds, version: &str, announcement: &Announcement| {
        webhooks.update(at(milliseconds), &[of_version(version, false)], announcement, false).len()
    };
    assert_eq!(update(0, "1", &none), 0);
    assert_eq!(update(1000, "1", &announced()), 1);
    assert_eq!(update(2000, "3", &announced()), 1);
    assert_eq!((update(3000, "3", &none), update(6999, "3", &none), update(7000, "3", &none)), (1, 1, 0));
    // Its owner removes it instead.
    let mut webhooks = Follower::default();
    let mut update = |milliseconds, webhook: AssessedEntry, announcement: &Announcement| {
        webhooks.update(at(milliseconds), &[webhook], announcement, false).len()
    };
    update(0, of_version("1", false), &none);
    assert_eq!(update(1000, of_version("1", false), &announced()), 1);
    assert_eq!(update(2000, seen("other", false, 1), &none), 1);
    assert_eq!((update(6999, seen("other", false, 1), &none), update(7000, seen("other", false, 1), &none)), (1, 0));
}

#[test]
fn announced_webhook_is_called_before_it_carries_the_condition() {
    let (mut webhooks, none) = (Follower::default(), Announcement::default());
    let announced = announced();
    webhooks.update(at(0), &[], &none, false);
    assert_eq!(
        summary(&webhooks.update(at(1), &[seen("w", false, 1)], &announced, false)),
        [(Cause::Announced, 1, false)]
    );
    assert_eq!(summary(&webhooks.update(at(2), &[seen("w", true, 1)], &announced, false)), [(Cause::Carries, 1, true)]);
    assert_eq!(summary(&webhooks.update(at(3), &[], &announced, false)), [], "deleted");
}

#[test]
fn unservable_webhook_is_called_in_its_last_good_state() {
    let (mut webhooks, none) = (Follower::default(), Announcement::default());
    let broken = |carries, state| AssessedEntry { unservable: Some(Reason::TooMany), ..seen("w", carries, state) };
    assert_eq!(summary(&webhooks.update(at(0), &[broken(true, 1)], &none, false)), [], "it never could");
    assert_eq!(summary(&webhooks.update(at(1), &[seen("w", true, 2)], &none, false)), [(Cause::Carries, 2, true)]);
    assert_eq!(summary(&webhooks.update(at(2), &[broken(true, 3)], &none, false)), [(Cause::Carries, 2, true)]);
    assert_eq!(summary(&webhooks.update(at(1500), &[broken(false, 3)], &none, false)), [(Cause::Grace, 2, true)]);
}

#[test]
fn taken_webhook_waits_for_no_probe_nor_does_an_announced_one_under_a_stale_lease() {
    let (mut webhooks, none) = (Follower::default(), Announcement::default());
    let announced = announced();
    assert_eq!(summary(&webhooks.update(at(0), &[seen("w", true, 1)], &none, false)), [(Cause::Carries, 1, true)]);
    let mut webhooks = Follower::default();
    let step = webhooks.update(at(0), &[seen("w", false, 1)], &announced, true);
    assert_eq!(summary(&step), [(Cause::Announced, 1, true)]);
    assert_eq!(
        summary(&webhooks.update(at(1), &[seen("w", false, 1)], &announced, false)),
        [(Cause::Announced, 1, true)]
    );
}

#[test]
fn renamed_webhook_is_called_until_the_grace_period_ends() {
    let (mut webhooks, none) = (Follower::default(), Announcement::default());
    let slow = |name: &str, carries| AssessedEntry { in_flight: at(3000), ..seen(name, carries, 1) };
    let mut names = |now, seen: &[AssessedEntry]| {
        let calls = webhooks.update(at(now), seen, &none, false);
        calls.iter().map(|it| (it.key.name.clone(), it.cause)).collect::<Vec<_>>()
    };
    let gone = || vec![("w".to_owned(), Cause::Grace)];
    assert_eq!(names(0, &[slow("w", true)]).len(), 1);
    assert_eq!(names(1000, &[slow("other", false)]), gone());
    assert_eq!(names(5999, &[slow("other", false)]), gone());
    assert_eq!(names(6000, &[slow("other", false)]), [], "in time");
    assert_eq!(names(6000, &[slow("w", true)]).len(), 1);
    assert_eq!(names(7000, &[]), [], "its configuration is gone");
}

#[test]
fn never_servable_webhook_is_unserved_until_the_grace_period_ends() {
    let (mut webhooks, none) = (Follower::default(), Announcement::default());
    let broken = |carries, state| AssessedEntry { unservable: Some(Reason::TooMany), ..seen("w", carries, state) };
    let summary = |webhooks: &Follower, now| webhooks.unserved(at(now)).next().map(|unserved| unserved.carries);
    let mut unserved = |now, seen: AssessedEntry| {
        webhooks.update(at(now), &[seen], &none, false);
        summary(&webhooks, now)
    };
    assert_eq!(unserved(0, broken(false, 1)), None);
    assert_eq!(unserved(1000, broken(true, 1)), Some(true));
    assert_eq!(unserved(2000, broken(false, 1)), Some(false));
    assert_eq!(unserved(2999, broken(false, 1)), Some(false));
    assert_eq!(unserved(3000, broken(false, 1)), None);
    assert_eq!(unserved(4000, broken(true, 1)), Some(true));
    assert_eq!(unserved(4001, seen("w", true, 2)), None, "it is called from now on");
    assert_eq!(unserved(5000, broken(true, 3)), None, "its last good state is called");
    let (mut webhooks, announced) = (Follower::default(), announced());
    let mut unserved = |now| {
        webhooks.update(at(now), &[broken(false, 1)], &announced, false);
        summary(&webhooks, now)
    };
    let expected = (Some(false), Some(false), None);
    assert_eq!((unserved(0), unserved(1999), unserved(2000)), expected, "another gave it back");
}

#[test]
fn grace_period_includes_the_in_flight_time() {
    let (mut webhooks, none) = (Follower::default(), Announcement::default());
    let slow = |carries| AssessedEntry { in_flight: at(10_000), ..seen("w", carries, 1) };
    webhooks.update(at(0), &[slow(true)], &none, false);
    assert_eq!(summary(&webhooks.update(at(11_999), &[slow(false)], &none, false)), [(Cause::Grace, 1, true)]);
    assert_eq!(summary(&webhooks.update(at(12_000), &[slow(false)], &none, false)), []);
}

#[test]
fn deleted_policy_is_no_longer_evaluated() {
    let bindings = |policies: &[Value]| {
        let kept = json!({"policyName": "p", "paramRef": null}).to_string();
        let metadata = json!({"name": "b", "annotations": {"gatepost.dev/parked-param-ref": kept}});
        let binding = json!({"metadata": metadata, "spec": {"policyName": "p.parked.gatepost.dev"}});
        let standing = crate::bindings_of(HookType::Validating, policies, &[binding]).remove(0);
        let unservable = policies.is_empty().then(|| Reason::Unservable("no policy".to_owned()));
        [AssessedEntry { unservable, ..AssessedEntry::sound(standing) }]
    };
    let (mut follower, none) = (Follower::default(), Announcement::default());
    let policy = json!({"metadata": {"name": "p"}, "spec": {}});
    assert_eq!(follower.update(at(0), &bindings(&[policy]), &none, false).len(), 1);
    assert_eq!(follower.update(at(1000), &bindings(&[]), &none, false), []);
    let mut starting = Follower::default();
    assert_eq!(starting.update(at(0), &bindings(&[]), &none, false), []);
    assert_eq!(starting.unserved(at(0)).count(), 0, "it starts without giving it back");
}
