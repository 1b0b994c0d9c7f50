//! Lifecycle of one object from its first pending entry to its end, its quota, and the time of each initializer.

use std::{collections::VecDeque, time::Duration};

use gatepost_api::{FailurePolicy, StatusInfo, initialization::MAX_PENDING};

use super::Initializers;

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
/// `k` is the number of pending entries. Only `Completed` is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// Number of initializers that must still act; never 0.
    Pending(usize),
    /// Initialized.
    Completed,
    /// An initializer has rejected it.
    Failed,
    /// An initializer that must act did not act in time.
    TimedOut,
    /// It is deleted.
    Deleted,
}

impl Lifecycle {
    /// Returns the state of an object with this list.
    pub fn of(list: Option<&Initializers>) -> Self {
        match list {
            Some(Initializers { result: Some(_), .. }) => Self::Failed,
            Some(Initializers { pending, .. }) if !pending.is_empty() => Self::Pending(pending.len()),
            _ => Self::Completed,
        }
    }

    /// Returns true if ordinary reads return the object.
    pub fn is_visible(self) -> bool {
        self == Self::Completed
    }

    /// Returns true if no initializer acts on the object any more.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Pending(_))
    }
}

/// Error of a step that is not allowed. The state is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepError {
    /// It is the turn of another name, or of none.
    NotItsTurn,
    /// The step adds names that are in the list already, or too many names.
    Names,
}

/// Initialization of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initialization {
    pending: VecDeque<Box<str>>,
    /// Names that have had their turn. They cannot be added again.
    done: Vec<Box<str>>,
    state: Lifecycle,
    result: Option<Box<StatusInfo>>,
}

impl Initialization {
    /// Starts the initialization of an object with this list.
    pub fn new(list: Initializers) -> Self {
        Self::resumed(list, Vec::new())
    }

    /// Resumes the initialization of an object with this list. The `done` names have acted, and cannot be added again.
    pub fn resumed(list: Initializers, done: Vec<Box<str>>) -> Self {
        let state = Lifecycle::of(Some(&list));
        Self { pending: list.pending.into(), done, state, result: list.result }
    }

    /// Returns the names that have had their turn, in order.
    pub fn done_names(&self) -> &[Box<str>] {
        &self.done
    }

    /// Returns the state of the object.
    pub fn state(&self) -> Lifecycle {
        self.state
    }

    /// Returns the name whose turn it is; `None` once the object's initialization is over.
    pub fn head(&self) -> Option<&str> {
        if self.state.is_over() { None } else { self.pending.front().map(AsRef::as_ref) }
    }

    /// Returns the names that must still act, in order.
    pub fn pending(&self) -> impl Iterator<Item = &str> {
        self.pending.iter().map(AsRef::as_ref)
    }

    /// Returns the failure, if the object has failed.
    pub fn result(&self) -> Option<&StatusInfo> {
        self.result.as_deref()
    }

    /// Records that `by` has done its part. `adds` must act after it, before all others.
    ///
    /// # Errors
    /// Returns a [`StepError`] if it is not the turn of `by`, or these names cannot be added.
    pub fn done(&mut self, by: &str, adds: Vec<Box<str>>) -> Result<Lifecycle, StepError> {
        self.check_turn(by)?;
        let is_known = |name: &str| self.pending.iter().chain(&self.done).any(|other| **other == *name);
        let is_duplicate = |at: usize| is_known(&adds[at]) || adds[..at].contains(&adds[at]);
        let total = adds.len() + self.pending.len() + self.done.len();
        if total > MAX_PENDING || (0..adds.len()).any(is_duplicate) {
            return Err(StepError::Names);
        }
        self.remove_head();
        adds.into_iter().rev().for_each(|name| self.pending.push_front(name));
        self.update_state();
        Ok(self.state)
    }

    /// Records that `by` rejects the object.
    ///
    /// # Errors
    /// Returns a [`StepError`] if it is not the turn of `by`.
    pub fn fail(&mut self, by: &str, result: StatusInfo) -> Result<Lifecycle, StepError> {
        self.check_turn(by)?;
        (self.state, self.result) = (Lifecycle::Failed, Some(Box::new(result)));
        Ok(self.state)
    }

    /// Records that `name` did not act in time. Its failure policy decides the new state.
    ///
    /// # Errors
    /// Returns a [`StepError`] if it is not the turn of `name`, as it acted in time after all or was removed before.
    pub fn time_out(&mut self, name: &str, policy: FailurePolicy) -> Result<Lifecycle, StepError> {
        self.check_turn(name)?;
        if policy.fails_open() {
            self.remove_head();
            self.update_state();
        } else {
            self.state = Lifecycle::TimedOut;
        }
        Ok(self.state)
    }

    /// Records that the object is deleted, which is always allowed.
    pub fn delete(&mut self) {
        self.state = Lifecycle::Deleted;
    }

    fn check_turn(&self, name: &str) -> Result<(), StepError> {
        if self.head() == Some(name) { Ok(()) } else { Err(StepError::NotItsTurn) }
    }

    fn remove_head(&mut self) {
        self.done.extend(self.pending.pop_front());
    }

    fn update_state(&mut self) {
        let left = self.pending.len();
        self.state = if left == 0 { Lifecycle::Completed } else { Lifecycle::Pending(left) };
    }
}

/// Returns the maximum time of an initializer that fails open, by its `timeout` and the time `left` of the request.
/// Each initializer `behind` it keeps its own timeout, up to an equal share of `left`.
pub fn share(left: Duration, timeout: Duration, behind: &[Duration]) -> Duration {
    let parties = u32::try_from(behind.len()).unwrap_or(u32::MAX).saturating_add(1);
    let equal = left / parties;
    let kept: Duration = behind.iter().map(|longest| equal.min(*longest)).sum();
    timeout.min(left.saturating_sub(kept))
}

/// Charge of one part of quota by one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// Nothing is charged.
    Nothing,
    /// The part is charged now, before the write.
    Now,
    /// The part is charged when the object is initialized.
    AtCompletion,
    /// The difference between the object before and after the write is charged or released now.
    Difference,
    /// The part is released after the write.
    Release,
}

/// Charges of both parts of quota. The number of objects is charged before the object is stored, so that unfinished
/// objects cannot pile up. The rest (CPU, memory, storage) is known and charged when the object is initialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaPhase {
    /// Charge of the number of objects.
    pub count: Charge,
    /// Charge of the rest.
    pub rest: Charge,
}

/// Stage of a stored object for quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaStage {
    /// The object does not exist.
    Absent,
    /// The object exists, and is not initialized.
    Unfinished,
    /// The object is initialized.
    Initialized,
}

/// Returns the charges of a write that changes the object from one stage to the other; `None` if no write does.
pub fn quota_phase(before: QuotaStage, after: QuotaStage) -> Option<QuotaPhase> {
    use Charge::{AtCompletion, Difference, Nothing, Now, Release};
    let (count, rest) = match (before, after) {
        (QuotaStage::Absent, QuotaStage::Unfinished) => (Now, AtCompletion),
        (QuotaStage::Absent, QuotaStage::Initialized) => (Now, Now),
        (QuotaStage::Unfinished, QuotaStage::Unfinished) => (Nothing, AtCompletion),
        (QuotaStage::Unfinished, QuotaStage::Initialized) => (Nothing, Now),
        (QuotaStage::Unfinished, QuotaStage::Absent) => (Release, Nothing),
        (QuotaStage::Initialized, QuotaStage::Initialized) => (Nothing, Difference),
        (QuotaStage::Initialized, QuotaStage::Absent) => (Release, Release),
        // No object is initialized twice.
        (QuotaStage::Absent, QuotaStage::Absent) | (QuotaStage::Initialized, QuotaStage::Unfinished) => return None,
    };
    Some(QuotaPhase { count, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_leaves_initializers_behind_an_equal_part_or_their_own_timeout() {
        let ms = Duration::from_millis;
        for (left, timeout, behind, expected) in [
            (9_000, 30_000, &[][..], 9_000),
            (9_000, 2_000, &[], 2_000),
            // All want more than there is.
            (9_000, 30_000, &[30_000], 4_500),
            (9_000, 30_000, &[30_000, 30_000], 3_000),
            // The time that those behind it do not want is its own.
            (9_000, 30_000, &[1_000], 8_000),
            (9_000, 30_000, &[1_000, 30_000], 5_000),
            (9_000, 2_000, &[1_000, 1_000], 2_000),
            (29_000, 10_000, &[10_000, 5_000], 10_000),
            (0, 30_000, &[30_000], 0),
        ] {
            let behind: Vec<_> = behind.iter().copied().map(ms).collect();
            assert_eq!(share(ms(left), ms(timeout), &behind), ms(expected), "{left} {timeout} {behind:?}");
        }
    }

    #[test]
    fn share_gives_ten_hanging_initializers_equal_times() {
        let mut left = Duration::from_millis(9_900);
        for behind in (0..10).rev() {
            let taken = share(left, Duration::from_secs(30), &vec![Duration::from_secs(30); behind]);
            assert_eq!(taken, Duration::from_millis(990), "{behind} behind it");
            left -= taken;
        }
    }
}
