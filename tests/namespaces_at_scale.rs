//! Ten thousand namespaces that change a hundred times a second: memory has a bound, and readers see one state.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicIsize, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Instant,
};

use gatepost::live::Namespaces;
use gatepost_api::Labels;
use tracking_allocator::{AllocationGroupId, AllocationGroupToken, AllocationRegistry, AllocationTracker, Allocator};

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

/// Bytes allocated by the measured steps and not freed, whoever frees them.
static LIVE: AtomicIsize = AtomicIsize::new(0);

struct Counter;

impl AllocationTracker for Counter {
    fn allocated(&self, _: usize, size: usize, _: usize, group: AllocationGroupId) {
        if group != AllocationGroupId::ROOT {
            LIVE.fetch_add(size as isize, Ordering::Relaxed);
        }
    }

    fn deallocated(&self, _: usize, size: usize, _: usize, source: AllocationGroupId, _: AllocationGroupId) {
        if source != AllocationGroupId::ROOT {
            LIVE.fetch_sub(size as isize, Ordering::Relaxed);
        }
    }
}

const NAMESPACES: usize = 10_000;

fn name(number: usize) -> String {
    format!("team-{number}-production")
}

/// Labels of a namespace in a managed cluster: five of them, two with the same number.
fn labels(number: usize) -> Labels {
    let number = number.to_string();
    [
        ("kubernetes.io/metadata.name", "a-name-of-some-length"),
        ("pod-security.kubernetes.io/enforce", "baseline"),
        ("example.com/cost-centre", "4711"),
        ("one", &number),
        ("other", &number),
    ]
    .into_iter()
    .collect()
}

#[test]
fn namespace_memory_is_bounded() {
    AllocationRegistry::set_global_tracker(Counter).expect("the only tracker");
    AllocationRegistry::enable_tracking();
    let mut group = AllocationGroupToken::register().expect("a group");
    let measured = group.enter();

    let (namespaces, questions) = Namespaces::new(Instant::now());
    namespaces.replace((0..NAMESPACES).map(|number| (name(number).into(), labels(0))));
    let listed = LIVE.load(Ordering::Relaxed);
    assert!((1 << 20..16 << 20).contains(&listed), "{NAMESPACES} namespaces take {listed} bytes");

    // Three minutes of a hundred changes a second.
    for change in 0..20_000 {
        namespaces.set(&name(change % NAMESPACES), labels(change % 10));
    }
    let changed = LIVE.load(Ordering::Relaxed);
    assert!(changed - listed < listed / 10, "{listed} bytes have become {changed}");
    for number in 0..NAMESPACES / 2 {
        namespaces.remove(&name(number));
    }
    let halved = LIVE.load(Ordering::Relaxed);
    assert!(halved < changed * 3 / 4, "{changed} bytes have become {halved}: what is gone is freed");

    // Everybody asks about a namespace of their own, and nobody answers: so many wait, the others are answered at once.
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = Vec::new();
    let mut events = 0;
    for number in 0..20_000 {
        let namespaces = Arc::clone(&namespaces);
        let mut asking = Box::pin(async move { namespaces.look_up(&format!("unknown-{number}")).await });
        match asking.as_mut().poll(&mut context) {
            Poll::Pending => waiting.push(asking),
            Poll::Ready(answer) => events += usize::from(answer.is_err()),
        }
    }
    assert_eq!((waiting.len(), events), (1024, 20_000 - 1024));
    assert_eq!(namespaces.len(), NAMESPACES / 2, "what is asked about is not kept");
    let flooded = LIVE.load(Ordering::Relaxed);
    assert!(flooded - halved < 4 << 20, "{halved} bytes have become {flooded}");
    drop((waiting, questions));
    drop(measured);
}

#[test]
fn readers_see_each_namespace_in_one_state_and_never_lose_one() {
    let (namespaces, _questions) = Namespaces::new(Instant::now());
    namespaces.replace((0..NAMESPACES).map(|number| (name(number).into(), labels(0))));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..2 {
            let (namespaces, over) = (&namespaces, &over);
            scope.spawn(move || {
                let mut number = reader;
                while !over.load(Ordering::Relaxed) {
                    number = (number + 7919) % NAMESPACES;
                    let seen = namespaces.get(&name(number)).expect("it is never removed");
                    assert_eq!(seen.get("one"), seen.get("other"));
                }
            });
        }
        for change in 0..NAMESPACES {
            namespaces.set(&name(change), labels(change));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(namespaces.get(&name(NAMESPACES - 1)).as_deref(), Some(&labels(NAMESPACES - 1)));
}
