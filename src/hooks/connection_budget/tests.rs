use std::task::{Context, Poll, Waker};

use super::*;

fn all(share: &Arc<Share>) -> Vec<Slot> {
    std::iter::from_fn(|| share.try_take().and_then(Result::ok)).collect()
}

#[test]
fn one_hook_has_a_limit_of_connections() {
    let budget = ConnectionBudget::new(10_000);
    let share = budget.share(3);
    assert_eq!(all(&share).len(), MAX_CONNECTIONS_PER_HOOK);
    assert_eq!(budget.open(), 0, "all let go");
    let many = ConnectionBudget::new(10_000);
    assert_eq!(all(&many.share(200)).len(), 201, "every client has one");
}

#[test]
fn greedy_hooks_leave_the_guaranteed_connections_of_others() {
    let budget = ConnectionBudget::new(100);
    let hungry: Vec<_> = (0..4).map(|_| budget.share(3)).collect();
    let taken: Vec<_> = hungry.iter().map(all).collect();
    assert_eq!(taken.iter().map(Vec::len).sum::<usize>(), 100);
    // A hook that is configured only now.
    let late = budget.share(3);
    assert!(matches!(late.try_take(), Some(Err(Exhausted { limit: 100 }))), "never above the limit");
    drop(taken);
    let taken: Vec<_> = hungry.iter().map(all).collect();
    assert_eq!(taken.iter().map(Vec::len).sum::<usize>(), 96);
    assert_eq!(all(&late).len(), 4);
    drop((taken, late));
    drop(hungry);
    assert_eq!((budget.open(), budget.shared.available_permits()), (0, 100));
}

#[test]
fn more_hooks_than_connections_share_them() {
    let budget = ConnectionBudget::new(10);
    let shares: Vec<_> = (0..5).map(|_| budget.share(3)).collect();
    let taken: Vec<_> = shares.iter().flat_map(all).collect();
    assert_eq!(taken.len(), 10);
    assert_eq!((*budget.owed.lock().expect("whole"), budget.missing()), (10, 10));
    drop(taken);
    assert_eq!(budget.missing(), 10, "however few are in use");
    drop(shares);
    assert_eq!(budget.missing(), 0);
    assert_eq!((budget.open(), budget.shared.available_permits()), (0, 10));
    assert_eq!(*budget.owed.lock().expect("whole"), 0);
}

#[test]
fn waiting_clients_get_connections_in_order() {
    let budget = ConnectionBudget::new(1000);
    let share = budget.share(1);
    let mut taken = all(&share);
    let mut cx = Context::from_waker(Waker::noop());
    let mut first = Box::pin(share.clone().take());
    let mut second = Box::pin(share.clone().take());
    assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
    assert_eq!((share.waiting(), share.others_wait()), (2, false), "it is no business of other hooks");
    taken.pop();
    assert!(second.as_mut().poll(&mut cx).is_pending());
    let Poll::Ready(Ok(slot)) = first.as_mut().poll(&mut cx) else { panic!("the first is served") };
    drop(first);
    assert!(share.try_take().is_none(), "nobody overtakes");
    drop(slot);
    assert!(second.as_mut().poll(&mut cx).is_ready());
    drop(second);
    assert_eq!(share.waiting(), 0);
}

#[test]
fn a_wait_for_a_shared_connection_is_visible_to_all_hooks() {
    let budget = ConnectionBudget::new(8);
    let (busy, other) = (budget.share(1), budget.share(1));
    let mut taken = all(&other);
    assert_eq!(taken.iter().filter(|slot| slot.is_beyond_guarantee()).count(), 4);
    let mut own = all(&busy);
    assert_eq!(own.len(), 2, "what it is guaranteed");
    let mut cx = Context::from_waker(Waker::noop());
    let mut waits = Box::pin(busy.clone().take());
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    assert_eq!((other.others_wait(), other.waiting()), (true, 0));
    drop(taken.pop());
    let Poll::Ready(Ok(_shared)) = waits.as_mut().poll(&mut cx) else { panic!("there is room") };
    drop(waits);
    assert!(!other.others_wait());
    // One of its own will do as well.
    let mut waits = Box::pin(busy.clone().take());
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    own.pop();
    assert!(waits.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn a_cancelled_wait_takes_no_connection() {
    let budget = ConnectionBudget::new(1000);
    let share = budget.share(1);
    let taken = all(&share);
    let mut cx = Context::from_waker(Waker::noop());
    let mut waits = Box::pin(share.clone().take());
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    drop(taken);
    drop(waits);
    assert_eq!((share.waiting(), all(&share).len()), (0, MAX_CONNECTIONS_PER_HOOK));
}
