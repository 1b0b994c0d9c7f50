//! `rotation.json`: states of a hook, from its first probe to its end.

use std::time::SystemTime;

use gatepost::{
    live::{Rotation, RotationEvent},
    model::{Step, Unreachable},
};
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    events: Vec<Event>,
    /// Nothing where the last event cannot happen in the state before it.
    expect: Option<String>,
    /// Whether new requests ask it.
    asked: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Event {
    ProbeFailed,
    ProbePassed,
    Removed,
    Drained,
    GivenUp,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let at = SystemTime::UNIX_EPOCH;
    let mut state = Some(Rotation::Probing { since: at, last_failure: None });
    for (number, event) in case.events.iter().enumerate() {
        let before = state.ok_or_else(|| format!("event {number} comes too late"))?;
        state = before.after(happened(*event), at);
    }
    equal("state", state.as_ref().map(|state| state.as_str().to_owned()), case.expect.clone())?;
    equal("asked", state.is_some_and(|state| state.asks()), case.asked)
}

fn happened(event: Event) -> RotationEvent {
    match event {
        Event::ProbeFailed => RotationEvent::ProbeFailed(Unreachable::at(Step::Connect, "refused").into()),
        Event::ProbePassed => RotationEvent::ProbePassed,
        Event::Removed => RotationEvent::Removed,
        Event::Drained => RotationEvent::Drained,
        Event::GivenUp => RotationEvent::GivenUp,
    }
}
