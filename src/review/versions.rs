//! Versions of a request: the review that calls a hook or policy, if the caller sends one in each version.
//!
//! A caller that lists the versions in which it can send a request ([`OtherVersions::Listed`]) sends it first as its
//! client made it, and then once in each version that the verdict names. Each hook is called in one of these versions:
//! the one in which an apiserver would call it as a webhook. A hook whose rules name no listed version is not called.

use super::{
    canary,
    context::{OtherVersions, ReviewContext, ServedView},
};
use gatepost_api::{Gvr, Hook, MatchPolicy, Review, RuleTarget, Verdict, verdict::OTHER_VERSIONS_ANNOTATION};
use gatepost_config::{MatchKind, MatchSet, Ruled};

/// Returns true if another review of the request is for this hook or policy: the one in the version that it wants; or,
/// if its rules match the client's own request and this review is converted, the one that is not.
pub(super) fn is_for_other_review(
    ctx: &ReviewContext<'_>,
    entry: &impl Ruled,
    how: MatchKind,
    review: &Review,
) -> bool {
    match &ctx.caller.other_versions {
        OtherVersions::Fail => false,
        OtherVersions::ReviewedSeparately => match how {
            MatchKind::AsMade => false,
            MatchKind::AsSent => matches(entry, review, &RuleTarget::as_made(review)).is_some(),
            MatchKind::OtherVersion(_) => true,
        },
        OtherVersions::Listed(listed) => wanted(entry, review, &listed.resources) != Some(&review.resource),
    }
}

/// Returns true if a caller that lists versions has converted the request. It has sent the client's own review before.
pub(super) fn is_converted(ctx: &ReviewContext<'_>) -> bool {
    let ReviewContext { caller, review, .. } = ctx;
    matches!(caller.other_versions, OtherVersions::Listed(_))
        && *RuleTarget::as_made(review).resource != review.resource
}

/// Names the listed versions that hooks and policies want instead of the client's. Must be called for allowed requests
/// whose hooks are not skipped.
pub(super) fn annotate(ctx: &ReviewContext<'_>, verdict: &mut Verdict) {
    let ReviewContext { caller, generation, review, .. } = ctx;
    verdict.audit_annotations.retain(|(key, _)| key != OTHER_VERSIONS_ANNOTATION);
    let OtherVersions::Listed(listed) = &caller.other_versions else { return };
    let listed = &listed.resources[..];
    let made = RuleTarget::as_made(review).resource;
    if is_converted(ctx) || listed.iter().all(|one| one == made) {
        return;
    }
    // Hooks in shadow, skipped or not called are not worth a conversion that could fail.
    let is_called =
        |hook_type, name: &str| ctx.calls(hook_type) && !ctx.bypass.skips(name) && !ctx.bypass.break_glass_covers(name);
    let mut is_wanted = vec![false; listed.len()];
    let mut add = |version: Option<&Gvr>| {
        if let Some(at) =
            version.filter(|version| *version != made).and_then(|it| listed.iter().position(|one| one == it))
        {
            is_wanted[at] = true;
        }
    };
    let view = ctx.served();
    let (served, mut matching) = (view.as_ref().map(ServedView::served), MatchSet::new());
    generation.snapshot.matching(review, served, &mut matching);
    for live in matching.iter().filter_map(|matched| generation.hooks.get(matched.index as usize)) {
        let Hook { hook_type, name, .. } = &*live.hook;
        if live.rotation.is_called() && is_called(*hook_type, name) && canary::hook_is_due(ctx, live) {
            add(wanted(&*live.hook, review, listed));
        }
    }
    generation.snapshot.matching_policies(review, served, &mut matching);
    for live in matching.iter().filter_map(|matched| generation.policies.get(matched.index as usize)) {
        let definition = &live.policy.definition;
        if is_called(definition.hook_type, &definition.name) && canary::policy_is_due(ctx, live) {
            add(wanted(&*live.policy, review, listed));
        }
    }
    let texts: Vec<String> =
        listed.iter().zip(is_wanted).filter(|(_, is_wanted)| *is_wanted).map(|(one, _)| text(one)).collect();
    if !texts.is_empty() {
        verdict.audit_annotations.push((OTHER_VERSIONS_ANNOTATION.to_owned(), texts.join(",")));
    }
}

/// Writes a resource as in the list of the caller.
fn text(Gvr { group, version, resource }: &Gvr) -> String {
    format!("{group}/{version}/{resource}")
}

/// Returns the resource in the version in which this hook or policy is called; `None` if it is not. The client's
/// version is preferred, then the first rule, then the caller's order.
// source: k8s.io/apiserver/pkg/admission/plugin/webhook/generic/webhook.go ShouldCallHook
fn wanted<'r>(entry: &impl Ruled, review: &'r Review, listed: &'r [Gvr]) -> Option<&'r Gvr> {
    let made = RuleTarget::as_made(review);
    if matches(entry, review, &made).is_some() {
        return Some(made.resource);
    }
    if entry.match_policy() != MatchPolicy::Equivalent {
        return None;
    }
    let others = listed.iter().filter(|one| *one != made.resource);
    // The first of those with the least rule.
    let found =
        others.filter_map(|resource| Some((matches(entry, review, &RuleTarget { resource, ..made })?, resource)));
    found.min_by_key(|(rule, _)| *rule).map(|(_, resource)| resource)
}

/// Returns the number of the first rule that matches the target and takes the name of the review's object.
fn matches(entry: &impl Ruled, review: &Review, target: &RuleTarget<'_>) -> Option<usize> {
    let mut rules = (0..).map_while(|number| Some((number, entry.rule(number)?)));
    let found = rules.find(|(number, rule)| rule.matches(target) && entry.takes_name(*number, &review.name));
    found.map(|(number, _)| number)
}
