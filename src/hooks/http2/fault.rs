//! Fault: why a connection is beyond use.

use std::{borrow::Cow, io};

use super::frame::code;

/// Why a connection is beyond use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) what: Cow<'static, str>,
    /// What the hook is told in GOAWAY; `None` where there is nobody to tell.
    pub(super) code: Option<u32>,
}

impl Fault {
    /// The hook broke a rule that has no code of its own.
    pub(super) fn protocol(what: &'static str) -> Self {
        Self { what: what.into(), code: Some(code::PROTOCOL_ERROR) }
    }

    /// The hook sent a frame that is not as long as its kind is.
    pub(super) fn frame_size(what: &'static str) -> Self {
        Self { what: what.into(), code: Some(code::FRAME_SIZE_ERROR) }
    }

    /// The hook broke flow control.
    pub(super) fn flow(what: &'static str) -> Self {
        Self { what: what.into(), code: Some(code::FLOW_CONTROL_ERROR) }
    }

    /// The hook sent a header block that cannot be read.
    pub(super) fn compression(what: &'static str) -> Self {
        Self { what: what.into(), code: Some(code::COMPRESSION_ERROR) }
    }

    /// The hook makes work that answers nothing.
    pub(super) fn flood(what: &'static str) -> Self {
        Self { what: what.into(), code: Some(code::ENHANCE_YOUR_CALM) }
    }

    /// The connection carries nothing any more.
    pub(super) fn lost(what: impl Into<Cow<'static, str>>) -> Self {
        Self { what: what.into(), code: None }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::lost(error.to_string())
    }
}
