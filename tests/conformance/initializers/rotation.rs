//! `rotation.json`: states of a hook, and of the name of an initializer, to their ends.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use gatepost::live::{Rotation, RotationEvent};
use gatepost_api::{Step, Unreachable};
use gatepost_initializers::{
    Desk,
    desk::{DeskLimits, InstanceId},
};
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    #[serde(default)]
    of: Kind,
    events: Vec<Event>,
    /// Nothing where the last event cannot happen in the state before it.
    expect: Option<String>,
    /// Whether new requests ask it.
    asked: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    #[default]
    Hook,
    Initializer,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Event {
    ProbeFailed,
    ProbePassed,
    Removed,
    Drained,
    GivenUp,
    Started,
    Configured,
    Attached,
    Detached,
    Passes,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || match case.of {
        Kind::Hook => judge(&case),
        Kind::Initializer => judge_initializer(&case),
    }))
}

fn judge(case: &Case) -> Outcome {
    let at = SystemTime::UNIX_EPOCH;
    let mut state = Some(Rotation::Probing { since: at, last_failure: None });
    for (number, event) in case.events.iter().enumerate() {
        let before = state.ok_or_else(|| format!("event {number} comes too late"))?;
        state = before.after(happened(*event)?, at);
    }
    equal("state", state.as_ref().map(|state| state.as_str().to_owned()), case.expect.clone())?;
    equal("asked", state.is_some_and(|state| state.is_called()), case.asked)
}

fn happened(event: Event) -> Result<RotationEvent, String> {
    Ok(match event {
        Event::ProbeFailed => RotationEvent::ProbeFailed(Unreachable::at(Step::Connect, "refused").into()),
        Event::ProbePassed => RotationEvent::ProbePassed,
        Event::Removed => RotationEvent::Removed,
        Event::Drained => RotationEvent::Drained,
        Event::GivenUp => RotationEvent::GivenUp,
        event => return Err(format!("{event:?} is no event of a hook")),
    })
}

fn judge_initializer(case: &Case) -> Outcome {
    const BOUND: Duration = Duration::from_secs(31);
    let (name, mut now): (Arc<str>, _) = ("a.example.com".into(), Instant::now());
    let (mut desk, mut instance, mut is_there) = (Desk::new(DeskLimits::default(), now), 0, false);
    for event in &case.events {
        now += Duration::from_millis(1);
        match event {
            Event::Started => desk.enforce(&name),
            Event::Configured => {
                desk.configure(&name, now);
                is_there = true;
            }
            Event::Attached => {
                instance += 1;
                desk.attach(&name, InstanceId(instance), 1, now);
            }
            Event::Detached => desk.detach(InstanceId(instance), now),
            Event::Removed => {
                desk.retire(&name, now + BOUND);
                is_there = false;
            }
            Event::Drained => desk.drained(&name),
            Event::Passes => now += BOUND,
            event => return Err(format!("{event:?} is no event of an initializer")),
        }
    }
    let state = match (is_there, desk.is_unproven(&name)) {
        (true, true) => "Probing",
        (true, false) => "Active",
        (false, _) if desk.is_draining(&name, now) => "Draining",
        (false, _) => "Gone",
    };
    equal("state", Some(state.to_owned()), case.expect.clone())?;
    equal("asked", state == "Active", case.asked)
}
