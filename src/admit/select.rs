//! Which hooks are asked: rules, then selectors, then conditions. Source: `docs/reference/webhook-semantics.md` §4.

use smallvec::SmallVec;

use super::{
    Caller, OtherVersions,
    conditions::{Judge, Said},
    lookup::{Held, Lookup},
    passage::Passage,
    status,
};
use crate::{
    live::{Generation, LiveHook, Rotation},
    model::{CallFailure, FailurePolicy, HookType, Phase, Review, Served, Target},
    snapshot::{HookSet, How, Wanted},
};

/// A hook that has a say in a request.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) live: &'a LiveHook,
    /// Why it cannot be asked about this request after all; its failure policy decides what that means.
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
    /// A hook that a rule would have matched is left out, as break-glass is open for it.
    pub(super) broken: bool,
    /// A hook may mean the request in another version, and the cluster's word about this resource is older than it.
    pub(super) undiscovered: bool,
}

/// Selects the validating hooks of this request.
///
/// Every hook is decided before any is called. An error in deciding one (a namespace that does not exist, an object
/// that is not JSON) only counts for a hook that a rule would have matched; it then rejects the request, whatever the
/// hook's failure policy, unless a bypass opens the hook. A hook that a bypass skips is not looked at.
pub(super) fn select<'a>(
    generation: &'a Generation,
    passage: &Passage<'_>,
    review: &Review,
    caller: &Caller,
    lookup: &Lookup<'_>,
    served: Option<&Served>,
) -> Result<Selected<'a>, Held> {
    let judge = Judge::new(&lookup.conditions);
    match decided(generation, passage, review, caller, (lookup, &judge), served) {
        // A hook before may have its say first.
        Ok(_) | Err(Held::Refused(_)) if lookup.conditions.has_slow() => Err(Held::Slow),
        decided => decided,
    }
}

fn decided<'a>(
    generation: &'a Generation,
    passage: &Passage<'_>,
    review: &Review,
    caller: &Caller,
    (lookup, judge): (&Lookup<'_>, &Judge<'_>),
    served: Option<&Served>,
) -> Result<Selected<'a>, Held> {
    let mut selected = Selected::default();
    if caller.phase == Phase::Mutate {
        return Ok(selected);
    }
    let mut matching = HookSet::new();
    generation.snapshot.matching_where(review, served, &mut matching);
    let made = Target::as_made(review).resource;
    let is_newer = || served.is_some_and(|served| served.is_older_than(&made.group, &made.resource));
    for matched in matching {
        let Some(live) = generation.hooks.get(matched.hook as usize) else { continue };
        let apart = caller.other_versions == OtherVersions::AskedApart;
        if live.hook.hook_type != HookType::Validating || apart && is_asked_elsewhere(live, matched.how, review) {
            continue;
        }
        if passage.skips(&live.hook.name) {
            continue;
        }
        if passage.breaks(&live.hook.name) {
            selected.broken = true;
            continue;
        }
        let opened = passage.opens(&live.hook.name);
        match live.rotation {
            Rotation::Active { .. } if selects(lookup, live, opened)? => {
                let unable = unable(live, matched.how, review, served);
                // What cannot be asked in the version it wants has no object to hold against its conditions either.
                if unable.is_none() && !meets_conditions(generation, judge, review, matched.hook, live, opened)? {
                    continue;
                }
                selected.undiscovered |= matches!(matched.how, How::OtherVersion(Wanted::OfRule(_))) && is_newer();
                selected.asked.push(Asked { live, unable, opened });
            }
            // A hook that is not asked rejects nothing, not even by an error in deciding it.
            Rotation::Probing { .. } => match lookup.selects(live) {
                Ok(true) if may_be_asked(generation, judge, matched.hook) => selected.probing.push(live),
                Err(Held::Large) => return Err(Held::Large),
                _ => {}
            },
            _ => {}
        }
    }
    Ok(selected)
}

/// Does the caller ask this hook by another review? One in a version that it takes; or, where it takes the request as its
/// client made it and this review is converted, the one that is not.
fn is_asked_elsewhere(live: &LiveHook, how: How, review: &Review) -> bool {
    match how {
        How::AsMade => false,
        How::AsSent => live.hook.rules.iter().any(|rule| rule.matches(&Target::as_made(review))),
        How::OtherVersion(_) => true,
    }
}

/// Do the hook's selectors match? Where that cannot be said of one that is opened, it is passed over.
fn selects(lookup: &Lookup<'_>, live: &LiveHook, opened: bool) -> Result<bool, Held> {
    match lookup.selects(live) {
        Err(Held::Refused(_)) if opened => Ok(false),
        said => said,
    }
}

/// Do the hook's conditions let it be asked? One whose conditions are still to be evaluated is not asked yet. Where they
/// have no value its failure policy decides; the request is rejected, or the hook is passed over.
fn meets_conditions(
    generation: &Generation,
    judge: &Judge<'_>,
    review: &Review,
    hook: u32,
    live: &LiveHook,
    opened: bool,
) -> Result<bool, Held> {
    let Some(origin) = generation.snapshot.origin(hook) else { return Ok(true) };
    match judge.say(hook, &origin.conditions) {
        None | Some(Said::Excluded) => Ok(false),
        Some(Said::Asked) => Ok(true),
        Some(Said::Failed(_) | Said::Refused(_)) if opened => Ok(false),
        Some(Said::Failed(_)) if live.hook.failure_policy == FailurePolicy::Ignore => Ok(false),
        Some(Said::Failed(why)) => Err(Held::Refused(Box::new(status::conditions_failed(review, &why)))),
        Some(Said::Refused(refusal)) => Err(Held::Refused(refusal)),
    }
}

/// The same of a hook that is only named.
fn may_be_asked(generation: &Generation, judge: &Judge<'_>, hook: u32) -> bool {
    let conditions = generation.snapshot.origin(hook).map(|origin| &origin.conditions);
    conditions.is_none_or(|conditions| matches!(judge.say(hook, conditions), None | Some(Said::Asked)))
}

/// Upstream converts the object for a hook that wants another version; a review holds it in one only, so such a hook
/// cannot be asked, and must not be passed over in silence either.
fn unable(live: &LiveHook, how: How, review: &Review, served: Option<&Served>) -> Option<Box<CallFailure>> {
    let How::OtherVersion(wanted) = how else { return None };
    let wanted = wanted.resource(&live.hook, review, served).to_string();
    Some(Box::new(CallFailure::OtherVersion { wanted, got: review.resource.to_string() }))
}
