//! Shadow: hooks and policies with the enforcement `Shadow` decide after the verdict, and their decisions are counted.
//! The hook or policy of a canary pair that did not decide the verdict is called in the same way.
//!
//! A [`ShadowReview`] is made with the verdict of an allowed request, from the same shared bytes, and started by
//! whoever has sent the verdict. It takes a slot and memory first. If there is none, the request is not decided in
//! shadow, and that is counted. Later it takes only memory and threads that other requests leave free. It waits for
//! nothing in the verdict's way: selectors, conditions and params are evaluated after the verdict, too. Mutating hooks
//! and policies decide about the object as it arrived, each by itself, and their patches are dropped; validating ones
//! about the object of the verdict.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::{
    canary,
    comparison::Compared,
    context::{AdmissionDeps, Caller, Reasons, ReviewContext},
    draft::Draft,
    object::PatchedObject,
    policies,
    round::{self, Until},
    select, validate,
};
use crate::{live::GenerationGuard, telemetry::ShadowDrop};
use gatepost_api::{HookType, Review};
use gatepost_base::memory::{Purpose, Reservation};

/// Approximate memory of such a request besides its bytes: its task, and its calls of a few hooks.
const OVERHEAD: usize = 8 << 10;

/// An allowed request that hooks or policies in shadow are to decide.
#[derive(Debug)]
pub struct ShadowReview {
    deps: Arc<AdmissionDeps>,
    review: Review,
    caller: Caller,
    generation: GenerationGuard,
    /// The object of the verdict, if something has changed it.
    object: Option<Arc<PatchedObject>>,
    /// Decisions of canary pairs in the verdict.
    verdict: Compared,
    _slot: OwnedSemaphorePermit,
    _room: Reservation,
}

impl ShadowReview {
    /// Takes the inputs of the decision; `None` if nothing in shadow has a rule for the request, or if there is no
    /// memory.
    pub(super) fn of(
        deps: &Arc<AdmissionDeps>,
        review: &Review,
        caller: &Caller,
        generation: GenerationGuard,
        (object, verdict): (Option<Arc<PatchedObject>>, Compared),
    ) -> Option<Self> {
        if !generation.snapshot.has_shadows()
            || !is_decided(&ReviewContext::of(deps, review, caller, &generation, Some(&verdict)))
        {
            return None;
        }
        let Some(slot) = deps.shadow_slots.try_take() else {
            deps.metrics.record_shadow_drop(ShadowDrop::Slots);
            return None;
        };
        let mut room = deps.memory.empty(Purpose::Queue);
        if !room.try_grow_spare(review.bytes.len() + OVERHEAD) {
            deps.metrics.record_shadow_drop(ShadowDrop::Memory);
            return None;
        }
        Some(Self {
            deps: Arc::clone(deps),
            review: review.clone(),
            caller: caller.clone(),
            generation,
            object,
            verdict,
            _slot: slot,
            _room: room,
        })
    }

    /// Lets everything in shadow decide, until the request's deadline: after it, a generation has no requests. Call
    /// this once the verdict is sent. Dropping the future cancels the calls still running.
    pub async fn run(self) {
        let Self { deps, review, caller, generation, object, verdict, _slot, _room } = self;
        let ctx = ReviewContext::of(&deps, &review, &caller, &generation, Some(&verdict));
        let draft = |object| Draft { skips_hooks: ctx.bypass.skips_all(), object, ..Draft::default() };
        let mutating = async {
            let mut draft = draft(None);
            let _ = policies::mutate(&ctx, &mut draft).await;
            call_hooks(&ctx, &mut draft, HookType::Mutating).await;
            canary::decisions(&ctx, &mut draft)
        };
        let validating = async {
            let mut draft = draft(object);
            let _ = policies::validate(&ctx, &mut draft).await;
            call_hooks(&ctx, &mut draft, HookType::Validating).await;
            canary::decisions(&ctx, &mut draft)
        };
        let (mut decisions, validating) = tokio::join!(mutating, validating);
        decisions.add_all(validating);
        canary::compare(&ctx, &verdict, &decisions);
    }
}

/// Returns true if a hook or policy in shadow has a rule for the request.
fn is_decided(ctx: &ReviewContext<'_>) -> bool {
    let any_hook = |hook_type| ctx.calls(hook_type) && !select::matching(ctx, hook_type).is_empty();
    !ctx.bypass.skips_all()
        && (any_hook(HookType::Mutating) || any_hook(HookType::Validating) || policies::any_match(ctx))
}

/// Calls the hooks of this type in shadow, all concurrently. They are counted as they end.
async fn call_hooks<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>, hook_type: HookType) {
    if !ctx.calls(hook_type) || draft.skips_hooks {
        return;
    }
    let object = draft.object.clone();
    let review = ctx.current_review(object.as_ref());
    // Hooks that do not enforce never reject the request at their selection.
    let Ok(selected) = validate::selected(ctx, review, hook_type).await else {
        return canary::add_unknown_hooks(&mut draft.compared, ctx, hook_type);
    };
    selected.conclude(ctx, draft, usize::MAX);
    let calls = round::call_hooks(ctx, &selected.hooks, review, Until::Rejected(Reasons::All)).await;
    draft.add_all(calls);
}
