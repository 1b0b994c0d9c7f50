//! Call: one call of one hook, and its result: a reply, or a failure with the evidence on whether the hook has
//! processed the call.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::Instant,
};

use smallvec::SmallVec;

use super::{protocol::HookRequest, reply::Reply};
use gatepost_api::{CallFailure, ForwardedContext, Rope};

/// Maximum number of resends of a call that its hook has not processed.
const MAX_RESENDS: u8 = 2;

/// A call of one hook. Its clones share the body.
#[derive(Clone, Debug)]
pub struct Call {
    /// Request to send.
    pub request: HookRequest,
    /// The encoded review, shared by all hooks with this encoding.
    pub body: Rope,
    /// Deadline of the hook's answer. The time left is sent as `grpc-timeout`.
    pub deadline: Instant,
    /// Receiver of the answer.
    pub responses: Arc<Responses>,
    /// Tag of the call in `responses`.
    pub tag: u32,
    /// Connections that may carry it.
    pub reuse: Reuse,
    /// Number of earlier sends that were not processed, for messages.
    pub resends: u8,
    /// Headers that go on to the hook. Their `hops` count this Gatepost too.
    pub forwarded: ForwardedContext,
}

impl Call {
    /// Returns true if its responses are closed.
    pub(super) fn is_abandoned(&self) -> bool {
        self.responses.is_closed()
    }
}

/// A call without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// Reason why there is no answer.
    pub failure: CallFailure,
    /// Evidence on whether the hook has processed it.
    pub evidence: ProcessingEvidence,
}

impl From<CallFailure> for FailedCall {
    /// Without evidence.
    fn from(failure: CallFailure) -> Self {
        Self { failure, evidence: ProcessingEvidence::Unknown }
    }
}

/// Evidence on whether a hook has processed a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessingEvidence {
    /// It may have processed the call, in part or as a whole.
    Unknown,
    /// It has not: the hook itself reset the stream with REFUSED_STREAM. RFC 9113 §8.7.
    Refused,
    /// It has not: the hook's GOAWAY names an earlier stream as the last one. RFC 9113 §6.8.
    BeyondGoAway,
    /// It probably has not: a reused HTTP/1.1 connection ended before the first byte of the answer.
    ReusedConnectionEnded {
        /// True if some of the call may have reached the hook.
        may_have_arrived: bool,
    },
}

/// Connections that may carry a call over HTTP/1.1. An HTTP/2 hook has one connection per worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// An idle connection, or else a new one.
    #[default]
    Allowed,
    /// A new connection only.
    Forbidden,
}

impl ProcessingEvidence {
    /// Returns which connections may carry the next send of a call that was resent `resends` times; `None` if the call
    /// must not be resent.
    ///
    /// Call this before sending again: the transport only reports the evidence, and sends no call twice by itself.
    pub fn reuse_for_resend(self, resends: u8, idempotent: bool) -> Option<Reuse> {
        match self {
            Self::Unknown => None,
            // Once, as Go does: the hook may have had too many calls at that moment.
            Self::Refused => (resends == 0).then_some(Reuse::Allowed),
            Self::BeyondGoAway => (resends < MAX_RESENDS).then_some(Reuse::Allowed),
            Self::ReusedConnectionEnded { may_have_arrived } => {
                (resends < MAX_RESENDS && (idempotent || !may_have_arrived)).then_some(Reuse::Forbidden)
            }
        }
    }
}

/// Result of one call: the call's tag, and the hook's reply or its failure.
pub type Arrival = (u32, Result<Reply, FailedCall>);

/// Receiver of the results of one request's calls, in the order of their arrival. One allocation for each request,
/// not for each hook.
///
/// A call whose deadline passes delivers no result. The owner must time it out itself: in a review, only `on_alarm` of
/// `review::round` does so.
#[derive(Debug, Default)]
pub struct Responses {
    state: Mutex<ResponsesState>,
    are_spare: bool,
}

#[derive(Debug, Default)]
struct ResponsesState {
    arrived: SmallVec<[Arrival; 4]>,
    waker: Option<Waker>,
    closed: bool,
}

impl Responses {
    /// Creates a receiver of answers on which a verdict depends, or of spare ones, which are the first to go without
    /// memory.
    pub fn new(are_spare: bool) -> Self {
        Self { are_spare, ..Self::default() }
    }

    /// Returns true if no verdict depends on the answers.
    pub(super) fn are_spare(&self) -> bool {
        self.are_spare
    }

    fn state(&self) -> MutexGuard<'_, ResponsesState> {
        // Nothing panics while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the result of one call, and wakes the owner.
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

    /// Waits for the next result, and takes all that have arrived.
    pub async fn take(&self) -> SmallVec<[Arrival; 4]> {
        poll_fn(|cx| {
            let mut state = self.state();
            if !state.arrived.is_empty() {
                return Poll::Ready(std::mem::take(&mut state.arrived));
            }
            match &mut state.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }

    /// Takes all results that have arrived.
    pub(super) fn take_now(&self) -> SmallVec<[Arrival; 4]> {
        std::mem::take(&mut self.state().arrived)
    }

    /// Drops later results. Calls without an answer can then be cancelled.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_was_not_processed_is_resent_at_most_twice() {
        use Reuse::{Allowed, Forbidden};
        let (unsent, silent) = (
            ProcessingEvidence::ReusedConnectionEnded { may_have_arrived: false },
            ProcessingEvidence::ReusedConnectionEnded { may_have_arrived: true },
        );
        for (evidence, idempotent, connections) in [
            (ProcessingEvidence::Unknown, true, [None, None, None]),
            (ProcessingEvidence::Refused, false, [Some(Allowed), None, None]),
            (ProcessingEvidence::BeyondGoAway, false, [Some(Allowed), Some(Allowed), None]),
            (unsent, false, [Some(Forbidden), Some(Forbidden), None]),
            (silent, false, [None, None, None]),
            (silent, true, [Some(Forbidden), Some(Forbidden), None]),
        ] {
            let chosen = [0, 1, 2].map(|resends| evidence.reuse_for_resend(resends, idempotent));
            assert_eq!(chosen, connections, "{evidence:?}, idempotent: {idempotent}");
        }
    }
}
