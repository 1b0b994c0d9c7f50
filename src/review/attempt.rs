//! Attempt: one hook's call in a round, from the first send to its end.
//!
//! Decides whether a call is sent again; the transport sends every call once and reports its result.
//! [`RetryState::next_step`] decides in this order:
//!
//! 1. A call that the hook has not processed is resent, at most twice ([`ProcessingEvidence::reuse_for_resend`]).
//! 2. A hook that answers 429 or 5xx with `Retry-After` is called again after that pause, at most ten times.
//! 3. A call without a usable answer is retried once, over another connection, if the failure policy is Retry
//!    and the call has no side effects.
//! 4. Otherwise the result stands.
//!
//! No call is hedged: there is never a second copy of a call under way. The deadline outranks all four: a call for
//! which [`Attempt::is_late`] returns true is settled as timed out, and the transport sends no late call. The timer for
//! pauses and deadlines is in `round`. Reinvocation of a hook (`IfNeeded`) is a new attempt, which `mutate` decides.
//!
//! ```text
//!                       answer, failure, time is up
//!  Sent ───────────────────────────────────────────────> settled
//!   │ ^                                                     ^
//!   │ └── pause is over: called again                      │ time is up
//!   └──── 429 or 5xx with Retry-After ──> Pausing ──────────┘
//! ```

use std::time::{Duration, Instant};

use tracing::{Span, debug_span};

use super::{context::Caller, failure};
use crate::{
    hooks::{GrpcRequest, HookRequest, HttpRequest, Method, ProcessingEvidence, Reply, Reuse},
    live::LiveHook,
};
use gatepost_api::{CallFailure, HookType, Protocol, Review};

/// Maximum number of pauses that a hook can request by Retry-After, as in upstream (`client-go/rest/with_retry.go`).
const MAX_PAUSES: u8 = 10;

/// One hook's call in a round.
pub(super) struct Attempt<'a> {
    pub(super) live: &'a LiveHook,
    /// True if a call with this review has no side effects.
    idempotent: bool,
    /// True if a bypass makes the hook fail open.
    pub(super) fail_open_override: bool,
    /// Deadline of the hook's answer: its own timeout, or the end of the request's time.
    pub(super) deadline: Instant,
    /// Deadline for decoding an answer that has arrived; `None` before. As in upstream, the hook's own timeout ends
    /// with the last byte.
    decode_by: Option<Instant>,
    /// Span of the call.
    pub(super) span: Span,
    /// True from a send until its result arrives: the hook might be working on the call, even if the attempt is
    /// settled.
    pub(super) in_flight: bool,
    /// True if its record is complete.
    pub(super) settled: bool,
    /// End of a pause that the hook has requested; `None` outside of a pause.
    resume_at: Option<Instant>,
    retry_state: RetryState,
}

/// Result of a call, from which the next step is decided.
#[derive(Debug)]
pub(super) enum CallResult<'r> {
    /// A reply, not decoded yet.
    Reply(&'r Reply),
    /// No usable answer, and the evidence on whether the hook has processed the call.
    Failure(&'r CallFailure, ProcessingEvidence),
}

/// Step after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The call is sent again immediately over these connections: the hook has not processed it.
    Resend(Reuse),
    /// The call is sent again after this pause, which the hook has requested.
    Pause(Duration),
    /// The call is sent again immediately over the channel's spare client, as the failure policy is Retry.
    Retry,
    /// The result stands, and nothing is sent again.
    Settle,
}

/// Conditions for sending a call again.
#[derive(Clone, Copy, Debug)]
struct RetryTerms {
    /// True if the failure policy is Retry.
    retry_policy: bool,
    /// True if the call has no side effects.
    idempotent: bool,
    deadline: Instant,
}

/// Number of repeated sends so far, and how the next one is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RetryState {
    /// Number of pauses so far.
    pauses: u8,
    /// True if the call was retried by the failure policy Retry.
    retried_by_policy: bool,
    /// Number of resends since the last pause or retry.
    pub(super) resends: u8,
    pub(super) reuse: Reuse,
    /// True if the next send goes over the channel's spare client instead of the worker's own.
    pub(super) over_spare_client: bool,
}

impl RetryState {
    /// Returns the step after the last call.
    ///
    /// Source of the pauses: `docs/reference/webhook-semantics.md` §9. If a pause would last until the deadline, the
    /// answer that requests it stands immediately; upstream would sleep until the deadline.
    fn next_step(&self, terms: RetryTerms, result: &CallResult<'_>, now: Instant) -> NextStep {
        let left = terms.deadline.saturating_duration_since(now);
        match result {
            CallResult::Reply(Reply::Http(reply)) => {
                let requested = reply.retry_after.filter(|_| reply.status == 429 || reply.status >= 500);
                // Compared as a duration, as adding a long pause to a time could overflow.
                let pause = requested.filter(|pause| *pause < left && self.pauses < MAX_PAUSES);
                pause.map_or(NextStep::Settle, NextStep::Pause)
            }
            CallResult::Reply(Reply::Grpc(_)) => NextStep::Settle,
            CallResult::Failure(failure, evidence) => {
                let retries = terms.retry_policy && terms.idempotent && !self.retried_by_policy && failure.may_retry();
                match evidence.reuse_for_resend(self.resends, terms.idempotent) {
                    Some(reuse) => NextStep::Resend(reuse),
                    None if retries && !left.is_zero() => NextStep::Retry,
                    None => NextStep::Settle,
                }
            }
        }
    }

    /// Returns the state after this step.
    fn after(self, next: NextStep) -> Self {
        let Self { pauses, retried_by_policy, resends, over_spare_client, .. } = self;
        match next {
            NextStep::Resend(reuse) => {
                Self { pauses, retried_by_policy, resends: resends + 1, reuse, over_spare_client }
            }
            NextStep::Pause(_) => Self { pauses: pauses + 1, retried_by_policy, ..Self::default() },
            NextStep::Retry => Self { pauses, retried_by_policy: true, over_spare_client: true, ..Self::default() },
            NextStep::Settle => self,
        }
    }
}

impl<'a> Attempt<'a> {
    pub(super) fn new(live: &'a LiveHook, review: &Review, fail_open_override: bool, deadline: Instant) -> Self {
        // While the debug level is off, a span costs one load of its callsite's state.
        let (span, retry_state) = (debug_span!("hook", name = %live.hook.name), RetryState::default());
        // The side effects of the endpoint that is called count, not those of a new configuration: a hook that moves
        // must not be called twice at its former endpoint if it has side effects there.
        let idempotent = live.target.entry.side_effects.none_for(review.dry_run);
        let (decode_by, resume_at, in_flight, settled) = (None, None, false, false);
        Self {
            live,
            idempotent,
            fail_open_override,
            deadline,
            decode_by,
            span,
            in_flight,
            settled,
            resume_at,
            retry_state,
        }
    }

    /// Returns the state that decides how the next call is sent.
    pub(super) fn retry_state(&self) -> RetryState {
        self.retry_state
    }

    /// Returns the time of the next step if no answer arrives before it; `None` once it is settled.
    pub(super) fn alarm(&self) -> Option<Instant> {
        let ends = self.decode_by.unwrap_or(self.deadline);
        (!self.settled).then(|| self.resume_at.map_or(ends, |again| again.min(ends)))
    }

    /// Returns true if its deadline has passed and it is not settled.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        !self.settled && self.decode_by.unwrap_or(self.deadline) <= now
    }

    /// Extends the deadline for an answer that has arrived: its decoding may take until `deadline`.
    pub(super) fn allow_decoding_until(&mut self, deadline: Instant) {
        self.decode_by = Some(deadline);
    }

    /// Ends its pause if that is over. Returns true if so; the caller then sends the call again.
    pub(super) fn try_end_pause(&mut self, now: Instant) -> bool {
        let over = !self.settled && self.resume_at.is_some_and(|again| again <= now);
        if over {
            self.resume_at = None;
        }
        over
    }

    /// Decides the step after a call, and records it. The caller carries out a resend or a retry immediately, and ends
    /// a pause by [`Attempt::try_end_pause`].
    pub(super) fn decide_next(&mut self, result: &CallResult<'_>, now: Instant) -> NextStep {
        let terms = RetryTerms {
            retry_policy: failure::retries(self.live.hook.failure_policy),
            idempotent: self.idempotent,
            deadline: self.deadline,
        };
        let next = self.retry_state.next_step(terms, result, now);
        self.retry_state = self.retry_state.after(next);
        if let NextStep::Pause(pause) = next {
            self.resume_at = Some(now + pause);
        }
        if next != NextStep::Settle {
            self.decode_by = None;
        }
        next
    }

    /// Returns the request to the hook, the same for each send, as in upstream.
    pub(super) fn request(&self, caller: &Caller, began: Instant) -> HookRequest {
        match &self.live.target.entry.protocol {
            Protocol::Grpc => {
                let method = match self.live.hook.hook_type {
                    HookType::Validating => Method::Validate,
                    HookType::Mutating => Method::Mutate,
                };
                HookRequest::Grpc(GrpcRequest { method, namespace_labels: caller.namespace_labels_text.clone() })
            }
            Protocol::Http { path, form } => {
                HookRequest::Http(HttpRequest { path: path.clone(), form: *form, timeout: self.time_allowed(began) })
            }
        }
    }

    /// Returns the time that the hook had, in whole milliseconds, rounded up, for messages.
    pub(super) fn time_allowed(&self, began: Instant) -> Duration {
        let allowed = self.deadline.duration_since(began);
        Duration::from_millis(allowed.as_micros().div_ceil(1000) as u64)
    }
}

#[cfg(test)]
mod tests;
