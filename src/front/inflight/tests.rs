//! Reservations of a request: their size, their end, and one client's share of them.

use std::time::Duration;

use super::*;
use crate::front::accept::{client::Identity, clients::AdmittedConnection};

struct Scene {
    clients: Arc<Clients>,
    inflight: Arc<Inflight>,
    now: Instant,
}

/// 1,000 bytes, of which reviews have 750.
fn scene() -> Scene {
    let now = Instant::now();
    let budget = MemoryBudget::new(1000);
    let inflight = Arc::new(Inflight { budget, max_review: 10, overhead: (0, 0), requests: AtomicUsize::new(0) });
    Scene { clients: Clients::new(100, now), inflight, now }
}

impl Scene {
    fn connect(&self, identity: Identity) -> AdmittedConnection {
        self.clients.admit(identity, self.now).expect("room")
    }

    fn enter<'a>(&'a self, admitted: &'a AdmittedConnection) -> InflightGuard<'a> {
        self.inflight.enter(&self.clients, &admitted.session, self.now).expect("room")
    }
}

fn stranger(n: u8) -> Identity {
    Identity::of([192, 0, 2, n].into())
}

#[test]
fn inflight_request_holds_its_bytes_until_it_ends() {
    let scene = scene();
    let admitted = scene.connect(Identity::Loopback);
    let mut first = scene.enter(&admitted);
    first.reserve(600).expect("room");
    let mut second = scene.enter(&admitted);
    assert_eq!(second.reserve(151), Err(Refusal::Overloaded { bytes: 151 }));
    second.reserve(100).expect("room");
    second.reserve(50).expect("it has that");
    assert_eq!((scene.inflight.requests(), scene.inflight.bytes(), admitted.session.calls()), (2, 700, 2));
    second.shrink_to(40);
    drop(first);
    assert_eq!((scene.inflight.requests(), scene.inflight.bytes()), (1, 40));
    second.reserve(750).expect("room");
    drop(second);
    assert_eq!((scene.inflight.requests(), scene.inflight.bytes(), scene.inflight.budget().held()), (0, 0, 0));
}

#[test]
fn review_larger_than_the_budget_gets_no_retry_after() {
    let scene = scene();
    let admitted = scene.connect(stranger(1));
    let mut entered = scene.enter(&admitted);
    let never = Err(Refusal::TooLargeForMemory { bytes: 751, limit: 750 });
    assert_eq!(
        (entered.reserve(751), entered.check_size(751)),
        (never, Err(Refusal::TooLargeForMemory { bytes: 751, limit: 750 }))
    );
    assert_eq!((entered.check_size(750), entered.reserve(750)), (Ok(()), Err(Refusal::Share { bytes: 750 })));
}

#[test]
fn client_share_of_the_budget_leaves_room_for_others() {
    let scene = scene();
    let (apiserver, one, two) =
        (scene.connect(Identity::Loopback), scene.connect(stranger(1)), scene.connect(stranger(2)));
    let (mut flood, mut more, mut review) = (scene.enter(&one), scene.enter(&two), scene.enter(&apiserver));
    assert_eq!(flood.reserve(376), Err(Refusal::Share { bytes: 376 }), "half is the most for a stranger");
    flood.reserve(375).expect("room");
    assert_eq!(more.reserve(189), Err(Refusal::Overloaded { bytes: 189 }), "strangers leave a quarter");
    more.reserve(188).expect("room");
    review.reserve(187).expect("which is there for whoever is known");
    assert_eq!(review.reserve(188), Err(Refusal::Overloaded { bytes: 188 }));
    drop((flood, more));
    review.reserve(750).expect("alone, all of it");
    let other = scene.connect(Identity::User(1000));
    let mut second = scene.enter(&apiserver);
    assert_eq!(second.reserve(1), Err(Refusal::Share { bytes: 1 }));
    drop((review, second));
    scene.enter(&other).reserve(375).expect("half for each known client beside another");
}

#[test]
fn verdict_is_held_in_the_budget_until_it_is_written() {
    let scene = scene();
    let admitted = scene.connect(stranger(1));
    let deadline = Deadline::after(scene.now, Duration::from_secs(1));
    let mut entered = scene.enter(&admitted);
    entered.reserve(100).expect("room");
    let outgoing = entered.into_verdict(Bytes::from_static(&[0; 300]), deadline).expect("room");
    let budget = scene.inflight.budget();
    assert_eq!((scene.inflight.requests(), budget.held(), budget.held_for(Purpose::Verdict)), (0, 300, 300));
    assert!(admitted.session.client.is_known(1), "it had a verdict");
    let late = scene.now + Duration::from_secs(10);
    assert!(admitted.session.unsent.has_expired(late));
    drop(outgoing);
    assert!(!admitted.session.unsent.has_expired(late));
    assert_eq!(budget.held(), 0);
    let refused = scene.enter(&admitted).into_verdict(Bytes::from(vec![0; 1001]), deadline).expect_err("no room");
    assert_eq!((refused, budget.held()), (Refusal::Overloaded { bytes: 1001 }, 0));
}

#[test]
fn small_reviews_and_verdicts_hold_their_overhead() {
    let scene = scene();
    let admitted = scene.connect(Identity::Loopback);
    let inflight = Inflight::new(MemoryBudget::new(4 * REVIEW_OVERHEAD), 10);
    let enter = || inflight.enter(&scene.clients, &admitted.session, scene.now);
    let mut three: Vec<_> = (0..3).map(|_| enter().expect("room")).collect();
    assert_eq!(enter().map(drop), Err(Refusal::Overloaded { bytes: 0 }));
    assert_eq!((inflight.requests(), inflight.bytes()), (3, 3 * REVIEW_OVERHEAD));
    let deadline = Deadline::after(scene.now, Duration::from_secs(1));
    let verdict = three.remove(0).into_verdict(Bytes::from_static(b"yes"), deadline).expect("room");
    assert_eq!(inflight.budget().held(), 2 * REVIEW_OVERHEAD + VERDICT_OVERHEAD + 3);
    drop((verdict, three));
    assert_eq!((inflight.requests(), inflight.budget().held()), (0, 0));
}
