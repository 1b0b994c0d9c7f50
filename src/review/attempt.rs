//! Attempt: one hook's call in a round, from the first question to its end.
//!
//! The only owner of asking again: the transport sends every call once and reports what came of it. [`RetryState::next`]
//! decides in this order:
//!
//! 1. A call that the hook has not processed is sent again, at most twice.
//! 2. A hook that asks for time (`Retry-After`) is asked again after it, at most ten times.
//! 3. A call without a usable answer is retried once, over another connection, where the failure policy is Retry.
//! 4. Otherwise it is settled with what came.
//!
//! The deadline stands above all four: [`Attempt::is_late`] settles a call as timed out, whatever it waits for, and the
//! transport sends none after it.
//!
//! ```text
//!                       answer, failure, time is up
//!  Open ───────────────────────────────────────────────> settled
//!   │ ^                                                     ^
//!   │ └── "come back later" is over: asked again            │ time is up
//!   └──── 429 or 5xx with Retry-After ──> Resting ──────────┘
//! ```

use std::time::{Duration, Instant};

use tracing::{Span, debug_span};

use super::{context::Caller, failure};
use crate::{
    hooks::{GrpcRequest, HookRequest, HttpRequest, Method, ProcessingEvidence, Reply, Reuse},
    live::LiveHook,
};
use gatepost_api::{CallFailure, HookType, Protocol, Review};

/// Most pauses that a hook may ask for by Retry-After. As upstream (`client-go/rest/with_retry.go`).
const MAX_RESTS: u8 = 10;

/// One hook's call in a round.
pub(super) struct Attempt<'a> {
    pub(super) live: &'a LiveHook,
    /// A call about this review has no side effects.
    idempotent: bool,
    /// A bypass passes it over where it cannot answer.
    pub(super) fail_open_override: bool,
    /// Latest time for the hook's answer: its own timeout, or the rest of the request's.
    pub(super) deadline: Instant,
    /// Latest time at which the answer has been read, once its first byte is there: as upstream's, the hook's own time
    /// ends with the last byte.
    read_by: Option<Instant>,
    /// Span of the call.
    pub(super) span: Span,
    /// The hook may still be working on it, whether or not we still wait.
    pub(super) open: bool,
    /// Its record has its end.
    pub(super) settled: bool,
    /// Time of the next try, while the hook rests.
    again_at: Option<Instant>,
    retry_state: RetryState,
}

/// Result of a call, before it is judged.
#[derive(Debug)]
pub(super) enum CallResult<'r> {
    /// A reply, not yet looked into.
    Reply(&'r Reply),
    /// Nothing usable.
    Failure(&'r CallFailure, ProcessingEvidence),
}

/// Step after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The call is sent again at once, over such a reuse: the hook has not processed it.
    Resend(Reuse),
    /// The hook is asked again after this pause, as it wishes.
    Rest(Duration),
    /// The hook is asked again at once, over a connection that is no worker's own, as its failure policy says.
    Retry,
    /// The result stands: nothing is sent again.
    Settle,
}

/// Terms of asking a hook again.
#[derive(Clone, Copy, Debug)]
struct RetryTerms {
    /// Its failure policy is Retry.
    retry: bool,
    /// Calls have no side effects.
    idempotent: bool,
    deadline: Instant,
}

/// How often a hook was called, and how it is called next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RetryState {
    rests: u8,
    retried: bool,
    /// Resends since it rested or was retried.
    pub(super) resends: u8,
    pub(super) reuse: Reuse,
    /// Not over the worker's own connections.
    pub(super) elsewhere: bool,
}

impl RetryState {
    /// The step after the last call.
    ///
    /// Source of the pauses: `docs/reference/webhook-semantics.md` §9. Where upstream would sleep until its deadline,
    /// we say at once that there will be no answer.
    fn next(&self, terms: RetryTerms, result: &CallResult<'_>, now: Instant) -> NextStep {
        let left = terms.deadline.saturating_duration_since(now);
        match result {
            CallResult::Reply(Reply::Http(reply)) => {
                let asked = reply.retry_after.filter(|_| reply.status == 429 || reply.status >= 500);
                // Compared as a pause: a hook may name one that no clock can show.
                let pause = asked.filter(|pause| *pause < left && self.rests < MAX_RESTS);
                pause.map_or(NextStep::Settle, NextStep::Rest)
            }
            CallResult::Reply(Reply::Grpc(_)) => NextStep::Settle,
            CallResult::Failure(failure, evidence) => {
                let retries = terms.retry && terms.idempotent && !self.retried && failure.may_retry();
                match evidence.resend(self.resends, terms.idempotent) {
                    Some(reuse) => NextStep::Resend(reuse),
                    None if retries && !left.is_zero() => NextStep::Retry,
                    None => NextStep::Settle,
                }
            }
        }
    }

    /// The asks once that step is taken.
    fn after(self, next: NextStep) -> Self {
        let Self { rests, retried, resends, elsewhere, .. } = self;
        match next {
            NextStep::Resend(reuse) => Self { rests, retried, resends: resends + 1, reuse, elsewhere },
            NextStep::Rest(_) => Self { rests: rests + 1, retried, ..Self::default() },
            NextStep::Retry => Self { rests, retried: true, elsewhere: true, ..Self::default() },
            NextStep::Settle => self,
        }
    }
}

impl<'a> Attempt<'a> {
    pub(super) fn new(live: &'a LiveHook, review: &Review, fail_open_override: bool, deadline: Instant) -> Self {
        // While the debug level is off, a span costs one load of its callsite's state.
        let (span, retry_state) = (debug_span!("hook", name = %live.hook.name), RetryState::default());
        // The side effects of the endpoint that is called count, not those that a new configuration declares: a hook that
        // moves must not be called twice at its former endpoint where it has effects there.
        let idempotent = live.target.side_effects().none_for(review.dry_run);
        let (read_by, again_at, open, settled) = (None, None, false, false);
        Self { live, idempotent, fail_open_override, deadline, read_by, span, open, settled, again_at, retry_state }
    }

    /// How it is called now.
    pub(super) fn retry_state(&self) -> RetryState {
        self.retry_state
    }

    /// Time of the next step unless an answer comes first; `None` once it is settled.
    pub(super) fn alarm(&self) -> Option<Instant> {
        let ends = self.read_by.unwrap_or(self.deadline);
        (!self.settled).then(|| self.again_at.map_or(ends, |again| again.min(ends)))
    }

    /// Has it run out of time?
    pub(super) fn is_late(&self, now: Instant) -> bool {
        !self.settled && self.read_by.unwrap_or(self.deadline) <= now
    }

    /// The answer has arrived: reading it may take until `deadline`.
    pub(super) fn allow_reading_until(&mut self, deadline: Instant) {
        self.read_by = Some(deadline);
    }

    /// Is its rest over? Then it is no longer resting, and the caller asks again.
    pub(super) fn wakes(&mut self, now: Instant) -> bool {
        let over = !self.settled && self.again_at.is_some_and(|again| again <= now);
        if over {
            self.again_at = None;
        }
        over
    }

    /// Decides the step after a call, and counts it. One that rests wakes by itself; the caller takes the other
    /// steps.
    pub(super) fn next(&mut self, result: &CallResult<'_>, now: Instant) -> NextStep {
        let terms = RetryTerms {
            retry: failure::retries(self.live.hook.failure_policy),
            idempotent: self.idempotent,
            deadline: self.deadline,
        };
        let next = self.retry_state.next(terms, result, now);
        self.retry_state = self.retry_state.after(next);
        if let NextStep::Rest(pause) = next {
            self.again_at = Some(now + pause);
        }
        if next != NextStep::Settle {
            self.read_by = None;
        }
        next
    }

    /// Request to the hook, the same each time, as upstream.
    pub(super) fn request(&self, caller: &Caller, began: Instant) -> HookRequest {
        match self.live.target.protocol() {
            Protocol::Grpc => {
                let method = match self.live.hook.hook_type {
                    HookType::Validating => Method::Validate,
                    HookType::Mutating => Method::Mutate,
                };
                HookRequest::Grpc(GrpcRequest { method, namespace_labels: caller.namespace_labels_text.clone() })
            }
            Protocol::Http { path, form } => {
                HookRequest::Http(HttpRequest { path: path.clone(), form: *form, timeout: self.allowed(began) })
            }
        }
    }

    /// The time the hook had, in whole milliseconds as messages have it.
    pub(super) fn allowed(&self, began: Instant) -> Duration {
        let allowed = self.deadline.duration_since(began);
        Duration::from_millis(allowed.as_micros().div_ceil(1000) as u64)
    }
}

#[cfg(test)]
mod tests;
