//! CallRecord: one call of a hook in a review. The verdict, the metrics, the audit line and the log are made from it.
//!
//! Each call is counted once. [`CallRecord::count`] counts a call that takes effect: `round` calls it when the call is
//! settled, unless the call is speculative; `mutate` calls it when the patch is applied; `conclude` in `mod.rs` calls
//! it for hooks that were not called. [`CallRecord::discard`] counts a speculative call that is discarded. Dropping a
//! record counts it if it was not counted. This happens if the caller hung up, or if too many hooks are out of time to
//! keep all their records.

use std::{fmt::Debug, time::Duration};

use bytes::Bytes;

use super::{
    context::ReviewContext,
    failure::fails_open,
    rejection::{self, StatusError},
};
use crate::{
    hooks::{AnswerMemoryGuard, Reply},
    live::LiveHook,
    telemetry::{HookMetrics, HookOutcome, KeptRequest, RejectionCause, ShadowDrop, ShadowMetrics, ShadowOutcome},
};
use gatepost_api::{
    Answer, CallFailure, Enforcement, FailureKind, FailurePolicy, HookType, HttpForm, ProposedPatch, Protocol, Review,
    StatusInfo,
};
use gatepost_json_patch::{Patch, PatchError};
use gatepost_wire::{
    answer::{self, shortened_to},
    http_answer,
};

/// Maximum size of the description of a request that would have been denied, and of the message, in bytes.
pub(super) const MAX_KEPT_TEXT: usize = 400;

/// A hook, or another decider about requests.
pub trait Decider: Debug + Sync {
    /// Returns the name in denials, metrics and annotations.
    fn name(&self) -> &str;

    /// Returns the unique identifier: `<configuration>/<name>/<n>`.
    fn id(&self) -> &str;

    /// Returns the failure policy.
    fn failure_policy(&self) -> FailurePolicy;

    /// Returns the effect of its rejections.
    fn enforcement(&self) -> Enforcement {
        Enforcement::Deny
    }

    /// Returns true if it is an admission policy, which decides in this process.
    fn is_policy(&self) -> bool {
        false
    }

    /// Returns true if it may itself be a sidecar. Its audit annotations then name hooks of its own
    /// (`<inner hook>/<key>`).
    fn is_chained(&self) -> bool {
        false
    }

    /// Returns the counters of its calls, if it has any.
    fn metrics(&self) -> Option<&HookMetrics> {
        None
    }
}

/// Describes a request by its operation and kind, and the name of the object: nothing of its content.
pub(super) fn request_text(review: &Review) -> String {
    let Review { operation, kind, namespace, name, .. } = review;
    let separator = if namespace.is_empty() { "" } else { "/" };
    shortened_to(MAX_KEPT_TEXT, &format!("{} {} {namespace}{separator}{name}", operation.as_str(), kind.kind))
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

    fn enforcement(&self) -> Enforcement {
        self.hook.enforcement
    }

    fn is_chained(&self) -> bool {
        self.target.entry.protocol == Protocol::Grpc
    }

    fn metrics(&self) -> Option<&HookMetrics> {
        Some(&self.metrics)
    }
}

/// How a call ended, and its effect on the request.
#[derive(Debug)]
pub enum Ending {
    /// The hook allowed or denied the request.
    Answered(Answer),
    /// No usable answer; the hook is skipped.
    FailedOpen(CallFailure),
    /// No usable answer; the request is rejected.
    FailedClosed(CallFailure),
    /// Not called: the hook declares side effects, and the request is a dry run. The request is rejected.
    DryRunRefused,
    /// The request was decided before this hook answered.
    Cancelled,
    /// Not called: the request's deadline had passed. The call is recorded with this outcome.
    OutOfTime(HookOutcome),
    /// Not called: the hook has not passed its probe yet.
    Unproven,
}

/// Effect of the patch of a call.
#[derive(Debug)]
pub enum Change {
    /// The patch, which is not applied yet. A parse error is reported when the patch would be applied.
    Proposed(Result<Patch, PatchError>),
    /// The patch, which was applied and changed nothing.
    Unchanged(Bytes),
    /// The patch, which changed the object.
    Patched(Bytes),
    /// The patch is not applied, and the request is rejected with this, regardless of the hook's failure policy.
    Refused(StatusError),
}

/// A decoded answer.
pub(super) struct Decoded {
    pub(super) answer: Answer,
    /// Its parsed patch. A parse error is reported when the patch would be applied.
    pub(super) patch: Option<Box<Change>>,
    /// Fault of the patch, if that makes the answer unusable. Its warnings and annotations are still used, as in
    /// upstream.
    pub(super) failure: Option<CallFailure>,
}

/// One call of a decider.
#[derive(Debug)]
pub struct CallRecord<'a> {
    /// Decider that was called.
    pub decider: &'a dyn Decider,
    /// Type of the hook, and so phase of the call.
    pub hook_type: HookType,
    /// Effect of its rejections: its own enforcement, or `Shadow` after the verdict.
    pub enforcement: Enforcement,
    /// 0, or 1 if a mutating hook was called once more.
    pub round: u8,
    /// For a validating hook, its index among the validating hooks that are called; for a mutating one, its index among
    /// all mutating hooks of the configuration. Not the index in the snapshot.
    pub index: usize,
    /// End of the call.
    pub ending: Ending,
    /// Duration of the call.
    pub took: Duration,
    /// Change that its patch requests or, once the patch is applied, has made.
    pub change: Option<Box<Change>>,
    /// Answer with an unusable patch. Its warnings and annotations are still used.
    unusable: Option<Box<Answer>>,
    /// Keeps the memory of the answer reserved until the verdict is complete.
    _memory: AnswerMemoryGuard,
    /// Review of the call while the call is not yet counted in the metrics; `None` once it is counted.
    uncounted: Option<&'a ReviewContext<'a>>,
}

impl<'a> CallRecord<'a> {
    /// Creates the record of a call with this end. It is not counted in any metrics.
    pub fn new(decider: &'a dyn Decider, hook_type: HookType, ending: Ending, took: Duration) -> Self {
        Self {
            decider,
            hook_type,
            enforcement: decider.enforcement(),
            round: 0,
            index: 0,
            ending,
            took,
            change: None,
            unusable: None,
            _memory: AnswerMemoryGuard::default(),
            uncounted: None,
        }
    }

    /// Creates the record of a hook in this review, to be counted.
    pub(super) fn of(ctx: &'a ReviewContext<'a>, live: &'a LiveHook, ending: Ending) -> Self {
        let mut record = Self::new(live, live.hook.hook_type, ending, Duration::ZERO);
        (record.enforcement, record.uncounted) = (ctx.effective(live.hook.enforcement), Some(ctx));
        record
    }

    /// Records the result of the call. `fail_open_override`: a bypass makes the hook fail open.
    pub(super) fn settle(
        &mut self,
        result: Result<Decoded, CallFailure>,
        fail_open_override: bool,
        memory: AnswerMemoryGuard,
        took: Duration,
    ) {
        let result = match result {
            Ok(Decoded { answer, patch, failure: None }) => {
                (self.change, self._memory) = (patch, memory);
                Ok(answer)
            }
            Ok(Decoded { answer, failure: Some(failure), .. }) => {
                (self.unusable, self._memory) = (Some(Box::new(answer)), memory);
                Err(failure)
            }
            Err(failure) => Err(failure),
        };
        self.took = took;
        self.ending = match result {
            Ok(answer) => Ending::Answered(answer),
            Err(failure) => self.ending_of_failure(fail_open_override, failure),
        };
    }

    /// Turns an answer into a failed call, as its patch exceeds a limit.
    pub(super) fn turn_into_failure(&mut self, fail_open_override: bool, failure: CallFailure) {
        let ending = self.ending_of_failure(fail_open_override, failure);
        if let Ending::Answered(answer) = std::mem::replace(&mut self.ending, ending) {
            self.unusable = Some(Box::new(answer));
        }
    }

    /// Returns the ending of a call that failed: open or closed, by the failure policy or the override.
    fn ending_of_failure(&self, fail_open_override: bool, failure: CallFailure) -> Ending {
        match fails_open(self.decider.failure_policy(), fail_open_override) {
            true => Ending::FailedOpen(failure),
            false => Ending::FailedClosed(failure),
        }
    }

    /// Returns the answer whose warnings and annotations are used.
    pub(super) fn answer(&self) -> Option<&Answer> {
        match &self.ending {
            Ending::Answered(answer) => Some(answer),
            _ => self.unusable.as_deref(),
        }
    }

    /// Returns the patch that a usable answer requests. A denial has none.
    pub(super) fn patch(&self) -> Option<&ProposedPatch> {
        match &self.ending {
            Ending::Answered(answer) => answer.patch.as_deref(),
            _ => None,
        }
    }

    /// Returns true if the hook denied the request, and that rejects it.
    pub(super) fn is_denial(&self) -> bool {
        self.enforces() && matches!(&self.ending, Ending::Answered(answer) if answer.denial.is_some())
    }

    /// Returns true if the request was decided before the call ended.
    pub(super) fn is_cancelled(&self) -> bool {
        matches!(self.ending, Ending::Cancelled)
    }

    /// Returns true if this call alone rejects the request.
    pub(super) fn rejects(&self) -> bool {
        self.enforces()
            && (self.is_denial()
                || matches!(self.ending, Ending::FailedClosed(_) | Ending::DryRunRefused)
                || matches!(self.change.as_deref(), Some(Change::Refused(_))))
    }

    /// Returns the statuses with which the call rejects the request, or would if the hook enforced.
    pub(super) fn refusals(&self) -> impl Iterator<Item = StatusInfo> {
        let name = self.decider.name();
        let of_ending = match &self.ending {
            // A policy's denial is the complete status already.
            Ending::Answered(Answer { denial: Some(denial), .. }) if self.decider.is_policy() => {
                Some((*denial.0).clone())
            }
            Ending::Answered(answer) => answer.denial.as_ref().map(|denial| rejection::denied(name, denial)),
            Ending::FailedClosed(failure) => Some(rejection::failed(name, failure)),
            Ending::DryRunRefused => Some(rejection::dry_run_refused(name)),
            _ => None,
        };
        let of_patch = match self.change.as_deref() {
            Some(Change::Refused(refusal)) => Some((**refusal).clone()),
            _ => None,
        };
        of_ending.into_iter().chain(of_patch)
    }

    /// Returns the status with which the call would reject the request if the hook enforced; `None` if it enforces, or
    /// lets the request pass.
    pub(super) fn unenforced_refusal(&self) -> Option<StatusInfo> {
        if self.enforces() { None } else { self.refusals().next() }
    }

    /// Describes a request that this call would have denied if it were enforced.
    pub(super) fn would_be_denial(&self, ctx: &ReviewContext<'_>) -> KeptRequest {
        let message = self.unenforced_refusal().filter(|_| ctx.deps.audit.has_hook_messages());
        let message = message.map(|refusal| shortened_to(MAX_KEPT_TEXT, &refusal.message));
        KeptRequest::now(request_text(ctx.review), message)
    }

    /// Returns true if a call in shadow failed because no memory for its answer or no idle thread was available.
    pub(super) fn is_shadow_dropped(&self) -> bool {
        match self.failure() {
            Some(CallFailure::Overloaded) => self.enforcement == Enforcement::Shadow,
            Some(CallFailure::Evaluation(why)) => rejection::is_shadow_dropped(why),
            _ => false,
        }
    }

    fn enforces(&self) -> bool {
        self.enforcement.denies()
    }

    /// Returns the failure if there is no usable answer.
    pub(super) fn failure(&self) -> Option<&CallFailure> {
        match &self.ending {
            Ending::FailedOpen(failure) | Ending::FailedClosed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Returns the outcome for metrics and the audit log; `None` if the hook has not passed its probe.
    pub(super) fn outcome(&self) -> Option<HookOutcome> {
        let outcome = match &self.ending {
            Ending::Answered(answer) if answer.denial.is_some() => HookOutcome::Denied,
            Ending::Answered(_) => HookOutcome::Allowed,
            Ending::FailedOpen(failure) => HookOutcome::FailedOpen(failure.kind()),
            Ending::FailedClosed(failure) => HookOutcome::FailedClosed(failure.kind()),
            Ending::DryRunRefused => HookOutcome::FailedClosed(FailureKind::DryRun),
            Ending::Cancelled => HookOutcome::Cancelled,
            Ending::OutOfTime(outcome) => *outcome,
            Ending::Unproven => return None,
        };
        Some(match outcome {
            HookOutcome::Denied if !self.enforces() => HookOutcome::WouldDeny,
            HookOutcome::FailedClosed(kind) if !self.enforces() => HookOutcome::FailedOpen(kind),
            outcome => outcome,
        })
    }

    /// Counts the call, and its rejection if it rejects the request.
    pub(super) fn count(&mut self) {
        let Some(ctx) = self.uncounted.take() else { return };
        self.count_call(ctx);
        if let (Some(metrics), Some((cause, code))) = (self.decider.metrics(), self.rejection())
            && self.enforces()
        {
            metrics.record_rejection(ctx.review.operation, cause, code);
        }
    }

    /// Discards a speculative call, because an earlier hook has changed the object or rejected the request. If
    /// `was_called` is false, nothing is counted.
    pub(super) fn discard(mut self, was_called: bool) {
        let uncounted = self.uncounted.take().filter(|_| was_called);
        if let (Some(ctx), Some(metrics)) = (uncounted, self.decider.metrics()) {
            metrics.record_discard();
            metrics.record(ctx.caller.worker, HookOutcome::Cancelled, self.took);
        }
    }

    /// Logs the end of the call in its span.
    pub(super) fn trace(&self) {
        let Some(outcome) = self.outcome() else { return };
        let failure = self.failure().map(|failure| tracing::field::display(failure.class()));
        tracing::debug!(?outcome, took = ?self.took, failure, "call ended");
    }

    fn count_call(&self, ctx: &ReviewContext<'_>) {
        let Some(metrics) = self.decider.metrics() else { return };
        let outcome = self.outcome();
        match outcome {
            Some(outcome) if ctx.is_shadow() => self.count_in_shadow(ctx, &metrics.shadow, outcome),
            Some(outcome) => metrics.record(ctx.caller.worker, outcome, self.took),
            None => metrics.record_skipped_unproven(),
        }
        let Some(failure) = self.failure() else { return };
        let message = match outcome {
            _ if ctx.is_shadow() => "failed calling hook in shadow",
            Some(HookOutcome::FailedClosed(_)) => "failed calling hook, failing closed",
            _ => "failed calling hook, failing open",
        };
        // At most one line a second for each hook. Every failure is in the metrics, the annotations and the audit log.
        if let Some(suppressed) = metrics.failure_log_permit() {
            let failure = failure.class();
            tracing::warn!(hook = %self.decider.name(), uid = &*ctx.review.uid, %failure, suppressed, "{message}");
        }
    }

    fn count_in_shadow(&self, ctx: &ReviewContext<'_>, shadow: &ShadowMetrics, outcome: HookOutcome) {
        match outcome {
            HookOutcome::WouldDeny => shadow.record_denial(self.would_be_denial(ctx)),
            HookOutcome::Cancelled => shadow.record(ShadowOutcome::Abandoned),
            HookOutcome::Allowed if self.patch().is_some() => shadow.record(ShadowOutcome::WouldPatch),
            HookOutcome::Allowed => shadow.record(ShadowOutcome::Allowed),
            // In shadow, nothing has the outcome `Denied`.
            HookOutcome::FailedOpen(_) | HookOutcome::FailedClosed(_) | HookOutcome::Denied => {
                shadow.record(self.shadow_failure(ctx));
            }
        }
    }

    /// Returns the outcome of a call in shadow that failed.
    fn shadow_failure(&self, ctx: &ReviewContext<'_>) -> ShadowOutcome {
        if let Some(CallFailure::Overloaded) = self.failure() {
            ctx.deps.metrics.record_shadow_drop(ShadowDrop::Memory);
        }
        if self.is_shadow_dropped() { ShadowOutcome::Abandoned } else { ShadowOutcome::Failed }
    }

    /// Returns the cause and code with which the call rejects the request, if it does.
    fn rejection(&self) -> Option<(RejectionCause, i32)> {
        Some(match (&self.ending, self.change.as_deref()) {
            // The patch is not at fault if there is no memory (503) or time (504) to apply it.
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

/// Decodes the reply of a hook. A patch that cannot be decoded makes the answer unusable; a decoded patch that cannot
/// be applied is reported when it would be applied. A patch without operations is dropped. As in upstream, its type
/// matters only if the review has an object: without one, any operation is rejected when it would be applied,
/// regardless of the failure policy.
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

/// Decodes the answer of a hook by its type and `form`, which is `None` for gRPC.
fn decode_answer(hook_type: HookType, form: Option<HttpForm>, uid: &str, reply: Reply) -> Result<Answer, CallFailure> {
    match (reply, form) {
        (Reply::Http(reply), Some(form)) => {
            // The legacy contract is only three statuses. In Kubernetes' contract, the content type is checked first.
            if !reply.readable_type && form != HttpForm::Legacy {
                return Err(CallFailure::Undecodable("its Content-Type is not a media type".into()));
            }
            http_answer::decode(hook_type, form, uid, reply.status, reply.body()?)
        }
        (Reply::Grpc(message), _) => answer::decode(hook_type, uid, message),
        // Unreachable: a channel returns only replies of the protocol of its calls.
        (Reply::Http(reply), None) => Err(CallFailure::NotGrpc(format!("HTTP {}", reply.status))),
    }
}
