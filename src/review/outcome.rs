//! Outcome: the end of one decider's call. The only place where a CallFailure becomes open or closed. Pure.

use std::time::Duration;

use super::decider::Decider;
use crate::{
    hooks::AnswerHold,
    model::{Answer, CallFailure, FailureKind, FailurePolicy, ProposedPatch},
    patch::{Patch, PatchError},
    telemetry::HookOutcome,
};

/// The end of one decider's call.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The party that was asked.
    pub decider: Decider<'a>,
    /// End of its call.
    pub ending: Ending,
    /// Duration of the call.
    pub took: Duration,
    /// Share of the memory budget that the answer holds, until the verdict is made of it.
    pub(super) _hold: AnswerHold,
    /// The patch of a yes as it was read, until it is applied.
    pub(super) parsed: Option<Box<Result<Patch, PatchError>>>,
    /// Warnings and annotations of an answer that is not usable for its patch.
    pub(super) said: Option<Box<Answer>>,
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
}

impl<'a> Outcome<'a> {
    /// The outcome of what came back; `opened`: a bypass passes the decider over where it cannot answer.
    pub fn judge(decider: Decider<'a>, opened: bool, result: Result<Answer, CallFailure>, took: Duration) -> Self {
        let policy = if opened { FailurePolicy::Ignore } else { decider.failure_policy };
        let ending = match (result, policy) {
            (Ok(answer), _) => Ending::Answered(answer),
            (Err(failure), FailurePolicy::Ignore) => Ending::FailedOpen(failure),
            // A retry that failed too: the round has spent it already.
            (Err(failure), FailurePolicy::Fail | FailurePolicy::Retry) => Ending::FailedClosed(failure),
        };
        Self::ended(decider, ending, took)
    }

    /// The outcome of a call that ended so.
    pub fn ended(decider: Decider<'a>, ending: Ending, took: Duration) -> Self {
        Self { decider, ending, took, _hold: AnswerHold::default(), parsed: None, said: None }
    }

    /// Turns a yes into a call failure, as what it asks for cannot be done; `opened` as in [`Outcome::judge`]. Its
    /// warnings and annotations are handed on all the same.
    pub(super) fn fail(&mut self, opened: bool, failure: CallFailure) {
        let Self { ending, .. } = Self::judge(self.decider, opened, Err(failure), self.took);
        if let Ending::Answered(answer) = std::mem::replace(&mut self.ending, ending) {
            self.said = Some(Box::new(answer));
        }
    }

    /// The answer whose warnings and annotations are handed on.
    pub(super) fn said(&self) -> Option<&Answer> {
        match &self.ending {
            Ending::Answered(answer) => Some(answer),
            _ => self.said.as_deref(),
        }
    }

    /// The patch of a yes as it was read. It is there once.
    pub(super) fn take_parsed(&mut self) -> Option<Result<Patch, PatchError>> {
        self.parsed.take().map(|parsed| *parsed)
    }

    /// True when the hook said no.
    pub fn is_denial(&self) -> bool {
        matches!(&self.ending, Ending::Answered(answer) if answer.denial.is_some())
    }

    /// True when the request was decided before the call ended.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.ending, Ending::Cancelled)
    }

    /// True when no usable answer came, and it was passed over.
    pub fn is_failed_open(&self) -> bool {
        matches!(self.ending, Ending::FailedOpen(_))
    }

    /// The change that a yes asks for.
    pub fn patch(&self) -> Option<&ProposedPatch> {
        match &self.ending {
            Ending::Answered(answer) => answer.patch.as_deref(),
            _ => None,
        }
    }

    /// True when this alone rejects the request.
    pub fn rejects(&self) -> bool {
        self.is_denial() || matches!(self.ending, Ending::FailedClosed(_) | Ending::DryRunRefused)
    }

    /// Failure where there is no usable answer.
    pub fn failure(&self) -> Option<&CallFailure> {
        match &self.ending {
            Ending::FailedOpen(failure) | Ending::FailedClosed(failure) => Some(failure),
            Ending::Answered(_) | Ending::DryRunRefused | Ending::Cancelled => None,
        }
    }

    /// The ending as metrics and the audit log name it.
    pub fn label(&self) -> HookOutcome {
        match &self.ending {
            Ending::Answered(answer) if answer.denial.is_some() => HookOutcome::Denied,
            Ending::Answered(_) => HookOutcome::Allowed,
            Ending::FailedOpen(failure) => HookOutcome::FailedOpen(failure.kind()),
            Ending::FailedClosed(failure) => HookOutcome::FailedClosed(failure.kind()),
            Ending::DryRunRefused => HookOutcome::FailedClosed(FailureKind::DryRun),
            Ending::Cancelled => HookOutcome::Cancelled,
        }
    }
}
