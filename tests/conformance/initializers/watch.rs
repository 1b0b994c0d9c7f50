//! `watch.json`: watch events of objects before and after they are initialized, as ordinary watchers see them.

use gatepost_api::initialization::{Visibility, WatchEvent, translated};
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    event: String,
    before: String,
    after: String,
    expect: Option<String>,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let (event, before, after) = (event(&case.event)?, initialized(&case.before)?, initialized(&case.after)?);
    let seen = |initialized: Option<bool>| initialized.is_some_and(|it| Visibility::Initialized.shows(it));
    let expect = case.expect.as_deref().map(self::event).transpose()?;
    equal("event", translated(event, seen(before), seen(after)), expect)?;
    // A client that sees all gets what happened.
    let there = |initialized: Option<bool>| initialized.is_some_and(|it| Visibility::All.shows(it));
    equal("event of all", translated(event, there(before), there(after)), Some(event))
}

fn event(event: &str) -> Result<WatchEvent, String> {
    Ok(match event {
        "ADDED" => WatchEvent::Added,
        "MODIFIED" => WatchEvent::Modified,
        "DELETED" => WatchEvent::Deleted,
        other => return Err(format!("not understood: event {other}")),
    })
}

fn initialized(state: &str) -> Result<Option<bool>, String> {
    Ok(match state {
        "none" => None,
        "hidden" => Some(false),
        "visible" => Some(true),
        other => return Err(format!("not understood: an object that is {other}")),
    })
}
