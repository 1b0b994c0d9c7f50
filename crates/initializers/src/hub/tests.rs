use gatepost_base::memory::{MemoryBudget, Purpose};

use super::*;

fn hub(limits: DeskLimits) -> Arc<Hub> {
    Hub::new(limits, now())
}

fn message() -> TaskMessage {
    of_request(0)
}

/// A message of one request of several.
fn of_request(n: u8) -> TaskMessage {
    TaskMessage { review: Bytes::from_static(b"object"), namespace_labels: Vec::new(), digest: [n; 32], room: room() }
}

fn answered(asked: Result<(Contribution, Reservation), TurnFailure>) -> Result<Contribution, TurnFailure> {
    asked.map(|(answered, _)| answered)
}

fn room() -> Reservation {
    MemoryBudget::unlimited().empty(Purpose::Answer)
}

fn done() -> Contribution {
    Contribution { patch: Some(Bytes::from_static(b"[]")), adds: Vec::new() }
}

async fn task(attached: &mut Attachment) -> (TaskId, u32) {
    match attached.recv().await {
        Some(ToInstance::Task { task, attempt, .. }) => (task, attempt),
        other => panic!("{other:?}"),
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn hold_is_answered_by_the_instance_that_has_its_task() {
    let (hub, name) = (hub(DeskLimits::default()), "a".into());
    let mut attached = hub.attach(&name, 1, now()).unwrap();
    let asking = tokio::spawn({
        let (hub, name) = (Arc::clone(&hub), Arc::clone(&name));
        async move { answered(hub.ask(&name, message(), now() + 9 * SECOND).await) }
    });
    let (id, attempt) = task(&mut attached).await;
    assert!(
        !attached.answer(id, attempt + 1, Ok(done()), room()) && !attached.answer(TaskId(99), 1, Ok(done()), room())
    );
    assert!(attached.answer(id, attempt, Ok(done()), room()));
    assert!(!attached.answer(id, attempt, Ok(done()), room()), "once");
    assert_eq!(asking.await.unwrap(), Ok(done()));
    assert_eq!(hub.desk(|desk| desk.task_count()), 0);
}

#[tokio::test(start_paused = true)]
async fn repeated_request_gets_the_same_answer_without_a_task() {
    let (hub, name) = (hub(DeskLimits::default()), "a".into());
    let mut attached = hub.attach(&name, 1, now()).unwrap();
    let ask = |n| {
        let (hub, name) = (Arc::clone(&hub), Arc::clone(&name));
        async move { answered(hub.ask(&name, of_request(n), now() + 9 * SECOND).await) }
    };
    let instance = async {
        let (id, attempt) = task(&mut attached).await;
        attached.answer(id, attempt, Ok(done()), room())
    };
    assert_eq!(tokio::join!(ask(1), instance), (Ok(done()), true));
    assert_eq!(ask(1).await, Ok(done()), "nobody answers it once more");
    // A refusal is not kept: nothing was created.
    for _ in 0..2 {
        let instance = async {
            let (id, attempt) = task(&mut attached).await;
            attached.answer(id, attempt, Err(Box::default()), room())
        };
        assert_eq!(tokio::join!(ask(2), instance), (Err(TurnFailure::Rejected(Box::default())), true));
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_detached_instance_go_to_another() {
    let (hub, name) = (hub(DeskLimits::default()), "a".into());
    let mut first = hub.attach(&name, 1, now()).unwrap();
    let mut second = hub.attach(&name, 1, now()).unwrap();
    let ask = async { answered(hub.ask(&name, message(), now() + 9 * SECOND).await) };
    let instances = async {
        let (id, attempt) = task(&mut first).await;
        drop(first);
        let again = task(&mut second).await;
        assert_eq!((again, attempt), ((id, 2), 1));
        second.answer(again.0, again.1, Ok(done()), room())
    };
    assert_eq!(tokio::join!(ask, instances), (Ok(done()), true));
}

#[tokio::test(start_paused = true)]
async fn silent_instance_lapses_and_its_stream_ends() {
    let (hub, name) = (hub(DeskLimits::default()), "a".into());
    let mut silent = hub.attach(&name, 1, now()).unwrap();
    let began = now();
    assert!(silent.recv().await.is_none());
    assert_eq!(now() - began, DeskLimits::default().lease);
    assert_eq!(hub.desk(|desk| desk.names())[0].instances, 0);
}

#[tokio::test(start_paused = true)]
async fn hold_for_a_name_that_is_vacant_for_long_fails_at_once() {
    let (hub, name): (_, Arc<str>) = (hub(DeskLimits::default()), "a".into());
    let began = now();
    let asked = answered(hub.ask(&name, message(), began + 30 * SECOND).await);
    let vacant = TurnFailure::Vacant;
    assert_eq!((asked, now() - began), (Err(vacant), 10 * SECOND), "somebody might still have come");
    let asked = answered(hub.ask(&name, message(), began + 30 * SECOND).await);
    assert_eq!((asked, now() - began), (Err(TurnFailure::Vacant), 10 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn dropped_hold_is_cancelled_at_its_instance() {
    let (hub, name) = (hub(DeskLimits { tasks_per_name: 1, ..DeskLimits::default() }), "a".into());
    let mut attached = hub.attach(&name, 1, now()).unwrap();
    let mut asking = Box::pin(hub.ask(&name, message(), now() + 9 * SECOND));
    let (id, _) = tokio::select! {
        message = task(&mut attached) => message,
        _ = &mut asking => panic!("nobody has answered"),
    };
    assert_eq!(answered(hub.ask(&name, message(), now() + SECOND).await), Err(TurnFailure::Full));
    drop(asking);
    assert!(matches!(attached.recv().await, Some(ToInstance::Cancel(cancelled)) if cancelled == id));
    assert_eq!(hub.desk(|desk| desk.task_count()), 0);
}

#[tokio::test(start_paused = true)]
async fn task_that_is_given_up_ends_its_hold_and_not_the_stream() {
    let (hub, name) = (hub(DeskLimits::default()), "a".into());
    let mut attached = hub.attach(&name, 1, now()).unwrap();
    let ask = async { answered(hub.ask(&name, message(), now() + 9 * SECOND).await) };
    let instance = async {
        let (id, attempt) = task(&mut attached).await;
        attached.give_up(id, attempt + 1, TurnFailure::Late(SECOND));
        attached.give_up(id, attempt, TurnFailure::NoRoom);
    };
    assert_eq!(tokio::join!(ask, instance), (Err(TurnFailure::NoRoom), ()));
    assert_eq!((hub.desk(|desk| desk.task_count()), hub.desk(|desk| desk.names())[0].instances), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn instances_survive_a_pause_of_the_process_and_lapse_when_silent() {
    let (hub, name) = (hub(DeskLimits::default()), "a".into());
    let mut attached = hub.attach(&name, 1, now()).unwrap();
    // As a stream does, which also looks at other things.
    let mut listen = async |times: u64| {
        for _ in 0..times {
            let received = tokio::time::timeout(SECOND / 10, attached.recv()).await;
            if received.is_ok() {
                return false;
            }
        }
        true
    };
    assert!(listen(50).await);
    tokio::time::advance(60 * SECOND).await;
    assert!(listen(45).await, "what it has sent lies unread");
    assert!(!listen(20).await, "5 s before the pause, and 5 s after it");
}

#[test]
fn recent_values_are_bounded_by_number_bytes_and_age() {
    let (mut recent, start) = (Recent::default(), Instant::now());
    for n in 0..MAX_VALUES + 5 {
        recent.insert(n, "first", 1, start);
        recent.insert(n, "second", 9999, start);
    }
    assert_eq!((recent.values.len(), recent.oldest_first.len()), (MAX_VALUES, MAX_VALUES));
    assert_eq!((recent.get(&4), recent.get(&5)), (None, Some(&"first")));
    for n in 0..1000 {
        recent.insert(1_000_000 + n, "large", 16 << 10, start + MAX_AGE / 2);
    }
    assert!(recent.bytes() <= MAX_BYTES && recent.get(&1_000_999).is_some() && recent.get(&1_000_000).is_none());
    recent.insert(3_000_000, "too large", MAX_BYTES + 1, start + MAX_AGE / 2);
    assert!(recent.get(&3_000_000).is_none() && recent.get(&1_000_999).is_some(), "it would remove all others");
    recent.insert(2_000_000, "late", 1, start + MAX_AGE);
    recent.expire(start + MAX_AGE + MAX_AGE / 2);
    assert!(recent.get(&1_000_999).is_none() && recent.get(&2_000_000).is_some());
    recent.expire(start + 2 * MAX_AGE);
    assert_eq!((recent.bytes(), recent.values.len(), recent.oldest_first.len()), (0, 0, 0));
}
