//! Conclusions from the reports of all replicas: whether a revision is in force, and whether a hook has drained.

use gatepost_api::Revision;

use crate::{HookReport, HookStanding, ReplicaReport};

/// State of the replicas at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicasSeen {
    /// Reports of the live replicas, by name.
    pub reports: Vec<ReplicaReport>,
    /// Places that could not be read. A replica that is read by address is expected to be alive.
    pub unreadable: Vec<ReportError>,
}

/// Failure to read a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportError {
    /// Place that was read.
    pub place: String,
    /// Cause of the failure.
    pub why: String,
}

/// Progress towards the awaited state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The state is reached, as this sentence describes.
    Done(String),
    /// The state is not reached yet. Each sentence describes something missing.
    Waiting(Vec<String>),
    /// The state will not be reached, for this reason.
    Failed(String),
}

/// Checks that at least `expect` replicas are alive, and that all of them have the revision `wanted` in force. With
/// `must_change`, the revision changes the configuration, so that a replica for which it changes nothing reads something
/// else.
pub fn all_have_in_force(seen: &ReplicasSeen, wanted: &Revision, expect: usize, must_change: bool) -> Progress {
    let mut missing = missing_replicas(seen, expect);
    for report in &seen.reports {
        match pending_revision(report, wanted, must_change) {
            Ok(pending) => missing.extend(pending),
            Err(why) => return Progress::Failed(why),
        }
    }
    if missing.is_empty() {
        let count = replicas(seen.reports.len());
        let has = if seen.reports.len() == 1 { "has" } else { "have" };
        return Progress::Done(format!("{count} {has} revision {wanted} in force: {}", names(&seen.reports)));
    }
    Progress::Waiting(missing)
}

/// Describes what the replica has in force instead of the revision; `None` if it has the revision.
///
/// # Errors
/// The reason why it will never have the revision in force.
fn pending_revision(report: &ReplicaReport, wanted: &Revision, must_change: bool) -> Result<Option<String>, String> {
    let (name, at) = (&report.replica, &report.revision);
    let in_force = report.in_force(wanted);
    if in_force.as_ref().is_some_and(|own| own.holds(wanted)) {
        return Ok(None);
    }
    let seen = |wanted: &u64| report.observed.is_some_and(|observed| observed >= *wanted);
    let read = matches!(wanted, Revision::Store(wanted) if seen(wanted));
    if let Some(rejected) = &report.rejected {
        let revision = Revision::parse(&rejected.revision);
        if read || revision.is_some_and(|revision| revision.holds(wanted)) {
            let problems = rejected.problems.join("; ");
            let count = rejected.count;
            return Err(format!("{name} has rejected it, for {count} problem(s): {problems}"));
        }
    } else if read && must_change {
        let reads = "and it changes nothing there: does the replica read another prefix, or other kinds of objects?";
        return Ok(Some(format!("{name} has read that revision, {reads}")));
    } else if read {
        // That revision of the store changed nothing of ours, or the change was reverted.
        return Ok(None);
    }
    if report.generation > 0 && matches!((wanted, &in_force), (Revision::Store(_), Some(Revision::Digest(_)))) {
        return Err(format!("{name} reads files, whose states have no numbers: wait for a digest, such as {at}"));
    }
    let is_unacknowledged = report.plugins.as_ref().is_some_and(|plugins| plugins.unacknowledged_generation.is_some());
    let why = match &report.read_failure {
        Some(failure) => format!(", and cannot read: {}", failure.what),
        None if is_unacknowledged => ", and a plugin has not acknowledged the next one yet".to_owned(),
        None => String::new(),
    };
    Ok(Some(match report.generation {
        0 => format!("{name} has no configuration yet{why}"),
        _ => format!("{name} is at revision {at}{why}"),
    }))
}

/// Checks that at least `expect` replicas are alive, and that none of them uses `hook` any more: a hook's name, id or
/// endpoint, or an initializer's name. Its endpoint or its processes may then be switched off.
pub fn drained(seen: &ReplicasSeen, hook: &str, expect: usize) -> Progress {
    let mut missing = missing_replicas(seen, expect);
    let (mut known, mut is_initializer) = (Vec::new(), false);
    for report in &seen.reports {
        let name = &report.replica;
        if report.stale || report.generation == 0 {
            missing.push(format!("{name} has no fresh configuration, so its report may be outdated"));
        } else if report.hooks_left_out > 0 {
            let left_out = report.hooks_left_out;
            missing.push(format!("hooks that the report of {name} has no room for: {left_out}; use its admin address"));
        } else if report.initializers_left_out > 0 {
            let left_out = report.initializers_left_out;
            missing
                .push(format!("initializers that the report of {name} has no room for: {left_out}; look at /configz"));
        }
        for one in report.initializers.iter().filter(|one| one.name == hook) {
            is_initializer = true;
            match one.state {
                HookStanding::Gone => {}
                HookStanding::Draining => {
                    missing.push(format!("draining on {name} since {}", one.retired_since.as_deref().unwrap_or("?")));
                }
                state => missing
                    .push(format!("still configured as an initializer as {name} sees it ({state:?}): remove it first")),
            }
        }
        for one in report.hooks.iter().filter(|one| matches(one, hook)) {
            known.push(one);
            match one.state {
                HookStanding::Gone => {}
                HookStanding::Draining => missing.push(format!("draining on {name} since {}", one.since)),
                HookStanding::Probing | HookStanding::Active | HookStanding::Unknown => {
                    let (configuration, state) = (&one.configuration, one.state);
                    missing.push(format!(
                        "still configured in {configuration} as {name} sees it ({state:?}): remove it first"
                    ));
                }
            }
        }
    }
    if !missing.is_empty() {
        return Progress::Waiting(missing);
    }
    let count = replicas(seen.reports.len());
    if known.is_empty() && is_initializer {
        return Progress::Done(format!("{hook} is gone on {count}: its processes may be stopped"));
    }
    if known.is_empty() {
        return Progress::Failed(format!(
            "none of {count} knows {hook}: is it spelt so? One that is gone is remembered for an hour, and until a restart. Of \
             initializers admin pages alone know (--admin), and etcd"
        ));
    }
    match shared_endpoint(seen, hook, &known) {
        Some(why) => Progress::Failed(format!("{hook} is gone on {count}, but {why}: leave the endpoint on")),
        None => Progress::Done(format!("{hook} is gone on {count}: its endpoint may be switched off")),
    }
}

/// Returns true if `wanted` is the name, the id or an endpoint of the hook.
fn matches(hook: &HookReport, wanted: &str) -> bool {
    hook.name == wanted || hook.id == wanted || leads_to(hook, wanted)
}

fn leads_to(hook: &HookReport, endpoint: &str) -> bool {
    hook.endpoint == endpoint || hook.moves_to.as_deref() == Some(endpoint)
}

/// Describes another hook that is called at an endpoint of the hook that is gone.
fn shared_endpoint(seen: &ReplicasSeen, hook: &str, gone: &[&HookReport]) -> Option<String> {
    for report in &seen.reports {
        let others = report.hooks.iter().filter(|other| other.state != HookStanding::Gone && !matches(other, hook));
        for other in others {
            if let Some(gone) = gone.iter().find(|gone| leads_to(other, &gone.endpoint)) {
                let (endpoint, name, replica) = (&gone.endpoint, &other.name, &report.replica);
                return Some(format!("{endpoint} is also that of {name} ({:?} on {replica})", other.state));
            }
        }
    }
    None
}

/// Describes replicas that are missing, unreadable, or share a name.
fn missing_replicas(seen: &ReplicasSeen, expect: usize) -> Vec<String> {
    let unreadable = seen.unreadable.iter();
    let mut absent: Vec<_> = unreadable.map(|one| format!("no answer from {}: {}", one.place, one.why)).collect();
    let twins = seen.reports.iter().filter(|report| report.contested);
    absent.extend(twins.map(|report| {
        let name = &report.replica;
        format!("two replicas go by the name {name}, and one hides the other: give each its own --replica")
    }));
    let (live, expect) = (seen.reports.len(), expect.max(1));
    if live < expect && absent.is_empty() {
        absent.push(match live {
            0 => "no replica is alive".to_owned(),
            _ => format!("{live} of {expect} replicas are alive: {}", names(&seen.reports)),
        });
    }
    absent
}

fn names(reports: &[ReplicaReport]) -> String {
    reports.iter().map(|report| &*report.replica).collect::<Vec<_>>().join(", ")
}

fn replicas(count: usize) -> String {
    match count {
        1 => "1 replica".to_owned(),
        more => format!("{more} replicas"),
    }
}

#[cfg(test)]
mod tests;
