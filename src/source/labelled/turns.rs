//! DueTurns: queue of the objects whose turn is due, by initializer, with limits on concurrent turns.
//!
//! A process may take long over one object. So each name has its own limit, and names are served round-robin: a slow
//! one delays only its own objects. The wait in the queue does not count towards an initializer's timeout.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    sync::Arc,
    time::Instant,
};

/// Maximum number of concurrent turns of one name.
const MAX_TURNS_PER_NAME: usize = 64;
/// Concurrent turns up to which a name may have several; beyond, a name without a turn may start one.
const SHARED_TURNS: usize = 1024;
/// Maximum number of concurrent turns of all names.
const MAX_TURNS: usize = 2 * SHARED_TURNS;

/// Objects whose turn is due.
#[derive(Debug, Default)]
pub(super) struct DueTurns {
    /// uids by the name of the head, in order. A uid that is not in `waiting` is skipped.
    queues: BTreeMap<Box<str>, VecDeque<Arc<str>>>,
    waiting: HashMap<Arc<str>, Instant>,
    /// Number of turns under way, by name.
    taken: HashMap<Box<str>, usize>,
    all: usize,
    last: Box<str>,
}

/// Object whose turn starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TurnSlot {
    pub(super) uid: Arc<str>,
    /// Name that counts the turn.
    pub(super) name: Box<str>,
    /// Time since which it has waited.
    pub(super) since: Instant,
}

impl DueTurns {
    /// Queues an object for the head of its list; an object that is queued already keeps its position.
    pub(super) fn push(&mut self, uid: Arc<str>, name: &str, now: Instant) {
        if !self.waiting.contains_key(&uid) {
            self.waiting.insert(Arc::clone(&uid), now);
            self.queues.entry(name.into()).or_default().push_back(uid);
        }
    }

    /// Returns true if the object is queued.
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.waiting.contains_key(uid)
    }

    /// Removes an object from the queue.
    pub(super) fn forget(&mut self, uid: &str) {
        self.waiting.remove(uid);
    }

    /// Returns the next object whose turn can start. `head` returns its present head, or `None` to skip it.
    pub(super) fn next(&mut self, head: impl Fn(&str) -> Option<Box<str>>) -> Option<TurnSlot> {
        loop {
            let name = self.name()?;
            let Some(uid) = self.pop(&name) else { continue };
            let Some(&since) = self.waiting.get(&uid) else { continue };
            match head(&uid) {
                // Its head has changed while it waited.
                Some(now) if now != name => self.queues.entry(now).or_default().push_back(uid),
                Some(_) => {
                    self.waiting.remove(&uid);
                    *self.taken.entry(name.clone()).or_default() += 1;
                    self.all += 1;
                    self.last.clone_from(&name);
                    return Some(TurnSlot { uid, name, since });
                }
                None => _ = self.waiting.remove(&uid),
            }
        }
    }

    /// Records the end of a turn.
    pub(super) fn ended(&mut self, name: &str) {
        if let Some(taken) = self.taken.get_mut(name) {
            *taken -= 1;
            self.all -= 1;
            if *taken == 0 {
                self.taken.remove(name);
            }
        }
    }

    /// Returns the next name after the last one that has objects and is below its limits.
    fn name(&self) -> Option<Box<str>> {
        let behind = self.queues.range::<str, _>((Bound::Excluded(&*self.last), Bound::Unbounded));
        let others = self.queues.range::<str, _>((Bound::Unbounded, Bound::Included(&*self.last)));
        let mut names = behind.chain(others).map(|(name, _)| name);
        names.find(|name| self.has_place(name)).cloned()
    }

    fn has_place(&self, name: &str) -> bool {
        match self.taken.get(name) {
            None => self.all < MAX_TURNS,
            Some(taken) => *taken < MAX_TURNS_PER_NAME && self.all < SHARED_TURNS,
        }
    }

    fn pop(&mut self, name: &str) -> Option<Arc<str>> {
        let queue = self.queues.get_mut(name)?;
        let uid = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(name);
        }
        uid
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Everything that has a place, as the name that it waits for.
    fn all(turns: &mut DueTurns) -> Vec<Box<str>> {
        let head = |uid: &str| uid.split_once('/').map(|(name, _)| name.into());
        std::iter::from_fn(|| turns.next(head)).map(|placed| placed.name).collect()
    }

    fn push(turns: &mut DueTurns, name: &str, objects: std::ops::Range<usize>) {
        let now = Instant::now();
        objects.for_each(|number| turns.push(format!("{name}/{number}").into(), name, now));
    }

    #[test]
    fn a_slow_name_keeps_waiting_its_own_objects_alone() {
        let mut turns = DueTurns::default();
        push(&mut turns, "slow", 0..10_000);
        assert_eq!(all(&mut turns).len(), MAX_TURNS_PER_NAME);
        push(&mut turns, "quick", 0..2);
        assert_eq!(all(&mut turns), ["quick".into(), "quick".into()]);
        turns.ended("slow");
        assert_eq!(all(&mut turns), ["slow".into()]);
        // Many names together do not block it either: each has one slot.
        (0..40).for_each(|name| push(&mut turns, &format!("slow-{name}"), 0..100));
        assert!(!all(&mut turns).is_empty());
        assert!((SHARED_TURNS..=SHARED_TURNS + 41).contains(&turns.all), "{}", turns.all);
        push(&mut turns, "other", 0..2);
        assert_eq!(all(&mut turns), ["other".into()]);
    }

    #[test]
    fn names_take_turns_and_each_object_stands_once() {
        let mut turns = DueTurns::default();
        for name in ["a", "b", "c"] {
            push(&mut turns, name, 0..2);
            push(&mut turns, name, 0..2);
        }
        assert_eq!(all(&mut turns), ["a", "b", "c", "a", "b", "c"].map(Into::into));
    }

    #[test]
    fn wait_counts_from_the_first_queueing() {
        let mut turns = DueTurns::default();
        let (began, later) = (Instant::now(), Instant::now() + Duration::from_secs(9));
        turns.push("u".into(), "a", began);
        turns.push("u".into(), "a", later);
        turns.push("gone".into(), "a", began);
        turns.push("forgotten".into(), "a", began);
        turns.forget("forgotten");
        let next = turns.next(|uid| (uid != "gone").then(|| "b".into()));
        assert_eq!(next, Some(TurnSlot { uid: "u".into(), name: "b".into(), since: began }));
        assert_eq!(turns.next(|_| Some("a".into())), None);
        assert!(!turns.contains("u") && !turns.contains("gone"));
    }
}
