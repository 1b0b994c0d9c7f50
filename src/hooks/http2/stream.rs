//! One call under way: what is still to be sent, and what has come back.

use bytes::Bytes;

use super::{super::call::Call, frame, header_read::Headers, outgoing::Outgoing};
use crate::{model::CallFailure, wire::inbound::FRAME_HEAD};

/// One call under way on one connection.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) call: Call,
    /// The piece of the body being sent, and how far into it; how much is left of all.
    chunk: usize,
    offset: usize,
    pub(super) unsent: usize,
    /// How much the peer will take on this stream.
    pub(super) window: i64,
    /// It stands in the connection's ready queue.
    pub(super) ready: bool,
    /// Bytes received whose window was not yet given back.
    pub(super) unreturned: u32,
    headers: Option<Headers>,
    message: Vec<u8>,
}

impl Stream {
    pub(super) fn new(call: Call, window: i64) -> Self {
        let unsent = call.body.len();
        Self {
            call,
            chunk: 0,
            offset: 0,
            unsent,
            window,
            ready: false,
            unreturned: 0,
            headers: None,
            message: Vec::new(),
        }
    }

    /// Queues one DATA frame of `len` bytes of the body.
    pub(super) fn send(&mut self, id: u32, len: usize, out: &mut Outgoing) {
        self.unsent -= len;
        let flags = if self.unsent == 0 { frame::flag::END_STREAM } else { 0 };
        let head = frame::Head { len, kind: frame::kind::DATA, flags, stream: id };
        out.heads(|heads| heads.extend_from_slice(&head.write()));
        let mut left = len;
        while left > 0 {
            let Some(chunk) = self.call.body.chunks().get(self.chunk) else { return };
            let n = left.min(chunk.len() - self.offset);
            if n > 0 {
                out.shared(chunk.slice(self.offset..self.offset + n));
            }
            left -= n;
            self.offset += n;
            if self.offset == chunk.len() {
                self.chunk += 1;
                self.offset = 0;
            }
        }
    }

    /// Response headers arrived; `Some` when they already settle the call.
    pub(super) fn headers(&mut self, headers: Headers) -> Option<CallFailure> {
        if (100..200).contains(&headers.status) {
            return None;
        }
        let failure = not_grpc(&headers);
        self.headers = Some(headers);
        failure
    }

    /// True when the first (non-informational) headers have arrived, so that the next are trailers.
    pub(super) fn has_headers(&self) -> bool {
        self.headers.is_some()
    }

    /// Part of the answer arrived.
    pub(super) fn data(&mut self, data: &[u8], limit: usize) -> Result<(), CallFailure> {
        if self.headers.is_none() {
            return Err(CallFailure::NotGrpc("it sent data before headers".into()));
        }
        if self.message.len() + data.len() > limit + FRAME_HEAD {
            return Err(CallFailure::TooLarge { limit });
        }
        self.message.extend_from_slice(data);
        Ok(())
    }

    /// The hook has ended its side: what did it say? `last` are the trailers, where there were any.
    pub(super) fn end(self, last: Option<Headers>) -> (Call, Result<Bytes, CallFailure>) {
        let headers = self.headers.unwrap_or_default();
        // A "trailers-only" answer has its status in the one header block there is.
        let end = last.unwrap_or(headers);
        let result = match end.grpc_status {
            Some(0) => message(self.message),
            Some(code) => Err(CallFailure::Grpc {
                code: code_name(code),
                message: percent_decoded(&end.grpc_message.unwrap_or_default()),
            }),
            None => Err(CallFailure::NotGrpc("it ended the call without a grpc-status".into())),
        };
        (self.call, result)
    }
}

/// The headers of something that is no gRPC server.
fn not_grpc(headers: &Headers) -> Option<CallFailure> {
    if headers.status != 200 {
        return Some(CallFailure::NotGrpc(format!("it answered with HTTP status {}", headers.status)));
    }
    (headers.grpc == Some(false)).then(|| CallFailure::NotGrpc("its content type is not application/grpc".into()))
}

/// The one message inside its gRPC frame.
fn message(framed: Vec<u8>) -> Result<Bytes, CallFailure> {
    let invalid = |what: &str| Err(CallFailure::Undecodable(what.into()));
    let Some((&[flag, l0, l1, l2, l3], rest)) = framed.split_first_chunk::<FRAME_HEAD>() else {
        return invalid("there is no whole message");
    };
    if flag != 0 {
        return invalid("the message is compressed, which was not offered");
    }
    let declared = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    if declared != rest.len() {
        return invalid("the message is not as long as its head says");
    }
    Ok(Bytes::from(framed).slice(FRAME_HEAD..))
}

/// Name of a gRPC status code, as in the gRPC specification.
fn code_name(code: u32) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    NAMES.get(code as usize).copied().unwrap_or("UNKNOWN")
}

/// A hook's text as people may read it: percent-decoded, no control characters, at most 256 characters.
fn percent_decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let hex = |at: usize| after.get(at).and_then(|&digit| (digit as char).to_digit(16));
        match (byte, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).chars().filter(|c| !c.is_control()).take(256).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_s_text_is_made_readable() {
        assert_eq!(percent_decoded(b"no%20way%21%0a"), "no way!");
        assert_eq!(percent_decoded(b"100% sure %z"), "100% sure %z");
        assert_eq!(percent_decoded(b"%c3%a9"), "é");
        assert_eq!(percent_decoded(&[b'x'; 999]).len(), 256);
    }

    #[test]
    fn a_message_must_be_whole() {
        assert_eq!(message(vec![0, 0, 0, 0, 2, 7, 8]), Ok(Bytes::from_static(&[7, 8])));
        assert!(message(vec![0, 0, 0, 0, 3, 7, 8]).is_err());
        assert!(message(vec![1, 0, 0, 0, 2, 7, 8]).is_err());
        assert!(message(vec![]).is_err());
    }
}
