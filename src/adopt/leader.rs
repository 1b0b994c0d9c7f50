//! Leader: decisions of the one replica that writes, on each webhook at each turn.
//!
//! It announces a webhook first, and applies the condition once every live replica says, under that very announcement,
//! that it calls it. A webhook that carries the condition stays announced, so that a drop by the owner is mended at the
//! next turn.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use super::{
    Announcement, Decision, Fights, KeptFights, MOST_CONDITIONS, MOST_FIGHTS, Reason, SeenWebhook, WebhookKey,
    WebhookStanding,
};

/// Longest announcement of a webhook that cannot be taken: meanwhile the apiserver and some replicas both call it.
const MOST_ANNOUNCED: Duration = Duration::from_secs(6);
/// Shortest announcement of a webhook before it is taken, and shortest time since its entry changed: by then even a
/// replica that cannot write its lease calls that entry, or takes what it has read for stale.
pub(super) const LEAST_ANNOUNCED: Duration = Duration::from_millis(1500);
/// First pause after an announcement that failed, in which the webhook is left to the apiserver; it doubles with each
/// further failure in a row.
const FIRST_REST: Duration = Duration::from_secs(15);
/// Longest pause.
const LONGEST_REST: Duration = Duration::from_secs(3600);
/// Pause after a webhook was given back because a replica does not call it, or is missing; first pause after a rejected write, which
/// doubles with each further failure in a row.
const REST: Duration = Duration::from_secs(60);
/// Time for which a webhook that was given back or dropped is announced as ending, so that a replica that starts
/// meanwhile calls it until every apiserver has observed that.
const LINGERS: Duration = Duration::from_millis(1500);
/// Most writes of the condition in a row of which none is seen to have happened: each came after a change by the owner,
/// or got no answer.
const MOST_TRIES: u32 = 3;
/// Time for which a replica may fail to call a webhook that carries the condition: it may just have started.
const SILENCE: Duration = Duration::from_secs(6);

/// Input of the decision on one webhook.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// As it was read.
    pub seen: &'a SeenWebhook,
    /// It is in the announcement that was read.
    pub announced: bool,
    /// Live replicas that have not claimed it since it was announced.
    pub unconfirmed: Vec<String>,
    /// Live replicas whose claims do not include it.
    pub silent: Vec<String>,
    /// Replicas that count as alive, but have not renewed their lease for a while.
    pub stalled: &'a [String],
    /// One of these has not claimed it since it was announced.
    pub in_vain: bool,
    /// Something may receive reviews and is no replica that takes part: its name, and whether that has been so for too
    /// long.
    pub missing: Option<(&'a str, bool)>,
}

#[derive(Debug, Default)]
struct Track {
    /// It carried the condition, and was to keep it.
    held: bool,
    /// Time at which the apiserver has put the condition there, if no later read has been seen: reads that began before
    /// do not have it.
    landed: Option<Duration>,
    /// Writes of the condition since it was last seen there.
    tries: u32,
    fights: Fights,
    /// Start of its announcement while it does not carry the condition.
    since: Option<Duration>,
    /// Announced by the leader before us.
    inherited: bool,
    /// End of its announcement while it is left to the apiserver.
    lingers: Duration,
    /// Its entry, and when that was first read: a replica may have read an older one until a moment ago.
    entry: Option<(Value, Duration)>,
    /// Time from which a replica has not called it although it carries the condition.
    silent: Option<Duration>,
    /// End of the pause in which it is left to the apiserver, and the reason.
    rest: Option<(Duration, Reason)>,
    /// Failed announcements and rejected writes in a row.
    vain: u32,
    /// The resourceVersion at which a write that gives it the condition may be on its way.
    attempted: Option<String>,
}

/// State of the one replica that writes.
#[derive(Debug, Default)]
pub struct Leader {
    tracks: BTreeMap<WebhookKey, Track>,
    /// Drops of the condition by owners.
    drops: u64,
}

impl Leader {
    /// One turn; `unsupported` names an apiserver's version without match conditions.
    pub fn turn(
        &mut self,
        now: Duration,
        facts: &[Facts<'_>],
        unsupported: Option<&str>,
    ) -> Vec<(WebhookKey, Decision)> {
        let there: BTreeSet<_> = facts.iter().map(|facts| &facts.seen.standing.key).collect();
        self.tracks.retain(|key, _| there.contains(key));
        let decide = |facts: &Facts<'_>| (facts.seen.standing.key.clone(), self.decide(now, facts, unsupported));
        facts.iter().map(decide).collect()
    }

    /// Takes over from another leader, which has announced some of these, and handed its fights over.
    pub fn begin(
        &mut self,
        now: Duration,
        seen: &[SeenWebhook],
        before: &Announcement,
        kept: &BTreeMap<String, KeptFights>,
    ) {
        self.tracks.clear();
        for SeenWebhook { standing: WebhookStanding { id, key, version, .. }, in_flight, .. } in seen {
            let (announced, ends, kept) = (before.ids.contains(id), before.ending.contains(id), kept.get(id));
            if !announced && !ends && kept.is_none() {
                continue;
            }
            let track = self.tracks.entry(key.clone()).or_default();
            track.attempted = announced.then(|| version.clone());
            (track.since, track.inherited) = (announced.then_some(now), announced);
            if announced || ends {
                // An announced webhook may have had the condition until a moment ago, although nobody has read that.
                track.linger(now, *in_flight);
            }
            track.tries = kept.map_or(0, |kept| kept.tries).min(MOST_TRIES);
            track.fights = kept.map(|kept| Fights::from_kept(kept, now)).unwrap_or_default();
            if let Some(kept) = kept.filter(|kept| kept.vain > 0 || kept.pause > 0) {
                let pause = Duration::from_secs(kept.pause).min(LONGEST_REST);
                let reason = match kept.refused {
                    true => Reason::Refused("the replica that wrote before could not write it".to_owned()),
                    false => Reason::NotCalled(Vec::new()),
                };
                (track.vain, track.rest) = (kept.vain, Some((now + pause, reason)));
            }
        }
    }

    /// Fights, announcements in vain and writes in vain to hand over, by the webhooks' ids; of too many, those with the
    /// most fights.
    pub fn kept(&self, now: Duration) -> BTreeMap<String, KeptFights> {
        let kept = |(key, track): (&WebhookKey, &Track)| Some((track.kept(now)?, key.id()));
        let mut all: Vec<_> = self.tracks.iter().filter_map(kept).collect();
        all.sort_by_key(|(kept, _)| Reverse(kept.weight()));
        all.into_iter().take(MOST_FIGHTS).map(|(kept, id)| (id, kept)).collect()
    }

    /// Records that the apiserver rejects the condition of that webhook, or another write of ours to it.
    pub fn refused(&mut self, key: &WebhookKey, what: String, now: Duration) {
        let track = self.tracks.entry(key.clone()).or_default();
        track.rest_from(now, REST, Reason::Refused(what));
        (track.since, track.attempted) = (None, None);
    }

    /// Records that the announcement that the turn at `turn` planned was written by `now`: nobody could read it before.
    pub fn announced(&mut self, turn: Duration, now: Duration) {
        for track in self.tracks.values_mut().filter(|track| track.since == Some(turn)) {
            track.since = Some(now);
        }
    }

    /// Records that the apiserver has put the condition there, at `now`. An owner that reacts at once drops it before it
    /// is ever read.
    pub fn landed(&mut self, key: &WebhookKey, now: Duration) {
        let track = self.tracks.entry(key.clone()).or_default();
        (track.held, track.landed, track.tries, track.vain) = (true, Some(now), 0, 0);
        (track.since, track.inherited, track.attempted) = (None, false, None);
    }

    /// Is the webhook announced as ending while it is left to the apiserver?
    pub fn lingers(&self, key: &WebhookKey, now: Duration) -> bool {
        self.tracks.get(key).is_some_and(|track| now < track.lingers)
    }

    /// Is the webhook left alone for a while, also where it keeps the condition?
    pub fn rests(&self, key: &WebhookKey, now: Duration) -> bool {
        self.tracks.get(key).and_then(|track| track.rest.as_ref()).is_some_and(|(until, _)| now < *until)
    }

    /// Number of times that owners have dropped the condition.
    pub const fn drops(&self) -> u64 {
        self.drops
    }

    fn decide(&mut self, now: Duration, facts: &Facts<'_>, unsupported: Option<&str>) -> Decision {
        let standing = &facts.seen.standing;
        let track = self.tracks.entry(standing.key.clone()).or_default();
        let against = facts.seen.against().cloned();
        if track.entry.as_ref().is_none_or(|(entry, _)| *entry != standing.entry) {
            track.entry = Some((standing.entry.clone(), now));
        }
        if standing.carries {
            (track.since, track.attempted, track.landed, track.tries) = (None, None, None, 0);
            track.inherited = false;
            track.linger(now, facts.seen.in_flight);
            if let Some(reason) = against {
                (track.held, track.silent) = (false, None);
                return Decision::GiveBack(reason);
            }
            if let Some((what, _)) = facts.missing.filter(|(_, overdue)| *overdue) {
                let reason = Reason::ReplicaMissing(what.to_owned());
                (track.held, track.silent) = (false, None);
                track.rest = Some((now + REST, reason.clone()));
                return Decision::GiveBack(reason);
            }
            if facts.silent.is_empty() {
                track.silent = None;
            } else if now.saturating_sub(*track.silent.get_or_insert(now)) >= SILENCE {
                let reason = Reason::NotCalled(facts.silent.clone());
                (track.held, track.silent) = (false, None);
                track.rest = Some((now + REST, reason.clone()));
                return Decision::GiveBack(reason);
            }
            (track.held, track.vain) = (true, 0);
            return Decision::Keep;
        }
        track.silent = None;
        if track.landed.is_some_and(|at| now < at) {
            return Decision::Announce;
        }
        track.landed = None;
        if std::mem::take(&mut track.held) {
            track.linger(now, facts.seen.in_flight);
            // A replica that starts cannot call a webhook that it has given back: that is announced anew, and its owner
            // has done nothing.
            if !standing.given_back {
                self.drops += 1;
                // The replicas call it already.
                track.since = Some(now.saturating_sub(LEAST_ANNOUNCED));
                track.fights.dropped(now, facts.seen.in_flight);
            }
        }
        if against == Some(Reason::Released) {
            // An operator who releases it and then wants it again has dealt with its owner.
            (track.fights, track.vain, track.rest, track.tries) = (Fights::default(), 0, None, 0);
        }
        // A write to the object as it was then fails now. It may have happened, too, and its owner have replaced the
        // object before anybody read that.
        if track.attempted.take_if(|version| *version != standing.version).is_some() {
            track.linger(now, facts.seen.in_flight);
        }
        let reason = against
            .or_else(|| unsupported.map(|version| Reason::NoConditions(version.to_owned())))
            .or_else(|| facts.missing.map(|(what, _)| Reason::ReplicaMissing(what.to_owned())))
            .or_else(|| (standing.conditions >= MOST_CONDITIONS).then_some(Reason::Full))
            .or_else(|| track.fights.lost(now).map(Reason::Fought))
            .or_else(|| track.rest.as_ref().filter(|(until, _)| now < *until).map(|(_, reason)| reason.clone()))
            .or_else(|| {
                let in_vain = track.since.is_none() || track.inherited && facts.in_vain;
                (in_vain && !facts.stalled.is_empty()).then(|| Reason::NotCalled(facts.stalled.to_vec()))
            });
        if let Some(reason) = reason {
            return track.left(reason);
        }
        let announced_for = now.saturating_sub(*track.since.get_or_insert(now));
        let long_enough = |since: Duration| now.saturating_sub(since) >= LEAST_ANNOUNCED;
        let known = track.entry.as_ref().is_some_and(|(_, since)| long_enough(*since));
        let called = facts.announced && facts.unconfirmed.is_empty() && announced_for >= LEAST_ANNOUNCED;
        let can_be_taken = called && known && facts.seen.guarded;
        if can_be_taken && track.tries < MOST_TRIES {
            track.tries += 1;
            track.attempted = Some(standing.version.clone());
            return Decision::Take;
        }
        if announced_for < MOST_ANNOUNCED && !can_be_taken {
            return Decision::Announce;
        }
        let reason = match facts.unconfirmed.is_empty() {
            true if can_be_taken => Reason::Refused(
                "several writes in a row came after another change, or got no answer; let its owner write it only when \
                 something has changed"
                    .to_owned(),
            ),
            true if !facts.seen.guarded => Reason::Refused("Gatepost's registration gets no finalizer".to_owned()),
            true if !known => Reason::Unservable(
                "it changes all the time, and no replica has called its newest state for long enough; let its owner \
                 write it only when something has changed"
                    .to_owned(),
            ),
            _ => Reason::NotCalled(facts.unconfirmed.clone()),
        };
        track.rest_from(now, FIRST_REST, reason.clone());
        track.left(reason)
    }
}

impl Track {
    /// Begins a pause: this one for a first failure, twice as long for each further one in a row.
    fn rest_from(&mut self, now: Duration, first: Duration, reason: Reason) {
        let rest = first.saturating_mul(1 << self.vain.min(10)).min(LONGEST_REST);
        self.vain = self.vain.saturating_add(1);
        self.tries = 0;
        self.rest = Some((now + rest, reason));
    }

    /// Has it announced as ending for as long as an apiserver may go by the condition.
    fn linger(&mut self, now: Duration, in_flight: Duration) {
        self.lingers = self.lingers.max(now + LINGERS + in_flight);
    }

    /// State for the next leader: fights, announcements in vain since it was last taken, and writes in vain.
    fn kept(&self, now: Duration) -> Option<KeptFights> {
        let fights = self.fights.kept(now);
        let is_remembered = |until: Duration| now < until || self.vain > 0 && now <= until + LONGEST_REST;
        let (vain, pause, refused) = match &self.rest {
            Some((until, reason @ (Reason::NotCalled(_) | Reason::Refused(_)))) if is_remembered(*until) => {
                let pause = until.saturating_sub(now).as_millis().div_ceil(1000);
                let pause = u64::try_from(pause).unwrap_or(u64::MAX);
                (self.vain, pause, matches!(reason, Reason::Refused(_)))
            }
            _ if self.tries > 0 => (0, 0, false),
            _ => return fights,
        };
        Some(KeptFights { vain, pause, refused, tries: self.tries, ..fights.unwrap_or_default() })
    }

    fn left(&mut self, reason: Reason) -> Decision {
        (self.since, self.inherited) = (None, false);
        match self.attempted {
            Some(_) => Decision::Fence(reason),
            None => Decision::Leave(reason),
        }
    }
}

#[cfg(test)]
mod tests;
