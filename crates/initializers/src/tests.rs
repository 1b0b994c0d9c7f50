//! Random interleavings of owners, time-outs, crashes and configuration changes: no head is lost, no initializer counts
//! twice, nothing unfinished is visible, nothing is stuck.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::{
    Desk, Initialization, Initializers, Lifecycle,
    desk::{Action, DeskLimits, InstanceId, SubmitError, TaskId},
};
use gatepost_api::{FailurePolicy, StatusInfo};

const NAMES: [&str; 4] = ["a.example.com", "b.example.com", "c.example.com", "d.example.com"];
/// As much as a caller waits.
const BUDGET: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
enum Event {
    Create(Vec<usize>),
    Delete(usize),
    Attach {
        name: usize,
        window: usize,
    },
    /// It crashes, and its stream ends.
    Crash(usize),
    /// It hangs: its stream stays, and nothing is heard of it.
    Hang(usize),
    /// An instance answers something that it was ever assigned.
    Answer {
        assignment: usize,
        how: How,
    },
    Configure {
        name: usize,
        policy: FailurePolicy,
    },
    Wait(u64),
}

#[derive(Clone, Copy, Debug)]
enum How {
    Done,
    Add(usize),
    Fail,
}

fn event() -> impl Strategy<Value = Event> {
    let names = proptest::sample::subsequence((0..3).collect::<Vec<_>>(), 0..=3).prop_shuffle();
    let how = prop_oneof![5 => Just(How::Done), 1 => (0..4usize).prop_map(How::Add), 1 => Just(How::Fail)];
    let policy = prop_oneof![Just(FailurePolicy::Ignore), Just(FailurePolicy::Fail)];
    prop_oneof![
        3 => names.prop_map(Event::Create),
        1 => any::<usize>().prop_map(Event::Delete),
        3 => (0..4usize, 1..3usize).prop_map(|(name, window)| Event::Attach { name, window }),
        1 => any::<usize>().prop_map(Event::Crash),
        1 => any::<usize>().prop_map(Event::Hang),
        9 => (any::<usize>(), how).prop_map(|(assignment, how)| Event::Answer { assignment, how }),
        1 => (0..4usize, policy).prop_map(|(name, policy)| Event::Configure { name, policy }),
        4 => (1..12_000u64).prop_map(Event::Wait),
    ]
}

/// One object, and what has happened to it.
struct Object {
    way: Initialization,
    task: Option<TaskId>,
    /// Every name that was ever in its list.
    listed: BTreeSet<Box<str>>,
    /// Names whose part counted as done.
    done: Vec<Box<str>>,
    /// Names that were late, under Ignore.
    late: BTreeSet<Box<str>>,
}

struct World {
    now: Instant,
    desk: Desk,
    names: Vec<Arc<str>>,
    policies: BTreeMap<Box<str>, FailurePolicy>,
    objects: Vec<Object>,
    next: u64,
    live: Vec<InstanceId>,
    hung: BTreeSet<InstanceId>,
    /// Tasks that instances believe to have.
    assignments: Vec<(InstanceId, TaskId, u32)>,
    /// Instance that has each task now.
    holders: BTreeMap<TaskId, InstanceId>,
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let limits = DeskLimits { tasks_per_name: 6, tasks: 10, ..DeskLimits::default() };
        Self {
            now,
            desk: Desk::new(limits, now),
            names: NAMES.map(Arc::from).to_vec(),
            policies: BTreeMap::new(),
            objects: Vec::new(),
            next: 0,
            live: Vec::new(),
            hung: BTreeSet::new(),
            assignments: Vec::new(),
            holders: BTreeMap::new(),
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Create(names) => {
                let list = Initializers::of(names.iter().map(|name| NAMES[*name]));
                let listed = list.pending.iter().cloned().collect();
                let way = Initialization::new(list);
                self.objects.push(Object { way, task: None, listed, done: Vec::new(), late: BTreeSet::new() });
            }
            Event::Delete(which) => {
                if let Some(object) = pick(&mut self.objects, which) {
                    object.way.delete();
                    if let Some(task) = object.task.take() {
                        self.desk.withdraw(task);
                    }
                }
            }
            Event::Attach { name, window } => {
                self.next += 1;
                let id = InstanceId(self.next);
                if self.desk.attach(&self.names[name], id, window, self.now) {
                    self.live.push(id);
                }
            }
            Event::Crash(which) => {
                if !self.live.is_empty() {
                    let id = self.live.remove(which % self.live.len());
                    self.gone(id);
                    self.desk.detach(id, self.now);
                }
            }
            Event::Hang(which) => {
                if let Some(id) = pick(&mut self.live, which) {
                    self.hung.insert(*id);
                }
            }
            Event::Answer { assignment, how } => self.answer(assignment, how)?,
            Event::Configure { name, policy } => _ = self.policies.insert(NAMES[name].into(), policy),
            Event::Wait(millis) => self.wait(Duration::from_millis(millis)),
        }
        self.act()?;
        self.proceed()
    }

    /// Time passes second by second; whoever does not hang is heard of.
    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = until.min(self.now + Duration::from_secs(1));
            for id in self.live.iter().filter(|id| !self.hung.contains(id)) {
                self.desk.renew(*id, self.now);
            }
            self.desk.tick(self.now);
        }
    }

    fn answer(&mut self, which: usize, how: How) -> Result<(), TestCaseError> {
        let Some((instance, task, attempt)) = pick(&mut self.assignments, which).copied() else { return Ok(()) };
        let holder = self.holders.get(&task).copied();
        if self.desk.answer(instance, task, attempt, self.now).is_err() {
            return Ok(());
        }
        prop_assert_eq!(holder, Some(instance), "only whoever has the task now is listened to");
        self.holders.remove(&task);
        let object = self.objects.iter_mut().find(|object| object.task == Some(task));
        let Some(object) = object else { return Err(TestCaseError::fail("a task of no object was answered")) };
        object.task = None;
        let name: Box<str> = object.way.head().unwrap_or_default().into();
        match how {
            How::Done => {
                prop_assert!(object.way.done(&name, Vec::new()).is_ok());
                object.done.push(name);
            }
            How::Add(other) => {
                let adds = vec![NAMES[other].into()];
                if object.way.done(&name, adds).is_ok() {
                    object.listed.insert(NAMES[other].into());
                } else {
                    prop_assert!(object.way.done(&name, Vec::new()).is_ok());
                }
                object.done.push(name);
            }
            How::Fail => prop_assert!(object.way.fail(&name, StatusInfo::default()).is_ok()),
        }
        Ok(())
    }

    fn gone(&mut self, id: InstanceId) {
        self.live.retain(|live| *live != id);
        self.holders.retain(|_, holder| *holder != id);
    }

    fn act(&mut self) -> Result<(), TestCaseError> {
        for action in self.desk.take_actions() {
            match action {
                Action::Assign { instance, task, attempt, deadline } => {
                    prop_assert!(deadline > self.now || attempt > 0);
                    let before = self.holders.insert(task, instance);
                    prop_assert_eq!(before, None, "nobody else has it");
                    self.assignments.push((instance, task, attempt));
                }
                Action::Cancel { task, .. } => _ = self.holders.remove(&task),
                Action::Drop(id) => self.gone(id),
                Action::Late(task) | Action::Vacant(task) => {
                    let object = self.objects.iter_mut().find(|object| object.task == Some(task));
                    let Some(object) = object else { return Err(TestCaseError::fail("a task of no object is late")) };
                    object.task = None;
                    object.late(&self.policies);
                }
            }
        }
        Ok(())
    }

    /// Each unfinished object has its head at the desk.
    fn proceed(&mut self) -> Result<(), TestCaseError> {
        for at in 0..self.objects.len() {
            loop {
                let object = &mut self.objects[at];
                let Some(head) = object.way.head() else { break };
                if object.task.is_some() {
                    break;
                }
                let Some(name) = self.names.iter().find(|name| ***name == *head) else { break };
                self.next += 1;
                let task = TaskId(self.next);
                match self.desk.submit(task, name, self.now + BUDGET, self.now) {
                    Ok(()) => object.task = Some(task),
                    Err(SubmitError::Vacant | SubmitError::Unproven) => object.late(&self.policies),
                    // Shed: the request is refused, and nothing was created.
                    Err(SubmitError::Full) => object.way.delete(),
                }
                self.act()?;
            }
        }
        for object in &self.objects {
            object.is_sound()?;
        }
        Ok(())
    }
}

impl Object {
    fn late(&mut self, policies: &BTreeMap<Box<str>, FailurePolicy>) {
        let name: Box<str> = self.way.head().unwrap_or_default().into();
        let policy = policies.get(&name).copied().unwrap_or(FailurePolicy::Ignore);
        if self.way.time_out(&name, policy).is_ok() && policy == FailurePolicy::Ignore {
            self.late.insert(name);
        }
    }

    fn is_sound(&self) -> Result<(), TestCaseError> {
        let mut done = self.done.clone();
        done.sort();
        done.dedup();
        prop_assert_eq!(done.len(), self.done.len(), "each counts once");
        let over = self.way.state().is_over();
        prop_assert_eq!(self.task.is_some(), !over, "an unfinished object has its head at the desk, no other has");
        prop_assert_eq!(self.way.head().is_none(), over);
        if self.way.state().is_visible() {
            let acted = self.listed.iter().all(|name| self.done.contains(name) || self.late.contains(name));
            prop_assert!(acted, "{:?} is visible: done {:?}, late {:?}", self.listed, self.done, self.late);
        }
        Ok(())
    }
}

fn pick<T>(list: &mut [T], which: usize) -> Option<&mut T> {
    let at = which.checked_rem(list.len())?;
    list.get_mut(at)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn initialization_never_loses_doubles_shows_or_sticks_in_any_interleaving(events in proptest::collection::vec(event(), 1..80)) {
        let mut world = World::new();
        for event in events {
            world.happen(event)?;
        }
        // Everybody falls silent.
        world.hung = world.live.iter().copied().collect();
        for _ in 0..8 {
            world.happen(Event::Wait(BUDGET.as_millis() as u64))?;
        }
        for object in &world.objects {
            prop_assert!(object.way.state().is_over(), "stuck: {:?}", object.way);
        }
        prop_assert_eq!(world.desk.task_count(), 0);
        prop_assert!(world.live.is_empty(), "an instance that is not heard of has lapsed");
    }
}

#[test]
fn initialization_step_out_of_turn_changes_nothing() {
    let mut way = Initialization::new(Initializers::of(["a", "b"]));
    let before = way.clone();
    assert!(way.done("b", Vec::new()).is_err() && way.fail("b", StatusInfo::default()).is_err());
    assert!(way.time_out("b", FailurePolicy::Fail).is_err() && way.done("a", vec!["b".into()]).is_err());
    assert!(way.done("a", vec!["x".into(), "x".into()]).is_err() && way.done("a", vec!["a".into()]).is_err());
    assert_eq!(way, before);
    assert_eq!(way.done("a", vec!["x".into(), "y".into()]), Ok(Lifecycle::Pending(3)));
    assert_eq!(way.head(), Some("x"));
    assert!(way.done("x", vec!["a".into()]).is_err(), "none comes back");
    assert_eq!(way.time_out("x", FailurePolicy::Ignore), Ok(Lifecycle::Pending(2)));
    assert_eq!(way.time_out("y", FailurePolicy::Fail), Ok(Lifecycle::TimedOut));
    assert!(way.done("y", Vec::new()).is_err(), "it is over");
}

#[test]
fn initialization_refuses_too_many_added_names() {
    let mut way = Initialization::new(Initializers::of(["a"]));
    let adds = (0..gatepost_api::initialization::MAX_PENDING).map(|n| n.to_string().into()).collect();
    assert!(way.done("a", adds).is_err());
}
