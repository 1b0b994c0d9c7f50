//! Receive: handling of the frames that arrive.

use std::ops::Range;

use super::{
    super::{
        exchange::{Exchange, ExchangeFailure, RequestHead},
        fault::ProtocolFault,
        frame::{self, DEFAULT_MAX_FRAME, FrameHead, MAX_ID, MAX_WINDOW, code, flag, kind, setting},
        goaway::GoAway,
        head, rules,
        stream::STREAM_WINDOW,
    },
    CONNECTION_WINDOW, ClientConnection, LARGEST_FRAME,
};

/// A header block may be no longer, CONTINUATIONs included.
const LARGEST_BLOCK: usize = 64 << 10;
/// Nor in more frames than this: they may be empty.
const MOST_CONTINUATIONS: usize = 32;

/// Header block under way.
#[derive(Debug)]
pub(super) struct Block {
    /// Its first frame's head.
    first: FrameHead,
    /// Bytes of it so far.
    bytes: Vec<u8>,
    /// CONTINUATIONs so far.
    continuations: usize,
}

impl<E: Exchange> ClientConnection<E> {
    /// Takes every whole frame that has been read.
    pub(super) fn frames(&mut self) -> Result<(), ProtocolFault> {
        loop {
            match self.incoming.next_frame() {
                Ok(Some((head, place))) => self.frame(head, place)?,
                Ok(None) => return Ok(()),
                Err(_) => return Err(ProtocolFault::frame_size("sent a frame larger than allowed")),
            }
        }
    }

    fn frame(&mut self, head: FrameHead, place: Range<usize>) -> Result<(), ProtocolFault> {
        if self.block.is_some() != (head.kind == kind::CONTINUATION) {
            return Err(ProtocolFault::protocol("broke off a header block"));
        }
        if !self.established && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(ProtocolFault::protocol("does not speak HTTP/2: its first frame is not SETTINGS"));
        }
        rules::check(head)?;
        if rules::needs_stream(head) && (head.stream.is_multiple_of(2) || head.stream >= self.next_id) {
            return Err(ProtocolFault::protocol("spoke of a stream that was never opened"));
        }
        let worth = if head.kind == kind::DATA { 0 } else { head.len };
        if !self.floods.spend(worth, self.config.clock) {
            return Err(ProtocolFault::flood("floods the connection with frames that answer nothing"));
        }
        match head.kind {
            kind::DATA => self.data(head, place),
            kind::HEADERS => self.block(head, place),
            kind::CONTINUATION => self.continuation(head, place),
            kind::RST_STREAM => {
                let code = number(self.incoming.payload(place))?;
                self.reset(head.stream, code);
                Ok(())
            }
            kind::SETTINGS => self.settings(head, place),
            kind::PING if !head.has(flag::ACK) => {
                self.refuse_flood()?;
                let (incoming, outgoing) = (&self.incoming, &mut self.outgoing);
                outgoing.control(|out| frame::put(out, kind::PING, flag::ACK, 0, incoming.payload(place)));
                Ok(())
            }
            kind::GOAWAY => self.go_away(place),
            kind::WINDOW_UPDATE => self.window_update(head, place),
            _ => Ok(()),
        }
    }

    /// A server that asks for acknowledgements and does not read them must not fill our memory.
    fn refuse_flood(&self) -> Result<(), ProtocolFault> {
        if self.outgoing.queued() > self.config.batch + 2 * LARGEST_FRAME {
            return Err(ProtocolFault::flood("floods the connection with PING or SETTINGS"));
        }
        Ok(())
    }

    fn data(&mut self, head: FrameHead, place: Range<usize>) -> Result<(), ProtocolFault> {
        // Also what comes for a stream that is gone counts against the connection's window.
        self.granted = self
            .granted
            .checked_sub(head.len as u32)
            .ok_or(ProtocolFault::flow("sent more than the connection's window"))?;
        self.unreturned += head.len as u32;
        if self.unreturned >= CONNECTION_WINDOW / 2 {
            let back = std::mem::take(&mut self.unreturned);
            self.granted += back;
            self.outgoing.control(|out| frame::put_window_update(out, 0, back));
        }
        let Some(data) = frame::unpadded(head, self.incoming.payload(place)) else {
            return Err(ProtocolFault::protocol("sent more padding than data"));
        };
        let Some(stream) = self.exchanges.streams.get_mut(&head.stream) else { return Ok(()) };
        self.floods.earn_bytes(data.len());
        let Some(granted) = stream.granted.checked_sub(head.len as u32) else {
            let failure = ExchangeFailure::Malformed("it sent more than the stream's window");
            self.reject(head.stream, code::FLOW_CONTROL_ERROR, failure);
            return Ok(());
        };
        stream.granted = granted;
        if !stream.has_head {
            self.reject(head.stream, code::PROTOCOL_ERROR, ExchangeFailure::Malformed("it sent data before headers"));
            return Ok(());
        }
        if let Err(refusal) = stream.exchange.data(data) {
            self.reject(head.stream, code::CANCEL, ExchangeFailure::Refused(refusal));
            return Ok(());
        }
        if head.has(flag::END_STREAM) {
            self.finish(head.stream, None);
            return Ok(());
        }
        stream.unreturned += head.len as u32;
        if stream.unreturned >= STREAM_WINDOW / 2 {
            let back = std::mem::take(&mut stream.unreturned);
            stream.granted += back;
            self.outgoing.control(|out| frame::put_window_update(out, head.stream, back));
        }
        Ok(())
    }

    fn block(&mut self, head: FrameHead, place: Range<usize>) -> Result<(), ProtocolFault> {
        let payload = self.incoming.payload(place);
        let Some(mut fragment) = frame::unpadded(head, payload) else {
            return Err(ProtocolFault::protocol("sent more padding than headers"));
        };
        if head.has(flag::PRIORITY) {
            fragment = fragment.get(5..).ok_or(ProtocolFault::frame_size("cut a frame short"))?;
        }
        if head.has(flag::END_HEADERS) {
            let read = head::Head::read(fragment, &mut self.scratch);
            return self.headers(head, read.map_err(|bad| ProtocolFault::compression(bad.0))?);
        }
        self.block = Some(Block { first: head, bytes: fragment.to_vec(), continuations: 0 });
        Ok(())
    }

    fn continuation(&mut self, head: FrameHead, place: Range<usize>) -> Result<(), ProtocolFault> {
        let Some(mut block) = self.block.take() else { return Ok(()) };
        if block.first.stream != head.stream {
            return Err(ProtocolFault::protocol("broke off a header block"));
        }
        block.bytes.extend_from_slice(self.incoming.payload(place));
        if block.bytes.len() > LARGEST_BLOCK {
            return Err(ProtocolFault::flood("sent a header block larger than 64 KiB"));
        }
        if block.continuations == MOST_CONTINUATIONS {
            return Err(ProtocolFault::flood("sent a header block in too many frames"));
        }
        if head.has(flag::END_HEADERS) {
            let read = head::Head::read(&block.bytes, &mut self.scratch);
            return self.headers(block.first, read.map_err(|bad| ProtocolFault::compression(bad.0))?);
        }
        block.continuations += 1;
        self.block = Some(block);
        Ok(())
    }

    fn headers(&mut self, frame: FrameHead, head: head::Head<E::Fields>) -> Result<(), ProtocolFault> {
        let Some(stream) = self.exchanges.streams.get_mut(&frame.stream) else { return Ok(()) };
        let last = frame.has(flag::END_STREAM);
        let broken = match head.malformed {
            None if stream.has_head && !last => Some("it sent headers in the middle of its answer"),
            None if stream.has_head && head.status != 0 => Some("its trailers have an HTTP status"),
            None if !stream.has_head && head.status == 0 => Some("its answer has no HTTP status"),
            None if head.is_interim() && last => Some("it ended the call with headers that announce others"),
            malformed => malformed,
        };
        if let Some(what) = broken {
            self.reject(frame.stream, code::PROTOCOL_ERROR, ExchangeFailure::Malformed(what));
            return Ok(());
        }
        if stream.has_head {
            self.finish(frame.stream, Some(head.fields));
            return Ok(());
        }
        if head.is_interim() {
            return Ok(());
        }
        stream.has_head = true;
        match stream.exchange.head(head.status, head.fields) {
            Err(refusal) => self.reject(frame.stream, code::CANCEL, ExchangeFailure::Refused(refusal)),
            Ok(()) if last => self.finish(frame.stream, None),
            Ok(()) => {}
        }
        Ok(())
    }

    fn settings(&mut self, head: FrameHead, place: Range<usize>) -> Result<(), ProtocolFault> {
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
                setting::HEADER_TABLE_SIZE => self.head.table_size(value),
                setting::MAX_CONCURRENT_STREAMS => self.peer_max_streams = value as usize,
                setting::INITIAL_WINDOW_SIZE => {
                    if i64::from(value) > MAX_WINDOW {
                        return Err(ProtocolFault::flow("asked for a window that is too large"));
                    }
                    window = i64::from(value);
                }
                setting::ENABLE_PUSH if value != 0 => {
                    return Err(ProtocolFault::protocol("asked to be pushed to, which only clients may"));
                }
                setting::MAX_FRAME_SIZE => {
                    if !(DEFAULT_MAX_FRAME..1 << 24).contains(&(value as usize)) {
                        return Err(ProtocolFault::protocol("asked for an impossible frame size"));
                    }
                    self.peer_max_frame = value as usize;
                }
                _ => {}
            }
        }
        self.resize_windows(window)?;
        self.established = true;
        self.refuse_flood()?;
        self.outgoing.control(|out| frame::put(out, kind::SETTINGS, flag::ACK, 0, &[]));
        Ok(())
    }

    fn go_away(&mut self, place: Range<usize>) -> Result<(), ProtocolFault> {
        let goaway = GoAway::read(self.incoming.payload(place), self.goaway)?;
        self.goaway = Some(goaway);
        self.leave_beyond(goaway.last_seen);
        Ok(())
    }

    /// The server has another opinion of the room that each stream begins with.
    fn resize_windows(&mut self, window: i64) -> Result<(), ProtocolFault> {
        let change = window - self.peer_window;
        if change == 0 {
            return Ok(());
        }
        self.peer_window = window;
        for (&id, stream) in &mut self.exchanges.streams {
            stream.window += change;
            if stream.window > MAX_WINDOW {
                return Err(ProtocolFault::flow("overflowed a window"));
            }
            if !stream.ready && stream.unsent > 0 && stream.window > 0 {
                stream.ready = true;
                self.ready.push_back(id);
            }
        }
        Ok(())
    }

    fn window_update(&mut self, head: FrameHead, place: Range<usize>) -> Result<(), ProtocolFault> {
        let increment = i64::from(number(self.incoming.payload(place))? & MAX_ID);
        if head.stream == 0 {
            if increment == 0 {
                return Err(ProtocolFault::protocol("gave no room on the connection, and said so"));
            }
            self.window += increment;
            if self.window > MAX_WINDOW {
                return Err(ProtocolFault::flow("overflowed the connection's window"));
            }
        } else if let Some(stream) = self.exchanges.streams.get_mut(&head.stream) {
            stream.window += increment;
            if increment == 0 {
                let failure = ExchangeFailure::Malformed("it gave no room on the stream, and said so");
                self.reject(head.stream, code::PROTOCOL_ERROR, failure);
                return Ok(());
            }
            if stream.window > MAX_WINDOW {
                let failure = ExchangeFailure::Malformed("it overflowed a window");
                self.reject(head.stream, code::FLOW_CONTROL_ERROR, failure);
                return Ok(());
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
fn number(payload: &[u8]) -> Result<u32, ProtocolFault> {
    let bytes = payload.first_chunk().ok_or(ProtocolFault::frame_size("cut a frame short"))?;
    Ok(u32::from_be_bytes(*bytes))
}
