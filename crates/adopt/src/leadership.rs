//! Leadership: plans the announcement and the writes of the leader from one read.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gatepost_kube_support::LeaseObserver;
use serde_json::Value;

use crate::{
    Announcement, AssessedEntry, Claims, Decision, EntryKey, EntryKind, Facts, FightRecord, FinalizerChange,
    LEADER_LEASE_DURATION, Leader, Lease, OwnRegistration, Reason, Receivers, receivers::MissingReceivers,
    writes::Finalizers,
};

/// Time without a renewal of its lease after which a replica counts as dead.
pub(crate) const REPLICA_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without a renewal of its lease after which a replica counts as stalled: the leader announces nothing new until
/// the replica renews its lease or counts as dead.
const STALL_TIMEOUT: Duration = Duration::from_secs(9);
/// Time without a renewal after which a replica's lease is deleted.
const LEASE_DELETION_AGE: Duration = Duration::from_secs(900);

/// State of a replica that leads or may lead.
#[derive(Debug, Default)]
pub struct Leadership {
    leases: LeaseObserver,
    /// The leader's decisions, which record the outcome of writes.
    pub leader: Leader,
    finalizers: Finalizers,
    missing: MissingReceivers,
    /// First epoch of the uninterrupted announcement of each entry, by entry id.
    announced_since: BTreeMap<String, u64>,
    /// Holder whose leader's lease expired, and the time at which this replica acquired the lease.
    ousted: Option<(String, Duration)>,
}

/// Input of one turn of the leader.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// Start of the read, as time since the source was opened.
    pub now: Duration,
    /// Leases that were read.
    pub leases: &'a [Lease],
    /// Entries that were read.
    pub seen: &'a [AssessedEntry],
    /// Our registrations.
    pub registrations: &'a [OwnRegistration],
    /// Receivers of reviews by our registrations.
    pub receivers: &'a [Receivers],
    /// Version of the apiserver if it does not support match conditions.
    pub unsupported: Option<&'a str>,
    /// This replica held the leader's lease at the time of the read.
    pub held_leader_lease: bool,
}

/// Output of one turn of the leader.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Announcement to write before anything else.
    pub announcement: Announcement,
    /// Decision on each entry.
    pub decisions: Vec<(EntryKey, Decision)>,
    /// Finalizers to add to our registrations, or to remove.
    pub finalizers: Vec<FinalizerChange>,
    /// Paused entries, whose conditions are not updated meanwhile.
    pub paused: BTreeSet<EntryKey>,
    /// Record of fights with owners, for the next leader.
    pub fights: BTreeMap<String, FightRecord>,
    /// Params of bindings whose annotation is lost.
    pub known_params: BTreeMap<EntryKey, Value>,
}

/// Write of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Kind of the entries of the object.
    pub kind: EntryKind,
    /// Name of the object.
    pub object: String,
    /// uid and resourceVersion as they were read.
    pub read: (String, String),
    /// Entries that carry the mark afterwards, each with its expression. No other entry carries it.
    pub carry: Vec<(String, String)>,
    /// Entries that get the mark.
    pub taken: Vec<EntryKey>,
    /// Entries that lose the mark, and the reason.
    pub given_back: Vec<(EntryKey, Reason)>,
    /// Names of given-back entries whose condition other field managers may own.
    pub written_by_others: Vec<String>,
    /// Entries whose configuration needs a new resourceVersion, so that a write in flight fails.
    pub fenced: Vec<EntryKey>,
    /// Entries that get the mark with another expression.
    pub outdated: Vec<EntryKey>,
    /// Content of a binding; null for webhooks.
    pub content: Value,
    /// Of a binding: its annotation about params can be read, and is removed when the binding is given back.
    pub has_readable_params: bool,
}

impl Leadership {
    /// Records the leases of a read that began at `now`. Every replica must call this, whether it leads or not.
    pub fn observe(&mut self, now: Duration, leases: &[Lease]) {
        self.leases.observe(now, leases.iter().map(Lease::state));
    }

    /// Returns true if the replica with this holder identity may lead.
    pub fn may_lead(&self, now: Duration, leader: &Lease, holder: &str) -> bool {
        leader.holder == holder
            || leader.holder.is_empty()
            || self.leases.since_renewal(now, &leader.name) >= LEADER_LEASE_DURATION
    }

    /// Plans one turn.
    pub fn plan(&mut self, turn: Turn<'_>) -> Plan {
        let Turn { now, leases, seen, .. } = turn;
        let lease = leases.iter().find(|lease| lease.is_leader());
        let before = lease.map(Lease::announcement).unwrap_or_default();
        if !turn.held_leader_lease {
            let fights = lease.map(Lease::fights).unwrap_or_default();
            self.leader.begin(now, seen, &before, &fights);
            self.announced_since = before.ids.iter().map(|id| (id.clone(), before.epoch)).collect();
            self.ousted = lease.filter(|lease| !lease.holder.is_empty()).map(|lease| (lease.holder.clone(), now));
        }
        let since_renewal = |lease: &Lease| self.leases.since_renewal(now, &lease.name);
        let live: Vec<_> =
            leases.iter().filter(|lease| !lease.is_leader() && since_renewal(lease) < REPLICA_TIMEOUT).collect();
        // A former leader that lost its lease counts as stalled until it renews its replica's lease.
        let is_ousted = |lease: &Lease| {
            let ousted = self.ousted.as_ref().filter(|(holder, _)| *holder == lease.holder);
            ousted.is_some_and(|(_, at)| since_renewal(lease) >= now.saturating_sub(*at))
        };
        let is_stalled = |lease: &Lease| since_renewal(lease) >= STALL_TIMEOUT || is_ousted(lease);
        let claims: Vec<_> = live.iter().map(|lease| (lease.replica(), lease.claims(), is_stalled(lease))).collect();
        let stalled = claims.iter().filter(|(.., stalled)| *stalled);
        let stalled: Vec<_> = stalled.map(|(name, ..)| (*name).to_owned()).collect();
        // A replica that has read one announcement of this entry also follows later ones.
        let is_confirmed = |id: &String, claims: &Option<Claims>| {
            let since = self.announced_since.get(id).copied().unwrap_or(before.epoch);
            let confirms = |it: &Claims| it.ids.contains(id) && (since..=before.epoch).contains(&it.epoch);
            claims.as_ref().is_some_and(confirms)
        };
        let missing = self.missing.step(now, turn.receivers, leases, |lease| since_renewal(lease) < REPLICA_TIMEOUT);
        let facts: Vec<_> = seen
            .iter()
            .map(|seen| {
                let id = &seen.standing.id;
                let name = |(name, ..): &(&str, Option<Claims>, bool)| (*name).to_owned();
                // A starting replica has no claims yet, and serves no requests.
                let lacks = |claims: &Option<Claims>| claims.as_ref().is_some_and(|it| !it.ids.contains(id));
                let not_claiming = claims.iter().filter(|(_, claims, _)| lacks(claims)).map(name);
                let unconfirmed = claims.iter().filter(|(_, claims, _)| !is_confirmed(id, claims)).map(name);
                Facts {
                    seen,
                    announced: before.ids.contains(id),
                    not_claiming: not_claiming.collect(),
                    stalled: &stalled,
                    unconfirmed_by_stalled: claims
                        .iter()
                        .any(|(_, claims, stalled)| *stalled && !is_confirmed(id, claims)),
                    missing: missing.as_ref().map(|(what, overdue)| (what.as_str(), *overdue)),
                    // Without a live replica nothing is confirmed.
                    unconfirmed: if claims.is_empty() { vec!["any replica".to_owned()] } else { unconfirmed.collect() },
                }
            })
            .collect();
        let decisions = self.leader.turn(now, &facts, turn.unsupported);
        let (mut ids, mut ending) = (BTreeSet::new(), BTreeSet::new());
        for (seen, (key, decision)) in seen.iter().zip(&decisions) {
            if decision.announces() {
                ids.insert(seen.standing.id.clone());
            } else if self.leader.is_ending(key, now) {
                ending.insert(seen.standing.id.clone());
            }
        }
        // Anybody who may write the lease may write any number. Claims from before a wrap do not count.
        let epoch = before.epoch.wrapping_add(u64::from(ids != before.ids || ending != before.ending));
        let needed = seen.iter().map(|seen| &seen.standing);
        let needed = needed.filter(|it| it.carries || it.orphaned || ids.contains(&it.id) || ending.contains(&it.id));
        let needed = needed.map(|it| it.key.kind.hook_type());
        let finalizers = self.finalizers.step(now, turn.registrations, needed);
        self.announced_since.retain(|id, _| ids.contains(id));
        for id in &ids {
            self.announced_since.entry(id.clone()).or_insert(epoch);
        }
        let keys = decisions.iter().map(|(key, _)| key);
        let paused = keys.filter(|key| self.leader.is_paused(key, now)).cloned().collect();
        let fights = self.leader.records(now);
        let lost = seen.iter().map(|seen| &seen.standing).filter(|it| it.foreign && it.key.kind.is_binding());
        let known_params = lost.filter_map(|it| Some((it.key.clone(), self.leader.known_params(&it.key)?.clone())));
        let known_params = known_params.collect();
        Plan { announcement: Announcement { epoch, ids, ending }, decisions, finalizers, paused, fights, known_params }
    }

    /// Returns the names of leases whose replicas ended long ago.
    pub fn abandoned_leases<'a>(&self, now: Duration, leases: &'a [Lease]) -> impl Iterator<Item = &'a str> {
        let long_ago = move |lease: &&Lease| {
            !lease.is_leader() && self.leases.since_renewal(now, &lease.name) >= LEASE_DELETION_AGE
        };
        leases.iter().filter(long_ago).map(|lease| &*lease.name)
    }
}

impl Plan {
    /// Returns the objects to write once the announcement has been written. Those with an entry to give back come first:
    /// perhaps neither the apiserver nor a replica uses it.
    pub fn writes(&self, seen: &[AssessedEntry]) -> Vec<Write> {
        let read: BTreeMap<_, _> = seen.iter().map(|seen| (&seen.standing.key, &seen.standing)).collect();
        let mut writes = BTreeMap::<(EntryKind, &str), Write>::new();
        // Configurations with an annotation of ours that is no longer needed.
        let mut annotated = BTreeSet::new();
        for (key, decision) in &self.decisions {
            let Some(standing) = read.get(key) else { continue };
            let object = (key.kind, key.object());
            let write = writes.entry(object).or_insert_with(|| {
                let (kind, object) = (key.kind, key.object().to_owned());
                let read = (standing.uid.clone(), standing.version.clone());
                let (carry, taken, given_back, written_by_others, fenced, outdated) = Default::default();
                let mut content = if kind.is_binding() { standing.content.clone() } else { Value::Null };
                let known_params = self.known_params.get(key).filter(|_| content["binding"]["paramRef"].is_null());
                if let Some(params) = known_params {
                    content["binding"]["paramRef"] = params.clone();
                }
                Write {
                    kind,
                    object,
                    read,
                    carry,
                    taken,
                    given_back,
                    written_by_others,
                    fenced,
                    outdated,
                    content,
                    has_readable_params: standing.has_readable_params,
                }
            });
            annotated.extend(standing.has_leader_annotation.then_some(object));
            match decision {
                Decision::Keep | Decision::Take => {
                    write.carry.push((key.name.clone(), standing.condition.to_string()));
                    if *decision == Decision::Take {
                        write.taken.push(key.clone());
                    } else if standing.outdated && !self.paused.contains(key) {
                        write.outdated.push(key.clone());
                    }
                }
                Decision::GiveBack(reason) => {
                    write.given_back.push((key.clone(), reason.clone()));
                    if !standing.only_owned_by_us {
                        write.written_by_others.push(key.name.clone());
                    }
                }
                Decision::Fence(_) => write.fenced.push(key.clone()),
                Decision::Announce | Decision::Leave(_) => {}
            }
        }
        let due = |(object, write): &(_, Write)| {
            let changes = [&write.fenced, &write.outdated, &write.taken].into_iter().any(|keys| !keys.is_empty());
            changes || !write.given_back.is_empty() || annotated.contains(object)
        };
        let mut due: Vec<_> = writes.into_iter().filter(due).map(|(_, write)| write).collect();
        due.sort_by_key(|write| write.given_back.is_empty());
        due
    }

    /// Returns the name, state and reason of each entry, for display.
    pub fn status(&self) -> Vec<[String; 3]> {
        let line = |(key, decision): &(EntryKey, Decision)| {
            let (state, reason) = match decision {
                Decision::Keep => ("taken", String::new()),
                Decision::Announce | Decision::Take => ("taking", String::new()),
                Decision::GiveBack(reason) => ("giving back", reason.to_string()),
                Decision::Leave(reason) | Decision::Fence(reason) => ("left", reason.to_string()),
            };
            [key.to_string(), state.to_owned(), reason.chars().take(400).collect()]
        };
        self.decisions.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use gatepost_api::HookType;
    use serde_json::json;

    use super::*;
    use crate::{CONDITION, EXPRESSION, LEADER_LEASE, bindings_of, leader_lease, webhooks_of};

    /// One that carries our mark with an expression that does not fit its rules, and these annotations.
    fn outdated(annotations: Value) -> AssessedEntry {
        let condition = json!({"name": CONDITION, "expression": EXPRESSION});
        let rule = json!({"apiGroups": ["*"], "resources": ["*"]});
        let entry = json!({"name": "w", "rules": [rule], "matchConditions": [condition]});
        let metadata = json!({"name": "c", "uid": "u", "resourceVersion": "7", "annotations": annotations});
        let object = json!({"metadata": metadata, "webhooks": [entry]});
        AssessedEntry::sound(webhooks_of(HookType::Validating, &object).remove(0))
    }

    fn written(lead: &mut Leadership, second: u64, seen: &AssessedEntry) -> Vec<Write> {
        let seen = std::slice::from_ref(seen);
        let now = Duration::from_secs(second);
        let turn = Turn {
            now,
            leases: &[],
            seen,
            registrations: &[],
            receivers: &[],
            unsupported: None,
            held_leader_lease: true,
        };
        lead.plan(turn).writes(seen)
    }

    #[test]
    fn rejected_expression_is_written_again_after_a_pause() {
        let (mut lead, seen) = (Leadership::default(), outdated(json!({})));
        let key = seen.standing.key.clone();
        assert_eq!(written(&mut lead, 0, &seen)[0].outdated, std::slice::from_ref(&key));
        lead.leader.on_refusal(&key, "422".to_owned(), Duration::ZERO);
        assert_eq!(written(&mut lead, 1, &seen), []);
        assert_eq!(written(&mut lead, 59, &seen), []);
        assert_eq!(written(&mut lead, 60, &seen).len(), 1);
    }

    /// A binding with these annotations. The policy is in the cluster if it is called p.
    fn binding(name: &str, policy: &str, annotations: Value) -> AssessedEntry {
        let metadata = json!({"name": name, "uid": "u", "resourceVersion": "7", "annotations": annotations});
        let object = json!({"metadata": metadata, "spec": {"policyName": policy}});
        let policy = json!({"metadata": {"name": "p"}, "spec": {}});
        AssessedEntry::sound(bindings_of(HookType::Validating, &[policy], &[object]).remove(0))
    }

    fn kept(policy: &str) -> Value {
        json!({"gatepost.dev/parked-param-ref": json!({"policyName": policy, "paramRef": {"name": "n"}}).to_string()})
    }

    fn turn(lead: &mut Leadership, second: u64, seen: &[AssessedEntry]) -> Plan {
        lead.plan(Turn {
            now: Duration::from_secs(second),
            leases: &[],
            seen,
            registrations: &[],
            receivers: &[],
            unsupported: Some("v1.27.0"),
            held_leader_lease: true,
        })
    }

    #[test]
    fn binding_whose_annotation_is_lost_is_given_back_with_the_params_that_were_read() {
        let mut lead = Leadership::default();
        let parked = "p.parked.gatepost.dev";
        assert_eq!(turn(&mut lead, 0, &[binding("a", parked, kept("p"))]).decisions[0].1, Decision::Keep);
        for lost in [json!({}), json!({"gatepost.dev/parked-param-ref": "{"})] {
            let mut seen = binding("a", parked, lost);
            seen.unservable = Some(Reason::Unservable("x".to_owned()));
            let seen = [seen];
            let writes = turn(&mut lead, 1, &seen).writes(&seen);
            let binding = json!({"policyName": "p", "paramRef": {"name": "n"}});
            assert_eq!((&writes[0].content["binding"], writes[0].has_readable_params), (&binding, false));
        }
        let written_since = |mut seen: AssessedEntry| {
            seen.standing.content["binding"]["paramRef"] = json!({"name": "m"});
            seen.unservable = Some(Reason::Unservable("x".to_owned()));
            [seen]
        };
        let seen = written_since(binding("a", parked, json!({})));
        assert_eq!(turn(&mut lead, 2, &seen).writes(&seen)[0].content["binding"]["paramRef"], json!({"name": "m"}));
    }

    #[test]
    fn binding_stays_parked_while_its_policy_is_deleted() {
        let mut lead = Leadership::default();
        assert_eq!(
            turn(&mut lead, 0, &[binding("a", "p.parked.gatepost.dev", kept("p"))]).decisions[0].1,
            Decision::Keep
        );
        // The leader has read the policy of the same binding as it was, so this one differs only in its policy.
        let mut orphan = binding("a", "p.parked.gatepost.dev", kept("p"));
        (orphan.standing.carries, orphan.standing.orphaned) = (false, true);
        orphan.unservable = Some(Reason::Unservable("no policy".to_owned()));
        let orphans = [orphan];
        let plan = turn(&mut lead, 1, &orphans);
        assert!(matches!(plan.decisions[0].1, Decision::Leave(_)), "{:?}", plan.decisions);
        assert_eq!((plan.writes(&orphans), lead.leader.drops), (Vec::new(), 0));
        assert_eq!(
            turn(&mut lead, 2, &[binding("a", "p.parked.gatepost.dev", kept("p"))]).decisions[0].1,
            Decision::Keep
        );
    }

    #[test]
    fn entries_are_given_back_before_anything_else_is_written() {
        let mut released = binding("z", "p.parked.gatepost.dev", kept("p"));
        released.wanted = Err(Reason::Released);
        let seen = [binding("a", "p", json!({crate::FENCE_ANNOTATION: "x"})), released];
        let writes = turn(&mut Leadership::default(), 0, &seen).writes(&seen);
        let written: Vec<_> = writes.iter().map(|write| (&*write.object, write.given_back.len())).collect();
        assert_eq!(written, [("z", 1), ("a", 0)]);
    }

    /// Bindings of one policy are objects of their own.
    #[test]
    fn bindings_are_written_one_by_one_whatever_version_the_apiserver_has() {
        let parked = "p.parked.gatepost.dev";
        let mut released = binding("b", parked, json!({}));
        released.wanted = Err(Reason::Released);
        let seen = [binding("a", parked, json!({})), released, binding("c", "p", json!({}))];
        let plan = turn(&mut Leadership::default(), 0, &seen);
        assert_eq!(plan.decisions[0].1, Decision::Keep);
        assert_eq!(plan.decisions[2].1, Decision::Announce, "it needs no match conditions");
        let writes = plan.writes(&seen);
        let written: Vec<_> = writes.iter().map(|write| (&*write.object, write.given_back.len())).collect();
        assert_eq!(written, [("b", 1)]);
    }

    #[test]
    fn announcement_epoch_wraps_at_its_maximum() {
        let (mut lead, seen) = (Leadership::default(), outdated(json!({})));
        let before = Announcement { epoch: u64::MAX, ..Announcement::default() };
        let mut lease = leader_lease("1", "a/1", "t", &before, &[], &BTreeMap::new());
        lease["metadata"]["name"] = LEADER_LEASE.into();
        let (leases, seen) = ([Lease::of(&lease).unwrap()], [seen]);
        let now = Duration::ZERO;
        let (leases, seen) = (leases.as_slice(), seen.as_slice());
        let turn =
            Turn { now, leases, seen, registrations: &[], receivers: &[], unsupported: None, held_leader_lease: true };
        assert_eq!(lead.plan(turn).announcement.epoch, 0);
    }

    #[test]
    fn fence_and_given_back_annotations_are_removed() {
        let mut lead = Leadership::default();
        for mark in [crate::FENCE_ANNOTATION, crate::GIVEN_BACK_ANNOTATION] {
            let mut seen = outdated(json!({ mark: "x" }));
            seen.standing.outdated = false;
            assert_eq!(written(&mut lead, 0, &seen)[0].carry.len(), 1, "{mark}");
        }
    }
}
