//! ReplicaStatus: entries of the live replicas about one object, and the conclusion. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    replicas::entry::{self, is_blocked},
    schema::status::{Condition, ConditionStatus, Replica, Stays},
};

/// Entries of the live replicas about one object, by name; `None` where a replica has none.
#[derive(Debug)]
pub(super) struct ReplicaStatus(BTreeMap<String, Option<Replica>>);

impl ReplicaStatus {
    /// Entries of these replicas in the object, ourselves as of now.
    pub(super) fn of<'a>(live: impl Iterator<Item = &'a str>, object: &Value, own: &Replica) -> Self {
        let mut said: BTreeMap<_, _> = live.map(|name| (name.to_owned(), None)).collect();
        for entry in entry::entries(object).flatten() {
            if let Some(place) = said.get_mut(&entry.name) {
                *place = Some(entry);
            }
        }
        said.insert(own.name.clone(), Some(own.clone()));
        Self(said)
    }

    /// Does every live replica say that no hook of the object is used any more? One that says nothing of it does not.
    pub(super) fn has_drained(&self) -> bool {
        self.0.values().all(|entry| entry.as_ref().is_some_and(|entry| entry.drained == Some(true)))
    }

    /// The condition `Accepted` of an object of that generation, where every live replica has it in force or one has
    /// rejected it, and that is not what stands there. All see the same.
    pub(super) fn accepted(&self, object: &Value, generation: i64, now: &str) -> Option<Condition> {
        let (status, reason, message) = self.judged(generation)?;
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

    /// Condition of the object, where it is clear.
    fn judged(&self, generation: i64) -> Option<(ConditionStatus, &'static str, String)> {
        for (name, entry) in &self.0 {
            let Some(entry) = entry else { continue };
            let Some(problem) = entry.rejected.as_ref().and_then(|problems| problems.first()) else { continue };
            let (reason, means) = match entry.held {
                Some(Stays::LastGood) => ("HeldBack", "its last good state stays in force: "),
                Some(Stays::Nothing) => ("LeftOut", "nothing of it is in force: "),
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
