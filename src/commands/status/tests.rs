use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use super::*;
use crate::live::{Current, ReplicaHealth, replica_report};
use gatepost_api::schema::status::ReplicaFault;
use gatepost_replicas::{KeptRequestReport, Replica, UnenforcedReport};

fn hook(name: &str, state: HookStanding) -> HookReport {
    HookReport {
        name: name.to_owned(),
        id: name.to_owned(),
        configuration: "c".to_owned(),
        endpoint: "grpc://h:1".to_owned(),
        state,
        since: "2026-01-01T00:00:00Z".to_owned(),
        reason: Some("refused (step: connect)".to_owned()),
        ..HookReport::default()
    }
}

fn report(replica: &str, hooks: Vec<HookReport>) -> ReplicaReport {
    let now = Instant::now();
    let health = ReplicaHealth::new(Arc::new(Current::new(now)));
    let fresh = replica_report(&health, &Replica::new(replica), (now, SystemTime::UNIX_EPOCH), 1);
    let (revision, observed, age_seconds) = ("17".to_owned(), Some(21), Some(0.44));
    ReplicaReport { generation: 3, revision, observed, age_seconds, stale: false, hooks, ..fresh }
}

fn lines(reports: Vec<ReplicaReport>) -> Vec<String> {
    table(&ReplicasSeen { reports, unreadable: Vec::new() }).lines().map(str::to_owned).collect()
}

#[test]
fn status_prints_a_line_for_each_replica_and_its_attention_lines() {
    let now = Instant::now();
    let fresh = replica_report(
        &ReplicaHealth::new(Arc::new(Current::new(now))),
        &Replica::new("b"),
        (now, SystemTime::UNIX_EPOCH),
        1,
    );
    let hooks = vec![
        HookReport {
            overdue: Some("it is not asked".to_owned()),
            unproven_since: Some("2025-12-31T00:00:00Z".to_owned()),
            ..hook("p", HookStanding::Probing)
        },
        hook("q", HookStanding::Active),
        hook("r", HookStanding::Active),
        hook("s", HookStanding::Gone),
        hook("t", HookStanding::Draining),
        HookReport {
            discarded: Some(DiscardedCalls { discarded: 3, calls: 40, seconds: 300 }),
            ..hook("u", HookStanding::Active)
        },
    ];
    assert_eq!(
        lines(vec![report("a", hooks), fresh]),
        [
            "a: UNASKED p: not called until grpc://h:1 passes a probe; none has since 2025-12-31T00:00:00Z: \
             refused (step: connect); overdue: it is not asked",
            "",
            "REPLICA  GENERATION  REVISION  OBSERVED  AGE   STATE             HOOKS",
            "a        3           17        21        0.4s  degraded          3 Active, 1 Draining, 1 Probing",
            "b        0           -         -         -     no configuration  none",
            "a: 3 of 40 calls of u (8 %) in the last 5m were ahead of its turn and in vain",
            "a: t is draining since 2026-01-01T00:00:00Z",
        ]
    );
}

#[test]
fn status_prints_faults_first_and_initializers_and_plugins_last() {
    let one = |name: &str, policy: &str, since: Option<&str>| InitializerReport {
        name: name.to_owned(),
        failure_policy: policy.to_owned(),
        instances: usize::from(since.is_none()) * 2,
        holds: usize::from(since.is_none()),
        oldest_hold_seconds: since.is_none().then_some(1.5),
        state: HookStanding::Active,
        retired_since: None,
        unattended_since: since.map(str::to_owned),
    };
    let since = Some("2026-01-01T00:00:00Z");
    let initializers = vec![one("a.x", "Fail", since), one("c.x", "Fail", None)];
    let fault = |kind, what: &str| ReplicaFault { kind, what: what.to_owned() };
    let faults = vec![
        fault(ReplicaFaultKind::Initializer, "a.x: never attached"),
        fault(ReplicaFaultKind::Certificate, "the serving certificate has expired"),
    ];
    let other = ReplicaReport { faults: faults.clone(), ..report("s", Vec::new()) };
    let plugins = |unacknowledged_generation| {
        Some(PluginReport { attached: 1, slowest_acknowledgement_seconds: Some(0.0034), unacknowledged_generation })
    };
    let other = ReplicaReport { plugins: plugins(Some(4)), ..other };
    let first = ReplicaReport { faults, initializers, plugins: plugins(None), ..report("r", Vec::new()) };
    let printed = lines(vec![first, other]);
    assert_eq!(printed[0], "r, s: CERTIFICATE the serving certificate has expired");
    assert_eq!(printed[1], "r, s: INITIALIZER a.x: never attached");
    assert!(printed[4].contains("degraded"), "{}", printed[4]);
    assert_eq!(printed[6], "r: initializer a.x: 0 instances, 0 objects wait");
    assert_eq!(printed[7], "r: initializer c.x: 2 instances, 1 object waits, the oldest for 1.5s");
    assert_eq!(printed[8], "r: 1 plugin follows the rule index, acknowledged within 3ms");
    assert_eq!(printed[9], "s: 1 plugin follows the rule index; generation 4 is not acknowledged yet");
}

#[test]
fn status_prints_urgent_facts_once_for_all_replicas() {
    let failures = CallFailures {
        failed: 12,
        calls: 40,
        seconds: 300,
        kind: Some("timeout".to_owned()),
        last: Some("2026-01-01T00:10:00Z".to_owned()),
        succeeded_since: Some(11),
        last_success: Some("2026-01-01T00:10:05Z".to_owned()),
    };
    let few =
        CallFailures { failed: 2, calls: 4, kind: None, last: None, succeeded_since: Some(2), ..failures.clone() };
    let hooks = || {
        vec![
            HookReport {
                overdue: Some("it is called unproven, and its failure policy decides".to_owned()),
                unproven_since: Some("2026-01-01T00:00:05Z".to_owned()),
                ..hook("enforced", HookStanding::Active)
            },
            HookReport {
                moves_to: Some("grpc://h:2".to_owned()),
                unproven_since: Some("2026-01-01T00:00:06Z".to_owned()),
                ..hook("moves", HookStanding::Active)
            },
            HookReport { failures: Some(failures.clone()), ..hook("fails", HookStanding::Active) },
            HookReport { failures: Some(few.clone()), ..hook("is-well", HookStanding::Active) },
            HookReport { reason: None, ..hook("fine", HookStanding::Active) },
        ]
    };
    let break_glass = OpenBreakGlass {
        name: "night".to_owned(),
        hooks: None,
        until: "2026-01-01T00:15:00Z".to_owned(),
        reason: "INC-4711".to_owned(),
        by: Some("ann".to_owned()),
    };
    let bypass = BypassInForce {
        name: "ci".to_owned(),
        effect: "Skip".to_owned(),
        hooks: None,
        scope: "namespaces ci".to_owned(),
        reason: "builds".to_owned(),
    };
    let of = |replica: &str| ReplicaReport {
        break_glass: vec![break_glass.clone()],
        bypasses: vec![bypass.clone()],
        ..report(replica, hooks())
    };
    let other = ReplicaReport {
        break_glass: vec![OpenBreakGlass { hooks: Some(vec!["fine".to_owned()]), ..break_glass.clone() }],
        ..report("c", Vec::new())
    };
    let printed = lines(vec![of("a"), of("b"), other]);
    assert_eq!(
        printed.get(..8).unwrap(),
        [
            "a, b: BREAK-GLASS night is open until 2026-01-01T00:15:00Z: no hook is asked; INC-4711 (by ann)",
            "c: BREAK-GLASS night is open until 2026-01-01T00:15:00Z: not asked: fine; INC-4711 (by ann)",
            "a, b: FAILING fails: 12 of 40 calls failed (30 %) in the last 5m; last at 2026-01-01T00:10:00Z: timeout; \
             last success at 2026-01-01T00:10:05Z, 11 good since",
            "a, b: RECOVERED is-well: 2 of 4 calls failed in the last 5m; last success at 2026-01-01T00:10:05Z, 2 good \
             since",
            "a, b: UNPROVEN enforced: asked, although grpc://h:1 has passed no probe since 2026-01-01T00:00:05Z: \
             refused (step: connect); overdue: it is called unproven, and its failure policy decides",
            "a, b: UNPROVEN moves: asked at grpc://h:1 until grpc://h:2 passes a probe; none has since \
             2026-01-01T00:00:06Z: refused (step: connect)",
            "a, b: BYPASS ci: Skip of all hooks for namespaces ci, as long as the rule is configured; builds",
            "",
        ]
    );
    assert!(printed[9].ends_with("open         2 Active, 1 Failing, 1 Moving, 1 Unproven"), "{}", printed[9]);
    assert!(printed[11].contains("partly open"), "{}", printed[11]);
}

#[test]
fn status_counts_the_policies_of_a_replica() {
    for (policies, line) in [(1, "1 policy decides in process"), (12, "12 policies decide in process")] {
        let printed = lines(vec![ReplicaReport { policies, ..report("r", Vec::new()) }]);
        assert!(printed.iter().any(|printed| printed.contains(line)), "{printed:?}");
    }
    assert!(!lines(vec![report("r", Vec::new())]).concat().contains("decide"));
}

#[test]
fn status_lists_unenforced_entries_and_shadows() {
    let denial = |message: Option<&str>| KeptRequestReport {
        at: "2026-01-01T00:00:00Z".to_owned(),
        request: "CREATE Pod shop/web".to_owned(),
        message: message.map(str::to_owned),
    };
    let one = |what: &str, name: &str, enforcement: &str, denials| UnenforcedReport {
        what: what.to_owned(),
        name: name.to_owned(),
        enforcement: enforcement.to_owned(),
        decisions: if enforcement == "Shadow" {
            [("allowed".to_owned(), 3), ("failed".to_owned(), 1)].into()
        } else {
            [].into()
        },
        denials,
        canary: None,
        comparisons: [].into(),
        differences: Vec::new(),
    };
    let canary = UnenforcedReport {
        canary: Some("5% of old".to_owned()),
        comparisons: [("different".to_owned(), 1), ("same".to_owned(), 9)].into(),
        differences: vec![denial(Some("new denied (no), old allowed"))],
        ..one("policy", "new", "Deny", vec![denial(None)])
    };
    let unenforced = vec![
        one("hook", "a", "Shadow", vec![denial(Some("no")), denial(None)]),
        one("policy", "b", "Warn", vec![]),
        canary,
    ];
    let report = ReplicaReport { unenforced, unenforced_left_out: 2, ..report("r", Vec::new()) };
    let seen = ReplicasSeen { reports: vec![report], unreadable: Vec::new() };
    let printed = table(&seen);
    let line = "r: what these reject passes: hook a (Shadow), policy b (Warn) and 2 more";
    assert!(printed.lines().any(|printed| printed == line), "{printed}");
    let line = "r: policy new decides 5% of old: 1 different, 9 same";
    assert!(printed.lines().any(|printed| printed == line), "{printed}");
    assert_eq!(
        shadows(&seen),
        "\nr: hook a in shadow: 3 allowed, 1 failed\n  2026-01-01T00:00:00Z CREATE Pod shop/web: no\n  \
         2026-01-01T00:00:00Z CREATE Pod shop/web\n\n\
         r: policy new decides 5% of old: 1 different, 9 same\n  \
         2026-01-01T00:00:00Z CREATE Pod shop/web: new denied (no), old allowed\n"
    );
    assert_eq!(shadows(&ReplicasSeen::default()), "\nno hook and no policy is in shadow or a canary\n");
}
