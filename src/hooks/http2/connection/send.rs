//! Send: frames of a connection on their way out, and when a call begins.

use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    super::{
        deadlines::Place,
        floods,
        frame::{self, HEAD, MAX_ID},
        stream::Stream,
    },
    Connection, LARGEST_FRAME, now,
};
use crate::hooks::Call;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Begins the calls that wait, as far as the hook and the batch allow.
    pub(super) fn begin_waiting(&mut self) {
        if self.calls.waiting.is_empty() || !self.greeted || self.goodbye.is_some() {
            return;
        }
        let now = now();
        while self.calls.streams.len() < self.peer_max_streams
            && self.next_id <= MAX_ID
            && self.outgoing.queued() < self.limits.batch
        {
            let Some(call) = self.calls.waiting.pop() else { break };
            if call.deadline > now && !call.is_abandoned() {
                self.begin(call, now);
            }
        }
    }

    fn begin(&mut self, call: Call, now: Instant) {
        let id = self.next_id;
        self.next_id += 2;
        let timeout = call.deadline.saturating_duration_since(now);
        let writer = &mut self.writer;
        self.outgoing.block(id, |out| {
            let head = out.len();
            out.extend_from_slice(&[0; HEAD]);
            let relied_on = writer.write(&call, timeout, out);
            frame::finish_block(out, head, id);
            !relied_on
        });
        self.deadlines.push(call.deadline, Place::Stream(id));
        let calls = &self.calls;
        self.deadlines.tidy(calls.len(), |place| calls.holds(place) || place == Place::Stream(id));
        if self.ready.len() > 64 + 2 * calls.len() {
            // Nothing leaves it while the hook gives no room.
            self.ready.retain(|id| calls.streams.contains_key(id));
        }
        self.floods.earn(floods::CALL);
        let mut stream = Stream::new(call, self.peer_window, &self.limits.answers);
        stream.queued_to = self.outgoing.end();
        stream.ready = true;
        self.calls.streams.insert(id, stream);
        self.ready.push_back(id);
    }

    /// Queues frames of the ready streams in turn, until a batch is full or the windows are.
    pub(super) fn fill(&mut self) {
        let largest = self.peer_max_frame.min(LARGEST_FRAME);
        while self.outgoing.queued() < self.limits.batch && self.window > 0 {
            let Some(id) = self.ready.pop_front() else { break };
            let Some(stream) = self.calls.streams.get_mut(&id) else { continue };
            let len = stream.unsent.min(largest).min(self.window.min(stream.window).max(0) as usize);
            // Of an empty body only the end is sent.
            if len > 0 || stream.unsent == 0 {
                stream.send(id, len, &mut self.outgoing);
                stream.window -= len as i64;
                self.window -= len as i64;
                self.floods.earn_bytes(len);
            }
            // A stream whose window is shut leaves the queue; a WINDOW_UPDATE brings it back.
            stream.ready = stream.unsent > 0 && stream.window > 0;
            if stream.ready {
                self.ready.push_back(id);
            }
        }
    }
}
