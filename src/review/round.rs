//! Round: concurrent calls of several hooks with the same bytes.
//!
//! The deadline of each hook is computed in `begin` and enforced in `on_alarm`, which also ends the round at the
//! request's deadline. The transports only drop late calls. `start` also decides dry runs: a hook with side effects is
//! not called, and the request is rejected.

use std::{
    collections::HashSet,
    panic::resume_unwind,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    task::JoinSet,
    time::{sleep_until, timeout_at},
};

use super::{
    attempt::{Attempt, CallResult, NextStep},
    context::{Reasons, ReviewContext},
    record::{CallRecord, Decoded, Ending, decode},
    select::SelectedHook,
};
use crate::{
    hooks::{AnswerMemoryGuard, Call, FailedCall, HttpReply, ProcessingEvidence, Reply, Responses},
    telemetry::Repeat,
};
use gatepost_api::{CallFailure, Protocol, Review, SideEffects};
use gatepost_base::{clock::now, offload::OFFLOAD_THRESHOLD};
use gatepost_wire::{
    encodings::{Encodings, HookEncoding},
    protobuf_object,
};

/// Maximum time before our deadline at which a deadline error of the hook itself counts as our timeout.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(5);

/// Condition that ends a round before every hook has answered. Calls still in flight are then cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// A hook has rejected, and the wait for further reasons is over.
    Rejected(Reasons),
    /// A hook rejects or sends a patch, and every hook before it has answered.
    Changed,
}

/// Calls all hooks concurrently and waits for the answers: until all have answered or timed out, or until the condition
/// `until`. Returns one record for each hook, in the order of `hooks`. The records are counted, except with
/// [`Until::Changed`]: those calls may be speculative.
///
/// One timer serves all hooks; all answers arrive in one place. Dropping the future cancels the calls still running.
pub(super) async fn call_hooks<'a>(
    ctx: &'a ReviewContext<'a>,
    hooks: &[SelectedHook<'a>],
    review: &Review,
    until: Until,
) -> Vec<CallRecord<'a>> {
    let encodings = encodings(ctx, hooks, review).await;
    let mut round = Round::begin(ctx, hooks, review, encodings, until);
    let mut set_for = round.next_alarm().unwrap_or(round.began);
    let mut alarm = pin!(sleep_until(set_for.into()));
    while !round.is_over() {
        tokio::select! {
            biased;
            arrived = round.responses.take() => {
                let now = now();
                for (tag, result) in arrived {
                    round.on_arrival(tag, result, now);
                }
            }
            Some(decoded) = round.decoding.join_next(), if !round.decoding.is_empty() => match decoded {
                Ok((tag, answer, memory)) => round.on_answer(tag, answer, memory, now()),
                Err(error) => error.try_into_panic().map_or((), |panic| resume_unwind(panic)),
            },
            // It may fire for a hook that has answered meanwhile. Then it is only reset.
            () = &mut alarm => {
                round.on_alarm(now());
                if let Some(next) = round.next_alarm() {
                    set_for = next;
                    alarm.as_mut().reset(next.into());
                }
            }
        }
        // A pause, or the wait for further reasons, may end before the alarm would fire. An alarm that fires too early
        // stays as it is, which saves a reset for every answer.
        if let Some(next) = round.earlier_alarm.take().filter(|next| *next < set_for) {
            set_for = next;
            alarm.as_mut().reset(next.into());
        }
    }
    round.end()
}

struct Round<'a, 'r> {
    ctx: &'a ReviewContext<'a>,
    review: &'r Review,
    /// The review in every encoding that was needed so far.
    encodings: Encodings<'r>,
    /// True if an object of the review is in protobuf.
    has_protobuf_objects: bool,
    responses: Arc<Responses>,
    began: Instant,
    attempts: Vec<Attempt<'a>>,
    /// Records of the attempts; each says `Cancelled` until its attempt is settled. They are a list of their own, so
    /// that neither list needs 4 KiB for twenty hooks.
    records: Vec<CallRecord<'a>>,
    /// Number of attempts that are not settled.
    running: usize,
    /// Large answers that are being decoded off the worker's thread.
    decoding: JoinSet<(usize, Result<Decoded, CallFailure>, AnswerMemoryGuard)>,
    /// Earliest time passed to [`Round::wake_by`] since [`call_hooks`] last took it.
    earlier_alarm: Option<Instant>,
    until: Until,
    /// End of the wait for further reasons, once a hook has rejected.
    wait_end: Option<Instant>,
    /// Number of consecutive settled attempts, counted from the first hook.
    settled_prefix: usize,
    /// True if one of these consecutive attempts rejects the request or sends a patch.
    changed: bool,
}

impl<'a, 'r> Round<'a, 'r> {
    fn begin(
        ctx: &'a ReviewContext<'a>,
        hooks: &[SelectedHook<'a>],
        review: &'r Review,
        encodings: Encodings<'r>,
        until: Until,
    ) -> Self {
        let began = now();
        let attempt = |hook: &SelectedHook<'a>| {
            let deadline = ctx.caller.deadline.within(began, hook.live.target.timeout());
            Attempt::new(hook.live, review, hook.fail_open_override, deadline.instant())
        };
        let mut round = Self {
            ctx,
            review,
            encodings,
            has_protobuf_objects: protobuf_object::has_any(review),
            responses: Arc::new(Responses::new(ctx.is_shadow())),
            began,
            attempts: hooks.iter().map(attempt).collect(),
            records: hooks.iter().map(|hook| CallRecord::of(ctx, hook.live, Ending::Cancelled)).collect(),
            running: hooks.len(),
            decoding: JoinSet::new(),
            earlier_alarm: None,
            until,
            wait_end: None,
            settled_prefix: 0,
            changed: false,
        };
        for (tag, hook) in hooks.iter().enumerate() {
            round.start(tag, hook);
        }
        round
    }

    fn is_over(&self) -> bool {
        let ended = |until: &Until| match until {
            Until::Rejected(_) => self.wait_end.is_some_and(|end| end <= now()),
            Until::Changed => self.changed,
        };
        self.running == 0 || ended(&self.until)
    }

    /// Calls one hook, unless the request is a dry run and the hook has side effects, or the hook cannot be called for
    /// this request.
    fn start(&mut self, tag: usize, hook: &SelectedHook<'a>) {
        let side_effects = hook.live.target.entry.side_effects;
        if self.review.dry_run && !side_effects.none_for(true) {
            if side_effects == SideEffects::Undeclared {
                self.settle_as_failed(tag, CallFailure::SideEffectsUndeclared, Duration::ZERO);
            } else {
                self.records[tag].ending = Ending::DryRunRefused;
                self.finish(tag);
            }
        } else if let Some(unable) = &hook.unable {
            self.settle_as_failed(tag, (**unable).clone(), Duration::ZERO);
        } else {
            self.send(tag);
        }
    }

    /// Sends the review in the encoding of this hook, over the connections that its attempt selects.
    fn send(&mut self, tag: usize) {
        let Some(attempt) = self.attempts.get_mut(tag) else { return };
        let target = &attempt.live.target;
        let body = if self.has_protobuf_objects && !target.entry.takes_protobuf {
            // The request is rejected before any hook is called; a mistake there must not send a hook a form that it
            // cannot read.
            Err(CallFailure::Unwritable("its objects are in protobuf, which the hook does not take".to_owned()))
        } else {
            self.encodings.get((&target.entry.protocol).into())
        };
        let body = match body {
            Ok(body) => body,
            Err(failure) => return self.settle_as_failed(tag, failure, now() - self.began),
        };
        attempt.in_flight = true;
        let retry_state = attempt.retry_state();
        let call = Call {
            request: attempt.request(self.ctx.caller, self.began),
            body,
            deadline: attempt.deadline,
            responses: self.responses.clone(),
            tag: tag as u32,
            reuse: retry_state.reuse,
            resends: retry_state.resends,
            forwarded: self.ctx.caller.forwarded.passed_on(),
        };
        if retry_state.over_spare_client {
            target.channel.submit_to_spare(call);
        } else {
            target.channel.submit(self.ctx.caller.worker, call);
        }
    }

    /// Returns the time of the next step that no answer triggers.
    fn next_alarm(&self) -> Option<Instant> {
        self.attempts.iter().filter_map(Attempt::alarm).chain(self.wait_end).min()
    }

    /// Handles the result of the call with this tag: a reply, or a failure.
    fn on_arrival(&mut self, tag: u32, result: Result<Reply, FailedCall>, now: Instant) {
        let tag = tag as usize;
        let Some(attempt) = self.attempts.get_mut(tag).filter(|attempt| !attempt.settled) else { return };
        attempt.in_flight = false;
        let reply = match result {
            Ok(reply) => reply,
            Err(lost) => return self.on_failure(tag, lost, now),
        };
        if let NextStep::Pause(pause) = attempt.decide_next(&CallResult::Reply(&reply), now) {
            let hook = &attempt.live.hook.name;
            let Reply::Http(HttpReply { status, .. }) = &reply else { return };
            tracing::debug!(%hook, status, delay = ?pause, "a hook asks to be called later (Retry-After)");
            return self.wake_by(now + pause);
        }
        let memory = reply.memory_guard();
        let hook_type = attempt.live.hook.hook_type;
        let form = match &attempt.live.target.entry.protocol {
            Protocol::Http { form, .. } => Some(*form),
            Protocol::Grpc => None,
        };
        if reply.cost() >= OFFLOAD_THRESHOLD {
            attempt.allow_decoding_until(self.ctx.caller.deadline.instant());
            let (uid, has_object) = (self.review.uid.clone(), self.review.object.is_some());
            let cost = reply.cost();
            let decoding = self.ctx.run_offloaded(cost, move || decode(hook_type, form, &uid, has_object, reply));
            self.decoding.spawn(async move {
                (tag, decoding.await.unwrap_or_else(|why| Err(CallFailure::Evaluation(why))), memory)
            });
            return;
        }
        let answer = decode(hook_type, form, &self.review.uid, self.review.object.is_some(), reply);
        self.on_answer(tag, answer, memory, now);
    }

    /// Handles the decoded reply of the call with this tag: an answer, or a failure.
    fn on_answer(&mut self, tag: usize, answer: Result<Decoded, CallFailure>, memory: AnswerMemoryGuard, now: Instant) {
        if self.attempts.get(tag).is_none_or(|attempt| attempt.settled) {
            return;
        }
        let failure = match &answer {
            Ok(decoded) => decoded.failure.as_ref(),
            Err(failure) => Some(failure),
        };
        if failure.is_some_and(|failure| self.try_send_again(tag, failure, ProcessingEvidence::Unknown, now)) {
            return;
        }
        self.settle(tag, answer, memory, now.duration_since(self.began));
    }

    /// Handles a call that ended without a reply.
    fn on_failure(&mut self, tag: usize, FailedCall { failure, evidence }: FailedCall, now: Instant) {
        if self.try_send_again(tag, &failure, evidence, now) {
            return;
        }
        let Some(attempt) = self.attempts.get(tag) else { return };
        let failure = match failure {
            // The hook knows our deadline, and its timer may fire a moment before ours.
            CallFailure::Grpc { code: "DEADLINE_EXCEEDED" | "CANCELLED", .. }
                if now + CLOCK_TOLERANCE >= attempt.deadline =>
            {
                CallFailure::Timeout(attempt.time_allowed(self.began))
            }
            failure => failure,
        };
        self.settle_as_failed(tag, failure, now.duration_since(self.began));
    }

    /// Sends the call again if its attempt decides for an immediate resend or retry. Returns true if so.
    fn try_send_again(
        &mut self,
        tag: usize,
        failure: &CallFailure,
        evidence: ProcessingEvidence,
        now: Instant,
    ) -> bool {
        let Some(attempt) = self.attempts.get_mut(tag) else { return false };
        match attempt.decide_next(&CallResult::Failure(failure, evidence), now) {
            NextStep::Resend(_) => {}
            NextStep::Retry => attempt.live.metrics.repeated(Repeat::Policy),
            NextStep::Pause(_) | NextStep::Settle => return false,
        }
        self.send(tag);
        true
    }

    /// Settles calls that have timed out, and sends calls again whose pause is over.
    fn on_alarm(&mut self, now: Instant) {
        for tag in 0..self.attempts.len() {
            let attempt = &mut self.attempts[tag];
            if attempt.is_late(now) {
                let allowed = attempt.time_allowed(self.began);
                self.settle_as_failed(tag, CallFailure::Timeout(allowed), now.duration_since(self.began));
            } else if attempt.try_end_pause(now) {
                attempt.live.metrics.repeated(Repeat::RetryAfter);
                self.send(tag);
            }
        }
    }

    /// Settles the call with this tag as failed: it has no answer, or the hook must not be called.
    fn settle_as_failed(&mut self, tag: usize, failure: CallFailure, took: Duration) {
        self.settle(tag, Err(failure), AnswerMemoryGuard::default(), took);
    }

    fn settle(&mut self, tag: usize, result: Result<Decoded, CallFailure>, memory: AnswerMemoryGuard, took: Duration) {
        let Some(attempt) = self.attempts.get(tag) else { return };
        self.records[tag].settle(result, attempt.fail_open_override, memory, took);
        self.finish(tag);
    }

    /// Marks a call with a complete record as settled, counts it, and updates whether the round is over.
    fn finish(&mut self, tag: usize) {
        let (Some(attempt), Some(record)) = (self.attempts.get_mut(tag), self.records.get_mut(tag)) else { return };
        attempt.settled = true;
        self.running -= 1;
        attempt.span.in_scope(|| {
            record.trace();
            // A speculative call is counted by `mutate` when its patch is applied.
            if self.until != Until::Changed {
                record.count();
            }
        });
        if record.rejects() && self.wait_end.is_none() {
            self.on_rejection();
        }
        while self.attempts.get(self.settled_prefix).is_some_and(|attempt| attempt.settled) {
            let record = &self.records[self.settled_prefix];
            self.changed |= record.rejects() || record.patch().is_some();
            self.settled_prefix += 1;
        }
    }

    /// Sets the end of the round after the first rejection.
    fn on_rejection(&mut self) {
        let Until::Rejected(reasons) = self.until else { return };
        let grace = match reasons {
            Reasons::First => Duration::ZERO,
            Reasons::Within(grace) => grace,
            Reasons::All => return,
        };
        let end = self.ctx.caller.deadline.within(now(), grace).instant();
        self.wait_end = Some(end);
        self.wake_by(end);
    }

    /// Makes the alarm fire at `moment` at the latest.
    fn wake_by(&mut self, moment: Instant) {
        self.earlier_alarm = Some(self.earlier_alarm.map_or(moment, |first| first.min(moment)));
    }

    /// Returns the records, and cancels calls that are still in flight.
    fn end(mut self) -> Vec<CallRecord<'a>> {
        self.cancel_calls_in_flight();
        let mut records = std::mem::take(&mut self.records);
        if self.until != Until::Changed {
            records.iter_mut().for_each(CallRecord::count);
        }
        records
    }

    /// Cancels the calls that are still in flight.
    fn cancel_calls_in_flight(&mut self) {
        if self.attempts.iter().any(|attempt| attempt.in_flight) {
            self.responses.close();
        }
        let took = now() - self.began;
        for (attempt, record) in self.attempts.iter_mut().zip(&mut self.records) {
            if std::mem::take(&mut attempt.in_flight) {
                attempt.live.target.channel.cancel_abandoned(self.ctx.caller.worker);
            }
            // An attempt in a pause is not in flight, but ends cancelled too.
            if !attempt.settled {
                record.took = took;
            }
        }
    }
}

impl Drop for Round<'_, '_> {
    /// Cancels the calls in flight even if the request's future is dropped because its caller has hung up.
    fn drop(&mut self) {
        self.cancel_calls_in_flight();
    }
}

/// Encodes the review for these hooks. A large review is encoded off the worker's thread; if that is not done by the
/// deadline, the calls that need the encoding fail.
async fn encodings<'r>(ctx: &ReviewContext<'_>, hooks: &[SelectedHook<'_>], review: &'r Review) -> Encodings<'r> {
    if review.bytes.len() < OFFLOAD_THRESHOLD {
        return Encodings::of(review);
    }
    let forms = hooks.iter().map(|hook| HookEncoding::from(&hook.live.target.entry.protocol));
    let forms: HashSet<_> = forms.filter(|form| Encodings::must_write(review, *form)).collect();
    if forms.is_empty() {
        return Encodings::of(review);
    }
    let began = now();
    let (copy, wanted) = (review.clone(), forms.clone());
    let writing = ctx.run_offloaded(review.bytes.len(), move || {
        let encodings = Encodings::of(&copy);
        wanted.into_iter().map(|form| (form, encodings.get(form))).collect()
    });
    let failure = match timeout_at(ctx.caller.deadline.instant().into(), writing).await {
        Ok(Ok(written)) => return Encodings::with(review, written),
        Ok(Err(dropped)) => CallFailure::Evaluation(dropped),
        Err(_) => CallFailure::Timeout(Duration::from_millis((now() - began).as_millis() as u64)),
    };
    Encodings::with(review, forms.into_iter().map(|form| (form, Err(failure.clone()))).collect())
}
