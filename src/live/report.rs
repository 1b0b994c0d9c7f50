//! Report of this replica, created from the state in force.

use std::time::{Duration, Instant, SystemTime};

use gatepost_replicas::{
    HeldReport, HookReport, HookStanding, InitializerReport, KeptRequestReport, PluginReport, ReadFailure,
    RejectedConfiguration, Replica, ReplicaReport, UnenforcedReport, short, time,
};

use crate::{
    live::{
        BreakGlassDocuments, Current, Generation, LiveHook, Rejection, ReplicaHealth, RetiredEntry, Rotation,
        attendance, rule_index::KnownGeneration,
    },
    telemetry::{Attendance, KeptRequest, RecentCallFailures, RecentDiscards, ShadowMetrics},
};
use gatepost_api::{
    Bypass, Enforcement, FailurePolicy, Hook,
    schema::status::{BypassInForce, CallFailures, DiscardedCalls, OpenBreakGlass, ReplicaFault},
};
use gatepost_config::{CanaryPair, Snapshot};
use gatepost_policy::Definition;

/// Maximum number of problems of a rejected configuration; `/configz` has all of them.
const MAX_PROBLEMS: usize = 8;
const MAX_INITIALIZERS: usize = 64;
/// Maximum number of hooks and policies that do not enforce, and of canaries; `/configz` has all of them.
const MAX_UNENFORCED: usize = 32;
/// Maximum number of faults; `/readyz?verbose` has all of them.
const MAX_FAULTS: usize = 32;
/// Maximum number of bypass rules; `/configz` has all of them.
const MAX_BYPASSES: usize = 20;
/// Maximum number of hooks named by one document or rule.
const MAX_NAMES: usize = 50;

/// Returns the present report, with at most `max_hooks` hooks.
pub fn replica_report(
    health: &ReplicaHealth,
    replica: &Replica,
    (now, clock): (Instant, SystemTime),
    max_hooks: usize,
) -> ReplicaReport {
    let current = &health.current;
    // The order matters: a state loaded later is at least as new as the earlier ones, and a hook that has left the
    // generation is already among the retired ones.
    let (observed, age, stale) =
        (health.status.observed(), current.freshness().age(now), !current.freshness().is_fresh(now));
    let known = current.known_to_plugins(now);
    let rejection = health.status.rejected.get();
    let generation = current.load();
    let retired = health.status.retired();
    let live = (0..).zip(&generation.hooks).map(|(index, live)| in_force(&generation, index, live, now));
    let mut hooks: Vec<_> = live.chain(retired.iter().filter_map(retired_hook)).collect();
    let hooks_left_out = hooks.len().saturating_sub(max_hooks);
    hooks.truncate(max_hooks);
    let (bypasses, bypasses_left_out) = bypasses(&generation.snapshot);
    let (unenforced, canaries): (Vec<_>, Vec<_>) =
        unenforced(&generation).into_iter().partition(|one| one.canary.is_none());
    let mut attendance = attendance(current, now);
    attendance.sort_by_key(|one| (one.instances > 0, one.failure_policy == FailurePolicy::Ignore));
    let retired = retired.iter().filter(|one| !one.is_hook()).map(retired_initializer);
    let mut initializers: Vec<_> =
        attendance.iter().map(|one| attached_initializer(one, clock)).chain(retired).collect();
    let initializers_left_out = initializers.len().saturating_sub(MAX_INITIALIZERS);
    initializers.truncate(MAX_INITIALIZERS);
    ReplicaReport {
        replica: replica.name().to_owned(),
        instance: replica.instance().to_owned(),
        contested: false,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        // A generation counts once no plugin skips requests by an older rule index. Nor does a read count before, whose
        // contents that generation may have.
        observed: observed.filter(|_| known.is_newest),
        plugins: plugins(current, &known, &generation, now),
        generation: known.id.number,
        revision: known.id.revision.to_string(),
        digest: known.id.digest,
        age_seconds: age.map(|age| age.as_secs_f64()),
        stale,
        stopping: health.is_stopping(),
        faults: faults(health, (now, clock)),
        break_glass: open_break_glass(&health.break_glass, (now, clock)),
        bypasses,
        bypasses_left_out,
        rejected: rejection.as_deref().map(|rejection| rejected(rejection, max_hooks)),
        from_last_good: health.status.last_good.get().and_then(|state| {
            let in_use = state.in_use.as_ref()?;
            Some(short(&format!("of {}, as {}", time(in_use.written), in_use.why)))
        }),
        read_failure: health
            .status
            .failed_read
            .get()
            .map(|failed| ReadFailure { what: short(&failed.error), since: time(failed.since) }),
        hooks,
        hooks_left_out,
        initializers,
        initializers_left_out,
        policies: generation.policies.len(),
        unenforced_left_out: unenforced.len().saturating_sub(MAX_UNENFORCED),
        canaries_left_out: canaries.len().saturating_sub(MAX_UNENFORCED),
        unenforced: unenforced
            .into_iter()
            .take(MAX_UNENFORCED)
            .chain(canaries.into_iter().take(MAX_UNENFORCED))
            .collect(),
        published: time(clock),
    }
}

/// Returns the report of the plugins; `None` without any.
fn plugins(current: &Current, known: &KnownGeneration, generation: &Generation, now: Instant) -> Option<PluginReport> {
    let attached = current.rule_index().followers();
    let pending = (!known.is_newest).then_some(generation.number);
    let slowest = current.rule_index().slowest_acknowledgement(now);
    (attached > 0 || pending.is_some()).then_some(PluginReport {
        attached,
        slowest_acknowledgement_seconds: slowest.map(|slowest| slowest.as_secs_f64()),
        unacknowledged_generation: pending,
    })
}

/// Returns the first faults, each shortened; the last one contains the number of the others.
fn faults(health: &ReplicaHealth, at: (Instant, SystemTime)) -> Vec<ReplicaFault> {
    let all = health.faults(at);
    let more = all.len().saturating_sub(MAX_FAULTS);
    let mut faults: Vec<_> = all.into_iter().take(MAX_FAULTS).collect();
    faults.iter_mut().for_each(|fault| fault.what = short(&fault.what));
    if let Some(last) = faults.last_mut().filter(|_| more > 0) {
        last.what = format!("{}; {more} more faults like this, see /readyz?verbose", last.what);
    }
    faults
}

fn in_force(generation: &Generation, index: u32, live: &LiveHook, now: Instant) -> HookReport {
    let configuration = generation.snapshot.origin(index).map(|origin| origin.configuration.to_string());
    let moving = live.replacing.as_ref();
    let failed = moving.and_then(|moving| moving.last_failure.as_ref()).map(ToString::to_string);
    let unproven = || live.overdue.as_ref()?.last_failure.as_ref().map(ToString::to_string);
    let began = moving.map_or_else(|| live.rotation.since(), |moving| moving.since);
    let since = live.overdue.as_ref().map_or(began, |overdue| overdue.since);
    HookReport {
        name: live.hook.name.to_string(),
        id: live.hook.id.to_string(),
        configuration: configuration.unwrap_or_default(),
        endpoint: live.target.endpoint().to_string(),
        moves_to: moving.map(|moving| moving.channel.endpoint().to_string()),
        state: standing(&live.rotation),
        since: time(live.rotation.since()),
        reason: failed.or_else(unproven).or_else(|| live.rotation.reason()).map(|reason| short(&reason)),
        overdue: live.overdue_effect().map(str::to_owned),
        unproven_since: (!live.is_in_place()).then(|| time(since)),
        failures: live.metrics.recent_failures(now).map(|failures| call_failures(&failures)),
        discarded: live.metrics.recently_discarded(now).map(|RecentDiscards { discarded, calls, over }| {
            DiscardedCalls { discarded, calls, seconds: over.as_secs() }
        }),
    }
}

/// Returns the hooks and policies that do not enforce, or for a share of the requests only.
fn unenforced(generation: &Generation) -> Vec<UnenforcedReport> {
    let one =
        |what: &str, name: &str, (enforcement, canary): (Enforcement, Option<&CanaryPair>), shadow: &ShadowMetrics| {
            let counted = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| {
                counts.filter(|(_, count)| *count > 0).map(|(outcome, count)| (outcome.to_owned(), count)).collect()
            };
            (!enforcement.denies() || canary.is_some()).then(|| UnenforcedReport {
                what: what.to_owned(),
                name: name.to_owned(),
                enforcement: enforcement.as_str().to_owned(),
                canary: canary.map(|pair| pair.canary.to_string()),
                decisions: counted(&mut shadow.counts()),
                denials: shadow.denials().into_iter().map(kept_request).collect(),
                comparisons: counted(&mut shadow.comparisons().into_iter()),
                differences: shadow.differences().into_iter().map(kept_request).collect(),
            })
        };
    let snapshot = &generation.snapshot;
    let hooks = generation.hooks.iter().filter_map(|live| {
        let Hook { hook_type, name, enforcement, .. } = &*live.hook;
        one("hook", name, (*enforcement, snapshot.hook_canaries().canary(*hook_type, name)), &live.metrics.shadow)
    });
    let policies = generation.policies.iter().filter_map(|live| {
        let Definition { hook_type, name, .. } = &*live.policy.definition;
        let canary = snapshot.policy_canaries().canary(*hook_type, name);
        let canary = canary.filter(|_| live.policy.enforcement.denies());
        one("policy", name, (live.policy.enforcement, canary), &live.metrics.shadow)
    });
    hooks.chain(policies).collect()
}

fn kept_request(KeptRequest { at, request, message }: KeptRequest) -> KeptRequestReport {
    KeptRequestReport { at: time(at), request: short(&request), message: message.as_deref().map(short) }
}

fn call_failures(failures: &RecentCallFailures) -> CallFailures {
    CallFailures {
        failed: failures.failed,
        calls: failures.calls,
        seconds: failures.over.as_secs(),
        kind: failures.last.map(|last| last.kind.to_owned()),
        last: failures.last.map(|last| time(last.at)),
        succeeded_since: failures.recovery.map(|recovery| recovery.successes),
        last_success: failures.recovery.map(|recovery| time(recovery.last)),
    }
}

fn retired_hook(retired: &RetiredEntry) -> Option<HookReport> {
    Some(HookReport {
        name: retired.name.to_string(),
        id: retired.id.to_string(),
        configuration: retired.configuration.to_string(),
        endpoint: retired.endpoint.as_ref()?.to_string(),
        moves_to: None,
        state: standing(&retired.rotation),
        since: time(retired.rotation.since()),
        reason: retired.rotation.reason(),
        overdue: None,
        unproven_since: None,
        failures: None,
        discarded: None,
    })
}

fn standing(rotation: &Rotation) -> HookStanding {
    match rotation {
        Rotation::Probing { .. } => HookStanding::Probing,
        Rotation::Active { .. } => HookStanding::Active,
        Rotation::Draining { .. } => HookStanding::Draining,
        Rotation::Gone { .. } => HookStanding::Gone,
    }
}

fn rejected(rejection: &Rejection, max_held: usize) -> RejectedConfiguration {
    let held = rejection.quarantined.iter().take(max_held).map(|held| HeldReport {
        document: held.document.clone(),
        keeps: held.last_good_in_force,
        since: time(held.since),
        why: short(&held.problem.to_string()),
    });
    RejectedConfiguration {
        held: held.collect(),
        held_left_out: rejection.quarantined.len().saturating_sub(max_held),
        revision: rejection.revision.to_string(),
        since: time(rejection.since),
        problems: rejection.problems.iter().take(MAX_PROBLEMS).map(|problem| short(&problem.to_string())).collect(),
        count: rejection.problems.len(),
    }
}

fn attached_initializer(one: &Attendance, clock: SystemTime) -> InitializerReport {
    InitializerReport {
        name: one.name.to_string(),
        failure_policy: one.failure_policy.as_str().to_owned(),
        instances: one.instances,
        holds: one.holds,
        oldest_hold_seconds: one.oldest.map(|oldest| oldest.as_secs_f64()),
        unattended_since: one.unattended.map(|ago| time(clock.checked_sub(ago).unwrap_or(clock))),
        state: if one.proven { HookStanding::Active } else { HookStanding::Probing },
        retired_since: None,
    }
}

fn retired_initializer(retired: &RetiredEntry) -> InitializerReport {
    InitializerReport {
        name: retired.name.to_string(),
        failure_policy: FailurePolicy::Ignore.as_str().to_owned(),
        instances: 0,
        holds: 0,
        oldest_hold_seconds: None,
        unattended_since: None,
        state: standing(&retired.rotation),
        retired_since: Some(time(retired.rotation.since())),
    }
}

/// Returns the break-glass documents that are open now.
fn open_break_glass(break_glasses: &BreakGlassDocuments, (now, clock): (Instant, SystemTime)) -> Vec<OpenBreakGlass> {
    let open = break_glasses.open(now);
    let entries = open.iter().map(|open| {
        let (document, closes) = (&open.document, clock + open.deadline.saturating_duration_since(now));
        // It may close earlier by our monotonic clock. A difference below 2 s comes from reading the two clocks.
        let until = document.until();
        let early = until.duration_since(closes).is_ok_and(|early| early >= Duration::from_secs(2));
        OpenBreakGlass {
            name: document.name.to_string(),
            hooks: (!document.applies_to_all_hooks()).then(|| names(&document.hooks)),
            until: time(if early { closes } else { until }),
            reason: short(&document.reason),
            by: (!document.opened_by.is_empty()).then(|| short(&document.opened_by)),
        }
    });
    entries.collect()
}

/// Returns the first bypass rules, and the number of the others.
fn bypasses(snapshot: &Snapshot) -> (Vec<BypassInForce>, usize) {
    let all = snapshot.bypasses();
    let entries = all.iter().take(MAX_BYPASSES).map(|bypass| BypassInForce {
        name: bypass.name.to_string(),
        effect: bypass.effect.as_str().to_owned(),
        hooks: (!bypass.applies_to_all_hooks()).then(|| names(&bypass.hooks)),
        scope: short(&scope(bypass)),
        reason: short(&bypass.reason),
    });
    (entries.collect(), all.len().saturating_sub(MAX_BYPASSES))
}

fn names(names: &[Box<str>]) -> Vec<String> {
    names.iter().take(MAX_NAMES).map(|name| short(name)).collect()
}

/// Describes the requests to which the rule applies: those that match every part.
fn scope(bypass: &Bypass) -> String {
    let resources: Vec<Box<str>> = bypass.resources.iter().flat_map(|rule| rule.resources.iter().cloned()).collect();
    let users = [("users", &bypass.who.users), ("groups", &bypass.who.groups)];
    let listed = |(noun, list): &(&str, &Vec<Box<str>>)| {
        (!list.is_empty()).then(|| {
            format!("{noun} {}", list.iter().take(MAX_NAMES).map(AsRef::as_ref).collect::<Vec<_>>().join(", "))
        })
    };
    let users: Vec<_> = users.iter().filter_map(listed).collect();
    let parts = [
        listed(&("namespaces", &bypass.namespaces)),
        (!users.is_empty()).then(|| users.join(" or ")),
        listed(&("resources", &resources)),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "every request".to_owned() } else { parts.join("; ") }
}

#[cfg(test)]
mod tests;
