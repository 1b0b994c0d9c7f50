//! Reach: the steps on the way to a hook, and where one was stopped.

use std::fmt;

/// A step on the way to a hook, in the order in which they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The host's name to its addresses.
    Resolve,
    /// A socket.
    Connect,
    /// TLS, and with it who the peer is.
    Tls,
    /// HTTP/2's first words.
    Handshake,
    /// The standard health service.
    Health,
    /// The canned dry-run review.
    Review,
}

impl Step {
    /// As operators read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "TLS",
            Self::Handshake => "HTTP handshake",
            Self::Health => "health",
            Self::Review => "review",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Failure to connect: the step that failed, and the attempts made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Unreachable {
    /// Step that failed.
    pub step: Step,
    /// Attempts made, and the other side's or the operating system's words.
    pub what: String,
}

impl Unreachable {
    /// At that step.
    pub fn at(step: Step, what: impl Into<String>) -> Self {
        Self { step, what: what.into() }
    }
}
