use super::*;

struct World {
    desk: Desk,
    epoch: Instant,
    out: Vec<Action>,
    name: Arc<str>,
}

impl World {
    fn new(limits: DeskLimits) -> Self {
        let epoch = Instant::now();
        Self { desk: Desk::new(limits, epoch), epoch, out: Vec::new(), name: "a.example.com".into() }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.epoch + Duration::from_secs(seconds)
    }

    fn attach(&mut self, id: u64, window: usize, seconds: u64) -> bool {
        let now = self.at(seconds);
        self.desk.attach(&self.name, InstanceId(id), window, now, &mut self.out)
    }

    fn submit(&mut self, id: u64, deadline: u64, seconds: u64) -> Result<(), NotTaken> {
        let (deadline, now) = (self.at(deadline), self.at(seconds));
        self.desk.submit(TaskId(id), &self.name, deadline, now, &mut self.out)
    }

    fn answered(&mut self, instance: u64, task: u64, attempt: u32, seconds: u64) -> Result<(), Stale> {
        let now = self.at(seconds);
        self.desk.answered(InstanceId(instance), TaskId(task), attempt, now, &mut self.out)
    }

    /// Passes every second up to that one, as a process does that runs.
    fn pass(&mut self, seconds: u64) {
        for second in 0..=seconds {
            let now = self.at(second);
            if now >= self.desk.passed {
                self.desk.pass(now, &mut self.out);
            }
        }
    }

    fn assigned(&mut self) -> Vec<(u64, u64, u32)> {
        let assigned = |action: Action| match action {
            Action::Assign { instance, task, attempt, .. } => Some((instance.0, task.0, attempt)),
            _ => None,
        };
        self.out.drain(..).filter_map(assigned).collect()
    }
}

#[test]
fn instances_share_the_work_each_within_its_window() {
    let mut world = World::new(DeskLimits::default());
    assert!(world.attach(1, 1, 0) && world.attach(2, 2, 0));
    for task in 1..=4 {
        world.submit(task, 30, 0).unwrap();
    }
    assert_eq!(world.assigned(), [(1, 1, 1), (2, 2, 1), (2, 3, 1)]);
    world.answered(1, 1, 1, 1).unwrap();
    assert_eq!(world.assigned(), [(1, 4, 1)]);
    assert_eq!(world.answered(1, 1, 1, 1), Err(Stale), "twice");
    assert_eq!(world.answered(1, 2, 1, 1), Err(Stale), "another's");
    assert_eq!(world.desk.held(), 3);
}

#[test]
fn a_lapsed_instance_loses_its_work_and_the_next_can_tell_the_repeat() {
    let mut world = World::new(DeskLimits::default());
    world.attach(1, 8, 0);
    world.submit(1, 30, 0).unwrap();
    world.desk.heard(InstanceId(1), world.at(3));
    world.attach(2, 8, 12);
    assert_eq!(world.assigned(), [(1, 1, 1)]);
    assert_eq!(world.desk.lapses(InstanceId(1)), Some(world.at(13)));
    world.pass(13);
    assert!(world.out.contains(&Action::Drop(InstanceId(1))));
    assert_eq!(world.assigned(), [(2, 1, 2)]);
    assert_eq!(world.answered(1, 1, 1, 14), Err(Stale));
    assert_eq!(world.answered(2, 1, 2, 14), Ok(()));
}

#[test]
fn what_is_not_answered_in_time_is_late_and_its_answer_does_not_count() {
    let mut world = World::new(DeskLimits::default());
    world.attach(1, 1, 0);
    world.submit(1, 5, 0).unwrap();
    world.submit(2, 9, 0).unwrap();
    world.out.clear();
    assert_eq!(world.answered(1, 1, 1, 5), Err(Stale), "at its deadline");
    world.pass(5);
    let deadline = world.at(9);
    assert_eq!(
        world.out,
        [
            Action::Cancel { instance: InstanceId(1), task: TaskId(1) },
            Action::Late(TaskId(1)),
            Action::Assign { instance: InstanceId(1), task: TaskId(2), attempt: 1, deadline },
        ]
    );
}

#[test]
fn a_name_that_lapsed_long_ago_is_late_at_once() {
    let mut world = World::new(DeskLimits::default());
    world.submit(1, 30, 1).unwrap();
    world.pass(9);
    assert_eq!(world.desk.held(), 1, "somebody may still come");
    world.pass(10);
    assert_eq!(world.out, [Action::Vacant { task: TaskId(1), vacant: Duration::from_secs(10) }]);
    assert_eq!(world.submit(2, 60, 12), Err(NotTaken::Vacant(Duration::from_secs(12))));
    world.attach(1, 1, 20);
    world.submit(3, 60, 20).unwrap();
    world.out.clear();
    world.desk.detach(InstanceId(1), world.at(21), &mut world.out);
    world.submit(4, 60, 22).unwrap();
    world.attach(2, 2, 23);
    assert_eq!(world.assigned(), [(2, 3, 2), (2, 4, 1)], "what was begun goes first");
    world.desk.detach(InstanceId(2), world.at(24), &mut world.out);
    world.pass(34);
    assert_eq!(world.desk.held(), 0);
    assert_eq!(world.submit(5, 60, 35).map_err(|error| matches!(error, NotTaken::Vacant(_))), Err(true));
}

#[test]
fn holds_are_bounded_for_a_name_and_in_all() {
    let mut world = World::new(DeskLimits { of_a_name: 2, in_all: 3, ..DeskLimits::default() });
    world.submit(1, 30, 0).unwrap();
    world.submit(2, 30, 0).unwrap();
    assert_eq!(world.submit(3, 30, 0), Err(NotTaken::Full));
    world.name = "b.example.com".into();
    world.submit(4, 30, 0).unwrap();
    assert_eq!(world.submit(5, 30, 0), Err(NotTaken::Full));
    world.desk.withdraw(TaskId(1), &mut world.out);
    world.submit(6, 30, 0).unwrap();
    assert!(world.out.is_empty(), "nobody is there");
}

#[test]
fn an_instance_that_leaves_finishes_what_it_has() {
    let mut world = World::new(DeskLimits::default());
    world.attach(1, 8, 0);
    world.submit(1, 30, 0).unwrap();
    world.desk.leave(InstanceId(1));
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
fn a_pause_of_the_process_is_nobodys_silence() {
    let mut world = World::new(DeskLimits::default());
    world.attach(1, 8, 0);
    world.desk.heard(InstanceId(1), world.at(3));
    world.submit(1, 60, 3).unwrap();
    world.pass(4);
    world.out.clear();
    // Stopped from 4 to 34: what the instance has sent since 3 lies unread.
    let resumed = world.at(34);
    world.desk.pass(resumed, &mut world.out);
    assert_eq!((&*world.out, world.desk.lapses(InstanceId(1))), (&[][..], Some(world.at(43))));
    world.pass(42);
    assert_eq!(world.answered(1, 1, 1, 42), Ok(()), "it still has its task");
}

#[test]
fn a_name_is_vacant_since_it_was_configured() {
    let mut world = World::new(DeskLimits::default());
    world.pass(100);
    let (name, now) = (Arc::clone(&world.name), world.at(100));
    world.desk.enforce(&name);
    world.desk.configure(&name, now);
    assert_eq!(world.desk.names()[0].vacant_since, Some(now));
    world.submit(1, 130, 101).unwrap();
    world.pass(109);
    assert_eq!(world.desk.held(), 1, "its instances could not attach before");
    world.attach(1, 8, 109);
    world.desk.configure(&name, world.at(110));
    assert_eq!(world.desk.names()[0].vacant_since, None, "configured anew while it is attended");
}

#[test]
fn a_new_name_takes_no_task_before_its_first_instance() {
    let mut world = World::new(DeskLimits::default());
    let name = Arc::clone(&world.name);
    world.desk.configure(&name, world.at(1));
    assert!(world.desk.is_unproven(&name) && !world.desk.is_unproven("another"));
    world.pass(100);
    assert_eq!(world.submit(1, 130, 100), Err(NotTaken::Unproven), "however long it is configured");
    world.attach(1, 8, 100);
    world.desk.detach(InstanceId(1), world.at(101), &mut world.out);
    world.submit(2, 130, 102).unwrap();
    world.desk.configure(&name, world.at(103));
    assert!(!world.desk.is_unproven(&name), "a change of the list proves nothing and unproves nothing");
}

#[test]
fn an_unproven_name_that_leaves_the_configuration_refuses_no_request_that_began_before() {
    let mut world = World::new(DeskLimits::default());
    let name = Arc::clone(&world.name);
    world.desk.configure(&name, world.at(100));
    world.desk.retire(&name, world.at(131));
    assert!(world.desk.is_unproven(&name) && !world.desk.drains(&name, world.at(101)));
    assert_eq!(world.submit(1, 130, 101), Err(NotTaken::Unproven));
    world.pass(130);
    assert!(world.desk.is_unproven(&name));
    world.pass(131);
    assert_eq!(world.desk.names(), [], "it is forgotten");
}

#[test]
fn a_name_that_leaves_the_configuration_is_its_instances_until_it_has_drained() {
    let mut world = World::new(DeskLimits::default());
    let name = Arc::clone(&world.name);
    world.attach(1, 8, 0);
    world.submit(1, 30, 0).unwrap();
    world.desk.retire(&name, world.at(31));
    assert!(world.desk.drains(&name, world.at(30)) && !world.desk.drains(&name, world.at(31)));
    assert!(world.desk.has_tasks(&name));
    world.answered(1, 1, 1, 2).unwrap();
    assert!(!world.desk.has_tasks(&name));
    world.desk.drained(&name);
    assert!(!world.desk.drains(&name, world.at(3)));
    world.desk.detach(InstanceId(1), world.at(3), &mut world.out);
    world.desk.configure(&name, world.at(30));
    assert!(!world.desk.is_unproven(&name), "it was there a moment ago");
    world.desk.retire(&name, world.at(60));
    world.desk.configure(&name, world.at(60));
    assert!(world.desk.is_unproven(&name), "it begins anew");
}

#[test]
fn a_task_that_is_given_up_leaves_its_instance_room_and_tells_it_nothing() {
    let mut world = World::new(DeskLimits::default());
    world.attach(1, 1, 0);
    world.submit(1, 30, 0).unwrap();
    world.submit(2, 30, 0).unwrap();
    world.out.clear();
    let mut give_up = |task, attempt| {
        let World { desk, out, .. } = &mut world;
        desk.give_up(InstanceId(1), TaskId(task), attempt, out)
    };
    assert_eq!((give_up(1, 2), give_up(2, 1)), (Err(Stale), Err(Stale)));
    assert_eq!(give_up(1, 1), Ok(()));
    let deadline = world.at(30);
    assert_eq!(world.out, [Action::Assign { instance: InstanceId(1), task: TaskId(2), attempt: 1, deadline }]);
}
