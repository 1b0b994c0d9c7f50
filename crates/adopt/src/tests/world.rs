//! World: one webhook or binding, its owner, an apiserver and two replicas, step by step.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gatepost_api::HookType;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::*;

/// Steps of one second.
pub(crate) const SECOND: u32 = 10;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The owner replaces the object.
    Replace,
    /// The replica of that number is killed, and started again so many steps later.
    Kill(usize, u32),
    /// The replica of that number does nothing for so many steps, and goes on then.
    Pause(usize, u32),
    /// Somebody wants it, or does not.
    Want(bool),
    /// Its entry can be served, or not.
    Servable(bool),
    /// The next write is so many steps longer on its way, whatever becomes of its sender.
    Late(u32),
    /// Nothing can be written for so many steps, but by the owner.
    Mute(u32),
    /// From now on the owner replaces the object so many steps after each condition that lands, or does not any more.
    React(Option<u32>),
    /// From now on the owner changes something else of the object that often, or does not any more.
    Rotate(Option<u32>),
    Nothing,
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Replace),
        2 => (0..2_usize, 1..300_u32).prop_map(|(replica, steps)| Event::Kill(replica, steps)),
        1 => (0..2_usize, 1..600_u32).prop_map(|(replica, steps)| Event::Pause(replica, steps)),
        1 => any::<bool>().prop_map(Event::Want),
        1 => any::<bool>().prop_map(Event::Servable),
        1 => (0..600_u32).prop_map(Event::Late),
        1 => (0..500_u32).prop_map(Event::Mute),
        1 => proptest::option::of(0..6_u32).prop_map(Event::React),
        1 => proptest::option::of(1..30_u32).prop_map(Event::Rotate),
        4 => Just(Event::Nothing),
    ]
}

#[derive(Default)]
struct Replica {
    follower: Follower,
    leadership: Leadership,
    plan: CallPlan,
    /// Step of its next read.
    next: u32,
    /// It has read at least once, and serves.
    ready: bool,
    /// Step of its first read.
    began: Option<u32>,
    /// It could not give back in time what it cannot call, and serves all the same.
    gave_up: bool,
    /// True where it calls the webhook; a new one waits for its probe.
    calls: bool,
    probed: Option<u32>,
    /// Claims to be written, at the step.
    says: Option<(u32, Claims)>,
    down: Option<u32>,
    /// It does nothing until this step, and answers no review.
    paused: u32,
    /// Number of restarts.
    starts: u32,
}

/// A write on its way: it happens at the step if the object is still of that version.
pub(crate) struct Writing {
    at: u32,
    version: u64,
    /// The condition is put or taken; otherwise the object only becomes another one.
    carries: Option<bool>,
    /// Number and holder identity of the replica that hears of the outcome.
    by: (usize, String),
}

pub(crate) struct World {
    pub(crate) step: u32,
    /// It is a binding of a policy, and not a webhook.
    pub(crate) is_binding: bool,
    carries: Vec<bool>,
    version: u64,
    lag: u32,
    /// Maximum time from an apiserver's look at the condition to the review.
    pub(crate) in_flight: u32,
    probe: u32,
    slow: u32,
    wanted: bool,
    servable: bool,
    announcement: Announcement,
    fights: BTreeMap<String, FightRecord>,
    pub(crate) holder: String,
    renewed: u32,
    /// Claims, and the step of the last renewal, by holder.
    leases: BTreeMap<String, (Option<Claims>, u32)>,
    replicas: [Replica; 2],
    pub(crate) writing: Vec<Writing>,
    late: u32,
    /// Nothing can be written until this step.
    pub(crate) mute: u32,
    reacts: Option<u32>,
    /// Step at which the owner replaces the object because of a condition.
    reaction: Option<u32>,
    rotates: Option<u32>,
    pub(crate) twice: u32,
    /// Steps for which both have called it.
    pub(crate) twice_for: u32,
    pub(crate) longest: u32,
}

fn now(step: u32) -> Duration {
    Duration::from_millis(100) * step
}

impl World {
    pub(crate) fn new((lag, probe, slow): (u32, u32, u32)) -> Self {
        let mut world = Self {
            step: 0,
            is_binding: false,
            carries: vec![false],
            version: 1,
            lag,
            in_flight: 0,
            probe,
            slow,
            wanted: true,
            servable: true,
            announcement: Announcement::default(),
            fights: BTreeMap::new(),
            holder: String::new(),
            renewed: 0,
            leases: BTreeMap::new(),
            replicas: Default::default(),
            writing: Vec::new(),
            late: 0,
            mute: 0,
            reacts: None,
            reaction: None,
            rotates: None,
            twice: 0,
            twice_for: 0,
            longest: 0,
        };
        world.replicas[1].next = 3;
        world
    }

    pub(crate) fn carries_now(&self) -> bool {
        self.carries.last().copied().unwrap_or_default()
    }

    fn set(&mut self, carries: bool) {
        self.version += 1;
        if let Some(last) = self.carries.last_mut() {
            *last = carries;
        }
    }

    fn standing(&self) -> ClusterEntry {
        if self.is_binding {
            let suffix = if self.carries_now() { PARKED_SUFFIX } else { "" };
            let kept = json!({"policyName": "p", "paramRef": null}).to_string();
            let annotations = json!({"gatepost.dev/parked-param-ref": kept});
            let metadata = json!({"name": "b", "uid": "u", "resourceVersion": self.version.to_string(),
                "annotations": annotations});
            let binding = json!({"metadata": metadata, "spec": {"policyName": format!("p{suffix}")}});
            let policy = json!({"metadata": {"name": "p"}, "spec": {}});
            return bindings_of(HookType::Validating, &[policy], &[binding]).remove(0);
        }
        let mut entry = json!({"name": "w"});
        if self.carries_now() {
            entry["matchConditions"] = json!([{"name": CONDITION, "expression": EXPRESSION}]);
        }
        let metadata = json!({"name": "c", "uid": "u", "resourceVersion": self.version.to_string()});
        let object = json!({"metadata": metadata, "webhooks": [entry]});
        webhooks_of(HookType::Validating, &object).remove(0)
    }

    fn seen(&self) -> AssessedEntry {
        AssessedEntry {
            unservable: (!self.servable).then(|| Reason::Unservable("x".to_owned())),
            in_flight: now(self.in_flight),
            wanted: if self.wanted { Ok(()) } else { Err(Reason::Released) },
            ..AssessedEntry::sound(self.standing())
        }
    }

    fn leases(&self) -> Vec<Lease> {
        let versioned = |mut lease: Value, name: &str| {
            lease["metadata"]["name"] = name.into();
            Lease::of(&lease).unwrap()
        };
        let leader = leader_lease("1", &self.holder, &self.renewed.to_string(), &self.announcement, &[], &self.fights);
        let mut leases = vec![versioned(leader, LEADER_LEASE)];
        for (holder, (claims, renewed)) in &self.leases {
            let lease = replica_lease(holder, &renewed.to_string(), claims.as_ref());
            leases.push(versioned(lease, &lease_name(holder)));
        }
        leases
    }

    pub(crate) fn happens(&mut self, event: Event) {
        match event {
            Event::Replace => self.set(false),
            Event::Kill(replica, steps) => {
                let (down, starts) = (Some(self.step + steps), self.replicas[replica].starts + 1);
                self.replicas[replica] = Replica { down, starts, ..Replica::default() };
            }
            Event::Pause(replica, steps) => self.replicas[replica].paused = self.step + steps,
            Event::Want(wanted) => self.wanted = wanted,
            Event::Servable(servable) => {
                self.servable = servable;
                self.version += 1;
            }
            Event::Late(steps) => self.late = steps,
            Event::Mute(steps) => self.mute = self.step + steps,
            Event::React(steps) => self.reacts = steps,
            Event::Rotate(every) => self.rotates = every,
            Event::Nothing => {}
        }
    }

    pub(crate) fn go_on(&mut self) {
        self.step += 1;
        self.carries.push(self.carries_now());
        for write in self.writing.extract_if(.., |write| write.at <= self.step).collect::<Vec<_>>() {
            // Giving back is tried again at once.
            if write.version == self.version || write.carries == Some(false) && self.carries_now() {
                self.set(write.carries.unwrap_or(self.carries_now()));
                let (index, holder) = write.by;
                if write.carries == Some(true) && self.holder(index) == holder {
                    let key = self.seen().standing.key;
                    self.replicas[index].leadership.leader.on_taken(&key, now(self.step));
                }
                self.reaction = self.reacts.filter(|_| self.carries_now()).map(|steps| self.step + steps);
            }
        }
        if self.reaction.take_if(|at| *at <= self.step).is_some() {
            self.set(false);
        }
        if self.rotates.is_some_and(|every| self.step.is_multiple_of(every)) {
            self.version += 1;
        }
        for index in 0..2 {
            self.act(index);
        }
        self.judge();
    }

    fn act(&mut self, index: usize) {
        let step = self.step;
        if let Some(until) = self.replicas[index].down {
            if step < until {
                return;
            }
            let starts = self.replicas[index].starts;
            self.replicas[index] = Replica { next: step, starts, ..Replica::default() };
        }
        if step < self.replicas[index].paused {
            return;
        }
        let holder = self.holder(index);
        if let Some((at, claims)) = self.replicas[index].says.clone()
            && step >= at
        {
            self.replicas[index].says = None;
            if step >= self.mute {
                self.leases.insert(holder.clone(), (Some(claims), step));
            }
        }
        if self.replicas[index].probed.is_some_and(|at| step >= at) {
            self.replicas[index].probed = None;
            self.replicas[index].calls = true;
        }
        if step >= self.replicas[index].next {
            self.replicas[index].next = step + SECOND;
            // Its lease is there before it reads anything, if it can be.
            if step >= self.mute {
                self.leases.entry(holder).or_insert((None, step));
            }
            self.read(index);
        }
    }

    fn holder(&self, index: usize) -> String {
        format!("r{index}/{}", self.replicas[index].starts)
    }

    fn read(&mut self, index: usize) {
        let (step, seen, leases) = (self.step, self.seen(), self.leases());
        let (probe, slow, holder) = (self.probe, self.slow, self.holder(index));
        let replica = &mut self.replicas[index];
        replica.plan = replica.follower.read(now(step), &holder, &leases, std::slice::from_ref(&seen));
        let began = *replica.began.get_or_insert(step);
        let unserved = &replica.plan.unserved;
        if !unserved.is_empty() && !replica.ready {
            if step < began + 10 * SECOND {
                if step >= self.mute && unserved.iter().any(|unserved| unserved.carries) {
                    let version = self.version;
                    self.writing.push(Writing { at: step + slow, version, carries: Some(false), by: (index, holder) });
                }
                return;
            }
            replica.gave_up = true;
        }
        // One that was paused serves at once, whatever it cannot call.
        replica.gave_up |= replica.paused > 0 && !unserved.is_empty();
        match replica.plan.entries.first() {
            None => (replica.calls, replica.probed) = (false, None),
            Some(webhook) if !replica.ready || webhook.at_once => replica.calls = true,
            Some(_) if !replica.calls && replica.probed.is_none() => replica.probed = Some(step + probe),
            Some(_) => {}
        }
        replica.ready = true;
        let in_force = if replica.calls { BTreeSet::from([seen.standing.key.id()]) } else { BTreeSet::new() };
        replica.says = Some((step + slow, replica.plan.claims(&in_force)));
        replica.leadership.observe(now(step), &leases);
        if !replica.leadership.may_lead(now(step), &leases[0], &holder) {
            return;
        }
        let held_leader_lease = self.holder == holder;
        let seen = std::slice::from_ref(&seen);
        let turn = Turn {
            now: now(step),
            leases: &leases,
            seen,
            registrations: &[],
            receivers: &[],
            unsupported: None,
            held_leader_lease,
        };
        let plan = replica.leadership.plan(turn);
        if step < self.mute {
            return;
        }
        // A write may be slow, and its object change meanwhile; a lease that was just taken over is written first.
        for write in plan.writes(seen).into_iter().filter(|_| held_leader_lease) {
            let carries = write.fenced.is_empty().then_some(!write.carry.is_empty());
            let at = step + slow + std::mem::take(&mut self.late);
            self.writing.push(Writing { at, version: self.version, carries, by: (index, holder.clone()) });
        }
        (self.holder, self.renewed) = (holder, step);
        (self.announcement, self.fights) = (plan.announcement, plan.fights);
        self.replicas[index].leadership.leader.on_announced(now(step), now(step));
    }

    fn judge(&mut self) {
        let last = self.carries.len().saturating_sub(1 + self.lag as usize);
        let heard = self.carries[last];
        let held_back = self.carries[last.saturating_sub(self.in_flight as usize)..=last].contains(&true);
        let serves = |replica: &&Replica| replica.ready && replica.down.is_none() && replica.paused <= self.step;
        let serving: Vec<_> = self.replicas.iter().filter(serves).collect();
        if serving.is_empty() {
            return;
        }
        let all = serving.iter().all(|replica| replica.calls || replica.gave_up);
        assert!(!held_back || all, "nobody calls it at step {}", self.step);
        let both = !heard && serving.iter().any(|replica| replica.calls);
        self.twice = if both { self.twice + 1 } else { 0 };
        self.twice_for += u32::from(both);
        self.longest = self.longest.max(self.twice);
    }
}
