//! Selection: which hooks are asked: rules, then selectors, then conditions. Source: `docs/reference/webhook-semantics.md`
//! §4.
//!
//! [`resolve`] finds out first what decides about the hooks; [`role`] then says of each what its part is, and waits for
//! nothing.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    conditions::{ConditionsResult, Inputs},
    context::{OtherVersions, ReviewContext},
    draft::Draft,
    facts::{Facts, Missing},
    failure::{self, UnknownSelection},
    rejection::{self, StatusError},
};
use crate::{
    live::{LiveHook, Rotation, discovery::DiscoveryView},
    telemetry::UnmetConditions,
};
use gatepost_api::{CallFailure, HookType, Review, RuleTarget, Served, registration::Segment};
use gatepost_cel::Condition;
use gatepost_config::{HookSet, How, Matched, WantedVersion};

/// A hook that is to be asked.
#[derive(Debug)]
pub(super) struct SelectedHook<'a> {
    pub(super) live: &'a LiveHook,
    /// Reason why it cannot be asked about this request after all; its failure policy decides the outcome.
    pub(super) unable: Option<Box<CallFailure>>,
    /// A bypass passes it over where it cannot answer, whatever its failure policy.
    pub(super) fail_open_override: bool,
    /// It may mean the request in another version, and the cluster's word about this resource is older than the hook.
    pub(super) is_undiscovered: bool,
    /// Its place among the hooks that match.
    pub(super) at: usize,
}

/// A hook that its conditions leave out of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnmetHook<'a>(&'a LiveHook, UnmetConditions);

impl UnmetHook<'_> {
    fn count(self) {
        self.0.metrics.conditions_unmet(self.1);
    }
}

/// The part of one hook in a request.
pub(super) enum Role<'a> {
    /// It has none.
    None,
    /// It has none, by its conditions.
    Unmet(UnmetHook<'a>),
    /// It has none, as break-glass is open for it.
    BreakGlass,
    /// It has not passed its probe yet, and is only named.
    Unproven(&'a LiveHook),
    /// It is asked.
    Asked(SelectedHook<'a>),
}

/// Hooks of a phase, or of a part of it, by their roles; each with its place among those that match.
#[derive(Debug, Default)]
pub(super) struct Selection<'a> {
    /// To be asked.
    pub(super) hooks: SmallVec<[SelectedHook<'a>; 16]>,
    unproven: SmallVec<[(usize, &'a LiveHook); 2]>,
    unmet: SmallVec<[(usize, UnmetHook<'a>); 4]>,
    /// The first place at which break-glass leaves a hook out.
    break_glass_at: Option<usize>,
}

impl<'a> Selection<'a> {
    pub(super) fn add(&mut self, at: usize, role: Role<'a>) {
        match role {
            Role::None => {}
            Role::Unmet(unmet) => self.unmet.push((at, unmet)),
            Role::BreakGlass => self.break_glass_at = self.break_glass_at.or(Some(at)),
            Role::Unproven(live) => self.unproven.push((at, live)),
            Role::Asked(hook) => self.hooks.push(SelectedHook { at, ..hook }),
        }
    }

    /// Counts hooks before this place that their conditions leave out, once nothing can change that any more.
    pub(super) fn count_unmet(&self, end: usize) {
        self.unmet.iter().filter(|(at, _)| *at < end).for_each(|(_, unmet)| unmet.count());
    }

    /// Names hooks before this place that are only named, and counts those that are only counted.
    pub(super) fn conclude(&self, ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>, end: usize) {
        self.count_unmet(end);
        draft.break_glass_applied |= self.break_glass_at.is_some_and(|at| at < end);
        self.unproven.iter().filter(|(at, _)| *at < end).for_each(|(_, live)| draft.add_unproven(ctx, live));
    }
}

/// Rejection of a request as it cannot be decided whether a hook is asked.
pub(super) struct SelectionError<'a> {
    refusal: StatusError,
    /// The hook whose conditions have no value, where that rejects the request.
    unmet: Option<UnmetHook<'a>>,
}

impl SelectionError<'_> {
    /// The rejection, which counts now.
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

/// The hooks of that type whose rules mean this request, in configuration order.
pub(super) fn matching(ctx: &ReviewContext<'_>, hook_type: HookType) -> HookSet {
    let ReviewContext { generation, review, caller, .. } = ctx;
    let (snapshot, mut matching) = (&generation.snapshot, HookSet::new());
    if !snapshot.has(hook_type) {
        return matching;
    }
    let served = ctx.served();
    snapshot.matching_where(review, served.as_ref().map(DiscoveryView::served), &mut matching);
    let segment = caller.segment.filter(|_| hook_type == HookType::Mutating);
    matching.retain(|matched| {
        let in_segment =
            |segment: Segment| snapshot.segment(matched.hook).is_none_or(|own| segment.asks(own.number, own.of));
        let live = generation.hooks.get(matched.hook as usize);
        live.is_some_and(|live| live.hook.hook_type == hook_type) && segment.is_none_or(in_segment)
    });
    matching
}

/// Finds out what decides about these hooks. What hooks `behind` them would have to wait for in any case is found out
/// with it.
pub(super) async fn resolve(facts: &mut Facts<'_, '_>, hooks: &[Matched], behind: &[Matched]) {
    for matched in hooks {
        while let Some(missing) = missing_labels(facts, *matched) {
            facts.fetch(missing).await;
        }
    }
    while !decide_conditions(facts, hooks) {
        prepare_conditions(facts, behind);
        facts.conditions.evaluate().await;
    }
}

/// Is all at hand that decides about this hook?
pub(super) fn is_resolved(facts: &mut Facts<'_, '_>, matched: Matched) -> bool {
    missing_labels(facts, matched).is_none() && decide_conditions(facts, &[matched])
}

/// Labels that the hook's selectors need and that are not at hand.
fn missing_labels(facts: &Facts<'_, '_>, matched: Matched) -> Option<Missing> {
    let live = candidate(facts, matched)?;
    let missing = facts.missing(&live.hook.namespace_selector, &live.hook.object_selector)?;
    // The apiserver is not asked for a hook that is only named.
    (missing == Missing::Objects || live.rotation.asks()).then_some(missing)
}

/// Decides the conditions of these hooks, up to the first that rejects the request by them; false where some take longer,
/// or need an access check.
fn decide_conditions(facts: &mut Facts<'_, '_>, hooks: &[Matched]) -> bool {
    let inputs = Inputs::default();
    for matched in hooks {
        let Some((live, conditions)) = conditions(facts, *matched) else { continue };
        facts.conditions.decide(&inputs, matched.hook, live, conditions);
        if role(facts, *matched, None).is_err() {
            break;
        }
    }
    !facts.conditions.are_pending()
}

/// Has those conditions of hooks that come later evaluated now which must be waited for in any case.
fn prepare_conditions(facts: &mut Facts<'_, '_>, behind: &[Matched]) {
    let inputs = Inputs::default();
    for matched in behind {
        if let Some((live, conditions)) = conditions(facts, *matched)
            && live.rotation.asks()
            && facts.conditions.must_wait(conditions)
        {
            facts.conditions.decide(&inputs, matched.hook, live, conditions);
        }
    }
}

/// Part of a hook whatever its selectors and conditions say.
enum Standing<'a> {
    /// It has none.
    None,
    /// It has none, as break-glass is open for it.
    BreakGlass,
    /// Its selectors and conditions decide.
    Candidate(&'a LiveHook),
}

fn standing<'a>(facts: &Facts<'a, '_>, matched: Matched) -> Standing<'a> {
    let (ctx, review) = (facts.ctx, facts.review);
    let Some(live) = ctx.generation.hooks.get(matched.hook as usize) else { return Standing::None };
    let apart = ctx.caller.other_versions == OtherVersions::AskedApart;
    if apart && is_asked_elsewhere(live, matched.how, review) || ctx.bypass.skips(&live.hook.name) {
        return Standing::None;
    }
    match live.rotation {
        _ if ctx.bypass.break_glass_covers(&live.hook.name) => Standing::BreakGlass,
        Rotation::Active { .. } | Rotation::Probing { .. } => Standing::Candidate(live),
        Rotation::Draining { .. } | Rotation::Gone { .. } => Standing::None,
    }
}

fn candidate<'a>(facts: &Facts<'a, '_>, matched: Matched) -> Option<&'a LiveHook> {
    match standing(facts, matched) {
        Standing::Candidate(live) => Some(live),
        Standing::None | Standing::BreakGlass => None,
    }
}

/// Conditions that decide about this hook, as its selectors do not.
fn conditions<'a>(facts: &Facts<'a, '_>, matched: Matched) -> Option<(&'a LiveHook, &'a Arc<[Condition]>)> {
    let conditions = &facts.ctx.generation.snapshot.origin(matched.hook)?.conditions;
    if conditions.is_empty() {
        return None;
    }
    let live = candidate(facts, matched)?;
    let is_decided = match live.rotation {
        // A hook that cannot be asked in the version it wants has no object to hold against its conditions either.
        Rotation::Active { .. } => matches!(matched.how, How::OtherVersion(_)),
        // No access check is made for a hook that is only named.
        _ => conditions.iter().any(Condition::asks_authorizer),
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
            (fails && live.rotation.asks()).then_some((live, conditions))
        }
    }
}

/// The part of one hook whose rules mean this request, once [`resolve`] has found out what decides about it. Pure.
///
/// # Errors
/// An error in deciding it (a namespace that does not exist, an object that is not JSON) rejects the request, whatever
/// the hook's failure policy, unless a bypass opens the hook. A hook that a bypass skips is not looked at.
pub(super) fn role<'a>(
    facts: &Facts<'a, '_>,
    matched: Matched,
    served: Option<&Served>,
) -> Result<Role<'a>, SelectionError<'a>> {
    let live = match standing(facts, matched) {
        Standing::None => return Ok(Role::None),
        Standing::BreakGlass => return Ok(Role::BreakGlass),
        Standing::Candidate(live) => live,
    };
    let selected = facts.selects(&live.hook.namespace_selector, &live.hook.object_selector);
    let conditions = facts.conditions.result(matched.hook);
    if !live.rotation.asks() {
        // A hook that is not asked rejects nothing, not even by an error in deciding it.
        let may_be_asked = matches!(selected, Ok(true)) && matches!(conditions, None | Some(ConditionsResult::Asked));
        return Ok(if may_be_asked { Role::Unproven(live) } else { Role::None });
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
        None | Some(ConditionsResult::Asked) => {}
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
        Some(ConditionsResult::Refused(_)) if fail_open_override => return Ok(Role::None),
        Some(ConditionsResult::Refused(refusal)) => return Err(refusal.clone().into()),
    }
    let made = RuleTarget::as_made(facts.review).resource;
    let is_undiscovered = matches!(matched.how, How::OtherVersion(WantedVersion::OfRule(_)))
        && served.is_some_and(|served| served.is_older_than(&made.group, &made.resource));
    let unable = unable(live, matched.how, facts.review, served).or(unavailable);
    Ok(Role::Asked(SelectedHook { live, unable, fail_open_override, is_undiscovered, at: 0 }))
}

/// Does the caller ask this hook by another review? One in a version that it takes; or, where it takes the request as
/// its client made it and this review is converted, the one that is not.
fn is_asked_elsewhere(live: &LiveHook, how: How, review: &Review) -> bool {
    match how {
        How::AsMade => false,
        How::AsSent => live.hook.rules.iter().any(|rule| rule.matches(&RuleTarget::as_made(review))),
        How::OtherVersion(_) => true,
    }
}

/// Upstream converts the object for a hook that wants another version; a review holds it in one only, so such a hook
/// cannot be asked, and must not be passed over in silence either.
fn unable(live: &LiveHook, how: How, review: &Review, served: Option<&Served>) -> Option<Box<CallFailure>> {
    let How::OtherVersion(wanted) = how else { return None };
    let wanted = wanted.resource(&live.hook, review, served).to_string();
    Some(Box::new(CallFailure::OtherVersion { wanted, got: review.resource.to_string() }))
}
