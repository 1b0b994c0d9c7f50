//! The follower, which every replica runs. From one read, it computes the entries to call and the claims to publish.
//!
//! An entry is called while it carries our mark or the leader announces it, and for [`GRACE_PERIOD`] after the
//! last read that found either. The grace period also applies to an entry that its configuration no longer lists: its
//! owner may have renamed it, and an apiserver may still use the former state. While the newest state of an entry
//! cannot be served, its last good state is called.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gatepost_kube_support::LeaseObserver;
use serde_json::Value;

use crate::{Announcement, AssessedEntry, Claims, EntryKey, Lease, Reason, entry::short_digest};

/// Time for which an entry is still called after the last read that found a reason to call it, or after the first read
/// without the mark. Within this time, every apiserver observes that it must call the entry again.
pub const GRACE_PERIOD: Duration = Duration::from_secs(2);
/// Maximum time between two reads of a replica that continues from the earlier one. After a longer time, it behaves as
/// if it had just started. The leader waits longer than this for a replica.
pub const MAX_READ_GAP: Duration = Duration::from_secs(5);
/// Time without a renewal by the leader after which its announcement is ignored. Otherwise, without a leader to apply
/// the mark, replicas and apiserver would both call the entry for ever. Another replica leads after
/// [`LEADER_LEASE_DURATION`](crate::LEADER_LEASE_DURATION), unless nothing can be written. The time is this long
/// because the kernel of the former leader may retransmit a write.
const MAX_ANNOUNCEMENT_AGE: Duration = Duration::from_secs(1200);
/// Time without a renewal after which a replica's own lease is stale: the leader may soon count the replica as dead
/// ([`REPLICA_TIMEOUT`](crate::leadership::REPLICA_TIMEOUT)) and take entries without waiting for it.
const STALE_LEASE_AGE: Duration = Duration::from_secs(15);
/// Maximum age of a read for a replica with a stale lease, for which the leader might not wait. The leader announces a
/// entry for a little longer ([`MIN_ANNOUNCEMENT`](crate::leader::MIN_ANNOUNCEMENT)) before it takes the entry.
pub const MAX_READ_AGE_WITH_STALE_LEASE: Duration = Duration::from_millis(1400);

/// State of a follower between reads: the entries that one replica calls. Each read of the cluster updates them.
#[derive(Debug, Default)]
pub struct Follower {
    leases: LeaseObserver,
    called: BTreeMap<EntryKey, CallState>,
    /// Entries of which this replica never knew a servable state, each with the time until which an apiserver may rely
    /// on this replica to call it.
    unserved: BTreeMap<EntryKey, (Duration, UnservedEntry)>,
    /// Start of the first read, or of the first read after a gap.
    reading_since: Duration,
    /// Start of the last read, and whether the lease was stale then.
    last_read: Option<(Duration, bool)>,
}

/// Entries to call, computed from one read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallPlan {
    /// Entries to call from now on.
    pub entries: Vec<CalledEntry>,
    /// Epoch of the announcement that this replica follows.
    pub epoch: u64,
    /// Entries that this replica cannot call although an apiserver may rely on it to call them.
    pub unserved: Vec<UnservedEntry>,
    /// This replica's lease is stale, so no read older than [`MAX_READ_AGE_WITH_STALE_LEASE`] may be used.
    pub lease_is_stale: bool,
}

/// Reason why an entry is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It carries our mark, so the apiserver does not call it.
    Carries,
    /// The leader announces it, and is about to apply or restore the mark.
    Announced,
    /// It carried the mark or was announced a moment ago. An apiserver might not have observed yet that it must
    /// call the entry again.
    Grace,
}

/// An entry that this replica calls.
#[derive(Clone, Debug, PartialEq)]
pub struct CalledEntry {
    /// Name of the entry.
    pub key: EntryKey,
    /// [Id](EntryKey::id) of that name.
    pub id: String,
    /// Webhook or policy definition to call.
    pub content: Value,
    /// Digest of `content`.
    pub state: String,
    /// Reason why it is called.
    pub cause: Cause,
    /// It is called even before its endpoint has passed a probe, because apiservers might not call it.
    pub at_once: bool,
    /// `content` is former content, because the newest cannot be served. Other replicas must not rely on these calls.
    pub former: bool,
}

/// An entry that this replica cannot call although apiservers do not call it, or might not call it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnservedEntry {
    /// Name of the entry.
    pub key: EntryKey,
    /// uid of its configuration.
    pub uid: String,
    /// Reason why it cannot be served.
    pub reason: Reason,
    /// It carries the mark. If false, an apiserver might not have observed yet that it must call it.
    pub carries: bool,
}

impl Follower {
    /// Processes the result of a read that began at `now`, on the replica with this holder identity. Does no I/O
    /// itself. The leases must be read before the entries.
    pub fn read(&mut self, now: Duration, holder: &str, leases: &[Lease], seen: &[AssessedEntry]) -> CallPlan {
        self.leases.observe(now, leases.iter().map(Lease::state));
        let leader = leases.iter().find(|lease| lease.is_leader());
        let valid = leader.filter(|lease| self.leases.since_renewal(now, &lease.name) < MAX_ANNOUNCEMENT_AGE);
        let announcement = valid.map(Lease::announcement).unwrap_or_default();
        let own = leases.iter().find(|lease| !lease.is_leader() && lease.holder == holder);
        let lease_is_stale = own.is_none_or(|lease| self.leases.since_renewal(now, &lease.name) >= STALE_LEASE_AGE);
        let entries = self.update(now, seen, &announcement, lease_is_stale);
        let unserved = self.unserved(now).cloned().collect();
        CallPlan { entries, epoch: announcement.epoch, unserved, lease_is_stale }
    }
}

impl CallPlan {
    /// Returns the claims to publish for the leader. `in_force` are the ids of the entries that are actually called. A
    /// entry in its grace period is not claimed.
    pub fn claims(&self, in_force: &BTreeSet<String>) -> Claims {
        let lasting = self.entries.iter().filter(|entry| entry.cause != Cause::Grace);
        let ids = lasting.map(|entry| &entry.id).filter(|id| in_force.contains(*id));
        Claims { epoch: self.epoch, ids: ids.cloned().collect() }
    }
}

#[derive(Debug)]
struct CallState {
    id: String,
    /// Time until which it is called without another reason.
    call_until: Duration,
    /// Last entry that could be served.
    last_good: Value,
    /// It is called even before its endpoint has passed a probe.
    at_once: bool,
    /// resourceVersion at the last read, if that read found the mark or the announcement.
    version: Option<String>,
    /// [`AssessedEntry::in_flight`] at the last read.
    in_flight: Duration,
    /// The replica began to call the entry at its start, or at its first read after a gap, and has not read the
    /// condition on it since. Only the leader knows how long to call it.
    called_since_start: bool,
}

impl CallState {
    fn call(&self, key: &EntryKey, cause: Cause, former: bool) -> CalledEntry {
        let (key, id, content) = (key.clone(), self.id.clone(), self.last_good.clone());
        CalledEntry {
            key,
            id,
            state: short_digest(&content.to_string()),
            content,
            cause,
            at_once: self.at_once,
            former,
        }
    }
}

impl Follower {
    /// Processes one read that began at `now`, and returns the entries to call from now on, in the order of `seen`.
    /// The leader might not wait for a replica with a stale lease, or with a gap between reads. Such a replica calls
    /// announced entries without a probe.
    fn update(
        &mut self,
        now: Duration,
        seen: &[AssessedEntry],
        announcement: &Announcement,
        lease_is_stale: bool,
    ) -> Vec<CalledEntry> {
        let mut calls = Vec::new();
        let (mut present, mut objects) = (BTreeSet::new(), BTreeSet::new());
        let resumes = self.last_read.is_some();
        let starts = self.record_read(now, lease_is_stale);
        // In a gap between reads, the leader might have stopped waiting for this replica, and might take announced
        // entries.
        let unawaited = lease_is_stale || starts && resumes;
        // `carries` is set again below if this read finds the mark.
        self.unserved.retain(|_, (until, _)| now < *until);
        self.unserved.values_mut().for_each(|(_, unserved)| unserved.carries = false);
        for AssessedEntry { standing, unservable, in_flight, .. } in seen {
            let key = &standing.key;
            present.insert(key);
            objects.insert((key.kind, key.object()));
            if standing.orphaned {
                self.called.remove(key);
                self.unserved.remove(key);
                continue;
            }
            let reason = match (standing.carries, announcement.ids.contains(&standing.id)) {
                (true, _) => Some(Cause::Carries),
                (false, true) => Some(Cause::Announced),
                (false, false) => None,
            };
            let mut known = self.called.get_mut(key);
            if let Some(known) = &mut known {
                let changed = known.version.as_ref().is_some_and(|version| *version != standing.version);
                if changed && !standing.carries {
                    // The entry may have carried the mark between the two reads.
                    known.call_until = known.call_until.max(now + GRACE_PERIOD + known.in_flight.max(*in_flight));
                }
                known.version = reason.map(|_| standing.version.clone());
                known.in_flight = *in_flight;
            }
            let is_new = known.as_ref().map_or(starts, |known| known.called_since_start);
            let ends = is_new && announcement.ending.contains(&standing.id);
            // An apiserver may rely on this replica since a time at which the entry could not be served.
            let owed = self.unserved.get(key).map(|(until, _)| *until);
            let cause = match (&known, reason) {
                (_, Some(cause)) => cause,
                (Some(known), None) if ends || now < known.call_until => Cause::Grace,
                (None, None) if ends || owed.is_some() => Cause::Grace,
                (_, None) => {
                    self.called.remove(key);
                    continue;
                }
            };
            let entry = match (known, unservable) {
                (Some(known), _) => known,
                // No state of the entry was ever served. The leader gives it back, or this replica does at startup.
                (None, Some(why)) => {
                    // An entry without the mark may have carried it just before the first read.
                    let until = if standing.carries { now } else { self.reading_since } + GRACE_PERIOD + *in_flight;
                    let until = self.unserved.get(key).map_or(until, |(before, _)| until.max(*before));
                    let (uid, reason) = (standing.uid.clone(), why.clone());
                    let unserved = UnservedEntry { key: key.clone(), uid, reason, carries: standing.carries };
                    self.unserved.insert(key.clone(), (until, unserved));
                    continue;
                }
                (None, None) => {
                    self.unserved.remove(key);
                    self.called.entry(key.clone()).or_insert_with(|| CallState {
                        id: standing.id.clone(),
                        call_until: owed.unwrap_or(now),
                        last_good: standing.content.clone(),
                        at_once: owed.is_some(),
                        version: reason.map(|_| standing.version.clone()),
                        in_flight: *in_flight,
                        called_since_start: starts,
                    })
                }
            };
            entry.called_since_start &= cause != Cause::Carries;
            if reason.is_some() || ends {
                let in_flight_time = if cause == Cause::Carries { *in_flight } else { Duration::ZERO };
                entry.call_until = entry.call_until.max(now + GRACE_PERIOD + in_flight_time);
            }
            entry.at_once |= ends || cause == Cause::Carries || unawaited && cause == Cause::Announced;
            if unservable.is_none() {
                entry.last_good.clone_from(&standing.content);
            }
            calls.push(entry.call(key, cause, unservable.is_some()));
        }
        // No apiserver uses an entry whose object is gone.
        self.called.retain(|key, entry| {
            if present.contains(key) {
                return true;
            }
            if entry.version.take().is_some() {
                entry.call_until = entry.call_until.max(now + GRACE_PERIOD + entry.in_flight);
            }
            let lingers = now < entry.call_until && objects.contains(&(key.kind, key.object()));
            if lingers {
                calls.push(entry.call(key, Cause::Grace, false));
            }
            lingers
        });
        calls
    }

    /// Records a read. Returns true if this replica starts, or has not read for so long that an entry may have been
    /// taken and given back meanwhile. The replica then also calls ending entries.
    fn record_read(&mut self, now: Duration, lease_is_stale: bool) -> bool {
        let starts = self.last_read.replace((now, lease_is_stale)).is_none_or(|(at, was_stale)| {
            let longest = if lease_is_stale || was_stale { MAX_READ_AGE_WITH_STALE_LEASE } else { MAX_READ_GAP };
            now.saturating_sub(at) > longest
        });
        if starts {
            self.reading_since = now;
            self.called.values_mut().for_each(|entry| entry.called_since_start = true);
        }
        starts
    }

    /// Returns the entries that this replica cannot call although apiservers do not call them at `now`, or might not.
    fn unserved(&self, now: Duration) -> impl Iterator<Item = &UnservedEntry> {
        self.unserved.values().filter(move |(until, _)| now < *until).map(|(_, unserved)| unserved)
    }
}

#[cfg(test)]
mod tests;
