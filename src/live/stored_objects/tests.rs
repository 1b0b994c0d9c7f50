use super::*;
use crate::{
    initialize::{
        Initializers,
        unfinished::{CorrectiveAction, StoredEvent},
    },
    model::{FailurePolicy, StatusInfo},
};

const LONG: Duration = Duration::from_secs(60);

fn sought(uid: &str) -> Arc<SoughtObject> {
    let texts = || "x".into();
    let (group, resource) = ("".into(), "pods".into());
    Arc::new(SoughtObject { group, resource, namespace: texts(), name: texts(), uid: uid.into() })
}

fn unfinished(uid: &str, version: &str, pending: &[&str]) -> StoredEvent {
    let SoughtObject { group, resource, namespace, name, uid } = (*sought(uid)).clone();
    let list = Initializers::of(pending.iter().copied());
    StoredEvent::Unfinished(StoredObject {
        group,
        resource,
        namespace,
        name,
        uid,
        resource_version: version.into(),
        list,
    })
}

#[allow(clippy::unnecessary_wraps, reason = "as a hold is given it")]
fn ignore(_: &StoredObject) -> Option<HeadRule> {
    Some(HeadRule { policy: FailurePolicy::Ignore, timeout: Duration::from_secs(5) })
}

fn completed(uid: &str, version: &str) -> StoredEvent {
    StoredEvent::Initialized { uid: uid.into(), resource_version: version.into() }
}

fn client() -> Arc<str> {
    "apiserver".into()
}

#[tokio::test(start_paused = true)]
async fn a_hold_ends_as_its_object_does() {
    let objects = Arc::new(StoredObjects::default());
    let following = objects.follow(&client());
    following.take(unfinished("a", "1", &["x"]));
    following.take(unfinished("b", "2", &["x"]));
    following.take(unfinished("c", "3", &["x"]));
    following.take(StoredEvent::Synced);
    let (client, deadline) = (client(), now() + LONG);
    let (a, b, c) = (sought("a"), sought("b"), sought("c"));
    let hold = |object| objects.hold(&client, object, deadline, ignore);
    let reports = async {
        tokio::task::yield_now().await;
        assert_eq!(objects.held(), 3);
        following.take(completed("a", "4"));
        let StoredEvent::Unfinished(mut failed) = unfinished("b", "5", &["x"]) else { unreachable!() };
        failed.list.result = Some(Box::new(StatusInfo { code: 403, ..StatusInfo::default() }));
        following.take(StoredEvent::Unfinished(failed));
        following.take(StoredEvent::Gone { uid: "c".into() });
    };
    let (a, b, c, ()) = tokio::join!(hold(&a), hold(&b), hold(&c), reports);
    assert_eq!(a, HoldEnd::Over(HoldOutcome::Completed("4".into())));
    assert!(matches!(b, HoldEnd::Over(HoldOutcome::Failed(status)) if status.code == 403));
    assert_eq!(c, HoldEnd::Over(HoldOutcome::Deleted));
    assert_eq!((objects.held(), objects.unfinished()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_head_of_a_held_object_has_its_time_and_no_more() {
    let objects = Arc::new(StoredObjects::default());
    let mut following = objects.follow(&client());
    following.take(unfinished("a", "1", &["x", "y"]));
    let began = now();
    let (client, a) = (client(), sought("a"));
    let hold = objects.hold(&client, &a, began + LONG, ignore);
    let apiserver = async {
        let Some(ToFollower::Correct(first)) = following.recv().await else { panic!("no correction") };
        assert_eq!((first.remedy, &*first.object.resource_version), (CorrectiveAction::RemoveHead("x".into()), "1"));
        assert_eq!(now() - began, Duration::from_secs(5));
        // It was lost on its way: it comes again.
        let Some(ToFollower::Correct(second)) = following.recv().await else { panic!("no correction") };
        assert_eq!((second.remedy, now() - began), (CorrectiveAction::RemoveHead("x".into()), Duration::from_secs(7)));
        following.take(unfinished("a", "2", &["y"]));
        let Some(ToFollower::Correct(third)) = following.recv().await else { panic!("no correction") };
        assert_eq!((third.remedy, now() - began), (CorrectiveAction::RemoveHead("y".into()), Duration::from_secs(12)));
        following.take(completed("a", "3"));
    };
    let (end, ()) = tokio::join!(hold, apiserver);
    assert_eq!(end, HoldEnd::Over(HoldOutcome::Completed("3".into())));
}

#[tokio::test(start_paused = true)]
async fn under_fail_the_object_fails_and_while_nothing_is_known_it_stays() {
    let objects = Arc::new(StoredObjects::default());
    let mut following = objects.follow(&client());
    following.take(unfinished("a", "1", &["x"]));
    let (client, a, b, deadline) = (client(), sought("a"), sought("b"), now() + LONG);
    following.take(unfinished("b", "1", &["x"]));
    let fail = |_: &StoredObject| Some(HeadRule { policy: FailurePolicy::Fail, timeout: Duration::from_secs(1) });
    let holds = async {
        tokio::join!(objects.hold(&client, &a, deadline, fail), objects.hold(&client, &b, deadline, |_| None))
    };
    let apiserver = async {
        let Some(ToFollower::Correct(Correction { remedy: CorrectiveAction::Fail(status), object })) =
            following.recv().await
        else {
            panic!("no correction")
        };
        assert_eq!((status.code, &*status.details_uid, &*object.uid), (504, "a", "a"));
        following.take(StoredEvent::Unfinished(StoredObject {
            list: Initializers { result: Some(status), ..object.list.clone() },
            ..(*object).clone()
        }));
    };
    let ((a, b), ()) = tokio::join!(holds, apiserver);
    assert!(matches!(a, HoldEnd::Over(HoldOutcome::Failed(status)) if status.code == 504));
    assert!(matches!(b, HoldEnd::OutOfTime(Some(object)) if &*object.uid == "b"));
    assert!(following.queue.try_recv().is_err(), "nothing is corrected by a configuration that may be outdated");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_not_reported_is_asked_about() {
    let objects = Arc::new(StoredObjects::default());
    let (mut following, stranger) = (objects.follow(&client()), objects.follow(&"another".into()));
    let (client, a) = (client(), sought("a"));
    let hold = objects.hold(&client, &a, now() + LONG, ignore);
    let apiserver = async {
        stranger.take(completed("a", "9"));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(following.queue.try_recv().is_err(), "its report is not complete yet");
        following.take(StoredEvent::Synced);
        assert_eq!(following.recv().await, Some(ToFollower::Look(sought("a"))));
        following.take(completed("a", "7"));
    };
    let (end, ()) = tokio::join!(hold, apiserver);
    assert_eq!(end, HoldEnd::Over(HoldOutcome::Completed("7".into())), "another client's report does not count");
}

#[tokio::test(start_paused = true)]
async fn heads_that_nobody_holds_are_the_controllers() {
    let objects = Arc::new(StoredObjects::default());
    let mut following = objects.follow(&client());
    for n in 0..10 {
        following.take(unfinished(&format!("u{n}"), "1", &["x"]));
    }
    let rule = |_: &StoredObject| HeadRule::default();
    assert_eq!(following.control(Some(now()), rule, 4).await, [], "not before the report is complete");
    following.take(StoredEvent::Synced);
    assert_eq!(following.control(Some(now()), rule, 4).await, []);
    let read = now();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(following.control(Some(read), rule, 4).await, [], "read before the snapshot");
    assert_eq!(following.control(Some(now()), rule, 4).await.len(), 4);
    assert_eq!(following.control(Some(now()), rule, 4).await.len(), 4);
    assert_eq!(following.control(Some(now()), rule, 4).await.len(), 2);
    assert_eq!(following.control(Some(now()), rule, 4).await, []);
    drop(following);
    assert_eq!(objects.unfinished(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_head_with_more_time_than_a_hold_is_not_the_controllers_before() {
    let objects = Arc::new(StoredObjects::default());
    let mut following = objects.follow(&client());
    for n in 0..9 {
        following.take(unfinished(&format!("slow{n}"), "1", &["slow"]));
    }
    following.take(unfinished("u", "1", &["x"]));
    following.take(StoredEvent::Synced);
    let rule = |object: &StoredObject| match object.list.head() {
        Some("slow") => HeadRule { timeout: Duration::from_secs(45), ..HeadRule::default() },
        _ => HeadRule::default(),
    };
    let uids = |corrections: Vec<Correction>| -> Vec<_> {
        corrections.iter().map(|correction| correction.object.uid.to_string()).collect()
    };
    assert_eq!(following.control(Some(now()), rule, 2).await, []);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(uids(following.control(Some(now()), rule, 2).await), ["u"], "those in time keep nobody waiting");
    following.take(StoredEvent::Gone { uid: "u".into() });
    // One goes on, and has all of the time anew.
    following.take(unfinished("slow0", "2", &["other"]));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(uids(following.control(Some(now()), rule, 100).await).len(), 8);
}

#[tokio::test(start_paused = true)]
async fn an_apiserver_that_hangs_keeps_nothing_from_the_others_of_its_client() {
    let objects = Arc::new(StoredObjects::default());
    let [mut hung, mut well, mut joining] = [(); 3].map(|()| objects.follow(&client()));
    // Its last report is outdated.
    hung.take(unfinished("a", "1", &["x", "y"]));
    hung.take(unfinished("c", "1", &["x"]));
    hung.take(StoredEvent::Synced);
    well.take(unfinished("a", "2", &["y"]));
    well.take(StoredEvent::Synced);
    let (client, [a, b, c], began) = (client(), ["a", "b", "c"].map(sought), now());
    let apiserver = async {
        let mut looks = Vec::new();
        for _ in 0..2 {
            let Some(ToFollower::Look(look)) = well.recv().await else { panic!("not asked") };
            looks.push(look.uid.to_string());
        }
        looks.sort();
        assert_eq!(looks, ["b", "c"]);
        well.take(StoredEvent::Gone { uid: "b".into() });
        well.take(completed("c", "9"));
        let Some(ToFollower::Correct(correction)) = well.recv().await else { panic!("no correction") };
        assert_eq!(
            (correction.remedy, now() - began),
            (CorrectiveAction::RemoveHead("y".into()), Duration::from_secs(5))
        );
        well.take(completed("a", "3"));
    };
    let deadline = now() + LONG;
    let hold = |object| objects.hold(&client, object, deadline, ignore);
    let (a, b, c, ()) = tokio::join!(hold(&a), hold(&b), hold(&c), apiserver);
    let completed = |version: &str| HoldEnd::Over(HoldOutcome::Completed(version.into()));
    assert_eq!((a, b, c), (completed("3"), HoldEnd::Over(HoldOutcome::Deleted), completed("9")));
    assert!(hung.queue.try_recv().is_ok(), "it is asked as well");
    assert!(joining.queue.try_recv().is_err(), "its report is not complete, and has nothing of it");
}

#[tokio::test(start_paused = true)]
async fn what_waits_keeps_neither_holds_nor_objects_that_have_changed() {
    let objects = Arc::new(StoredObjects::default());
    let mut following = objects.follow(&client());
    following.take(unfinished("a", "1", &["x"]));
    following.take(StoredEvent::Synced);
    let (client, deadline) = (client(), now() + Duration::from_secs(20));
    for uid in ["a", "b"] {
        let sought = sought(uid);
        assert!(matches!(objects.hold(&client, &sought, deadline, ignore).await, HoldEnd::OutOfTime(_)), "{uid}");
    }
    following.take(unfinished("a", "2", &["y"]));
    assert!(!following.queue.is_empty(), "corrections of what it was, and looks of who does not wait any more");
    let received = tokio::time::timeout(Duration::from_secs(1), following.recv()).await;
    assert!(received.is_err(), "{received:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_known_to_a_hold_that_comes_when_the_object_is_gone() {
    let objects = Arc::new(StoredObjects::default());
    let (mut following, stranger) = (objects.follow(&client()), objects.follow(&"another".into()));
    for following in [&following, &stranger] {
        let StoredEvent::Unfinished(mut failed) = unfinished("a", "1", &["x"]) else { unreachable!() };
        failed.list.result = Some(Box::new(StatusInfo { code: 403, ..StatusInfo::default() }));
        following.take(StoredEvent::Unfinished(failed));
        following.take(StoredEvent::Gone { uid: "a".into() });
    }
    assert!(following.size() > 0, "it is in the budget");
    let (client, deadline, a) = (client(), now() + LONG, sought("a"));
    let end = objects.hold(&client, &a, deadline, ignore).await;
    assert!(matches!(end, HoldEnd::Over(HoldOutcome::Failed(status)) if status.code == 403));
    tokio::time::sleep(LONG).await;
    following.control(None, |_| HeadRule::default(), 1).await;
    assert_eq!(following.size(), 0);
    assert_eq!(objects.hold(&client, &a, now(), ignore).await, HoldEnd::OutOfTime(None));
}

#[tokio::test(start_paused = true)]
async fn a_report_is_complete_once_and_for_its_own_client() {
    let objects = Arc::new(StoredObjects::default());
    let (following, stranger) = (objects.follow(&client()), objects.follow(&"another".into()));
    let held = objects.register(&client(), &"a".into());
    let is_woken = || std::pin::pin!(held.wake.notified()).enable();
    stranger.take(StoredEvent::Synced);
    assert!(!is_woken());
    following.take(StoredEvent::Synced);
    assert!(is_woken());
    following.take(StoredEvent::Synced);
    assert!(!is_woken());
}

#[tokio::test(start_paused = true)]
async fn a_pass_leaves_nothing_to_be_sent_by_an_older_rule() {
    let objects = Arc::new(StoredObjects::default());
    let mut following = objects.follow(&client());
    for n in 0..6 {
        following.take(unfinished(&format!("u{n}"), "1", &["x"]));
    }
    following.take(StoredEvent::Synced);
    let rule = |policy| move |_: &StoredObject| HeadRule { policy, ..HeadRule::default() };
    assert_eq!(following.control(Some(now()), rule(FailurePolicy::Ignore), 4).await, []);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let first = following.control(Some(now()), rule(FailurePolicy::Ignore), 4).await;
    assert!(
        first.iter().all(|correction| matches!(correction.remedy, CorrectiveAction::RemoveHead(_))) && first.len() == 4
    );
    assert_eq!(following.control(None, rule(FailurePolicy::Ignore), 4).await, [], "outdated");
    following.take(unfinished("u5", "2", &["y"]));
    let second = following.control(Some(now()), rule(FailurePolicy::Fail), 4).await;
    assert!(
        matches!(&*second, [Correction { remedy: CorrectiveAction::Fail(_), object }] if &*object.uid == "u4"),
        "{second:?}"
    );
}
