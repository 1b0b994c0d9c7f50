//! Asking: the webhooks that one replica calls, updated by each read of the cluster.
//!
//! A webhook is called while it carries our condition or the leader announces it, and for [`GRACE`] after the last read
//! that found one of both, even if it goes from its configuration meanwhile: its owner may have renamed it, and an
//! apiserver that has not heard of that goes by its former state. While its newest state cannot be served, its last good
//! state is called.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Announcement, Reason, UNHEARD_FOR, Unserved, WebhookKey, WebhookStanding, unserved::CountedOn};

/// Time for which a webhook is still called after the last read that found a reason to call it, and after the first one
/// that found that it has lost the condition: so long every apiserver has to observe that it calls the webhook again.
pub const GRACE: Duration = Duration::from_secs(2);
/// Longest time between two reads of a replica that goes on from the former one; after a longer one it does as if it
/// started. The leader waits for it for longer.
pub const RESUMES: Duration = Duration::from_secs(5);

/// A webhook that was read, and whether it can be served whole.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenWebhook {
    /// As it stands.
    pub standing: WebhookStanding,
    /// Reason why its newest state cannot be served.
    pub unservable: Option<Reason>,
    /// Reason to leave it to the apiserver although it can be served.
    pub objection: Option<Reason>,
    /// Our registration does not send all that it wants: where it carries the condition, nobody calls it for the rest.
    pub unsent: bool,
    /// Somebody wants it served.
    pub wanted: Result<(), Reason>,
    /// Its conditions ask the authorizer of the cluster.
    pub asks_authorizer: bool,
    /// Every registration of ours that sends what it wants is held by our finalizer.
    pub guarded: bool,
    /// Longest time from an apiserver's look at its conditions to our review of the same request.
    pub in_flight: Duration,
}

/// Cause of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It carries our condition: the apiserver does not call it.
    Carries,
    /// The leader is about to apply the condition, or keeps it.
    Announced,
    /// It carried it or was announced a moment ago: an apiserver may not have observed yet that it calls the webhook
    /// again.
    Grace,
}

/// A webhook that this replica is to call.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Its name.
    pub key: WebhookKey,
    /// The [id](WebhookKey::id) of that.
    pub id: String,
    /// The entry that is called.
    pub entry: Value,
    /// Digest of that entry.
    pub state: String,
    /// Reason for the calls.
    pub cause: Cause,
    /// Called before its endpoint has passed a probe, because the apiserver does not call it, or may not.
    pub at_once: bool,
    /// Its newest state cannot be served: that entry is a former one, and nobody may count on it.
    pub former: bool,
}

#[derive(Debug)]
struct Entry {
    /// Its id.
    id: String,
    /// Called until then, unless there is a reason again.
    until: Duration,
    /// The last state that could be served.
    last: Value,
    at_once: bool,
    /// The resourceVersion at the last read that found a lasting reason.
    version: Option<String>,
    /// Longest time, at the last read, from an apiserver's look at its conditions to our review of the same request.
    in_flight: Duration,
    /// This replica began with it, or has not read for too long, and has not seen the condition on it since: the leader
    /// knows how long it is to be called.
    newcomer: bool,
}

impl Entry {
    fn asked(&self, key: &WebhookKey, cause: Cause) -> Asked {
        let digest = Sha256::digest(self.last.to_string());
        let state = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let (key, id, entry) = (key.clone(), self.id.clone(), self.last.clone());
        Asked { key, id, entry, state, cause, at_once: self.at_once, former: false }
    }
}

/// Webhooks that one replica calls.
#[derive(Debug, Default)]
pub struct Asking {
    entries: BTreeMap<WebhookKey, Entry>,
    /// Webhooks of which this replica never knew a state that it could serve, and that an apiserver may count on us for.
    counted_on: CountedOn,
    /// Time of the first read, or of the first one after too long a time without any.
    first: Duration,
    /// Start of the last read, and whether the leader may not have waited for this replica at that time.
    last: Option<(Duration, bool)>,
}

impl SeenWebhook {
    /// Reason to leave it to the apiserver, whatever the replicas do.
    pub fn against(&self) -> Option<&Reason> {
        // That one may keep everybody from it, whether it is wanted or not.
        let foreign = self.unservable.as_ref().filter(|reason| **reason == Reason::ForeignCondition);
        let own = || self.unservable.as_ref().or(self.objection.as_ref());
        foreign.or_else(|| self.wanted.as_ref().err()).or_else(own)
    }
}

#[cfg(test)]
impl SeenWebhook {
    /// A webhook that can be served and is wanted, without an objection.
    pub(super) fn sound(standing: WebhookStanding) -> Self {
        let (unservable, objection, in_flight) = (None, None, Duration::ZERO);
        let (unsent, asks_authorizer) = (false, false);
        Self { standing, unservable, objection, unsent, wanted: Ok(()), asks_authorizer, guarded: true, in_flight }
    }
}

impl Asking {
    /// Processes one read that began at `now`, and returns the webhooks to call from now on, in the order of `seen`.
    /// The leader may not wait for a replica with a stale lease (`unheard`), so such a replica calls announced webhooks
    /// without a probe.
    pub fn step(
        &mut self,
        now: Duration,
        seen: &[SeenWebhook],
        announcement: &Announcement,
        unheard: bool,
    ) -> Vec<Asked> {
        let mut asked = Vec::new();
        let (mut there, mut configurations) = (BTreeSet::new(), BTreeSet::new());
        let starts = self.starts(now, unheard);
        self.counted_on.begin(now);
        for SeenWebhook { standing, unservable, in_flight, .. } in seen {
            let key = &standing.key;
            there.insert(key);
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
                    // It may have had the condition in between.
                    known.until = known.until.max(now + GRACE + known.in_flight.max(*in_flight));
                }
                known.version = reason.map(|_| standing.version.clone());
                known.in_flight = *in_flight;
            }
            let is_new = known.as_ref().map_or(starts, |known| known.newcomer);
            let ends = is_new && announcement.ending.contains(&standing.id);
            let cause = match (&known, reason) {
                (_, Some(cause)) => cause,
                (Some(known), None) if ends || now < known.until => Cause::Grace,
                (None, None) if ends => Cause::Grace,
                (_, None) => {
                    self.entries.remove(key);
                    continue;
                }
            };
            let entry = match (known, unservable) {
                (Some(known), _) => known,
                // Nothing of it was ever served; the leader gives it back, or we do as we start.
                (None, Some(why)) => {
                    // It carried the condition just before the first read, perhaps.
                    let until = if standing.carries { now } else { self.first };
                    let (key, uid, reason) = (key.clone(), standing.uid.clone(), why.clone());
                    let unserved = Unserved { key, uid, reason, carries: standing.carries };
                    self.counted_on.record(unserved, until + GRACE + *in_flight);
                    continue;
                }
                (None, None) => {
                    self.counted_on.served(key);
                    self.entries.entry(key.clone()).or_insert_with(|| Entry {
                        id: standing.id.clone(),
                        until: now,
                        last: standing.entry.clone(),
                        at_once: false,
                        version: reason.map(|_| standing.version.clone()),
                        in_flight: *in_flight,
                        newcomer: starts,
                    })
                }
            };
            entry.newcomer &= cause != Cause::Carries;
            if reason.is_some() || ends {
                let held_back = if cause == Cause::Carries { *in_flight } else { Duration::ZERO };
                entry.until = entry.until.max(now + GRACE + held_back);
            }
            entry.at_once |= ends || cause == Cause::Carries || unheard && cause == Cause::Announced;
            if unservable.is_none() {
                entry.last.clone_from(&standing.entry);
            }
            asked.push(Asked { former: unservable.is_some(), ..entry.asked(key, cause) });
        }
        // A webhook that is gone with its configuration is called by no apiserver either.
        self.entries.retain(|key, entry| {
            if there.contains(key) {
                return true;
            }
            if entry.version.take().is_some() {
                entry.until = entry.until.max(now + GRACE + entry.in_flight);
            }
            let lingers = now < entry.until && configurations.contains(&(key.hook_type, key.configuration.as_str()));
            if lingers {
                asked.push(entry.asked(key, Cause::Grace));
            }
            lingers
        });
        asked
    }

    /// Does this replica start, or has it not read for so long that a webhook may have been taken and given back
    /// meanwhile? Then it calls what ends, as one that starts does.
    fn starts(&mut self, now: Duration, unheard: bool) -> bool {
        let starts = self.last.replace((now, unheard)).is_none_or(|(at, was_unheard)| {
            let longest = if unheard || was_unheard { UNHEARD_FOR } else { RESUMES };
            now.saturating_sub(at) > longest
        });
        if starts {
            self.first = now;
            self.entries.values_mut().for_each(|entry| entry.newcomer = true);
        }
        starts
    }

    /// Webhooks that no apiserver calls, or may not call yet at `now`, and that this replica cannot call.
    pub fn unserved(&self, now: Duration) -> Vec<Unserved> {
        self.counted_on.at(now)
    }
}

#[cfg(test)]
mod tests;
