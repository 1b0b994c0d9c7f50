//! Hub: the instances of initializers that are attached, and the holds that wait for them.
//!
//! The [`Desk`] says who has which task; here its decisions are carried out: a task's message goes to the instance's stream,
//! an answer to the hold that waits for it. Nothing runs by itself: each hold looks at the time when its own deadline is
//! due, each stream when its own lease is, and all of them every second, whichever of the others is stuck. So a second
//! in which none of them looks is one in which the process was stopped.

mod recent;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep_until,
};

use self::recent::Recent;
pub use self::recent::{Digest, Made};
use crate::{
    initialize::{
        Desk,
        desk::{Action, DeskLimits, InstanceId, NameState, NotTaken, TaskId},
    },
    memory::Reservation,
    model::StatusInfo,
};

/// Longest pause between two looks at the clock.
const EVERY: Duration = Duration::from_secs(1);

/// Answer of an instance about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It has done its part.
    Done(Made),
    /// The object is not to be created.
    Failed(Box<StatusInfo>),
}

/// Reasons why a task was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskFailure {
    /// Its time is over.
    Late,
    /// No instance has had the name for so long.
    Vacant(Duration),
    /// No instance has had the name since it was configured.
    Unproven,
    /// Too many objects are held already.
    Full,
    /// There is no memory for the task, or for its answer.
    NoRoom,
    /// The answer is none that can be taken, and why.
    Unusable(&'static str),
}

/// Message to an instance.
#[derive(Clone, Debug)]
pub enum ToInstance {
    /// A task.
    Task {
        /// Its number.
        task: TaskId,
        /// Number of times that it was given out, this time included.
        attempt: u32,
        /// Latest time at which its answer counts.
        deadline: Instant,
        /// Its message, the same for every attempt.
        message: Arc<TaskMessage>,
    },
    /// The task's caller has gone.
    Cancel(TaskId),
}

/// One object for one initializer, encoded by whoever holds it.
#[derive(Debug)]
pub struct TaskMessage {
    /// An AdmissionReview in protobuf.
    pub review: Bytes,
    /// Labels of the request's namespace, where they are known.
    pub namespace_labels: Vec<(Box<str>, Box<str>)>,
    /// Digest of the initializer's name and of the review.
    pub digest: Digest,
    /// Its place in the memory budget.
    pub room: Reservation,
}

/// Instances and holds of one process.
#[derive(Debug)]
pub struct Hub {
    lease: Duration,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    desk: Desk,
    /// The last look at what is due.
    looked: Instant,
    next: u64,
    holds: HashMap<TaskId, Hold>,
    recent: Recent,
    streams: HashMap<InstanceId, mpsc::UnboundedSender<ToInstance>>,
}

#[derive(Debug)]
struct Hold {
    message: Arc<TaskMessage>,
    answer: oneshot::Sender<Result<(Answered, Reservation), TaskFailure>>,
}

impl Hub {
    /// No instance and no hold.
    pub fn new(limits: DeskLimits, now: Instant) -> Arc<Self> {
        let (holds, streams, recent) = Default::default();
        let desk = Desk::new(limits, now);
        let state = Mutex::new(State { desk, looked: now, next: 0, holds, recent, streams });
        Arc::new(Self { lease: limits.lease, began: now, state })
    }

    /// These names may be claimed from now on.
    pub fn configure<'n>(&self, names: impl Iterator<Item = &'n Arc<str>>, now: Instant) {
        let mut state = self.state();
        names.for_each(|name| state.desk.configure(name, now));
    }

    /// These names are in rotation, whether or not an instance has had them.
    pub fn enforce<'n>(&self, names: impl Iterator<Item = &'n Arc<str>>) {
        let mut state = self.state();
        names.for_each(|name| state.desk.enforce(name));
    }

    /// True while no instance has had a configured name.
    pub fn is_unproven(&self, name: &str) -> bool {
        self.state().desk.is_unproven(name)
    }

    /// A name leaves the configuration. Its instances keep it for what is under way, until then at the latest.
    pub fn retire(&self, name: &str, until: Instant) {
        self.state().desk.retire(name, until);
    }

    /// There will be no task any more for a name that has left the configuration.
    pub fn drained(&self, name: &str) {
        self.state().desk.drained(name);
    }

    /// Is it a name that has left the configuration, and may somebody still have a task for it?
    pub fn drains(&self, name: &str) -> bool {
        self.state().desk.drains(name, now())
    }

    /// Does any task of the name wait, or lie with an instance?
    pub fn has_tasks(&self, name: &str) -> bool {
        self.state().desk.has_tasks(name)
    }

    /// An instance claims a name; `None` where there are too many.
    pub fn attach(self: &Arc<Self>, name: &Arc<str>, window: usize, now: Instant) -> Option<Attached> {
        let (to, from) = mpsc::unbounded_channel();
        let mut state = self.state();
        state.next += 1;
        let id = InstanceId(state.next);
        // Before the desk gives it anything.
        state.streams.insert(id, to);
        let mut actions = Vec::new();
        let attached = state.desk.attach(name, id, window, now, &mut actions);
        state.carry_out(actions);
        if !attached {
            state.streams.remove(&id);
            return None;
        }
        Some(Attached { hub: Arc::clone(self), id, messages: from })
    }

    /// Has an initializer act on an object, unless it has done so on this very request. Leaving, in whatever way, withdraws
    /// the task. The answer comes with its place in the memory budget.
    ///
    /// # Errors
    /// It did not, by `deadline`.
    pub async fn ask(
        &self,
        name: &Arc<str>,
        message: TaskMessage,
        deadline: Instant,
    ) -> Result<(Answered, Reservation), TaskFailure> {
        let (to, mut answer) = oneshot::channel();
        let task = {
            let (mut state, now, mut actions) = (self.state(), now(), Vec::new());
            if let Some(made) = state.recent.get(&message.digest, now) {
                return Ok((Answered::Done(made), message.room));
            }
            state.next += 1;
            let task = TaskId(state.next);
            state.holds.insert(task, Hold { message: Arc::new(message), answer: to });
            let submitted = state.desk.submit(task, name, deadline, now, &mut actions);
            state.carry_out(actions);
            if let Err(why) = submitted {
                state.holds.remove(&task);
                return Err(match why {
                    NotTaken::Vacant(since) => TaskFailure::Vacant(since),
                    NotTaken::Unproven => TaskFailure::Unproven,
                    NotTaken::Full => TaskFailure::Full,
                });
            }
            task
        };
        let _withdrawn = Withdrawn { hub: self, task };
        loop {
            // Not when anybody's is due: a thousand holds that woke for each other's deadlines would wake a million times.
            let next = deadline.min(now() + EVERY);
            tokio::select! {
                biased;
                answered = &mut answer => return answered.unwrap_or(Err(TaskFailure::Late)),
                () = sleep_until(next.into()) => self.look(),
            }
        }
    }

    /// State of each name.
    pub fn names(&self) -> Vec<NameState> {
        self.state().desk.names()
    }

    /// Longest silence of an instance before it lapses.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Since when instances may attach.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Objects that are held.
    pub fn held(&self) -> usize {
        self.state().desk.held()
    }

    /// Carries out what has become due.
    pub fn look(&self) {
        self.state().look(now());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn look(&mut self, now: Instant) {
        self.looked = now;
        let mut actions = Vec::new();
        self.desk.pass(now, &mut actions);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Assign { instance, task, attempt, deadline } => {
                    let (Some(hold), Some(stream)) = (self.holds.get(&task), self.streams.get(&instance)) else {
                        continue;
                    };
                    let message = Arc::clone(&hold.message);
                    // Where the stream has ended the instance is detached, and another gets the task.
                    let _ = stream.send(ToInstance::Task { task, attempt, deadline, message });
                }
                Action::Cancel { instance, task } => {
                    if let Some(stream) = self.streams.get(&instance) {
                        let _ = stream.send(ToInstance::Cancel(task));
                    }
                }
                Action::Drop(instance) => _ = self.streams.remove(&instance),
                Action::Late(task) => self.fail(task, TaskFailure::Late),
                Action::Vacant { task, vacant } => self.fail(task, TaskFailure::Vacant(vacant)),
            }
        }
    }

    fn fail(&mut self, task: TaskId, why: TaskFailure) {
        if let Some(hold) = self.holds.remove(&task) {
            let _ = hold.answer.send(Err(why));
        }
    }
}

/// Takes a task back that nobody waits for any more.
struct Withdrawn<'a> {
    hub: &'a Hub,
    task: TaskId,
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        let (mut state, mut actions) = (self.hub.state(), Vec::new());
        if state.holds.remove(&self.task).is_some() {
            state.desk.withdraw(self.task, &mut actions);
            state.carry_out(actions);
        }
    }
}

/// One attached instance. Dropping it gives its tasks to others.
#[derive(Debug)]
pub struct Attached {
    hub: Arc<Hub>,
    id: InstanceId,
    messages: mpsc::UnboundedReceiver<ToInstance>,
}

impl Attached {
    /// Next message to the instance; `None` once it has lapsed, or the name is not its any more.
    pub async fn recv(&mut self) -> Option<ToInstance> {
        loop {
            let latest = now() + EVERY;
            let next = {
                let mut state = self.hub.state();
                // For a caller that comes again and again, and never waits here for so long, it looks all the same.
                if latest.saturating_duration_since(state.looked) >= 2 * EVERY {
                    state.look(now());
                }
                state.desk.lapses(self.id).map_or(latest, |lapses| lapses.min(latest))
            };
            tokio::select! {
                biased;
                message = self.messages.recv() => return message,
                () = sleep_until(next.into()) => self.hub.look(),
            }
        }
    }

    /// It is alive.
    pub fn heard(&self) {
        self.hub.state().desk.heard(self.id, now());
    }

    /// It takes no more tasks.
    pub fn leave(&self) {
        self.hub.state().desk.leave(self.id);
    }

    /// Does it still have a task?
    pub fn is_busy(&self) -> bool {
        self.hub.state().desk.is_busy(self.id)
    }

    /// It answers a task; false where that does not count.
    pub fn answer(&self, task: TaskId, attempt: u32, answered: Answered, room: Reservation) -> bool {
        let (mut state, mut actions) = (self.hub.state(), Vec::new());
        let counts = state.desk.answered(self.id, task, attempt, now(), &mut actions).is_ok();
        if counts && let Some(hold) = state.holds.remove(&task) {
            if let Answered::Done(made) = &answered {
                state.recent.put(hold.message.digest, made, now());
            }
            let _ = hold.answer.send(Ok((answered, room)));
        }
        state.carry_out(actions);
        counts
    }

    /// A task cannot be sent to it, or its answer cannot be taken: the hold ends without one.
    pub fn give_up(&self, task: TaskId, attempt: u32, why: TaskFailure) {
        let (mut state, mut actions) = (self.hub.state(), Vec::new());
        if state.desk.give_up(self.id, task, attempt, &mut actions).is_ok() {
            state.fail(task, why);
        }
        state.carry_out(actions);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let (mut state, mut actions) = (self.hub.state(), Vec::new());
        state.streams.remove(&self.id);
        state.desk.detach(self.id, now(), &mut actions);
        state.carry_out(actions);
    }
}

/// tokio's clock, so that a test with paused time sees the same clock everywhere.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests;
