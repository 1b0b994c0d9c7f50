//! Rules: on which stream a frame may stand, and how long it is, by its kind. RFC 9113 §6.

use super::{
    fault::ProtocolFault,
    frame::{FrameHead, flag, kind},
};

/// Is this a frame that a server may send at all?
pub(super) fn check(head: FrameHead) -> Result<(), ProtocolFault> {
    match head.kind {
        kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION if head.stream == 0 => {
            Err(ProtocolFault::protocol("sent a stream's frame on stream 0"))
        }
        kind::SETTINGS | kind::PING | kind::GOAWAY if head.stream != 0 => {
            Err(ProtocolFault::protocol("sent a connection's frame on a stream"))
        }
        kind::PUSH_PROMISE => Err(ProtocolFault::protocol("pushes, which was not allowed")),
        _ if has_its_length(head) => Ok(()),
        _ => Err(ProtocolFault::frame_size("sent a frame of a wrong length")),
    }
}

fn has_its_length(head: FrameHead) -> bool {
    match head.kind {
        kind::RST_STREAM | kind::WINDOW_UPDATE => head.len == 4,
        kind::PRIORITY => head.len == 5,
        kind::PING => head.len == 8,
        kind::GOAWAY => head.len >= 8,
        kind::SETTINGS if head.has(flag::ACK) => head.len == 0,
        kind::SETTINGS => head.len.is_multiple_of(6),
        _ => true,
    }
}

/// Does such a frame speak of a stream that must have been opened?
pub(super) fn needs_stream(head: FrameHead) -> bool {
    matches!(head.kind, kind::DATA | kind::HEADERS | kind::RST_STREAM)
        || head.kind == kind::WINDOW_UPDATE && head.stream != 0
}

#[cfg(test)]
mod tests {
    use super::{super::frame::code, *};

    fn fault_code(kind: u8, flags: u8, stream: u32, len: usize) -> Option<u32> {
        check(FrameHead { len, kind, flags, stream }).err().map(|fault| fault.code)
    }

    #[test]
    fn frames_stand_where_they_belong() {
        for kind in [kind::DATA, kind::HEADERS, kind::PRIORITY, kind::RST_STREAM, kind::CONTINUATION] {
            assert_eq!(fault_code(kind, 0, 0, 5), Some(code::PROTOCOL_ERROR), "{kind}");
        }
        for (kind, len) in [(kind::SETTINGS, 6), (kind::PING, 8), (kind::GOAWAY, 8)] {
            assert_eq!(fault_code(kind, 0, 1, len), Some(code::PROTOCOL_ERROR), "{kind}");
            assert_eq!(fault_code(kind, 0, 0, len), None, "{kind}");
        }
        assert_eq!(fault_code(kind::PUSH_PROMISE, 0, 1, 8), Some(code::PROTOCOL_ERROR));
        assert_eq!(fault_code(0x77, 0, 3, 1), None, "of a kind that nobody knows");
    }

    #[test]
    fn frames_are_as_long_as_their_kind() {
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
