//! Desk: the instances that have claimed a name, and the tasks that they share.
//!
//! A task is one initializer's turn at one object. It is assigned to at most one instance. If that instance lapses, the
//! task is assigned to another one with a higher attempt number, and answers of the first are rejected. So each task is
//! answered once, and an instance recognizes a repeat by its number.
//!
//! ```text
//!   submit ──> queued ── an instance has room ──> assigned ── its answer ──> ended
//!                ^                                  │    │
//!                └── the instance lapses, attempt+1 ┘    └── timeout or withdrawal ──> ended
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

/// Id of one initializer's turn at one object. Ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// Id of one connected process that has claimed a name. Ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u64);

/// Limits of a [`Desk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeskLimits {
    /// Maximum number of queued or assigned tasks of one name.
    pub tasks_per_name: usize,
    /// Maximum number of tasks of all names.
    pub tasks: usize,
    /// Maximum number of instances of one name.
    pub instances_per_name: usize,
    /// Time without a message after which an instance has lapsed.
    pub lease: Duration,
    /// Time without an instance after which the tasks of a name fail immediately.
    pub vacancy: Duration,
}

/// Number of all names, vacant or not, above which long-vacant names without tasks are forgotten.
const MAX_VACANT_NAMES: usize = 1024;
/// Maximum time between two ticks of a running process. After a longer time, the process was stopped, and messages of
/// instances are still unread.
const MAX_TICK_INTERVAL: Duration = Duration::from_secs(2);

impl Default for DeskLimits {
    fn default() -> Self {
        let (lease, vacancy) = (Duration::from_secs(10), Duration::from_secs(10));
        Self { tasks_per_name: 1_000, tasks: 4_000, instances_per_name: 64, lease, vacancy }
    }
}

/// Error of a task that is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// No instance has had the name for a long time: the task would time out.
    Vacant,
    /// No instance has had the name since it was configured: it is not in rotation yet.
    Unproven,
    /// Too many tasks of the name, or of all names, are held.
    Full,
}

/// Error of an answer that does not count: the task has ended, or another instance has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleAnswer;

/// Action that the owner of the streams must take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the task to the instance; `attempt` is 1 the first time.
    Assign {
        /// The instance.
        instance: InstanceId,
        /// The task.
        task: TaskId,
        /// Number of assignments, including this one.
        attempt: u32,
        /// Latest time at which its answer counts.
        deadline: Instant,
    },
    /// Notify the instance that its answer is no longer needed.
    Cancel {
        /// The instance.
        instance: InstanceId,
        /// The task.
        task: TaskId,
    },
    /// End the stream of the instance, which has lapsed.
    Drop(InstanceId),
    /// Fail the task, which was not answered in time.
    Late(TaskId),
    /// Fail the task, whose name has had no instance for too long.
    Vacant(TaskId),
}

/// State of one name, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameState {
    /// The name.
    pub name: Arc<str>,
    /// Number of attached instances.
    pub instances: usize,
    /// Number of tasks that wait for an instance.
    pub queued: usize,
    /// Number of tasks that are assigned to an instance.
    pub assigned: usize,
    /// Time at which the oldest task was submitted.
    pub oldest: Option<Instant>,
    /// Time at which the last instance left; `None` while one is attached.
    pub vacant_since: Option<Instant>,
    /// The name is in rotation: an instance has been attached since it was configured, or it is enforced.
    pub proven: bool,
    /// An instance is attached, or was attached before.
    pub ever_attached: bool,
}

/// Instances by name, and their tasks.
#[derive(Debug)]
pub struct Desk {
    limits: DeskLimits,
    /// Start of the desk. A name that was neither claimed nor configured is vacant since then.
    started: Instant,
    ticked: Instant,
    names: BTreeMap<Arc<str>, Claim>,
    instances: BTreeMap<InstanceId, Instance>,
    tasks: BTreeMap<TaskId, Task>,
    deadlines: BTreeSet<(Instant, TaskId)>,
    actions: Vec<Action>,
}

/// State of one name.
#[derive(Debug, Default)]
struct Claim {
    instances: BTreeSet<InstanceId>,
    queue: VecDeque<TaskId>,
    tasks: BTreeSet<TaskId>,
    vacant_since: Option<Instant>,
    /// An instance has had the name, or the name is enforced. Other names accept no task.
    proven: bool,
    retirement: Option<Retirement>,
    ever_attached: bool,
}

/// State of a name that has left the configuration.
#[derive(Clone, Copy, Debug)]
struct Retirement {
    /// Time until which its instances keep the name, because requests may still have tasks for it. A name that is
    /// configured again before then is still proven.
    until: Instant,
    /// No request can have a task for the name any more.
    drained: bool,
}

#[derive(Debug)]
struct Instance {
    name: Arc<str>,
    renewed: Instant,
    /// Maximum number of its concurrent tasks.
    window: usize,
    tasks: BTreeSet<TaskId>,
    /// It gets no more tasks, and finishes those it has.
    draining: bool,
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
    /// Creates a desk without instances.
    pub fn new(limits: DeskLimits, now: Instant) -> Self {
        let (names, instances, tasks, deadlines, actions) = Default::default();
        Self { limits, started: now, ticked: now, names, instances, tasks, deadlines, actions }
    }

    /// Removes and returns the actions that follow from the calls so far, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        mem::take(&mut self.actions)
    }

    /// Configures a name, which may be claimed from now on. Without an instance, it is vacant since now. It comes into
    /// rotation with its first instance, unless it was in rotation a moment ago.
    pub fn configure(&mut self, name: &Arc<str>, now: Instant) {
        let claim = self.names.entry(Arc::clone(name)).or_default();
        let retirement = claim.retirement.take();
        if claim.instances.is_empty() {
            claim.vacant_since = Some(now);
            claim.proven &= retirement.is_none_or(|retirement| now < retirement.until);
        }
    }

    /// Puts a name into rotation, even if no instance has had it.
    pub fn enforce(&mut self, name: &Arc<str>) {
        self.names.entry(Arc::clone(name)).or_default().proven = true;
    }

    /// Returns true if a configured name is not in rotation yet.
    pub fn is_unproven(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|claim| !claim.proven)
    }

    /// Removes a name from the configuration. Its instances keep it for requests in flight, at most until `until`.
    pub fn retire(&mut self, name: &str, until: Instant) {
        if let Some(claim) = self.names.get_mut(name) {
            claim.retirement = Some(Retirement { until, drained: false });
        }
    }

    /// Records that no request can have a task any more for a name that has left the configuration.
    pub fn drained(&mut self, name: &str) {
        if let Some(retirement) = self.names.get_mut(name).and_then(|claim| claim.retirement.as_mut()) {
            retirement.drained = true;
        }
    }

    /// Returns true if the name has left the configuration, and a request may still have a task for it.
    pub fn is_draining(&self, name: &str, now: Instant) -> bool {
        let retirement = self.names.get(name).filter(|claim| claim.proven).and_then(|claim| claim.retirement);
        retirement.is_some_and(|retirement| !retirement.drained && now < retirement.until)
    }

    /// Returns true if a task of the name is queued or assigned.
    pub fn has_tasks(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|claim| !claim.tasks.is_empty())
    }

    /// Returns the state of each name, in order of the names.
    pub fn names(&self) -> Vec<NameState> {
        let state = |(name, claim): (&Arc<str>, &Claim)| NameState {
            name: Arc::clone(name),
            instances: claim.instances.len(),
            queued: claim.queue.len(),
            assigned: claim.tasks.len() - claim.queue.len(),
            oldest: claim.tasks.first().and_then(|id| self.tasks.get(id)).map(|task| task.since),
            vacant_since: claim.vacant_since,
            proven: claim.proven,
            ever_attached: claim.ever_attached,
        };
        self.names.iter().map(state).collect()
    }

    /// Claims a name for an instance that takes `window` concurrent tasks; returns false if there are too many
    /// instances.
    pub fn attach(&mut self, name: &Arc<str>, id: InstanceId, window: usize, now: Instant) -> bool {
        let claim = self.names.entry(Arc::clone(name)).or_default();
        if claim.instances.len() >= self.limits.instances_per_name || self.instances.contains_key(&id) {
            return false;
        }
        claim.instances.insert(id);
        claim.vacant_since = None;
        (claim.proven, claim.ever_attached) = (true, true);
        let (name, window) = (Arc::clone(name), window.max(1));
        let instance =
            Instance { name: Arc::clone(&name), renewed: now, window, tasks: BTreeSet::new(), draining: false };
        self.instances.insert(id, instance);
        self.hand_out(&name);
        true
    }

    /// Records that the instance is alive.
    pub fn renew(&mut self, id: InstanceId, now: Instant) {
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.renewed = instance.renewed.max(now);
        }
    }

    /// Assigns no more tasks to the instance, which finishes those it has.
    pub fn drain(&mut self, id: InstanceId) {
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.draining = true;
        }
    }

    /// Removes the instance. Others get its tasks, as repeats.
    pub fn detach(&mut self, id: InstanceId, now: Instant) {
        let Some(Instance { name, tasks, .. }) = self.instances.remove(&id) else { return };
        if let Some(claim) = self.names.get_mut(&name) {
            claim.instances.remove(&id);
            // Its tasks come first, before all tasks that have not been assigned yet.
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
        self.hand_out(&name);
    }

    /// Submits a new task of a name, to be answered by `deadline`.
    ///
    /// # Errors
    /// Returns a [`SubmitError`] if the task is not accepted.
    pub fn submit(&mut self, id: TaskId, name: &Arc<str>, deadline: Instant, now: Instant) -> Result<(), SubmitError> {
        let vacant_since = match self.names.get(name) {
            Some(claim) if !claim.proven => return Err(SubmitError::Unproven),
            Some(claim) if claim.tasks.len() >= self.limits.tasks_per_name => return Err(SubmitError::Full),
            Some(claim) => claim.vacant_since,
            None => Some(self.started),
        };
        if vacant_since.is_some_and(|since| now.saturating_duration_since(since) >= self.limits.vacancy) {
            return Err(SubmitError::Vacant);
        }
        if self.tasks.len() >= self.limits.tasks {
            return Err(SubmitError::Full);
        }
        let started = self.started;
        let vacant_from_the_start = || Claim { vacant_since: Some(started), proven: true, ..Claim::default() };
        let claim = self.names.entry(Arc::clone(name)).or_insert_with(vacant_from_the_start);
        claim.tasks.insert(id);
        claim.queue.push_back(id);
        self.tasks.insert(id, Task { name: Arc::clone(name), since: now, deadline, attempt: 0, holder: None });
        self.deadlines.insert((deadline, id));
        self.hand_out(name);
        Ok(())
    }

    /// Ends a task whose attempt the instance has answered.
    ///
    /// # Errors
    /// Returns [`StaleAnswer`] if the answer does not count.
    pub fn answer(&mut self, instance: InstanceId, id: TaskId, attempt: u32, now: Instant) -> Result<(), StaleAnswer> {
        self.renew(instance, now);
        if self.tasks.get(&id).is_some_and(|task| now >= task.deadline) {
            return Err(StaleAnswer);
        }
        self.give_up(instance, id, attempt)
    }

    /// Ends a task whose attempt cannot be sent to the instance, or whose answer cannot be used.
    ///
    /// # Errors
    /// Returns [`StaleAnswer`] if the instance does not have this attempt.
    pub fn give_up(&mut self, instance: InstanceId, id: TaskId, attempt: u32) -> Result<(), StaleAnswer> {
        let task = self.tasks.get(&id).ok_or(StaleAnswer)?;
        if task.holder != Some(instance) || task.attempt != attempt {
            return Err(StaleAnswer);
        }
        self.end(id);
        Ok(())
    }

    /// Withdraws a task whose caller no longer waits.
    pub fn withdraw(&mut self, id: TaskId) {
        self.cancel(id);
        self.end(id);
    }

    /// Ends everything that is overdue at `now`: instances without messages, tasks without answers, tasks of names that
    /// have been vacant for long. Must be called every second; a longer pause also extends the leases of instances.
    pub fn tick(&mut self, now: Instant) {
        let pause = now.saturating_duration_since(self.ticked);
        self.ticked = self.ticked.max(now);
        if pause > MAX_TICK_INTERVAL {
            self.instances.values_mut().for_each(|one| one.renewed = now.min(one.renewed + pause));
        }
        let has_lapsed = |instance: &Instance| now.saturating_duration_since(instance.renewed) >= self.limits.lease;
        let lapsed: Vec<_> = self.instances.iter().filter(|(_, one)| has_lapsed(one)).map(|(id, _)| *id).collect();
        for id in lapsed {
            self.actions.push(Action::Drop(id));
            self.detach(id, now);
        }
        while let Some((_, id)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            self.cancel(id);
            self.actions.push(Action::Late(id));
            self.end(id);
        }
        let (started, limit) = (self.started, self.limits.vacancy);
        let is_over = |since: Instant| now.saturating_duration_since(since) >= limit;
        let vacant = self.names.values().filter(|claim| claim.vacant_since.is_some_and(is_over));
        let waiting: Vec<_> = vacant.flat_map(|claim| &claim.queue).copied().collect();
        for task in waiting {
            self.actions.push(Action::Vacant(task));
            self.end(task);
        }
        // Requests that began earlier skip a name that left the configuration unproven, so it is kept for some time.
        self.names.retain(|_, claim| claim.proven || claim.retirement.is_none_or(|retirement| now < retirement.until));
        // A vacant name that was never claimed is forgotten. A claimed one is forgotten only if there are many names,
        // because operators want to know since when it is vacant.
        if is_over(started) {
            let many = self.names.len() > MAX_VACANT_NAMES;
            self.names.retain(|_, claim| {
                let forgotten = |since: Instant| since == started || many && is_over(since);
                !(claim.proven && claim.tasks.is_empty() && claim.vacant_since.is_some_and(forgotten))
            });
        }
    }

    /// Returns the time at which the instance lapses unless it sends something before; `None` if it is gone.
    pub fn lapse_time(&self, id: InstanceId) -> Option<Instant> {
        self.instances.get(&id).map(|instance| instance.renewed + self.limits.lease)
    }

    /// Returns true if the instance still has a task.
    pub fn is_busy(&self, id: InstanceId) -> bool {
        self.instances.get(&id).is_some_and(|instance| !instance.tasks.is_empty())
    }

    /// Returns the number of tasks that are queued or assigned.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Assigns queued tasks to instances with room, each to the one with the fewest tasks.
    fn hand_out(&mut self, name: &Arc<str>) {
        let Some(claim) = self.names.get_mut(name) else { return };
        while let Some(id) = claim.queue.front().copied() {
            let with_room = claim.instances.iter().filter_map(|id| Some((*id, self.instances.get(id)?)));
            let with_room = with_room.filter(|(_, one)| !one.draining && one.tasks.len() < one.window);
            let Some((holder, _)) = with_room.min_by_key(|(_, one)| one.tasks.len()) else { return };
            claim.queue.pop_front();
            let (Some(task), Some(instance)) = (self.tasks.get_mut(&id), self.instances.get_mut(&holder)) else {
                continue;
            };
            task.attempt += 1;
            task.holder = Some(holder);
            instance.tasks.insert(id);
            let (attempt, deadline) = (task.attempt, task.deadline);
            self.actions.push(Action::Assign { instance: holder, task: id, attempt, deadline });
        }
    }

    fn cancel(&mut self, id: TaskId) {
        if let Some(instance) = self.tasks.get(&id).and_then(|task| task.holder) {
            self.actions.push(Action::Cancel { instance, task: id });
        }
    }

    /// Removes a task. Its holder has room for another one.
    fn end(&mut self, id: TaskId) {
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
                self.hand_out(&task.name);
            }
        }
    }
}

#[cfg(test)]
mod tests;
