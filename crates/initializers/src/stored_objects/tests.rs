use super::*;
use crate::CorrectiveAction;
use gatepost_api::FailurePolicy;

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
async fn hold_ends_as_its_object_does() {
    let objects = Arc::new(StoredObjects::default());
    let following = objects.follow(&client());
    following.apply(unfinished("a", "1", &["x"]));
    following.apply(unfinished("b", "2", &["x"]));
    following.apply(unfinished("c", "3", &["x"]));
    following.apply(StoredEvent::Synced);
    let (client, deadline) = (client(), now() + LONG);
    let (a, b, c) = (sought("a"), sought("b"), sought("c"));
    let hold = |object| objects.hold(&client, object, deadline, ignore);
    let reports = async {
        yield_now().await;
        assert_eq!(objects.held(), 3);
        following.apply(completed("a", "4"));
        let StoredEvent::Unfinished(mut failed) = unfinished("b", "5", &["x"]) else { unreachable!() };
        failed.list.result = Some(Box::new(StatusInfo { code: 403, ..StatusInfo::default() }));
        following.apply(StoredEvent::Unfinished(failed));
        following.apply(StoredEvent::Gone { uid: "c".into() });
    };
    let (a, b, c, ()) = tokio::join!(hold(&a), hold(&b), hold(&c), reports);
    assert_eq!(a, Ok(HoldOutcome::Completed("4".into())));
    assert!(matches!(b, Ok(HoldOutcome::Failed(status)) if status.code == 403));
    assert_eq!(c, Ok(HoldOutcome::Deleted));
    assert_eq!((objects.held(), objects.unfinished()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn late_head_of_a_held_object_is_corrected_until_it_is_gone() {
    let objects = Arc::new(StoredObjects::default());
    let mut following = objects.follow(&client());
    following.apply(unfinished("a", "1", &["x", "y"]));
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
        following.apply(unfinished("a", "2", &["y"]));
        let Some(ToFollower::Correct(third)) = following.recv().await else { panic!("no correction") };
        assert_eq!((third.remedy, now() - began), (CorrectiveAction::RemoveHead("y".into()), Duration::from_secs(12)));
        following.apply(completed("a", "3"));
    };
    let (end, ()) = tokio::join!(hold, apiserver);
    assert_eq!(end, Ok(HoldOutcome::Completed("3".into())));
}

#[tokio::test(start_paused = true)]
async fn late_head_under_fail_fails_the_object_by_a_current_rule_only() {
    let objects = Arc::new(StoredObjects::default());
    let mut following = objects.follow(&client());
    following.apply(unfinished("a", "1", &["x"]));
    let (client, a, b, deadline) = (client(), sought("a"), sought("b"), now() + LONG);
    following.apply(unfinished("b", "1", &["x"]));
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
        following.apply(StoredEvent::Unfinished(StoredObject {
            list: Initializers { result: Some(status), ..object.list.clone() },
            ..(*object).clone()
        }));
    };
    let ((a, b), ()) = tokio::join!(holds, apiserver);
    assert!(matches!(a, Ok(HoldOutcome::Failed(status)) if status.code == 504));
    assert!(matches!(b, Err(HoldTimeout(Some(object))) if &*object.uid == "b"));
    assert!(following.queue.try_recv().is_err(), "nothing is corrected by a configuration that may be outdated");
}

#[tokio::test(start_paused = true)]
async fn unreported_object_is_looked_up() {
    let objects = Arc::new(StoredObjects::default());
    let (mut following, stranger) = (objects.follow(&client()), objects.follow(&"another".into()));
    let (client, a) = (client(), sought("a"));
    let hold = objects.hold(&client, &a, now() + LONG, ignore);
    let apiserver = async {
        stranger.apply(completed("a", "9"));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(following.queue.try_recv().is_err(), "its report is not complete yet");
        following.apply(StoredEvent::Synced);
        assert_eq!(following.recv().await, Some(ToFollower::Look(sought("a"))));
        following.apply(completed("a", "7"));
    };
    let (end, ()) = tokio::join!(hold, apiserver);
    assert_eq!(end, Ok(HoldOutcome::Completed("7".into())), "another client's report does not count");
}

#[tokio::test(start_paused = true)]
async fn controller_corrects_heads_without_a_hold() {
    let objects = Arc::new(StoredObjects::default());
    let mut following = objects.follow(&client());
    for n in 0..10 {
        following.apply(unfinished(&format!("u{n}"), "1", &["x"]));
    }
    let rule = |_: &StoredObject| HeadRule::default();
    assert_eq!(following.control(Some(now()), rule, 4).await, [], "not before the report is complete");
    following.apply(StoredEvent::Synced);
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
async fn controller_leaves_a_head_its_longer_timeout() {
    let objects = Arc::new(StoredObjects::default());
    let mut following = objects.follow(&client());
    for n in 0..9 {
        following.apply(unfinished(&format!("slow{n}"), "1", &["slow"]));
    }
    following.apply(unfinished("u", "1", &["x"]));
    following.apply(StoredEvent::Synced);
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
    following.apply(StoredEvent::Gone { uid: "u".into() });
    // One goes on, and has all of the time anew.
    following.apply(unfinished("slow0", "2", &["other"]));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(uids(following.control(Some(now()), rule, 100).await).len(), 8);
}

#[tokio::test(start_paused = true)]
async fn hanging_apiserver_delays_no_other_of_its_client() {
    let objects = Arc::new(StoredObjects::default());
    let [mut hung, mut well, mut joining] = [(); 3].map(|()| objects.follow(&client()));
    // Its last report is outdated.
    hung.apply(unfinished("a", "1", &["x", "y"]));
    hung.apply(unfinished("c", "1", &["x"]));
    hung.apply(StoredEvent::Synced);
    well.apply(unfinished("a", "2", &["y"]));
    well.apply(StoredEvent::Synced);
    let (client, [a, b, c], began) = (client(), ["a", "b", "c"].map(sought), now());
    let apiserver = async {
        let mut looks = Vec::new();
        for _ in 0..2 {
            let Some(ToFollower::Look(look)) = well.recv().await else { panic!("not asked") };
            looks.push(look.uid.to_string());
        }
        looks.sort();
        assert_eq!(looks, ["b", "c"]);
        well.apply(StoredEvent::Gone { uid: "b".into() });
        well.apply(completed("c", "9"));
        let Some(ToFollower::Correct(correction)) = well.recv().await else { panic!("no correction") };
        assert_eq!(
            (correction.remedy, now() - began),
            (CorrectiveAction::RemoveHead("y".into()), Duration::from_secs(5))
        );
        well.apply(completed("a", "3"));
    };
    let deadline = now() + LONG;
    let hold = |object| objects.hold(&client, object, deadline, ignore);
    let (a, b, c, ()) = tokio::join!(hold(&a), hold(&b), hold(&c), apiserver);
    let completed = |version: &str| Ok(HoldOutcome::Completed(version.into()));
    assert_eq!((a, b, c), (completed("3"), Ok(HoldOutcome::Deleted), completed("9")));
    assert!(hung.queue.try_recv().is_ok(), "it is asked as well");
    assert!(joining.queue.try_recv().is_err(), "its report is not complete, and has nothing of it");
}

#[tokio::test(start_paused = true)]
async fn queued_messages_keep_neither_holds_nor_changed_objects() {
    let objects = Arc::new(StoredObjects::default());
    let mut following = objects.follow(&client());
    following.apply(unfinished("a", "1", &["x"]));
    following.apply(StoredEvent::Synced);
    let (client, deadline) = (client(), now() + Duration::from_secs(20));
    for uid in ["a", "b"] {
        let sought = sought(uid);
        assert!(matches!(objects.hold(&client, &sought, deadline, ignore).await, Err(HoldTimeout(_))), "{uid}");
    }
    following.apply(unfinished("a", "2", &["y"]));
    assert!(!following.queue.is_empty(), "corrections of what it was, and looks of who does not wait any more");
    let received = tokio::time::timeout(Duration::from_secs(1), following.recv()).await;
    assert!(received.is_err(), "{received:?}");
}

#[tokio::test(start_paused = true)]
async fn hold_after_its_object_failed_and_is_gone_gets_the_failure() {
    let objects = Arc::new(StoredObjects::default());
    let (mut following, stranger) = (objects.follow(&client()), objects.follow(&"another".into()));
    for following in [&following, &stranger] {
        let StoredEvent::Unfinished(mut failed) = unfinished("a", "1", &["x"]) else { unreachable!() };
        failed.list.result = Some(Box::new(StatusInfo { code: 403, ..StatusInfo::default() }));
        following.apply(StoredEvent::Unfinished(failed));
        following.apply(StoredEvent::Gone { uid: "a".into() });
    }
    assert!(following.size() > 0, "it is in the budget");
    let (client, deadline, a) = (client(), now() + LONG, sought("a"));
    let end = objects.hold(&client, &a, deadline, ignore).await;
    assert!(matches!(end, Ok(HoldOutcome::Failed(status)) if status.code == 403));
    tokio::time::sleep(LONG).await;
    following.control(None, |_| HeadRule::default(), 1).await;
    assert_eq!(following.size(), 0);
    assert_eq!(objects.hold(&client, &a, now(), ignore).await, Err(HoldTimeout(None)));
}

#[tokio::test(start_paused = true)]
async fn synced_report_wakes_holds_once_and_of_its_own_client() {
    let objects = Arc::new(StoredObjects::default());
    let (following, stranger) = (objects.follow(&client()), objects.follow(&"another".into()));
    let held = objects.register(&client(), &"a".into());
    let is_woken = || std::pin::pin!(held.wake.notified()).enable();
    stranger.apply(StoredEvent::Synced);
    assert!(!is_woken());
    following.apply(StoredEvent::Synced);
    assert!(is_woken());
    following.apply(StoredEvent::Synced);
    assert!(!is_woken());
}

#[tokio::test(start_paused = true)]
async fn control_sends_no_correction_by_an_older_rule() {
    let objects = Arc::new(StoredObjects::default());
    let mut following = objects.follow(&client());
    for n in 0..6 {
        following.apply(unfinished(&format!("u{n}"), "1", &["x"]));
    }
    following.apply(StoredEvent::Synced);
    let rule = |policy| move |_: &StoredObject| HeadRule { policy, ..HeadRule::default() };
    assert_eq!(following.control(Some(now()), rule(FailurePolicy::Ignore), 4).await, []);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let first = following.control(Some(now()), rule(FailurePolicy::Ignore), 4).await;
    assert!(
        first.iter().all(|correction| matches!(correction.remedy, CorrectiveAction::RemoveHead(_))) && first.len() == 4
    );
    assert_eq!(following.control(None, rule(FailurePolicy::Ignore), 4).await, [], "outdated");
    following.apply(unfinished("u5", "2", &["y"]));
    let second = following.control(Some(now()), rule(FailurePolicy::Fail), 4).await;
    assert!(
        matches!(&*second, [Correction { remedy: CorrectiveAction::Fail(_), object }] if &*object.uid == "u4"),
        "{second:?}"
    );
}
