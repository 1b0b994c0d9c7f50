//! Frames of HTTP/2: their headers and kinds (RFC 9113 §4.1 and §6), which of them a server may send, and splitting
//! received bytes into frames.

use std::{fmt, ops::Range};

/// Length of a frame header in bytes.
pub const HEAD: usize = 9;
/// Maximum frame payload that a peer must accept, and that we accept. RFC 9113 §4.2.
pub const DEFAULT_MAX_FRAME: usize = 16_384;
/// Initial send window of each stream and of the connection. RFC 9113 §6.9.2.
pub const DEFAULT_WINDOW: i64 = 65_535;
/// Maximum size of a window. RFC 9113 §6.9.1.
pub const MAX_WINDOW: i64 = (1 << 31) - 1;
/// Maximum stream id. RFC 9113 §5.1.1.
pub const MAX_ID: u32 = (1 << 31) - 1;
/// Connection preface of a client. RFC 9113 §3.4.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Known frame kinds. Frames of other kinds are ignored. RFC 9113 §5.5.
#[allow(missing_docs, reason = "the names of the RFC")]
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags.
#[allow(missing_docs, reason = "the names of the RFC")]
pub mod flag {
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// Settings. RFC 9113 §6.5.2.
#[allow(missing_docs, reason = "the names of the RFC")]
pub mod setting {
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
}

/// Error codes that we send or act on. RFC 9113 §7.
#[allow(missing_docs, reason = "the names of the RFC")]
pub mod code {
    pub const NO_ERROR: u32 = 0;
    pub const PROTOCOL_ERROR: u32 = 1;
    pub const FLOW_CONTROL_ERROR: u32 = 3;
    pub const FRAME_SIZE_ERROR: u32 = 6;
    pub const REFUSED_STREAM: u32 = 7;
    pub const CANCEL: u32 = 8;
    pub const COMPRESSION_ERROR: u32 = 9;
    pub const ENHANCE_YOUR_CALM: u32 = 11;
}

/// Returns the name of an error code, for messages.
pub fn code_name(code: u32) -> &'static str {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    NAMES.get(code as usize).copied().unwrap_or("an unknown code")
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Length of the payload in bytes.
    pub len: usize,
    /// Kind of the frame, one of [`kind`].
    pub kind: u8,
    /// Flags of the frame, from [`flag`].
    pub flags: u8,
    /// Stream of the frame; 0 for the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Decodes a frame header.
    pub fn read(bytes: &[u8; HEAD]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes;
        Self {
            len: u32::from_be_bytes([0, l0, l1, l2]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        }
    }

    /// Encodes the frame header. `len` fits 24 bits, because SETTINGS_MAX_FRAME_SIZE does.
    pub fn write(self) -> [u8; HEAD] {
        let [_, l0, l1, l2] = (self.len as u32).to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [l0, l1, l2, self.kind, self.flags, s0, s1, s2, s3]
    }

    /// Returns true if this [`flag`] is set.
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Checks that a server may send a frame of this kind, stream and length. RFC 9113 §6.
    pub(crate) fn check(self) -> Result<(), ProtocolFault> {
        match self.kind {
            kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION if self.stream == 0 => {
                Err(ProtocolFault::protocol("sent a stream's frame on stream 0"))
            }
            kind::SETTINGS | kind::PING | kind::GOAWAY if self.stream != 0 => {
                Err(ProtocolFault::protocol("sent a connection's frame on a stream"))
            }
            kind::PUSH_PROMISE => Err(ProtocolFault::protocol("sent PUSH_PROMISE although push is disabled")),
            _ if self.has_valid_length() => Ok(()),
            _ => Err(ProtocolFault::frame_size("sent a frame of a wrong length")),
        }
    }

    fn has_valid_length(self) -> bool {
        match self.kind {
            kind::RST_STREAM | kind::WINDOW_UPDATE => self.len == 4,
            kind::PRIORITY => self.len == 5,
            kind::PING => self.len == 8,
            kind::GOAWAY => self.len >= 8,
            kind::SETTINGS if self.has(flag::ACK) => self.len == 0,
            kind::SETTINGS => self.len.is_multiple_of(6),
            _ => true,
        }
    }

    /// Returns true if the frame is valid only on a stream that was opened.
    pub(crate) fn needs_open_stream(self) -> bool {
        matches!(self.kind, kind::DATA | kind::HEADERS | kind::RST_STREAM)
            || self.kind == kind::WINDOW_UPDATE && self.stream != 0
    }
}

/// Appends a whole frame.
pub fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&FrameHead { len: payload.len(), kind, flags, stream }.write());
    out.extend_from_slice(payload);
}

/// Appends a WINDOW_UPDATE.
pub fn put_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    put(out, kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// Appends a RST_STREAM.
pub fn put_reset(out: &mut Vec<u8>, stream: u32, code: u32) {
    put(out, kind::RST_STREAM, 0, stream, &code.to_be_bytes());
}

/// Appends a GOAWAY with last stream 0, because a server opens no streams.
pub fn put_goaway(out: &mut Vec<u8>, code: u32) {
    let [c0, c1, c2, c3] = code.to_be_bytes();
    put(out, kind::GOAWAY, 0, 0, &[0, 0, 0, 0, c0, c1, c2, c3]);
}

/// Completes the header block that follows the space for a frame header at `at` and ends at the end of `out`. Splits a
/// block that is too long for one frame into CONTINUATIONs (RFC 9113 §6.10); only forwarded request metadata can make
/// it that long.
pub fn finish_block(out: &mut Vec<u8>, at: usize, stream: u32) {
    let len = out.len() - at - HEAD;
    if len <= DEFAULT_MAX_FRAME {
        let head = FrameHead { len, kind: kind::HEADERS, flags: flag::END_HEADERS, stream };
        out[at..at + HEAD].copy_from_slice(&head.write());
        return;
    }
    let block = out.split_off(at + HEAD);
    out.truncate(at);
    let pieces = block.len().div_ceil(DEFAULT_MAX_FRAME);
    for (n, piece) in block.chunks(DEFAULT_MAX_FRAME).enumerate() {
        let kind = if n == 0 { kind::HEADERS } else { kind::CONTINUATION };
        let flags = if n + 1 == pieces { flag::END_HEADERS } else { 0 };
        put(out, kind, flags, stream, piece);
    }
}

/// Returns a payload without its padding; `None` if the padding is longer than the payload. RFC 9113 §6.1.
pub fn unpadded(head: FrameHead, payload: &[u8]) -> Option<&[u8]> {
    if !head.has(flag::PADDED) {
        return Some(payload);
    }
    let (&padding, rest) = payload.split_first()?;
    rest.len().checked_sub(usize::from(padding)).map(|len| &rest[..len])
}

/// Violation of the protocol by the peer. It ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolFault {
    /// The fault, as a predicate whose subject is the peer.
    pub what: &'static str,
    /// Error code of the GOAWAY to the peer.
    pub code: u32,
}

impl ProtocolFault {
    /// Creates a violation of a rule that has no error code of its own.
    pub(crate) fn protocol(what: &'static str) -> Self {
        Self { what, code: code::PROTOCOL_ERROR }
    }

    /// Creates the fault of a frame with a wrong length.
    pub(crate) fn frame_size(what: &'static str) -> Self {
        Self { what, code: code::FRAME_SIZE_ERROR }
    }

    /// Creates a violation of flow control.
    pub(crate) fn flow(what: &'static str) -> Self {
        Self { what, code: code::FLOW_CONTROL_ERROR }
    }

    /// Creates the fault of a peer that causes too much work.
    pub(crate) fn flood(what: &'static str) -> Self {
        Self { what, code: code::ENHANCE_YOUR_CALM }
    }
}

/// Contents of a server's GOAWAY. RFC 9113 §6.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// The server processes no stream beyond this one.
    pub(crate) last_stream_id: u32,
    code: u32,
    /// Debug data, if it is a known text. Other texts might quote contents of an object.
    text: Option<&'static str>,
}

/// Debug data that servers are known to send.
const KNOWN_GOAWAY_TEXTS: [&str; 5] = ["too_many_pings", "max_age", "max_idle", "graceful_stop", "ping_timeout"];

impl GoAway {
    /// Reads the frame's payload. A later GOAWAY cannot raise the last stream of the one `before`.
    pub(crate) fn read(payload: &[u8], before: Option<Self>) -> Result<Self, ProtocolFault> {
        let Some((&[a, b, c, d, e, f, g, h], text)) = payload.split_first_chunk() else {
            return Err(ProtocolFault::frame_size("cut a frame short"));
        };
        let last = u32::from_be_bytes([a, b, c, d]) & MAX_ID;
        Ok(Self {
            last_stream_id: before.map_or(last, |before| before.last_stream_id.min(last)),
            code: u32::from_be_bytes([e, f, g, h]),
            text: KNOWN_GOAWAY_TEXTS.into_iter().find(|known| known.as_bytes() == text),
        })
    }
}

impl fmt::Display for GoAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GOAWAY {}", code_name(self.code))?;
        self.text.map_or(Ok(()), |text| write!(f, " ({text})"))
    }
}

/// Size of the read buffer in bytes: one frame of the maximum size, and the beginning of the next.
const READ_BUFFER: usize = 2 * DEFAULT_MAX_FRAME;

/// Splits bytes from the peer into frames. Responses are small, so one buffer of fixed size is enough.
#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: Box<[u8]>,
    taken: usize,
    filled: usize,
}

impl FrameReader {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; READ_BUFFER].into(), taken: 0, filled: 0 }
    }

    /// Returns the buffer for the next read, which has space for at least one whole frame.
    pub(crate) fn unfilled_mut(&mut self) -> &mut [u8] {
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
        } else if self.buffer.len() - self.filled < HEAD + DEFAULT_MAX_FRAME {
            self.buffer.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        }
        &mut self.buffer[self.filled..]
    }

    /// Adds the first `len` bytes of [`FrameReader::unfilled_mut`].
    pub(crate) fn advance(&mut self, len: usize) {
        self.filled = (self.filled + len).min(self.buffer.len());
    }

    /// Returns the header of the next whole frame, and the range of its payload for [`FrameReader::payload`].
    pub(crate) fn next_frame(&mut self) -> Result<Option<(FrameHead, Range<usize>)>, ProtocolFault> {
        let waiting = &self.buffer[self.taken..self.filled];
        let Some(head) = waiting.first_chunk::<HEAD>().map(FrameHead::read) else { return Ok(None) };
        if head.len > DEFAULT_MAX_FRAME {
            return Err(ProtocolFault::frame_size("sent a frame larger than allowed"));
        }
        if waiting.len() < HEAD + head.len {
            return Ok(None);
        }
        let start = self.taken + HEAD;
        self.taken = start + head.len;
        Ok(Some((head, start..self.taken)))
    }

    /// Returns the payload of the frame that [`FrameReader::next_frame`] returned last.
    pub(crate) fn payload(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_header_round_trips() {
        let head = FrameHead { len: 0x01_02_03, kind: kind::DATA, flags: flag::END_STREAM, stream: 0x7fff_fffd };
        assert_eq!(FrameHead::read(&head.write()), head);
    }

    #[test]
    fn a_long_header_block_is_continued() {
        let mut out = vec![7; 3];
        out.extend([0; HEAD]);
        out.extend(vec![1; DEFAULT_MAX_FRAME + 5]);
        finish_block(&mut out, 3, 9);
        let head = |at: usize| out[at..].first_chunk().map(FrameHead::read);
        let first = FrameHead { len: DEFAULT_MAX_FRAME, kind: kind::HEADERS, flags: 0, stream: 9 };
        let second = FrameHead { len: 5, kind: kind::CONTINUATION, flags: flag::END_HEADERS, stream: 9 };
        assert_eq!(head(3), Some(first));
        assert_eq!(head(3 + HEAD + DEFAULT_MAX_FRAME), Some(second));
        assert_eq!(out.len(), 3 + 2 * HEAD + DEFAULT_MAX_FRAME + 5);
    }

    #[test]
    fn invalid_padding_is_rejected() {
        let head = FrameHead { len: 4, kind: kind::DATA, flags: flag::PADDED, stream: 1 };
        assert_eq!(unpadded(head, &[2, b'a', 0, 0]), Some(&b"a"[..]));
        assert_eq!(unpadded(head, &[4, b'a', 0, 0]), None);
        assert_eq!(unpadded(head, &[]), None);
    }

    #[test]
    fn goaway_display_omits_unknown_debug_data() {
        let read = |last: u8, code: u8, text: &str, before| {
            GoAway::read(&[&[0, 0, 0, last, 0, 0, 0, code], text.as_bytes()].concat(), before).expect("whole")
        };
        let first = read(5, 11, "too_many_pings", None);
        assert_eq!((first.last_stream_id, &*first.to_string()), (5, "GOAWAY ENHANCE_YOUR_CALM (too_many_pings)"));
        let second = read(9, 0, "password=hunter2", Some(first));
        assert_eq!((second.last_stream_id, &*second.to_string()), (5, "GOAWAY NO_ERROR"), "it cannot be taken back");
        assert_eq!(read(1, 200, "", Some(second)).to_string(), "GOAWAY an unknown code");
        assert!(GoAway::read(&[0; 7], None).is_err());
    }

    fn fault_code(kind: u8, flags: u8, stream: u32, len: usize) -> Option<u32> {
        FrameHead { len, kind, flags, stream }.check().err().map(|fault| fault.code)
    }

    #[test]
    fn frame_on_wrong_stream_is_rejected() {
        for kind in [kind::DATA, kind::HEADERS, kind::PRIORITY, kind::RST_STREAM, kind::CONTINUATION] {
            assert_eq!(fault_code(kind, 0, 0, 5), Some(code::PROTOCOL_ERROR), "{kind}");
        }
        for (kind, len) in [(kind::SETTINGS, 6), (kind::PING, 8), (kind::GOAWAY, 8)] {
            assert_eq!(fault_code(kind, 0, 1, len), Some(code::PROTOCOL_ERROR), "{kind}");
            assert_eq!(fault_code(kind, 0, 0, len), None, "{kind}");
        }
        assert_eq!(fault_code(kind::PUSH_PROMISE, 0, 1, 8), Some(code::PROTOCOL_ERROR));
        assert_eq!(fault_code(0x77, 0, 3, 1), None, "of an unknown kind");
    }

    #[test]
    fn frame_with_wrong_length_is_rejected() {
        for (kind, flags, stream, len) in [
            (kind::RST_STREAM, 0, 1, 5),
            (kind::WINDOW_UPDATE, 0, 0, 3),
            (kind::PRIORITY, 0, 1, 4),
            (kind::PING, 0, 0, 9),
            (kind::GOAWAY, 0, 0, 7),
            (kind::SETTINGS, flag::ACK, 0, 6),
            (kind::SETTINGS, 0, 0, 7),
        ] {
            assert_eq!(fault_code(kind, flags, stream, len), Some(code::FRAME_SIZE_ERROR), "{kind}");
        }
    }
}
