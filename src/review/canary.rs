//! Canary: a hook or policy that is to replace another decides a share of the requests, and the other one the rest.
//!
//! Each of a pair decides the other's requests in shadow, and what the two decide is compared. A request that the
//! decider rejects is decided in shadow too, by the other one of the pair alone. Without the other one, or before it is
//! called itself, a canary changes nothing: exactly one of a pair decides each request.

use super::{
    comparison::{Compared, Decision, Pair},
    context::ReviewContext,
    draft::Draft,
    record::{CallRecord, Change, Ending, MAX_KEPT_TEXT, request_text},
};
use crate::{
    live::{Generation, LiveHook, LivePolicy},
    telemetry::{KeptRequest, PolicyOutcome, ShadowMetrics},
};
use gatepost_api::{Enforcement, HookType};
use gatepost_config::{Canaries, CanaryPair};
use gatepost_wire::answer::shortened_to;

impl Decision {
    /// Returns the decision of a policy, whose first denial has this message.
    pub(super) fn of_policy(
        ctx: &ReviewContext<'_>,
        (outcome, is_changed): (PolicyOutcome, bool),
        message: Option<&str>,
    ) -> Self {
        match outcome {
            PolicyOutcome::Denied | PolicyOutcome::WouldDeny => Self::denied(ctx, message),
            PolicyOutcome::FailedOpen | PolicyOutcome::FailedClosed => Self::Failed,
            PolicyOutcome::Allowed | PolicyOutcome::Excluded if is_changed => Self::Patched,
            PolicyOutcome::Allowed | PolicyOutcome::Excluded => Self::Allowed,
        }
    }

    fn of_call(ctx: &ReviewContext<'_>, call: &CallRecord<'_>) -> Self {
        match &call.ending {
            Ending::Answered(answer) if answer.denial.is_some() => {
                Self::denied(ctx, call.refusals().next().as_ref().map(|refusal| &*refusal.message))
            }
            _ if matches!(call.change.as_deref(), Some(Change::Refused(_))) => Self::Failed,
            Ending::Answered(_) if call.patch().is_some() => Self::Patched,
            Ending::Answered(_) => Self::Allowed,
            Ending::FailedOpen(_) | Ending::FailedClosed(_) if call.is_shadow_dropped() => Self::Unknown,
            Ending::FailedOpen(_) | Ending::FailedClosed(_) | Ending::DryRunRefused => Self::Failed,
            Ending::Cancelled | Ending::OutOfTime(_) | Ending::Unproven => Self::Unknown,
        }
    }

    fn denied(ctx: &ReviewContext<'_>, message: Option<&str>) -> Self {
        let kept = message.filter(|_| ctx.deps.audit.has_hook_messages());
        Self::Denied(kept.map(|message| shortened_to(MAX_KEPT_TEXT / 2, message)))
    }
}

impl Pair {
    fn of_hook(ctx: &ReviewContext<'_>, live: &LiveHook) -> Option<(Self, bool)> {
        let canaries = ctx.generation.snapshot.hook_canaries();
        let (pair, is_canary) = side(canaries, live.hook.enforcement, live.hook.hook_type, &live.hook.name)?;
        Some((Self::Hooks(pair), is_canary))
    }

    fn of_policy(ctx: &ReviewContext<'_>, live: &LivePolicy) -> Option<(Self, bool)> {
        let (canaries, definition) = (ctx.generation.snapshot.policy_canaries(), &live.policy.definition);
        let (pair, is_canary) = side(canaries, live.policy.enforcement, definition.hook_type, &definition.name)?;
        Some((Self::Policies(pair), is_canary))
    }

    fn get(self, generation: &Generation) -> Option<&CanaryPair> {
        match self {
            Self::Hooks(pair) => generation.snapshot.hook_canaries().pairs().get(pair),
            Self::Policies(pair) => generation.snapshot.policy_canaries().pairs().get(pair),
        }
    }

    /// Returns true if the canary decides this request, and not the other. A generation does not change, so the answer
    /// is the same whenever it is asked for.
    fn canary_decides(self, ctx: &ReviewContext<'_>) -> bool {
        let Some(pair) = self.get(ctx.generation) else { return false };
        let is_in_force = |index: usize| match self {
            Self::Hooks(_) => ctx.generation.hooks.get(index).is_some_and(|live| live.rotation.is_called()),
            Self::Policies(_) => ctx.generation.policies.get(index).is_some_and(|live| !live.awaits_all_params()),
        };
        // Who bypasses the canary gets what was there before. Who bypasses the other bypasses that one alone.
        is_in_force(pair.index)
            && !is_skipped(ctx, &pair.name)
            && (!is_in_force(pair.replaced) || pair.canary.decides(&ctx.review.uid))
    }

    fn metrics(self, generation: &Generation) -> Option<&ShadowMetrics> {
        let index = self.get(generation)?.index;
        match self {
            Self::Hooks(_) => generation.hooks.get(index).map(|canary| &canary.metrics.shadow),
            Self::Policies(_) => generation.policies.get(index).map(|canary| &canary.metrics.shadow),
        }
    }
}

fn is_skipped(ctx: &ReviewContext<'_>, name: &str) -> bool {
    ctx.bypass.skips(name) || ctx.bypass.break_glass_covers(name)
}

/// Returns the pair of a hook or policy, and true if it is the canary. Only one that enforces shares requests.
fn side(canaries: &Canaries, enforcement: Enforcement, hook_type: HookType, name: &str) -> Option<(usize, bool)> {
    if enforcement.denies() { canaries.side(hook_type, name) } else { None }
}

/// Adds the decision of a policy, if it is one of a pair.
pub(super) fn add_policy(
    compared: &mut Compared,
    ctx: &ReviewContext<'_>,
    live: &LivePolicy,
    decision: impl FnOnce() -> Decision,
) {
    if let Some((pair, _)) = Pair::of_policy(ctx, live) {
        compared.add(pair, decision());
    }
}

/// Notes that it is unknown what the hooks of this type would decide.
pub(super) fn add_unknown_hooks(compared: &mut Compared, ctx: &ReviewContext<'_>, hook_type: HookType) {
    let pairs = ctx.generation.snapshot.hook_canaries().pairs().iter().enumerate();
    for (pair, _) in pairs.filter(|(_, pair)| pair.hook_type == hook_type) {
        compared.add(Pair::Hooks(pair), Decision::Unknown);
    }
}

/// Returns true if the hook decides now: in the verdict or in shadow.
pub(super) fn hook_is_due(ctx: &ReviewContext<'_>, live: &LiveHook) -> bool {
    is_due(ctx, live.hook.enforcement, Pair::of_hook(ctx, live))
}

/// Returns true if the policy decides now: in the verdict or in shadow.
pub(super) fn policy_is_due(ctx: &ReviewContext<'_>, live: &LivePolicy) -> bool {
    is_due(ctx, live.policy.enforcement, Pair::of_policy(ctx, live))
}

fn is_due(ctx: &ReviewContext<'_>, enforcement: Enforcement, side: Option<(Pair, bool)>) -> bool {
    let decides = match side {
        None => enforcement != Enforcement::Shadow,
        Some((pair, is_canary)) => is_canary == pair.canary_decides(ctx),
    };
    match ctx.shadow {
        None => decides,
        Some(verdict) => !decides && side.map_or(!verdict.is_rejected, |(pair, _)| verdict.includes(pair)),
    }
}

/// Takes the decisions of the draft's pairs, those of hooks included.
pub(super) fn decisions(ctx: &ReviewContext<'_>, draft: &mut Draft<'_>) -> Compared {
    let mut compared = std::mem::take(&mut draft.compared);
    let canaries = ctx.generation.snapshot.hook_canaries();
    if !canaries.is_empty() {
        for call in draft.calls.iter().filter(|call| !call.decider.is_policy()) {
            if let Some((pair, _)) = canaries.side(call.hook_type, call.decider.name()) {
                compared.add(Pair::Hooks(pair), Decision::of_call(ctx, call));
            }
        }
    }
    compared
}

/// Compares what the two of each pair have decided, in the verdict and in shadow, and counts it. What has no decision
/// has no rule for the request, or does not select it, and so allows it.
pub(super) fn compare(ctx: &ReviewContext<'_>, verdict: &Compared, shadow: &Compared) {
    let pairs =
        verdict.decisions.keys().chain(shadow.decisions.keys().filter(|pair| !verdict.decisions.contains_key(pair)));
    for pair in pairs.copied().filter(|pair| verdict.includes(*pair)) {
        let decision = |of: &Compared| of.decisions.get(&pair).cloned().unwrap_or(Decision::Allowed);
        let (decided, in_shadow) = (decision(verdict), decision(shadow));
        let (Some(named), Some(metrics)) = (pair.get(ctx.generation), pair.metrics(ctx.generation)) else { continue };
        let is_unknown = decided == Decision::Unknown || in_shadow == Decision::Unknown;
        if is_unknown || is_skipped(ctx, &named.name) || is_skipped(ctx, &named.canary.replaces) {
            continue;
        }
        if decided.is_like(&in_shadow) {
            metrics.record_same();
            continue;
        }
        let (canary, other) = if pair.canary_decides(ctx) { (decided, in_shadow) } else { (in_shadow, decided) };
        let message = format!("{} {canary}, {} {other}", named.name, named.canary.replaces);
        metrics.record_difference(KeptRequest::now(request_text(ctx.review), Some(message)));
    }
}
