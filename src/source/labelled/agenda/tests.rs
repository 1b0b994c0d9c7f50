use super::*;
use crate::{live::Generation, telemetry::Metrics};
use gatepost_api::StatusInfo;
use gatepost_base::memory::{MemoryBudget, Purpose};
use gatepost_config::SourceFile;
use gatepost_initializers::Initializers;

/// Seconds since 1970 by the apiserver's clock.
const NOW: i64 = 1_000_000;

struct World {
    agenda: Agenda,
    current: Current,
    resource: Arc<ServedResource>,
    began: Instant,
    budget: Arc<MemoryBudget>,
}

impl World {
    fn new() -> Self {
        Self::within(MemoryBudget::new(1 << 20))
    }

    fn within(budget: Arc<MemoryBudget>) -> Self {
        Self::of(budget, "")
    }

    /// With more initializers of the resource.
    fn of(budget: Arc<MemoryBudget>, more: &str) -> Self {
        let yaml = r"
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: test}
resourceInitializers:
- resource: configmaps
  stored: Label
  initializers:
  - {name: open, timeout: 5s, attach: {commonNames: [a]}}
  - {name: closed, timeout: 5s, failurePolicy: Fail, attach: {commonNames: [a]}}
";
        let files = [SourceFile { name: "a.yaml".into(), bytes: format!("{yaml}{more}").into() }];
        let snapshot = gatepost_config::load(&files, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        let began = Instant::now();
        let current = Current::new(began);
        current.publish(Arc::new(Generation::of(Arc::new(snapshot), &Metrics::new(1))));
        let resource = Arc::new(ServedResource::of("", "v1", "configmaps", "ConfigMap"));
        Self { agenda: Agenda::new(budget.empty(Purpose::Queue)), current, resource, began, budget }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.began + Duration::from_secs(seconds)
    }

    fn object(name: &str, version: &str, list: Initializers) -> StoredObject {
        StoredObject {
            group: "".into(),
            resource: "configmaps".into(),
            namespace: "shop".into(),
            name: name.into(),
            uid: format!("uid-{name}").into(),
            resource_version: version.into(),
            list,
        }
    }

    fn changes(&mut self, name: &str, version: &str, pending: &[&str], seconds: u64) {
        let object = Self::object(name, version, Initializers::of(pending.iter().copied()));
        let news = News::Changed(Arc::clone(&self.resource), Box::new(object));
        self.agenda.take(news, &self.current, self.at(seconds));
    }

    fn lists(&mut self, objects: Vec<(StoredObject, Option<i64>)>, seconds: u64) {
        self.current.freshness().stamp_awake(self.at(seconds));
        let uids = objects.iter().map(|(object, _)| Arc::clone(&object.uid)).collect();
        let page = News::Page { resource: Arc::clone(&self.resource), objects, now: Some(NOW) };
        self.agenda.take(page, &self.current, self.at(seconds));
        let listed = News::Listed { resource: Arc::clone(&self.resource), uids };
        self.agenda.take(listed, &self.current, self.at(seconds));
    }

    async fn look(&mut self, seconds: u64) {
        self.current.freshness().stamp_awake(self.at(seconds));
        self.agenda.queue_due(&self.current, self.at(seconds)).await;
    }

    /// Everything that is due, each as what it is, and that it has ended well.
    fn all(&mut self, seconds: u64) -> Vec<String> {
        let mut all = Vec::new();
        while let Some((due, assignment)) = self.agenda.next(self.at(seconds)) {
            let what = match due {
                Due::Turn => "turn".to_owned(),
                Due::Correction(Correction { remedy: CorrectiveAction::RemoveHead(head), .. }) => {
                    format!("without {head}")
                }
                Due::Correction(Correction { remedy: CorrectiveAction::Fail(status), .. }) => {
                    format!("fails {}", status.code)
                }
                Due::Correction(Correction { remedy: CorrectiveAction::Delete, .. }) => "deleted".to_owned(),
            };
            all.push(format!("{} {what}", assignment.stored.name));
            self.agenda.ended(&assignment.stored.uid, &TurnEnd::Waiting, self.at(seconds));
        }
        // Names take turns.
        all.sort();
        all
    }
}

#[tokio::test]
async fn a_head_has_its_time_and_is_then_corrected() {
    let mut world = World::new();
    for (name, head) in [("a", "open"), ("b", "closed"), ("c", "nobody")] {
        world.changes(name, "1", &[head], 0);
    }
    assert_eq!(world.all(0), ["a turn", "b turn", "c turn"]);
    world.look(4).await;
    assert_eq!(world.all(4), [""; 0]);
    world.look(5).await;
    assert_eq!(world.all(5), ["a without open", "b fails 504"]);
    // One that has gone on has all of its time again.
    world.changes("a", "2", &["closed"], 6);
    world.agenda.take(News::Gone("uid-b".into()), &world.current, world.at(6));
    assert_eq!((world.all(6), world.agenda.len()), (vec!["a turn".to_owned()], 2));
    world.look(10).await;
    assert_eq!(world.all(10), [""; 0]);
    world.look(11).await;
    assert_eq!(world.all(11), ["a fails 504"]);
    // No initializer is passed over by a configuration that may be outdated.
    world.agenda.queue_due(&world.current, world.at(60)).await;
    assert_eq!(world.all(60), [""; 0]);
}

#[tokio::test]
async fn running_object_is_not_corrected_and_keeps_changes() {
    let mut world = World::new();
    world.changes("a", "1", &["open", "closed"], 0);
    let (_, assignment) = world.agenda.next(world.at(20)).unwrap();
    world.look(20).await;
    assert!(world.agenda.next(world.at(20)).is_none(), "the process has it, and its own deadline");
    world.changes("a", "2", &["closed"], 20);
    assert!(world.agenda.next(world.at(20)).is_none());
    world.agenda.ended(&assignment.stored.uid, &TurnEnd::Settled, world.at(20));
    let (_, assignment) = world.agenda.next(world.at(20)).unwrap();
    assert_eq!((&*assignment.stored.resource_version, assignment.since), ("2", world.at(20)));
    world.agenda.ended(&assignment.stored.uid, &TurnEnd::Retry(None), world.at(20));
    world.look(20).await;
    assert!(world.agenda.next(world.at(20)).is_none());
    world.look(21).await;
    assert_eq!(world.all(21), ["a turn"], "it is tried again");
}

#[tokio::test]
async fn rejected_writes_are_retried_with_backoff() {
    let mut world = World::new();
    world.changes("a", "1", &["open"], 0);
    let refused = || {
        let (server, path) = ("s".to_owned(), "/p".to_owned());
        TurnEnd::Retry(Some(gatepost_kube_support::KubeError::InvalidResponse { server, path, cause: "c".to_owned() }))
    };
    let mut tried = Vec::new();
    for second in 0..130 {
        world.look(second).await;
        if let Some((_, assignment)) = world.agenda.next(world.at(second)) {
            tried.push(second);
            world.agenda.ended(&assignment.stored.uid, &refused(), world.at(second));
        }
    }
    assert_eq!(tried, [0, 1, 3, 7, 15, 31, 61, 91, 121]);
    // Any change of it may be the reason.
    world.changes("a", "2", &["open"], 130);
    assert_eq!(world.all(130), ["a turn"]);
}

#[tokio::test]
async fn corrections_that_fail_leave_room_for_others() {
    let mut world = World::new();
    world.budget = MemoryBudget::new(64 << 20);
    world.agenda = Agenda::new(world.budget.empty(Purpose::Queue));
    for number in 0..1000 {
        world.changes(&format!("{number:04}"), "1", &["open"], 0);
    }
    while let Some((_, assignment)) = world.agenda.next(world.at(0)) {
        world.agenda.ended(&assignment.stored.uid, &TurnEnd::Waiting, world.at(0));
    }
    let mut corrected = HashSet::new();
    for second in 5..9 {
        world.look(second).await;
        while let Some((due, assignment)) = world.agenda.next(world.at(second)) {
            let failure = gatepost_kube_support::KubeError::InvalidResponse {
                server: String::new(),
                path: String::new(),
                cause: String::new(),
            };
            let ended = match due {
                Due::Turn => TurnEnd::Waiting,
                Due::Correction(_) => {
                    corrected.insert(Arc::clone(&assignment.stored.uid));
                    TurnEnd::Retry(Some(failure))
                }
            };
            world.agenda.ended(&assignment.stored.uid, &ended, world.at(second));
        }
    }
    assert_eq!(corrected.len(), 1000, "the first do not keep the others waiting");
}

#[tokio::test]
async fn queueing_time_does_not_count_against_initializers() {
    let mut world = World::new();
    for number in 0..65 {
        world.changes(&format!("{number:02}"), "1", &["open"], 0);
    }
    let mut first = Vec::new();
    while let Some((_, assignment)) = world.agenda.next(world.at(0)) {
        first.push(assignment.stored.uid.clone());
    }
    assert_eq!(first.len(), 64);
    world.look(20).await;
    assert!(world.agenda.next(world.at(20)).is_none(), "it is not late before it has had its turn");
    world.agenda.ended(&first[0], &TurnEnd::Waiting, world.at(20));
    let (_, last) = world.agenda.next(world.at(20)).unwrap();
    assert_eq!((&*last.stored.name, last.since), ("64", world.at(20)));
}

#[tokio::test]
async fn a_head_in_two_snapshots_is_the_controllers() {
    let mut world = World::new();
    let failed = Initializers { result: Some(Box::new(StatusInfo::default())), ..Initializers::of(["open"]) };
    world.lists(
        vec![(World::object("f", "1", failed), None), (World::object("x", "1", Initializers::of(["nobody"])), None)],
        0,
    );
    world.look(0).await;
    assert_eq!(world.all(0), ["f turn", "x turn"]);
    world.look(29).await;
    assert_eq!(world.all(29), [""; 0]);
    world.look(31).await;
    let all = world.all(31);
    assert!(all.contains(&"f deleted".to_owned()) && all.contains(&"x without nobody".to_owned()), "{all:?}");
}

#[tokio::test]
async fn a_head_with_more_time_than_a_request_has_all_of_it() {
    let slow = "  - {name: slow, timeout: 45s}\n  - {name: daily, timeout: 24h, attach: {commonNames: [a]}}\n";
    let mut world = World::of(MemoryBudget::new(1 << 20), slow);
    let of = |name: &str, head: &str| (World::object(name, "1", Initializers::of([head])), None);
    world.lists(vec![of("d", "daily"), of("s", "slow"), of("x", "nobody")], 0);
    world.look(0).await;
    assert_eq!(world.all(0), ["d turn", "s turn", "x turn"]);
    world.look(31).await;
    assert_eq!(world.all(31), ["x without nobody"]);
    world.agenda.take(News::Gone("uid-x".into()), &world.current, world.at(31));
    for seconds in [40, 44] {
        world.look(seconds).await;
        assert_eq!(world.all(seconds), [""; 0], "two snapshots or not, at {seconds} s");
    }
    world.look(50).await;
    assert_eq!(world.all(50), ["s without slow"]);
    world.agenda.take(News::Gone("uid-s".into()), &world.current, world.at(50));
    for hours in 1..24 {
        world.look(hours * 3600).await;
        assert_eq!(world.all(hours * 3600), [""; 0], "{hours} h");
    }
    world.look(24 * 3600).await;
    assert_eq!(world.all(24 * 3600), ["d without daily"]);
}

#[tokio::test]
async fn object_is_very_old_after_the_timeouts_of_all_initializers() {
    let mut world = World::of(MemoryBudget::new(1 << 20), "  - {name: slow, timeout: 1h 30s}\n");
    let aged = |name: &str, head: &str, age: i64| (World::object(name, "1", Initializers::of([head])), Some(NOW - age));
    world.lists(vec![aged("a", "open", 661), aged("b", "slow", 4260), aged("c", "slow", 4261)], 0);
    assert_eq!(world.all(0), ["a turn", "b turn", "c turn", "c without slow"]);
}

#[tokio::test]
async fn the_head_of_a_very_old_object_goes_when_it_is_listed() {
    let mut world = World::new();
    let aged = |name: &str, head: &str, age: i64| (World::object(name, "1", Initializers::of([head])), Some(NOW - age));
    world.lists(vec![aged("a", "open", 661), aged("b", "open", 660), aged("c", "closed", 10_000)], 0);
    assert_eq!(world.all(0), ["a turn", "a without open", "b turn", "c turn"]);
    // An object that is not listed any more is finished, or gone.
    world.lists(vec![aged("b", "open", 0)], 1);
    assert_eq!(world.agenda.len(), 1);
}

#[tokio::test]
async fn overflowing_objects_are_left_to_the_next_list() {
    let mut world = World::new();
    for number in 0..5000 {
        world.changes(&number.to_string(), "1", &["open"], 0);
    }
    let known = world.agenda.len();
    assert!((100..5000).contains(&known), "{known}");
    assert!(world.budget.held() <= 1 << 20);
    for number in 0..5000 {
        world.agenda.take(News::Gone(format!("uid-{number}").into()), &world.current, world.at(1));
    }
    assert_eq!((world.agenda.len(), world.budget.held()), (0, 0));
}

/// One look: its time, and the number of its corrections, each of which is made.
async fn look(world: &mut World, seconds: u64) -> (Duration, usize) {
    let start = Instant::now();
    world.look(seconds).await;
    let (took, now) = (start.elapsed(), world.at(seconds));
    let mut corrected = 0;
    while let Some((due, Assignment { stored, .. })) = world.agenda.next(now) {
        world.agenda.ended(&stored.uid, &TurnEnd::Waiting, now);
        if let Due::Correction(_) = due {
            corrected += 1;
            world.agenda.take(News::Gone(Arc::clone(&stored.uid)), &world.current, now);
        }
    }
    (took, corrected)
}

/// `cargo test --release --lib -- --ignored --nocapture look_costs` prints the price of a look at 10,000 marked
/// objects, of which it makes one a second, and of those looks that compare snapshots: one of heads that are in time,
/// and one, with all its corrections, of heads that are overdue.
#[tokio::test]
#[ignore = "a measurement, not a check"]
async fn look_costs() {
    let mut world = World::within(MemoryBudget::unlimited());
    let objects = |version: &str, names: [&str; 1]| -> Vec<_> {
        let object = |n| (World::object(&format!("settings-{n}"), version, Initializers::of(names)), None);
        (0..10_000).map(object).collect()
    };
    world.lists(objects("1", ["open"]), 0);
    println!("{:?} with the first snapshot", look(&mut world, 0).await.0);
    println!("{:?} without one", look(&mut world, 1).await.0);
    world.lists(objects("2", ["closed"]), 29);
    world.all(29);
    println!("{:?} with a snapshot, each head in time", look(&mut world, 30).await.0);
    let (mut all, mut longest, mut corrected) = (Duration::ZERO, Duration::ZERO, 0);
    for seconds in 60..90 {
        let (took, now) = look(&mut world, seconds).await;
        (all, longest, corrected) = (all + took, longest.max(took), corrected + now);
    }
    println!("{all:?} in 30 looks from a snapshot on, each head overdue: {corrected} corrections, {longest:?} at most");
}
