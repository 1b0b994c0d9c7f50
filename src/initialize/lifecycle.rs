//! Lifecycle: one object's way from its first pending entry to its end.

use std::collections::VecDeque;

use super::{Initializers, MOST_PENDING};
use crate::model::{FailurePolicy, StatusInfo};

/// State of one object.
///
/// ```text
///                  ┌── its head is done, or late under Ignore, and others are left ──┐
///                  v                                                                 │
///   created ──> Pending(k) ──────────────────────────────────────────────────────────┘
///                │  │  │ │
///                │  │  │ └─ the last head is done, or late under Ignore ──> Completed  (visible; for good)
///                │  │  └─── the head's owner sets the result ─────────────> Failed ────┐
///                │  └────── the head is late under Fail ──────────────────> TimedOut ──┤
///                └───────── somebody deletes it ──────────────────────────> Deleted <──┘
/// ```
///
/// `k` is how many are left; only `Completed` is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// Number of initializers that must still act; never 0.
    Pending(usize),
    /// Initialized.
    Completed,
    /// An initializer has refused it.
    Failed,
    /// An initializer that must act did not, in time.
    TimedOut,
    /// Gone.
    Deleted,
}

impl Lifecycle {
    /// State of an object with this list.
    pub fn of(list: Option<&Initializers>) -> Self {
        match list {
            Some(Initializers { result: Some(_), .. }) => Self::Failed,
            Some(Initializers { pending, .. }) if !pending.is_empty() => Self::Pending(pending.len()),
            _ => Self::Completed,
        }
    }

    /// May anyone see it who did not ask for unfinished objects?
    pub fn is_visible(self) -> bool {
        self == Self::Completed
    }

    /// Does no initializer act on it any more?
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Pending(_))
    }
}

/// A step that is not to be taken; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misstep {
    /// It is another's turn, or nobody's any more.
    NotItsTurn,
    /// Names are added that are in the list already, or too many.
    Names,
}

/// One object on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initialization {
    pending: VecDeque<Box<str>>,
    /// Names that had their turn: none comes back.
    gone: Vec<Box<str>>,
    state: Lifecycle,
    result: Option<Box<StatusInfo>>,
}

impl Initialization {
    /// An object that these must act on, in order.
    pub fn new(list: Initializers) -> Self {
        let state = Lifecycle::of(Some(&list));
        Self { pending: list.pending.into(), gone: Vec::new(), state, result: list.result }
    }

    /// An object on which these have acted already: none of them comes back.
    pub fn resumed(list: Initializers, gone: Vec<Box<str>>) -> Self {
        Self { gone, ..Self::new(list) }
    }

    /// Names that had their turn, in order.
    pub fn gone(&self) -> &[Box<str>] {
        &self.gone
    }

    /// State of the object.
    pub fn state(&self) -> Lifecycle {
        self.state
    }

    /// The name whose turn it is; none where it is over.
    pub fn head(&self) -> Option<&str> {
        if self.state.is_over() { None } else { self.pending.front().map(AsRef::as_ref) }
    }

    /// Names that must still act, in order.
    pub fn pending(&self) -> impl Iterator<Item = &str> {
        self.pending.iter().map(AsRef::as_ref)
    }

    /// Failure, where it has failed.
    pub fn result(&self) -> Option<&StatusInfo> {
        self.result.as_deref()
    }

    /// `by` has done its part; `adds` must act behind it, before all others.
    ///
    /// # Errors
    /// It is not its turn, or these names cannot be added.
    pub fn done(&mut self, by: &str, adds: Vec<Box<str>>) -> Result<Lifecycle, Misstep> {
        self.its_turn(by)?;
        self.may_add(&adds)?;
        self.gone.extend(self.pending.pop_front());
        for name in adds.into_iter().rev() {
            self.pending.push_front(name);
        }
        self.settle();
        Ok(self.state)
    }

    /// `by` refuses the object.
    ///
    /// # Errors
    /// It is not its turn.
    pub fn fail(&mut self, by: &str, result: StatusInfo) -> Result<Lifecycle, Misstep> {
        self.its_turn(by)?;
        (self.state, self.result) = (Lifecycle::Failed, Some(Box::new(result)));
        Ok(self.state)
    }

    /// `name` was given its time and did not act: its failure policy, as it is now, decides.
    ///
    /// # Errors
    /// It is not its turn any more: it was done in time after all, or was removed before.
    pub fn late(&mut self, name: &str, policy: FailurePolicy) -> Result<Lifecycle, Misstep> {
        self.its_turn(name)?;
        match policy {
            FailurePolicy::Ignore => {
                self.gone.extend(self.pending.pop_front());
                self.settle();
            }
            FailurePolicy::Fail | FailurePolicy::Retry => self.state = Lifecycle::TimedOut,
        }
        Ok(self.state)
    }

    /// Somebody deletes it, which is always allowed.
    pub fn delete(&mut self) {
        self.state = Lifecycle::Deleted;
    }

    fn its_turn(&self, name: &str) -> Result<(), Misstep> {
        if self.head() == Some(name) { Ok(()) } else { Err(Misstep::NotItsTurn) }
    }

    fn may_add(&self, adds: &[Box<str>]) -> Result<(), Misstep> {
        let known = |name: &str| self.pending.iter().chain(&self.gone).any(|other| **other == *name);
        let twice = |at: usize| adds[..at].contains(&adds[at]);
        let bad = adds.iter().any(|name| known(name)) || (0..adds.len()).any(twice);
        let many = adds.len() + self.pending.len() + self.gone.len() > MOST_PENDING;
        if bad || many { Err(Misstep::Names) } else { Ok(()) }
    }

    fn settle(&mut self) {
        self.state =
            if self.pending.is_empty() { Lifecycle::Completed } else { Lifecycle::Pending(self.pending.len()) };
    }
}
