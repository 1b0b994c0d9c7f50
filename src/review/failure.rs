//! Failure policies: the outcome for a request if a hook or an initializer cannot do its part.
//!
//! This file has the rules. They are applied in `record` (`ending_of_failure`: calls of hooks), `select` (selectors and
//! conditions) and `initialize` (initializers in flight); policies have `Policy::ignores_errors` in `crates/policy`.
//! Failed turns of stored objects have their result from `TurnFailure` and `Correction` in `crates/initializers`.
//!
//! Some rejections ignore the policy and are decided elsewhere. `round` rejects a dry run that would reach a hook with
//! side effects. `mutate` rejects an inapplicable patch. `mutate` and `validate` reject with 504 once the request's
//! deadline has passed; `mutate` does so even if the last hook failed open.

use std::sync::Arc;

use super::{
    context::ReviewContext,
    facts::SelectorError,
    rejection::{self, StatusError},
};
use crate::telemetry::{HookOutcome, InitializerOutcome};
use gatepost_api::{CallFailure, FailureKind, FailurePolicy, Initializer, ResourceInitializers};
use gatepost_initializers::TurnFailure;

/// Returns true if a hook that fails is skipped. `fail_open_override`: a bypass makes it fail open, regardless of
/// its policy.
pub(super) fn fails_open(policy: FailurePolicy, fail_open_override: bool) -> bool {
    fail_open_override || policy.fails_open()
}

/// Returns true if a failed call is retried.
pub(super) fn retries(policy: FailurePolicy) -> bool {
    policy == FailurePolicy::Retry
}

/// Returns the recorded outcome of a hook that was not called before the request's deadline.
pub(super) fn out_of_time(policy: FailurePolicy, fail_open_override: bool) -> HookOutcome {
    match fails_open(policy, fail_open_override) {
        true => HookOutcome::FailedOpen(FailureKind::Timeout),
        false => HookOutcome::FailedClosed(FailureKind::Timeout),
    }
}

/// Consequence of selectors that cannot be evaluated.
pub(super) enum UnknownSelection {
    /// The hook is skipped.
    Skip,
    /// The call fails, and the hook's failure policy applies.
    Fail(Box<CallFailure>),
    /// The request is rejected regardless of the failure policy.
    Reject(StatusError),
}

/// Returns the consequence of a hook's selectors that cannot be evaluated. If the apiserver does not return the labels,
/// the hook's call fails. If the namespace does not exist or the object is not JSON, the request is at fault.
pub(super) fn unknown_selection(error: SelectorError, fail_open_override: bool) -> UnknownSelection {
    match error {
        _ if fail_open_override => UnknownSelection::Skip,
        SelectorError::Unavailable(why) => UnknownSelection::Fail(Box::new(CallFailure::NamespaceUnavailable(why))),
        SelectorError::Refused(refusal) => UnknownSelection::Reject(refusal),
    }
}

/// Returns true if a bypass or break-glass lets objects go on without the initializer of this name.
fn is_overridden(ctx: &ReviewContext<'_>, name: &str) -> bool {
    ctx.bypass.fails_open(name) || ctx.bypass.break_glass_covers(name)
}

/// Returns true if the object goes on without the initializer when its turn fails.
pub(super) fn is_skipped_on_failure(ctx: &ReviewContext<'_>, one: &Initializer) -> bool {
    fails_open(one.failure_policy, is_overridden(ctx, &one.name)) || is_unproven(ctx, one)
}

/// Returns true if no process has claimed the initializer's name since it was configured.
pub(super) fn is_unproven(ctx: &ReviewContext<'_>, one: &Initializer) -> bool {
    let waits = one.built_in.is_none() && one.attach.is_some();
    waits && ctx.deps.current.hub().desk(|desk| desk.is_unproven(&one.name))
}

/// Returns the outcome of an initializer's failed turn. `is_skipped` is the result of [`is_skipped_on_failure`] when
/// the turn began.
pub(super) fn turn_outcome(
    ctx: &ReviewContext<'_>,
    name: &str,
    is_skipped: bool,
    failure: &TurnFailure,
) -> InitializerOutcome {
    match failure {
        TurnFailure::Rejected(_) => InitializerOutcome::Rejected,
        // Even if its first instance has attached since.
        TurnFailure::Unproven => InitializerOutcome::FailedOpen,
        _ if is_overridden(ctx, name) => InitializerOutcome::FailedOpen,
        // Gatepost's own lack of room does not fail open: clients that send much could then create objects without the
        // initializer.
        TurnFailure::Full => InitializerOutcome::Shed,
        TurnFailure::NoRoom => InitializerOutcome::FailedClosed,
        _ if is_skipped => InitializerOutcome::FailedOpen,
        _ => InitializerOutcome::FailedClosed,
    }
}

/// Returns true if the object goes on without all of these initializers when the request's deadline passes before they
/// are selected.
pub(super) fn skips_all_unselected(ctx: &ReviewContext<'_>, entry: &ResourceInitializers) -> bool {
    let is_skipped =
        |one: &Initializer| fails_open(one.failure_policy, ctx.bypass.fails_open(&one.name)) || is_unproven(ctx, one);
    entry.initializers.iter().all(is_skipped)
}

/// Returns true if the object goes on without an initializer whose selectors cannot be evaluated.
pub(super) fn skips_unknown_selection(ctx: &ReviewContext<'_>, one: &Initializer) -> bool {
    ctx.bypass.fails_open(&one.name) || is_unproven(ctx, one)
}

/// Returns true if the object goes on without an initializer that needs the namespace's labels when the apiserver does
/// not return them.
pub(super) fn skips_without_labels(one: &Initializer) -> bool {
    one.failure_policy.fails_open() && !one.namespace_selector.is_empty()
}

/// Returns the names of a resource's initializers that do not fail open: no object is finished without them.
pub(super) fn must_act(entry: Option<&ResourceInitializers>) -> Vec<Arc<str>> {
    let all = entry.into_iter().flat_map(|entry| &entry.initializers);
    all.filter(|one| !one.failure_policy.fails_open()).map(|one| Arc::clone(&one.name)).collect()
}

/// Returns the rejection of the request for an initializer's failed turn.
pub(super) fn turn_refusal(failure: TurnFailure, name: &str) -> StatusError {
    Box::new(match failure {
        TurnFailure::Late(after) => rejection::initializer_late(name, after, None),
        TurnFailure::Vacant | TurnFailure::Unproven => rejection::initializer_vacant(name),
        TurnFailure::Unable(why) => rejection::initializer_failed(name, &why),
        TurnFailure::DryRun => rejection::initializer_on_dry_run(name),
        TurnFailure::Full => rejection::too_many_holds(name),
        TurnFailure::NoRoom => rejection::no_room_to_initialize(name),
        TurnFailure::Rejected(said) => rejection::initializer_rejected(name, *said),
    })
}

/// Returns the warning to the creator that the object goes on without the initializer.
pub(super) fn turn_warning(failure: &TurnFailure, name: &str) -> String {
    let why = match failure {
        TurnFailure::Late(after) => format!("did not act within {} ms", after.as_millis()),
        TurnFailure::Vacant => "has no instance attached".to_owned(),
        TurnFailure::Unproven => "is not in rotation until its first instance attaches".to_owned(),
        TurnFailure::Unable(why) => format!("could not act: {why}"),
        TurnFailure::DryRun => "has side effects and is not asked in a dry run".to_owned(),
        TurnFailure::Full | TurnFailure::NoRoom | TurnFailure::Rejected(_) => "did not act".to_owned(),
    };
    format!("initializer \"{name}\" {why}; the object goes on without it")
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
    fn selector_errors_fail_the_hook_or_the_request() {
        let unavailable = || SelectorError::Unavailable("down".into());
        let refused = || SelectorError::Refused(Box::new(rejection::namespace_not_found("n")));
        assert!(matches!(unknown_selection(unavailable(), false), UnknownSelection::Fail(_)));
        assert!(matches!(unknown_selection(refused(), false), UnknownSelection::Reject(_)));
        assert!(matches!(unknown_selection(unavailable(), true), UnknownSelection::Skip));
        assert!(matches!(unknown_selection(refused(), true), UnknownSelection::Skip));
    }
}
