//! Failure policies: what becomes of a request where a hook or an initializer cannot do its part.
//!
//! Every such decision of a review is made here. Where the request's own time is over no policy is asked: the phase refuses
//! the request with 504 itself.

use std::{sync::Arc, time::Duration};

use super::{
    context::ReviewContext,
    facts::SelectorError,
    rejection::{self, StatusError},
};
use crate::telemetry::{HookOutcome, InitializerOutcome};
use gatepost_api::{CallFailure, FailureKind, FailurePolicy, Initializer, ResourceInitializers, StatusInfo};

/// Is a hook passed over where it cannot do its part? `fail_open_override`: a bypass says so, whatever its policy.
pub(super) fn fails_open(policy: FailurePolicy, fail_open_override: bool) -> bool {
    fail_open_override || policy.fails_open()
}

/// Is a hook called once more after a failure?
pub(super) fn retries(policy: FailurePolicy) -> bool {
    policy == FailurePolicy::Retry
}

/// What a hook counts as whose turn did not come in time.
pub(super) fn out_of_time(policy: FailurePolicy, fail_open_override: bool) -> HookOutcome {
    match fails_open(policy, fail_open_override) {
        true => HookOutcome::FailedOpen(FailureKind::Timeout),
        false => HookOutcome::FailedClosed(FailureKind::Timeout),
    }
}

/// Consequence of selectors that cannot be evaluated.
pub(super) enum UnknownSelection {
    /// The hook is passed over.
    Skip,
    /// The hook cannot be called, and its failure policy decides about that as about any failed call.
    Fail(Box<CallFailure>),
    /// The request is rejected, whatever the failure policy.
    Reject(StatusError),
}

/// Consequence of a hook's selectors that cannot be evaluated. Labels that the apiserver does not tell are a failure of
/// the hook; a namespace that does not exist, or an object that is not JSON, is the fault of the request.
pub(super) fn unknown_selection(error: SelectorError, fail_open_override: bool) -> UnknownSelection {
    match error {
        _ if fail_open_override => UnknownSelection::Skip,
        SelectorError::Unavailable(why) => UnknownSelection::Fail(Box::new(CallFailure::NamespaceUnavailable(why))),
        SelectorError::Refused(refusal) => UnknownSelection::Reject(refusal),
    }
}

/// Reason why an initializer's turn has not ended as it should.
pub(super) enum InitializerFailure {
    /// Its time, or the request's, is over.
    Late(Duration),
    /// No process has claimed its name for long.
    Vacant,
    /// No process has claimed its name since it was configured.
    Unproven,
    /// It cannot act on this object.
    Unable(String),
    /// A dry run must not reach it.
    DryRun,
    /// Too many objects are held already.
    Full,
    /// There is no memory for the object, or for what is made of it.
    NoRoom,
    /// It refuses the object.
    Rejected(Box<StatusInfo>),
}

/// Does a bypass, or break-glass, let objects go on without the initializer of this name?
fn is_overridden(ctx: &ReviewContext<'_>, name: &str) -> bool {
    ctx.bypass.fails_open(name) || ctx.bypass.break_glass_covers(name)
}

/// Does the object go on without the initializer where it does not act?
pub(super) fn is_passed_over(ctx: &ReviewContext<'_>, one: &Initializer) -> bool {
    fails_open(one.failure_policy, is_overridden(ctx, &one.name)) || is_unproven(ctx, one)
}

/// Has no process claimed the initializer's name since it was configured?
pub(super) fn is_unproven(ctx: &ReviewContext<'_>, one: &Initializer) -> bool {
    let waits = one.built_in.is_none() && one.attach.is_some();
    waits && ctx.deps.current.hub().is_unproven(&one.name)
}

/// Outcome of an initializer's turn that failed so. `passes`: it was to be passed over when its turn began
/// ([`is_passed_over`]).
pub(super) fn of_turn(
    ctx: &ReviewContext<'_>,
    name: &str,
    passes: bool,
    failure: &InitializerFailure,
) -> InitializerOutcome {
    match failure {
        InitializerFailure::Rejected(_) => InitializerOutcome::Rejected,
        // Its first instance may have attached since it was asked.
        InitializerFailure::Unproven => InitializerOutcome::FailedOpen,
        _ if is_overridden(ctx, name) => InitializerOutcome::FailedOpen,
        // Our own want of room opens nothing: clients that send much would then create objects without the initializer.
        InitializerFailure::Full => InitializerOutcome::Shed,
        InitializerFailure::NoRoom => InitializerOutcome::FailedClosed,
        _ if passes => InitializerOutcome::FailedOpen,
        _ => InitializerOutcome::FailedClosed,
    }
}

/// Does the object go on without any of these where the request's time ends before it is known which of them act?
pub(super) fn all_pass_unselected(ctx: &ReviewContext<'_>, entry: &ResourceInitializers) -> bool {
    let passes =
        |one: &Initializer| fails_open(one.failure_policy, ctx.bypass.fails_open(&one.name)) || is_unproven(ctx, one);
    entry.initializers.iter().all(passes)
}

/// Does the object go on without an initializer whose selectors cannot be evaluated?
pub(super) fn passes_unknown_selection(ctx: &ReviewContext<'_>, one: &Initializer) -> bool {
    ctx.bypass.fails_open(&one.name) || is_unproven(ctx, one)
}

/// Does the object go on without an initializer that selects by labels which the apiserver does not tell?
pub(super) fn passes_without_labels(one: &Initializer) -> bool {
    one.failure_policy.fails_open() && !one.namespace_selector.is_empty()
}

/// Names of a resource's initializers without which none of its objects is finished.
pub(super) fn must_act(entry: Option<&ResourceInitializers>) -> Vec<Arc<str>> {
    let all = entry.into_iter().flat_map(|entry| &entry.initializers);
    all.filter(|one| !one.failure_policy.fails_open()).map(|one| Arc::clone(&one.name)).collect()
}

impl InitializerFailure {
    /// Is it our own want of room, whatever its answer's code? Of an object that exists it says nothing: the update is
    /// tried again.
    pub(super) fn is_no_room(&self) -> bool {
        matches!(self, Self::Full | Self::NoRoom)
    }

    /// Rejection of the request.
    pub(super) fn refusal(self, name: &str) -> StatusError {
        Box::new(match self {
            Self::Late(after) => rejection::initializer_late(name, after, None),
            Self::Vacant | Self::Unproven => rejection::initializer_vacant(name),
            Self::Unable(why) => rejection::initializer_failed(name, &why),
            Self::DryRun => rejection::initializer_on_dry_run(name),
            Self::Full => rejection::too_many_holds(name),
            Self::NoRoom => rejection::no_room_to_initialize(name),
            Self::Rejected(said) => rejection::initializer_rejected(name, *said),
        })
    }

    /// Warning to whoever creates the object that it goes on without the initializer.
    pub(super) fn warning(&self, name: &str) -> String {
        let why = match self {
            Self::Late(after) => format!("did not act within {} ms", after.as_millis()),
            Self::Vacant => "has no instance attached".to_owned(),
            Self::Unproven => "is not in rotation until its first instance attaches".to_owned(),
            Self::Unable(why) => format!("could not act: {why}"),
            Self::DryRun => "has side effects and is not asked in a dry run".to_owned(),
            Self::Full | Self::NoRoom | Self::Rejected(_) => "did not act".to_owned(),
        };
        format!("initializer \"{name}\" {why}; the object goes on without it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_hook_fails_open_under_ignore_or_by_a_bypass_alone() {
        for (policy, fail_open_override, expected) in [
            (FailurePolicy::Ignore, false, true),
            (FailurePolicy::Fail, false, false),
            (FailurePolicy::Retry, false, false),
            (FailurePolicy::Fail, true, true),
            (FailurePolicy::Retry, true, true),
        ] {
            assert_eq!(fails_open(policy, fail_open_override), expected, "{policy:?} {fail_open_override}");
            let outcome = out_of_time(policy, fail_open_override);
            assert_eq!(matches!(outcome, HookOutcome::FailedOpen(FailureKind::Timeout)), expected, "{policy:?}");
        }
    }

    #[test]
    fn selectors_fail_the_hook_without_labels_and_the_request_where_it_is_at_fault() {
        let unavailable = || SelectorError::Unavailable("down".into());
        let refused = || SelectorError::Refused(Box::new(rejection::namespace_not_found("n")));
        assert!(matches!(unknown_selection(unavailable(), false), UnknownSelection::Fail(_)));
        assert!(matches!(unknown_selection(refused(), false), UnknownSelection::Reject(_)));
        assert!(matches!(unknown_selection(unavailable(), true), UnknownSelection::Skip));
        assert!(matches!(unknown_selection(refused(), true), UnknownSelection::Skip));
    }
}
