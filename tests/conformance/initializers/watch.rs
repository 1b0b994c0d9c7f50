//! `watch.json`: watch events of objects before and after they are initialized, as ordinary watchers see them.

use gatepost_api::initialization::Visibility;
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

/// Type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchEvent {
    /// The object was not visible before.
    Added,
    /// The object is visible, and has changed.
    Modified,
    /// The object is no longer visible. The event has the old content and the new resource version.
    Deleted,
}

/// Returns the event to send to a watch; `None` to send none. `before` and `after` are true if the object is visible to
/// the watch before and after the change. An object that does not exist is not visible.
// source: kubernetes/apiserver 1.13 pkg/storage/etcd3/watcher.go and cacher/cacher.go, convertToWatchEvent.
fn translated(event: WatchEvent, before: bool, after: bool) -> Option<WatchEvent> {
    let (before, after) = match event {
        WatchEvent::Added => (false, after),
        WatchEvent::Modified => (before, after),
        WatchEvent::Deleted => (before, false),
    };
    match (before, after) {
        (false, true) => Some(WatchEvent::Added),
        (true, true) => Some(WatchEvent::Modified),
        (true, false) => Some(WatchEvent::Deleted),
        (false, false) => None,
    }
}

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
