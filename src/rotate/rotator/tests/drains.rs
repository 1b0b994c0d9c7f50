//! States of hooks that are no longer asked.

use super::*;
use crate::live::RetireReason;

#[tokio::test(start_paused = true)]
async fn removed_hook_drains_until_its_last_request_ends() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    let leaving = |rotator: &Rotator| -> Vec<String> {
        rotator.options.status.draining().iter().map(|draining| draining.name.to_string()).collect()
    };
    let request = rotator.current.load();
    let channel = Arc::downgrade(&request.hooks[0].target.channel);
    read(&mut rotator, contents(&[("b", 2)])).await;
    assert_eq!(leaving(&rotator), ["a.example.com"]);
    // A later generation that is held, too, says nothing of a hook it never asked.
    let later = rotator.current.load();
    read(&mut rotator, contents(&[("b", 2), ("c", 3)])).await;
    assert_eq!(leaving(&rotator), ["a.example.com"]);
    drop(request);
    // This thread is the worker, too. A check that ends at once leaves it no time to let go of what it has entered.
    tokio::task::yield_now().await;
    assert!(channel.upgrade().is_none(), "its connections close");
    read(&mut rotator, contents(&[("b", 2), ("c", 3)])).await;
    assert!(leaving(&rotator).is_empty());
    drop(later);
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_keeps_no_hook_from_draining() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    // This thread is the worker. It has served a request, and is idle.
    let channel = Arc::downgrade(&rotator.current.enter().hooks[0].target.channel);
    read(&mut rotator, contents(&[("b", 2)])).await;
    tokio::task::yield_now().await;
    assert!(channel.upgrade().is_none(), "its connections close");
    read(&mut rotator, contents(&[("b", 2)])).await;
    assert!(rotator.options.status.draining().is_empty());
}

#[tokio::test(start_paused = true)]
async fn draining_has_a_bound_and_coming_back_ends_it() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    let request = rotator.current.load();
    read(&mut rotator, contents(&[])).await;
    assert_eq!(rotator.options.status.draining().len(), 2);
    read(&mut rotator, contents(&[("a", 1)])).await;
    assert_eq!(rotator.options.status.draining().len(), 1, "a is back");
    tokio::time::advance(Duration::from_secs(31)).await;
    read(&mut rotator, contents(&[("a", 1)])).await;
    assert!(rotator.options.status.draining().is_empty(), "b is not waited for any longer");
    drop(request);
}

/// The workers let go of what is no longer in force, and the rotator sees what has drained.
async fn sweep(rotator: &mut Rotator) {
    tokio::task::yield_now().await;
    rotator.report_retired();
}

/// State of each hook that has retired, in the order in which they went.
fn gone(rotator: &Rotator) -> Vec<(String, RetireReason)> {
    let retired = rotator.options.status.retired();
    let gone = retired.iter().filter_map(|retired| match retired.rotation {
        Rotation::Gone { how, .. } => Some((retired.name.to_string(), how)),
        _ => None,
    });
    gone.collect()
}

#[tokio::test(start_paused = true)]
async fn gone_hooks_are_remembered_for_an_hour_with_the_reason() {
    let mut rotator = started(&[("a", 1), ("b", 2)]).await;
    read(&mut rotator, contents(&[("a", 1), ("c", 3)])).await;
    sweep(&mut rotator).await;
    read(&mut rotator, contents(&[("a", 1)])).await;
    let drained = ("b.example.com".to_owned(), RetireReason::Drained);
    let never = ("c.example.com".to_owned(), RetireReason::NeverCalled);
    assert_eq!(gone(&rotator), [drained.clone(), never.clone()]);

    let request = rotator.current.load();
    read(&mut rotator, contents(&[])).await;
    tokio::time::advance(Duration::from_secs(31)).await;
    read(&mut rotator, contents(&[])).await;
    let given_up = ("a.example.com".to_owned(), RetireReason::GivenUp);
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
async fn gone_entries_are_bounded() {
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
    assert!(rotator.options.status.retired().is_empty(), "it is still asked there");
    let channel = probed(&rotator);
    rotator.on_probe_result(news(channel, Ok(())));
    let leaving = rotator.options.status.draining();
    assert_eq!(
        leaving.iter().map(|old| old.endpoint.as_ref().unwrap().to_string()).collect::<Vec<_>>(),
        ["grpc://127.0.0.1:1"]
    );
    drop(request);
    sweep(&mut rotator).await;
    assert_eq!(gone(&rotator), [("a.example.com".to_owned(), RetireReason::Drained)]);
}
