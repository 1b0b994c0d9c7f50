//! Outcome: what became of one selected hook. The only place where a CallFailure becomes open or closed.

use std::time::Duration;

use crate::{
    live::LiveHook,
    model::{Answer, CallFailure, FailurePolicy},
    telemetry::HookOutcome,
};

/// What became of one selected hook.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The hook.
    pub live: &'a LiveHook,
    /// How its call ended.
    pub ending: Ending,
    /// How long it took.
    pub took: Duration,
}

/// The four ways a call can end for the request.
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

/// One line a second for each hook; every failure is in the metrics, the annotations and the audit log.
fn tell(live: &LiveHook, failure: &CallFailure, what: &str) {
    if let Some(held_back) = live.metrics.may_tell() {
        let failure = failure.class();
        tracing::warn!(hook = %live.hook.name, %failure, held_back, "{what}");
    }
}

impl<'a> Outcome<'a> {
    /// Judges what came back from a hook; `opened`: a bypass passes it over where it cannot answer.
    pub fn judge(live: &'a LiveHook, opened: bool, result: Result<Answer, CallFailure>, took: Duration) -> Self {
        let policy = if opened { FailurePolicy::Ignore } else { live.hook.failure_policy };
        let ending = match (result, policy) {
            (Ok(answer), _) => Ending::Answered(answer),
            (Err(failure), FailurePolicy::Ignore) => {
                tell(live, &failure, "failed calling hook, failing open");
                Ending::FailedOpen(failure)
            }
            // A retry that failed too; `fanout` has spent it already.
            (Err(failure), FailurePolicy::Fail | FailurePolicy::Retry) => {
                tell(live, &failure, "failed calling hook, failing closed");
                Ending::FailedClosed(failure)
            }
        };
        Self { live, ending, took }
    }

    /// True when the hook said no.
    pub fn is_denial(&self) -> bool {
        matches!(&self.ending, Ending::Answered(answer) if answer.denial.is_some())
    }

    /// True when this alone rejects the request.
    pub fn rejects(&self) -> bool {
        self.is_denial() || matches!(self.ending, Ending::FailedClosed(_) | Ending::DryRunRefused)
    }

    /// Why there is no usable answer.
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
            Ending::DryRunRefused => HookOutcome::FailedClosed("dry_run"),
            Ending::Cancelled => HookOutcome::Cancelled,
        }
    }
}
