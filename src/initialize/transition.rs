//! Transition: a change of an object's list by an update.
//!
//! ```text
//!             ┌────────────── same list, others behind the head ───────────────┐
//!             v                                                                │
//!   create ──> [a, b, c] ── a's owner removes a, may add ──> [b, c] ──> … ──> [c] ── c's owner ──> none
//!                  │                                                                              (initialized;
//!                  └── the head's owner sets the result ──> [a, b, c] + result (deleted)           stays so)
//! ```

use super::{Initializers, RefusedList, VERB};

/// User or process that wants the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor<'a> {
    /// The user holds the verb `initialize` for this object.
    pub may_initialize: bool,
    /// Names that are the user's.
    pub owns: Owned<'a>,
}

/// Names that are one user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owned<'a> {
    /// These.
    Names(&'a [&'a str]),
    /// Each of them: Gatepost itself, which removes the heads that time out, and whoever is to free one object by hand.
    Any,
}

impl Owned<'_> {
    fn has(self, name: &str) -> bool {
        match self {
            Self::Names(names) => names.contains(&name),
            Self::Any => true,
        }
    }
}

/// The list that the object has after an update from `old` to `new`.
///
/// An update of an initialized object that leaves it initialized is allowed to everybody: nothing is initialized twice.
/// Before that, only a user who may `initialize` changes anything of the object, and only the owner of the head changes
/// the list. Faults for everybody are reported before missing rights of this user, as upstream does.
///
/// # Errors
/// [`RefusedList`]: the change is not allowed.
// source: kubernetes/apiserver 1.13 pkg/admission/plugin/initialization, Admit on Update; kubernetes/apimachinery 1.13
// pkg/api/validation/objectmeta.go ValidateInitializersUpdate. There pending entries could be removed, added and
// reordered anywhere by any holder of `initialize`, and a list could be cleared although a result was set.
pub fn transition(
    old: Option<Initializers>,
    new: Option<Initializers>,
    actor: Actor<'_>,
) -> Result<Option<Initializers>, RefusedList> {
    let (old, new) = (old.and_then(Initializers::normalized), new.and_then(Initializers::normalized));
    let old = match (old, &new) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return Err(RefusedList::invalid("", "field is immutable once initialization has completed"));
        }
        (Some(old), _) => old,
    };
    if let Some(new) = &new {
        new.check_after(&old)?;
    }
    let changes = new.as_ref() != Some(&old);
    valid(&old, new.as_ref())?;
    if !actor.may_initialize {
        return Err(RefusedList::Forbidden(format!(
            "an object that is not initialized may only be changed by users with permission to {VERB:?} this resource"
        )));
    }
    match old.head() {
        Some(head) if changes && !actor.owns.has(head) => Err(RefusedList::Forbidden(format!(
            "it is the turn of initializer {head:?}; only its owner changes the list"
        ))),
        _ => Ok(new),
    }
}

/// Is this a step from one to the other, whoever makes it?
fn valid(old: &Initializers, new: Option<&Initializers>) -> Result<(), RefusedList> {
    let none = Initializers::default();
    let new = new.unwrap_or(&none);
    if old.result.is_some() {
        if new.result != old.result {
            return Err(RefusedList::invalid("result", "field is immutable once it is set"));
        }
        if new.pending != old.pending {
            return Err(RefusedList::invalid("pending", "the object has failed; it can only be deleted"));
        }
        return Ok(());
    }
    let Some((head, rest)) = old.pending.split_first() else { return Ok(()) };
    let stays = new.pending.first() == Some(head);
    if new.result.is_some() && !stays {
        return Err(RefusedList::invalid("pending", "an initializer that has failed stays first in the list"));
    }
    if !stays && new.pending.contains(head) {
        return Err(RefusedList::invalid("pending", "only the first entry is removed, and none is moved"));
    }
    let kept = if stays { &new.pending[1..] } else { &new.pending[..] };
    if !keeps_order(rest, kept) {
        return Err(RefusedList::invalid("pending", "only the first entry is removed, and none is moved"));
    }
    Ok(())
}

/// Do all of `rest` stand among `kept`, in this order?
fn keeps_order(rest: &[Box<str>], kept: &[Box<str>]) -> bool {
    let mut kept = kept.iter();
    rest.iter().all(|name| kept.any(|other| other == name))
}

/// The list after the head has run out of time and is removed by its failure policy. `None` where another name is at
/// the head by now, or the object has failed: then nothing is removed.
#[allow(clippy::option_option, reason = "whether it is removed, and what is left then")]
pub fn without_late_head(list: &Initializers, head: &str) -> Option<Option<Initializers>> {
    if list.result.is_some() || list.head() != Some(head) {
        return None;
    }
    Some(Initializers::of(list.pending[1..].iter().cloned()).normalized())
}
