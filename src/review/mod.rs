//! The story of one review, from its arrival to its verdict.
//!
//! [`decide`] makes a [`ReviewContext`], which nothing changes any more, and a [`Draft`], to which the phases of
//! [`run`] add what they find. A phase is an `async fn(&ReviewContext, &mut Draft) -> Flow` in a file of its own: a new
//! one is that file, its `mod` and its line in [`run`].

mod attempt;
mod audit;
mod bypass;
mod conditions;
mod context;
mod draft;
mod facts;
mod failure;
mod initialize;
mod mutate;
mod object;
mod record;
mod rejection;
mod round;
mod select;
mod validate;
mod verdict;

use tracing::Instrument as _;

use self::{
    bypass::BypassDecision,
    conditions::Access,
    context::ReviewContext,
    draft::{Draft, Flow},
};
pub use self::{
    context::{AdmissionDeps, Caller, OtherVersions, Reasons, Speculation},
    initialize::{ObjectRead, ReadPolicy, head_rule, read_policy},
    record::{CallRecord, Change, Decider, Ending},
    verdict::{Combined, Dropped, combine},
};
use crate::telemetry::RequestOutcome;
use gatepost_api::{Review, Verdict, verdict::REVISION};
use gatepost_base::clock::now;

/// Decides one review, in one generation from beginning to end.
///
/// Every way out is a verdict: a denial, a closed failure and a refusal of our own differ in their status, and none of
/// them can be mistaken for "could not ask" by the caller's failure policy.
pub async fn decide(deps: &AdmissionDeps, review: &Review, caller: &Caller) -> Verdict {
    let began = now();
    // Asked before the generation is taken, which is then at least as new as what was asked about.
    let age = deps.current.freshness().age(began);
    let generation = &*deps.current.enter();
    let bypass = BypassDecision::of(generation, deps.break_glass.open(began), review);
    let access = Access::new(deps.authorizer.as_deref());
    let ctx = ReviewContext { deps, review, caller, began, age, generation, bypass, access };
    let deciding = async {
        let mut draft = Draft { skips_hooks: ctx.bypass.skips_all(), ..Draft::default() };
        let _ = run(&ctx, &mut draft).await;
        conclude(&ctx, draft)
    };
    deciding.instrument(ctx.span()).await
}

/// The phases of a review, in order.
async fn run<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>) -> Flow {
    bypass(ctx, draft)?;
    check_freshness(ctx, draft)?;
    initialize::find_stored_list(ctx, draft).await?;
    mutate::mutate(ctx, draft).await?;
    initialize::initialize(ctx, draft).await?;
    validate::validate(ctx, draft).await
}

/// Ends a review that skips all hooks, unless its object may be initialized all the same.
fn bypass(ctx: &ReviewContext<'_>, draft: &Draft<'_>) -> Flow {
    if draft.skips_hooks && !ctx.caller.stores_unfinished { Flow::Break(()) } else { Flow::Continue(()) }
}

/// Rejects the request where the configuration is too old, or is another than the one by which another segment of the
/// request may be decided. Neither counts where a bypass opens every hook.
fn check_freshness(ctx: &ReviewContext<'_>, draft: &mut Draft<'_>) -> Flow {
    let ReviewContext { deps, caller, age, bypass, .. } = ctx;
    if draft.skips_hooks || bypass.opens_everything() {
        return Flow::Continue(());
    }
    let trusted = deps.current.freshness().trusted_for();
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

/// The verdict that comes of the draft; one metrics record and one audit record. Neither waits.
fn conclude(ctx: &ReviewContext<'_>, mut draft: Draft<'_>) -> Verdict {
    let ReviewContext { deps, caller, began, generation, bypass, .. } = ctx;
    if draft.break_glass_applied {
        deps.metrics.record_break_glass();
    }
    draft.calls.iter_mut().for_each(CallRecord::count);
    let Combined { mut verdict, dropped } = combine(&draft.calls, deps.patch_annotations);
    report_dropped(&draft.calls, &dropped);
    initialize::report(&draft, &mut verdict);
    if let Some(refusal) = draft.refusal.take() {
        verdict.refusal = Some(*refusal);
    }
    if verdict.allowed() {
        verdict.patch = draft.object.as_ref().and_then(|object| object.difference.clone());
    }
    let outcome = outcome(ctx, &draft, &verdict);
    bypass.annotate(&deps.metrics, &mut verdict);
    if generation.number > 0 {
        // A hook by our own name does not get to say it.
        verdict.audit_annotations.retain(|(key, _)| key != REVISION);
        verdict.audit_annotations.push((REVISION.to_owned(), generation.revision.to_string()));
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

/// Every annotation that is left out is counted, and one line a second is logged for each hook.
fn report_dropped(calls: &[CallRecord<'_>], dropped: &[Dropped]) {
    for Dropped { call, cause, count } in dropped {
        let Some(decider) = calls.get(*call).map(|call| call.decider) else { continue };
        let Some(metrics) = decider.metrics() else { continue };
        metrics.annotations_dropped(*cause, *count as u64);
        if let Some(held_back) = metrics.may_log_dropped() {
            let (hook, cause) = (decider.name(), cause.as_str());
            tracing::warn!(%hook, cause, count, held_back, "dropped audit annotations of an answer");
        }
    }
}
