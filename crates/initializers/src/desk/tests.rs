use super::*;

struct World {
    desk: Desk,
    epoch: Instant,
    name: Arc<str>,
}

impl World {
    fn new(limits: DeskLimits) -> Self {
        let epoch = Instant::now();
        Self { desk: Desk::new(limits, epoch), epoch, name: "a.example.com".into() }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.epoch + Duration::from_secs(seconds)
    }

    fn attach(&mut self, id: u64, window: usize, seconds: u64) -> bool {
        let now = self.at(seconds);
        self.desk.attach(&self.name, InstanceId(id), window, now)
    }

    fn submit(&mut self, id: u64, deadline: u64, seconds: u64) -> Result<(), SubmitError> {
        let (deadline, now) = (self.at(deadline), self.at(seconds));
        self.desk.submit(TaskId(id), &self.name, deadline, now)
    }

    fn answered(&mut self, instance: u64, task: u64, attempt: u32, seconds: u64) -> Result<(), StaleAnswer> {
        let now = self.at(seconds);
        self.desk.answer(InstanceId(instance), TaskId(task), attempt, now)
    }

    /// Passes every second up to that one, as a process does that runs.
    fn pass(&mut self, seconds: u64) {
        for second in 0..=seconds {
            let now = self.at(second);
            if now >= self.desk.ticked {
                self.desk.tick(now);
            }
        }
    }

    fn assigned(&mut self) -> Vec<(u64, u64, u32)> {
        let assigned = |action: Action| match action {
            Action::Assign { instance, task, attempt, .. } => Some((instance.0, task.0, attempt)),
            _ => None,
        };
        self.desk.take_actions().into_iter().filter_map(assigned).collect()
    }
}

#[test]
fn tasks_are_shared_by_instances_within_their_windows() {
    let mut world = World::new(DeskLimits::default());
    assert!(world.attach(1, 1, 0) && world.attach(2, 2, 0));
    for task in 1..=4 {
        world.submit(task, 30, 0).unwrap();
    }
    assert_eq!(world.assigned(), [(1, 1, 1), (2, 2, 1), (2, 3, 1)]);
    world.answered(1, 1, 1, 1).unwrap();
    assert_eq!(world.assigned(), [(1, 4, 1)]);
    assert_eq!(world.answered(1, 1, 1, 1), Err(StaleAnswer), "twice");
    assert_eq!(world.answered(1, 2, 1, 1), Err(StaleAnswer), "another's");
    assert_eq!(world.desk.task_count(), 3);
}

#[test]
fn tasks_of_a_lapsed_instance_go_to_another_with_a_higher_attempt() {
    let mut world = World::new(DeskLimits::default());
    world.attach(1, 8, 0);
    world.submit(1, 30, 0).unwrap();
    world.desk.renew(InstanceId(1), world.at(3));
    world.attach(2, 8, 12);
    assert_eq!(world.assigned(), [(1, 1, 1)]);
    assert_eq!(world.desk.lapse_time(InstanceId(1)), Some(world.at(13)));
    world.pass(13);
    assert!(world.desk.actions.contains(&Action::Drop(InstanceId(1))));
    assert_eq!(world.assigned(), [(2, 1, 2)]);
    assert_eq!(world.answered(1, 1, 1, 14), Err(StaleAnswer));
    assert_eq!(world.answered(2, 1, 2, 14), Ok(()));
}

#[test]
fn task_without_an_answer_is_late_and_its_answer_does_not_count() {
    let mut world = World::new(DeskLimits::default());
    world.attach(1, 1, 0);
    world.submit(1, 5, 0).unwrap();
    world.submit(2, 9, 0).unwrap();
    world.desk.take_actions().clear();
    assert_eq!(world.answered(1, 1, 1, 5), Err(StaleAnswer), "at its deadline");
    world.pass(5);
    let deadline = world.at(9);
    assert_eq!(
        world.desk.take_actions(),
        [
            Action::Cancel { instance: InstanceId(1), task: TaskId(1) },
            Action::Late(TaskId(1)),
            Action::Assign { instance: InstanceId(1), task: TaskId(2), attempt: 1, deadline },
        ]
    );
}

#[test]
fn task_of_a_name_that_is_vacant_for_long_fails_at_once() {
    let mut world = World::new(DeskLimits::default());
    world.submit(1, 30, 1).unwrap();
    world.pass(9);
    assert_eq!(world.desk.task_count(), 1, "somebody may still come");
    world.pass(10);
    assert_eq!(world.desk.take_actions(), [Action::Vacant(TaskId(1))]);
    assert_eq!(world.submit(2, 60, 12), Err(SubmitError::Vacant));
    world.attach(1, 1, 20);
    world.submit(3, 60, 20).unwrap();
    world.desk.take_actions().clear();
    world.desk.detach(InstanceId(1), world.at(21));
    world.submit(4, 60, 22).unwrap();
    world.attach(2, 2, 23);
    assert_eq!(world.assigned(), [(2, 3, 2), (2, 4, 1)], "what was begun goes first");
    world.desk.detach(InstanceId(2), world.at(24));
    world.pass(34);
    assert_eq!(world.desk.task_count(), 0);
    assert_eq!(world.submit(5, 60, 35), Err(SubmitError::Vacant));
}

#[test]
fn tasks_are_bounded_per_name_and_in_all() {
    let mut world = World::new(DeskLimits { tasks_per_name: 2, tasks: 3, ..DeskLimits::default() });
    world.submit(1, 30, 0).unwrap();
    world.submit(2, 30, 0).unwrap();
    assert_eq!(world.submit(3, 30, 0), Err(SubmitError::Full));
    world.name = "b.example.com".into();
    world.submit(4, 30, 0).unwrap();
    assert_eq!(world.submit(5, 30, 0), Err(SubmitError::Full));
    world.desk.withdraw(TaskId(1));
    world.submit(6, 30, 0).unwrap();
    assert!(world.desk.take_actions().is_empty(), "nobody is there");
}

#[test]
fn draining_instance_finishes_its_tasks_and_gets_no_more() {
    let mut world = World::new(DeskLimits::default());
    world.attach(1, 8, 0);
    world.submit(1, 30, 0).unwrap();
    world.desk.drain(InstanceId(1));
    world.submit(2, 30, 0).unwrap();
    assert_eq!(world.assigned(), [(1, 1, 1)]);
    assert!(world.desk.is_busy(InstanceId(1)));
    world.answered(1, 1, 1, 1).unwrap();
    assert!(!world.desk.is_busy(InstanceId(1)));
    world.attach(2, 8, 1);
    assert_eq!(world.assigned(), [(2, 2, 1)]);
    let states = world.desk.names();
    assert_eq!((states[0].instances, states[0].queued, states[0].assigned), (2, 0, 1));
}

#[test]
fn pause_of_the_process_lapses_no_instance() {
    let mut world = World::new(DeskLimits::default());
    world.attach(1, 8, 0);
    world.desk.renew(InstanceId(1), world.at(3));
    world.submit(1, 60, 3).unwrap();
    world.pass(4);
    world.desk.take_actions().clear();
    // Stopped from 4 to 34: what the instance has sent since 3 lies unread.
    let resumed = world.at(34);
    world.desk.tick(resumed);
    assert_eq!((&*world.desk.take_actions(), world.desk.lapse_time(InstanceId(1))), (&[][..], Some(world.at(43))));
    world.pass(42);
    assert_eq!(world.answered(1, 1, 1, 42), Ok(()), "it still has its task");
}

#[test]
fn configured_name_is_vacant_since_then() {
    let mut world = World::new(DeskLimits::default());
    world.pass(100);
    let (name, now) = (Arc::clone(&world.name), world.at(100));
    world.desk.enforce(&name);
    world.desk.configure(&name, now);
    assert_eq!(world.desk.names()[0].vacant_since, Some(now));
    world.submit(1, 130, 101).unwrap();
    world.pass(109);
    assert_eq!(world.desk.task_count(), 1, "its instances could not attach before");
    world.attach(1, 8, 109);
    world.desk.configure(&name, world.at(110));
    assert_eq!(world.desk.names()[0].vacant_since, None, "configured anew while it is attended");
}

#[test]
fn unproven_name_accepts_no_task_before_its_first_instance() {
    let mut world = World::new(DeskLimits::default());
    let name = Arc::clone(&world.name);
    world.desk.configure(&name, world.at(1));
    assert!(world.desk.is_unproven(&name) && !world.desk.is_unproven("another"));
    world.pass(100);
    assert_eq!(world.submit(1, 130, 100), Err(SubmitError::Unproven), "however long it is configured");
    world.attach(1, 8, 100);
    world.desk.detach(InstanceId(1), world.at(101));
    world.submit(2, 130, 102).unwrap();
    world.desk.configure(&name, world.at(103));
    assert!(!world.desk.is_unproven(&name), "a change of the list proves nothing and unproves nothing");
}

#[test]
fn unproven_name_that_is_retired_stays_unproven_for_requests_under_way() {
    let mut world = World::new(DeskLimits::default());
    let name = Arc::clone(&world.name);
    world.desk.configure(&name, world.at(100));
    world.desk.retire(&name, world.at(131));
    assert!(world.desk.is_unproven(&name) && !world.desk.is_draining(&name, world.at(101)));
    assert_eq!(world.submit(1, 130, 101), Err(SubmitError::Unproven));
    world.pass(130);
    assert!(world.desk.is_unproven(&name));
    world.pass(131);
    assert_eq!(world.desk.names(), [], "it is forgotten");
}

#[test]
fn retired_name_stays_with_its_instances_until_it_has_drained() {
    let mut world = World::new(DeskLimits::default());
    let name = Arc::clone(&world.name);
    world.attach(1, 8, 0);
    world.submit(1, 30, 0).unwrap();
    world.desk.retire(&name, world.at(31));
    assert!(world.desk.is_draining(&name, world.at(30)) && !world.desk.is_draining(&name, world.at(31)));
    assert!(world.desk.has_tasks(&name));
    world.answered(1, 1, 1, 2).unwrap();
    assert!(!world.desk.has_tasks(&name));
    world.desk.drained(&name);
    assert!(!world.desk.is_draining(&name, world.at(3)));
    world.desk.detach(InstanceId(1), world.at(3));
    world.desk.configure(&name, world.at(30));
    assert!(!world.desk.is_unproven(&name), "it was there a moment ago");
    world.desk.retire(&name, world.at(60));
    world.desk.configure(&name, world.at(60));
    assert!(world.desk.is_unproven(&name), "it begins anew");
}

#[test]
fn task_that_is_given_up_frees_its_instance_without_a_cancel() {
    let mut world = World::new(DeskLimits::default());
    world.attach(1, 1, 0);
    world.submit(1, 30, 0).unwrap();
    world.submit(2, 30, 0).unwrap();
    world.desk.take_actions().clear();
    let mut give_up = |task, attempt| {
        let World { desk, .. } = &mut world;
        desk.give_up(InstanceId(1), TaskId(task), attempt)
    };
    assert_eq!((give_up(1, 2), give_up(2, 1)), (Err(StaleAnswer), Err(StaleAnswer)));
    assert_eq!(give_up(1, 1), Ok(()));
    let deadline = world.at(30);
    assert_eq!(
        world.desk.take_actions(),
        [Action::Assign { instance: InstanceId(1), task: TaskId(2), attempt: 1, deadline }]
    );
}
