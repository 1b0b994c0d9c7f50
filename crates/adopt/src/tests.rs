//! A cluster in steps of a tenth of a second: an apiserver that hears late, replicas that read, probe, say and end at any
//! moment, writes that come late, an owner who replaces the webhook, and an operator who changes his mind. Somebody calls
//! the webhook at every moment.

mod served;
mod world;

use std::time::Duration;

use gatepost_kube_support::KubeAccess;
use proptest::{collection::vec, prelude::*};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;

use self::world::{Event, SECOND, World, event};
use crate::{AssessedEntry, ClusterEntry};

/// Returns the socket of an apiserver that the test is, and the access to it by a kubeconfig in that folder.
pub(crate) async fn apiserver_socket() -> (TcpListener, KubeAccess, TempDir) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let server = format!("http://{}", listener.local_addr().unwrap());
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}]});
    std::fs::write(&path, config.to_string()).unwrap();
    (listener, KubeAccess::Kubeconfig { path: Some(path), context: None }, folder)
}

impl AssessedEntry {
    /// A webhook that can be served and is wanted, without a reason not to adopt it.
    pub(crate) fn sound(standing: ClusterEntry) -> Self {
        let (unservable, reason_not_to_adopt, in_flight) = (None, None, Duration::ZERO);
        let (unsent, uses_authorizer) = (false, false);
        Self {
            standing,
            unservable,
            reason_not_to_adopt,
            unsent,
            wanted: Ok(()),
            uses_authorizer,
            reads: Vec::new(),
            guarded: true,
            in_flight,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn somebody_calls_a_webhook_at_every_moment(
        delays in (0..10_u32, 0..40_u32, 0..8_u32),
        in_flight in prop_oneof![3 => Just(0_u32), 3 => 0..80_u32, 2 => 80..=600_u32, 1 => Just(6000_u32)],
        events in vec((event(), 1..60_u32), 0..40),
        is_binding in any::<bool>(),
    ) {
        let mut world = World::new(delays);
        world.is_binding = is_binding;
        world.in_flight = in_flight;
        for (event, steps) in events {
            world.happens(event);
            (0..steps).for_each(|_| world.go_on());
        }
        while world.step < world.mute {
            world.go_on();
        }
        // Once nothing happens any more, one of both calls it; but while it is announced in vain now and then.
        let mut once = 0;
        // A fight lasts as long as requests may be held back, which is a minute at most.
        for _ in 0..80 * SECOND + 6 * in_flight.min(600) {
            world.go_on();
            once += u32::from(world.twice == 0);
        }
        let least = match in_flight { 0 => 40, 1..=600 => 10, _ => 0 };
        prop_assert!(once >= least * SECOND, "once for {once} steps");
    }
}

#[test]
fn overlap_of_healthy_replicas_is_less_than_five_seconds() {
    for is_binding in [false, true] {
        overlap_of_healthy_replicas(is_binding);
    }
}

fn overlap_of_healthy_replicas(is_binding: bool) {
    let mut world = World::new((2, 1, 1));
    world.is_binding = is_binding;
    (0..30 * SECOND).for_each(|_| world.go_on());
    assert!(world.carries_now(), "taken");
    world.happens(Event::Replace);
    (0..10 * SECOND).for_each(|_| world.go_on());
    assert!(world.carries_now(), "taken again");
    world.happens(Event::Want(false));
    (0..10 * SECOND).for_each(|_| world.go_on());
    assert!(!world.carries_now(), "given back");
    world.happens(Event::Want(true));
    world.happens(Event::Servable(false));
    (0..10 * SECOND).for_each(|_| world.go_on());
    assert!(!world.carries_now() && world.twice == 0, "left");
    assert!(world.longest < 5 * SECOND, "{} steps", world.longest);
}

#[test]
fn webhook_replaced_repeatedly_is_left_to_the_apiserver() {
    let mut world = World::new((2, 1, 1));
    (0..10 * SECOND).for_each(|_| world.go_on());
    for _ in 0..30 {
        world.happens(Event::Replace);
        (0..2 * SECOND).for_each(|_| world.go_on());
    }
    assert!(!world.carries_now() && world.twice == 0, "left to the apiserver");
    assert!(world.longest < 5 * SECOND, "{} steps", world.longest);
}

#[test]
fn webhook_replaced_right_after_each_take_is_left_to_the_apiserver() {
    for (steps, is_binding) in (0..6).zip([false, true].into_iter().cycle()) {
        let mut world = World::new((2, 1, 1));
        world.is_binding = is_binding;
        world.happens(Event::React(Some(steps)));
        (0..20 * SECOND).for_each(|_| world.go_on());
        assert!(!world.carries_now() && world.twice == 0, "left to the apiserver, {steps} steps");
        world.twice_for = 0;
        (0..240 * SECOND).for_each(|_| world.go_on());
        assert_eq!(world.twice_for, 0, "for minutes, {steps} steps");
    }
}

#[test]
fn webhook_written_all_the_time_is_not_taken() {
    let mut world = World::new((2, 1, 2));
    world.happens(Event::Rotate(Some(1)));
    (0..120 * SECOND).for_each(|_| world.go_on());
    assert!(!world.carries_now(), "every write comes too late");
    assert!(world.twice_for < 40 * SECOND, "called twice for {} steps", world.twice_for);
    world.happens(Event::Rotate(None));
    (0..150 * SECOND).for_each(|_| world.go_on());
    assert!(world.carries_now(), "taken once it can be");
    world.happens(Event::Rotate(Some(1)));
    world.happens(Event::Want(false));
    (0..2 * SECOND).for_each(|_| world.go_on());
    assert!(!world.carries_now(), "given back at once all the same");
}

#[test]
fn next_leader_leaves_a_fought_webhook_to_the_apiserver() {
    let mut world = World::new((2, 1, 1));
    world.happens(Event::React(Some(1)));
    (0..20 * SECOND).for_each(|_| world.go_on());
    assert!(world.twice == 0, "left to the apiserver");
    world.twice_for = 0;
    for replica in [0, 1, 0] {
        world.happens(Event::Kill(replica, 20));
        (0..50 * SECOND).for_each(|_| world.go_on());
    }
    assert_eq!(world.twice_for, 0, "whoever leaderships");
}

#[test]
fn late_write_does_not_take_a_released_webhook() {
    for killed in [false, true] {
        let mut world = World::new((2, 1, 1));
        world.happens(Event::Late(60 * SECOND));
        for _ in 0..30 * SECOND {
            if world.writing.is_empty() {
                world.go_on();
            }
        }
        assert_eq!(world.writing.len(), 1, "the condition is on its way");
        if killed {
            let leader = usize::from(world.holder.starts_with("r1"));
            world.happens(Event::Kill(leader, 300));
        }
        world.happens(Event::Want(false));
        (0..90 * SECOND).for_each(|_| world.go_on());
        assert!(!world.carries_now(), "left");
    }
}

#[test]
fn webhook_dropped_while_nothing_can_be_written_is_skipped_after_the_grace_period() {
    let mut world = World::new((9, 1, 1));
    (0..10 * SECOND).for_each(|_| world.go_on());
    assert!(world.carries_now(), "taken");
    world.happens(Event::Mute(1300 * SECOND));
    // No replica goes by the announcement of a leader that has been silent for so long.
    (0..1250 * SECOND).for_each(|_| world.go_on());
    world.happens(Event::Replace);
    (0..10 * SECOND).for_each(|_| world.go_on());
    assert!(!world.carries_now() && world.twice == 0, "passed over");
}

/// The longest time for which both call it where an owner replaces it again and again, over many moments of each drop.
#[test]
fn overlap_at_the_end_of_a_fight_is_less_than_five_seconds() {
    let mut longest = 0;
    for (offset, slow) in (0..20).zip([1, 2, 3].into_iter().cycle()) {
        let mut world = World::new((9, 1, slow));
        (0..10 * SECOND + offset).for_each(|_| world.go_on());
        for _ in 0..8 {
            world.happens(Event::Replace);
            (0..2 * SECOND).for_each(|_| world.go_on());
        }
        longest = longest.max(world.longest);
    }
    assert!(longest < 5 * SECOND, "{longest} steps");
}

#[test]
fn overlap_after_the_death_of_a_leader_is_less_than_fifteen_seconds() {
    let mut longest = 0;
    for offset in 0..40 {
        for drops in [false, true] {
            let mut world = World::new((2, 1, 2));
            if drops {
                (0..10 * SECOND + offset).for_each(|_| world.go_on());
                world.happens(Event::Replace);
            } else {
                (0..offset).for_each(|_| world.go_on());
            }
            let leader = usize::from(world.holder.starts_with("r1"));
            world.happens(Event::Kill(leader, 3));
            (0..30 * SECOND).for_each(|_| world.go_on());
            longest = longest.max(world.longest);
        }
    }
    assert!(longest < 15 * SECOND, "{longest} steps");
}

/// The condition of a leader that dies comes and goes before anybody reads it; a slow apiserver goes by it for a while.
#[test]
fn webhook_taken_and_dropped_unseen_is_called_for_the_in_flight_time() {
    for (slow, lag) in (1..8).flat_map(|slow| [0, 5, 9].map(|lag| (slow, lag))) {
        for restart in [3, 80, 120] {
            let mut world = World::new((lag, 1, slow));
            world.in_flight = 20 * SECOND;
            for _ in 0..30 * SECOND {
                if !world.carries_now() {
                    world.go_on();
                }
            }
            assert!(world.carries_now(), "taken");
            let leader = usize::from(world.holder.starts_with("r1"));
            world.happens(Event::Kill(leader, restart));
            world.go_on();
            world.happens(Event::Replace);
            world.happens(Event::Want(false));
            (0..90 * SECOND).for_each(|_| world.go_on());
            assert!(!world.carries_now() && world.twice == 0, "left in the end");
        }
    }
}

#[test]
fn webhook_taken_and_given_back_during_a_pause_is_called_at_once() {
    for lag in [0, 5, 9] {
        for steps in 0..40 {
            let mut world = World::new((lag, 1, 1));
            world.in_flight = 5 * SECOND;
            world.happens(Event::Want(false));
            (0..5 * SECOND).for_each(|_| world.go_on());
            let other = usize::from(world.holder.starts_with("r0"));
            // The leader does not wait for it after 30 s.
            world.happens(Event::Pause(other, 60 * SECOND));
            (0..31 * SECOND).for_each(|_| world.go_on());
            world.happens(Event::Want(true));
            for _ in 0..8 * SECOND {
                if !world.carries_now() {
                    world.go_on();
                }
            }
            assert!(world.carries_now(), "taken");
            world.happens(Event::Want(false));
            world.happens(Event::Pause(other, steps));
            (0..20 * SECOND).for_each(|_| world.go_on());
            assert!(!world.carries_now() && world.twice == 0, "given back");
        }
    }
}

/// A replica without a lease (nothing could be written when it started) is paused while the leader, which does not know
/// of it, announces and takes the webhook.
#[test]
fn replica_that_resumes_calls_announced_webhooks_at_once() {
    let mut world = World::new((0, 11, 3));
    for (event, steps) in
        [(Event::Mute(303), 177), (Event::Pause(0, 177), 96), (Event::Late(452), 93), (Event::Nothing, 80 * SECOND)]
    {
        world.happens(event);
        (0..steps).for_each(|_| world.go_on());
    }
    assert!(world.carries_now());
}

/// A replica starts while the webhook carries the condition and cannot be served, and gives it back. Requests that an
/// apiserver held back meanwhile arrive after the webhook can be served.
#[test]
fn webhook_that_becomes_servable_is_called_for_the_in_flight_time() {
    let mut world = World::new((0, 0, 0));
    world.in_flight = 6000;
    for (event, steps) in [
        (Event::Pause(1, 29), 1),
        (Event::Replace, 31),
        (Event::Servable(false), 1),
        (Event::Kill(1, 1), 8),
        (Event::Servable(true), 1),
        (Event::Nothing, 700 * SECOND),
    ] {
        world.happens(event);
        (0..steps).for_each(|_| world.go_on());
    }
    assert!(world.carries_now(), "taken again");
}
