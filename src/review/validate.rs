//! Validation: the phase of the hooks that may only allow or deny.
//!
//! All are called together, but for transactional ones: these keep accounts, such as quotas. They are called after the
//! others, one by one, and only while nothing has rejected the request.

use super::{
    context::{ReviewContext, ServedView},
    draft::{Draft, Flow},
    facts::Facts,
    object_encoding, rejection,
    round::{self, Until},
    select::{self, Selection, SelectionError},
};
use gatepost_api::{HookType, Review};
use gatepost_config::Match;

/// Calls the validating hooks that match this request.
pub(super) async fn validate<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>) -> Flow {
    if draft.skips_hooks || !ctx.validates() {
        return Flow::Continue(());
    }
    let object = draft.object.clone();
    let review = ctx.current_review(object.as_ref());
    let selected = selected(ctx, review, HookType::Validating).await;
    // Discovery may have become newer meanwhile, so that more hooks match.
    object_encoding::check_readers(ctx, draft)?;
    let selected = match selected {
        Ok(selected) => selected,
        Err(error) => return draft.refuse(error.count()),
    };
    selected.conclude(ctx, draft, usize::MAX);
    let mut hooks = selected.hooks;
    if hooks.iter().any(|hook| hook.live.hook.is_transactional) {
        // Stable: both parts stay in configuration order.
        hooks.sort_by_key(|hook| hook.live.hook.is_transactional);
    }
    let mut called = 0;
    while called < hooks.len() {
        let left = &hooks[called..];
        let enforces = left.iter().any(|hook| hook.live.hook.enforcement.denies());
        if enforces && ctx.is_out_of_time() && !ctx.bypass.all_fail_open() {
            return draft.refuse(Box::new(rejection::out_of_time()));
        }
        let together = left.partition_point(|hook| !hook.live.hook.is_transactional).max(1);
        let mut calls = round::call_hooks(ctx, &left[..together], review, Until::Rejected(ctx.deps.reasons)).await;
        calls.iter_mut().zip(called..).for_each(|(call, index)| call.index = index);
        called += calls.len();
        draft.add_all(calls);
        draft.flow()?;
    }
    Flow::Continue(())
}

/// Returns the hooks of this type to call for this state of the object, in configuration order. Waits only for
/// [`select::resolve`], and for a refresh of discovery if it does not know the resource yet.
pub(super) async fn selected<'a>(
    ctx: &'a ReviewContext<'a>,
    review: &Review,
    hook_type: HookType,
) -> Result<Selection<'a>, SelectionError<'a>> {
    let mut facts = Facts::new(ctx, review, None);
    let matching = select::matching(ctx, hook_type);
    select::resolve(&mut facts, &matching, &[]).await;
    let selected = select(&facts, &matching)?;
    if !selected.hooks.iter().any(|hook| hook.is_undiscovered) {
        return Ok(selected);
    }
    ctx.refresh_discovery().await;
    let matching = select::matching(ctx, hook_type);
    select::resolve(&mut facts, &matching, &[]).await;
    select(&facts, &matching)
}

/// Decides every hook before any is called.
fn select<'a>(facts: &Facts<'a, '_>, matching: &[Match]) -> Result<Selection<'a>, SelectionError<'a>> {
    let served = facts.ctx.served();
    let mut selected = Selection::default();
    for (at, matched) in matching.iter().enumerate() {
        match select::role(facts, *matched, served.as_ref().map(ServedView::served)) {
            Ok(role) => selected.add(at, role),
            Err(error) => {
                selected.count_unmet(at);
                return Err(error);
            }
        }
    }
    Ok(selected)
}
