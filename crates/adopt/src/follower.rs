//! The part that every replica plays: from one read, the webhooks to call and the claims to publish for the leader.
//!
//! A webhook is called while it carries our condition or the leader announces it, and for [`GRACE_PERIOD`] after the last
//! read that found either. That also holds if its configuration no longer lists it: its owner may have renamed it, and
//! an apiserver that has not observed the change goes by the former state. While the newest state of a webhook cannot be
//! served, its last good state is called.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gatepost_kube_support::LeaseObserver;
use serde_json::Value;

use crate::{Announcement, Claims, Lease, Reason, SeenWebhook, WebhookKey, webhook::short_digest};

/// Time for which a webhook is still called after the last read that found a reason to call it, and after the first read
/// without the condition. Within this time every apiserver observes that it calls the webhook again.
pub const GRACE_PERIOD: Duration = Duration::from_secs(2);
/// Maximum time between two reads of a replica that continues from the earlier one. After a longer time it behaves as if
/// it had just started. The leader waits longer than this for a replica.
pub const MAX_READ_GAP: Duration = Duration::from_secs(5);
/// Time without a renewal by the leader after which its announcement is ignored: with no leader to apply the condition,
/// replicas and apiserver would both call the webhook for ever. Another replica leads after
/// [`LEADER_LEASE_DURATION`](crate::LEADER_LEASE_DURATION), unless nothing can be written. A write of the former leader
/// may be in flight for as long as its kernel retransmits it.
const MAX_ANNOUNCEMENT_AGE: Duration = Duration::from_secs(1200);
/// Time without a renewal of a replica's own lease after which the leader may soon count the replica as dead
/// ([`REPLICA_TIMEOUT`](crate::leadership::REPLICA_TIMEOUT)) and take webhooks without waiting for it.
const STALE_LEASE_AGE: Duration = Duration::from_secs(15);
/// Maximum age of a read for a replica that the leader may not wait for. The leader takes a webhook once it has been
/// announced for a little longer ([`MIN_ANNOUNCEMENT`](crate::leader::MIN_ANNOUNCEMENT)).
pub const MAX_READ_AGE_WITH_STALE_LEASE: Duration = Duration::from_millis(1400);

/// State that every replica keeps between reads.
#[derive(Debug, Default)]
pub struct Follower {
    leases: LeaseObserver,
    calls: CalledWebhooks,
}

/// Result of one read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallPlan {
    /// Webhooks to call from now on.
    pub webhooks: Vec<CalledWebhook>,
    /// Epoch of the announcement that this replica follows.
    pub epoch: u64,
    /// Webhooks that this replica cannot call while an apiserver may rely on it to call them.
    pub unserved: Vec<UnservedWebhook>,
    /// The leader may not wait for this replica, so no read older than [`MAX_READ_AGE_WITH_STALE_LEASE`] may be used.
    pub lease_is_stale: bool,
}

/// Why a webhook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It carries our condition: the apiserver does not call it.
    Carries,
    /// The leader is about to apply the condition, or keeps it.
    Announced,
    /// It carried the condition or was announced a moment ago: an apiserver may not have observed yet that it calls the
    /// webhook again.
    Grace,
}

/// A webhook that this replica calls.
#[derive(Clone, Debug, PartialEq)]
pub struct CalledWebhook {
    /// Name of the webhook.
    pub key: WebhookKey,
    /// [Id](WebhookKey::id) of that name.
    pub id: String,
    /// The entry that is called.
    pub entry: Value,
    /// Digest of that entry.
    pub state: String,
    /// Why it is called.
    pub cause: Cause,
    /// It is called before its endpoint has passed a probe, because the apiserver does not call it, or may not.
    pub at_once: bool,
    /// The entry is a former one because the newest cannot be served. Other replicas must not rely on these calls.
    pub former: bool,
}

/// A webhook that no apiserver calls, or may not call yet, and that this replica cannot call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnservedWebhook {
    /// Name of the webhook.
    pub key: WebhookKey,
    /// uid of its configuration.
    pub uid: String,
    /// Reason why it cannot be served.
    pub reason: Reason,
    /// It carries the condition. If it does not, an apiserver may not have observed yet that it calls it again.
    pub carries: bool,
}

impl Follower {
    /// Processes one read that began at `now`, on the replica with this holder identity. The leases were read before the
    /// webhooks.
    pub fn read(&mut self, now: Duration, holder: &str, leases: &[Lease], seen: &[SeenWebhook]) -> CallPlan {
        self.leases.observe(now, leases.iter().map(Lease::state));
        let leader = leases.iter().find(|lease| lease.is_leader());
        let valid = leader.filter(|lease| self.leases.since_renewal(now, &lease.name) < MAX_ANNOUNCEMENT_AGE);
        let announcement = valid.map(Lease::announcement).unwrap_or_default();
        let own = leases.iter().find(|lease| !lease.is_leader() && lease.holder == holder);
        let lease_is_stale = own.is_none_or(|lease| self.leases.since_renewal(now, &lease.name) >= STALE_LEASE_AGE);
        let webhooks = self.calls.update(now, seen, &announcement, lease_is_stale);
        let unserved = self.calls.unserved(now).cloned().collect();
        CallPlan { webhooks, epoch: announcement.epoch, unserved, lease_is_stale }
    }
}

impl CallPlan {
    /// Claims to publish for the leader, given the ids of the webhooks that are actually called. A webhook in its grace
    /// period is not claimed.
    pub fn claims(&self, in_force: &BTreeSet<String>) -> Claims {
        let lasting = self.webhooks.iter().filter(|webhook| webhook.cause != Cause::Grace);
        let ids = lasting.map(|webhook| &webhook.id).filter(|id| in_force.contains(*id));
        Claims { epoch: self.epoch, ids: ids.cloned().collect() }
    }
}

/// Webhooks that one replica calls, updated by each read of the cluster.
#[derive(Debug, Default)]
struct CalledWebhooks {
    entries: BTreeMap<WebhookKey, Entry>,
    /// Webhooks of which this replica never knew a state that it could serve, and the time until which an apiserver may
    /// rely on it to call them.
    unserved: BTreeMap<WebhookKey, (Duration, UnservedWebhook)>,
    /// Time of the first read, or of the first read after a gap.
    first: Duration,
    /// Start of the last read, and whether the lease was stale then.
    last: Option<(Duration, bool)>,
}

#[derive(Debug)]
struct Entry {
    id: String,
    /// Called until then, unless there is a reason again.
    until: Duration,
    /// The last state that could be served.
    last: Value,
    at_once: bool,
    /// resourceVersion at the last read that found a lasting reason.
    version: Option<String>,
    /// [`SeenWebhook::in_flight`] at the last read.
    in_flight: Duration,
    /// This replica started, or had not read for too long, when it began to call the webhook, and has not seen the
    /// condition on it since. Only the leader knows how long to call it.
    newcomer: bool,
}

impl Entry {
    fn call(&self, key: &WebhookKey, cause: Cause, former: bool) -> CalledWebhook {
        let (key, id, entry) = (key.clone(), self.id.clone(), self.last.clone());
        CalledWebhook { key, id, state: short_digest(&entry.to_string()), entry, cause, at_once: self.at_once, former }
    }
}

impl CalledWebhooks {
    /// Processes one read that began at `now`, and returns the webhooks to call from now on, in the order of `seen`. The
    /// leader may not wait for a replica with a stale lease, or for one that did not read for too long, so such a replica
    /// calls announced webhooks without a probe.
    fn update(
        &mut self,
        now: Duration,
        seen: &[SeenWebhook],
        announcement: &Announcement,
        lease_is_stale: bool,
    ) -> Vec<CalledWebhook> {
        let mut calls = Vec::new();
        let (mut present, mut configurations) = (BTreeSet::new(), BTreeSet::new());
        let resumes = self.last.is_some();
        let starts = self.starts(now, lease_is_stale);
        // While this replica did not read, the leader may have stopped waiting for it, and may be taking what it announces.
        let unawaited = lease_is_stale || starts && resumes;
        // Nothing carries the condition until this read finds it.
        self.unserved.retain(|_, (until, _)| now < *until);
        self.unserved.values_mut().for_each(|(_, unserved)| unserved.carries = false);
        for SeenWebhook { standing, unservable, in_flight, .. } in seen {
            let key = &standing.key;
            present.insert(key);
            configurations.insert((key.hook_type, key.configuration.as_str()));
            let reason = match (standing.carries, announcement.ids.contains(&standing.id)) {
                (true, _) => Some(Cause::Carries),
                (false, true) => Some(Cause::Announced),
                (false, false) => None,
            };
            let mut known = self.entries.get_mut(key);
            if let Some(known) = &mut known {
                let changed = known.version.as_ref().is_some_and(|version| *version != standing.version);
                if changed && !standing.carries {
                    // It may have carried the condition between the two reads.
                    known.until = known.until.max(now + GRACE_PERIOD + known.in_flight.max(*in_flight));
                }
                known.version = reason.map(|_| standing.version.clone());
                known.in_flight = *in_flight;
            }
            let is_new = known.as_ref().map_or(starts, |known| known.newcomer);
            let ends = is_new && announcement.ending.contains(&standing.id);
            // An apiserver relies on us since before it could be served.
            let owed = self.unserved.get(key).map(|(until, _)| *until);
            let cause = match (&known, reason) {
                (_, Some(cause)) => cause,
                (Some(known), None) if ends || now < known.until => Cause::Grace,
                (None, None) if ends || owed.is_some() => Cause::Grace,
                (_, None) => {
                    self.entries.remove(key);
                    continue;
                }
            };
            let entry = match (known, unservable) {
                (Some(known), _) => known,
                // No state of it was ever served. The leader gives it back, or this replica does while it starts.
                (None, Some(why)) => {
                    // Without the condition, it may have carried it just before the first read.
                    let until = if standing.carries { now } else { self.first } + GRACE_PERIOD + *in_flight;
                    let until = self.unserved.get(key).map_or(until, |(before, _)| until.max(*before));
                    let (uid, reason) = (standing.uid.clone(), why.clone());
                    let unserved = UnservedWebhook { key: key.clone(), uid, reason, carries: standing.carries };
                    self.unserved.insert(key.clone(), (until, unserved));
                    continue;
                }
                (None, None) => {
                    self.unserved.remove(key);
                    self.entries.entry(key.clone()).or_insert_with(|| Entry {
                        id: standing.id.clone(),
                        until: owed.unwrap_or(now),
                        last: standing.entry.clone(),
                        at_once: owed.is_some(),
                        version: reason.map(|_| standing.version.clone()),
                        in_flight: *in_flight,
                        newcomer: starts,
                    })
                }
            };
            entry.newcomer &= cause != Cause::Carries;
            if reason.is_some() || ends {
                let held_back = if cause == Cause::Carries { *in_flight } else { Duration::ZERO };
                entry.until = entry.until.max(now + GRACE_PERIOD + held_back);
            }
            entry.at_once |= ends || cause == Cause::Carries || unawaited && cause == Cause::Announced;
            if unservable.is_none() {
                entry.last.clone_from(&standing.entry);
            }
            calls.push(entry.call(key, cause, unservable.is_some()));
        }
        // No apiserver calls a webhook whose configuration is gone.
        self.entries.retain(|key, entry| {
            if present.contains(key) {
                return true;
            }
            if entry.version.take().is_some() {
                entry.until = entry.until.max(now + GRACE_PERIOD + entry.in_flight);
            }
            let lingers = now < entry.until && configurations.contains(&(key.hook_type, key.configuration.as_str()));
            if lingers {
                calls.push(entry.call(key, Cause::Grace, false));
            }
            lingers
        });
        calls
    }

    /// Records a read, and returns whether this replica starts, or has not read for so long that a webhook may have been
    /// taken and given back meanwhile. It then calls ending webhooks, as a replica that starts does.
    fn starts(&mut self, now: Duration, lease_is_stale: bool) -> bool {
        let starts = self.last.replace((now, lease_is_stale)).is_none_or(|(at, was_stale)| {
            let longest = if lease_is_stale || was_stale { MAX_READ_AGE_WITH_STALE_LEASE } else { MAX_READ_GAP };
            now.saturating_sub(at) > longest
        });
        if starts {
            self.first = now;
            self.entries.values_mut().for_each(|entry| entry.newcomer = true);
        }
        starts
    }

    /// Webhooks that no apiserver calls, or may not call yet at `now`, and that this replica cannot call.
    fn unserved(&self, now: Duration) -> impl Iterator<Item = &UnservedWebhook> {
        self.unserved.values().filter(move |(until, _)| now < *until).map(|(_, unserved)| unserved)
    }
}

#[cfg(test)]
mod tests;
