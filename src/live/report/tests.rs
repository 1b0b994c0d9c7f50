//! Reports of a state in force.

use std::sync::Arc;

use gatepost_replicas::{
    MAX_TEXT_CHARS, ReplicasSeen,
    wait::{self, Progress},
};

use super::*;
use crate::{
    live::{Current, FailedRead, break_glass::BreakGlassOrigin},
    telemetry::Metrics,
};
use gatepost_api::{BreakGlass, Revision};
use gatepost_base::clock::now;
use gatepost_config::{Problem, SourceFile, load};

#[test]
fn replica_report_tolerates_values_of_later_versions() {
    let now = Instant::now();
    let current = Arc::new(Current::new(now));
    let health = ReplicaHealth::new(Arc::clone(&current));
    let problem = |n| Problem {
        file: "a".into(),
        path: format!("p{n}"),
        what: "x".repeat(999),
        why: "so w".into(),
        fix: "f".into(),
    };
    let problems = (0..20).map(problem).collect();
    let revision = Revision::Store(9);
    health.status.rejected.set(Some(Rejection {
        problems,
        revision,
        since: SystemTime::UNIX_EPOCH,
        quarantined: Vec::new(),
    }));
    let error = "no answer".to_owned();
    health.status.failed_read.set(Some(FailedRead { error, since: SystemTime::UNIX_EPOCH, count: 1 }));
    health.status.set_observed(Some(12));
    current.freshness().stamp_awake(now);
    let report = replica_report(&health, &Replica::new("a"), (now, SystemTime::UNIX_EPOCH), 10);
    assert_eq!((report.generation, report.observed, report.stale), (0, Some(12), false));
    let rejected = report.rejected.as_ref().unwrap();
    assert_eq!((rejected.problems.len(), rejected.count, &*rejected.revision), (MAX_PROBLEMS, 20, "9"));
    assert!(rejected.problems.iter().all(|problem| problem.chars().count() <= MAX_TEXT_CHARS + 1));

    let mut written = serde_json::to_value(&report).unwrap();
    assert_eq!(serde_json::from_value::<ReplicaReport>(written.clone()).unwrap(), report);
    written["hooks"] = serde_json::json!([{
        "name": "h", "id": "i", "configuration": "c", "endpoint": "e", "state": "Resting", "since": "s", "new": 1
    }]);
    let read: ReplicaReport = serde_json::from_value(written).unwrap();
    assert_eq!(read.hooks[0].state, HookStanding::Unknown);
}

#[test]
fn initializer_without_instance_is_reported_first() {
    let now = Instant::now();
    let current = Arc::new(Current::new(now));
    let health = ReplicaHealth::new(Arc::clone(&current));
    let names: Vec<_> = (0..=MAX_INITIALIZERS).map(|n| format!("i{n:03}.example.com")).collect();
    let digest = "0".repeat(64);
    let one = |name: &String| format!("  - {{name: {name}, attach: {{tokenSha256: ['{digest}']}}}}\n");
    let text = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: t}}\n\
         resourceInitializers:\n- resource: pods\n  initializers:\n{}",
        names.iter().map(one).collect::<String>()
    );
    let files = [SourceFile { name: "t.yaml".into(), bytes: text.into() }];
    let snapshot = load(&files, &|path| std::fs::read(path)).unwrap();
    current.publish(Arc::new(Generation {
        published: SystemTime::UNIX_EPOCH,
        ..Generation::of(Arc::new(snapshot), &Metrics::new(1))
    }));
    let (last, others) = names.split_last().unwrap();
    let _attached: Vec<_> = others.iter().map(|name| current.hub().attach(&(&**name).into(), 1, now)).collect();
    let report = replica_report(&health, &Replica::new("a"), (now, SystemTime::UNIX_EPOCH), 10);
    assert_eq!((report.initializers.len(), report.initializers_left_out), (MAX_INITIALIZERS, 1));
    assert_eq!((&report.initializers[0].name, report.initializers[0].instances), (last, 0));
}

#[test]
fn open_break_glass_is_reported_with_its_local_closing_time() {
    let (break_glasses, now) = (BreakGlassDocuments::default(), Instant::now());
    let wall = humantime::parse_rfc3339("2026-01-31T22:00:30Z").unwrap();
    let document = |name: &str, hooks: &[&str]| BreakGlass {
        name: name.into(),
        opened: wall - Duration::from_secs(30),
        duration: Duration::from_secs(900),
        reason: "INC-4711".into(),
        hooks: hooks.iter().map(|hook| (*hook).into()).collect(),
        opened_by: "".into(),
    };
    break_glasses.set_documents(
        BreakGlassOrigin::Source,
        vec![document("all", &[]), document("one", &["a.x"])],
        now,
        wall,
    );
    let entries = open_break_glass(&break_glasses, (now, wall + Duration::from_millis(5)));
    let all = OpenBreakGlass {
        name: "all".to_owned(),
        hooks: None,
        until: "2026-01-31T22:15:00Z".to_owned(),
        reason: "INC-4711".to_owned(),
        by: None,
    };
    let one = OpenBreakGlass { name: "one".to_owned(), hooks: Some(vec!["a.x".to_owned()]), ..all.clone() };
    assert_eq!(entries, [all.clone(), one]);
    // The wall clock was set forward, and back again: it closes when it would have closed then.
    break_glasses.tick(now, wall + Duration::from_secs(600));
    let entries = open_break_glass(&break_glasses, (now, wall));
    assert_eq!(entries[0].until, "2026-01-31T22:05:00Z");
    assert_eq!(open_break_glass(&break_glasses, (now + Duration::from_secs(900), wall)), []);
}

#[tokio::test(start_paused = true)]
async fn generation_is_reported_once_plugins_acknowledge() {
    let current = Arc::new(Current::new(now()));
    let health = ReplicaHealth::new(Arc::clone(&current));
    let publish = |number: u64, resource: &str| {
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: a}}\n\
             resourceInitializers: [{{resource: {resource}, initializers: [{{name: a.example.com}}]}}]\n"
        );
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        current.publish(Arc::new(Generation {
            number,
            digest: number.to_string().repeat(64),
            revision: Revision::Store(number + 10),
            published: SystemTime::UNIX_EPOCH,
            ..Generation::of(Arc::new(snapshot), &Metrics::new(1))
        }));
        health.status.set_observed(Some(number + 10));
    };
    let report = || replica_report(&health, &Replica::new("a"), (now(), SystemTime::UNIX_EPOCH), 10);
    let waited = |report: &ReplicaReport, revision| {
        let seen = ReplicasSeen { reports: vec![report.clone()], unreadable: Vec::new() };
        wait::all_have_in_force(&seen, &revision, 1, false)
    };
    publish(1, "pods");
    assert_eq!((report().generation, report().plugins), (1, None));

    let mut follower = current.rule_index().follow();
    follower.version(true);
    publish(2, "services");
    let unacknowledged = report();
    assert_eq!((unacknowledged.generation, &*unacknowledged.revision), (1, "11"));
    assert_eq!((&unacknowledged.digest, unacknowledged.observed), (&"1".repeat(64), None));
    let plugins = unacknowledged.plugins.as_ref().expect("there is one");
    assert_eq!((plugins.attached, plugins.unacknowledged_generation), (1, Some(2)));
    for wanted in [Revision::Store(12), Revision::of_digest(&"2".repeat(64))] {
        let Progress::Waiting(missing) = waited(&unacknowledged, wanted) else { panic!("{unacknowledged:?}") };
        assert_eq!(missing, ["a is at revision 11, and a plugin has not acknowledged the next one yet"]);
    }

    let version = follower.version(true).number;
    follower.acknowledge(version);
    let acknowledged = report();
    assert_eq!((acknowledged.generation, acknowledged.observed), (2, Some(12)));
    assert!(matches!(waited(&acknowledged, Revision::Store(12)), Progress::Done(_)));
    let plugins = acknowledged.plugins.expect("there is one");
    assert_eq!((plugins.slowest_acknowledgement_seconds, plugins.unacknowledged_generation), (Some(0.0), None));
}

#[test]
fn bypass_rules_are_reported_with_their_scope() {
    let rule = |name: &str, more: &str| format!("- {{name: {name}, reason: why{more}}}\n");
    let mut text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                    externalAdmissionHooks: [{name: h.x, rules: [], clientConfig: {url: 'grpc://127.0.0.1:1'}}]\nbypass:\n"
        .to_owned();
    text += &rule("ci", ", namespaces: [ci, cd], users: [bot], groups: [bots], effect: FailOpen, hooks: [h.x]");
    (0..MAX_BYPASSES + 2).for_each(|n| text += &rule(&format!("r{n}"), ", namespaces: [a]"));
    let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
    let snapshot =
        load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap_or_else(|problems| panic!("{problems:#?}"));
    let (entries, left_out) = bypasses(&snapshot);
    assert_eq!((entries.len(), left_out), (MAX_BYPASSES, 3));
    let first = entries.iter().find(|rule| rule.name == "ci").unwrap();
    assert_eq!((&*first.effect, &*first.scope), ("FailOpen", "namespaces ci, cd; users bot or groups bots"));
    assert_eq!(first.hooks.as_deref(), Some(&["h.x".to_owned()][..]));
}
