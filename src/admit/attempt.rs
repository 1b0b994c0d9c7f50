//! Attempt: one hook's call in a round, from the first question to the outcome.
//!
//! In this order it is decided what comes next: has the deadline passed (it is settled as a timeout); does the hook ask to
//! be called later (it rests); did nothing usable come back, and does its policy say Retry (it is asked once more, over
//! another connection); else it is settled.
//!
//! ```text
//!                       answer, failure, time is up
//!  Open ───────────────────────────────────────────────> settled (has an outcome)
//!   │ ^                                                     ^
//!   │ └── "come back later" is over: asked again            │ time is up
//!   └──── 429 or 5xx with Retry-After ──> Resting ──────────┘
//! ```

use std::time::{Duration, Instant};

use tracing::Span;

use super::{outcome::Outcome, trace};
use crate::{
    hooks::HttpReply,
    live::LiveHook,
    model::{CallFailure, FailurePolicy},
};

/// How often a hook may tell us to come back later. As upstream (`client-go/rest/with_retry.go`).
const MOST_RESTS: u8 = 10;

/// One hook's call in a round.
pub(super) struct Attempt<'a> {
    pub(super) live: &'a LiveHook,
    /// A bypass passes it over where it cannot answer.
    pub(super) opened: bool,
    /// By when the hook must have answered: its own timeout, or what is left of the request's.
    pub(super) deadline: Instant,
    /// Span of the call.
    pub(super) span: Span,
    /// The hook may still be working on it, whether or not we still wait.
    pub(super) open: bool,
    /// What became of it, once that is known.
    pub(super) outcome: Option<Outcome<'a>>,
    /// When it is asked again, while it rests.
    again_at: Option<Instant>,
    rests: u8,
    /// Asked a second time, on another connection.
    retried: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(live: &'a LiveHook, opened: bool, deadline: Instant) -> Self {
        let span = trace::call(live);
        Self { live, opened, deadline, span, open: false, outcome: None, again_at: None, rests: 0, retried: false }
    }

    /// When something is to be done about it unless an answer comes first; `None` once it is settled.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.outcome.is_none().then(|| self.again_at.map_or(self.deadline, |again| again.min(self.deadline)))
    }

    /// Has it run out of time?
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.outcome.is_none() && self.deadline <= now
    }

    /// Is its rest over? Then it is no longer resting, and the caller asks again.
    pub(super) fn wakes(&mut self, now: Instant) -> bool {
        let over = self.outcome.is_none() && self.again_at.is_some_and(|again| again <= now);
        if over {
            self.again_at = None;
        }
        over
    }

    /// Does the hook ask us to come back later, and is there time for that? Then it rests until the time returned.
    ///
    /// Source: `docs/reference/webhook-semantics.md` §9. Where upstream would sleep until its deadline, we say at once
    /// that there will be no answer.
    pub(super) fn rests(&mut self, reply: &HttpReply, now: Instant) -> Option<Instant> {
        let asked = reply.retry_after.filter(|_| reply.status == 429 || reply.status >= 500);
        // Compared as a pause: a hook may name one that no clock can show.
        let pause = asked.filter(|pause| *pause < self.deadline.saturating_duration_since(now))?;
        if self.rests == MOST_RESTS {
            return None;
        }
        self.rests += 1;
        self.again_at = Some(now + pause);
        self.again_at
    }

    /// May it be asked once more, on another connection, after this failure? Only once.
    pub(super) fn retries(&mut self, failure: &CallFailure, now: Instant) -> bool {
        // A policy of today may not make a hook that has effects, which is being moved away from, be asked twice.
        let may = self.live.hook.failure_policy == FailurePolicy::Retry
            && self.live.target.side_effects().free()
            && !self.retried
            && failure.may_retry()
            && now < self.deadline;
        self.retried |= may;
        may
    }

    /// The time the hook had, in whole milliseconds as messages have it.
    pub(super) fn allowed(&self, began: Instant) -> Duration {
        let allowed = self.deadline.duration_since(began);
        Duration::from_millis(allowed.as_micros().div_ceil(1000) as u64)
    }
}
