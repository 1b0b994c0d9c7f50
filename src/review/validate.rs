//! Validation: the phase of the hooks that may only say no.

use smallvec::SmallVec;

use super::{
    context::ReviewContext,
    draft::{Draft, Flow},
    facts::Facts,
    round::{self, Until},
    select::{self, Role, SelectedHook, SelectionError, UnmetHook},
    status,
};
use crate::{
    live::{LiveHook, discovery::DiscoveryView},
    model::{HookType, Review},
    snapshot::HookSet,
};

/// The validating hooks that a request is for, in configuration order.
#[derive(Debug, Default)]
struct Selected<'a> {
    /// To be asked.
    hooks: SmallVec<[SelectedHook<'a>; 16]>,
    /// Still being probed: only named in the verdict.
    unproven: SmallVec<[&'a LiveHook; 2]>,
    /// Left out by their conditions: only counted.
    unmet: SmallVec<[UnmetHook<'a>; 4]>,
    /// A hook that a rule would have matched is left out, as break-glass is open for it.
    break_glass_applied: bool,
    /// A hook may mean the request in another version, and the cluster's word about this resource is older than it.
    is_undiscovered: bool,
}

/// Asks the validating hooks that this request is for, all at once.
pub(super) async fn validate<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>) -> Flow {
    if draft.skips_hooks || !ctx.validates() {
        return Flow::Continue(());
    }
    let object = draft.object.clone();
    let review = ctx.about(object.as_ref());
    let selected = match selected(ctx, review).await {
        Ok(selected) => selected,
        Err(error) => return draft.refuse(error.count()),
    };
    selected.unmet.iter().for_each(|unmet| unmet.count());
    selected.unproven.iter().for_each(|live| draft.add_unproven(ctx, live));
    draft.break_glass_applied |= selected.break_glass_applied;
    if selected.hooks.is_empty() {
        return Flow::Continue(());
    }
    if ctx.is_out_of_time() && !ctx.bypass.opens_everything() {
        return draft.refuse(Box::new(status::out_of_time()));
    }
    let mut calls = round::ask(ctx, &selected.hooks, review, Until::Rejected(ctx.deps.reasons)).await;
    calls.iter_mut().enumerate().for_each(|(index, call)| call.index = index);
    draft.add_all(calls);
    draft.flow()
}

/// The validating hooks this request is for. Waits only for what [`select::resolve`] waits for, and for a resource that
/// the cluster has just got.
async fn selected<'a>(ctx: &'a ReviewContext<'a>, review: &Review) -> Result<Selected<'a>, SelectionError<'a>> {
    let mut facts = Facts::new(ctx, review, None);
    let mut matching = select::matching(ctx, HookType::Validating);
    select::resolve(&mut facts, &matching, &[]).await;
    let selected = select(ctx, &facts, &matching)?;
    if !selected.is_undiscovered {
        return Ok(selected);
    }
    ctx.refresh_discovery().await;
    matching = select::matching(ctx, HookType::Validating);
    select::resolve(&mut facts, &matching, &[]).await;
    select(ctx, &facts, &matching)
}

/// Every hook is decided before any is called.
fn select<'a>(
    ctx: &'a ReviewContext<'a>,
    facts: &Facts<'a, '_>,
    matching: &HookSet,
) -> Result<Selected<'a>, SelectionError<'a>> {
    let served = ctx.served();
    let served = served.as_ref().map(DiscoveryView::served);
    let mut selected = Selected::default();
    for matched in matching {
        match select::role(facts, *matched, served) {
            Ok(Role::None) => {}
            Ok(Role::Unmet(unmet)) => selected.unmet.push(unmet),
            Ok(Role::BreakGlass) => selected.break_glass_applied = true,
            Ok(Role::Unproven(live)) => selected.unproven.push(live),
            Ok(Role::Asked { hook, is_undiscovered }) => {
                selected.is_undiscovered |= is_undiscovered;
                selected.hooks.push(hook);
            }
            Err(error) => {
                selected.unmet.iter().for_each(|unmet| unmet.count());
                return Err(error);
            }
        }
    }
    Ok(selected)
}
