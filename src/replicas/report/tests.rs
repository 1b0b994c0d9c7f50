use std::{collections::HashMap, sync::Arc};

use super::*;
use crate::{
    live::FailedRead,
    snapshot::{self, Problem, SourceFile},
};

#[test]
fn it_is_read_as_it_was_written_and_a_later_versions_words_do_no_harm() {
    let now = Instant::now();
    let current = Current::new(now);
    let problem = |n| Problem {
        file: "a".into(),
        path: format!("p{n}"),
        what: "x".repeat(999),
        why: "so w".into(),
        fix: "f".into(),
    };
    let problems = (0..20).map(problem).collect();
    let revision = Revision::Store(9);
    current.status().rejected.set(Some(Rejection {
        problems,
        revision,
        since: SystemTime::UNIX_EPOCH,
        quarantined: Vec::new(),
    }));
    let error = "no answer".to_owned();
    current.status().failed_read.set(Some(FailedRead { error, since: SystemTime::UNIX_EPOCH, count: 1 }));
    current.status().set_observed(Some(12));
    current.stamp(now);
    let report = ReplicaReport::of(&current, &Replica::new("a"), (now, SystemTime::UNIX_EPOCH), 10);
    assert_eq!((report.generation, report.observed, report.stale), (0, Some(12), false));
    let rejected = report.rejected.as_ref().unwrap();
    assert_eq!((rejected.problems.len(), rejected.count, &*rejected.revision), (MOST_PROBLEMS, 20, "9"));
    assert!(rejected.problems.iter().all(|problem| problem.chars().count() <= LONGEST_TEXT + 1));

    let mut written = serde_json::to_value(&report).unwrap();
    assert_eq!(serde_json::from_value::<ReplicaReport>(written.clone()).unwrap(), report);
    written["hooks"] = serde_json::json!([{
        "name": "h", "id": "i", "configuration": "c", "endpoint": "e", "state": "Resting", "since": "s", "new": 1
    }]);
    let read: ReplicaReport = serde_json::from_value(written).unwrap();
    assert_eq!(read.hooks[0].state, HookStanding::Unknown);
}

#[test]
fn an_initializer_without_an_instance_is_reported_first() {
    let now = Instant::now();
    let current = Current::new(now);
    let names: Vec<_> = (0..=MOST_INITIALIZERS).map(|n| format!("i{n:03}.example.com")).collect();
    let digest = "0".repeat(64);
    let one = |name: &String| format!("  - {{name: {name}, attach: {{tokenSha256: ['{digest}']}}}}\n");
    let text = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: t}}\n\
         resourceInitializers:\n- resource: pods\n  initializers:\n{}",
        names.iter().map(one).collect::<String>()
    );
    let files = [SourceFile { name: "t.yaml".into(), bytes: text.into() }];
    let snapshot = snapshot::load(&files, &|path| std::fs::read(path)).unwrap();
    current.publish(Arc::new(Generation {
        number: 1,
        digest: String::new(),
        revision: Revision::Store(1),
        published: SystemTime::UNIX_EPOCH,
        snapshot: Arc::new(snapshot),
        hooks: Vec::new(),
        bypassed: Vec::new(),
        initializers: HashMap::default(),
    }));
    let (last, others) = names.split_last().unwrap();
    let _attached: Vec<_> = others.iter().map(|name| current.hub().attach(&(&**name).into(), 1, now)).collect();
    let report = ReplicaReport::of(&current, &Replica::new("a"), (now, SystemTime::UNIX_EPOCH), 10);
    assert_eq!((report.initializers.len(), report.initializers_left_out), (MOST_INITIALIZERS, 1));
    assert_eq!((&report.initializers[0].name, report.initializers[0].instances), (last, 0));
}
