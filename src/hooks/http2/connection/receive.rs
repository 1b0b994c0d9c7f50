//! What a connection makes of the frames it receives.

use std::ops::Range;

use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    super::{
        fault::Fault,
        frame::{self, DEFAULT_MAX_FRAME, Head, MAX_ID, MAX_WINDOW, code, flag, kind, setting},
        goodbye::Goodbye,
        header_read::Headers,
        rules,
        stream::STREAM_WINDOW,
    },
    CONNECTION_WINDOW, Connection, LARGEST_FRAME, now,
};
use crate::model::CallFailure;

/// A header block may be no longer, CONTINUATIONs included.
const LARGEST_BLOCK: usize = 64 << 10;
/// Nor in more frames than this: they may be empty.
const MOST_CONTINUATIONS: usize = 32;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Takes every whole frame that has been read.
    pub(super) fn frames(&mut self) -> Result<(), Fault> {
        loop {
            match self.incoming.next_frame() {
                Ok(Some((head, place))) => self.frame(head, place)?,
                Ok(None) => return Ok(()),
                Err(_) => return Err(Fault::frame_size("the hook sent a frame larger than allowed")),
            }
        }
    }

    fn frame(&mut self, head: Head, place: Range<usize>) -> Result<(), Fault> {
        if self.block.is_some() != (head.kind == kind::CONTINUATION) {
            return Err(Fault::protocol("the hook broke off a header block"));
        }
        if !self.greeted && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(Fault::protocol("the hook does not speak HTTP/2: its first frame is not SETTINGS"));
        }
        rules::check(head)?;
        if rules::needs_stream(head) && (head.stream.is_multiple_of(2) || head.stream >= self.next_id) {
            return Err(Fault::protocol("the hook spoke of a stream that was never opened"));
        }
        let worth = if head.kind == kind::DATA { 0 } else { head.len };
        if !self.floods.spend(worth, now) {
            return Err(Fault::flood("the hook floods the connection with frames that answer nothing"));
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
                outgoing.control(|out| frame::put(out, kind::PING, flag::ACK, 0, incoming.payload(place)));
                Ok(())
            }
            kind::GOAWAY => self.goaway(place),
            kind::WINDOW_UPDATE => self.window_update(head, place),
            _ => Ok(()),
        }
    }

    /// A hook that asks for acknowledgements and does not read them must not fill our memory.
    fn refuse_flood(&self) -> Result<(), Fault> {
        if self.outgoing.queued() > self.limits.batch + 2 * LARGEST_FRAME {
            return Err(Fault::flood("the hook floods the connection with PING or SETTINGS"));
        }
        Ok(())
    }

    fn data(&mut self, head: Head, place: Range<usize>) -> Result<(), Fault> {
        // Also what comes for a stream that is gone counts against the connection's window.
        self.granted = self
            .granted
            .checked_sub(head.len as u32)
            .ok_or(Fault::flow("the hook sent more than the connection's window"))?;
        self.unreturned += head.len as u32;
        if self.unreturned >= CONNECTION_WINDOW / 2 {
            let back = std::mem::take(&mut self.unreturned);
            self.granted += back;
            self.outgoing.control(|out| frame::put_window_update(out, 0, back));
        }
        let Some(data) = frame::unpadded(head, self.incoming.payload(place)) else {
            return Err(Fault::protocol("the hook sent more padding than data"));
        };
        let Some(stream) = self.calls.streams.get_mut(&head.stream) else { return Ok(()) };
        self.floods.earn_bytes(data.len());
        let Some(granted) = stream.granted.checked_sub(head.len as u32) else {
            let failure = stream.malformed("it sent more than the stream's window");
            return self.fail(head.stream, code::FLOW_CONTROL_ERROR, failure);
        };
        stream.granted = granted;
        if let Err(failure) = stream.data(data, self.limits.answer) {
            return self.fail(head.stream, code::CANCEL, failure);
        }
        if head.has(flag::END_STREAM) {
            return self.finish(head.stream, None);
        }
        stream.unreturned += head.len as u32;
        if stream.unreturned >= STREAM_WINDOW / 2 {
            let back = std::mem::take(&mut stream.unreturned);
            stream.granted += back;
            self.outgoing.control(|out| frame::put_window_update(out, head.stream, back));
        }
        Ok(())
    }

    fn block(&mut self, head: Head, place: Range<usize>) -> Result<(), Fault> {
        let payload = self.incoming.payload(place);
        let Some(mut fragment) = frame::unpadded(head, payload) else {
            return Err(Fault::protocol("the hook sent more padding than headers"));
        };
        if head.has(flag::PRIORITY) {
            fragment = fragment.get(5..).ok_or(Fault::frame_size("the hook cut a frame short"))?;
        }
        if head.has(flag::END_HEADERS) {
            let headers = self.reader.read(fragment).map_err(|bad| Fault::compression(bad.0))?;
            return self.headers(head, headers);
        }
        self.block = Some((head, fragment.to_vec(), 0));
        Ok(())
    }

    fn continuation(&mut self, head: Head, place: Range<usize>) -> Result<(), Fault> {
        let Some((first, mut block, before)) = self.block.take() else { return Ok(()) };
        if first.stream != head.stream {
            return Err(Fault::protocol("the hook broke off a header block"));
        }
        block.extend_from_slice(self.incoming.payload(place));
        if block.len() > LARGEST_BLOCK {
            return Err(Fault::flood("the hook sent a header block larger than 64 KiB"));
        }
        if before == MOST_CONTINUATIONS {
            return Err(Fault::flood("the hook sent a header block in too many frames"));
        }
        if head.has(flag::END_HEADERS) {
            let headers = self.reader.read(&block).map_err(|bad| Fault::compression(bad.0))?;
            return self.headers(first, headers);
        }
        self.block = Some((first, block, before + 1));
        Ok(())
    }

    fn headers(&mut self, head: Head, headers: Headers) -> Result<(), Fault> {
        let Some(stream) = self.calls.streams.get_mut(&head.stream) else { return Ok(()) };
        let last = head.has(flag::END_STREAM);
        let broken = match headers.malformed {
            None if stream.has_headers() && !last => Some("it sent headers in the middle of its answer"),
            None if headers.is_interim() && last => Some("it ended the call with headers that announce others"),
            malformed => malformed,
        };
        if let Some(what) = broken {
            let failure = stream.malformed(what);
            return self.fail(head.stream, code::PROTOCOL_ERROR, failure);
        }
        if stream.has_headers() {
            return self.finish(head.stream, Some(headers));
        }
        match stream.headers(headers, self.limits.answer) {
            Some(failure) => self.fail(head.stream, code::CANCEL, failure),
            None if last => self.finish(head.stream, None),
            None => Ok(()),
        }
    }

    fn reset(&mut self, head: Head, place: Range<usize>) -> Result<(), Fault> {
        let code = number(self.incoming.payload(place))?;
        if code == code::REFUSED_STREAM {
            return self.refused(head.stream);
        }
        let Some(stream) = self.calls.streams.remove(&head.stream) else { return Ok(()) };
        let failure = match code {
            // The answer is whole when the hook says it needs no more of the question; without one it is none.
            code::NO_ERROR => stream.malformed("it ended the call without an answer"),
            other => CallFailure::Connection(format!("the hook reset the call: {}", frame::code_name(other))),
        };
        stream.call.inbox.deliver(stream.call.tag, Err(failure));
        if self.outgoing.holds(stream.queued_to) { self.take_back(&[head.stream]) } else { Ok(()) }
    }

    fn settings(&mut self, head: Head, place: Range<usize>) -> Result<(), Fault> {
        if head.has(flag::ACK) {
            return Ok(());
        }
        let payload = self.incoming.payload(place);
        // Of a window that is said several times only the last counts: each change goes through all streams.
        let mut window = self.peer_window;
        for entry in payload.chunks_exact(6) {
            let id = u16::from_be_bytes([entry[0], entry[1]]);
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            match id {
                setting::HEADER_TABLE_SIZE => self.writer.table_size(value),
                setting::MAX_CONCURRENT_STREAMS => self.peer_max_streams = value as usize,
                setting::INITIAL_WINDOW_SIZE => {
                    if i64::from(value) > MAX_WINDOW {
                        return Err(Fault::flow("the hook asked for a window that is too large"));
                    }
                    window = i64::from(value);
                }
                setting::ENABLE_PUSH if value != 0 => {
                    return Err(Fault::protocol("the hook asked to be pushed to, which only clients may"));
                }
                setting::MAX_FRAME_SIZE => {
                    if !(DEFAULT_MAX_FRAME..1 << 24).contains(&(value as usize)) {
                        return Err(Fault::protocol("the hook asked for an impossible frame size"));
                    }
                    self.peer_max_frame = value as usize;
                }
                _ => {}
            }
        }
        self.resize_windows(window)?;
        self.greeted = true;
        self.refuse_flood()?;
        self.outgoing.control(|out| frame::put(out, kind::SETTINGS, flag::ACK, 0, &[]));
        Ok(())
    }

    fn goaway(&mut self, place: Range<usize>) -> Result<(), Fault> {
        self.goodbye = Some(Goodbye::read(self.incoming.payload(place), self.goodbye)?);
        self.leave_unseen()
    }

    /// The hook has another opinion of the room that each stream begins with.
    fn resize_windows(&mut self, window: i64) -> Result<(), Fault> {
        let change = window - self.peer_window;
        if change == 0 {
            return Ok(());
        }
        self.peer_window = window;
        for (&id, stream) in &mut self.calls.streams {
            stream.window += change;
            if stream.window > MAX_WINDOW {
                return Err(Fault::flow("the hook overflowed a window"));
            }
            if !stream.ready && stream.unsent > 0 && stream.window > 0 {
                stream.ready = true;
                self.ready.push_back(id);
            }
        }
        Ok(())
    }

    fn window_update(&mut self, head: Head, place: Range<usize>) -> Result<(), Fault> {
        let increment = i64::from(number(self.incoming.payload(place))? & MAX_ID);
        if head.stream == 0 {
            if increment == 0 {
                return Err(Fault::protocol("the hook gave no room on the connection, and said so"));
            }
            self.window += increment;
            if self.window > MAX_WINDOW {
                return Err(Fault::flow("the hook overflowed the connection's window"));
            }
        } else if let Some(stream) = self.calls.streams.get_mut(&head.stream) {
            stream.window += increment;
            if increment == 0 {
                let failure = stream.malformed("it gave no room on the stream, and said so");
                return self.fail(head.stream, code::PROTOCOL_ERROR, failure);
            }
            if stream.window > MAX_WINDOW {
                let failure = CallFailure::Connection("the hook overflowed a window".into());
                return self.fail(head.stream, code::FLOW_CONTROL_ERROR, failure);
            }
            if !stream.ready && stream.unsent > 0 && stream.window > 0 {
                stream.ready = true;
                self.ready.push_back(head.stream);
            }
        }
        Ok(())
    }
}

/// The number a frame begins with.
fn number(payload: &[u8]) -> Result<u32, Fault> {
    let bytes = payload.first_chunk().ok_or(Fault::frame_size("the hook cut a frame short"))?;
    Ok(u32::from_be_bytes(*bytes))
}
