//! CallRecord: one call of a hook in a review. The verdict, the metrics, the audit line and the log are made of it.
//!
//! A call counts once. [`CallRecord::count`] counts one that decides the request and [`CallRecord::discard`] one that
//! was made before its turn for nothing. Dropping a record counts a call that neither has counted: its caller has left.

use std::{fmt::Debug, time::Duration};

use bytes::Bytes;

use super::{
    context::ReviewContext,
    failure::fails_open,
    rejection::{self, StatusError},
};
use crate::{
    hooks::{AnswerHold, Reply},
    live::LiveHook,
    telemetry::{HookMetrics, HookOutcome, RejectionCause},
};
use gatepost_api::{Answer, CallFailure, FailureKind, FailurePolicy, HookType, HttpForm, ProposedPatch, Protocol};
use gatepost_json_patch::{Patch, PatchError};
use gatepost_wire::{answer, http_answer};

/// A hook, or anything else that decides about requests.
pub trait Decider: Debug + Sync {
    /// Name in denials, metrics and annotations.
    fn name(&self) -> &str;

    /// Identity, unlike every other: `<configuration>/<name>/<n>`.
    fn id(&self) -> &str;

    /// Failure policy: passed over, or the request is rejected.
    fn failure_policy(&self) -> FailurePolicy;

    /// May it itself be a sidecar, whose audit annotations name hooks of its own (`<inner hook>/<key>`)?
    fn is_chained(&self) -> bool {
        false
    }

    /// Counters of its calls, where it has any.
    fn metrics(&self) -> Option<&HookMetrics> {
        None
    }
}

impl Decider for LiveHook {
    fn name(&self) -> &str {
        &self.hook.name
    }

    fn id(&self) -> &str {
        &self.hook.id
    }

    fn failure_policy(&self) -> FailurePolicy {
        self.hook.failure_policy
    }

    fn is_chained(&self) -> bool {
        *self.target.protocol() == Protocol::Grpc
    }

    fn metrics(&self) -> Option<&HookMetrics> {
        Some(&self.metrics)
    }
}

/// The ways in which a call can end for the request.
#[derive(Debug)]
pub enum Ending {
    /// The hook said yes or no.
    Answered(Answer),
    /// No usable answer, passed over.
    FailedOpen(CallFailure),
    /// No usable answer, the request is rejected.
    FailedClosed(CallFailure),
    /// The hook must not be asked on a dry run, and says so by its class: the request is rejected.
    DryRunRefused,
    /// The request was decided before this hook answered.
    Cancelled,
    /// Not called: the request's time was over before its turn. This is what it counts as.
    OutOfTime(HookOutcome),
    /// Not called: it has not passed its probe yet.
    Unproven,
}

/// What comes of the patch of a call.
#[derive(Debug)]
pub enum Change {
    /// It is not applied yet. One that cannot be read is found out when its turn comes.
    Proposed(Result<Patch, PatchError>),
    /// The patch, which was applied and changed nothing.
    Unchanged(Bytes),
    /// The patch, which changed the object.
    Patched(Bytes),
    /// The patch does not apply: the request is rejected, whatever the hook's failure policy.
    Refused(StatusError),
}

/// An answer that was read.
pub(super) struct Decoded {
    pub(super) answer: Answer,
    /// Its patch as it was read. One that is read and lacks something is found out when its turn comes.
    pub(super) patch: Option<Box<Change>>,
    /// Fault of the patch that makes the answer unusable: its warnings and annotations count all the same, as upstream.
    pub(super) failure: Option<CallFailure>,
}

/// One call of a decider.
#[derive(Debug)]
pub struct CallRecord<'a> {
    /// The party that was asked.
    pub decider: &'a dyn Decider,
    /// Phase of the call.
    pub hook_type: HookType,
    /// 0; 1 where a mutating hook was asked once more.
    pub round: u8,
    /// Place among the validating hooks that are asked, or among all mutating hooks of the configuration.
    pub index: usize,
    /// End of the call.
    pub ending: Ending,
    /// Duration of the call.
    pub took: Duration,
    /// Change that its patch asks for or, once it is applied, has made.
    pub change: Option<Box<Change>>,
    /// Answer that is not usable for its patch. Its warnings and annotations are handed on all the same.
    unusable: Option<Box<Answer>>,
    /// Share of the memory budget that the answer holds, until the verdict is made of it.
    _hold: AnswerHold,
    /// Where it is to be counted; `None` once it is.
    uncounted: Option<&'a ReviewContext<'a>>,
}

impl<'a> CallRecord<'a> {
    /// A call that ended so. It is counted nowhere.
    pub fn new(decider: &'a dyn Decider, hook_type: HookType, ending: Ending, took: Duration) -> Self {
        Self {
            decider,
            hook_type,
            round: 0,
            index: 0,
            ending,
            took,
            change: None,
            unusable: None,
            _hold: AnswerHold::default(),
            uncounted: None,
        }
    }

    /// A hook's part in this review, which is to be counted.
    pub(super) fn of(ctx: &'a ReviewContext<'a>, live: &'a LiveHook, ending: Ending) -> Self {
        let mut record = Self::new(live, live.hook.hook_type, ending, Duration::ZERO);
        record.uncounted = Some(ctx);
        record
    }

    /// The call has ended. `fail_open_override`: a bypass passes the hook over where it cannot answer.
    pub(super) fn settle(
        &mut self,
        result: Result<Decoded, CallFailure>,
        fail_open_override: bool,
        hold: AnswerHold,
        took: Duration,
    ) {
        let result = match result {
            Ok(Decoded { answer, patch, failure: None }) => {
                (self.change, self._hold) = (patch, hold);
                Ok(answer)
            }
            Ok(Decoded { answer, failure: Some(failure), .. }) => {
                (self.unusable, self._hold) = (Some(Box::new(answer)), hold);
                Err(failure)
            }
            Err(failure) => Err(failure),
        };
        self.took = took;
        self.ending = match result {
            Ok(answer) => Ending::Answered(answer),
            Err(failure) => self.failed(fail_open_override, failure),
        };
    }

    /// Turns a yes into a call failure, as what it asks for cannot be done.
    pub(super) fn fail(&mut self, fail_open_override: bool, failure: CallFailure) {
        let ending = self.failed(fail_open_override, failure);
        if let Ending::Answered(answer) = std::mem::replace(&mut self.ending, ending) {
            self.unusable = Some(Box::new(answer));
        }
    }

    fn failed(&self, fail_open_override: bool, failure: CallFailure) -> Ending {
        match fails_open(self.decider.failure_policy(), fail_open_override) {
            true => Ending::FailedOpen(failure),
            false => Ending::FailedClosed(failure),
        }
    }

    /// The answer whose warnings and annotations are handed on.
    pub(super) fn answer(&self) -> Option<&Answer> {
        match &self.ending {
            Ending::Answered(answer) => Some(answer),
            _ => self.unusable.as_deref(),
        }
    }

    /// The change that a yes asks for.
    pub(super) fn patch(&self) -> Option<&ProposedPatch> {
        match &self.ending {
            Ending::Answered(answer) => answer.patch.as_deref(),
            _ => None,
        }
    }

    /// Did the hook say no?
    pub(super) fn is_denial(&self) -> bool {
        matches!(&self.ending, Ending::Answered(answer) if answer.denial.is_some())
    }

    /// Was the request decided before the call ended?
    pub(super) fn is_cancelled(&self) -> bool {
        matches!(self.ending, Ending::Cancelled)
    }

    /// Does this alone reject the request?
    pub(super) fn rejects(&self) -> bool {
        self.is_denial()
            || matches!(self.ending, Ending::FailedClosed(_) | Ending::DryRunRefused)
            || matches!(self.change.as_deref(), Some(Change::Refused(_)))
    }

    /// Failure where there is no usable answer.
    pub(super) fn failure(&self) -> Option<&CallFailure> {
        match &self.ending {
            Ending::FailedOpen(failure) | Ending::FailedClosed(failure) => Some(failure),
            _ => None,
        }
    }

    /// The ending as metrics and the audit log name it; `None` where the hook has not passed its probe.
    pub(super) fn outcome(&self) -> Option<HookOutcome> {
        Some(match &self.ending {
            Ending::Answered(answer) if answer.denial.is_some() => HookOutcome::Denied,
            Ending::Answered(_) => HookOutcome::Allowed,
            Ending::FailedOpen(failure) => HookOutcome::FailedOpen(failure.kind()),
            Ending::FailedClosed(failure) => HookOutcome::FailedClosed(failure.kind()),
            Ending::DryRunRefused => HookOutcome::FailedClosed(FailureKind::DryRun),
            Ending::Cancelled => HookOutcome::Cancelled,
            Ending::OutOfTime(outcome) => *outcome,
            Ending::Unproven => return None,
        })
    }

    /// Counts the call, and the rejection where it rejects the request.
    pub(super) fn count(&mut self) {
        let Some(ctx) = self.uncounted.take() else { return };
        self.count_call(ctx);
        if let (Some(metrics), Some((cause, code))) = (self.decider.metrics(), self.rejection()) {
            metrics.rejected(ctx.review.operation, cause, code);
        }
    }

    /// Discards a call that was made before its turn: a hook before has changed the object, or rejected the request.
    /// `was_made`: it was not found out before that the hook cannot be called; then there is nothing to count.
    pub(super) fn discard(mut self, was_made: bool) {
        let uncounted = self.uncounted.take().filter(|_| was_made);
        if let (Some(ctx), Some(metrics)) = (uncounted, self.decider.metrics()) {
            metrics.discarded();
            metrics.record(ctx.caller.worker, HookOutcome::Cancelled, self.took);
        }
    }

    /// Says in the span of the call how it ended.
    pub(super) fn trace(&self) {
        let Some(outcome) = self.outcome() else { return };
        let failure = self.failure().map(|failure| tracing::field::display(failure.class()));
        tracing::debug!(?outcome, took = ?self.took, failure, "answered");
    }

    fn count_call(&self, ctx: &ReviewContext<'_>) {
        let Some(metrics) = self.decider.metrics() else { return };
        match self.outcome() {
            Some(outcome) => metrics.record(ctx.caller.worker, outcome, self.took),
            None => metrics.passed_unasked(),
        }
        let (failure, what) = match &self.ending {
            Ending::FailedOpen(failure) => (failure, "failed calling hook, failing open"),
            Ending::FailedClosed(failure) => (failure, "failed calling hook, failing closed"),
            _ => return,
        };
        // One line a second for each hook; every failure is in the metrics, the annotations and the audit log.
        if let Some(held_back) = metrics.may_log_failure() {
            let failure = failure.class();
            tracing::warn!(hook = %self.decider.name(), uid = &*ctx.review.uid, %failure, held_back, "{what}");
        }
    }

    /// Cause and code by which the call rejects its request, if it does.
    fn rejection(&self) -> Option<(RejectionCause, i32)> {
        Some(match (&self.ending, self.change.as_deref()) {
            // Without room (503) or time (504) to apply it, the patch is not at fault.
            (_, Some(Change::Refused(refusal))) if refusal.code == 500 => (RejectionCause::PatchRefused, refusal.code),
            (Ending::Answered(answer), _) => (RejectionCause::Denied, rejection::denial_code(answer.denial.as_ref()?)),
            (Ending::FailedClosed(_), _) => (RejectionCause::FailedClosed, 500),
            (Ending::DryRunRefused, _) => (RejectionCause::FailedClosed, 400),
            _ => return None,
        })
    }
}

impl Drop for CallRecord<'_> {
    fn drop(&mut self) {
        if let Some(ctx) = self.uncounted.take() {
            self.count_call(ctx);
        }
    }
}

/// Reply of a hook, decoded. A patch that cannot be read is no usable answer; one that is read, and cannot be applied,
/// is found out when it is. One without operations is none. Its type matters only where the review has an object, as
/// upstream: without one, any operation is refused when its turn comes, whatever the failure policy.
pub(super) fn decode(
    hook_type: HookType,
    form: Option<HttpForm>,
    uid: &str,
    has_object: bool,
    reply: Reply,
) -> Result<Decoded, CallFailure> {
    let mut answer = decode_answer(hook_type, form, uid, reply)?;
    let Some(proposed) = answer.patch.take() else { return Ok(Decoded { answer, patch: None, failure: None }) };
    let patch = Patch::parse(proposed.text.clone());
    let failure = match (&patch, &proposed.other_type) {
        (Ok(patch), _) if patch.is_empty() => return Ok(Decoded { answer, patch: None, failure: None }),
        (Err(error), _) if error.is_undecodable() || *error == PatchError::TooManyOperations => {
            Some(CallFailure::UndecodablePatch(error.to_string()))
        }
        (_, Some(other)) if has_object => Some(CallFailure::PatchType(other.to_string())),
        _ => None,
    };
    answer.patch = Some(proposed).filter(|_| failure.is_none());
    let patch = failure.is_none().then(|| Box::new(Change::Proposed(patch)));
    Ok(Decoded { answer, patch, failure })
}

/// Answer of a hook, decoded by its type and `form`, which is `None` for gRPC.
fn decode_answer(hook_type: HookType, form: Option<HttpForm>, uid: &str, reply: Reply) -> Result<Answer, CallFailure> {
    match (reply, form) {
        (Reply::Http(reply), Some(form)) => {
            // The legacy contract is three statuses; in Kubernetes' the type comes before all else.
            if !reply.readable_type && form != HttpForm::Legacy {
                return Err(CallFailure::Undecodable("its Content-Type is not a media type".into()));
            }
            http_answer::decode(hook_type, form, uid, reply.status, reply.body()?)
        }
        (Reply::Grpc(message), _) => answer::decode(hook_type, uid, message),
        // No channel answers in a language that was not spoken to it.
        (Reply::Http(reply), None) => Err(CallFailure::NotGrpc(format!("HTTP {}", reply.status))),
    }
}
