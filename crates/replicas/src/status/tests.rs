use serde_json::json;

use super::*;

const NOW: &str = "2026-01-01T00:01:00Z";

fn now() -> SystemTime {
    humantime::parse_rfc3339(NOW).unwrap()
}

fn hook(configuration: &str, name: &str, state: HookStanding) -> HookReport {
    HookReport {
        name: name.to_owned(),
        id: format!("{configuration}/{name}/0"),
        configuration: configuration.to_owned(),
        endpoint: format!("grpc://{name}:1"),
        state,
        since: NOW.to_owned(),
        ..HookReport::default()
    }
}

fn report(hooks: &[(&str, &str, HookStanding)]) -> ReplicaReport {
    ReplicaReport {
        replica: "a".to_owned(),
        instance: "i".to_owned(),
        version: "1".to_owned(),
        generation: 3,
        revision: "7".to_owned(),
        digest: "ab".to_owned(),
        observed: Some(9),
        age_seconds: Some(0.5),
        hooks: hooks.iter().map(|(configuration, name, state)| hook(configuration, name, *state)).collect(),
        published: NOW.to_owned(),
        ..ReplicaReport::default()
    }
}

/// The objects of these names, each with the entry that this report has for it.
fn objects(report: &ReplicaReport, names: &[&str]) -> Vec<Value> {
    let shares = ReportShares::new(report, names.iter().map(|name| (*name, false)));
    let object = |name: &&str| {
        let entry = shares.entry(ObjectFacts { name, generation: Some(1), left: false });
        json!({"metadata": {"name": name}, "externalAdmissionHooks": [{}], "status": {"replicas": [entry]}})
    };
    names.iter().map(object).collect()
}

#[test]
fn report_is_put_together_from_the_shares_of_all_objects() {
    let mut replica_report = report(&[
        ("one", "a.example.com", HookStanding::Active),
        ("one", "a.example.com", HookStanding::Gone),
        ("two", "b.example.com", HookStanding::Draining),
        ("went", "c.example.com", HookStanding::Gone),
    ]);
    let problem = |file: &str| format!("admissioncontrolconfigurations/{file}: x: is wrong");
    let problems = vec![problem("two"), problem("onerous")];
    let (held, held_left_out) = (Vec::new(), 0);
    replica_report.rejected = Some(RejectedConfiguration {
        revision: "8".to_owned(),
        since: NOW.to_owned(),
        problems,
        count: 2,
        held,
        held_left_out,
    });
    let objects = objects(&replica_report, &["one", "two"]);
    let entry = |index: usize| entries(&objects[index]).next().unwrap().unwrap();
    assert_eq!(entry(0).hooks.unwrap().len(), 2, "a hook that has moved");
    assert_eq!(entry(0).others.unwrap()[0].configuration, "went");
    assert_eq!((entry(1).draining, entry(1).others), (Some(true), None));
    assert_eq!(entry(1).rejected, Some(vec![problem("two")]));

    let mut seen = seen(&objects, now());
    let read = &mut seen.reports[0];
    let order = |hook: &HookReport| (hook.name.clone(), hook.state);
    read.hooks.sort_by_key(order);
    read.rejected.as_mut().unwrap().problems.reverse();
    assert_eq!(*read, replica_report);
}

#[test]
fn held_back_object_reports_that_and_the_others_are_in_force() {
    let mut replica_report = report(&[("one", "a.example.com", HookStanding::Active)]);
    let held = |document: &str, keeps| HeldReport {
        document: document.to_owned(),
        keeps,
        since: NOW.to_owned(),
        why: format!("{document}: x: is wrong; mend it"),
    };
    let held = vec![
        held("admissioncontrolconfigurations/two", true),
        held("admissioncontrolconfigurations/three", false),
        held("breakglasses/x", false),
    ];
    let problems: Vec<_> = held.iter().map(|held| held.why.clone()).collect();
    let (revision, since) = ("8".to_owned(), NOW.to_owned());
    replica_report.rejected =
        Some(RejectedConfiguration { revision, since, problems: problems.clone(), count: 3, held, held_left_out: 0 });
    let names = ["one", "two", "three"];
    let shares = ReportShares::new(&replica_report, names.iter().map(|name| (*name, false)));
    assert_eq!(names.map(|name| shares.is_in_force(name)), [true, false, false]);
    let objects = objects(&replica_report, &names);
    let entry = |index: usize| entries(&objects[index]).next().unwrap().unwrap();
    assert_eq!((entry(0).rejected, entry(0).held), (None, None));
    assert_eq!(entry(0).others_held.unwrap()[0].document, "breakglasses/x");
    assert_eq!((entry(1).rejected, entry(1).held), (Some(vec![problems[0].clone()]), Some(StateInForce::LastGood)));
    assert_eq!((entry(2).held, entry(2).others_held), (Some(StateInForce::Nothing), None));

    let read = seen(&objects, now()).reports.remove(0).rejected.unwrap();
    let documents: Vec<_> = read.held.iter().map(|held| (&*held.document, held.keeps)).collect();
    assert_eq!(documents.len(), 3);
    assert!(documents.contains(&("admissioncontrolconfigurations/two", true)), "{documents:?}");
    assert!(documents.contains(&("breakglasses/x", false)), "{documents:?}");
    assert!(!read.is_whole());
}

#[test]
fn every_object_names_the_blocking_problem_if_nothing_is_in_force() {
    let mut replica_report = report(&[]);
    let problem = "the folder: holds no document; write one".to_owned();
    let (revision, since, problems) = ("8".to_owned(), NOW.to_owned(), vec![problem.clone()]);
    replica_report.rejected =
        Some(RejectedConfiguration { revision, since, problems, count: 1, held: Vec::new(), held_left_out: 0 });
    let objects = objects(&replica_report, &["one", "two"]);
    let rejected = |index: usize| entries(&objects[index]).next().unwrap().unwrap().rejected.unwrap();
    assert_eq!(rejected(0), std::slice::from_ref(&problem), "what belongs to none stands in the first");
    assert!(is_blocked(&rejected(1)[0]) && rejected(1)[0].ends_with(&problem), "{:?}", rejected(1));
    let read = seen(&objects, now()).reports.remove(0).rejected.unwrap();
    assert_eq!((read.problems, read.held), (vec![problem], Vec::new()), "reported once");
}

#[test]
fn hooks_of_a_deleted_object_are_reported_in_another() {
    let replica_report =
        report(&[("one", "a.example.com", HookStanding::Draining), ("two", "b.example.com", HookStanding::Active)]);
    let shares = ReportShares::new(&replica_report, [("one", true), ("two", false)].into_iter());
    let entry = |name| shares.entry(ObjectFacts { name, generation: None, left: true });
    let object = |name: &str, entry: Replica| json!({"metadata": {"name": name}, "status": {"replicas": [entry]}});
    let both = [object("one", entry("one")), object("two", entry("two"))];
    let hooks = |objects: &[Value]| {
        let mut hooks = seen(objects, now()).reports.remove(0).hooks;
        hooks.sort_by(|one, other| one.name.cmp(&other.name));
        hooks
    };
    assert_eq!(hooks(&both), replica_report.hooks, "and once");
    assert_eq!(hooks(&both[1..]), replica_report.hooks, "also when it is gone");
}

#[test]
fn replica_is_live_while_it_renews_its_entries() {
    let mut replica_report = report(&[("one", "a.example.com", HookStanding::Active)]);
    let alive = |replica_report: &ReplicaReport| seen(&objects(replica_report, &["one"]), now()).reports.len();
    for (renewed, count) in [("00:00:30Z", 1), ("00:00:29Z", 0), ("01:00:00Z", 1), ("never", 0)] {
        replica_report.published = format!("2026-01-01T{renewed}");
        assert_eq!(alive(&replica_report), count, "{renewed}");
    }
}

#[test]
fn replica_state_is_reported_once_it_is_in_every_object() {
    let hooks = [("one", "a.example.com", HookStanding::Active), ("two", "b.example.com", HookStanding::Active)];
    let before =
        objects(&ReplicaReport { published: "2026-01-01T00:00:50Z".to_owned(), ..report(&hooks) }, &["one", "two"]);
    let after = objects(&ReplicaReport { revision: "8".to_owned(), ..report(&hooks) }, &["one", "two"]);
    let half = [after[0].clone(), before[1].clone()];
    assert_eq!(seen(&half, now()).reports[0].revision, "7");
    assert_eq!(seen(&after, now()).reports[0].revision, "8");

    let mut unreadable = after;
    unreadable[1]["status"] = json!({});
    assert_eq!(seen(&unreadable, now()).reports[0].hooks_left_out, 1, "an object has no entry of the replica");
    unreadable[1]["status"] = json!({"replicas": [{"name": "b", "hooks": 1}]});
    assert_eq!(seen(&unreadable, now()).unreadable[0].place, "admissioncontrolconfigurations/two");
}

#[test]
fn object_has_drained_once_its_deletion_was_read_and_no_hook_is_used() {
    use HookStanding::{Active, Draining, Gone, Probing};
    let drained = |state, left, stale| {
        let replica_report =
            ReplicaReport { stale, ..report(&[("one", "a.example.com", state), ("two", "b.example.com", Active)]) };
        let names = [("one", left), ("two", false)];
        ReportShares::new(&replica_report, names.into_iter())
            .entry(ObjectFacts { name: "one", generation: None, left })
            .drained
    };
    assert_eq!(drained(Gone, true, false), Some(true));
    assert_eq!(drained(Gone, false, false), Some(false));
    assert_eq!(drained(Gone, true, true), Some(false), "what it has may be outdated");
    let cut = ReplicaReport { hooks_left_out: 1, ..report(&[]) };
    let shares = ReportShares::new(&cut, [("one", true)].into_iter());
    let left_out = shares.entry(ObjectFacts { name: "one", generation: None, left: true });
    assert_eq!(left_out.drained, Some(false), "one that has no entry there may be its own");
    let twin = ReplicaReport { contested: true, ..report(&[]) };
    let shares = ReportShares::new(&twin, [("one", true)].into_iter());
    let hidden = shares.entry(ObjectFacts { name: "one", generation: None, left: true });
    assert_eq!(hidden.drained, Some(false), "a namesake may still ask");
    for state in [Probing, Active, Draining] {
        assert_eq!(drained(state, true, false), Some(false), "{state:?}");
    }
}
