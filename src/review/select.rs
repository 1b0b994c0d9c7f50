//! Selection: the hooks to call, by rules, then selectors, then conditions. Source:
//! `docs/reference/webhook-semantics.md` §4.
//!
//! [`resolve`] fetches and evaluates the inputs of the decision. [`role`] then decides the role of one hook without
//! waiting. `resolve` calls `role` too, to stop at the first hook that rejects the request.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    canary,
    conditions::{ConditionsResult, Inputs},
    context::{ReviewContext, ServedView},
    draft::Draft,
    facts::{Facts, Missing},
    failure::{self, UnknownSelection},
    rejection::{self, StatusError},
    versions,
};
use crate::{
    live::{LiveHook, Rotation},
    telemetry::UnmetConditions,
};
use gatepost_api::{CallFailure, HookType, Review, RuleTarget, Served, registration::Segment};
use gatepost_cel::Condition;
use gatepost_config::{Match, MatchKind, MatchSet, WantedVersion};

/// A hook to be called.
#[derive(Debug)]
pub(super) struct SelectedHook<'a> {
    pub(super) live: &'a LiveHook,
    /// Reason why it cannot be called for this request; its failure policy then applies.
    pub(super) unable: Option<Box<CallFailure>>,
    /// True if a bypass makes it fail open, regardless of its failure policy.
    pub(super) fail_open_override: bool,
    /// True if it may want the request in another version, and discovery does not know the resource yet.
    pub(super) is_undiscovered: bool,
    /// Its index in the result of [`matching`], which is not its index in the snapshot. [`Selection::add`] sets it.
    pub(super) at: usize,
}

/// A hook that is not called because of its conditions, and their result.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnmetHook<'a>(&'a LiveHook, UnmetConditions);

impl UnmetHook<'_> {
    fn count(self) {
        self.0.metrics.conditions_unmet(self.1);
    }
}

/// Role of one hook in a request.
pub(super) enum Role<'a> {
    /// It is not called.
    None,
    /// It is not called, because of its conditions.
    Unmet(UnmetHook<'a>),
    /// It is not called, as break-glass is open for it.
    BreakGlass,
    /// It is not called, as it has not passed its probe yet. The verdict names it.
    Unproven(&'a LiveHook),
    /// It is called.
    Selected(SelectedHook<'a>),
}

/// Hooks of a phase, or of a batch of it, by role. Every index here is one in the result of [`matching`].
#[derive(Debug, Default)]
pub(super) struct Selection<'a> {
    /// Hooks to call.
    pub(super) hooks: SmallVec<[SelectedHook<'a>; 16]>,
    /// Hooks that have not passed their probe, with their indexes.
    unproven: SmallVec<[(usize, &'a LiveHook); 2]>,
    /// Hooks that are not called because of their conditions, with their indexes.
    unmet: SmallVec<[(usize, UnmetHook<'a>); 4]>,
    /// Index of the first hook that break-glass skips.
    break_glass_at: Option<usize>,
}

impl<'a> Selection<'a> {
    pub(super) fn add(&mut self, at: usize, role: Role<'a>) {
        match role {
            Role::None => {}
            Role::Unmet(unmet) => self.unmet.push((at, unmet)),
            Role::BreakGlass => self.break_glass_at = self.break_glass_at.or(Some(at)),
            Role::Unproven(live) => self.unproven.push((at, live)),
            Role::Selected(hook) => self.hooks.push(SelectedHook { at, ..hook }),
        }
    }

    /// Counts hooks before index `end` that are not called because of their conditions. Must be called once that is
    /// final.
    pub(super) fn count_unmet(&self, end: usize) {
        self.unmet.iter().filter(|(at, _)| *at < end).for_each(|(_, unmet)| unmet.count());
    }

    /// Records the hooks before index `end` that are not called: in the draft those that the verdict names, in the
    /// metrics those that are only counted.
    pub(super) fn conclude(&self, ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>, end: usize) {
        self.count_unmet(end);
        draft.break_glass_applied |= self.break_glass_at.is_some_and(|at| at < end);
        self.unproven.iter().filter(|(at, _)| *at < end).for_each(|(_, live)| draft.add_unproven(ctx, live));
    }
}

/// Rejection of a request because it cannot be decided whether a hook is called.
pub(super) struct SelectionError<'a> {
    refusal: StatusError,
    /// The hook whose conditions failed, if that is the reason.
    unmet: Option<UnmetHook<'a>>,
}

impl SelectionError<'_> {
    /// Counts the failed conditions, and returns the rejection.
    pub(super) fn count(self) -> StatusError {
        self.unmet.into_iter().for_each(UnmetHook::count);
        self.refusal
    }
}

impl From<StatusError> for SelectionError<'_> {
    fn from(refusal: StatusError) -> Self {
        Self { refusal, unmet: None }
    }
}

/// Returns the hooks of this type whose rules match the request, in configuration order.
pub(super) fn matching(ctx: &ReviewContext<'_>, hook_type: HookType) -> MatchSet {
    let ReviewContext { generation, review, caller, .. } = ctx;
    let (snapshot, mut matching) = (&generation.snapshot, MatchSet::new());
    if !snapshot.has(hook_type) {
        return matching;
    }
    let served = ctx.served();
    snapshot.matching(review, served.as_ref().map(ServedView::served), &mut matching);
    let segment = caller.segment.filter(|_| hook_type == HookType::Mutating);
    matching.retain(|matched| {
        let in_segment =
            |segment: Segment| snapshot.segment(matched.index).is_none_or(|own| segment.calls(own.number, own.of));
        let live = generation.hooks.get(matched.index as usize);
        live.is_some_and(|live| live.hook.hook_type == hook_type && canary::hook_is_due(ctx, live))
            && segment.is_none_or(in_segment)
    });
    matching
}

/// Fetches and evaluates the facts that determine the roles of these hooks. Conditions of hooks `behind` them that may
/// need an access check or a large object are evaluated together with theirs.
pub(super) async fn resolve(facts: &mut Facts<'_, '_>, hooks: &[Match], behind: &[Match]) {
    for matched in hooks {
        while let Some(missing) = missing_labels(facts, *matched) {
            facts.fetch(missing).await;
        }
    }
    while !try_decide_conditions(facts, hooks) {
        prepare_conditions(facts, behind);
        facts.conditions.evaluate().await;
    }
}

/// Returns true if the role of this hook can be decided without waiting.
pub(super) fn is_resolved(facts: &mut Facts<'_, '_>, matched: Match) -> bool {
    missing_labels(facts, matched).is_none() && try_decide_conditions(facts, &[matched])
}

/// Returns labels that the hook's selectors need and that must be fetched.
fn missing_labels(facts: &Facts<'_, '_>, matched: Match) -> Option<Missing> {
    let live = candidate(facts, matched)?;
    let missing = facts.missing(&live.hook.namespace_selector, &live.hook.object_selector)?;
    // The apiserver gets no request for a hook that is not called.
    (missing == Missing::Objects || live.rotation.is_called()).then_some(missing)
}

/// Decides the conditions of these hooks without waiting, up to the first hook that rejects the request. Returns false
/// if some take too many steps or need an access check.
fn try_decide_conditions(facts: &mut Facts<'_, '_>, hooks: &[Match]) -> bool {
    let inputs = Inputs::default();
    for matched in hooks {
        let Some((live, conditions)) = conditions(facts, *matched) else { continue };
        facts.conditions.try_decide(&inputs, matched.index, live, conditions);
        if role(facts, *matched, None).is_err() {
            break;
        }
    }
    !facts.conditions.are_pending()
}

/// Decides or queues those conditions of later hooks that may need an access check or a large object.
fn prepare_conditions(facts: &mut Facts<'_, '_>, behind: &[Match]) {
    let inputs = Inputs::default();
    for matched in behind {
        if let Some((live, conditions)) = conditions(facts, *matched)
            && live.rotation.is_called()
            && facts.conditions.must_wait(conditions)
        {
            facts.conditions.try_decide(&inputs, matched.index, live, conditions);
        }
    }
}

/// Role of a hook before its selectors and conditions are evaluated.
enum PreliminaryRole<'a> {
    /// It is not called.
    None,
    /// It is not called, as break-glass is open for it.
    BreakGlass,
    /// Its selectors and conditions decide.
    Candidate(&'a LiveHook),
}

fn preliminary_role<'a>(facts: &Facts<'a, '_>, matched: Match) -> PreliminaryRole<'a> {
    let (ctx, review) = (facts.ctx, facts.review);
    let Some(live) = ctx.generation.hooks.get(matched.index as usize) else { return PreliminaryRole::None };
    if versions::is_for_other_review(ctx, &*live.hook, matched.how, review) || ctx.bypass.skips(&live.hook.name) {
        return PreliminaryRole::None;
    }
    match live.rotation {
        _ if ctx.bypass.break_glass_covers(&live.hook.name) => PreliminaryRole::BreakGlass,
        Rotation::Active { .. } | Rotation::Probing { .. } => PreliminaryRole::Candidate(live),
        Rotation::Draining { .. } | Rotation::Gone { .. } => PreliminaryRole::None,
    }
}

fn candidate<'a>(facts: &Facts<'a, '_>, matched: Match) -> Option<&'a LiveHook> {
    match preliminary_role(facts, matched) {
        PreliminaryRole::Candidate(live) => Some(live),
        PreliminaryRole::None | PreliminaryRole::BreakGlass => None,
    }
}

/// Returns the conditions that decide about this hook; `None` if something else decides.
fn conditions<'a>(facts: &Facts<'a, '_>, matched: Match) -> Option<(&'a LiveHook, &'a Arc<[Condition]>)> {
    let conditions = &facts.ctx.generation.snapshot.origin(matched.index)?.conditions;
    if conditions.is_empty() {
        return None;
    }
    let live = candidate(facts, matched)?;
    let is_decided = match live.rotation {
        // A hook that cannot be called in the version it wants has no object for its conditions either.
        Rotation::Active { .. } => matches!(matched.how, MatchKind::OtherVersion(_)),
        // No access check is made for a hook that is not called.
        _ => conditions.iter().any(Condition::uses_authorizer),
    };
    if is_decided {
        return None;
    }
    match facts.selects(&live.hook.namespace_selector, &live.hook.object_selector) {
        Ok(true) => Some((live, conditions)),
        Ok(false) => None,
        Err(error) => {
            let fail_open_override = facts.ctx.bypass.fails_open(&live.hook.name);
            let fails = matches!(failure::unknown_selection(error, fail_open_override), UnknownSelection::Fail(_));
            (fails && live.rotation.is_called()).then_some((live, conditions))
        }
    }
}

/// Returns the role of one hook whose rules match this request, after [`resolve`]. Does not wait. If it cannot be
/// decided whether a hook is called that does not enforce, its call fails.
///
/// # Errors
/// The request is rejected if the hook's selectors cannot be evaluated by a fault of the request (a namespace that does
/// not exist, an object that is not JSON), if its conditions fail and it does not fail open, or if the deadline has
/// passed. There is no error for a hook that a bypass skips or makes fail open.
pub(super) fn role<'a>(
    facts: &Facts<'a, '_>,
    matched: Match,
    served: Option<&Served>,
) -> Result<Role<'a>, SelectionError<'a>> {
    let live = match preliminary_role(facts, matched) {
        PreliminaryRole::None => return Ok(Role::None),
        PreliminaryRole::BreakGlass => return Ok(Role::BreakGlass),
        PreliminaryRole::Candidate(live) => live,
    };
    match candidate_role(facts, matched, served, live) {
        Err(SelectionError { refusal, .. }) if !facts.ctx.effective(live.hook.enforcement).denies() => {
            let unable = Some(Box::new(CallFailure::Evaluation(refusal)));
            let hook = SelectedHook { live, unable, fail_open_override: false, is_undiscovered: false, at: 0 };
            Ok(Role::Selected(hook))
        }
        role => role,
    }
}

fn candidate_role<'a>(
    facts: &Facts<'a, '_>,
    matched: Match,
    served: Option<&Served>,
    live: &'a LiveHook,
) -> Result<Role<'a>, SelectionError<'a>> {
    let selected = facts.selects(&live.hook.namespace_selector, &live.hook.object_selector);
    let conditions = facts.conditions.result(matched.index);
    if !live.rotation.is_called() {
        // A hook that is not called rejects nothing, even if its role cannot be decided.
        let would_be_called =
            matches!(selected, Ok(true)) && matches!(conditions, None | Some(ConditionsResult::Matches));
        return Ok(if would_be_called { Role::Unproven(live) } else { Role::None });
    }
    let fail_open_override = facts.ctx.bypass.fails_open(&live.hook.name);
    let unavailable = match selected {
        Ok(true) => None,
        Ok(false) => return Ok(Role::None),
        Err(error) => match failure::unknown_selection(error, fail_open_override) {
            UnknownSelection::Skip => return Ok(Role::None),
            UnknownSelection::Fail(failure) => Some(failure),
            UnknownSelection::Reject(refusal) => return Err(refusal.into()),
        },
    };
    match conditions {
        None | Some(ConditionsResult::Matches) => {}
        Some(ConditionsResult::Excluded) => return Ok(Role::Unmet(UnmetHook(live, UnmetConditions::False))),
        Some(ConditionsResult::Failed(why)) => {
            let unmet = UnmetHook(live, UnmetConditions::Error);
            return match failure::fails_open(live.hook.failure_policy, fail_open_override) {
                true => Ok(Role::Unmet(unmet)),
                false => {
                    let refusal = Box::new(rejection::conditions_failed(facts.review, why));
                    Err(SelectionError { refusal, unmet: Some(unmet) })
                }
            };
        }
        Some(ConditionsResult::OutOfTime(_)) if fail_open_override => return Ok(Role::None),
        Some(ConditionsResult::OutOfTime(refusal)) => return Err(refusal.clone().into()),
    }
    let made = RuleTarget::as_made(facts.review).resource;
    let is_undiscovered = matches!(matched.how, MatchKind::OtherVersion(WantedVersion::OfRule(_)))
        && served.is_some_and(|served| served.is_known_to_lack(&made.group, &made.resource));
    let unable = unable(live, matched.how, facts.review, served).or(unavailable);
    Ok(Role::Selected(SelectedHook { live, unable, fail_open_override, is_undiscovered, at: 0 }))
}

/// Returns the failure of a hook that wants another version. Upstream converts the object; a review has it in one
/// version only, so the hook cannot be called, and must not be skipped silently.
fn unable(live: &LiveHook, how: MatchKind, review: &Review, served: Option<&Served>) -> Option<Box<CallFailure>> {
    let MatchKind::OtherVersion(wanted) = how else { return None };
    let wanted = wanted.resource(&*live.hook, review, served).to_string();
    Some(Box::new(CallFailure::OtherVersion { wanted, got: review.resource.to_string() }))
}
