//! `lifecycle.json`: life of one object, step by step.

use gatepost_api::FailurePolicy;
use gatepost_initializers::{Initialization, Initializers, Lifecycle};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::run::{Nothing, Outcome, Understood, decoded, equal},
    list,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    pending: Vec<String>,
    events: Vec<Event>,
    expect: Expect,
}

/// One of `done`, `fail`, `late` and `delete`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    done: Option<String>,
    #[serde(default)]
    adds: Vec<Box<str>>,
    fail: Option<String>,
    #[serde(default)]
    status: Value,
    late: Option<String>,
    policy: Option<String>,
    #[serde(default)]
    delete: bool,
    /// It changes nothing.
    #[serde(default)]
    refused: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    state: String,
    visible: bool,
    pending: Vec<String>,
    result: Option<String>,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let mut way = Initialization::new(Initializers::of(case.pending.iter().map(String::as_str)));
    for (at, event) in case.events.iter().enumerate() {
        let before = way.clone();
        let taken = happen(&mut way, event)?;
        equal(&format!("event {at} refused"), !taken, event.refused)?;
        if event.refused {
            equal(&format!("state after event {at}"), &way, &before)?;
        }
    }
    let expect = &case.expect;
    equal("state", state(way.state()), &*expect.state)?;
    equal("visible", way.state().is_visible(), expect.visible)?;
    equal("pending", way.pending().map(str::to_owned).collect::<Vec<_>>(), expect.pending.clone())?;
    equal("result", way.result().map(|result| result.message.clone()), expect.result.clone())
}

fn happen(way: &mut Initialization, event: &Event) -> Result<bool, String> {
    match event {
        Event { done: Some(name), .. } => Ok(way.done(name, event.adds.clone()).is_ok()),
        Event { fail: Some(name), .. } => {
            let result = list(&json!({"pending": [], "result": event.status}))?.and_then(|list| list.result);
            Ok(way.fail(name, *result.ok_or("not understood: a failure without a status")?).is_ok())
        }
        Event { late: Some(name), .. } => {
            let policy = match event.policy.as_deref() {
                Some("Ignore") => FailurePolicy::Ignore,
                Some("Fail") => FailurePolicy::Fail,
                _ => return Err("not understood: a time-out without a policy".into()),
            };
            Ok(way.time_out(name, policy).is_ok())
        }
        Event { delete: true, .. } => {
            way.delete();
            Ok(true)
        }
        _ => Err("not understood: an event of no kind".into()),
    }
}

fn state(state: Lifecycle) -> &'static str {
    match state {
        Lifecycle::Pending(_) => "Pending",
        Lifecycle::Completed => "Completed",
        Lifecycle::Failed => "Failed",
        Lifecycle::TimedOut => "TimedOut",
        Lifecycle::Deleted => "Deleted",
    }
}
