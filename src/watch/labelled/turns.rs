//! DueTurns: objects whose turn is due, by whose turn it is, and how many are worked on at once.
//!
//! A process may take long over one object. So each name has places of its own, and the names take turns: one that is slow
//! keeps waiting no objects but its own. The time that an object waits for a place is not its initializer's.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    sync::Arc,
    time::Instant,
};

/// Objects worked on at once of one name.
const OF_ONE: usize = 64;
/// Objects worked on at once; a name of which nothing is worked on has one place more.
const OF_ALL: usize = 1024;
/// Objects worked on at once, those places included.
const MAX_TURNS: usize = 2 * OF_ALL;

/// Objects whose turn is due.
#[derive(Debug, Default)]
pub(super) struct DueTurns {
    /// uids by the name of the head, in order. One that is not waiting any more is passed over.
    queues: BTreeMap<Box<str>, VecDeque<Arc<str>>>,
    waiting: HashMap<Arc<str>, Instant>,
    /// Places that are taken, by name.
    taken: HashMap<Box<str>, usize>,
    all: usize,
    last: Box<str>,
}

/// Object that has a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) uid: Arc<str>,
    /// Name whose place it has, to be given back.
    pub(super) name: Box<str>,
    /// Since when it has waited for it.
    pub(super) since: Instant,
}

impl DueTurns {
    /// An object waits for the head of its list; it stands once, where it stood.
    pub(super) fn push(&mut self, uid: Arc<str>, name: &str, now: Instant) {
        if !self.waiting.contains_key(&uid) {
            self.waiting.insert(Arc::clone(&uid), now);
            self.queues.entry(name.into()).or_default().push_back(uid);
        }
    }

    /// Does it wait for a place?
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.waiting.contains_key(uid)
    }

    /// It does not wait any more.
    pub(super) fn forget(&mut self, uid: &str) {
        self.waiting.remove(uid);
    }

    /// The next object that has a place. `head` is the name at its head as it is now; `None` where it is not to be worked on.
    pub(super) fn next(&mut self, head: impl Fn(&str) -> Option<Box<str>>) -> Option<Placed> {
        loop {
            let name = self.name()?;
            let Some(uid) = self.pop(&name) else { continue };
            let Some(&since) = self.waiting.get(&uid) else { continue };
            match head(&uid) {
                // It has gone on while it waited.
                Some(now) if now != name => self.queues.entry(now).or_default().push_back(uid),
                Some(_) => {
                    self.waiting.remove(&uid);
                    *self.taken.entry(name.clone()).or_default() += 1;
                    self.all += 1;
                    self.last.clone_from(&name);
                    return Some(Placed { uid, name, since });
                }
                None => _ = self.waiting.remove(&uid),
            }
        }
    }

    /// A place is free again.
    pub(super) fn ended(&mut self, name: &str) {
        if let Some(taken) = self.taken.get_mut(name) {
            *taken -= 1;
            self.all -= 1;
            if *taken == 0 {
                self.taken.remove(name);
            }
        }
    }

    /// The name behind the last one that has objects and a place.
    fn name(&self) -> Option<Box<str>> {
        let behind = self.queues.range::<str, _>((Bound::Excluded(&*self.last), Bound::Unbounded));
        let others = self.queues.range::<str, _>((Bound::Unbounded, Bound::Included(&*self.last)));
        let mut names = behind.chain(others).map(|(name, _)| name);
        names.find(|name| self.has_place(name)).cloned()
    }

    fn has_place(&self, name: &str) -> bool {
        match self.taken.get(name) {
            None => self.all < MAX_TURNS,
            Some(taken) => *taken < OF_ONE && self.all < OF_ALL,
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
        assert_eq!(all(&mut turns).len(), OF_ONE);
        push(&mut turns, "quick", 0..2);
        assert_eq!(all(&mut turns), ["quick".into(), "quick".into()]);
        turns.ended("slow");
        assert_eq!(all(&mut turns), ["slow".into()]);
        // Nor do many names together: each has one place.
        (0..40).for_each(|name| push(&mut turns, &format!("slow-{name}"), 0..100));
        assert!(!all(&mut turns).is_empty());
        assert!((OF_ALL..=OF_ALL + 41).contains(&turns.all), "{}", turns.all);
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
    fn an_object_waits_from_the_first_time_on_for_whose_turn_it_is_now() {
        let mut turns = DueTurns::default();
        let (began, later) = (Instant::now(), Instant::now() + Duration::from_secs(9));
        turns.push("u".into(), "a", began);
        turns.push("u".into(), "a", later);
        turns.push("gone".into(), "a", began);
        turns.push("forgotten".into(), "a", began);
        turns.forget("forgotten");
        let next = turns.next(|uid| (uid != "gone").then(|| "b".into()));
        assert_eq!(next, Some(Placed { uid: "u".into(), name: "b".into(), since: began }));
        assert_eq!(turns.next(|_| Some("a".into())), None);
        assert!(!turns.contains("u") && !turns.contains("gone"));
    }
}
