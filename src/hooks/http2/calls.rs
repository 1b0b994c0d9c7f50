//! Calls: those that a connection has not settled yet.

use rustc_hash::FxHashMap;

use super::{deadlines::Place, stream::Stream, waiting::Waiting};
use crate::model::CallFailure;

/// The calls that a connection has not settled yet. None is ever lost: should the connection end without having settled
/// them, because its task is dropped or panics, they have failed.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) streams: FxHashMap<u32, Stream>,
    pub(super) waiting: Waiting,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.streams.len() + self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.waiting.is_empty()
    }

    /// Is there still a call at this place?
    pub(super) fn holds(&self, place: Place) -> bool {
        match place {
            Place::Waiting(ticket) => self.waiting.waits(ticket),
            Place::Stream(id) => self.streams.contains_key(&id),
        }
    }

    /// None of them will be answered, and this is why.
    pub(super) fn fail(&mut self, why: &str) {
        let waiting = std::iter::from_fn(|| self.waiting.pop());
        for call in self.streams.drain().map(|(_, stream)| stream.call).chain(waiting) {
            call.inbox.deliver(call.tag, Err(CallFailure::Connection(why.to_owned())));
        }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.fail("gatepost gave the connection up");
    }
}
