//! Change: marks that an update would leave, and whether it may.
//!
//! ```text
//!   label, Pending [a, b] ── a's owner removes a ──> label, Pending [b] ── b's owner ──> no label, Completed
//!          │                                              │
//!          ├── the owner of the head sets the result ──> label, Failed (deleted)
//!          └── both marks forgotten ──> both restored
//! ```

use serde_json::Value;

use super::{
    super::{
        MOST_PENDING, RefusedList, VERB,
        transition::{Actor, transition},
    },
    LabelPhase, Marks, PENDING, STATE, Standing, State,
};

/// Consequence of an update for the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarksOutcome {
    /// They are as the update has them.
    Keep,
    /// They are as they were: the update has forgotten them.
    Restore,
    /// They are as the update has them, and name whoever has had its turn by it: [`recorded`].
    Record,
}

/// May an object be created with the marks that its client, or a webhook before us, has written? Marks of an earlier
/// call for the same request name the same creator. They are replaced, or removed where, after what other webhooks have
/// changed, nobody must act any more.
///
/// # Errors
/// They are not ours.
pub fn created(written: &Marks, creator: &Value) -> Result<(), RefusedList> {
    match written.standing() {
        _ if written.is_finished() => Ok(()),
        Standing::Unfinished(state) if state.phase() == LabelPhase::Pending && state.creator == *creator => Ok(()),
        _ => Err(RefusedList::Forbidden(format!(
            "the label {PENDING} and the annotation {STATE} are set by Gatepost alone; the list of a new object is written \
             in the annotation gatepost.dev/initializers"
        ))),
    }
}

/// Is an object, as it is about to be created, marked for this user or not at all?
///
/// # Errors
/// It is not.
pub fn marked_for(marks: &Marks, username: &str) -> Result<(), RefusedList> {
    match marks.standing() {
        Standing::Visible if marks.is_finished() => Ok(()),
        Standing::Unfinished(state) if state.phase() == LabelPhase::Pending && state.username() == Some(username) => {
            Ok(())
        }
        _ => Err(RefusedList::Forbidden(format!(
            "the label {PENDING} and the annotation {STATE} are set by Gatepost alone, for the user who creates the object"
        ))),
    }
}

/// The marks after an update, by somebody with these rights.
///
/// While the object is visible the label cannot be added, and the annotation says `Completed` or goes. While it is unfinished only a
/// user who may `initialize` changes anything of it, and the marks change by the steps of
/// [`transition`] alone. While it is being deleted (`leaves`) others may do what deletes it, such as removing finalizers.
///
/// # Errors
/// Why the update is not allowed.
pub fn update(old: &Marks, new: &Marks, leaves: bool, actor: Actor<'_>) -> Result<MarksOutcome, RefusedList> {
    let before = match old.standing() {
        Standing::Visible => return visible(old, new).map(|()| MarksOutcome::Keep),
        Standing::Unfinished(state) => Some(state),
        Standing::Lost => None,
    };
    if leaves && new == old {
        return Ok(MarksOutcome::Keep);
    }
    if !actor.may_initialize {
        return Err(RefusedList::Forbidden(format!(
            "an object that is not initialized may only be changed by users with permission to {VERB:?} this resource"
        )));
    }
    let forgotten = new.state.is_none() || new.state == old.state;
    let Some(before) = before else {
        // Nothing is known to be left to do.
        return match (&new.label, forgotten) {
            (None, _) => Ok(MarksOutcome::Keep),
            (Some(_), true) if new.label == old.label => Ok(MarksOutcome::Keep),
            (Some(_), _) => Err(mark(PENDING, "says that an object waits that has no list; remove it")),
        };
    };
    if new == old {
        return Ok(MarksOutcome::Keep);
    }
    if forgotten {
        return Ok(MarksOutcome::Restore);
    }
    let after = State::read(new.state.as_deref().unwrap_or_default()).map_err(|why| mark(STATE, &why))?;
    // The state that a completed object is left with need not say them.
    let completes = after.phase() == LabelPhase::Completed;
    let creator = after.creator == before.creator || completes && after.creator.is_null();
    let started = after.started == before.started || completes && after.started.is_empty();
    if !creator || !started {
        return Err(mark(STATE, "the creator and the start of an initialization do not change"));
    }
    match after.phase() {
        LabelPhase::Completed if new.label.is_some() => {
            return Err(mark(PENDING, "is removed in the update that says Completed"));
        }
        LabelPhase::Pending | LabelPhase::Failed if new.label != old.label => {
            return Err(mark(PENDING, "stays as it is until the update that says Completed"));
        }
        _ => {}
    }
    let outcome = done(&before, &after)?;
    let list = after.list.clone().normalized();
    transition(Some(before.list), list, actor).map(|_| outcome)
}

/// Does the state after an update say who has had its turn? Clients need not.
fn done(before: &State, after: &State) -> Result<MarksOutcome, RefusedList> {
    if after.phase() == LabelPhase::Completed {
        return Ok(MarksOutcome::Keep);
    }
    if after.list.pending.iter().any(|name| before.done.contains(name)) {
        return Err(mark(STATE, "names an initializer again that has had its turn"));
    }
    let all = all_done(before, after);
    if all.len() + after.list.pending.len() > MOST_PENDING {
        return Err(mark(STATE, "would have too many entries"));
    }
    if after.done == all {
        return Ok(MarksOutcome::Keep);
    }
    match after.done == before.done || after.done.is_empty() {
        true => Ok(MarksOutcome::Record),
        false => Err(mark(STATE, "names those who have had their turn in `done`, in order")),
    }
}

/// Names that have had their turn after an update.
fn all_done(before: &State, after: &State) -> Vec<Box<str>> {
    let head = before.list.head().filter(|head| !after.list.pending.iter().any(|name| **name == **head));
    before.done.iter().cloned().chain(head.map(Into::into)).collect()
}

/// The marks after an update, with the name of whoever has had its turn by it.
///
/// # Errors
/// They cannot be written.
pub fn recorded(old: &Marks, new: &Marks) -> Result<Marks, String> {
    let (Standing::Unfinished(before), Standing::Unfinished(after)) = (old.standing(), new.standing()) else {
        return Ok(new.clone());
    };
    let done = all_done(&before, &after);
    let state = State { done, ..after }.write()?;
    Ok(Marks { state: Some(state.into()), ..new.clone() })
}

/// Refusal of an update that leaves out the marks of an object that is not initialized.
pub fn lost() -> RefusedList {
    mark(PENDING, "and the annotation are removed by completing the initialization alone; leave them as they are")
}

/// An update of an object that everybody sees.
fn visible(old: &Marks, new: &Marks) -> Result<(), RefusedList> {
    if new.label.is_some() {
        return Err(mark(PENDING, "is set by Gatepost alone, when an object is created"));
    }
    match new.state == old.state || new.is_finished() {
        true => Ok(()),
        false => Err(mark(STATE, "is set by Gatepost alone")),
    }
}

fn mark(mark: &str, why: &str) -> RefusedList {
    let map = if mark == PENDING { "labels" } else { "annotations" };
    RefusedList::Invalid { field: format!("metadata.{map}[{mark}]"), why: why.to_owned() }
}
