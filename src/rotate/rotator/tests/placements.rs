//! Which hooks are asked, and where: at once, or once they have been seen to answer.

use super::*;

#[tokio::test(start_paused = true)]
async fn hooks_of_the_start_are_called_and_later_ones_probed_first() {
    let mut rotator = started(&[("a", 1)]).await;
    assert_eq!((number(&rotator), standing(&rotator)), (1, vec![standing_of("a", 1, 0)]));

    read(&mut rotator, contents(&[("a", 1), ("b", 2)])).await;
    assert_eq!((number(&rotator), standing(&rotator)), (2, vec![standing_of("a", 1, 0), standing_of("b", 0, 0)]));

    let channel = probed(&rotator);
    rotator.on_probe_result(news(channel.clone(), Err(refused())));
    let generation = rotator.current.load();
    let Rotation::Probing { last_failure, .. } = &generation.hooks[1].rotation else { panic!("it is being probed") };
    assert_eq!((number(&rotator), last_failure), (3, &Some(refused())));
    rotator.on_probe_result(news(channel.clone(), Err(refused())));
    assert_eq!(number(&rotator), 3, "the same failure again is no news");

    rotator.on_probe_result(news(channel.clone(), Ok(())));
    assert_eq!((number(&rotator), standing(&rotator)), (4, vec![standing_of("a", 1, 0), standing_of("b", 2, 0)]));
    assert!(
        Arc::ptr_eq(&rotator.current.load().hooks[1].target.channel, &channel),
        "the probed connection is the one used"
    );
    assert!(rotator.placements.probing.is_empty());
}

#[tokio::test(start_paused = true)]
async fn namesakes_of_two_configurations_keep_their_own_seats() {
    let mut rotator = rotator();
    for _ in 0..2 {
        read(&mut rotator, namesakes(&[("a", 1), ("b", 2)])).await;
    }
    assert_eq!(standing(&rotator), [standing_of("same", 1, 0), standing_of("same", 2, 0)]);
    // The second moves: it stays at its own old place until the new one is proven, not at its namesake's.
    read(&mut rotator, namesakes(&[("a", 1), ("b", 3)])).await;
    assert_eq!(standing(&rotator), [standing_of("same", 1, 0), standing_of("same", 2, 3)]);
    let _request = rotator.current.load();
    read(&mut rotator, namesakes(&[("b", 2)])).await;
    assert_eq!(standing(&rotator), [standing_of("same", 2, 0)]);
    let leaving = rotator.options.status.draining();
    assert_eq!(leaving.len(), 1, "the first drains although its namesake stays");
}

#[tokio::test(start_paused = true)]
async fn connections_survive_a_change_that_does_not_concern_them() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    let before = rotator.current.load();
    read(&mut rotator, contents(&[("b", 2), ("renamed", 1)])).await;
    let after = rotator.current.load();
    assert_eq!(standing(&rotator), [standing_of("b", 2, 0), standing_of("renamed", 1, 0)]);
    assert!(Arc::ptr_eq(&before.hooks[1].target.channel, &after.hooks[0].target.channel));
    assert!(Arc::ptr_eq(&before.hooks[0].target.channel, &after.hooks[1].target.channel));
    assert!(Arc::ptr_eq(&before.hooks[1].metrics, &after.hooks[0].metrics));
    assert!(!Arc::ptr_eq(&before.hooks[0].metrics, &after.hooks[1].metrics), "another hook is counted by itself");
}

#[tokio::test(start_paused = true)]
async fn moved_hook_is_called_at_old_endpoint_until_probe_passes() {
    let mut rotator = started(&[("a", 1)]).await;
    read(&mut rotator, contents(&[("a", 2)])).await;
    assert_eq!(standing(&rotator), [standing_of("a", 1, 2)]);
    let channel = probed(&rotator);

    read(&mut rotator, contents(&[("a", 2), ("b", 3)])).await;
    assert_eq!(standing(&rotator)[0], standing_of("a", 1, 2), "another change does not begin it anew");
    assert!(Arc::ptr_eq(&rotator.placements.probing[channel.endpoint()].channel, &channel));

    rotator.on_probe_result(news(channel.clone(), Err(refused())));
    let generation = rotator.current.load();
    assert_eq!(generation.hooks[0].replacing.as_ref().unwrap().last_failure, Some(refused()));

    rotator.on_probe_result(news(channel, Ok(())));
    assert_eq!(standing(&rotator), [standing_of("a", 2, 0), standing_of("b", 0, 0)]);
}

#[tokio::test(start_paused = true)]
async fn news_of_a_place_that_is_no_longer_wanted_is_no_news() {
    let mut rotator = started(&[("a", 1)]).await;
    read(&mut rotator, contents(&[("a", 2)])).await;
    let former = probed(&rotator);
    read(&mut rotator, contents(&[("a", 1)])).await;
    assert_eq!(
        (standing(&rotator), rotator.placements.probing.len()),
        (vec![standing_of("a", 1, 0)], 0),
        "the move is called off"
    );
    read(&mut rotator, contents(&[("a", 2)])).await;
    rotator.on_probe_result(news(former, Ok(())));
    assert_eq!(standing(&rotator), [standing_of("a", 1, 2)], "it was said of another connection");
}

/// One hook of that failure policy, with a further line.
fn one_hook(policy: &str, more: &str) -> Contents {
    written(&format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: test}}\n\
         externalAdmissionHooks:\n- name: a.example.com\n  clientConfig: {{url: 'grpc://127.0.0.1:1'}}\n  rules: []\n  \
         failurePolicy: {policy}\n{more}"
    ))
}

#[tokio::test(start_paused = true)]
async fn unproven_hook_fails_closed_only_once_active() {
    use gatepost_api::FailurePolicy;
    let mut rotator = started(&[]).await;
    let policy = |rotator: &Rotator| rotator.current.load().hooks[0].shown_policy();
    read(&mut rotator, one_hook("Fail", "  rollout: {createAs: Ignore}\n")).await;
    let channel = probed(&rotator);
    assert_eq!((standing(&rotator), policy(&rotator)), (vec![standing_of("a", 0, 0)], FailurePolicy::Ignore));
    read(&mut rotator, one_hook("Fail", "")).await;
    assert_eq!((standing(&rotator), policy(&rotator)), (vec![standing_of("a", 0, 0)], FailurePolicy::Ignore));
    assert!(Arc::ptr_eq(&probed(&rotator), &channel), "an update does not begin the probe anew");
    rotator.on_probe_result(news(channel, Ok(())));
    assert_eq!((standing(&rotator), policy(&rotator)), (vec![standing_of("a", 1, 0)], FailurePolicy::Fail));

    // A restart enforces that at once, whether the hook answers or not.
    let mut restarted = self::rotator();
    read(&mut restarted, one_hook("Fail", "")).await;
    assert_eq!((standing(&restarted), policy(&restarted)), (vec![standing_of("a", 1, 0)], FailurePolicy::Fail));
    let mut rolling_out = self::rotator();
    read(&mut rolling_out, one_hook("Fail", "  rollout: {createAs: Ignore}\n")).await;
    assert_eq!((standing(&rolling_out), policy(&rolling_out)), (vec![standing_of("a", 1, 0)], FailurePolicy::Ignore));
}

/// Hooks over HTTP at one endpoint that is not the one in force: path, and what they say of their side effects.
fn over_http(hooks: &[(&str, &str)]) -> Contents {
    let mut yaml = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\n\
                    metadata: {name: test}\nexternalAdmissionHooks:\n"
        .to_owned();
    for (path, side_effects) in hooks {
        yaml.push_str(&format!(
            "- name: {path}.example.com\n  clientConfig: {{url: 'http://127.0.0.1:1/{path}'}}\n  rules: []\n  \
             {side_effects}\n"
        ));
    }
    written(&yaml)
}

fn posted(path: &str) -> Option<ProbePost> {
    use gatepost_api::{HttpForm, ReviewVersion};
    Some(ProbePost { path: path.into(), form: HttpForm::Json(ReviewVersion::V1) })
}

#[tokio::test(start_paused = true)]
async fn probe_review_is_sent_to_first_hook_without_side_effects() {
    for (hooks, post) in [
        (&[("a", "sideEffects: None")][..], posted("/a")),
        (&[("a", "sideEffects: NoneOnDryRun"), ("b", "sideEffects: None")], posted("/a")),
        (
            &[("a", ""), ("b", "sideEffects: Some"), ("c", "sideEffects: None"), ("d", "sideEffects: None")],
            posted("/c"),
        ),
        (&[("a", ""), ("b", "sideEffects: Some"), ("c", "sideEffects: Unknown")], None),
    ] {
        let mut rotator = started(&[]).await;
        read(&mut rotator, over_http(hooks)).await;
        let channel = probed(&rotator);
        let passed = |post| ProbeResult { channel: channel.clone(), post, outcome: Ok(()) };
        rotator.on_probe_result(passed(posted("/elsewhere")));
        assert_eq!(rotator.placements.probing.len(), 1, "{hooks:?}");
        rotator.on_probe_result(passed(post));
        assert!(
            rotator.placements.probing.is_empty() && standing(&rotator).iter().all(|(_, port, _)| *port == 1),
            "{hooks:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn probe_results_of_removed_endpoints_are_ignored() {
    let mut rotator = started(&[]).await;
    read(&mut rotator, over_http(&[("a", "")])).await;
    let channel = probed(&rotator);
    let news = |post, outcome| ProbeResult { channel: channel.clone(), post, outcome };
    read(&mut rotator, over_http(&[("a", "sideEffects: None")])).await;
    assert!(Arc::ptr_eq(&probed(&rotator), &channel), "the connection is the same");
    rotator.on_probe_result(news(None, Ok(())));
    assert_eq!(standing(&rotator), [standing_of("a", 0, 0)], "connecting no longer suffices");
    read(&mut rotator, over_http(&[("b", "sideEffects: None")])).await;
    let before = number(&rotator);
    rotator.on_probe_result(news(posted("/a"), Err(refused())));
    assert_eq!(number(&rotator), before, "another path's failure is not this one's");
    rotator.on_probe_result(news(posted("/b"), Ok(())));
    assert_eq!(standing(&rotator), [standing_of("b", 1, 0)]);
}
