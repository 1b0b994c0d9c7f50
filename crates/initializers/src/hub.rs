//! Hub: the attached instances of initializers, and the holds that wait for them.
//!
//! The [`Desk`] decides which instance has which task, and the hub carries that out: it sends a task's message to the
//! instance's stream, and an answer to the hold that waits for it. The hub has no background task. Each hold ticks the
//! desk at its own deadline, each stream at the end of its lease, and all of them every second, even if others are
//! stuck. So if no tick occurs for a second, the process was stopped.

use std::{
    borrow::Borrow,
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use gatepost_api::{Labels, Review, StatusInfo};
use gatepost_base::{clock::now, memory::Reservation};
use gatepost_wire::{
    encodings::{Encodings, HookEncoding},
    inbound::FRAME_HEAD,
    initializers::is_review,
};
use sha2::Digest as _;
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep_until,
};

use super::{
    desk::{Action, Desk, DeskLimits, InstanceId, SubmitError, TaskId},
    failure::TurnFailure,
};

/// Maximum interval between two ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum size of a contribution that is kept for a repeated request, in bytes.
const MAX_RECENT_BYTES: usize = MAX_BYTES / 4;

/// Digest of an initializer's name and a review, including its uid and its object.
pub type Digest = [u8; 32];

/// Changes of an object by an initializer that has done its part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contribution {
    /// JSON Patch; `None` if nothing changes.
    pub patch: Option<Bytes>,
    /// Initializers that must act after this one.
    pub adds: Vec<Box<str>>,
}

impl Contribution {
    /// Returns the size of the parts that the instance chooses, in bytes.
    fn size(&self) -> usize {
        self.patch.as_ref().map_or(0, Bytes::len) + self.adds.iter().map(|name| name.len()).sum::<usize>()
    }
}

/// Message to an instance.
#[derive(Clone, Debug)]
pub enum ToInstance {
    /// A task.
    Task {
        /// Id of the task.
        task: TaskId,
        /// Number of assignments, including this one.
        attempt: u32,
        /// Latest time at which its answer counts.
        deadline: Instant,
        /// Message of the task, the same for every attempt.
        message: Arc<TaskMessage>,
    },
    /// Cancels the task, whose caller no longer waits.
    Cancel(TaskId),
}

/// Review of one object for one initializer.
#[derive(Debug)]
pub struct TaskMessage {
    /// AdmissionReview in protobuf.
    pub review: Bytes,
    /// Labels of the request's namespace, if known.
    pub namespace_labels: Vec<(Box<str>, Box<str>)>,
    /// Digest of the initializer's name and the review.
    pub digest: Digest,
    /// Reservation of the review in the memory budget.
    pub room: Reservation,
}

impl TaskMessage {
    /// Encodes a review for the initializer of that name, as a bare AdmissionReview in protobuf. Reads the review
    /// twice.
    ///
    /// # Errors
    /// Message if the review cannot be encoded.
    pub fn new(name: &str, review: &Review, labels: &Labels, mut room: Reservation) -> Result<Self, String> {
        let framed = Encodings::of(review).get(HookEncoding::Grpc).map_err(|failure| failure.to_string())?;
        let review: Bytes = framed.copy_of(FRAME_HEAD..framed.len());
        // Texts of a review that was received in protobuf might not have been validated.
        if !is_review(review.clone()) {
            return Err("the review is no AdmissionReview to readers of protobuf".to_owned());
        }
        let namespace_labels = labels.iter().map(|(key, value)| (key.into(), value.into())).collect();
        room.shrink_to(review.len());
        // A zero byte ends the name, as names have none.
        let digest =
            sha2::Sha256::new().chain_update(name).chain_update([0_u8]).chain_update(&review).finalize().into();
        Ok(Self { review, namespace_labels, digest, room })
    }
}

/// Instances and holds of one process.
#[derive(Debug)]
pub struct Hub {
    /// Time without a message after which an instance lapses.
    pub lease: Duration,
    /// Time from which instances may attach.
    pub started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    desk: Desk,
    ticked: Instant,
    next: u64,
    holds: HashMap<TaskId, Hold>,
    /// Contributions for repeated requests. A caller that has lost its answer sends the same uid and object again,
    /// after the initializer has done its part. Rejections are not kept, because no object was created.
    recent: Recent<Digest, Contribution>,
    streams: HashMap<InstanceId, mpsc::UnboundedSender<ToInstance>>,
}

#[derive(Debug)]
struct Hold {
    message: Arc<TaskMessage>,
    /// Time from its submission to its deadline.
    timeout: Duration,
    answer: oneshot::Sender<Result<(Contribution, Reservation), TurnFailure>>,
}

impl Hub {
    /// Creates a hub without instances and holds.
    pub fn new(limits: DeskLimits, now: Instant) -> Arc<Self> {
        let (holds, streams, recent) = Default::default();
        let state = Mutex::new(State { desk: Desk::new(limits, now), ticked: now, next: 0, holds, recent, streams });
        Arc::new(Self { lease: limits.lease, started: now, state })
    }

    /// Reads or changes the desk, and carries out its actions.
    pub fn desk<T>(&self, change: impl FnOnce(&mut Desk) -> T) -> T {
        self.state().update(change)
    }

    /// Claims a name for a new instance; returns `None` if there are too many instances.
    pub fn attach(self: &Arc<Self>, name: &Arc<str>, window: usize, now: Instant) -> Option<Attachment> {
        let (to, messages) = mpsc::unbounded_channel();
        let mut state = self.state();
        state.next += 1;
        let id = InstanceId(state.next);
        // The desk may assign tasks immediately, so the stream must exist before.
        state.streams.insert(id, to);
        if !state.update(|desk| desk.attach(name, id, window, now)) {
            state.streams.remove(&id);
            return None;
        }
        Some(Attachment { hub: Arc::clone(self), id, messages })
    }

    /// Submits an object to an initializer and waits for its contribution, or returns a kept contribution for the same
    /// request. Dropping the future withdraws the task. The contribution has a reservation in the memory budget.
    ///
    /// # Errors
    /// Returns a [`TurnFailure`] if the initializer does not act by `deadline`, or rejects the object.
    pub async fn ask(
        &self,
        name: &Arc<str>,
        message: TaskMessage,
        deadline: Instant,
    ) -> Result<(Contribution, Reservation), TurnFailure> {
        let (to, mut answer) = oneshot::channel();
        let (task, timeout) = {
            let (mut state, now) = (self.state(), now());
            let timeout = deadline.saturating_duration_since(now);
            state.recent.expire(now);
            if let Some(contribution) = state.recent.get(&message.digest) {
                return Ok((contribution.clone(), message.room));
            }
            state.next += 1;
            let task = TaskId(state.next);
            state.holds.insert(task, Hold { message: Arc::new(message), timeout, answer: to });
            if let Err(why) = state.update(|desk| desk.submit(task, name, deadline, now)) {
                state.holds.remove(&task);
                return Err(match why {
                    SubmitError::Vacant => TurnFailure::Vacant,
                    SubmitError::Unproven => TurnFailure::Unproven,
                    SubmitError::Full => TurnFailure::Full,
                });
            }
            (task, timeout)
        };
        let _withdraw = WithdrawOnDrop { hub: self, task };
        loop {
            // Do not wake at the deadlines of other holds: a thousand holds would wake a million times.
            let next = deadline.min(now() + TICK_INTERVAL);
            tokio::select! {
                biased;
                answer = &mut answer => return answer.unwrap_or(Err(TurnFailure::Late(timeout))),
                () = sleep_until(next.into()) => self.tick(),
            }
        }
    }

    /// Ends everything that is overdue.
    pub fn tick(&self) {
        self.state().tick(now());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tick(&mut self, now: Instant) {
        self.ticked = now;
        self.update(|desk| desk.tick(now));
    }

    /// Changes the desk, and carries out its actions.
    fn update<T>(&mut self, change: impl FnOnce(&mut Desk) -> T) -> T {
        let changed = change(&mut self.desk);
        for action in self.desk.take_actions() {
            match action {
                Action::Assign { instance, task, attempt, deadline } => {
                    let (Some(hold), Some(stream)) = (self.holds.get(&task), self.streams.get(&instance)) else {
                        continue;
                    };
                    let message = Arc::clone(&hold.message);
                    // If the stream has ended, the instance is detached and another one gets the task.
                    let _ = stream.send(ToInstance::Task { task, attempt, deadline, message });
                }
                Action::Cancel { instance, task } => {
                    if let Some(stream) = self.streams.get(&instance) {
                        let _ = stream.send(ToInstance::Cancel(task));
                    }
                }
                Action::Drop(instance) => _ = self.streams.remove(&instance),
                Action::Late(task) => self.fail(task, |hold| TurnFailure::Late(hold.timeout)),
                Action::Vacant(task) => self.fail(task, |_| TurnFailure::Vacant),
            }
        }
        changed
    }

    fn fail(&mut self, task: TaskId, why: impl FnOnce(&Hold) -> TurnFailure) {
        if let Some(hold) = self.holds.remove(&task) {
            let why = why(&hold);
            let _ = hold.answer.send(Err(why));
        }
    }
}

/// Withdraws a task if its caller stops waiting.
struct WithdrawOnDrop<'a> {
    hub: &'a Hub,
    task: TaskId,
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        if state.holds.remove(&self.task).is_some() {
            state.update(|desk| desk.withdraw(self.task));
        }
    }
}

/// One attached instance. Dropping it gives its tasks to others.
#[derive(Debug)]
pub struct Attachment {
    hub: Arc<Hub>,
    id: InstanceId,
    messages: mpsc::UnboundedReceiver<ToInstance>,
}

impl Attachment {
    /// Returns the next message to the instance; `None` once it has lapsed or lost the name.
    pub async fn recv(&mut self) -> Option<ToInstance> {
        loop {
            let latest = now() + TICK_INTERVAL;
            let next = {
                let mut state = self.hub.state();
                // A caller with many messages never reaches the timer below.
                if latest.saturating_duration_since(state.ticked) >= 2 * TICK_INTERVAL {
                    state.tick(now());
                }
                state.desk.lapse_time(self.id).map_or(latest, |lapse| lapse.min(latest))
            };
            tokio::select! {
                biased;
                message = self.messages.recv() => return message,
                () = sleep_until(next.into()) => self.hub.tick(),
            }
        }
    }

    /// Records that the instance is alive.
    pub fn renew(&self) {
        self.hub.desk(|desk| desk.renew(self.id, now()));
    }

    /// Assigns no more tasks to the instance.
    pub fn drain(&self) {
        self.hub.desk(|desk| desk.drain(self.id));
    }

    /// Returns true if the instance still has a task.
    pub fn is_busy(&self) -> bool {
        self.hub.desk(|desk| desk.is_busy(self.id))
    }

    /// Answers a task with a contribution, or a rejection of the object. Returns false if the answer does not count.
    pub fn answer(
        &self,
        task: TaskId,
        attempt: u32,
        answer: Result<Contribution, Box<StatusInfo>>,
        room: Reservation,
    ) -> bool {
        let (mut state, now) = (self.hub.state(), now());
        if state.update(|desk| desk.answer(self.id, task, attempt, now)).is_err() {
            return false;
        }
        let Some(hold) = state.holds.remove(&task) else { return true };
        if let Ok(contribution) = &answer
            && contribution.size() <= MAX_RECENT_BYTES
        {
            // Copy the patch, which is a slice of everything that its instance has sent.
            let patch = contribution.patch.as_deref().map(Bytes::copy_from_slice);
            let kept = Contribution { patch, adds: contribution.adds.clone() };
            state.recent.insert(hold.message.digest, kept, contribution.size(), now);
        }
        let answer = answer.map(|contribution| (contribution, room)).map_err(TurnFailure::Rejected);
        let _ = hold.answer.send(answer);
        true
    }

    /// Fails a task that cannot be sent to the instance, or whose answer cannot be used.
    pub fn give_up(&self, task: TaskId, attempt: u32, why: TurnFailure) {
        let mut state = self.hub.state();
        if state.update(|desk| desk.give_up(self.id, task, attempt)).is_ok() {
            state.fail(task, |_| why);
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        state.streams.remove(&self.id);
        state.update(|desk| desk.detach(self.id, now()));
    }
}

/// Maximum age of a value: twice the maximum time for which a caller waits.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(60);
/// Maximum number of values.
const MAX_VALUES: usize = 1024;
/// Maximum size of all values, in bytes.
pub(crate) const MAX_BYTES: usize = 4 << 20;

/// Values by key, each with its size in bytes.
#[derive(Debug, Default)]
pub(crate) struct Recent<K, V> {
    values: HashMap<K, (V, usize)>,
    oldest_first: VecDeque<(Instant, K)>,
    bytes: usize,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.values.get(key).map(|(value, _)| value)
    }

    /// Keeps a value of `bytes` bytes, unless there is one with this key, or the value is too large.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize, now: Instant) {
        if self.values.contains_key(&key) || bytes > MAX_BYTES {
            return;
        }
        while self.values.len() >= MAX_VALUES || self.bytes + bytes > MAX_BYTES {
            self.remove_oldest();
        }
        self.values.insert(key.clone(), (value, bytes));
        self.oldest_first.push_back((now, key));
        self.bytes += bytes;
    }

    /// Removes values older than [`MAX_AGE`].
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.oldest_first.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) >= MAX_AGE) {
            self.remove_oldest();
        }
    }

    /// Returns the size of all values, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn remove_oldest(&mut self) {
        if let Some((_, bytes)) = self.oldest_first.pop_front().and_then(|(_, key)| self.values.remove(&key)) {
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests;
