//! Desk: the instances that have claimed a name, and the tasks that they share.
//!
//! A task is one initializer's turn at one object. It lies with one instance at most; where that lapses, the task goes to
//! another with a higher attempt number, and what the first still answers is refused. So each task is answered once, as
//! far as can be told from here, and an instance can tell a repeat by its number.
//!
//! ```text
//!   submit ──> queued ── an instance has room ──> assigned ── its answer ──> ended
//!                ^                                  │    │
//!                └── the instance lapses, attempt+1 ┘    └── its time is over, or nobody wants it ──> ended
//! ```

mod action;
mod rotation;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::action::{Action, Stale};
use self::rotation::RetiredClaim;

/// One initializer's turn at one object. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// One connected process that has claimed a name. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u64);

/// Bounds of a [`Desk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeskLimits {
    /// Tasks of one name that are queued or assigned.
    pub of_a_name: usize,
    /// Tasks of all names.
    pub in_all: usize,
    /// Instances of one name.
    pub instances: usize,
    /// An instance that was not heard of for so long has lapsed.
    pub lease: Duration,
    /// A name without an instance for so long has lapsed: its tasks are late at once.
    pub vacant: Duration,
}

/// Names without an instance that are remembered.
const MOST_REMEMBERED: usize = 1024;
/// Longest time between two passes of a process that runs. After a longer one it was stopped, and what instances sent
/// meanwhile lies unread.
const PAUSE: Duration = Duration::from_secs(2);

impl Default for DeskLimits {
    fn default() -> Self {
        let (lease, vacant) = (Duration::from_secs(10), Duration::from_secs(10));
        Self { of_a_name: 1_000, in_all: 4_000, instances: 64, lease, vacant }
    }
}

/// A task that is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// No instance has had the name for this long: it is late already.
    Vacant(Duration),
    /// No instance has had the name since it was configured: it is not in rotation yet.
    Unproven,
    /// The most objects are held for the name, or in all.
    Full,
}

/// State of one name, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameState {
    /// The name.
    pub name: Arc<str>,
    /// Instances that are attached.
    pub instances: usize,
    /// Tasks that wait for an instance.
    pub queued: usize,
    /// Tasks that an instance works on.
    pub assigned: usize,
    /// Since when the oldest task waits.
    pub oldest: Option<Instant>,
    /// Since when no instance is attached; `None` while one is.
    pub vacant_since: Option<Instant>,
    /// False while no instance has been attached since the name was configured.
    pub proven: bool,
    /// An instance was attached before, or is.
    pub ever_attached: bool,
}

/// Instances by name, and tasks on their way to them.
#[derive(Debug)]
pub struct Desk {
    limits: DeskLimits,
    /// A name that was neither claimed nor configured is vacant since then.
    epoch: Instant,
    /// The last pass.
    passed: Instant,
    names: BTreeMap<Arc<str>, Claim>,
    instances: BTreeMap<InstanceId, Instance>,
    tasks: BTreeMap<TaskId, Task>,
    deadlines: BTreeSet<(Instant, TaskId)>,
}

/// One name.
#[derive(Debug, Default)]
struct Claim {
    instances: BTreeSet<InstanceId>,
    queue: VecDeque<TaskId>,
    tasks: BTreeSet<TaskId>,
    vacant_since: Option<Instant>,
    /// An instance has had it, or it was configured before the process began. Tasks of others are not taken.
    proven: bool,
    retired: Option<RetiredClaim>,
    ever_attached: bool,
}

#[derive(Debug)]
struct Instance {
    name: Arc<str>,
    heard: Instant,
    /// Tasks that it takes at once.
    window: usize,
    tasks: BTreeSet<TaskId>,
    /// It takes no more, and finishes those it has.
    leaving: bool,
}

#[derive(Debug)]
struct Task {
    name: Arc<str>,
    since: Instant,
    deadline: Instant,
    attempt: u32,
    holder: Option<InstanceId>,
}

impl Desk {
    /// A desk without instances.
    pub fn new(limits: DeskLimits, now: Instant) -> Self {
        let (names, instances, tasks, deadlines) = Default::default();
        Self { limits, epoch: now, passed: now, names, instances, tasks, deadlines }
    }

    /// An instance claims a name, and takes `window` tasks at once; false where there are too many instances.
    pub fn attach(
        &mut self,
        name: &Arc<str>,
        id: InstanceId,
        window: usize,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> bool {
        let claim = self.names.entry(Arc::clone(name)).or_default();
        if claim.instances.len() >= self.limits.instances || self.instances.contains_key(&id) {
            return false;
        }
        claim.instances.insert(id);
        claim.vacant_since = None;
        claim.proven = true;
        claim.ever_attached = true;
        let instance = Instance {
            name: Arc::clone(name),
            heard: now,
            window: window.max(1),
            tasks: BTreeSet::new(),
            leaving: false,
        };
        self.instances.insert(id, instance);
        self.hand_out(name, out);
        true
    }

    /// The instance is alive.
    pub fn heard(&mut self, id: InstanceId, now: Instant) {
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.heard = instance.heard.max(now);
        }
    }

    /// The instance takes no more tasks, and finishes those it has.
    pub fn leave(&mut self, id: InstanceId) {
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.leaving = true;
        }
    }

    /// The instance is gone: others get its tasks, as repeats.
    pub fn detach(&mut self, id: InstanceId, now: Instant, out: &mut Vec<Action>) {
        let Some(Instance { name, tasks, .. }) = self.instances.remove(&id) else { return };
        if let Some(claim) = self.names.get_mut(&name) {
            claim.instances.remove(&id);
            // The oldest goes first, before all that has not had a turn.
            for task in tasks.iter().rev() {
                claim.queue.push_front(*task);
            }
            if claim.instances.is_empty() {
                claim.vacant_since = Some(now);
            }
        }
        for task in tasks {
            if let Some(task) = self.tasks.get_mut(&task) {
                task.holder = None;
            }
        }
        self.hand_out(&name, out);
    }

    /// A new task of a name, to be answered by `deadline`.
    ///
    /// # Errors
    /// It is not taken.
    pub fn submit(
        &mut self,
        id: TaskId,
        name: &Arc<str>,
        deadline: Instant,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Result<(), NotTaken> {
        let vacant_since = match self.names.get(name) {
            Some(claim) if !claim.proven => return Err(NotTaken::Unproven),
            Some(claim) if claim.tasks.len() >= self.limits.of_a_name => return Err(NotTaken::Full),
            Some(claim) => claim.vacant_since,
            None => Some(self.epoch),
        };
        let vacant = vacant_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if vacant_since.is_some() && vacant >= self.limits.vacant {
            return Err(NotTaken::Vacant(vacant));
        }
        if self.tasks.len() >= self.limits.in_all {
            return Err(NotTaken::Full);
        }
        let epoch = self.epoch;
        let vacant_from_the_start = || Claim { vacant_since: Some(epoch), proven: true, ..Claim::default() };
        let claim = self.names.entry(Arc::clone(name)).or_insert_with(vacant_from_the_start);
        claim.tasks.insert(id);
        claim.queue.push_back(id);
        self.tasks.insert(id, Task { name: Arc::clone(name), since: now, deadline, attempt: 0, holder: None });
        self.deadlines.insert((deadline, id));
        self.hand_out(name, out);
        Ok(())
    }

    /// The instance has answered the attempt: the task has ended.
    ///
    /// # Errors
    /// It does not count.
    pub fn answered(
        &mut self,
        instance: InstanceId,
        id: TaskId,
        attempt: u32,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Result<(), Stale> {
        self.heard(instance, now);
        if self.tasks.get(&id).is_some_and(|task| now >= task.deadline) {
            return Err(Stale);
        }
        self.give_up(instance, id, attempt, out)
    }

    /// The attempt of the instance cannot be told, or its answer cannot be taken: the task has ended without one.
    ///
    /// # Errors
    /// It is not the instance's.
    pub fn give_up(
        &mut self,
        instance: InstanceId,
        id: TaskId,
        attempt: u32,
        out: &mut Vec<Action>,
    ) -> Result<(), Stale> {
        let task = self.tasks.get(&id).ok_or(Stale)?;
        if task.holder != Some(instance) || task.attempt != attempt {
            return Err(Stale);
        }
        self.end(id, out);
        Ok(())
    }

    /// Withdraws a task that its caller no longer waits for.
    pub fn withdraw(&mut self, id: TaskId, out: &mut Vec<Action>) {
        self.cancel(id, out);
        self.end(id, out);
    }

    /// Everything that has become late by `now`: instances that were not heard of, tasks that were not answered, tasks of
    /// names that nobody has had for long. To be called every second; a longer pause is nobody's silence.
    pub fn pass(&mut self, now: Instant, out: &mut Vec<Action>) {
        let pause = now.saturating_duration_since(self.passed);
        self.passed = self.passed.max(now);
        if pause > PAUSE {
            self.instances.values_mut().for_each(|one| one.heard = now.min(one.heard + pause));
        }
        let lapsed = |instance: &Instance| now.saturating_duration_since(instance.heard) >= self.limits.lease;
        let lapsed: Vec<_> = self.instances.iter().filter(|(_, one)| lapsed(one)).map(|(id, _)| *id).collect();
        for id in lapsed {
            out.push(Action::Drop(id));
            self.detach(id, now, out);
        }
        while let Some((_, id)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            self.cancel(id, out);
            out.push(Action::Late(id));
            self.end(id, out);
        }
        let (epoch, limit) = (self.epoch, self.limits.vacant);
        let vacant = |since: Instant| Some(now.saturating_duration_since(since)).filter(|vacant| *vacant >= limit);
        let names = self.names.values().filter_map(|claim| Some((claim.vacant_since.and_then(vacant)?, &claim.queue)));
        let waiting: Vec<_> = names.flat_map(|(vacant, queue)| queue.iter().map(move |id| (vacant, *id))).collect();
        for (vacant, task) in waiting {
            out.push(Action::Vacant { task, vacant });
            self.end(task, out);
        }
        self.forget_unproven(now);
        // Names that nobody has ever had are forgotten; those that somebody had only where there are many of them: people
        // want to know since when.
        if now.saturating_duration_since(epoch) >= limit {
            let many = self.names.len() > MOST_REMEMBERED;
            self.names.retain(|_, claim| {
                let forgotten = |since: Instant| since == epoch || many && vacant(since).is_some();
                !(claim.proven && claim.tasks.is_empty() && claim.vacant_since.is_some_and(forgotten))
            });
        }
    }

    /// Time at which the instance lapses, unless it is heard of before; `None` where it is gone.
    pub fn lapses(&self, id: InstanceId) -> Option<Instant> {
        self.instances.get(&id).map(|instance| instance.heard + self.limits.lease)
    }

    /// Does the instance still have a task?
    pub fn is_busy(&self, id: InstanceId) -> bool {
        self.instances.get(&id).is_some_and(|instance| !instance.tasks.is_empty())
    }

    /// Tasks that are queued or assigned.
    pub fn held(&self) -> usize {
        self.tasks.len()
    }

    /// Gives queued tasks to instances with room, each to the one that has the fewest.
    fn hand_out(&mut self, name: &Arc<str>, out: &mut Vec<Action>) {
        let Some(claim) = self.names.get_mut(name) else { return };
        while let Some(id) = claim.queue.front().copied() {
            let room = |id: &&InstanceId| {
                self.instances.get(id).is_some_and(|one| !one.leaving && one.tasks.len() < one.window)
            };
            let fewest = |id: &&InstanceId| self.instances.get(id).map_or(usize::MAX, |one| one.tasks.len());
            let Some(holder) = claim.instances.iter().filter(room).min_by_key(fewest).copied() else { return };
            claim.queue.pop_front();
            let (Some(task), Some(instance)) = (self.tasks.get_mut(&id), self.instances.get_mut(&holder)) else {
                continue;
            };
            task.attempt += 1;
            task.holder = Some(holder);
            instance.tasks.insert(id);
            out.push(Action::Assign { instance: holder, task: id, attempt: task.attempt, deadline: task.deadline });
        }
    }

    fn cancel(&self, id: TaskId, out: &mut Vec<Action>) {
        if let Some(instance) = self.tasks.get(&id).and_then(|task| task.holder) {
            out.push(Action::Cancel { instance, task: id });
        }
    }

    /// Forgets a task; whoever had it has room for another.
    fn end(&mut self, id: TaskId, out: &mut Vec<Action>) {
        let Some(task) = self.tasks.remove(&id) else { return };
        self.deadlines.remove(&(task.deadline, id));
        let Some(claim) = self.names.get_mut(&task.name) else { return };
        claim.tasks.remove(&id);
        match task.holder {
            None => claim.queue.retain(|queued| *queued != id),
            Some(holder) => {
                if let Some(instance) = self.instances.get_mut(&holder) {
                    instance.tasks.remove(&id);
                }
                self.hand_out(&task.name, out);
            }
        }
    }
}

#[cfg(test)]
mod tests;
