//! `controller.json`: heads that stay where they are, found every 30 s.

use std::time::{Duration, Instant};

use gatepost_api::FailurePolicy;
use gatepost_initializers::{
    Controller, Correction, CorrectiveAction, HeadRule, Unfinished,
    controller::{HeadIndex, OverdueObject, SNAPSHOT_INTERVAL},
    unfinished::{StoredEvent, StoredObject},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::run::{Nothing, Outcome, Understood, decoded, equal},
    list,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    steps: Vec<Step>,
    expect: Vec<Expect>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    objects: Vec<Object>,
    /// The configuration was read before the snapshot was taken.
    #[serde(default)]
    read_before: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    uid: String,
    resource_version: String,
    list: Value,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Expect {
    uid: String,
    resource_version: String,
    remove_head: Option<String>,
    /// The code of the result.
    fail: Option<i32>,
    delete: bool,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let (mut controller, mut now, mut corrections) = (Controller::default(), Instant::now(), Vec::new());
    for (at, step) in case.steps.iter().enumerate() {
        equal(&format!("step {at} is due"), controller.is_due(now), true)?;
        let mut unfinished = Unfinished::default();
        for object in &step.objects {
            unfinished.apply(StoredEvent::Unfinished(stored(object)?), now);
        }
        controller.compare(HeadIndex::of(unfinished.after(None, usize::MAX), now));
        equal(
            &format!("due after step {at}"),
            controller.is_due(now + SNAPSHOT_INTERVAL - Duration::from_millis(1)),
            false,
        )?;
        let second = Duration::from_secs(1);
        let read = if step.read_before { now.checked_sub(second).ok_or("no time")? } else { now + second };
        let overdue = controller.overdue(Some(read), usize::MAX);
        let corrected = |one: &OverdueObject| one.correction(&unfinished.get(&one.uid)?.object, rule);
        corrections = overdue.iter().filter_map(corrected).collect();
        let again = controller.overdue(Some(read), usize::MAX);
        equal(&format!("corrections once more after step {at}"), again, Vec::new())?;
        now += SNAPSHOT_INTERVAL;
    }
    equal(
        "corrections",
        corrections.iter().map(expectation).collect(),
        case.expect.iter().map(copy).collect::<Vec<_>>(),
    )
}

fn stored(object: &Object) -> Result<StoredObject, String> {
    Ok(StoredObject {
        group: "".into(),
        resource: "pods".into(),
        namespace: "shop".into(),
        name: object.uid.as_str().into(),
        uid: object.uid.as_str().into(),
        resource_version: object.resource_version.as_str().into(),
        list: list(&object.list)?.ok_or("not understood: an initialized object")?,
    })
}

fn rule(object: &StoredObject) -> HeadRule {
    match object.list.head() {
        Some("closed.example.com") => HeadRule { policy: FailurePolicy::Fail, ..HeadRule::default() },
        _ => HeadRule::default(),
    }
}

fn expectation(correction: &Correction) -> Expect {
    let Correction { object, remedy } = correction;
    let mut made = Expect {
        uid: object.uid.to_string(),
        resource_version: object.resource_version.to_string(),
        ..Expect::default()
    };
    match remedy {
        CorrectiveAction::RemoveHead(head) => made.remove_head = Some(head.to_string()),
        CorrectiveAction::Fail(status) => made.fail = Some(status.code),
        CorrectiveAction::Delete => made.delete = true,
    }
    made
}

fn copy(expect: &Expect) -> Expect {
    let Expect { uid, resource_version, remove_head, fail, delete } = expect;
    let (uid, resource_version) = (uid.clone(), resource_version.clone());
    Expect { uid, resource_version, remove_head: remove_head.clone(), fail: *fail, delete: *delete }
}
