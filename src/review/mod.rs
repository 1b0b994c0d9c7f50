//! Review: the decision about one request, from its arrival to its verdict.
//!
//! [`decide`] makes a [`ReviewContext`] and a [`Draft`], and calls the phases in the order of [`run`]. A phase reads
//! the context and adds its results to the draft; it returns a [`Flow`]. The context changes only in `access`, where
//! access checks are added as they are decided. To add a phase, write its function in a file, and call it in [`run`]
//! and, if it has calls in shadow, in `shadow`, which has its own list of phases.
//! Two phases that never wait are in this file.
//!
//! | question | file |
//! | --- | --- |
//! | which hooks are called | `select`, by `facts` and `conditions`; `versions` in which version |
//! | how long a call may take, and whether it is repeated | `round` sets its deadline, `attempt` decides |
//! | the effect of an answer or a failure | `record`, by the failure policies in `failure` |
//! | the effect of a patch | `object`: the object, the patch for the caller, the review for the next hooks |
//! | the response to the client | `verdict` combines the calls, `rejection` has the texts |
//! | which checks are skipped | `bypass` |
//! | which of a canary and the one that it is to replace decides | `canary`, and `comparison` what both decided |

mod access;
mod attempt;
mod audit;
mod bypass;
mod canary;
mod comparison;
mod conditions;
mod context;
mod draft;
mod facts;
mod failure;
mod initialize;
mod mutate;
mod object;
mod object_encoding;
mod policies;
mod policy_task;
mod record;
mod rejection;
mod round;
mod select;
mod shadow;
mod validate;
mod verdict;
mod versions;

use std::{sync::Arc, time::Instant};

use tracing::Instrument as _;

use self::{
    access::Access,
    bypass::BypassDecision,
    comparison::Compared,
    context::ReviewContext,
    draft::{Draft, Flow},
    object::PatchedObject,
};
pub use self::{
    context::{AdmissionDeps, Caller, ListedVersions, OtherVersions, Reasons, ShadowSlots, Speculation},
    initialize::{ObjectRead, ReadPolicy, read_policy},
    policies::{PolicyTrial, try_policies},
    record::{CallRecord, Change, Decider, Ending},
    shadow::ShadowReview,
    verdict::{CombinedVerdict, DroppedAnnotations, combine},
};
use crate::{
    live::{GenerationGuard, freshness::MAX_HOLD},
    telemetry::RequestOutcome,
};
use gatepost_api::{Review, Verdict, verdict::REVISION_ANNOTATION};
use gatepost_base::clock::now;

/// Decides one review by one generation of the configuration.
///
/// Every outcome is a verdict. Denials, closed failures and Gatepost's own refusals have different statuses, and the
/// caller's failure policy applies to none of them: the call itself succeeds. Nothing decides in shadow.
pub async fn decide(deps: &AdmissionDeps, review: &Review, caller: &Caller) -> Verdict {
    decided(deps, review, caller).await.0
}

/// Decides one review as [`decide`] does. Also returns what decides in shadow, to be run once the verdict is sent.
pub async fn decide_with_shadow(
    deps: &Arc<AdmissionDeps>,
    review: &Review,
    caller: &Caller,
) -> (Verdict, Option<ShadowReview>) {
    let (verdict, generation, object, mut compared) = decided(deps, review, caller).await;
    compared.is_rejected = !verdict.allowed();
    // A request that is rejected anyway does not show what a hook or policy would reject once it enforces, unless that
    // one is to replace what has rejected it.
    let shadow = match compared.is_rejected && !compared.has_decisions() {
        true => None,
        false => ShadowReview::of(deps, review, caller, generation, (object, compared)),
    };
    (verdict, shadow)
}

/// Returns the verdict, the generation that decided, the object if something has changed it, and what pairs of canaries
/// have decided.
async fn decided(
    deps: &AdmissionDeps,
    review: &Review,
    caller: &Caller,
) -> (Verdict, GenerationGuard, Option<Arc<PatchedObject>>, Compared) {
    let began = now();
    let mut reads = began;
    // If the configuration is stale, waiting is pointless.
    if deps.current.freshness().is_behind() && deps.current.freshness().is_fresh(began) {
        hold_for_change(deps, review, caller, began).await;
        reads = now();
    }
    // Read before the generation is entered, which is then at least as new as the age says.
    let age = deps.current.freshness().age(reads);
    let guard = deps.current.enter();
    let generation = &*guard;
    let bypass = BypassDecision::of(generation, deps.break_glass.open(reads), review);
    let access = Access::new(deps.authorizer.as_deref());
    let ctx = ReviewContext { deps, review, caller, began, age, generation, bypass, access, shadow: None };
    let deciding = async {
        let mut draft = Draft { skips_hooks: ctx.bypass.skips_all(), ..Draft::default() };
        let _ = run(&ctx, &mut draft).await;
        let (object, compared) = (draft.object.clone(), canary::decisions(&ctx, &mut draft));
        (conclude(&ctx, draft), object, compared)
    };
    let (verdict, object, compared) = deciding.instrument(ctx.span()).await;
    drop(ctx);
    (verdict, guard, object, compared)
}

/// Waits for a change of the configuration that was noticed and is not in force: it may concern any request that is not
/// skipped by a bypass. Waits half of the request's time at most.
async fn hold_for_change(deps: &AdmissionDeps, review: &Review, caller: &Caller, began: Instant) {
    let passes = {
        let generation = deps.current.load();
        let bypass = BypassDecision::of(&generation, deps.break_glass.open(began), review);
        bypass.skips_all() || bypass.all_fail_open()
    };
    if !passes {
        let hold = MAX_HOLD.min(caller.deadline.left(began) / 2);
        deps.metrics.request_held(deps.current.freshness().catch_up(began + hold).await);
    }
}

/// Runs the phases of a review, in order.
async fn run<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>) -> Flow {
    end_if_all_skipped(ctx, draft)?;
    check_freshness(ctx, draft)?;
    object_encoding::check(ctx, draft).await?;
    initialize::find_stored_list(ctx, draft).await?;
    policies::mutate(ctx, draft).await?;
    mutate::mutate(ctx, draft).await?;
    policies::reinvoke(ctx, draft).await?;
    initialize::initialize(ctx, draft).await?;
    policies::validate(ctx, draft).await?;
    validate::validate(ctx, draft).await
}

/// Ends a review that skips all hooks, unless the caller stores unfinished objects: the object may still be
/// initialized.
fn end_if_all_skipped(ctx: &ReviewContext<'_>, draft: &Draft<'_>) -> Flow {
    if draft.skips_hooks && !ctx.caller.stores_unfinished { Flow::Break(()) } else { Flow::Continue(()) }
}

/// Rejects the request if the configuration is too old, or if another segment of the request may be decided by an older
/// configuration. A request whose hooks are all skipped or all fail open by a bypass is not rejected.
fn check_freshness(ctx: &ReviewContext<'_>, draft: &mut Draft<'_>) -> Flow {
    let ReviewContext { deps, caller, age, bypass, .. } = ctx;
    if draft.skips_hooks || bypass.all_fail_open() {
        return Flow::Continue(());
    }
    let trusted = deps.current.freshness().stale_after();
    if age.is_none_or(|age| age >= trusted) {
        let rejected = age.is_none().then(|| deps.status.rejected.get()).flatten();
        draft.outcome = Some(RequestOutcome::Stale);
        return draft.refuse(Box::new(rejection::stale(*age, trusted, rejected.as_deref())));
    }
    if caller.segment.is_some_and(|segment| deps.current.segments_are_unsettled(segment, now())) {
        return draft.refuse(Box::new(rejection::segments_moved()));
    }
    Flow::Continue(())
}

/// Makes the verdict from the draft, and records it in the metrics and the audit log. Does not wait.
fn conclude(ctx: &ReviewContext<'_>, mut draft: Draft<'_>) -> Verdict {
    let ReviewContext { deps, caller, began, generation, bypass, .. } = ctx;
    if draft.break_glass_applied {
        deps.metrics.record_break_glass();
    }
    draft.calls.iter_mut().for_each(CallRecord::count);
    let CombinedVerdict { mut verdict, dropped } = combine(&draft.calls, deps.patch_annotations);
    report_dropped(&draft.calls, &dropped);
    initialize::report(&draft, &mut verdict);
    if let Some(refusal) = draft.refusal.take() {
        verdict.refusal = Some(*refusal);
    }
    if verdict.allowed() {
        verdict.patch = draft.object.as_ref().and_then(|object| object.difference.clone());
    }
    policies::annotate(&draft, &mut verdict);
    object_encoding::annotate(&draft, &mut verdict);
    if verdict.allowed() && !draft.skips_hooks {
        versions::annotate(ctx, &mut verdict);
    }
    let outcome = outcome(ctx, &draft, &verdict);
    // A request that is sent again in JSON is counted then.
    if !draft.wants_json {
        bypass.count(&deps.metrics);
    }
    bypass.annotate(&mut verdict);
    if generation.number > 0 {
        // Removes annotations of hooks under Gatepost's own key.
        verdict.audit_annotations.retain(|(key, _)| key != REVISION_ANNOTATION);
        verdict.audit_annotations.push((REVISION_ANNOTATION.to_owned(), generation.revision.to_string()));
    }
    let took = now().saturating_duration_since(*began);
    deps.metrics.request(caller.worker, outcome, took);
    if deps.audit.enabled() {
        deps.audit.push(audit::audit_line(ctx, &draft, &verdict, took));
    }
    verdict
}

fn outcome(ctx: &ReviewContext<'_>, draft: &Draft<'_>, verdict: &Verdict) -> RequestOutcome {
    match draft.outcome {
        Some(outcome) => outcome,
        None if verdict.allowed() && ctx.bypass.skips_all() && ctx.bypass.is_bypass() => RequestOutcome::Bypassed,
        None if verdict.allowed() => RequestOutcome::Allowed,
        None if draft.is_initializer_denial || draft.calls.iter().any(CallRecord::is_denial) => RequestOutcome::Denied,
        None => RequestOutcome::Failed,
    }
}

/// Counts every dropped annotation, and logs at most one line a second for each hook.
fn report_dropped(calls: &[CallRecord<'_>], dropped: &[DroppedAnnotations]) {
    for DroppedAnnotations { call, cause, count } in dropped {
        let Some(decider) = calls.get(*call).map(|call| call.decider) else { continue };
        let Some(metrics) = decider.metrics() else { continue };
        metrics.annotations_dropped(*cause, *count as u64);
        if let Some(suppressed) = metrics.dropped_log_permit() {
            let (hook, cause) = (decider.name(), cause.as_str());
            tracing::warn!(%hook, cause, count, suppressed, "dropped audit annotations of an answer");
        }
    }
}
