//! Which hooks are asked: rules, then selectors, then conditions. Source: `docs/reference/webhook-semantics.md` §4.

use smallvec::SmallVec;

use super::{
    bypass_decision::BypassDecision,
    caller::{Caller, OtherVersions},
    conditions::{ConditionsResult, Judge},
    lookup::{Lookup, LookupError},
    status,
};
use crate::{
    cel::Condition,
    live::{Generation, LiveHook, Rotation},
    model::{CallFailure, FailurePolicy, HookType, Review, RuleTarget, Served},
    snapshot::{HookSet, How, Matched, WantedVersion},
    telemetry::UnmetConditions,
};

/// A hook that has a say in a request.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) live: &'a LiveHook,
    /// Reason why it cannot be asked about this request after all; its failure policy decides the outcome.
    pub(super) unable: Option<Box<CallFailure>>,
    /// A bypass passes it over where it cannot answer, whatever its failure policy.
    pub(super) opened: bool,
}

/// The hooks a request is for, in configuration order.
#[derive(Debug, Default)]
pub(super) struct Selected<'a> {
    /// In rotation: to be asked.
    pub(super) asked: SmallVec<[Asked<'a>; 16]>,
    /// Still being probed: only named in the verdict.
    pub(super) probing: SmallVec<[&'a LiveHook; 2]>,
    /// Left out by their conditions: only counted.
    unmet: SmallVec<[Unmet<'a>; 4]>,
    /// A hook that a rule would have matched is left out, as break-glass is open for it.
    pub(super) broken: bool,
    /// A hook may mean the request in another version, and the cluster's word about this resource is older than it.
    pub(super) undiscovered: bool,
}

/// One review on the way to its hooks: all that says which of them are asked.
#[derive(Clone, Copy)]
pub(super) struct Selection<'a, 'r> {
    pub(super) generation: &'a Generation,
    pub(super) bypass: &'r BypassDecision<'r>,
    pub(super) review: &'r Review,
    pub(super) caller: &'r Caller,
    pub(super) served: Option<&'r Served>,
}

/// A hook that its conditions leave out of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unmet<'a>(&'a LiveHook, UnmetConditions);

impl Unmet<'_> {
    /// Counts it, once nothing can change that any more.
    pub(super) fn count(self) {
        self.0.metrics.conditions_unmet(self.1);
    }
}

/// The place of one hook in a request.
pub(super) enum Role<'a> {
    /// It has none.
    None,
    /// It has none, by its conditions.
    Unmet(Unmet<'a>),
    /// It has none, as break-glass is open for it.
    Broken,
    /// It is still being probed, and is only named.
    Probing(&'a LiveHook),
    /// It is asked; `true`: it may mean the request in another version, and the cluster's word about this resource is
    /// older than the hook.
    Asked(Asked<'a>, bool),
}

impl<'a> Selection<'a, '_> {
    /// The hooks of that type whose rules mean this request, in configuration order.
    pub(super) fn matching(&self, hook_type: HookType) -> HookSet {
        let mut matching = HookSet::new();
        self.generation.snapshot.matching_where(self.review, self.served, &mut matching);
        let of_type = |matched: &mut Matched| {
            let live = self.generation.hooks.get(matched.hook as usize);
            live.is_some_and(|live| live.hook.hook_type == hook_type)
        };
        matching.retain(of_type);
        matching
    }

    /// The place of one hook whose rules mean this request.
    ///
    /// # Errors
    /// An error in deciding it (a namespace that does not exist, an object that is not JSON) rejects the request,
    /// whatever the hook's failure policy, unless a bypass opens the hook. Of a namespace that the apiserver does not tell
    /// us about the failure policy decides. A hook that a bypass skips is not looked at. One whose conditions are still to be evaluated
    /// ([`Conditions::has_slow`](super::conditions::Conditions::has_slow)) has no place yet.
    pub(super) fn role(
        &self,
        lookup: &Lookup<'_>,
        judge: &Judge<'_>,
        matched: Matched,
    ) -> Result<Role<'a>, LookupError> {
        let Self { generation, bypass, review, caller, served } = *self;
        judge.rejected_by(None);
        let Some(live) = generation.hooks.get(matched.hook as usize) else { return Ok(Role::None) };
        let apart = caller.other_versions == OtherVersions::AskedApart;
        if apart && is_asked_elsewhere(live, matched.how, review) || bypass.skips(&live.hook.name) {
            return Ok(Role::None);
        }
        if bypass.break_glass_covers(&live.hook.name) {
            return Ok(Role::Broken);
        }
        let opened = bypass.fails_open(&live.hook.name);
        match live.rotation {
            Rotation::Active { .. } => {
                let unavailable = match lookup.selects(live) {
                    Ok(true) => None,
                    Ok(false) => return Ok(Role::None),
                    // Where it cannot be said of one that is opened, it is passed over.
                    Err(LookupError::Refused(_) | LookupError::Unavailable(_)) if opened => return Ok(Role::None),
                    Err(LookupError::Unavailable(why)) => Some(Box::new(CallFailure::NamespaceUnavailable(why))),
                    Err(error) => return Err(error),
                };
                let made = RuleTarget::as_made(review).resource;
                let is_newer = || served.is_some_and(|served| served.is_older_than(&made.group, &made.resource));
                let unable = unable(live, matched.how, review, served);
                // A hook that cannot be asked in the version it wants has no object to hold against its conditions
                // either.
                if unable.is_none()
                    && let Some(role) = unmet_conditions(generation, judge, review, matched.hook, live, opened)?
                {
                    return Ok(role);
                }
                let undiscovered = matches!(matched.how, How::OtherVersion(WantedVersion::OfRule(_))) && is_newer();
                Ok(Role::Asked(Asked { live, unable: unable.or(unavailable), opened }, undiscovered))
            }
            // A hook that is not asked rejects nothing, not even by an error in deciding it.
            Rotation::Probing { .. } => match lookup.selects(live) {
                Ok(true) if may_be_asked(generation, judge, matched.hook, live) => Ok(Role::Probing(live)),
                Err(LookupError::Large) => Err(LookupError::Large),
                _ => Ok(Role::None),
            },
            Rotation::Draining { .. } | Rotation::Gone { .. } => Ok(Role::None),
        }
    }

    /// Has conditions of a hook that comes later evaluated with those that are waited for now, where they would be
    /// waited for as well.
    pub(super) fn prepare(&self, lookup: &Lookup<'_>, judge: &Judge<'_>, matched: Matched) {
        let Self { generation, bypass, .. } = *self;
        let Some(live) = generation.hooks.get(matched.hook as usize) else { return };
        let Some(origin) = generation.snapshot.origin(matched.hook) else { return };
        let is_asked = matches!(live.rotation, Rotation::Active { .. }) && !bypass.skips(&live.hook.name);
        if is_asked && judge.waits(&origin.conditions) && matches!(lookup.selects(live), Ok(true)) {
            judge.say(matched.hook, live, &origin.conditions);
        }
    }

    /// Selects the validating hooks of this request. Every hook is decided before any is called.
    ///
    /// # Errors
    /// As [`Selection::role`].
    pub(super) fn validating(&self, lookup: &Lookup<'_>) -> Result<Selected<'a>, LookupError> {
        let judge = Judge::new(&lookup.conditions);
        let mut selected = Selected::default();
        let mut decided = Ok(());
        for matched in self.matching(HookType::Validating) {
            match self.role(lookup, &judge, matched) {
                Ok(role) => selected.add(role),
                Err(held) => {
                    decided = Err(held);
                    break;
                }
            }
        }
        match decided {
            // A hook before may have its say first.
            Ok(()) | Err(LookupError::Refused(_)) if lookup.conditions.has_slow() => Err(LookupError::Slow),
            Err(LookupError::Refused(refusal)) => {
                selected.count_unmet();
                lookup.conditions.count_rejection(self.generation);
                Err(LookupError::Refused(refusal))
            }
            decided => decided.map(|()| selected),
        }
    }
}

impl<'a> Selected<'a> {
    /// Counts those that their conditions leave out, once nothing can change that any more.
    pub(super) fn count_unmet(&self) {
        self.unmet.iter().for_each(|unmet| unmet.count());
    }

    fn add(&mut self, role: Role<'a>) {
        match role {
            Role::None => {}
            Role::Unmet(unmet) => self.unmet.push(unmet),
            Role::Broken => self.broken = true,
            Role::Probing(live) => self.probing.push(live),
            Role::Asked(asked, undiscovered) => {
                self.undiscovered |= undiscovered;
                self.asked.push(asked);
            }
        }
    }
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

/// Place of a hook that its conditions do not let be asked; `None` where they do. One whose conditions are still to be
/// evaluated is not asked yet. Where they have no value its failure policy decides; the request is rejected, or the hook
/// is passed over.
fn unmet_conditions<'a>(
    generation: &Generation,
    judge: &Judge<'_>,
    review: &Review,
    hook: u32,
    live: &'a LiveHook,
    opened: bool,
) -> Result<Option<Role<'a>>, LookupError> {
    let unmet = |how| Ok(Some(Role::Unmet(Unmet(live, how))));
    let Some(origin) = generation.snapshot.origin(hook) else { return Ok(None) };
    let passes = opened || live.hook.failure_policy == FailurePolicy::Ignore;
    match judge.say(hook, live, &origin.conditions) {
        None => Ok(Some(Role::None)),
        Some(ConditionsResult::Asked) => Ok(None),
        Some(ConditionsResult::Excluded) => unmet(UnmetConditions::Excluded),
        Some(ConditionsResult::Failed(_)) if passes => unmet(UnmetConditions::Failed),
        Some(ConditionsResult::Failed(why)) => {
            judge.rejected_by(Some(hook));
            Err(LookupError::Refused(Box::new(status::conditions_failed(review, &why))))
        }
        Some(ConditionsResult::Refused(_)) if opened => Ok(Some(Role::None)),
        Some(ConditionsResult::Refused(refusal)) => Err(LookupError::Refused(refusal)),
    }
}

/// The same of a hook that is only named.
fn may_be_asked(generation: &Generation, judge: &Judge<'_>, hook: u32, live: &LiveHook) -> bool {
    let conditions = generation.snapshot.origin(hook).map(|origin| &origin.conditions);
    conditions.is_none_or(|conditions| {
        // No access check is made to find this out: a hook with one counts as one that may be asked.
        let asks = conditions.iter().any(Condition::asks_authorizer);
        asks || matches!(judge.say(hook, live, conditions), None | Some(ConditionsResult::Asked))
    })
}

/// Upstream converts the object for a hook that wants another version; a review holds it in one only, so such a hook
/// cannot be asked, and must not be passed over in silence either.
fn unable(live: &LiveHook, how: How, review: &Review, served: Option<&Served>) -> Option<Box<CallFailure>> {
    let How::OtherVersion(wanted) = how else { return None };
    let wanted = wanted.resource(&live.hook, review, served).to_string();
    Some(Box::new(CallFailure::OtherVersion { wanted, got: review.resource.to_string() }))
}
