//! Processes the server's frames.

use std::ops::Range;

use super::{ClientConnection, MAX_FRAME};
use crate::{
    exchange::{Exchange, ExchangeFailure, RequestHead},
    frame::{self, DEFAULT_MAX_FRAME, FrameHead, GoAway, MAX_ID, MAX_WINDOW, ProtocolFault, code, flag, kind, setting},
    head::{HeaderBlock, ResponseHead},
};

impl<E: Exchange> ClientConnection<E> {
    pub(super) fn frame(&mut self, head: FrameHead, place: Range<usize>) -> Result<(), ProtocolFault> {
        if self.block.is_some() != (head.kind == kind::CONTINUATION) {
            return Err(ProtocolFault::protocol("broke off a header block"));
        }
        if !self.established && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(ProtocolFault::protocol("does not speak HTTP/2: its first frame is not SETTINGS"));
        }
        head.check()?;
        if head.needs_open_stream() && (head.stream.is_multiple_of(2) || head.stream >= self.next_id) {
            return Err(ProtocolFault::protocol("spoke of a stream that was never opened"));
        }
        let payload = if head.kind == kind::DATA { 0 } else { head.len };
        if !self.credit.spend(payload, self.config.clock) {
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
            kind::GOAWAY => {
                let goaway = GoAway::read(self.incoming.payload(place), self.goaway)?;
                self.goaway = Some(goaway);
                self.end_beyond(goaway.last_stream_id);
                Ok(())
            }
            kind::WINDOW_UPDATE => self.window_update(head, place),
            _ => Ok(()),
        }
    }

    /// Fails if too much is queued, so that a server that does not read our acknowledgements cannot fill the memory.
    fn refuse_flood(&self) -> Result<(), ProtocolFault> {
        if self.outgoing.queued > self.config.batch + 2 * MAX_FRAME {
            return Err(ProtocolFault::flood("floods the connection with PING or SETTINGS"));
        }
        Ok(())
    }

    fn data(&mut self, head: FrameHead, place: Range<usize>) -> Result<(), ProtocolFault> {
        // DATA of closed streams counts, too.
        if !self.receive_window.take(head.len) {
            return Err(ProtocolFault::flow("sent more than the connection's window"));
        }
        if let Some(back) = self.receive_window.give_back() {
            self.outgoing.control(|out| frame::put_window_update(out, 0, back));
        }
        let Some(data) = frame::unpadded(head, self.incoming.payload(place)) else {
            return Err(ProtocolFault::protocol("sent more padding than data"));
        };
        let Some(stream) = self.exchanges.streams.get_mut(&head.stream) else { return Ok(()) };
        self.credit.earn_bytes(data.len());
        let read = if !stream.receive_window.take(head.len) {
            Err((code::FLOW_CONTROL_ERROR, ExchangeFailure::Malformed("it sent more than the stream's window")))
        } else if !stream.has_head {
            Err((code::PROTOCOL_ERROR, ExchangeFailure::Malformed("it sent data before headers")))
        } else {
            stream.exchange.data(data).map_err(|refusal| (code::CANCEL, ExchangeFailure::AnswerRejected(refusal)))
        };
        if let Err((code, failure)) = read {
            self.reject(head.stream, code, failure);
            return Ok(());
        }
        if head.has(flag::END_STREAM) {
            self.finish(head.stream, None);
            return Ok(());
        }
        if let Some(back) = stream.receive_window.give_back() {
            self.outgoing.control(|out| frame::put_window_update(out, head.stream, back));
        }
        Ok(())
    }

    fn block(&mut self, head: FrameHead, place: Range<usize>) -> Result<(), ProtocolFault> {
        let Some(mut fragment) = frame::unpadded(head, self.incoming.payload(place)) else {
            return Err(ProtocolFault::protocol("sent more padding than headers"));
        };
        if head.has(flag::PRIORITY) {
            fragment = fragment.get(5..).ok_or(ProtocolFault::frame_size("cut a frame short"))?;
        }
        if head.has(flag::END_HEADERS) {
            let response = ResponseHead::read(fragment, &mut self.scratch)?;
            return self.headers(head, response);
        }
        self.block = Some(HeaderBlock::new(head, fragment));
        Ok(())
    }

    fn continuation(&mut self, head: FrameHead, place: Range<usize>) -> Result<(), ProtocolFault> {
        let Some(mut block) = self.block.take() else { return Ok(()) };
        block.extend(head, self.incoming.payload(place))?;
        if head.has(flag::END_HEADERS) {
            let response = ResponseHead::read(&block.bytes, &mut self.scratch)?;
            return self.headers(block.first, response);
        }
        self.block = Some(block);
        Ok(())
    }

    fn headers(&mut self, frame: FrameHead, head: ResponseHead<E::Fields>) -> Result<(), ProtocolFault> {
        let Some(stream) = self.exchanges.streams.get_mut(&frame.stream) else { return Ok(()) };
        let last = frame.has(flag::END_STREAM);
        let malformed = match head.malformed {
            None if stream.has_head && !last => Some("it sent headers in the middle of its answer"),
            None if stream.has_head && head.status != 0 => Some("its trailers have an HTTP status"),
            None if !stream.has_head && head.status == 0 => Some("its answer has no HTTP status"),
            None if head.is_interim() && last => Some("it ended the call with headers that announce others"),
            what => what,
        };
        if let Some(what) = malformed {
            self.reject(frame.stream, code::PROTOCOL_ERROR, ExchangeFailure::Malformed(what));
            return Ok(());
        }
        if stream.has_head {
            self.finish(frame.stream, Some(head.fields));
        } else if !head.is_interim() {
            stream.has_head = true;
            match stream.exchange.head(head.status, head.fields) {
                Err(refusal) => self.reject(frame.stream, code::CANCEL, ExchangeFailure::AnswerRejected(refusal)),
                Ok(()) if last => self.finish(frame.stream, None),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn settings(&mut self, head: FrameHead, place: Range<usize>) -> Result<(), ProtocolFault> {
        if head.has(flag::ACK) {
            return Ok(());
        }
        let payload = self.incoming.payload(place);
        // Each change of the window visits all streams, so only the last of several is applied.
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

    /// Changes the initial send window of streams, and the send windows of all open streams.
    fn resize_windows(&mut self, window: i64) -> Result<(), ProtocolFault> {
        let change = window - std::mem::replace(&mut self.peer_window, window);
        if change == 0 {
            return Ok(());
        }
        for (&id, stream) in &mut self.exchanges.streams {
            if stream.change_window(change)? {
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
            let changed = stream.change_window(increment);
            if increment == 0 {
                let failure = ExchangeFailure::Malformed("it gave no room on the stream, and said so");
                self.reject(head.stream, code::PROTOCOL_ERROR, failure);
            } else if changed.is_err() {
                let failure = ExchangeFailure::Malformed("it overflowed a window");
                self.reject(head.stream, code::FLOW_CONTROL_ERROR, failure);
            } else if changed == Ok(true) {
                self.ready.push_back(head.stream);
            }
        }
        Ok(())
    }
}

/// Reads the number at the beginning of the payload.
fn number(payload: &[u8]) -> Result<u32, ProtocolFault> {
    let bytes = payload.first_chunk().ok_or(ProtocolFault::frame_size("cut a frame short"))?;
    Ok(u32::from_be_bytes(*bytes))
}
