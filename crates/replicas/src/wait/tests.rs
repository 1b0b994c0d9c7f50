use super::*;
use crate::{InitializerReport, RejectedConfiguration, ReportError};

/// A replica that has this revision in force, read at `observed`.
fn replica(name: &str, revision: u64, observed: u64) -> ReplicaReport {
    ReplicaReport {
        replica: name.to_owned(),
        instance: name.to_owned(),
        version: "1".to_owned(),
        generation: 1,
        revision: revision.to_string(),
        digest: "ab".repeat(32),
        observed: Some(observed),
        age_seconds: Some(0.1),
        published: "2026-01-01T00:00:00Z".to_owned(),
        ..ReplicaReport::default()
    }
}

fn rejecting(mut report: ReplicaReport, revision: u64) -> ReplicaReport {
    let since = "2026-01-01T00:00:00Z".to_owned();
    let problems = vec!["a.yaml: x: is wrong".to_owned()];
    report.rejected = Some(RejectedConfiguration {
        revision: revision.to_string(),
        since,
        problems,
        count: 1,
        held: Vec::new(),
        held_left_out: 0,
    });
    report
}

fn with(mut report: ReplicaReport, hooks: &[(&str, u16, HookStanding)]) -> ReplicaReport {
    let hook = |(name, port, state): &(&str, u16, HookStanding)| HookReport {
        name: (*name).to_owned(),
        id: format!("test/{name}/0"),
        configuration: "test".to_owned(),
        endpoint: format!("grpc://h:{port}"),
        state: *state,
        since: "2026-01-01T00:00:00Z".to_owned(),
        ..HookReport::default()
    };
    report.hooks = hooks.iter().map(hook).collect();
    report
}

fn seen(reports: Vec<ReplicaReport>) -> ReplicasSeen {
    ReplicasSeen { reports, unreadable: Vec::new() }
}

const WANTED: Revision = Revision::Store(7);

fn waiting(progress: Progress) -> String {
    match progress {
        Progress::Waiting(missing) => missing.join("\n"),
        other => panic!("{other:?}"),
    }
}

fn failed(progress: Progress) -> String {
    match progress {
        Progress::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn revision_is_adopted_if_every_live_replica_has_it_or_a_later_one() {
    let all = seen(vec![replica("a", 7, 7), replica("b", 9, 9)]);
    let done = Progress::Done("2 replicas have revision 7 in force: a, b".to_owned());
    assert_eq!(all_have_in_force(&all, &WANTED, 0, false), done);
    let one_short = seen(vec![replica("a", 7, 7), replica("b", 6, 6)]);
    assert_eq!(waiting(all_have_in_force(&one_short, &WANTED, 0, false)), "b is at revision 6");
    assert_eq!(waiting(all_have_in_force(&all, &WANTED, 3, false)), "2 of 3 replicas are alive: a, b");
    let two_of_three = seen(vec![replica("a", 7, 7), replica("b", 7, 7), replica("c", 6, 6)]);
    assert_eq!(waiting(all_have_in_force(&two_of_three, &WANTED, 0, false)), "c is at revision 6", "most are not all");
    assert_eq!(
        waiting(all_have_in_force(&seen(Vec::new()), &WANTED, 0, false)),
        "no replica is alive",
        "nobody is never everybody"
    );
    let unreadable = ReportError { place: "http://c:1".to_owned(), why: "refused".to_owned() };
    let unheard = ReplicasSeen { unreadable: vec![unreadable], ..all };
    assert_eq!(waiting(all_have_in_force(&unheard, &WANTED, 0, false)), "no answer from http://c:1: refused");
}

#[test]
fn replica_name_used_twice_is_reported() {
    let mut twin = with(replica("a", 7, 7), &[(HOOK, 1, HookStanding::Gone)]);
    twin.contested = true;
    let message = "two replicas go by the name a, and one hides the other: give each its own --replica";
    assert_eq!(waiting(all_have_in_force(&seen(vec![twin.clone()]), &WANTED, 0, false)), message);
    assert_eq!(waiting(drained(&seen(vec![twin]), HOOK, 0)), message);
}

#[test]
fn store_revision_without_change_is_adopted_once_read() {
    assert!(matches!(all_have_in_force(&seen(vec![replica("a", 3, 7)]), &WANTED, 0, false), Progress::Done(_)));
    assert_eq!(waiting(all_have_in_force(&seen(vec![replica("a", 3, 6)]), &WANTED, 0, false)), "a is at revision 3");
    let elsewhere = waiting(all_have_in_force(&seen(vec![replica("a", 3, 7)]), &WANTED, 0, true));
    assert!(elsewhere.starts_with("a has read that revision, and it changes nothing there"), "{elsewhere}");
    assert!(matches!(all_have_in_force(&seen(vec![replica("a", 7, 7)]), &WANTED, 0, true), Progress::Done(_)));
}

#[test]
fn rejected_revision_fails_the_wait() {
    let rejects = |revision, rejected, observed| {
        all_have_in_force(
            &seen(vec![replica("a", 8, 8), rejecting(replica("b", revision, observed), rejected)]),
            &WANTED,
            0,
            false,
        )
    };
    assert_eq!(failed(rejects(5, 7, 7)), "b has rejected it, for 1 problem(s): a.yaml: x: is wrong");
    failed(rejects(5, 8, 8));
    // An earlier rejection is replaced by it, once it is read.
    assert_eq!(waiting(rejects(5, 6, 6)), "b is at revision 5");
    // Nothing but the store's number has moved on: what it holds at 7 is what was rejected at 6.
    failed(rejects(5, 6, 9));
    assert!(matches!(rejects(7, 9, 9), Progress::Done(_)), "a later one was rejected, this one is in force");
}

#[test]
fn file_source_is_waited_for_by_digest_only() {
    let mut files = replica("a", 0, 0);
    (files.revision, files.observed) = ("sha256:abababababababab".to_owned(), None);
    let all = seen(vec![files]);
    let digest = Revision::parse(&format!("sha256:{}", "ab".repeat(32))).unwrap();
    assert!(matches!(all_have_in_force(&all, &digest, 0, false), Progress::Done(_)));
    assert!(failed(all_have_in_force(&all, &WANTED, 0, false)).contains("wait for a digest, such as sha256:abab"));
    let other = Revision::parse("sha256:cdcd").unwrap();
    assert_eq!(waiting(all_have_in_force(&all, &other, 0, false)), "a is at revision sha256:abababababababab");
    assert!(
        matches!(all_have_in_force(&seen(vec![replica("b", 3, 3)]), &digest, 0, false), Progress::Done(_)),
        "stores have them too"
    );
}

const HOOK: &str = "h.example.com";

#[test]
fn endpoint_is_drained_if_the_hook_is_gone_on_every_replica() {
    let states =
        |a, b| seen(vec![with(replica("a", 7, 7), &[(HOOK, 1, a)]), with(replica("b", 7, 7), &[(HOOK, 1, b)])]);
    let done = Progress::Done(format!("{HOOK} is gone on 2 replicas: its endpoint may be switched off"));
    assert_eq!(drained(&states(HookStanding::Gone, HookStanding::Gone), HOOK, 0), done);
    assert_eq!(
        waiting(drained(&states(HookStanding::Gone, HookStanding::Gone), HOOK, 3)),
        "2 of 3 replicas are alive: a, b",
        "who is not heard may ask it still"
    );
    assert_eq!(
        waiting(drained(&states(HookStanding::Gone, HookStanding::Draining), HOOK, 0)),
        "draining on b since 2026-01-01T00:00:00Z"
    );
    for state in [HookStanding::Probing, HookStanding::Active, HookStanding::Unknown] {
        let message = waiting(drained(&states(HookStanding::Gone, state), HOOK, 0));
        assert!(
            message.starts_with("still configured in test as b sees it") && message.ends_with("remove it first"),
            "{message}"
        );
    }
    // A replica that started later has never heard of it.
    let restarted = seen(vec![with(replica("a", 7, 7), &[(HOOK, 1, HookStanding::Gone)]), replica("b", 7, 7)]);
    assert_eq!(drained(&restarted, HOOK, 0), done);
    assert_eq!(waiting(drained(&ReplicasSeen::default(), HOOK, 0)), "no replica is alive");
}

#[test]
fn initializer_is_drained_if_it_is_gone_on_every_replica() {
    let one = |replica_name: &str, state, since: Option<&str>| {
        let mut report = replica(replica_name, 7, 7);
        report.initializers = vec![InitializerReport {
            name: HOOK.to_owned(),
            failure_policy: "Fail".to_owned(),
            instances: 1,
            holds: 0,
            oldest_hold_seconds: None,
            unattended_since: None,
            state,
            retired_since: since.map(str::to_owned),
        }];
        report
    };
    let states = |state| seen(vec![one("a", HookStanding::Gone, Some("t")), one("b", state, Some("t"))]);
    let done = Progress::Done(format!("{HOOK} is gone on 2 replicas: its processes may be stopped"));
    assert_eq!(drained(&states(HookStanding::Gone), HOOK, 0), done);
    assert_eq!(waiting(drained(&states(HookStanding::Draining), HOOK, 0)), "draining on b since t");
    assert!(waiting(drained(&states(HookStanding::Active), HOOK, 0)).ends_with("remove it first"));
    let mut cut = one("a", HookStanding::Gone, Some("t"));
    cut.initializers_left_out = 2;
    assert!(waiting(drained(&seen(vec![cut]), HOOK, 0)).contains("no room for: 2; look"));
}

#[test]
fn unknown_hook_name_fails_the_drain() {
    let all = seen(vec![with(replica("a", 7, 7), &[(HOOK, 1, HookStanding::Active)])]);
    assert!(failed(drained(&all, "other.example.com", 0)).contains("is it spelt so?"));
}

#[test]
fn stale_replica_blocks_the_drain() {
    let mut stale = with(replica("a", 7, 7), &[(HOOK, 1, HookStanding::Gone)]);
    stale.stale = true;
    assert!(waiting(drained(&seen(vec![stale]), HOOK, 0)).contains("no fresh configuration"));
    let mut cut = with(replica("a", 7, 7), &[(HOOK, 1, HookStanding::Gone)]);
    cut.hooks_left_out = 3;
    assert!(waiting(drained(&seen(vec![cut]), HOOK, 0)).contains("no room for: 3;"));
}

#[test]
fn endpoint_used_by_another_hook_fails_the_drain() {
    let both = [(HOOK, 1, HookStanding::Gone), ("other", 1, HookStanding::Active)];
    let all = seen(vec![with(replica("a", 7, 7), &both)]);
    let message = failed(drained(&all, HOOK, 0));
    assert!(message.contains("grpc://h:1 is also that of other (Active on a): leave the endpoint on"), "{message}");
    let elsewhere = [(HOOK, 1, HookStanding::Gone), ("other", 2, HookStanding::Active)];
    assert!(matches!(drained(&seen(vec![with(replica("a", 7, 7), &elsewhere)]), HOOK, 0), Progress::Done(_)));
}

#[test]
fn moved_hook_drains_only_its_old_endpoint() {
    let moved = [(HOOK, 2, HookStanding::Active), (HOOK, 1, HookStanding::Gone)];
    let all = seen(vec![with(replica("a", 7, 7), &moved)]);
    assert!(matches!(drained(&all, "grpc://h:1", 0), Progress::Done(_)));
    assert!(waiting(drained(&all, HOOK, 0)).starts_with("still configured"));
}
