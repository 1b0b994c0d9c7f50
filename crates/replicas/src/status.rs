//! Reports in the status of configuration objects, where each object has a share of a replica's report. Writes and
//! reads the shares, and computes the condition of an object from the shares of all live replicas.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, SystemTime},
};

use gatepost_api::schema::status::{Condition, ConditionStatus, HeldDocument, Replica, StateInForce};
use serde_json::Value;

use crate::{HeldReport, HookReport, HookStanding, RejectedConfiguration, ReplicaReport, ReplicasSeen, ReportError};

/// Time without a renewal of any of its entries after which a replica counts as dead.
pub(crate) const REPLICA_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the name of a configuration object in problems.
pub(crate) fn configuration_file(name: &str) -> String {
    format!("admissioncontrolconfigurations/{name}")
}

/// A report, with the data that all of its entries need.
#[derive(Debug)]
pub(crate) struct ReportShares<'a> {
    report: &'a ReplicaReport,
    /// Names of the objects that are not being deleted, or of all objects if all are being deleted.
    names: BTreeSet<&'a str>,
    /// First of these objects. Its entry includes everything that belongs to no object.
    first: Option<&'a str>,
    /// Documents that are held back, by name.
    held: HashMap<&'a str, &'a HeldReport>,
}

/// Prefix of the problem of an object that is not in force because of a fault of another one.
const BLOCKED: &str = "not in force, because of another: ";

/// Facts about the object of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectFacts<'a> {
    /// Name of the object.
    pub(crate) name: &'a str,
    /// Generation of the object that is in force, if known.
    pub(crate) generation: Option<i64>,
    /// The object is being deleted, and this replica has read the deletion.
    pub(crate) left: bool,
}

impl<'a> ReportShares<'a> {
    /// Divides a report among these objects. Each item is an object's name, and whether it is being deleted.
    pub(crate) fn new(report: &'a ReplicaReport, objects: impl Iterator<Item = (&'a str, bool)> + Clone) -> Self {
        let all = objects.clone().map(|(name, _)| name);
        let staying: BTreeSet<_> = objects.filter(|(_, deleted)| !deleted).map(|(name, _)| name).collect();
        let names = if staying.is_empty() { all.collect() } else { staying };
        let first = names.first().copied();
        let held = report.rejected.iter().flat_map(|rejected| &rejected.held);
        let held = held.map(|held| (&*held.document, held)).collect();
        Self { report, names, first, held }
    }

    /// Returns true if the newest state of the object that was read is in force.
    pub(crate) fn is_in_force(&self, name: &str) -> bool {
        let held = |rejected: &RejectedConfiguration| {
            rejected.is_whole() || rejected.held_left_out > 0 || self.held.contains_key(&*configuration_file(name))
        };
        self.report.generation > 0 && !self.report.rejected.as_ref().is_some_and(held)
    }

    /// Returns the entry for this object.
    pub(crate) fn entry(&self, about: ObjectFacts<'_>) -> Replica {
        let (report, first) = (self.report, self.first == Some(about.name));
        let own: Vec<_> = report.hooks.iter().filter(|hook| hook.configuration == about.name).collect();
        // The first object lists hooks of objects that are being deleted, so that no hook is ever missing.
        let others = report.hooks.iter().filter(|hook| first && !self.names.contains(&*hook.configuration));
        let others: Vec<_> = others.filter_map(|hook| share(hook, &hook.configuration)).collect();
        let rejected = report.rejected.as_ref();
        let held = self.held.get(&*configuration_file(about.name));
        let is_ours = |document: &str| {
            document.strip_prefix(&configuration_file("")).is_some_and(|name| self.names.contains(name))
        };
        let others_held = self.held.values().filter(|held| first && !is_ours(&held.document));
        let mut others_held: Vec<_> = others_held.map(|held| held_document(held)).collect();
        others_held.sort_by(|a, b| a.document.cmp(&b.document));
        // A replica that is hidden by another of the same name may call hooks that the other does not.
        let unclear = report.hooks_left_out > 0 || report.stale || report.contested;
        let used = own.iter().any(|hook| hook.state != HookStanding::Gone);
        Replica {
            name: report.replica.clone(),
            instance: Some(report.instance.clone()),
            contested: report.contested.then_some(true),
            version: Some(report.version.clone()),
            generation: Some(report.generation),
            observed_generation: about.generation,
            revision: Some(report.revision.clone()),
            digest: Some(report.digest.clone()),
            observed: report.observed.and_then(|observed| observed.try_into().ok()),
            renewed: Some(report.published.clone()),
            age_seconds: report.age_seconds,
            stale: Some(report.stale),
            stopping: report.stopping.then_some(true),
            rejected: rejected.and_then(|rejected| self.problems(rejected, about.name)),
            held: held.map(|held| stays(held)),
            held_since: held.map(|held| held.since.clone()),
            others_held: Some(others_held).filter(|held| !held.is_empty()),
            break_glass: Some(report.break_glass.clone()).filter(|open| first && !open.is_empty()),
            faults: Some(report.faults.clone()).filter(|faults| first && !faults.is_empty()),
            bypasses: Some(report.bypasses.clone()).filter(|bypasses| first && !bypasses.is_empty()),
            from_last_good: report.from_last_good.clone(),
            rejected_revision: rejected.map(|rejected| rejected.revision.clone()),
            rejected_since: rejected.map(|rejected| rejected.since.clone()),
            draining: Some(own.iter().any(|hook| hook.state == HookStanding::Draining)),
            drained: Some(about.left && !used && !unclear),
            hooks: Some(own.iter().filter_map(|hook| share(hook, "")).collect()),
            others: Some(others).filter(|others| !others.is_empty()),
        }
    }

    /// Returns the problems because of which this object's newest state is not in force. If nothing is in force, the
    /// first object also has the problems of no object.
    fn problems(&self, rejected: &RejectedConfiguration, name: &str) -> Option<Vec<String>> {
        if !rejected.is_whole() {
            return self.held.get(&*configuration_file(name)).map(|held| vec![held.why.clone()]);
        }
        let of = |problem: &str, name: &str| problem.starts_with(&format!("{}: ", configuration_file(name)));
        let of_no_object = |problem: &str| !self.names.iter().any(|name| of(problem, name));
        let first = self.first == Some(name);
        let problems = rejected.problems.iter().filter(|problem| of(problem, name) || first && of_no_object(problem));
        let own: Vec<_> = problems.cloned().collect();
        match (own.is_empty(), rejected.problems.first()) {
            (true, Some(other)) => Some(vec![format!("{BLOCKED}{other}")]),
            _ => Some(own),
        }
    }
}

fn stays(held: &HeldReport) -> StateInForce {
    if held.keeps { StateInForce::LastGood } else { StateInForce::Nothing }
}

fn held_document(held: &HeldReport) -> HeldDocument {
    let HeldReport { document, since, why, .. } = held.clone();
    HeldDocument { document, stays: stays(held), since, why }
}

/// Returns true if this is the problem of an object without a fault of its own.
pub(crate) fn is_blocked(problem: &str) -> bool {
    problem.starts_with(BLOCKED)
}

/// Returns the hook with this configuration, which is "" in the object's own list; `None` if its state is unknown.
fn share(hook: &HookReport, configuration: &str) -> Option<HookReport> {
    let configuration = configuration.to_owned();
    (hook.state != HookStanding::Unknown).then(|| HookReport { configuration, ..hook.clone() })
}

/// Returns the entries of an object's status, each with an error if it cannot be parsed.
pub(crate) fn entries(object: &Value) -> impl Iterator<Item = Result<Replica, String>> {
    let entries = object.pointer("/status/replicas").and_then(Value::as_array);
    entries.into_iter().flatten().map(|entry| {
        let read = serde_json::from_value(entry.clone());
        read.map_err(|error| format!("an entry of its status is not a report of a replica: {error}"))
    })
}

pub(crate) fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn hooks(object: &Value) -> usize {
    object.get("externalAdmissionHooks").and_then(Value::as_array).map_or(0, Vec::len)
}

/// Returns the live replicas with entries in these objects.
///
/// A replica renews its entries one after the other. Its state is read from the oldest live entry, so that a state is
/// reported only once every object has it. The hooks of all entries are merged. Hooks of an object without an entry of
/// the replica count as left out.
pub(crate) fn seen(objects: &[Value], now: SystemTime) -> ReplicasSeen {
    let (mut replicas, mut unreadable) = (BTreeMap::<String, Vec<(&Value, Replica)>>::new(), Vec::new());
    for object in objects {
        for entry in entries(object) {
            match entry {
                Ok(entry) => replicas.entry(entry.name.clone()).or_default().push((object, entry)),
                Err(why) => unreadable.push(ReportError { place: configuration_file(name(object)), why }),
            }
        }
    }
    let reports = replicas.into_values().filter_map(|entries| report(objects, &entries, now)).collect();
    ReplicasSeen { reports, unreadable }
}

/// Merges the shares of a replica; returns `None` if it is dead.
fn report(objects: &[Value], entries: &[(&Value, Replica)], now: SystemTime) -> Option<ReplicaReport> {
    let live: Vec<_> = entries.iter().map(|(_, entry)| entry).filter(|entry| is_live(entry, now)).collect();
    let oldest = live.iter().min_by(|one, other| one.renewed.cmp(&other.renewed))?;
    let missing = objects.iter().filter(|object| !entries.iter().any(|(there, _)| name(there) == name(object)));
    let own = |(object, entry): &(&Value, Replica)| {
        entry.hooks.iter().flatten().map(|hook| hook_report(hook, name(object))).collect::<Vec<_>>()
    };
    let mut hook_reports: Vec<_> = entries.iter().flat_map(own).collect();
    for (object, entry) in entries {
        for other in entry.others.iter().flatten().map(|hook| hook_report(hook, name(object))) {
            if !hook_reports.contains(&other) {
                hook_reports.push(other);
            }
        }
    }
    let rejecting: Vec<_> = live.iter().filter(|entry| entry.rejected_revision.is_some()).collect();
    let problems = rejecting.iter().flat_map(|entry| entry.rejected.iter().flatten());
    let problems: Vec<_> = problems.filter(|problem| !is_blocked(problem)).cloned().collect();
    let held = entries.iter().filter(|(_, entry)| is_live(entry, now)).flat_map(|(object, entry)| {
        let own = entry.held.map(|stays| HeldDocument {
            document: configuration_file(name(object)),
            stays,
            since: entry.held_since.clone().unwrap_or_default(),
            why: entry.rejected.iter().flatten().next().cloned().unwrap_or_default(),
        });
        own.into_iter().chain(entry.others_held.iter().flatten().cloned())
    });
    let held = held.map(|HeldDocument { document, stays, since, why }| {
        let keeps = stays == StateInForce::LastGood;
        HeldReport { document, keeps, since, why }
    });
    let held: Vec<_> = held.collect();
    let rejected = rejecting.first().map(|entry| RejectedConfiguration {
        revision: entry.rejected_revision.clone().unwrap_or_default(),
        since: entry.rejected_since.clone().unwrap_or_default(),
        count: problems.len().max(held.len()),
        problems,
        held,
        held_left_out: 0,
    });
    Some(ReplicaReport {
        replica: oldest.name.clone(),
        instance: oldest.instance.clone().unwrap_or_default(),
        contested: live.iter().any(|entry| entry.contested == Some(true)),
        version: oldest.version.clone().unwrap_or_default(),
        generation: oldest.generation.unwrap_or_default(),
        revision: oldest.revision.clone().unwrap_or_default(),
        digest: oldest.digest.clone().unwrap_or_default(),
        observed: oldest.observed.and_then(|observed| observed.try_into().ok()),
        age_seconds: oldest.age_seconds,
        stale: live.iter().any(|entry| entry.stale != Some(false)),
        stopping: live.iter().any(|entry| entry.stopping == Some(true)),
        faults: live.iter().find_map(|entry| entry.faults.clone()).unwrap_or_default(),
        break_glass: live.iter().find_map(|entry| entry.break_glass.clone()).unwrap_or_default(),
        bypasses: live.iter().find_map(|entry| entry.bypasses.clone()).unwrap_or_default(),
        rejected,
        from_last_good: oldest.from_last_good.clone(),
        hooks: hook_reports,
        hooks_left_out: missing.map(hooks).sum(),
        published: oldest.renewed.clone().unwrap_or_default(),
        // Initializers and failures of reads are only in the admin page of each replica.
        ..ReplicaReport::default()
    })
}

fn is_live(entry: &Replica, now: SystemTime) -> bool {
    let renewed = entry.renewed.as_deref().and_then(|renewed| humantime::parse_rfc3339(renewed).ok());
    // The clock of a replica may be ahead.
    renewed.is_some_and(|renewed| now.duration_since(renewed).unwrap_or_default() <= REPLICA_TIMEOUT)
}

fn hook_report(hook: &HookReport, object: &str) -> HookReport {
    let configuration = if hook.configuration.is_empty() { object } else { &hook.configuration };
    HookReport { configuration: configuration.to_owned(), ..hook.clone() }
}

/// Entries of the live replicas for one object, by replica; `None` if a replica has no entry.
#[derive(Debug)]
pub(crate) struct ReplicaStatus(BTreeMap<String, Option<Replica>>);

impl ReplicaStatus {
    /// Returns the entries of these replicas in the object, with our own current entry.
    pub(crate) fn of<'a>(live: impl Iterator<Item = &'a str>, object: &Value, own: &Replica) -> Self {
        let mut all: BTreeMap<_, _> = live.map(|name| (name.to_owned(), None)).collect();
        for entry in entries(object).flatten() {
            if let Some(place) = all.get_mut(&entry.name) {
                *place = Some(entry);
            }
        }
        all.insert(own.name.clone(), Some(own.clone()));
        Self(all)
    }

    /// Returns true if every live replica reports that it no longer uses a hook of the object.
    pub(crate) fn has_drained(&self) -> bool {
        self.0.values().all(|entry| entry.as_ref().is_some_and(|entry| entry.drained == Some(true)))
    }

    /// Returns the condition `Accepted` of an object, if it is known for that generation and differs from the one in
    /// the object. All replicas compute the same condition.
    pub(crate) fn accepted(&self, object: &Value, generation: i64, now: &str) -> Option<Condition> {
        let (status, reason, message) = self.acceptance(generation)?;
        let conditions = object.pointer("/status/conditions").cloned().unwrap_or_default();
        let conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap_or_default();
        let last = conditions.into_iter().find(|condition| condition.condition_type == "Accepted");
        let unchanged = last.as_ref().filter(|last| last.status == status);
        let condition = Condition {
            condition_type: "Accepted".to_owned(),
            status,
            observed_generation: Some(generation),
            last_transition_time: unchanged.map_or(now, |last| &last.last_transition_time).to_owned(),
            reason: reason.to_owned(),
            message,
        };
        (last.as_ref() != Some(&condition)).then_some(condition)
    }

    /// Returns the condition: false if a replica has rejected the object, true if every replica has it in force.
    fn acceptance(&self, generation: i64) -> Option<(ConditionStatus, &'static str, String)> {
        for (name, entry) in &self.0 {
            let Some(entry) = entry else { continue };
            let Some(problem) = entry.rejected.as_ref().and_then(|problems| problems.first()) else { continue };
            let (reason, means) = match entry.held {
                Some(StateInForce::LastGood) => ("HeldBack", "its last good state stays in force: "),
                Some(StateInForce::Nothing) => ("LeftOut", "nothing of it is in force: "),
                None if is_blocked(problem) => ("Blocked", ""),
                None => ("Rejected", ""),
            };
            return Some((ConditionStatus::False, reason, format!("{name}: {means}{problem}")));
        }
        let adopted =
            |entry: &Option<Replica>| entry.as_ref().and_then(|entry| entry.observed_generation) == Some(generation);
        let all = self.0.values().all(adopted);
        all.then(|| (ConditionStatus::True, "InForce", "every live replica has it in force".to_owned()))
    }
}

#[cfg(test)]
mod tests;
