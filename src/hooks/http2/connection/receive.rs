//! What a connection makes of the frames it receives.

use std::ops::Range;

use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    super::{
        frame::{self, DEFAULT_MAX_FRAME, Head, MAX_WINDOW, code, flag, kind, setting},
        header_read::Headers,
    },
    CONNECTION_WINDOW, Connection, LARGEST_FRAME, LAST_ID, STREAM_WINDOW,
};
use crate::model::CallFailure;

/// A header block may be no longer, CONTINUATIONs included.
const LARGEST_BLOCK: usize = 64 << 10;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Takes every whole frame that has been read.
    pub(super) fn frames(&mut self) -> Result<(), String> {
        loop {
            match self.incoming.next_frame() {
                Ok(Some((head, place))) => self.frame(head, place)?,
                Ok(None) => return Ok(()),
                Err(_) => return Err("the hook sent a frame larger than allowed".into()),
            }
        }
    }

    fn frame(&mut self, head: Head, place: Range<usize>) -> Result<(), String> {
        if self.block.is_some() != (head.kind == kind::CONTINUATION) {
            return Err("the hook broke off a header block".into());
        }
        if !self.greeted && head.kind != kind::SETTINGS {
            return Err("the hook does not speak HTTP/2: its first frame is not SETTINGS".into());
        }
        match head.kind {
            kind::DATA => self.data(head, place),
            kind::HEADERS => self.block(head, place),
            kind::CONTINUATION => self.continuation(head, place),
            kind::RST_STREAM => self.reset(head, place),
            kind::SETTINGS => self.settings(head, place),
            kind::PING if !head.has(flag::ACK) => {
                self.refuse_flood()?;
                let (incoming, outgoing) = (&self.incoming, &mut self.outgoing);
                outgoing.heads(|out| frame::put(out, kind::PING, flag::ACK, 0, incoming.payload(place)));
                Ok(())
            }
            kind::GOAWAY => self.goaway(place),
            kind::WINDOW_UPDATE => self.window_update(head, place),
            kind::PUSH_PROMISE => Err("the hook pushes, which was not allowed".into()),
            _ => Ok(()),
        }
    }

    /// A hook that asks for acknowledgements and does not read them must not fill our memory.
    fn refuse_flood(&self) -> Result<(), String> {
        if self.outgoing.queued() > self.limits.batch + 2 * LARGEST_FRAME {
            return Err("the hook floods the connection with PING or SETTINGS".into());
        }
        Ok(())
    }

    fn data(&mut self, head: Head, place: Range<usize>) -> Result<(), String> {
        // Also what comes for a stream that is gone counts against the connection's window.
        self.unreturned += head.len as u32;
        if self.unreturned >= CONNECTION_WINDOW / 2 {
            let back = std::mem::take(&mut self.unreturned);
            self.outgoing.heads(|out| frame::put_window_update(out, 0, back));
        }
        let Some(stream) = self.streams.get_mut(&head.stream) else { return Ok(()) };
        let Some(data) = frame::unpadded(head, self.incoming.payload(place)) else {
            return Err("the hook sent more padding than data".into());
        };
        if let Err(failure) = stream.data(data, self.limits.answer) {
            self.fail(head.stream, failure);
        } else if head.has(flag::END_STREAM) {
            self.finish(head.stream, None);
        } else {
            stream.unreturned += head.len as u32;
            if stream.unreturned >= STREAM_WINDOW / 2 {
                let back = std::mem::take(&mut stream.unreturned);
                self.outgoing.heads(|out| frame::put_window_update(out, head.stream, back));
            }
        }
        Ok(())
    }

    fn block(&mut self, head: Head, place: Range<usize>) -> Result<(), String> {
        let payload = self.incoming.payload(place);
        let Some(mut fragment) = frame::unpadded(head, payload) else {
            return Err("the hook sent more padding than headers".into());
        };
        if head.has(flag::PRIORITY) {
            fragment = fragment.get(5..).ok_or("the hook cut a frame short")?;
        }
        if head.has(flag::END_HEADERS) {
            let headers = self.reader.read(fragment).map_err(|bad| bad.0.to_owned())?;
            self.headers(head, headers);
        } else {
            self.block = Some((head, fragment.to_vec()));
        }
        Ok(())
    }

    fn continuation(&mut self, head: Head, place: Range<usize>) -> Result<(), String> {
        let Some((first, mut block)) = self.block.take() else { return Ok(()) };
        if first.stream != head.stream {
            return Err("the hook broke off a header block".into());
        }
        block.extend_from_slice(self.incoming.payload(place));
        if block.len() > LARGEST_BLOCK {
            return Err("the hook sent a header block larger than 64 KiB".into());
        }
        if head.has(flag::END_HEADERS) {
            let headers = self.reader.read(&block).map_err(|bad| bad.0.to_owned())?;
            self.headers(first, headers);
        } else {
            self.block = Some((first, block));
        }
        Ok(())
    }

    fn headers(&mut self, head: Head, headers: Headers) {
        let Some(stream) = self.streams.get_mut(&head.stream) else { return };
        if stream.has_headers() {
            if head.has(flag::END_STREAM) {
                self.finish(head.stream, Some(headers));
            } else {
                let failure = stream.malformed("it sent headers in the middle of its answer");
                self.fail(head.stream, failure);
            }
        } else if let Some(failure) = stream.headers(headers, self.limits.answer) {
            self.fail(head.stream, failure);
        } else if head.has(flag::END_STREAM) {
            self.finish(head.stream, None);
        }
    }

    fn reset(&mut self, head: Head, place: Range<usize>) -> Result<(), String> {
        let code = number(self.incoming.payload(place))?;
        let Some(stream) = self.streams.remove(&head.stream) else { return Ok(()) };
        let failure = match code {
            // The answer is whole when the hook says it needs no more of the question; without one it is none.
            code::NO_ERROR => stream.malformed("it ended the call without an answer"),
            code::REFUSED_STREAM => CallFailure::Connection("the hook refused the call: it is overloaded".into()),
            other => CallFailure::Connection(format!("the hook reset the call: {}", frame::code_name(other))),
        };
        stream.call.inbox.deliver(stream.call.tag, Err(failure));
        Ok(())
    }

    fn settings(&mut self, head: Head, place: Range<usize>) -> Result<(), String> {
        if head.has(flag::ACK) {
            return Ok(());
        }
        let payload = self.incoming.payload(place);
        if !payload.len().is_multiple_of(6) {
            return Err("the hook sent broken settings".into());
        }
        for entry in payload.chunks_exact(6) {
            let id = u16::from_be_bytes([entry[0], entry[1]]);
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            match id {
                setting::HEADER_TABLE_SIZE => self.writer.table_size(value),
                setting::MAX_CONCURRENT_STREAMS => self.peer_max_streams = value as usize,
                setting::INITIAL_WINDOW_SIZE => {
                    if i64::from(value) > MAX_WINDOW {
                        return Err("the hook asked for a window that is too large".into());
                    }
                    let change = i64::from(value) - self.peer_window;
                    self.peer_window = i64::from(value);
                    for (&id, stream) in &mut self.streams {
                        stream.window += change;
                        if !stream.ready && stream.unsent > 0 && stream.window > 0 {
                            stream.ready = true;
                            self.ready.push_back(id);
                        }
                    }
                }
                setting::MAX_FRAME_SIZE => {
                    if !(DEFAULT_MAX_FRAME..1 << 24).contains(&(value as usize)) {
                        return Err("the hook asked for an impossible frame size".into());
                    }
                    self.peer_max_frame = value as usize;
                }
                _ => {}
            }
        }
        self.greeted = true;
        self.refuse_flood()?;
        self.outgoing.heads(|out| frame::put(out, kind::SETTINGS, flag::ACK, 0, &[]));
        Ok(())
    }

    fn goaway(&mut self, place: Range<usize>) -> Result<(), String> {
        let last = number(self.incoming.payload(place))? & LAST_ID;
        self.last_seen = Some(self.last_seen.map_or(last, |before| before.min(last)));
        Ok(())
    }

    fn window_update(&mut self, head: Head, place: Range<usize>) -> Result<(), String> {
        let increment = i64::from(number(self.incoming.payload(place))? & LAST_ID);
        if head.stream == 0 {
            self.window += increment;
            if self.window > MAX_WINDOW {
                return Err("the hook overflowed the connection's window".into());
            }
        } else if let Some(stream) = self.streams.get_mut(&head.stream) {
            stream.window += increment;
            if stream.window > MAX_WINDOW {
                self.fail(head.stream, CallFailure::Connection("the hook overflowed a window".into()));
            } else if !stream.ready && stream.unsent > 0 && stream.window > 0 {
                stream.ready = true;
                self.ready.push_back(head.stream);
            }
        }
        Ok(())
    }

    // === settling a call ===

    fn finish(&mut self, id: u32, trailers: Option<Headers>) {
        let Some(stream) = self.streams.remove(&id) else { return };
        if stream.unsent > 0 {
            // It answered without hearing us out: it needs no more.
            self.outgoing.heads(|out| frame::put_reset(out, id, code::NO_ERROR));
        }
        let (call, result) = stream.end(trailers);
        call.inbox.deliver(call.tag, result);
    }

    fn fail(&mut self, id: u32, failure: CallFailure) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.outgoing.heads(|out| frame::put_reset(out, id, code::CANCEL));
        stream.call.inbox.deliver(stream.call.tag, Err(failure));
    }
}

/// The number a frame begins with.
fn number(payload: &[u8]) -> Result<u32, String> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).ok_or_else(|| "the hook cut a frame short".to_owned())
}
