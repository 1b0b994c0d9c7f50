//! How a connection's calls end: with an answer, without one, or elsewhere.

use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    super::{
        deadlines::Place,
        fault::Fault,
        frame::{self, MAX_ID, code},
        header_read::Headers,
        stream::Stream,
    },
    Connection, STALLED_AFTER,
};
use crate::model::CallFailure;

/// So often a call is sent anew that the hook says it has not looked at.
const MOST_RESENDS: u8 = 2;
/// Who has begun to answer has looked at the question: to ask anew might do twice what it does.
const BEGUN: &str = "it began to answer a call, and then said that it had not looked at it";

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// The hook has ended its side of a call.
    pub(super) fn finish(&mut self, id: u32, trailers: Option<Headers>) -> Result<(), Fault> {
        let Some(stream) = self.calls.streams.remove(&id) else { return Ok(()) };
        self.answered = true;
        let queued = self.outgoing.holds(stream.queued_to);
        if queued {
            self.take_back(&[id])?;
        }
        if queued || stream.unsent > 0 {
            // It answered without hearing us out: it needs no more.
            self.outgoing.control(|out| frame::put_reset(out, id, code::NO_ERROR));
        }
        let (call, result) = stream.end(trailers);
        call.inbox.deliver(call.tag, result);
        Ok(())
    }

    /// A call has failed because of what the hook sent.
    pub(super) fn fail(&mut self, id: u32, code: u32, failure: CallFailure) -> Result<(), Fault> {
        let Some(stream) = self.calls.streams.remove(&id) else { return Ok(()) };
        let (call, reset) = (stream.call.clone(), self.reset_all(vec![(id, stream)], code));
        call.inbox.deliver(call.tag, Err(failure));
        reset
    }

    /// The hook refuses a call that it has not looked at. It is asked once more, as Go does: it may have had too many at
    /// that moment.
    pub(super) fn refused(&mut self, id: u32) -> Result<(), Fault> {
        let Some(stream) = self.calls.streams.remove(&id) else { return Ok(()) };
        if self.outgoing.holds(stream.queued_to) {
            self.take_back(&[id])?;
        }
        if stream.has_headers() {
            let failure = stream.malformed(BEGUN);
            stream.call.inbox.deliver(stream.call.tag, Err(failure));
            return Ok(());
        }
        let mut call = stream.call;
        if call.resends > 0 {
            let why = "the hook refused the call: it is overloaded";
            call.inbox.deliver(call.tag, Err(CallFailure::Connection(why.into())));
            return Ok(());
        }
        call.resends += 1;
        if self.goodbye.is_some() || self.next_id > MAX_ID {
            self.unseen.push(call);
        } else {
            self.calls.waiting.push(call);
        }
        Ok(())
    }

    /// Calls beyond the last stream that the hook will look at are to be asked elsewhere, so many times.
    pub(super) fn leave_unseen(&mut self) -> Result<(), Fault> {
        let Some(goodbye) = self.goodbye else { return Ok(()) };
        let unseen = self.calls.streams.extract_if(|id, _| *id > goodbye.last_seen).collect::<Vec<_>>();
        let ids = unseen.iter().filter(|(_, stream)| self.outgoing.holds(stream.queued_to)).map(|(id, _)| *id);
        let ids: Vec<u32> = ids.collect();
        for (_, stream) in unseen {
            let failure = stream.has_headers().then(|| stream.malformed(BEGUN));
            let mut call = stream.call;
            if let Some(failure) = failure {
                call.inbox.deliver(call.tag, Err(failure));
            } else if call.resends < MOST_RESENDS {
                call.resends += 1;
                self.unseen.push(call);
            } else {
                let why = format!("the hook took the call on none of {} connections: {goodbye}", call.resends + 1);
                call.inbox.deliver(call.tag, Err(CallFailure::Connection(why)));
            }
        }
        self.take_back(&ids)
    }

    /// Lets go of the calls for which nobody waits any more.
    pub(super) fn sweep(&mut self) -> Result<(), Fault> {
        self.calls.waiting.sweep();
        let over = self.calls.streams.extract_if(|_, stream| stream.call.is_abandoned()).collect();
        self.reset_all(over, code::CANCEL)
    }

    /// Lets go of the calls whose time is over, and of a connection that takes nothing.
    pub(super) fn expire(&mut self, now: Instant) -> Result<(), Fault> {
        let mut late = Vec::new();
        loop {
            let calls = &self.calls;
            match self.deadlines.next_late(now, |place| calls.holds(place)) {
                Some(Place::Waiting(ticket)) => drop(self.calls.waiting.take(ticket)),
                Some(Place::Stream(id)) => late.extend(self.calls.streams.remove(&id).map(|stream| (id, stream))),
                None => break,
            }
        }
        self.reset_all(late, code::CANCEL)?;
        let stuck = self.stalled.is_some_and(|since| now.duration_since(since) >= STALLED_AFTER);
        if stuck && (self.outgoing.queued() > 0 || !self.flushed) {
            return Err(Fault::lost("the hook has taken nothing of what it was sent for 10 s"));
        }
        Ok(())
    }

    /// Takes back what is queued of streams that are over, and resets those of which the hook has heard.
    fn reset_all(&mut self, over: Vec<(u32, Stream)>, code: u32) -> Result<(), Fault> {
        let queued = over.iter().filter(|(_, stream)| self.outgoing.holds(stream.queued_to)).map(|(id, _)| *id);
        let mut queued: Vec<u32> = queued.collect();
        let mut unheard = Vec::new();
        if !queued.is_empty() {
            queued.sort_unstable();
            unheard = self.unheard(&queued)?;
        }
        for (id, _) in over {
            if unheard.binary_search(&id).is_err() {
                self.outgoing.control(|out| frame::put_reset(out, id, code));
            }
        }
        Ok(())
    }

    pub(super) fn take_back(&mut self, ids: &[u32]) -> Result<(), Fault> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        if ids.is_empty() { Ok(()) } else { self.unheard(&ids).map(drop) }
    }

    /// Takes back what is queued of these streams. Returns those of which the hook has heard nothing; both in order.
    fn unheard(&mut self, ids: &[u32]) -> Result<Vec<u32>, Fault> {
        let taken = self.outgoing.take_back(|id| ids.binary_search(&id).is_ok());
        self.window += taken.data as i64;
        if taken.copied > 0 {
            // Only the frame in front is ever begun: what was copied of another one before has left by now.
            self.remains.shrink_to(taken.copied);
            if !self.remains.try_grow(taken.copied - self.remains.bytes()) {
                return Err(Fault::lost("gatepost has no memory budget left for what the hook does not read"));
            }
        }
        Ok(taken.unheard.to_vec())
    }
}
