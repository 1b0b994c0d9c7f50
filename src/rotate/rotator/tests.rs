use std::{collections::BTreeMap, io};

use super::*;
use crate::{
    clock::slept,
    hooks::ProbeFailure,
    live::Departure,
    model::{Step, Unreachable},
    snapshot::SourceFile,
};

/// Contents that configure these hooks: name and port.
fn contents(hooks: &[(&str, u16)]) -> Contents {
    let mut yaml = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\n\
                    metadata: {name: test}\nexternalAdmissionHooks:\n"
        .to_owned();
    for (name, port) in hooks {
        yaml.push_str(&format!(
            "- name: {name}.example.com\n  clientConfig: {{url: 'grpc://127.0.0.1:{port}'}}\n  rules: []\n"
        ));
    }
    if hooks.is_empty() {
        yaml.push_str("  []\n");
    }
    written(&yaml)
}

fn written(yaml: &str) -> Contents {
    let file = SourceFile { name: "test.yaml".to_owned(), bytes: yaml.to_owned().into() };
    Contents::new(vec![file], BTreeMap::new())
}

/// Its probes run, but nobody listens to them: the tests say how each went.
fn rotator() -> Rotator {
    let current = Arc::new(Current::new(tokio::time::Instant::now().into_std()));
    Rotator::new(current, Arc::new(Metrics::new(1)), vec![Handle::current()], Duration::from_secs(31))
}

async fn started(hooks: &[(&str, u16)]) -> Rotator {
    let mut rotator = rotator();
    read(&mut rotator, contents(hooks)).await;
    rotator
}

async fn read(rotator: &mut Rotator, contents: Contents) {
    rotator.take(reading(Ok(contents))).await;
}

/// A read that begins now.
fn reading(outcome: Result<Contents, ReadError>) -> Reading {
    Reading { started: Moment::now(slept), took: Duration::from_millis(1), outcome }
}

/// How each hook stands: name, port it is asked at (0 where it is not), port it moves to (0 where it does not).
fn standing(rotator: &Rotator) -> Vec<(String, u16, u16)> {
    let port = |endpoint: &Endpoint| match &endpoint.address {
        crate::model::hook::Address::Tcp { port, .. } => *port,
        crate::model::hook::Address::Unix(_) => 0,
    };
    let stands = |live: &LiveHook| {
        let asked = matches!(live.rotation, Rotation::Active { .. });
        let moves = live.replacing.as_ref().map_or(0, |replacement| port(replacement.channel.endpoint()));
        let name = live.hook.name.split('.').next().unwrap_or_default().to_owned();
        (name, if asked { port(live.channel.endpoint()) } else { 0 }, moves)
    };
    rotator.current.load().hooks.iter().map(stands).collect()
}

fn stands(name: &str, asked: u16, moves: u16) -> (String, u16, u16) {
    (name.to_owned(), asked, moves)
}

fn number(rotator: &Rotator) -> u64 {
    rotator.current.load().number
}

/// The only endpoint being probed.
fn probed(rotator: &Rotator) -> Arc<Channel> {
    assert_eq!(rotator.probing.len(), 1);
    let (_, probing) = rotator.probing.iter().next().unwrap();
    Arc::clone(&probing.channel)
}

fn refused() -> ProbeFailure {
    Unreachable::at(Step::Connect, "refused").into()
}

#[tokio::test(start_paused = true)]
async fn what_is_there_at_the_start_is_asked_what_comes_later_is_probed_first() {
    let mut rotator = started(&[("a", 1)]).await;
    assert_eq!((number(&rotator), standing(&rotator)), (1, vec![stands("a", 1, 0)]));

    read(&mut rotator, contents(&[("a", 1), ("b", 2)])).await;
    assert_eq!((number(&rotator), standing(&rotator)), (2, vec![stands("a", 1, 0), stands("b", 0, 0)]));

    let channel = probed(&rotator);
    rotator.hear(ProbeNews { channel: channel.clone(), outcome: Err(refused()) });
    let generation = rotator.current.load();
    let Rotation::Probing { last_failure, .. } = &generation.hooks[1].rotation else { panic!("it is being probed") };
    assert_eq!((number(&rotator), last_failure), (3, &Some(refused())));
    rotator.hear(ProbeNews { channel: channel.clone(), outcome: Err(refused()) });
    assert_eq!(number(&rotator), 3, "the same failure again is no news");

    rotator.hear(ProbeNews { channel: channel.clone(), outcome: Ok(()) });
    assert_eq!((number(&rotator), standing(&rotator)), (4, vec![stands("a", 1, 0), stands("b", 2, 0)]));
    assert!(Arc::ptr_eq(&rotator.current.load().hooks[1].channel, &channel), "the probed connection is the one used");
    assert!(rotator.probing.is_empty());
}

/// Configurations of Kubernetes' kind, each with one webhook of the same name: name and port.
fn namesakes(configurations: &[(&str, u16)]) -> Contents {
    // The same at every call: another authority would be another endpoint.
    static AUTHORITY: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let authority = AUTHORITY.get_or_init(|| rcgen::generate_simple_self_signed(["h".to_owned()]).unwrap().cert.pem());
    let one = |(name, port): &(&str, u16)| {
        format!(
            "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n\
             metadata: {{name: {name}}}\nwebhooks:\n- {{name: same.example.com, sideEffects: None, \
             admissionReviewVersions: [v1], clientConfig: {{url: 'https://127.0.0.1:{port}', caBundle: {}}}}}\n",
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, authority)
        )
    };
    written(&configurations.iter().map(one).collect::<String>())
}

#[tokio::test(start_paused = true)]
async fn namesakes_of_two_configurations_keep_their_own_seats() {
    let mut rotator = rotator();
    read(&mut rotator, namesakes(&[("a", 1), ("b", 2)])).await;
    assert_eq!(standing(&rotator), [stands("same", 1, 0), stands("same", 2, 0)]);
    // The second moves: it stays at its own old place until the new one is proven, not at its namesake's.
    read(&mut rotator, namesakes(&[("a", 1), ("b", 3)])).await;
    assert_eq!(standing(&rotator), [stands("same", 1, 0), stands("same", 2, 3)]);
    let _request = rotator.current.load();
    read(&mut rotator, namesakes(&[("b", 2)])).await;
    assert_eq!(standing(&rotator), [stands("same", 2, 0)]);
    let leaving = rotator.current.leaving();
    assert_eq!(leaving.len(), 1, "the first drains although its namesake stays");
}

#[tokio::test(start_paused = true)]
async fn connections_survive_a_change_that_does_not_concern_them() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    let before = rotator.current.load();
    read(&mut rotator, contents(&[("b", 2), ("renamed", 1)])).await;
    let after = rotator.current.load();
    assert_eq!(standing(&rotator), [stands("b", 2, 0), stands("renamed", 1, 0)]);
    assert!(Arc::ptr_eq(&before.hooks[1].channel, &after.hooks[0].channel));
    assert!(Arc::ptr_eq(&before.hooks[0].channel, &after.hooks[1].channel));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_moves_is_asked_where_it_was_until_the_new_place_answers() {
    let mut rotator = started(&[("a", 1)]).await;
    read(&mut rotator, contents(&[("a", 2)])).await;
    assert_eq!(standing(&rotator), [stands("a", 1, 2)]);
    let channel = probed(&rotator);

    read(&mut rotator, contents(&[("a", 2), ("b", 3)])).await;
    assert_eq!(standing(&rotator)[0], stands("a", 1, 2), "another change does not begin it anew");
    assert!(Arc::ptr_eq(&rotator.probing[channel.endpoint()].channel, &channel));

    rotator.hear(ProbeNews { channel: channel.clone(), outcome: Err(refused()) });
    let generation = rotator.current.load();
    assert_eq!(generation.hooks[0].replacing.as_ref().unwrap().last_failure, Some(refused()));

    rotator.hear(ProbeNews { channel, outcome: Ok(()) });
    assert_eq!(standing(&rotator), [stands("a", 2, 0), stands("b", 0, 0)]);
}

#[tokio::test(start_paused = true)]
async fn news_of_a_place_that_is_no_longer_wanted_is_no_news() {
    let mut rotator = started(&[("a", 1)]).await;
    read(&mut rotator, contents(&[("a", 2)])).await;
    let former = probed(&rotator);
    read(&mut rotator, contents(&[("a", 1)])).await;
    assert_eq!((standing(&rotator), rotator.probing.len()), (vec![stands("a", 1, 0)], 0), "the move is called off");
    read(&mut rotator, contents(&[("a", 2)])).await;
    rotator.hear(ProbeNews { channel: former, outcome: Ok(()) });
    assert_eq!(standing(&rotator), [stands("a", 1, 2)], "it was said of another connection");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_change_keeps_the_last_good_and_counts_as_fresh() {
    let mut rotator = started(&[("a", 1)]).await;
    tokio::time::advance(Duration::from_secs(4)).await;
    read(&mut rotator, written("kind: Nonsense")).await;
    let now = tokio::time::Instant::now().into_std();
    assert_eq!((number(&rotator), standing(&rotator)), (1, vec![stands("a", 1, 0)]));
    assert_eq!(rotator.current.age(now), Some(Duration::ZERO));
    let rejection = rotator.current.rejected().expect("rejected");
    assert!(!rejection.problems.is_empty());

    read(&mut rotator, written("kind: [")).await;
    let other = rotator.current.rejected().expect("still rejected");
    assert_ne!(other.problems, rejection.problems);
    assert_eq!(other.since, rejection.since, "since the first of them");

    read(&mut rotator, contents(&[("a", 1)])).await;
    assert_eq!((number(&rotator), rotator.current.rejected()), (1, None), "back to what is in force");
}

#[tokio::test(start_paused = true)]
async fn an_unsound_first_configuration_is_not_fresh_and_nothing_is_in_force() {
    let mut rotator = rotator();
    read(&mut rotator, written("kind: Nonsense")).await;
    let now = tokio::time::Instant::now().into_std();
    assert_eq!((number(&rotator), rotator.current.is_fresh(now)), (0, false));
    assert!(rotator.current.rejected().is_some());
    read(&mut rotator, contents(&[("a", 1)])).await;
    assert_eq!((number(&rotator), rotator.current.is_fresh(now)), (1, true));
}

#[tokio::test(start_paused = true)]
async fn what_is_written_once_more_unchanged_bears_the_newer_revision() {
    let mut rotator = rotator();
    read(&mut rotator, contents(&[("a", 1)]).at(7)).await;
    let request = rotator.current.load();
    read(&mut rotator, contents(&[("a", 1)]).at(8)).await;
    let renamed = rotator.current.load();
    assert_eq!((renamed.number, &renamed.revision), (2, &Revision::Store(8)));
    assert!(Arc::ptr_eq(&request.hooks[0].channel, &renamed.hooks[0].channel));
    read(&mut rotator, written("kind: Nonsense").at(9)).await;
    read(&mut rotator, contents(&[("a", 1)]).at(10)).await;
    assert_eq!(rotator.current.load().revision, Revision::Store(10), "also on the way back from an unsound one");
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_changes_nothing_but_the_age() {
    let mut rotator = started(&[("a", 1)]).await;
    tokio::time::advance(STALE_AFTER).await;
    let now = tokio::time::Instant::now().into_std();
    let error = ReadError::unreadable("gone".as_ref(), &io::ErrorKind::NotFound.into());
    rotator.take(reading(Err(error.clone()))).await;
    rotator.take(reading(Err(error.clone()))).await;
    let failed = rotator.current.failed_read().expect("told");
    assert_eq!(rotator.failed_reads, [error], "a cause is told once");
    assert_eq!((&*failed.error, failed.count), ("cannot read gone: entity not found", 2));
    assert_eq!((number(&rotator), rotator.current.age(now)), (1, Some(STALE_AFTER)));
    assert!(!rotator.current.is_fresh(now));
    read(&mut rotator, contents(&[("a", 1)])).await;
    assert!(rotator.current.is_fresh(now));
    assert_eq!(rotator.current.failed_read(), None);
    assert_eq!(number(&rotator), 1, "the same contents are judged once");
}

#[tokio::test(start_paused = true)]
async fn causes_that_take_turns_are_told_once_until_a_read_is_good() {
    let mut rotator = started(&[("a", 1)]).await;
    let [one, other] =
        ["one", "other"].map(|path| ReadError::unreadable(path.as_ref(), &io::ErrorKind::NotFound.into()));
    for error in [&one, &other, &one, &other] {
        rotator.take(reading(Err(error.clone()))).await;
    }
    assert_eq!(rotator.failed_reads, [one, other]);
    assert_eq!(rotator.current.failed_read().expect("told").count, 4);
    read(&mut rotator, contents(&[("a", 1)])).await;
    assert_eq!(rotator.failed_reads, []);
}

#[tokio::test(start_paused = true)]
async fn every_read_is_counted_by_what_came_of_it() {
    let mut rotator = started(&[("a", 1)]).await;
    read(&mut rotator, contents(&[("a", 1)])).await;
    read(&mut rotator, written("kind: Nonsense")).await;
    rotator.take(reading(Err(ReadError::Hung(STALE_AFTER)))).await;
    let text = rotator.metrics.render().unwrap();
    for outcome in ["changed", "unchanged", "rejected", "failed_hung"] {
        let sample = format!("gatepost_config_reads_total{{outcome=\"{outcome}\"}} 1\n");
        assert!(text.contains(&sample), "{outcome} in\n{text}");
    }
}

#[test]
fn what_is_in_force_is_not_fresh_because_something_else_was_found() {
    // One thread for what blocks, and it is taken: the change is found, and cannot be judged yet.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut rotator = started(&[("a", 1)]).await;
        let current = Arc::clone(&rotator.current);
        let age = || current.age(tokio::time::Instant::now().into_std());
        tokio::time::advance(Duration::from_secs(3)).await;
        let (free, taken) = std::sync::mpsc::channel::<()>();
        let blocking = spawn_blocking(move || taken.recv().is_err());
        {
            let mut change = std::pin::pin!(read(&mut rotator, contents(&[("b", 2)])));
            tokio::select! {
                biased;
                () = &mut change => panic!("it was judged"),
                () = std::future::ready(()) => {}
            }
            assert_eq!((current.load().number, age()), (1, Some(Duration::from_secs(3))));
            drop(free);
            change.await;
        }
        assert!(blocking.await.unwrap());
        assert_eq!((number(&rotator), age()), (2, Some(Duration::ZERO)));
    });
}

#[tokio::test(start_paused = true)]
async fn a_removed_hook_drains_until_the_last_request_that_asked_it_ends() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    let leaving = |rotator: &Rotator| -> Vec<String> {
        rotator.current.leaving().iter().map(|draining| draining.hook.name.to_string()).collect()
    };
    let request = rotator.current.load();
    let channel = Arc::downgrade(&request.hooks[0].channel);
    read(&mut rotator, contents(&[("b", 2)])).await;
    assert_eq!(leaving(&rotator), ["a.example.com"]);
    // A later generation that is held, too, says nothing of a hook it never asked.
    let later = rotator.current.load();
    read(&mut rotator, contents(&[("b", 2), ("c", 3)])).await;
    assert_eq!(leaving(&rotator), ["a.example.com"]);
    drop(request);
    assert!(channel.upgrade().is_none(), "its connections close");
    read(&mut rotator, contents(&[("b", 2), ("c", 3)])).await;
    assert!(leaving(&rotator).is_empty());
    drop(later);
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_keeps_no_hook_from_draining() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    // This thread is the worker. It has served a request, and has nothing to do any more.
    let channel = Arc::downgrade(&rotator.current.enter().hooks[0].channel);
    read(&mut rotator, contents(&[("b", 2)])).await;
    tokio::task::yield_now().await;
    assert!(channel.upgrade().is_none(), "its connections close");
    read(&mut rotator, contents(&[("b", 2)])).await;
    assert!(rotator.current.leaving().is_empty());
}

#[tokio::test(start_paused = true)]
async fn draining_has_a_bound_and_coming_back_ends_it() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    let request = rotator.current.load();
    read(&mut rotator, contents(&[])).await;
    assert_eq!(rotator.current.leaving().len(), 2);
    read(&mut rotator, contents(&[("a", 1)])).await;
    assert_eq!(rotator.current.leaving().len(), 1, "a is back");
    tokio::time::advance(Duration::from_secs(31)).await;
    read(&mut rotator, contents(&[("a", 1)])).await;
    assert!(rotator.current.leaving().is_empty(), "b is not waited for any longer");
    drop(request);
}

/// The workers let go of what is no longer in force, and the rotator sees what has drained.
async fn sweep(rotator: &mut Rotator) {
    tokio::task::yield_now().await;
    rotator.tell_departed();
}

/// How each hook that has departed stands, in the order in which they went.
fn gone(rotator: &Rotator) -> Vec<(String, Departure)> {
    let departed = rotator.current.departed();
    let gone = departed.iter().filter_map(|departed| match departed.rotation {
        Rotation::Gone { how, .. } => Some((departed.hook.name.to_string(), how)),
        _ => None,
    });
    gone.collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_remembered_for_an_hour_with_the_way_it_went() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    read(&mut rotator, contents(&[("a", 1), ("c", 3)])).await;
    sweep(&mut rotator).await;
    read(&mut rotator, contents(&[("a", 1)])).await;
    let drained = ("b.example.com".to_owned(), Departure::Drained);
    let never = ("c.example.com".to_owned(), Departure::NeverAsked);
    assert_eq!(gone(&rotator), [drained.clone(), never.clone()]);

    let request = rotator.current.load();
    read(&mut rotator, contents(&[])).await;
    tokio::time::advance(Duration::from_secs(31)).await;
    read(&mut rotator, contents(&[])).await;
    let given_up = ("a.example.com".to_owned(), Departure::GivenUp);
    assert_eq!(gone(&rotator), [drained, never, given_up.clone()]);
    drop(request);

    read(&mut rotator, contents(&[("b", 2)])).await;
    assert!(!gone(&rotator).iter().any(|(name, _)| name == "b.example.com"), "it is back");
    tokio::time::advance(Duration::from_secs(3600 - 31)).await;
    read(&mut rotator, contents(&[("b", 2)])).await;
    assert_eq!(gone(&rotator), [given_up], "what went first is forgotten first");
    tokio::time::advance(Duration::from_secs(32)).await;
    read(&mut rotator, contents(&[("b", 2)])).await;
    assert_eq!(gone(&rotator), []);
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_takes_bounded_room() {
    let mut rotator = started(&[]).await;
    for port in 1..=300 {
        read(&mut rotator, contents(&[(&format!("h{port}"), port)])).await;
    }
    let gone = gone(&rotator);
    assert_eq!((gone.len(), &*gone[255].0), (256, "h299.example.com"));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_has_moved_drains_at_its_old_endpoint() {
    let mut rotator = started(&[("a", 1)]).await;
    let request = rotator.current.load();
    read(&mut rotator, contents(&[("a", 2)])).await;
    assert!(rotator.current.departed().is_empty(), "it is still asked there");
    let channel = probed(&rotator);
    rotator.hear(ProbeNews { channel, outcome: Ok(()) });
    let leaving = rotator.current.leaving();
    assert_eq!(leaving.iter().map(|old| old.endpoint.to_string()).collect::<Vec<_>>(), ["grpc://127.0.0.1:1"]);
    drop(request);
    sweep(&mut rotator).await;
    assert_eq!(gone(&rotator), [("a.example.com".to_owned(), Departure::Drained)]);
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
async fn a_hook_created_fail_open_and_closed_before_it_has_answered_closes_when_it_is_active() {
    use crate::model::FailurePolicy;
    let mut rotator = started(&[]).await;
    let policy = |rotator: &Rotator| rotator.current.load().hooks[0].effective_policy();
    read(&mut rotator, one_hook("Fail", "  rollout: {createAs: Ignore}\n")).await;
    let channel = probed(&rotator);
    assert_eq!((standing(&rotator), policy(&rotator)), (vec![stands("a", 0, 0)], FailurePolicy::Ignore));
    read(&mut rotator, one_hook("Fail", "")).await;
    assert_eq!((standing(&rotator), policy(&rotator)), (vec![stands("a", 0, 0)], FailurePolicy::Ignore));
    assert!(Arc::ptr_eq(&probed(&rotator), &channel), "an update does not begin the probe anew");
    rotator.hear(ProbeNews { channel, outcome: Ok(()) });
    assert_eq!((standing(&rotator), policy(&rotator)), (vec![stands("a", 1, 0)], FailurePolicy::Fail));

    // A restart enforces that at once, whether the hook answers or not.
    let mut restarted = self::rotator();
    read(&mut restarted, one_hook("Fail", "")).await;
    assert_eq!((standing(&restarted), policy(&restarted)), (vec![stands("a", 1, 0)], FailurePolicy::Fail));
    let mut rolling_out = self::rotator();
    read(&mut rolling_out, one_hook("Fail", "  rollout: {createAs: Ignore}\n")).await;
    assert_eq!((standing(&rolling_out), policy(&rolling_out)), (vec![stands("a", 1, 0)], FailurePolicy::Ignore));
}

#[tokio::test(start_paused = true)]
async fn what_was_rejected_and_what_the_last_read_saw_have_revisions() {
    let mut rotator = started(&[]).await;
    read(&mut rotator, written("kind: Nonsense").at(7)).await;
    let rejected = |rotator: &Rotator| rotator.current.rejected().map(|rejected| rejected.revision.clone());
    assert_eq!((rejected(&rotator), rotator.current.observed()), (Some(Revision::Store(7)), Some(7)));
    read(&mut rotator, Contents { as_of: Some(9), ..written("kind: Nonsense").at(7) }).await;
    assert_eq!((rejected(&rotator), rotator.current.observed()), (Some(Revision::Store(7)), Some(9)));
    read(&mut rotator, written("kind: Nonsense # again").at(10)).await;
    assert_eq!(rejected(&rotator), Some(Revision::Store(10)), "the same problems, written anew");
    let error = ReadError::unreadable("gone".as_ref(), &io::ErrorKind::NotFound.into());
    rotator.take(reading(Err(error.clone()))).await;
    assert_eq!(rotator.current.failed_read().map(|failed| failed.error.clone()), Some(error.to_string()));
    assert_eq!(rotator.current.observed(), Some(10), "a failed read has seen nothing");
    read(&mut rotator, contents(&[]).at(11)).await;
    assert_eq!((rotator.current.failed_read(), rejected(&rotator)), (None, None));
}
