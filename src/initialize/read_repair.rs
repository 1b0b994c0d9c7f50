//! Read repair: the head of an object that nobody has initialized for very long, found by whoever reads it.
//!
//! It is the last of three ways in which the head of an object goes that fails open: the timer of the held CREATE is the
//! first, the controller is the second. It needs nothing but the object, and so works where both have failed.

use std::time::Duration;

use super::{Initializers, unfinished::HeadRule};
use crate::model::ResourceInitializers;

/// Age from which the head of an object is removed on a read, and the skew of clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRepair {
    /// Age.
    pub older_than: Duration,
    /// Skew between the clock that wrote `creationTimestamp` and the one that is read now.
    pub skew: Duration,
}

impl Default for ReadRepair {
    /// 10 min, and 1 min of skew.
    // source: configuration proposal, "if the creationTimestamp is older than a global timeout (e.g. 10min)".
    fn default() -> Self {
        Self { older_than: Duration::from_secs(600), skew: Duration::from_secs(60) }
    }
}

impl ReadRepair {
    /// Of objects with these initializers. Each that has more time than a head has by default may need all of it, one
    /// after the other.
    pub fn of(entry: Option<&ResourceInitializers>) -> Self {
        let (rule, usual) = (Self::default(), HeadRule::default().timeout);
        let all = entry.into_iter().flat_map(|entry| &entry.initializers);
        let more = all.map(|one| one.timeout.saturating_sub(usual)).sum::<Duration>();
        Self { older_than: rule.older_than + more, ..rule }
    }

    /// The name to be removed from the front of the list, where there is one. `created` and `now` are seconds since 1970;
    /// `must_act` says of a name that it does not fail open. The removal itself is conditional on the object being as it
    /// was read, so that two that read at once remove one head.
    pub fn head(
        self,
        list: &Initializers,
        (created, now): (i64, i64),
        must_act: impl FnOnce(&str) -> bool,
    ) -> Option<&str> {
        // From the future: a clock is wrong, and by how much nobody knows.
        let age = u64::try_from(now.checked_sub(created)?).ok()?;
        let old = age > self.older_than.as_secs().saturating_add(self.skew.as_secs());
        let head = list.head().filter(|_| old && list.result.is_none())?;
        (!must_act(head)).then_some(head)
    }
}
