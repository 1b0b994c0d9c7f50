//! Initializers that a process acts for: how their names come into rotation and leave it.

use super::*;
use crate::live::RetireReason;
use gatepost_base::memory::{MemoryBudget, Purpose};
use gatepost_initializers::hub::{Contribution, TaskMessage, ToInstance};

/// Contents that configure these initializers of Pods, each under `Fail`.
fn initializers(names: &[&str]) -> Contents {
    let digest = "0".repeat(64);
    let one = |name: &&str| {
        format!("  - {{name: {name}.example.com, failurePolicy: Fail, attach: {{tokenSha256: ['{digest}']}}}}\n")
    };
    let list = if names.is_empty() { "  []\n".to_owned() } else { names.iter().map(one).collect() };
    written(&format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: test}}\n\
         resourceInitializers:\n- resource: pods\n  initializers:\n{list}"
    ))
}

fn name(short: &str) -> Arc<str> {
    format!("{short}.example.com").into()
}

async fn with(names: &[&str]) -> Rotator {
    let mut rotator = rotator();
    read(&mut rotator, initializers(names)).await;
    read(&mut rotator, initializers(names)).await;
    rotator
}

fn unproven(rotator: &Rotator, short: &str) -> bool {
    rotator.current.hub().desk(|desk| desk.is_unproven(&name(short)))
}

/// State of each initializer that has retired.
fn retired(rotator: &Rotator) -> Vec<(String, Rotation)> {
    let retired = rotator.options.status.retired();
    retired.iter().map(|one| (one.name.to_string(), one.rotation.clone())).collect()
}

/// The workers let go of what is no longer in force, and the rotator sees what has drained.
async fn sweep(rotator: &mut Rotator) {
    tokio::task::yield_now().await;
    rotator.report_retired();
}

#[tokio::test(start_paused = true)]
async fn new_initializer_enters_rotation_with_its_first_instance() {
    let mut rotator = rotator();
    read(&mut rotator, initializers(&["a"])).await;
    assert!(!unproven(&rotator, "a"), "a restart must never enforce less");
    read(&mut rotator, initializers(&["a", "b"])).await;
    assert!(!unproven(&rotator, "b"), "the first read may have been half a file");
    read(&mut rotator, initializers(&["a", "b"])).await;
    read(&mut rotator, initializers(&["a", "b", "c"])).await;
    assert!(unproven(&rotator, "c") && !unproven(&rotator, "a"));
    let hub = Arc::clone(rotator.current.hub());
    drop(hub.attach(&name("c"), 1, Instant::now().into_std()).unwrap());
    assert!(!unproven(&rotator, "c"), "once is enough");
    read(&mut rotator, initializers(&["c", "a", "b"])).await;
    assert!(!unproven(&rotator, "c"), "whatever changes in the list");
}

#[tokio::test(start_paused = true)]
async fn an_initializer_that_changes_its_form_stays_enforced() {
    for form in ["builtIn: {labels: {a: b}}", "failurePolicy: Fail"] {
        let former = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: test}}\n\
             resourceInitializers:\n- resource: pods\n  initializers:\n  - {{name: a.example.com, {form}}}\n"
        );
        let mut rotator = rotator();
        for _ in 0..2 {
            read(&mut rotator, written(&former)).await;
        }
        assert_eq!(rotator.current.load().snapshot.initializer_count(), 1, "{form}");
        for _ in 0..2 {
            read(&mut rotator, initializers(&["a"])).await;
        }
        assert_eq!(rotator.current.load().snapshot.claimable().count(), 1, "{form}");
        assert!(!unproven(&rotator, "a"), "{form}");
    }
}

#[tokio::test(start_paused = true)]
async fn removed_initializer_keeps_instances_until_tasks_end() {
    let mut rotator = with(&["a", "b"]).await;
    let hub = Arc::clone(rotator.current.hub());
    let mut attached = hub.attach(&name("a"), 2, Instant::now().into_std()).unwrap();
    let request = rotator.current.load();
    read(&mut rotator, initializers(&["b"])).await;
    assert!(matches!(&*retired(&rotator), [(gone, Rotation::Draining { .. })] if gone == "a.example.com"));
    assert!(hub.desk(|desk| desk.is_draining(&name("a"), now())));
    // A review that began before may come to it only now.
    let room = MemoryBudget::unlimited().empty(Purpose::Queue);
    let message = TaskMessage { review: Default::default(), namespace_labels: Vec::new(), digest: [0; 32], room };
    let deadline = (Instant::now() + Duration::from_secs(20)).into_std();
    let asking = tokio::spawn(async move { hub.ask(&name("a"), message, deadline).await.is_ok() });
    let Some(ToInstance::Task { task, attempt, .. }) = attached.recv().await else { panic!() };
    // An object that was stored first holds no generation.
    drop(request);
    sweep(&mut rotator).await;
    assert!(rotator.current.hub().desk(|desk| desk.is_draining(&name("a"), now())), "it has a task");
    let room = MemoryBudget::unlimited().empty(Purpose::Answer);
    let done = Contribution { patch: None, adds: Vec::new() };
    assert!(attached.answer(task, attempt, Ok(done), room));
    assert!(asking.await.unwrap());
    sweep(&mut rotator).await;
    assert!(!rotator.current.hub().desk(|desk| desk.is_draining(&name("a"), now())));
    let gone = retired(&rotator);
    assert!(matches!(&*gone, [(_, Rotation::Gone { how: RetireReason::Drained, .. })]), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn initializer_drain_is_bounded_and_quick_return_stays_proven() {
    let mut rotator = with(&["a", "b"]).await;
    let request = rotator.current.load();
    read(&mut rotator, initializers(&["b"])).await;
    read(&mut rotator, initializers(&["b", "a"])).await;
    assert!(!unproven(&rotator, "a") && retired(&rotator).is_empty(), "it is back");
    read(&mut rotator, initializers(&["b", "new"])).await;
    tokio::time::advance(Duration::from_secs(31)).await;
    read(&mut rotator, initializers(&["b"])).await;
    let ended = |wanted: RetireReason, rotator: &Rotator| {
        let is = |(_, rotation): &(String, Rotation)| matches!(rotation, Rotation::Gone { how, .. } if *how == wanted);
        retired(rotator).into_iter().filter(is).map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(ended(RetireReason::GivenUp, &rotator), ["a.example.com"]);
    assert_eq!(ended(RetireReason::NeverCalled, &rotator), ["new.example.com"]);
    read(&mut rotator, initializers(&["b", "a"])).await;
    assert!(unproven(&rotator, "a"), "it begins anew");
    drop(request);
}
