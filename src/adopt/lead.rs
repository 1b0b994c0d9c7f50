//! Lead: the leader's writes, planned from one read.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Announcement, Claims, Decision, Facts, Guard, KeptFights, LEADS, Leader, Lease, Reason, Registered, SeenWebhook,
    WebhookKey,
    guards::Guards,
    heard::Heard,
    receivers::{Missing, Receivers},
};
use crate::model::HookType;

/// Time without a renewal of its lease after which a replica counts as dead.
pub(super) const ENDED: Duration = Duration::from_secs(30);
/// Time without a renewal of its lease after which a replica counts as stalled: nothing new is announced until it
/// renews the lease or counts as dead.
const STALLED: Duration = Duration::from_secs(9);
/// Time without a renewal after which a replica's lease is deleted.
const FORGOTTEN: Duration = Duration::from_secs(900);

/// State that a replica keeps in order to lead.
#[derive(Debug, Default)]
pub struct Lead {
    heard: Heard,
    leader: Leader,
    guards: Guards,
    missing: Missing,
    /// First epoch from which each announced webhook has been announced without a break, by its id.
    since: BTreeMap<String, u64>,
    /// The holder of the leader's lease that let it run out, and when we have taken that.
    ousted: Option<(String, Duration)>,
}

/// Input of one turn of the leader.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// Start of the read, as time since the source was opened.
    pub now: Duration,
    /// The leases that it found.
    pub leases: &'a [Lease],
    /// The webhooks.
    pub seen: &'a [SeenWebhook],
    /// The registrations of ours.
    pub registered: &'a [Registered],
    /// Everything that receives reviews by our registrations.
    pub receivers: &'a [Receivers],
    /// The apiserver's version, where it knows no match conditions.
    pub unsupported: Option<&'a str>,
    /// True where we held the leader's lease when it was read.
    pub held: bool,
}

/// Output of one turn of the leader.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// To be announced, before anything else is written.
    pub announcement: Announcement,
    /// Decision on each webhook.
    pub decisions: Vec<(WebhookKey, Decision)>,
    /// Finalizers to add to our registrations, or to remove.
    pub guards: Vec<Guard>,
    /// Webhooks that are not written for a while, as the apiserver has refused that.
    pub rests: BTreeSet<WebhookKey>,
    /// Fights with owners, for the next leader.
    pub fights: BTreeMap<String, KeptFights>,
}

/// One configuration to be written: exactly these of its webhooks carry our condition afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Its kind.
    pub hook_type: HookType,
    /// Its name.
    pub configuration: String,
    /// Its uid and its resourceVersion as they were read.
    pub read: (String, String),
    /// Webhooks that carry the condition afterwards, each with its expression.
    pub carry: Vec<(String, String)>,
    /// Webhooks that get the condition.
    pub taken: Vec<WebhookKey>,
    /// Webhooks that lose the condition, and the reason.
    pub given_back: Vec<(WebhookKey, Reason)>,
    /// Names of webhooks given back whose condition is not owned by our field manager alone.
    pub written_by_others: Vec<String>,
    /// Webhooks that need a new resourceVersion of the configuration, so that a write in flight fails.
    pub fenced: Vec<WebhookKey>,
    /// Webhooks that get the condition with another expression.
    pub outdated: Vec<WebhookKey>,
}

impl Lead {
    /// Records a read that began at `now`, on every replica.
    pub fn hear(&mut self, now: Duration, leases: &[Lease]) {
        self.heard.hear(now, leases);
    }

    /// May the replica that holds leases by this name lead?
    pub fn may_lead(&self, now: Duration, leader: &Lease, holder: &str) -> bool {
        leader.holder == holder || leader.holder.is_empty() || self.heard.silence(now, leader) >= LEADS
    }

    /// Plan of one turn.
    pub fn plan(&mut self, turn: Turn<'_>) -> Plan {
        let Turn { now, leases, seen, .. } = turn;
        let lease = leases.iter().find(|lease| lease.is_leader());
        let before = lease.map(Lease::announcement).unwrap_or_default();
        if !turn.held {
            let kept = lease.map(Lease::fights).unwrap_or_default();
            self.leader.begin(now, seen, &before, &kept);
            self.since = before.ids.iter().map(|id| (id.clone(), before.epoch)).collect();
            self.ousted = lease.filter(|lease| !lease.holder.is_empty()).map(|lease| (lease.holder.clone(), now));
        }
        let silence = |lease: &Lease| self.heard.silence(now, lease);
        let live: Vec<_> = leases.iter().filter(|lease| !lease.is_leader() && silence(lease) < ENDED).collect();
        // A leader that has not renewed its lease every second will not say anything either, until it does.
        let is_ousted = |lease: &Lease| {
            let ousted = self.ousted.as_ref().filter(|(holder, _)| *holder == lease.holder);
            ousted.is_some_and(|(_, at)| silence(lease) >= now.saturating_sub(*at))
        };
        let is_stalled = |lease: &Lease| silence(lease) >= STALLED || is_ousted(lease);
        let (stalled, quiet): (Vec<_>, Vec<_>) = live
            .iter()
            .filter(|lease| is_stalled(lease))
            .map(|lease| (lease.replica().to_owned(), lease.claims()))
            .unzip();
        let claims: Vec<_> = live.iter().map(|lease| (lease.replica(), lease.claims())).collect();
        // A replica that has read one announcement with this webhook follows the later ones as well.
        let confirms = |id: &String, claims: &Claims| {
            let since = self.since.get(id).copied().unwrap_or(before.epoch);
            claims.ids.contains(id) && (since..=before.epoch).contains(&claims.epoch)
        };
        let missing = self.missing.step(now, turn.receivers, leases, |lease| silence(lease) < ENDED);
        let facts: Vec<_> = seen
            .iter()
            .map(|seen| {
                let id = &seen.standing.id;
                let named = |(name, _): &(&str, Option<Claims>)| (*name).to_owned();
                // A replica that is only starting has no claims yet, and serves nobody.
                let is_silent = |claims: &Option<Claims>| claims.as_ref().is_some_and(|it| !it.ids.contains(id));
                let silent = claims.iter().filter(|(_, claims)| is_silent(claims)).map(named);
                let is_sure = |claims: &Option<Claims>| claims.as_ref().is_some_and(|it| confirms(id, it));
                let unconfirmed = claims.iter().filter(|(_, claims)| !is_sure(claims)).map(named);
                Facts {
                    seen,
                    announced: before.ids.contains(id),
                    silent: silent.collect(),
                    stalled: &stalled,
                    in_vain: quiet.iter().any(|claims| !is_sure(claims)),
                    missing: missing.as_ref().map(|(what, overdue)| (what.as_str(), *overdue)),
                    // Without a live replica nothing is confirmed.
                    unconfirmed: match claims.is_empty() {
                        true => vec!["any replica".to_owned()],
                        false => unconfirmed.collect(),
                    },
                }
            })
            .collect();
        let decisions = self.leader.turn(now, &facts, turn.unsupported);
        let is_announced = |place: usize| decisions.get(place).is_some_and(|(_, it)| it.announces());
        let ends = |place: usize| {
            decisions.get(place).is_some_and(|(key, it)| !it.announces() && self.leader.lingers(key, now))
        };
        let announces = |place: usize| is_announced(place) || ends(place);
        let of = |is: &dyn Fn(usize) -> bool| -> BTreeSet<String> {
            let there = (0..).zip(seen).filter(|(place, _)| is(*place));
            there.map(|(_, seen)| seen.standing.id.clone()).collect()
        };
        let (ids, ending) = (of(&is_announced), of(&ends));
        // Any number may be written there by somebody who may write the lease; no claim counts under the one before it.
        let epoch = before.epoch.wrapping_add(u64::from(ids != before.ids || ending != before.ending));
        let guards = self.guards.step(now, turn.registered, seen, announces);
        self.since.retain(|id, _| ids.contains(id));
        for id in &ids {
            self.since.entry(id.clone()).or_insert(epoch);
        }
        let rests = decisions.iter().map(|(key, _)| key).filter(|key| self.leader.rests(key, now)).cloned().collect();
        let fights = self.leader.kept(now);
        Plan { announcement: Announcement { epoch, ids, ending }, decisions, guards, rests, fights }
    }

    /// Names of leases whose replicas ended long ago.
    pub fn forgotten<'a>(&self, now: Duration, leases: &'a [Lease]) -> impl Iterator<Item = &'a str> {
        let long_ago = move |lease: &&Lease| !lease.is_leader() && self.heard.silence(now, lease) >= FORGOTTEN;
        leases.iter().filter(long_ago).map(|lease| &*lease.name)
    }

    /// Records that the apiserver rejects the condition of that webhook, or another write of ours to it.
    pub fn refused(&mut self, key: &WebhookKey, what: String, now: Duration) {
        self.leader.refused(key, what, now);
    }

    /// Records that the announcement that the turn at `turn` planned was written by `now`.
    pub fn announced(&mut self, turn: Duration, now: Duration) {
        self.leader.announced(turn, now);
    }

    /// Records that the apiserver has put the condition on that webhook, at `now`.
    pub fn landed(&mut self, key: &WebhookKey, now: Duration) {
        self.leader.landed(key, now);
    }

    /// Number of times that owners have dropped the condition.
    pub const fn drops(&self) -> u64 {
        self.leader.drops()
    }
}

impl Plan {
    /// The configurations that are to be written, once the announcement has been.
    pub fn writes(&self, seen: &[SeenWebhook]) -> Vec<Write> {
        let read: BTreeMap<_, _> = seen.iter().map(|seen| (&seen.standing.key, &seen.standing)).collect();
        let mut writes = BTreeMap::<(HookType, &str), Write>::new();
        // Configurations with a mark that has done its work.
        let mut again = BTreeSet::new();
        for (key, decision) in &self.decisions {
            let Some(standing) = read.get(key) else { continue };
            let write = writes.entry((key.hook_type, key.configuration.as_str())).or_insert_with(|| Write {
                hook_type: key.hook_type,
                configuration: key.configuration.clone(),
                read: (standing.uid.clone(), standing.version.clone()),
                carry: Vec::new(),
                taken: Vec::new(),
                given_back: Vec::new(),
                written_by_others: Vec::new(),
                fenced: Vec::new(),
                outdated: Vec::new(),
            });
            again.extend(standing.marked.then_some((key.hook_type, key.configuration.as_str())));
            match decision {
                Decision::Keep => {
                    write.carry.push((key.webhook.clone(), standing.condition.to_string()));
                    // The apiserver is kept from more than it is to be kept from, or from less.
                    if standing.outdated && !self.rests.contains(key) {
                        write.outdated.push(key.clone());
                    }
                }
                Decision::Take => {
                    write.carry.push((key.webhook.clone(), standing.condition.to_string()));
                    write.taken.push(key.clone());
                }
                Decision::GiveBack(reason) => {
                    write.given_back.push((key.clone(), reason.clone()));
                    if !standing.by_us {
                        write.written_by_others.push(key.webhook.clone());
                    }
                }
                Decision::Fence(_) => write.fenced.push(key.clone()),
                Decision::Announce | Decision::Leave(_) => {}
            }
        }
        let due = |(of, write): &(_, Write)| {
            !write.fenced.is_empty()
                || !write.outdated.is_empty()
                || again.contains(of)
                || !write.taken.is_empty()
                || !write.given_back.is_empty()
        };
        writes.into_iter().filter(due).map(|(_, write)| write).collect()
    }

    /// Name, state and reason of each webhook, for people.
    pub fn status(&self) -> Vec<[String; 3]> {
        let line = |(key, decision): &(WebhookKey, Decision)| {
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
    use serde_json::json;

    use super::*;
    use crate::adopt::{CONDITION, EXPRESSION, LEADER, leader_lease, standings};

    /// One that carries our condition with an expression that does not fit its rules, and these annotations.
    fn outdated(annotations: serde_json::Value) -> SeenWebhook {
        let condition = json!({"name": CONDITION, "expression": EXPRESSION});
        let rule = json!({"apiGroups": ["*"], "resources": ["*"]});
        let entry = json!({"name": "w", "rules": [rule], "matchConditions": [condition]});
        let metadata = json!({"name": "c", "uid": "u", "resourceVersion": "7", "annotations": annotations});
        let object = json!({"metadata": metadata, "webhooks": [entry]});
        SeenWebhook::sound(standings(HookType::Validating, &object).remove(0))
    }

    fn written(lead: &mut Lead, second: u64, seen: &SeenWebhook) -> Vec<Write> {
        let seen = std::slice::from_ref(seen);
        let now = Duration::from_secs(second);
        let turn = Turn { now, leases: &[], seen, registered: &[], receivers: &[], unsupported: None, held: true };
        lead.plan(turn).writes(seen)
    }

    #[test]
    fn an_expression_that_the_apiserver_refuses_is_not_written_at_every_turn() {
        let (mut lead, seen) = (Lead::default(), outdated(json!({})));
        let key = seen.standing.key.clone();
        assert_eq!(written(&mut lead, 0, &seen)[0].outdated, std::slice::from_ref(&key));
        lead.refused(&key, "422".to_owned(), Duration::ZERO);
        assert_eq!(written(&mut lead, 1, &seen), []);
        assert_eq!(written(&mut lead, 59, &seen), []);
        assert_eq!(written(&mut lead, 60, &seen).len(), 1);
    }

    #[test]
    fn the_greatest_epoch_is_followed_by_another() {
        let (mut lead, seen) = (Lead::default(), outdated(json!({})));
        let before = Announcement { epoch: u64::MAX, ..Announcement::default() };
        let mut lease = leader_lease("1", "a/1", "t", &before, &[], &BTreeMap::new());
        lease["metadata"]["name"] = LEADER.into();
        let (leases, seen) = ([Lease::of(&lease).unwrap()], [seen]);
        let now = Duration::ZERO;
        let (leases, seen) = (leases.as_slice(), seen.as_slice());
        let turn = Turn { now, leases, seen, registered: &[], receivers: &[], unsupported: None, held: true };
        assert_eq!(lead.plan(turn).announcement.epoch, 0);
    }

    #[test]
    fn a_mark_of_ours_is_removed() {
        let mut lead = Lead::default();
        for mark in [crate::adopt::FENCE, crate::adopt::GIVEN_BACK] {
            let mut seen = outdated(json!({ mark: "x" }));
            seen.standing.outdated = false;
            assert_eq!(written(&mut lead, 0, &seen)[0].carry.len(), 1, "{mark}");
        }
    }
}
