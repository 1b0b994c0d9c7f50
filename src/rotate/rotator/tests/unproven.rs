//! Hooks that pass no probe do not stay so without a bound and without anybody noticing; those that were proven a
//! moment ago are.

use super::*;
use gatepost_api::FailurePolicy;

/// One hook at that port with that `rollout`.
fn rolled(port: u16, rollout: &str) -> Contents {
    written(&format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: test}}\n\
         externalAdmissionHooks:\n- {{name: a.example.com, clientConfig: {{url: 'grpc://127.0.0.1:{port}'}}, rules: [], \
         rollout: {rollout}}}\n"
    ))
}

/// Time passes; the rotator looks at it as it does when its alarm rings.
async fn pass(rotator: &mut Rotator, time: Duration) {
    tokio::time::advance(time).await;
    if rotator.placements.overdue_at.is_some_and(|alarm| alarm <= Instant::now()) {
        rotator.mark_overdue_hooks();
    }
}

fn overdue(rotator: &Rotator) -> Option<&'static str> {
    rotator.current.load().hooks[0].overdue_effect()
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn unproven_hook_is_reported_overdue_until_a_probe_passes() {
    let mut rotator = started(&[]).await;
    read(&mut rotator, contents(&[("a", 1)])).await;
    let channel = probed(&rotator);
    rotator.on_probe_result(news(channel.clone(), Err(refused())));
    pass(&mut rotator, MINUTE * 5 - Duration::from_millis(1)).await;
    assert_eq!(overdue(&rotator), None);
    pass(&mut rotator, Duration::from_millis(1)).await;
    assert_eq!(overdue(&rotator), Some("it is not called, and what it would refuse passes"));
    let generation = rotator.current.load();
    assert_eq!(generation.hooks[0].overdue.as_ref().unwrap().last_failure, Some(refused()));
    assert_eq!((standing(&rotator), rotator.placements.overdue_at), (vec![standing_of("a", 0, 0)], None));
    rotator.on_probe_result(news(channel, Ok(())));
    assert_eq!((standing(&rotator), overdue(&rotator)), (vec![standing_of("a", 1, 0)], None));
}

#[tokio::test(start_paused = true)]
async fn probe_deadline_counts_from_creation_despite_changes() {
    let mut rotator = started(&[]).await;
    read(&mut rotator, rolled(1, "{probeWithin: 1m}")).await;
    pass(&mut rotator, MINUTE / 2).await;
    read(&mut rotator, rolled(2, "{probeWithin: 1m}")).await;
    pass(&mut rotator, MINUTE / 2).await;
    assert!(overdue(&rotator).is_some(), "another endpoint does not begin it anew");
    read(&mut rotator, rolled(2, "{probeWithin: 2m}")).await;
    assert!(overdue(&rotator).is_none(), "the newest entry says how long");
    pass(&mut rotator, MINUTE).await;
    assert!(overdue(&rotator).is_some());
}

#[tokio::test(start_paused = true)]
async fn overdue_enforced_hook_enters_rotation_unproven() {
    let mut rotator = started(&[]).await;
    let policy = |rotator: &Rotator| rotator.current.load().hooks[0].shown_policy();
    read(&mut rotator, rolled(1, "{probeWithin: 1m, onProbeFailure: Enforce}")).await;
    let channel = probed(&rotator);
    assert_eq!((standing(&rotator), policy(&rotator)), (vec![standing_of("a", 0, 0)], FailurePolicy::Ignore));
    pass(&mut rotator, MINUTE).await;
    assert_eq!((standing(&rotator), policy(&rotator)), (vec![standing_of("a", 1, 0)], FailurePolicy::Fail));
    assert_eq!(overdue(&rotator), Some("it is called unproven, and its failure policy decides"));

    // An endpoint that nobody has heard answer proves nothing to another hook, and probing goes on.
    rotator.on_probe_result(news(channel.clone(), Err(refused())));
    assert_eq!(standing(&rotator), [standing_of("a", 1, 0)]);
    let both = rolled(1, "{probeWithin: 1m, onProbeFailure: Enforce}");
    let text = String::from_utf8(both.files[0].bytes.to_vec()).unwrap();
    let b = "- {name: b.example.com, clientConfig: {url: 'grpc://127.0.0.1:1'}, rules: []}\n";
    read(&mut rotator, written(&(text + b))).await;
    assert_eq!(standing(&rotator), [standing_of("a", 1, 0), standing_of("b", 0, 0)]);
    rotator.on_probe_result(news(channel, Ok(())));
    assert_eq!((standing(&rotator), overdue(&rotator)), (vec![standing_of("a", 1, 0), standing_of("b", 1, 0)], None));
}

#[tokio::test(start_paused = true)]
async fn overdue_move_keeps_the_old_endpoint() {
    let mut rotator = started(&[("a", 1)]).await;
    read(&mut rotator, rolled(2, "{probeWithin: 1m, onProbeFailure: Enforce}")).await;
    pass(&mut rotator, MINUTE).await;
    assert_eq!(standing(&rotator), [standing_of("a", 1, 2)]);
    assert_eq!(overdue(&rotator), Some("it is still called at its former endpoint"));
    let channel = probed(&rotator);
    rotator.on_probe_result(news(channel, Ok(())));
    assert_eq!((standing(&rotator), overdue(&rotator)), (vec![standing_of("a", 2, 0)], None));
}

#[tokio::test(start_paused = true)]
async fn the_alarm_rings_while_the_rotator_runs() {
    let mut rotator = started(&[]).await;
    read(&mut rotator, contents(&[("a", 1)])).await;
    let current = Arc::clone(&rotator.current);
    let (_readings, read) = mpsc::channel(1);
    tokio::select! {
        () = rotator.run(read) => panic!("nobody has ended it"),
        () = tokio::time::sleep(MINUTE * 6) => {}
    }
    assert!(current.load().hooks[0].overdue.is_some());
}

#[tokio::test(start_paused = true)]
async fn returning_hook_stays_proven_and_reuses_connections() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    let request = rotator.current.load();
    read(&mut rotator, contents(&[("b", 2)])).await;
    tokio::time::advance(Duration::from_secs(30)).await;
    read(&mut rotator, contents(&[("b", 2), ("renamed", 1)])).await;
    assert_eq!(standing(&rotator), [standing_of("b", 2, 0), standing_of("renamed", 1, 0)]);
    let channel = &request.hooks[0].target.channel;
    assert!(Arc::ptr_eq(channel, &rotator.current.load().hooks[1].target.channel), "a request still held it");
    drop(request);

    read(&mut rotator, contents(&[("b", 2)])).await;
    tokio::task::yield_now().await;
    read(&mut rotator, contents(&[("a", 1), ("b", 2)])).await;
    assert_eq!(standing(&rotator)[0], standing_of("a", 1, 0), "also where its connections have closed meanwhile");
    read(&mut rotator, contents(&[("b", 2)])).await;
    tokio::time::advance(Duration::from_secs(31)).await;
    read(&mut rotator, contents(&[("a", 1), ("b", 2)])).await;
    assert_eq!(standing(&rotator)[0], standing_of("a", 0, 0), "later it begins anew");
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_comes_and_goes_does_not_begin_its_time_anew() {
    let mut rotator = started(&[]).await;
    let entry = || rolled(1, "{probeWithin: 1m}");
    for _ in 0..3 {
        read(&mut rotator, entry()).await;
        pass(&mut rotator, MINUTE / 4).await;
        assert_eq!(overdue(&rotator), None);
        read(&mut rotator, contents(&[])).await;
        tokio::time::advance(MINUTE / 12).await;
    }
    read(&mut rotator, entry()).await;
    assert!(overdue(&rotator).is_some(), "it was never there for a minute, and never answered");

    read(&mut rotator, contents(&[])).await;
    tokio::time::advance(Duration::from_secs(31)).await;
    read(&mut rotator, entry()).await;
    assert_eq!(overdue(&rotator), None, "later it begins anew");
    let channel = probed(&rotator);
    rotator.on_probe_result(news(channel, Ok(())));
    pass(&mut rotator, MINUTE).await;
    read(&mut rotator, rolled(2, "{probeWithin: 1m}")).await;
    assert_eq!(overdue(&rotator), None, "one that has passed has waited for nothing");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_never_answered_is_not_proven_when_it_comes_back() {
    let mut rotator = started(&[]).await;
    let enforced = "{probeWithin: 1m, onProbeFailure: Enforce}";
    read(&mut rotator, rolled(1, enforced)).await;
    pass(&mut rotator, MINUTE).await;
    assert_eq!(standing(&rotator), [standing_of("a", 1, 0)]);
    read(&mut rotator, contents(&[])).await;
    read(&mut rotator, rolled(1, enforced)).await;
    assert_eq!(overdue(&rotator), Some("it is called unproven, and its failure policy decides"));
    read(&mut rotator, contents(&[])).await;
    tokio::time::advance(Duration::from_secs(31)).await;
    read(&mut rotator, rolled(1, enforced)).await;
    assert_eq!(standing(&rotator), [standing_of("a", 0, 0)], "later it has its time again");
}
