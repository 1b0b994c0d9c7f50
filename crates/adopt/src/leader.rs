//! Decisions of the leader on each entry at each turn. Only the leader writes entries.
//!
//! The leader announces an entry first. It applies the mark once every live replica claims to call the entry
//! under that announcement. An entry that carries the mark stays announced, so that the leader restores the
//! condition at the next turn after the owner drops it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use crate::{
    Announcement, AssessedEntry, ClusterEntry, EntryKey, FightRecord, Fights, MAX_CONDITIONS, MAX_FIGHTS, Reason,
    fights::whole_seconds,
};

/// Maximum time for which an entry that cannot be taken is announced. Meanwhile, the apiserver and some replicas both
/// call it.
const MAX_ANNOUNCEMENT: Duration = Duration::from_secs(6);
/// Minimum time from the announcement of an entry, and from a change of its content, to its takeover. By then, even a
/// replica that cannot write its lease calls that content, or treats its last read as stale.
pub(crate) const MIN_ANNOUNCEMENT: Duration = Duration::from_millis(1500);
/// First pause after a failed announcement, in which the entry is left to the apiserver. It doubles with each further
/// failure in a row.
const FIRST_ANNOUNCEMENT_PAUSE: Duration = Duration::from_secs(15);
/// First pause after a rejected write, which doubles likewise. Also the pause after an entry was given back because a
/// replica is missing or does not call it.
const FIRST_WRITE_PAUSE: Duration = Duration::from_secs(60);
const MAX_PAUSE: Duration = Duration::from_secs(3600);
/// Time for which an entry is announced as ending after it was given back or dropped. A replica that starts meanwhile
/// calls it until every apiserver has observed the change.
const ENDING_PERIOD: Duration = Duration::from_millis(1500);
/// Maximum number of writes of the mark in a row without a visible effect, because each came after a change by the
/// owner or got no answer.
const MAX_ATTEMPTS: u32 = 3;
/// Maximum time for which a live replica may fail to call an entry that carries the mark, as it might just have
/// started. Then the entry is given back.
const UNCLAIMED_GRACE_PERIOD: Duration = Duration::from_secs(6);

/// Decision on one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Announce the entry, and wait until every replica calls it.
    Announce,
    /// Apply the mark.
    Take,
    /// Keep the mark that the entry carries.
    Keep,
    /// Remove the mark.
    GiveBack(Reason),
    /// Leave it to the apiserver.
    Leave(Reason),
    /// Leave it to the apiserver while a write of the mark, by this leader or the one before, may be in flight.
    /// The entry stays announced until its object has another version, so that such a write fails.
    Fence(Reason),
}

impl Decision {
    /// Returns true if the entry is part of the announcement.
    pub const fn announces(&self) -> bool {
        matches!(self, Self::Announce | Self::Take | Self::Keep | Self::Fence(_))
    }
}

/// Input of the decision on one entry.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The entry as it was read.
    pub seen: &'a AssessedEntry,
    /// The announcement that was read lists it.
    pub announced: bool,
    /// Live replicas that have not claimed it since it was announced.
    pub unconfirmed: Vec<String>,
    /// Live replicas whose claims do not include it.
    pub not_claiming: Vec<String>,
    /// Live replicas that have not renewed their lease for a while.
    pub stalled: &'a [String],
    /// A stalled replica has not claimed it since it was announced.
    pub unconfirmed_by_stalled: bool,
    /// A receiver of reviews that is not a replica with `--adopt`, and whether it has existed for too long.
    pub missing: Option<(&'a str, bool)>,
}

/// State of one entry between turns.
#[derive(Debug, Default)]
struct Track {
    /// It carried the mark at the last turn, or the apiserver has accepted the mark since, and the decision
    /// was not to give it back.
    kept: bool,
    /// Time at which the apiserver accepted the mark; `None` once a read has begun later.
    accepted_at: Option<Duration>,
    /// Number of writes of the mark since it was last read.
    attempts: u32,
    fights: Fights,
    /// Start of its announcement while it does not carry the mark.
    announced_since: Option<Duration>,
    /// The leader before this one announced it.
    inherited: bool,
    /// Time until which it is announced as ending.
    ending_until: Duration,
    /// Its entry, and the time of its first read. Replicas may have used an older entry until a moment ago.
    content: Option<(Value, Duration)>,
    /// Time since which a replica has not called it although it carries the mark.
    unclaimed_since: Option<Duration>,
    /// End of the pause in which it is left to the apiserver, and the reason.
    pause: Option<(Duration, Reason)>,
    /// Number of failed announcements and rejected writes in a row.
    failures: u32,
    /// resourceVersion for which a write of the mark may be in flight.
    attempted: Option<String>,
}

/// State of the leader's decisions.
#[derive(Debug, Default)]
pub struct Leader {
    tracks: BTreeMap<EntryKey, Track>,
    /// Number of times that owners have dropped the mark.
    pub drops: u64,
}

impl Leader {
    /// Decides on each entry, in the order of `facts`. `unsupported` is the apiserver's version if it does not
    /// support match conditions.
    pub fn turn(&mut self, now: Duration, facts: &[Facts<'_>], unsupported: Option<&str>) -> Vec<(EntryKey, Decision)> {
        let present: BTreeSet<_> = facts.iter().map(|facts| &facts.seen.standing.key).collect();
        self.tracks.retain(|key, _| present.contains(key));
        let decide = |facts: &Facts<'_>| (facts.seen.standing.key.clone(), self.decide(now, facts, unsupported));
        facts.iter().map(decide).collect()
    }

    /// Starts from the announcement and the records of another leader.
    pub fn begin(
        &mut self,
        now: Duration,
        seen: &[AssessedEntry],
        before: &Announcement,
        records: &BTreeMap<String, FightRecord>,
    ) {
        self.tracks.clear();
        for AssessedEntry { standing: ClusterEntry { id, key, version, .. }, in_flight, .. } in seen {
            let (announced, ends, record) = (before.ids.contains(id), before.ending.contains(id), records.get(id));
            if !announced && !ends && record.is_none() {
                continue;
            }
            let track = self.tracks.entry(key.clone()).or_default();
            track.attempted = announced.then(|| version.clone());
            (track.announced_since, track.inherited) = (announced.then_some(now), announced);
            if announced || ends {
                // An announced entry may have carried the mark until a moment ago, even if no read found it.
                track.extend_ending(now, *in_flight);
            }
            let Some(record) = record else { continue };
            track.attempts = record.attempts.min(MAX_ATTEMPTS);
            track.fights = Fights::from_record(record, now);
            if record.failures > 0 || record.failure_pause_left_secs > 0 {
                let pause = Duration::from_secs(record.failure_pause_left_secs).min(MAX_PAUSE);
                let reason = match record.after_rejected_write {
                    true => Reason::ConditionNotApplied("the replica that wrote before could not write it".to_owned()),
                    false => Reason::NotCalled(Vec::new()),
                };
                (track.failures, track.pause) = (record.failures, Some((now + pause, reason)));
            }
        }
    }

    /// Returns the records for the next leader, by entry id: at most [`MAX_FIGHTS`], those with the most drops.
    pub fn records(&self, now: Duration) -> BTreeMap<String, FightRecord> {
        let record = |(key, track): (&EntryKey, &Track)| Some((track.record(now)?, key.id()));
        let mut all: Vec<_> = self.tracks.iter().filter_map(record).collect();
        all.sort_by_key(|(record, _)| Reverse(record.weight()));
        all.into_iter().take(MAX_FIGHTS).map(|(record, id)| (id, record)).collect()
    }

    /// Records that the apiserver rejected a write of that entry, or dropped the mark from it.
    pub fn on_refusal(&mut self, key: &EntryKey, what: String, now: Duration) {
        let track = self.tracks.entry(key.clone()).or_default();
        track.start_pause(now, FIRST_WRITE_PAUSE, Reason::ConditionNotApplied(what));
        (track.announced_since, track.attempted) = (None, None);
    }

    /// Records that the announcement of the turn at `turn` was written at `now`. No replica could read it earlier.
    pub fn on_announced(&mut self, turn: Duration, now: Duration) {
        for track in self.tracks.values_mut().filter(|track| track.announced_since == Some(turn)) {
            track.announced_since = Some(now);
        }
    }

    /// Records that the apiserver accepted the mark at `now`. An owner may drop the mark before any read
    /// returns it.
    pub fn on_taken(&mut self, key: &EntryKey, now: Duration) {
        let track = self.tracks.entry(key.clone()).or_default();
        (track.kept, track.accepted_at, track.attempts, track.failures) = (true, Some(now), 0, 0);
        (track.announced_since, track.inherited, track.attempted) = (None, false, None);
    }

    /// Returns true if the entry is announced as ending while it is left to the apiserver.
    pub fn is_ending(&self, key: &EntryKey, now: Duration) -> bool {
        self.tracks.get(key).is_some_and(|track| now < track.ending_until)
    }

    /// Returns the params of a binding as they were read before its annotation was lost, if it had any.
    pub(crate) fn known_params(&self, key: &EntryKey) -> Option<&Value> {
        let (content, _) = self.tracks.get(key)?.content.as_ref()?;
        content["binding"].get("paramRef").filter(|params| !params.is_null())
    }

    /// Returns true if the entry is paused. A paused entry may keep the mark.
    pub fn is_paused(&self, key: &EntryKey, now: Duration) -> bool {
        self.tracks.get(key).and_then(|track| track.pause.as_ref()).is_some_and(|(until, _)| now < *until)
    }

    fn decide(&mut self, now: Duration, facts: &Facts<'_>, unsupported: Option<&str>) -> Decision {
        let standing = &facts.seen.standing;
        let track = self.tracks.entry(standing.key.clone()).or_default();
        let against = facts.seen.against().cloned();
        // Once its annotation is lost, the content lacks its params: keep what was read before, for `known_params`.
        if track.content.as_ref().is_none_or(|(content, _)| !standing.foreign && *content != standing.content) {
            track.content = Some((standing.content.clone(), now));
        }
        if standing.carries {
            return track.decide_taken(now, facts, against);
        }
        track.unclaimed_since = None;
        if track.accepted_at.is_some_and(|at| now < at) {
            return Decision::Announce;
        }
        track.accepted_at = None;
        // Its owner has deleted the policy, and dropped no mark.
        if std::mem::take(&mut track.kept) && !standing.orphaned {
            track.extend_ending(now, facts.seen.in_flight);
            // A starting replica may have given the entry back because it cannot call it. The entry is then
            // announced anew, and does not count as dropped by its owner.
            if !standing.given_back {
                self.drops += 1;
                // The replicas already call it.
                track.announced_since = Some(now.saturating_sub(MIN_ANNOUNCEMENT));
                track.fights.record_drop(now, facts.seen.in_flight);
            }
        }
        if against == Some(Reason::Released) {
            // An operator who releases the entry is assumed to have resolved the conflict with its owner.
            (track.fights, track.failures, track.pause, track.attempts) = (Fights::default(), 0, None, 0);
        }
        // A write for the former version fails from now on. It may have taken effect before, and the owner may have
        // replaced the object before any read.
        if track.attempted.take_if(|version| *version != standing.version).is_some() {
            track.extend_ending(now, facts.seen.in_flight);
        }
        let reason = against
            .or_else(|| {
                let unsupported = unsupported.filter(|_| !standing.key.kind.is_binding());
                unsupported.map(|version| Reason::NoConditions(version.to_owned()))
            })
            .or_else(|| facts.missing.map(|(what, _)| Reason::ReplicaMissing(what.to_owned())))
            .or_else(|| (standing.other_conditions >= MAX_CONDITIONS).then_some(Reason::Full))
            .or_else(|| track.fights.drops_before_pause(now).map(Reason::Fought))
            .or_else(|| track.pause.as_ref().filter(|(until, _)| now < *until).map(|(_, reason)| reason.clone()))
            .or_else(|| {
                let waits = track.announced_since.is_none() || track.inherited && facts.unconfirmed_by_stalled;
                (waits && !facts.stalled.is_empty()).then(|| Reason::NotCalled(facts.stalled.to_vec()))
            });
        if let Some(reason) = reason {
            return track.leave(reason);
        }
        let announced_for = now.saturating_sub(*track.announced_since.get_or_insert(now));
        let unchanged = track.content.as_ref().is_some_and(|(_, since)| now.saturating_sub(*since) >= MIN_ANNOUNCEMENT);
        let called = facts.announced && facts.unconfirmed.is_empty() && announced_for >= MIN_ANNOUNCEMENT;
        let can_be_taken = called && unchanged && facts.seen.guarded;
        if can_be_taken && track.attempts < MAX_ATTEMPTS {
            track.attempts += 1;
            track.attempted = Some(standing.version.clone());
            return Decision::Take;
        }
        if announced_for < MAX_ANNOUNCEMENT && !can_be_taken {
            return Decision::Announce;
        }
        let reason = match facts.unconfirmed.is_empty() {
            true if can_be_taken => Reason::ConditionNotApplied(
                "several writes in a row came after another change, or got no answer; let its owner write it only when \
                 something has changed"
                    .to_owned(),
            ),
            true if !facts.seen.guarded => Reason::ConditionNotApplied("Gatepost's registration gets no finalizer".to_owned()),
            true if !unchanged => Reason::Unservable(
                "it changes all the time, and no replica has called its newest state for long enough; let its owner \
                 write it only when something has changed"
                    .to_owned(),
            ),
            _ => Reason::NotCalled(facts.unconfirmed.clone()),
        };
        track.start_pause(now, FIRST_ANNOUNCEMENT_PAUSE, reason.clone());
        track.leave(reason)
    }
}

impl Track {
    /// Decides on an entry that carries the mark.
    fn decide_taken(&mut self, now: Duration, facts: &Facts<'_>, against: Option<Reason>) -> Decision {
        (self.announced_since, self.attempted, self.accepted_at, self.attempts) = (None, None, None, 0);
        self.inherited = false;
        self.extend_ending(now, facts.seen.in_flight);
        let reason = match against {
            Some(reason) => reason,
            None => {
                let Some(reason) = self.not_called_reason(now, facts) else {
                    (self.kept, self.failures) = (true, 0);
                    return Decision::Keep;
                };
                self.pause = Some((now + FIRST_WRITE_PAUSE, reason.clone()));
                reason
            }
        };
        (self.kept, self.unclaimed_since) = (false, None);
        Decision::GiveBack(reason)
    }

    /// Returns the reason to give a taken entry back, if a replica is missing or does not call it.
    fn not_called_reason(&mut self, now: Duration, facts: &Facts<'_>) -> Option<Reason> {
        if let Some((what, true)) = facts.missing {
            return Some(Reason::ReplicaMissing(what.to_owned()));
        }
        if facts.not_claiming.is_empty() {
            self.unclaimed_since = None;
            return None;
        }
        let since = *self.unclaimed_since.get_or_insert(now);
        let overdue = now.saturating_sub(since) >= UNCLAIMED_GRACE_PERIOD;
        overdue.then(|| Reason::NotCalled(facts.not_claiming.clone()))
    }

    /// Starts a pause of length `first`, doubled for each earlier failure in a row.
    fn start_pause(&mut self, now: Duration, first: Duration, reason: Reason) {
        let pause = first.saturating_mul(1 << self.failures.min(10)).min(MAX_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.attempts = 0;
        self.pause = Some((now + pause, reason));
    }

    /// Announces the entry as ending for as long as an apiserver might still skip it because of the mark.
    fn extend_ending(&mut self, now: Duration, in_flight: Duration) {
        self.ending_until = self.ending_until.max(now + ENDING_PERIOD + in_flight);
    }

    /// Returns the record for the next leader: fights, failures since the last takeover, and writes without effect.
    fn record(&self, now: Duration) -> Option<FightRecord> {
        let fights = self.fights.record(now);
        let is_remembered = |until: Duration| now < until || self.failures > 0 && now <= until + MAX_PAUSE;
        let (failures, failure_pause_left_secs, after_rejected_write) = match &self.pause {
            Some((until, reason @ (Reason::NotCalled(_) | Reason::ConditionNotApplied(_))))
                if is_remembered(*until) =>
            {
                let pause = whole_seconds(until.saturating_sub(now));
                (self.failures, pause, matches!(reason, Reason::ConditionNotApplied(_)))
            }
            _ if self.attempts > 0 => (0, 0, false),
            _ => return fights,
        };
        Some(FightRecord {
            failures,
            failure_pause_left_secs,
            after_rejected_write,
            attempts: self.attempts,
            ..fights.unwrap_or_default()
        })
    }

    fn leave(&mut self, reason: Reason) -> Decision {
        (self.announced_since, self.inherited) = (None, false);
        match self.attempted {
            Some(_) => Decision::Fence(reason),
            None => Decision::Leave(reason),
        }
    }
}

#[cfg(test)]
mod tests;
