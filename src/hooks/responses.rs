//! Responses: receiver of the answers to one request's calls.

use std::{
    future::poll_fn,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use smallvec::SmallVec;

use super::{FailedCall, reply::Reply};

/// Result of one call: the call's tag, and the hook's reply or its failure.
pub type Arrival = (u32, Result<Reply, FailedCall>);

/// Receiver of the answers to one request's calls, in the order they come. One allocation a request, however many hooks
/// there are.
#[derive(Debug, Default)]
pub struct Responses(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    arrived: SmallVec<[Arrival; 4]>,
    waker: Option<Waker>,
    closed: bool,
}

impl Responses {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held; and if it did, the list would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in what came back from one call, and wakes the owner.
    pub(super) fn deliver(&self, tag: u32, result: Result<Reply, FailedCall>) {
        let waker = {
            let mut state = self.state();
            if state.closed {
                return;
            }
            state.arrived.push((tag, result));
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits until something has arrived, then takes all of it.
    pub async fn take(&self) -> SmallVec<[Arrival; 4]> {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.arrived.is_empty() {
                match &mut state.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                Poll::Pending
            } else {
                Poll::Ready(std::mem::take(&mut state.arrived))
            }
        })
        .await
    }

    /// Takes all that has arrived.
    pub(super) fn take_now(&self) -> SmallVec<[Arrival; 4]> {
        std::mem::take(&mut self.state().arrived)
    }

    /// Nothing more is wanted: later answers are dropped, calls not yet answered may be cancelled.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.waker = None;
        state.arrived = SmallVec::new();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }
}
