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

use super::{Announcement, Reason, Unserved, WebhookKey, WebhookStanding, unserved::CountedOn};

/// Time for which a webhook is still called after the last read that found a reason to call it, and after the first one
/// that found that it has lost the condition: so long every apiserver has to observe that it calls the webhook again.
pub const GRACE: Duration = Duration::from_secs(2);

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
    /// It carried the condition at the last read.
    carried: bool,
    /// Called until then, if it carried the condition before its object last changed while there was such a reason.
    dropped: Duration,
    /// This replica began with it, and never saw the condition on it: the leader knows how long it is to be called.
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
    /// Time of the first read.
    first: Option<Duration>,
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
        let first = *self.first.get_or_insert(now);
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
            let is_ending = announcement.ending.contains(&standing.id);
            let mut known = self.entries.get_mut(key);
            if let Some(known) = &mut known {
                let changed = known.version.as_ref().is_some_and(|version| *version != standing.version);
                if changed && !standing.carries {
                    known.dropped = now + GRACE + *in_flight;
                }
                if std::mem::replace(&mut known.carried, standing.carries) || is_ending {
                    known.until = known.until.max(known.dropped);
                }
                known.version = reason.map(|_| standing.version.clone());
            }
            let ends = is_ending && known.as_ref().map_or(now == first, |known| known.newcomer);
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
                    let until = if standing.carries { now } else { first };
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
                        carried: standing.carries,
                        dropped: now,
                        newcomer: now == first,
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
            let lingers = now < entry.until && configurations.contains(&(key.hook_type, key.configuration.as_str()));
            if lingers && !there.contains(key) {
                asked.push(entry.asked(key, Cause::Grace));
            }
            lingers || there.contains(key)
        });
        asked
    }

    /// Webhooks that no apiserver calls, or may not call yet at `now`, and that this replica cannot call.
    pub fn unserved(&self, now: Duration) -> Vec<Unserved> {
        self.counted_on.at(now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{adopt::standings, model::HookType};

    fn seen(name: &str, carries: bool, state: u32) -> SeenWebhook {
        let mut entry = json!({"name": name, "timeoutSeconds": state});
        if carries {
            entry["matchConditions"] = json!([{"name": "gatepost.dev/served", "expression": "false"}]);
        }
        let object = json!({"metadata": {"name": "c", "uid": "u"}, "webhooks": [entry]});
        let standing = standings(HookType::Validating, &object).remove(0);
        SeenWebhook::sound(standing)
    }

    fn announced() -> Announcement {
        Announcement { epoch: 1, ids: [seen("w", false, 1).standing.id].into(), ending: BTreeSet::new() }
    }

    fn ending() -> Announcement {
        Announcement { epoch: 2, ids: BTreeSet::new(), ending: announced().ids }
    }

    fn told(asked: &[Asked]) -> Vec<(Cause, u64, bool)> {
        asked.iter().map(|it| (it.cause, it.entry["timeoutSeconds"].as_u64().unwrap(), it.at_once)).collect()
    }

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn what_carries_the_condition_is_called_and_for_a_while_after() {
        let (mut asking, none) = (Asking::default(), Announcement::default());
        assert_eq!(told(&asking.step(at(0), &[seen("w", false, 1)], &none, false)), []);
        assert_eq!(told(&asking.step(at(1000), &[seen("w", true, 1)], &none, false)), [(Cause::Carries, 1, true)]);
        assert_eq!(told(&asking.step(at(2000), &[seen("w", false, 2)], &none, false)), [(Cause::Grace, 2, true)]);
        assert_eq!(told(&asking.step(at(2999), &[seen("w", false, 2)], &none, false)), [(Cause::Grace, 2, true)]);
        assert_eq!(told(&asking.step(at(3000), &[seen("w", false, 2)], &none, false)), []);
    }

    fn of_version(version: &str, carries: bool) -> SeenWebhook {
        let mut seen = SeenWebhook { in_flight: at(3000), ..seen("w", carries, 1) };
        seen.standing.version = version.to_owned();
        seen
    }

    #[test]
    fn what_has_lost_the_condition_is_called_for_as_long_from_the_read_that_found_it() {
        let (mut asking, ends) = (Asking::default(), ending());
        let mut causes = |milliseconds, seen: SeenWebhook, announcement: &Announcement| {
            let asked = asking.step(at(milliseconds), &[seen], announcement, false);
            asked.first().map(|asked| asked.cause)
        };
        assert_eq!(causes(0, of_version("1", true), &announced()), Some(Cause::Carries));
        assert_eq!(causes(1000, of_version("2", false), &announced()), Some(Cause::Announced));
        assert_eq!(causes(2000, of_version("2", false), &ends), Some(Cause::Grace));
        assert_eq!(causes(3000, of_version("3", false), &ends), Some(Cause::Grace));
        assert_eq!(causes(5999, of_version("4", false), &ends), Some(Cause::Grace));
        assert_eq!(causes(6000, of_version("4", false), &ends), None, "changes meanwhile make no difference");
        assert_eq!(causes(6001, of_version("4", false), &ends), None, "nor that it ends");
        // Its owner drops the condition before this replica has read it.
        assert_eq!(causes(10_000, of_version("5", false), &announced()), Some(Cause::Announced));
        assert_eq!(causes(11_000, of_version("7", false), &ends), Some(Cause::Grace));
        assert_eq!(causes(15_999, of_version("7", false), &ends), Some(Cause::Grace));
        assert_eq!(causes(16_000, of_version("7", false), &ends), None);
    }

    #[test]
    fn what_ends_is_called_at_once_by_a_replica_that_starts() {
        let (mut asking, none) = (Asking::default(), Announcement::default());
        let mut step = |milliseconds, announcement: &Announcement| {
            told(&asking.step(at(milliseconds), &[of_version("1", false)], announcement, false))
        };
        let called = [(Cause::Grace, 1, true)];
        assert_eq!(step(0, &ending()), called);
        assert_eq!(step(3000, &ending()), called, "as long as it is announced");
        assert_eq!((step(4999, &none).len(), step(5000, &none).len()), (1, 0));
        assert_eq!(step(6000, &ending()), [], "it does not start any more");
    }

    #[test]
    fn what_is_announced_is_called_before_the_apiserver_stops() {
        let (mut asking, none) = (Asking::default(), Announcement::default());
        let announced = announced();
        asking.step(at(0), &[], &none, false);
        assert_eq!(
            told(&asking.step(at(1), &[seen("w", false, 1)], &announced, false)),
            [(Cause::Announced, 1, false)]
        );
        assert_eq!(told(&asking.step(at(2), &[seen("w", true, 1)], &announced, false)), [(Cause::Carries, 1, true)]);
        assert_eq!(told(&asking.step(at(3), &[], &announced, false)), [], "deleted");
    }

    #[test]
    fn what_cannot_be_served_any_more_is_called_as_it_could() {
        let (mut asking, none) = (Asking::default(), Announcement::default());
        let broken = |carries, state| SeenWebhook { unservable: Some(Reason::TooMany), ..seen("w", carries, state) };
        assert_eq!(told(&asking.step(at(0), &[broken(true, 1)], &none, false)), [], "it never could");
        assert_eq!(told(&asking.step(at(1), &[seen("w", true, 2)], &none, false)), [(Cause::Carries, 2, true)]);
        assert_eq!(told(&asking.step(at(2), &[broken(true, 3)], &none, false)), [(Cause::Carries, 2, true)]);
        assert_eq!(told(&asking.step(at(1500), &[broken(false, 3)], &none, false)), [(Cause::Grace, 2, true)]);
    }

    #[test]
    fn what_carries_it_waits_for_no_probe_nor_does_what_is_announced_to_the_unheard() {
        let (mut asking, none) = (Asking::default(), Announcement::default());
        let announced = announced();
        assert_eq!(told(&asking.step(at(0), &[seen("w", true, 1)], &none, false)), [(Cause::Carries, 1, true)]);
        let mut asking = Asking::default();
        let step = asking.step(at(0), &[seen("w", false, 1)], &announced, true);
        assert_eq!(told(&step), [(Cause::Announced, 1, true)]);
        assert_eq!(told(&asking.step(at(1), &[seen("w", false, 1)], &announced, false)), [(Cause::Announced, 1, true)]);
    }

    #[test]
    fn what_its_owner_renames_is_called_until_every_apiserver_has_heard() {
        let (mut asking, none) = (Asking::default(), Announcement::default());
        let slow = |name: &str, carries| SeenWebhook { in_flight: at(3000), ..seen(name, carries, 1) };
        let mut names = |now, seen: &[SeenWebhook]| {
            let asked = asking.step(at(now), seen, &none, false);
            asked.iter().map(|it| (it.key.webhook.clone(), it.cause)).collect::<Vec<_>>()
        };
        let gone = || vec![("w".to_owned(), Cause::Grace)];
        assert_eq!(names(0, &[slow("w", true)]).len(), 1);
        assert_eq!(names(1000, &[slow("other", false)]), gone());
        assert_eq!(names(4999, &[slow("other", false)]), gone());
        assert_eq!(names(5000, &[slow("other", false)]), [], "in time");
        assert_eq!(names(6000, &[slow("w", true)]).len(), 1);
        assert_eq!(names(7000, &[]), [], "its configuration is gone");
    }

    #[test]
    fn what_could_never_be_served_is_told_until_every_apiserver_calls_it() {
        let (mut asking, none) = (Asking::default(), Announcement::default());
        let broken = |carries, state| SeenWebhook { unservable: Some(Reason::TooMany), ..seen("w", carries, state) };
        let told = |asking: &Asking, now| asking.unserved(at(now)).first().map(|unserved| unserved.carries);
        let mut unserved = |now, seen: SeenWebhook| {
            asking.step(at(now), &[seen], &none, false);
            told(&asking, now)
        };
        assert_eq!(unserved(0, broken(false, 1)), None);
        assert_eq!(unserved(1000, broken(true, 1)), Some(true));
        assert_eq!(unserved(2000, broken(false, 1)), Some(false));
        assert_eq!(unserved(2999, broken(false, 1)), Some(false));
        assert_eq!(unserved(3000, broken(false, 1)), None);
        assert_eq!(unserved(4000, broken(true, 1)), Some(true));
        assert_eq!(unserved(4001, seen("w", true, 2)), None, "it is called from now on");
        assert_eq!(unserved(5000, broken(true, 3)), None, "its last good state is called");
        let (mut asking, announced) = (Asking::default(), announced());
        let mut unserved = |now| {
            asking.step(at(now), &[broken(false, 1)], &announced, false);
            told(&asking, now)
        };
        let expected = (Some(false), Some(false), None);
        assert_eq!((unserved(0), unserved(1999), unserved(2000)), expected, "another gave it back");
    }

    #[test]
    fn what_an_apiserver_may_hold_back_is_called_for_as_long() {
        let (mut asking, none) = (Asking::default(), Announcement::default());
        let slow = |carries| SeenWebhook { in_flight: at(10_000), ..seen("w", carries, 1) };
        asking.step(at(0), &[slow(true)], &none, false);
        assert_eq!(told(&asking.step(at(11_999), &[slow(false)], &none, false)), [(Cause::Grace, 1, true)]);
        assert_eq!(told(&asking.step(at(12_000), &[slow(false)], &none, false)), []);
    }
}
