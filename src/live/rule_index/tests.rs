use std::time::SystemTime;

use futures_util::FutureExt;
use tokio::time::advance;

use super::*;
use crate::{live::Current, telemetry::Metrics};
use gatepost_config::SourceFile;

/// A generation with one hook for these resources; without hooks if empty.
fn generation(number: u64, resources: &str) -> Arc<Generation> {
    let hook = "name: a.example.com, clientConfig: {url: 'grpc://127.0.0.1:1'}, failurePolicy: Ignore";
    let rule = format!("operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [{resources}]");
    let hooks = if resources.is_empty() { String::new() } else { format!("{{{hook}, rules: [{{{rule}}}]}}") };
    let text = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: c}}\n\
         externalAdmissionHooks: [{hooks}]\n"
    );
    let file = SourceFile { name: "x.yaml".into(), bytes: text.into() };
    let snapshot = gatepost_config::load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).expect("valid");
    Arc::new(Generation {
        number,
        digest: format!("{number:08}"),
        revision: Revision::Store(number),
        published: SystemTime::UNIX_EPOCH,
        ..Generation::of(Arc::new(snapshot), &Metrics::new(1))
    })
}

fn current() -> Current {
    Current::new(clock::now())
}

fn known(current: &Current) -> u64 {
    current.known_to_plugins(clock::now()).id.number
}

const MILLISECOND: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn generation_is_known_at_once_without_followers() {
    let current = current();
    assert_eq!(known(&current), 0);
    current.publish(generation(1, "pods"));
    let id = GenerationId { number: 1, revision: Revision::Store(1), digest: "00000001".to_owned() };
    assert_eq!(current.known_to_plugins(clock::now()), KnownGeneration { id, is_newest: true });
}

#[tokio::test(start_paused = true)]
async fn generation_is_known_after_the_last_acknowledgement() {
    let current = current();
    current.publish(generation(1, "pods"));
    let [mut one, mut other] = [current.rule_index().follow(), current.rule_index().follow()];
    let former = [one.version(true).number, other.version(true).number];
    current.publish(generation(2, "services"));
    assert_eq!(known(&current), 1);
    let versions = [one.version(true).number, other.version(true).number];
    assert!(versions[0] == versions[1] && versions[0] > former[0]);
    advance(3 * MILLISECOND).await;
    one.acknowledge(versions[0]);
    assert_eq!(known(&current), 1, "the other may use the former index");
    advance(4 * MILLISECOND).await;
    other.acknowledge(versions[1]);
    assert_eq!(known(&current), 2);
    let slowest = current.rule_index().slowest_acknowledgement(clock::now());
    assert_eq!(slowest, Some(7 * MILLISECOND));
}

#[tokio::test(start_paused = true)]
async fn generation_is_known_once_the_former_index_expires() {
    let current = current();
    current.publish(generation(1, "pods"));
    let mut follower = current.rule_index().follow();
    follower.version(true);
    current.publish(generation(2, "services"));
    let before = [None, Some(0), Some(1), Some(follower.version(true).number + 1)];
    for acknowledged in before.into_iter().flatten() {
        follower.acknowledge(acknowledged);
    }
    advance(MAX_VALIDITY - MILLISECOND).await;
    assert_eq!(known(&current), 1, "it has acknowledged no index that it was sent and that is in force");
    let so_far = current.rule_index().slowest_acknowledgement(clock::now());
    assert_eq!(so_far, Some(MAX_VALIDITY - MILLISECOND));
    advance(MILLISECOND).await;
    assert_eq!(known(&current), 2);
}

#[tokio::test(start_paused = true)]
async fn generation_with_an_equal_index_is_known_with_that_index() {
    let current = current();
    current.publish(generation(1, "pods"));
    let mut follower = current.rule_index().follow();
    let version = follower.version(true).number;
    current.publish(generation(2, "pods"));
    assert_eq!((known(&current), follower.version(true).number), (2, version), "nothing to acknowledge");
    current.publish(generation(3, "services"));
    current.publish(generation(4, "services"));
    assert_eq!(known(&current), 2);
    let version = follower.version(true).number;
    follower.acknowledge(version);
    assert_eq!(known(&current), 4);
}

#[tokio::test(start_paused = true)]
async fn quick_changes_do_not_delay_expiry_of_the_first() {
    let current = current();
    current.publish(generation(1, "pods"));
    let mut follower = current.rule_index().follow();
    follower.version(true);
    for (number, resources) in [(2, "services"), (3, "nodes"), (4, "pods")] {
        current.publish(generation(number, resources));
        advance(MAX_VALIDITY / 2).await;
    }
    assert_eq!(known(&current), 3, "published a second ago");
}

#[tokio::test(start_paused = true)]
async fn follower_without_an_index_is_not_waited_for() {
    let current = current();
    current.publish(generation(1, "pods"));
    let mut follower = current.rule_index().follow();
    current.publish(generation(2, "services"));
    assert_eq!(known(&current), 2);
    follower.version(true);
    assert_eq!(known(&current), 2, "it was sent the newest one");
    assert_eq!(current.rule_index().slowest_acknowledgement(clock::now()), None);
}

#[tokio::test(start_paused = true)]
async fn follower_that_may_use_no_index_yet_is_not_waited_for() {
    let current = current();
    let mut follower = current.rule_index().follow();
    follower.version(false);
    current.publish(generation(1, "pods"));
    assert_eq!(known(&current), 1);
    follower.version(true);
    follower.version(false);
    current.publish(generation(2, "services"));
    assert_eq!(known(&current), 1, "an earlier beat is still valid");
}

#[tokio::test(start_paused = true)]
async fn departed_follower_delays_until_its_index_expires() {
    let current = current();
    current.publish(generation(1, "pods"));
    let mut follower = current.rule_index().follow();
    follower.version(true);
    drop(follower);
    advance(MAX_VALIDITY / 2).await;
    current.publish(generation(2, "services"));
    assert_eq!((known(&current), current.rule_index().followers()), (1, 0));
    advance(MAX_VALIDITY / 2).await;
    assert_eq!(known(&current), 2, "a second after it left");
}

#[tokio::test(start_paused = true)]
async fn follower_keeps_no_replaced_generation_alive() {
    let current = current();
    let first = generation(1, "pods");
    let weak = Arc::downgrade(&first);
    current.publish(first);
    let mut follower = current.rule_index().follow();
    let sent = follower.version(true);
    current.publish(generation(2, "services"));
    assert!(weak.upgrade().is_none(), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn follower_is_woken_by_another_index_only() {
    let current = current();
    current.publish(generation(1, "pods"));
    let mut follower = current.rule_index().follow();
    follower.version(true);
    assert_eq!(follower.changed().now_or_never(), None);
    current.publish(generation(2, "pods"));
    assert_eq!(follower.changed().now_or_never(), None, "the index is the same");
    current.publish(generation(3, "services"));
    assert_eq!(follower.changed().now_or_never(), Some(()));
}

#[tokio::test(start_paused = true)]
async fn unacknowledged_generations_are_bounded() {
    let current = current();
    current.publish(generation(1, "pods"));
    let mut follower = current.rule_index().follow();
    follower.version(true);
    let (one, other) = (generation(2, "services"), generation(3, "nodes"));
    let last = 2 * MAX_UNKNOWN_GENERATIONS as u64;
    for number in 2..=last {
        let Generation { digest, revision, published, snapshot, .. } = if number % 2 == 0 { &*one } else { &*other };
        current.publish(Arc::new(Generation {
            number,
            digest: digest.clone(),
            revision: revision.clone(),
            published: *published,
            ..Generation::of(Arc::clone(snapshot), &Metrics::new(1))
        }));
    }
    assert_eq!(current.rule_index().lock().unknown.len(), MAX_UNKNOWN_GENERATIONS);
    advance(MAX_VALIDITY).await;
    assert_eq!(known(&current), last);
}
