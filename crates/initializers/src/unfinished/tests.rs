//! Stored objects under random interleavings of their initializers, crashes, lost messages and configuration changes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::{
    Actor, Controller, Correction, CorrectiveAction, HeadRule, OwnedNames, ReadRepair,
    controller::{HeadIndex, OverdueObject, SNAPSHOT_INTERVAL},
    transition, without_late_head,
};
use gatepost_api::FailurePolicy;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Event {
    Create(Vec<usize>),
    /// An owner removes itself, or refuses.
    Act(usize, usize, bool),
    /// The apiserver tells of so many changes.
    Deliver(usize),
    /// The number of corrections that arrive; the others are lost.
    Correct(usize),
    /// 30 s go by, and the controller looks.
    Pass,
    /// The apiserver, or the sidecar, ends and begins anew.
    Crash,
    /// A read of an object that is older than 11 min.
    Repair(usize),
    /// A name fails open, or does not, or nobody knows it any more.
    Configure(usize, Option<FailurePolicy>),
    Delete(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let policy = prop_oneof![Just(None), Just(Some(FailurePolicy::Ignore)), Just(Some(FailurePolicy::Fail))];
    prop_oneof![
        proptest::sample::subsequence(vec![0, 1, 2], 0..=3).prop_map(Event::Create),
        (0..8_usize, 0..3_usize, prop::bool::weighted(0.2)).prop_map(|(at, who, no)| Event::Act(at, who, no)),
        (1..4_usize).prop_map(Event::Deliver),
        (0..3_usize).prop_map(Event::Correct),
        Just(Event::Pass),
        Just(Event::Crash),
        (0..8_usize).prop_map(Event::Repair),
        (0..3_usize, policy).prop_map(|(name, policy)| Event::Configure(name, policy)),
        (0..8_usize).prop_map(Event::Delete),
    ]
}

/// One object in the storage; no list where it is initialized.
struct Stored {
    version: u64,
    list: Option<Initializers>,
    /// Names it was created with, and those that had their turn.
    listed: BTreeSet<Box<str>>,
    done: BTreeSet<Box<str>>,
    late: BTreeSet<Box<str>>,
}

struct World {
    now: Instant,
    version: u64,
    stored: BTreeMap<Arc<str>, Stored>,
    reports: VecDeque<StoredEvent>,
    unfinished: Unfinished,
    controller: Controller,
    corrections: Vec<Correction>,
    policies: BTreeMap<Box<str>, Option<FailurePolicy>>,
}

impl World {
    fn new() -> Self {
        Self {
            now: Instant::now(),
            version: 0,
            stored: BTreeMap::new(),
            reports: VecDeque::new(),
            unfinished: Unfinished::default(),
            controller: Controller::default(),
            corrections: Vec::new(),
            policies: BTreeMap::new(),
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Create(names) => {
                let list = Initializers::of(names.iter().map(|name| NAMES[*name])).normalized();
                let listed = names.iter().map(|name| NAMES[*name].into()).collect();
                let uid: Arc<str> = format!("u{}", self.version).into();
                let (done, late) = Default::default();
                self.stored.insert(Arc::clone(&uid), Stored { version: 0, list: None, listed, done, late });
                self.write(&uid, list);
            }
            Event::Act(at, who, refuses) => self.act(at, NAMES[who], refuses)?,
            Event::Deliver(count) => self.deliver(count),
            Event::Correct(count) => {
                let corrections = std::mem::take(&mut self.corrections);
                for correction in corrections.into_iter().take(count) {
                    // Twice is once.
                    self.correct(&correction);
                    self.correct(&correction);
                }
            }
            Event::Pass => self.pass(),
            Event::Crash => self.crash(),
            Event::Repair(at) => {
                let Some(uid) = self.pick(at) else { return Ok(()) };
                let list = self.stored[&uid].list.clone().unwrap_or_default();
                let must_act =
                    |name: &str| self.policies.get(name).is_some_and(|policy| *policy == Some(FailurePolicy::Fail));
                let head = ReadRepair::default().head(&list, (0, 661), must_act).map(Box::from);
                if let Some(head) = head {
                    self.remove(&uid, head);
                }
            }
            Event::Configure(name, policy) => _ = self.policies.insert(NAMES[name].into(), policy),
            Event::Delete(at) => {
                if let Some(uid) = self.pick(at) {
                    self.gone(&uid);
                }
            }
        }
        self.is_sound()
    }

    /// A write of the storage, which its apiserver tells of.
    fn write(&mut self, uid: &Arc<str>, list: Option<Initializers>) {
        self.version += 1;
        let Some(stored) = self.stored.get_mut(uid) else { return };
        (stored.version, stored.list) = (self.version, list);
        self.reports.push_back(reported(uid, stored));
        if stored.list.as_ref().is_some_and(|list| list.result.is_some()) && self.version.is_multiple_of(2) {
            // Every other time the apiserver ends before it deletes what has failed.
            self.gone(uid);
        }
    }

    fn gone(&mut self, uid: &Arc<str>) {
        self.stored.remove(uid);
        self.reports.push_back(StoredEvent::Gone { uid: Arc::clone(uid) });
    }

    fn pick(&self, at: usize) -> Option<Arc<str>> {
        let at = at.checked_rem(self.stored.len())?;
        self.stored.keys().nth(at).cloned()
    }

    /// An initializer updates the object; only the owner of the head gets through.
    fn act(&mut self, at: usize, who: &str, refuses: bool) -> Result<(), TestCaseError> {
        let Some(uid) = self.pick(at) else { return Ok(()) };
        let Some(old) = self.stored[&uid].list.clone() else { return Ok(()) };
        let result = refuses.then(|| Box::new(StatusInfo { status: "Failure".into(), ..StatusInfo::default() }));
        let pending: Vec<Box<str>> = old.pending.iter().filter(|name| refuses || ***name != *who).cloned().collect();
        let new = Initializers { pending, result: result.or_else(|| old.result.clone()) };
        let own = [who];
        let actor = Actor { may_initialize: true, owns: OwnedNames::Names(&own) };
        let is_turn = old.head() == Some(who) && old.result.is_none();
        let after = transition(Some(old.clone()), new.clone().normalized(), actor);
        prop_assert!(after.is_err() || is_turn || new == old, "{:?} to {:?} by {}", old, new, who);
        if let (Ok(list), true) = (after, is_turn) {
            if !refuses && let Some(stored) = self.stored.get_mut(&uid) {
                prop_assert!(stored.done.insert(who.into()), "nobody acts twice");
            }
            self.write(&uid, list);
        }
        Ok(())
    }

    fn remove(&mut self, uid: &Arc<str>, head: Box<str>) {
        let Some(stored) = self.stored.get_mut(uid) else { return };
        let Some(left) = stored.list.as_ref().and_then(|list| without_late_head(list, &head)) else { return };
        stored.late.insert(head);
        self.write(uid, left);
    }

    fn deliver(&mut self, count: usize) {
        for _ in 0..count {
            let Some(event) = self.reports.pop_front() else { return };
            self.unfinished.apply(event, self.now);
        }
    }

    /// As an apiserver does it: while the object has the resource version.
    fn correct(&mut self, Correction { object, remedy }: &Correction) {
        let Some(stored) = self.stored.get(&object.uid) else { return };
        if stored.version.to_string() != *object.resource_version {
            return;
        }
        match remedy {
            CorrectiveAction::RemoveHead(head) => self.remove(&object.uid, head.clone()),
            CorrectiveAction::Fail(status) => {
                let list = Initializers { result: Some(status.clone()), ..object.list.clone() };
                self.write(&object.uid, Some(list));
            }
            CorrectiveAction::Delete => self.gone(&object.uid),
        }
    }

    fn pass(&mut self) {
        self.now += SNAPSHOT_INTERVAL;
        self.controller.compare(HeadIndex::of(self.unfinished.after(None, usize::MAX), self.now));
        let policies = &self.policies;
        let rule = |object: &StoredObject| {
            let policy = object.list.head().and_then(|head| policies.get(head).copied().flatten());
            policy.map_or_else(HeadRule::default, |policy| HeadRule { policy, ..HeadRule::default() })
        };
        let overdue = self.controller.overdue(Some(self.now), usize::MAX);
        let corrected = |overdue: &OverdueObject| {
            self.unfinished.get(&overdue.uid).and_then(|entry| overdue.correction(&entry.object, rule))
        };
        self.corrections = overdue.iter().filter_map(corrected).collect();
    }

    /// All that was on its way is lost, and the report begins anew.
    fn crash(&mut self) {
        (self.unfinished, self.controller) = Default::default();
        self.reports.clear();
        self.corrections.clear();
        let unfinished = self.stored.iter().filter(|(_, stored)| stored.list.is_some());
        self.reports.extend(unfinished.map(|(uid, stored)| reported(uid, stored)));
        self.reports.push_back(StoredEvent::Synced);
    }

    fn is_sound(&self) -> Result<(), TestCaseError> {
        for (uid, stored) in &self.stored {
            if stored.list.is_none() {
                let acted = |name| stored.done.contains(name) || stored.late.contains(name);
                prop_assert!(stored.listed.iter().all(acted), "{} is visible, and somebody has not acted", uid);
            }
        }
        let size: usize = self.unfinished.after(None, usize::MAX).iter().map(|object| object.size()).sum();
        prop_assert_eq!(self.unfinished.size(), size);
        Ok(())
    }
}

fn reported(uid: &Arc<str>, stored: &Stored) -> StoredEvent {
    let (uid, resource_version) = (Arc::clone(uid), stored.version.to_string().into());
    match stored.list.clone() {
        None => StoredEvent::Initialized { uid, resource_version },
        Some(list) => {
            let [group, resource, namespace, name] = ["", "pods", "shop", "p"].map(Into::into);
            StoredEvent::Unfinished(StoredObject { group, resource, namespace, name, uid, resource_version, list })
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn unfinished_objects_are_never_shown_doubled_or_stuck_in_any_interleaving(events in proptest::collection::vec(event(), 1..80)) {
        let mut world = World::new();
        for event in events {
            world.happen(event)?;
        }
        // No initializer lives any more.
        world.crash();
        for _ in 0..2 + 2 * NAMES.len() {
            world.happen(Event::Deliver(usize::MAX))?;
            world.happen(Event::Pass)?;
            world.happen(Event::Correct(usize::MAX))?;
        }
        world.happen(Event::Deliver(usize::MAX))?;
        prop_assert!(world.stored.values().all(|stored| stored.list.is_none()), "stuck");
        prop_assert!(world.unfinished.is_empty());
    }
}

#[test]
fn head_is_as_old_as_its_first_report() {
    let (mut unfinished, began) = (Unfinished::default(), Instant::now());
    let uid: Arc<str> = "u".into();
    let report = |version, names: &[&str]| {
        let sets = Default::default;
        let list = Some(Initializers::of(names.iter().copied()));
        reported(&uid, &Stored { version, list, listed: sets(), done: sets(), late: sets() })
    };
    let at = |seconds| began + Duration::from_secs(seconds);
    for (seconds, event, since) in [
        (0, report(1, &["a", "b"]), 0),
        (5, report(2, &["a"]), 0),
        (9, report(3, &["b"]), 9),
        (12, report(4, &["b"]), 9),
    ] {
        unfinished.apply(event, at(seconds));
        assert_eq!(unfinished.get("u").map(|entry| entry.since), Some(at(since)), "at {seconds}");
    }
}

#[test]
fn overdue_object_without_a_turn_is_first_in_the_next_pass() {
    let (mut unfinished, mut controller, mut now) = (Unfinished::default(), Controller::default(), Instant::now());
    let report = |uid: &str, version, name: &str| {
        let sets = Default::default;
        let list = Some(Initializers::of([name]));
        reported(&uid.into(), &Stored { version, list, listed: sets(), done: sets(), late: sets() })
    };
    for n in 0..6 {
        unfinished.apply(report(&format!("u{n}"), 1, "a"), now);
    }
    let mut pass = |unfinished: &Unfinished, most| {
        now += SNAPSHOT_INTERVAL;
        controller.compare(HeadIndex::of(unfinished.after(None, usize::MAX), now));
        controller.overdue(Some(now), most)
    };
    let uids = |overdue: &[OverdueObject]| overdue.iter().map(|one| one.uid.to_string()).collect::<Vec<_>>();
    assert!(pass(&unfinished, 4).is_empty());
    assert_eq!(uids(&pass(&unfinished, 4)), ["u0", "u1", "u2", "u3"]);
    let next = pass(&unfinished, 4);
    assert_eq!(uids(&next), ["u4", "u5", "u0", "u1"], "and none of them twice in one pass");
    // In the meantime one is changed, another has a new head.
    unfinished.apply(report("u4", 2, "a"), now);
    unfinished.apply(report("u5", 2, "b"), now);
    let corrected = |at: usize| {
        let object = &unfinished.get(&next[at].uid).unwrap().object;
        next[at].correction(object, |_| HeadRule::default())
    };
    assert_eq!(corrected(0).map(|correction| correction.object.resource_version.clone()), Some("2".into()));
    assert_eq!(corrected(1), None);
}

#[test]
fn size_of_stored_object_counts_every_text() {
    let long = || "x".repeat(100 << 10);
    let cause = StatusCause { message: long(), ..StatusCause::default() };
    let result = StatusInfo { details_name: long(), causes: vec![cause], ..StatusInfo::default() };
    let list = Initializers { result: Some(Box::new(result)), ..Initializers::of(["a"]) };
    let sets = Default::default;
    let stored = Stored { version: 1, list: Some(list), listed: sets(), done: sets(), late: sets() };
    let StoredEvent::Unfinished(object) = reported(&"u".into(), &stored) else { panic!() };
    assert!(object.size() > 200 << 10, "{}", object.size());
}
