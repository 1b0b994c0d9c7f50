//! Report: report of one replica. JSON, both ways.

mod initializer;

use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};

pub use self::initializer::InitializerReport;
use self::initializer::{attended, left};
#[cfg(test)]
use super::text::LONGEST_TEXT;
use super::{
    Replica, exceptions,
    text::{short, time},
};
use crate::{
    live::{Current, Generation, LiveHook, Rejection, RetiredEntry, Rotation, attendance, replica_faults},
    model::{FailurePolicy, Revision},
    schema::status::{BypassInForce, CallFailures, CallsInVain, OpenGlass, ReplicaFault},
    telemetry::{RecentCallFailures, RecentInVain},
};

/// Most problems of a rejected configuration; `/configz` has all of them.
const MOST_PROBLEMS: usize = 8;
/// Most initializers.
const MOST_INITIALIZERS: usize = 64;
/// Most faults; `/readyz?verbose` has all of them.
const MOST_FAULTS: usize = 32;

/// Report of one replica. Times are RFC 3339, in its own clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaReport {
    /// The replica's name.
    pub replica: String,
    /// Identity of this run among all others, also those of the same name.
    #[serde(default)]
    pub instance: String,
    /// Another replica goes by the same name, and one hides the other.
    #[serde(default)]
    pub contested: bool,
    /// The version of its program.
    pub version: String,
    /// Number of the generation in force; 0 before the first. It counts this replica's own swaps.
    pub generation: u64,
    /// Revision in force, as [`Revision`] writes it.
    pub revision: String,
    /// Digest (hex) of what is in force; "" before the first.
    pub digest: String,
    /// The store's revision at the last good read, where the source has such a thing.
    #[serde(default)]
    pub observed: Option<u64>,
    /// Seconds since the start of the last good read, at the time of this report.
    #[serde(default)]
    pub age_seconds: Option<f64>,
    /// Too old to decide on: it refuses every review.
    pub stale: bool,
    /// It is stopping.
    #[serde(default)]
    pub stopping: bool,
    /// Faults that keep it from being called, or its hooks and initializers from being asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<ReplicaFault>,
    /// Break-glass documents that are open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub break_glass: Vec<OpenGlass>,
    /// Bypass rules in force, the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bypasses: Vec<BypassInForce>,
    /// Bypass rules that there was no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bypasses_left_out: usize,
    /// The newest configuration, where that was rejected.
    #[serde(default)]
    pub rejected: Option<Rejected>,
    /// The last good configuration on disk is in use, or a document of it: since when it was in force first, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_last_good: Option<String>,
    /// Failure to read the configuration, at present.
    #[serde(default)]
    pub read_failure: Option<ReadFailed>,
    /// Every hook in force, those that drain, and those that went lately.
    pub hooks: Vec<HookReport>,
    /// Hooks that there was no room for.
    #[serde(default)]
    pub hooks_left_out: usize,
    /// The initializers that a process acts for, those without an instance first; then those that no longer are in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initializers: Vec<InitializerReport>,
    /// Initializers that there was no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub initializers_left_out: usize,
    /// Time of the report.
    pub published: String,
}

/// A configuration that was read, and is not in force because it is not sound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejected {
    /// Revision by the source's count.
    pub revision: String,
    /// Since when the newest configuration is not sound.
    pub since: String,
    /// The first problems, each with its file, its place and its fix.
    pub problems: Vec<String>,
    /// Number of problems.
    pub count: usize,
    /// The documents that are held back, while the others are in force; none where all of it was rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldReport>,
    /// Documents held back that there was no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_left_out: usize,
}

impl Rejected {
    /// Is nothing of it in force?
    pub fn is_whole(&self) -> bool {
        self.held.is_empty()
    }
}

/// A document whose newest state is not in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldReport {
    /// The document, as the source names it.
    pub document: String,
    /// Its last good state is in force; otherwise nothing of it is.
    pub keeps: bool,
    /// Since when.
    pub since: String,
    /// First problem, with its place and its fix.
    pub why: String,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Reads that fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadFailed {
    /// Failure of the last read.
    pub what: String,
    /// Since when none has succeeded.
    pub since: String,
}

/// State of a hook or an initializer, for readers of reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HookStanding {
    /// Not asked before a probe has passed.
    Probing,
    /// Asked.
    #[default]
    Active,
    /// Asked no more, but by requests that began before.
    Draining,
    /// Not asked by anybody.
    Gone,
    /// A word of a later version.
    #[serde(other)]
    Unknown,
}

/// One hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookReport {
    /// Its name; hooks of different configurations may share it.
    pub name: String,
    /// Identity of the hook.
    pub id: String,
    /// The configuration that holds it.
    pub configuration: String,
    /// Endpoint at which it is asked, would be, or was.
    pub endpoint: String,
    /// New endpoint, until it has been seen to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_to: Option<String>,
    /// State of the hook.
    pub state: HookStanding,
    /// Since when.
    pub since: String,
    /// Reason for the state, where that is not plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// It has passed no probe in time, and what that means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue: Option<String>,
    /// Since when its endpoint, or the one that it moves to, is probed without success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproven_since: Option<String>,
    /// Its calls that failed lately, where any did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<CallFailures>,
    /// Its calls ahead of its turn that did not count lately, where any did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_vain: Option<CallsInVain>,
}

impl ReplicaReport {
    /// Report at this time, of at most so many hooks.
    pub fn of(current: &Current, replica: &Replica, (now, clock): (Instant, SystemTime), most_hooks: usize) -> Self {
        // In this order: a state loaded later is as new as those reported before it, and a hook that has left the
        // generation is among the retired already.
        let (observed, age, stale) = (current.status().observed(), current.age(now), !current.is_fresh(now));
        let rejection = current.status().rejected.get();
        let generation = current.load();
        let retired = current.status().retired();
        let live = (0..).zip(&generation.hooks).map(|(index, live)| in_force(&generation, index, live, now));
        let mut hooks: Vec<_> = live.chain(retired.iter().filter_map(gone)).collect();
        let hooks_left_out = hooks.len().saturating_sub(most_hooks);
        hooks.truncate(most_hooks);
        let (bypasses, bypasses_left_out) = exceptions::bypasses(&generation.snapshot);
        let mut attendance = attendance(current, now);
        attendance.sort_by_key(|one| (one.instances > 0, one.failure_policy == FailurePolicy::Ignore));
        let retired = retired.iter().filter(|one| !one.is_hook()).map(left);
        let mut initializers: Vec<_> = attendance.iter().map(|one| attended(one, clock)).chain(retired).collect();
        let initializers_left_out = initializers.len().saturating_sub(MOST_INITIALIZERS);
        initializers.truncate(MOST_INITIALIZERS);
        Self {
            replica: replica.name().to_owned(),
            instance: replica.instance().to_owned(),
            contested: false,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            generation: generation.number,
            revision: generation.revision.to_string(),
            digest: generation.digest.clone(),
            observed,
            age_seconds: age.map(|age| age.as_secs_f64()),
            stale,
            stopping: current.is_draining(),
            faults: faults(current, (now, clock)),
            break_glass: exceptions::open(current.break_glass(), (now, clock)),
            bypasses,
            bypasses_left_out,
            rejected: rejection.as_deref().map(|rejection| rejected(rejection, most_hooks)),
            from_last_good: current.status().last_good.get().and_then(|state| {
                let in_use = state.in_use.as_ref()?;
                Some(short(&format!("of {}, as {}", time(in_use.written), in_use.why)))
            }),
            read_failure: current
                .status()
                .failed_read
                .get()
                .map(|failed| ReadFailed { what: short(&failed.error), since: time(failed.since) }),
            hooks,
            hooks_left_out,
            initializers,
            initializers_left_out,
            published: time(clock),
        }
    }

    /// Revision in force there, in the terms of `wanted`: a number, or a digest.
    pub fn in_force(&self, wanted: &Revision) -> Option<Revision> {
        match wanted {
            Revision::Store(_) => Revision::parse(&self.revision),
            // The digest is known whatever the source calls its states.
            Revision::Digest(_) => Some(Revision::of_digest(&self.digest)).filter(|_| self.generation > 0),
        }
    }
}

/// The first faults, each shortened; the last one says how many more there are.
fn faults(current: &Current, at: (Instant, SystemTime)) -> Vec<ReplicaFault> {
    let all = replica_faults(current, at);
    let more = all.len().saturating_sub(MOST_FAULTS);
    let mut faults: Vec<_> = all.into_iter().take(MOST_FAULTS).collect();
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
        overdue: live.overdue_means().map(str::to_owned),
        unproven_since: (!live.is_in_place()).then(|| time(since)),
        failures: live.metrics.recent_failures(now).map(|failures| call_failures(&failures)),
        in_vain: live.metrics.recently_in_vain(now).map(|RecentInVain { in_vain, calls, over }| CallsInVain {
            in_vain,
            calls,
            seconds: over.as_secs(),
        }),
    }
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

fn gone(retired: &RetiredEntry) -> Option<HookReport> {
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
        in_vain: None,
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

fn rejected(rejection: &Rejection, most: usize) -> Rejected {
    let held = rejection.quarantined.iter().take(most).map(|held| HeldReport {
        document: held.document.clone(),
        keeps: held.keeps,
        since: time(held.since),
        why: short(&held.problem.to_string()),
    });
    Rejected {
        held: held.collect(),
        held_left_out: rejection.quarantined.len().saturating_sub(most),
        revision: rejection.revision.to_string(),
        since: time(rejection.since),
        problems: rejection.problems.iter().take(MOST_PROBLEMS).map(|problem| short(&problem.to_string())).collect(),
        count: rejection.problems.len(),
    }
}

#[cfg(test)]
mod tests;
