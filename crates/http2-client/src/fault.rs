//! Fault: reason for which a connection is beyond use.

use super::frame::code;

/// Breach of the protocol by the peer, after which a connection is beyond use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolFault {
    /// Deed of the peer, as the rest of a sentence about it.
    pub what: &'static str,
    /// Error code of the GOAWAY to the peer.
    pub code: u32,
}

impl ProtocolFault {
    /// A rule was broken that has no code of its own.
    pub(super) fn protocol(what: &'static str) -> Self {
        Self { what, code: code::PROTOCOL_ERROR }
    }

    /// A frame is not as long as its kind is.
    pub(super) fn frame_size(what: &'static str) -> Self {
        Self { what, code: code::FRAME_SIZE_ERROR }
    }

    /// Flow control was broken.
    pub(super) fn flow(what: &'static str) -> Self {
        Self { what, code: code::FLOW_CONTROL_ERROR }
    }

    /// A header block cannot be read.
    pub(super) fn compression(what: &'static str) -> Self {
        Self { what, code: code::COMPRESSION_ERROR }
    }

    /// Work is made that answers nothing.
    pub(super) fn flood(what: &'static str) -> Self {
        Self { what, code: code::ENHANCE_YOUR_CALM }
    }
}
