//! Refusal: why a call ends without a verdict, as the caller is told.
//!
//! | what came | answer |
//! | --- | --- |
//! | a method other than POST | HTTP 405 |
//! | a content type other than `application/grpc`, `application/grpc+proto` | HTTP 415 |
//! | an unknown service or method | UNIMPLEMENTED |
//! | `grpc-encoding` other than identity, or a message whose compressed flag is set | UNIMPLEMENTED, `grpc-accept-encoding: identity` |
//! | a `grpc-timeout` that is not 1 to 8 digits and one of `H M S m u n` (so also a negative one) | INVALID_ARGUMENT |
//! | a `grpc-timeout` of zero | DEADLINE_EXCEEDED |
//! | unreadable `gatepost-namespace-labels-bin` | INVALID_ARGUMENT |
//! | no message, half a message, more than one message, an unknown flag in the frame head | INTERNAL |
//! | a message declared larger than the limit | RESOURCE_EXHAUSTED, before it is read |
//! | no room in the process's memory budget | RESOURCE_EXHAUSTED, `grpc-retry-pushback-ms` |
//! | a message that is not whole by the deadline | DEADLINE_EXCEEDED |
//! | a message that is not an AdmissionReview with a request, uid and operation | INVALID_ARGUMENT |
//! | a request that made us panic | INTERNAL |
//!
//! The line between INTERNAL and INVALID_ARGUMENT is gRPC's own: a broken frame is the fault of the caller's gRPC
//! library and says nothing about the review in it (grpc-go and grpc-java answer INTERNAL as well); a whole message that
//! is no review is the fault of whoever wrote it.
//!
//! `te: trailers` is not insisted on: HTTP/2 itself forbids any other value, and a caller without it still reads trailers.

use std::time::Duration;

use http::StatusCode;
use tonic::Code;

use crate::{telemetry::Refused, wire::inbound::ViewError};

/// Why a call ends without a verdict.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("gRPC calls are made with POST")]
    Method,
    #[error("the content-type must be application/grpc or application/grpc+proto")]
    ContentType,
    #[error("unknown method {method}: gatepost.v1.Admission has Review, Mutate and Validate")]
    UnknownMethod { method: String },
    #[error("unknown service in {path}: this port serves gatepost.v1.Admission, grpc.health.v1.Health and reflection")]
    UnknownService { path: String },
    #[error("messages must not be compressed: send them with grpc-encoding identity")]
    Compressed,
    #[error("grpc-timeout must be 1 to 8 digits and one of the units H, M, S, m, u, n")]
    Timeout,
    #[error("gatepost-namespace-labels-bin must be base64 of a protobuf gatepost.v1.NamespaceLabels, once")]
    NamespaceLabels,
    #[error("the call has no message: the stream ended after {received} of the 5 bytes of a frame head")]
    NoMessage { received: usize },
    #[error(
        "the message is incomplete: the stream ended after {received} of the {declared} bytes its frame head declares"
    )]
    Incomplete { received: usize, declared: usize },
    #[error("more follows the message of {declared} bytes, but the call takes exactly one")]
    MoreThanOne { declared: usize },
    #[error("the frame head begins with {0}, but only 0 (plain) and 1 (compressed) exist")]
    Flag(u8),
    #[error("the message is {declared} bytes long, the limit is {limit}")]
    TooLarge { declared: usize, limit: usize },
    #[error("no room for the {declared} bytes of this message at the moment: try again")]
    Overloaded { declared: usize },
    #[error("the deadline had already passed when the call arrived")]
    DeadlineZero,
    #[error("the message was not complete within {}: {received} bytes had arrived", humantime::format_duration(*within))]
    Deadline { within: Duration, received: usize },
    #[error("{0}")]
    NotAReview(#[from] ViewError),
    #[error("the caller went away")]
    Cancelled,
    #[error("the request could not be handled; this is a bug in gatepost")]
    Bug,
}

impl Refusal {
    /// The HTTP status, where gRPC cannot be spoken at all.
    pub(super) fn http(&self) -> Option<StatusCode> {
        match self {
            Self::Method => Some(StatusCode::METHOD_NOT_ALLOWED),
            Self::ContentType => Some(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            _ => None,
        }
    }

    /// The gRPC status.
    pub(super) fn code(&self) -> Code {
        match self {
            Self::UnknownMethod { .. } | Self::UnknownService { .. } | Self::Compressed => Code::Unimplemented,
            Self::Timeout | Self::NamespaceLabels | Self::NotAReview(_) => Code::InvalidArgument,
            Self::TooLarge { .. } | Self::Overloaded { .. } => Code::ResourceExhausted,
            Self::DeadlineZero | Self::Deadline { .. } => Code::DeadlineExceeded,
            Self::Cancelled => Code::Cancelled,
            Self::Method
            | Self::ContentType
            | Self::NoMessage { .. }
            | Self::Incomplete { .. }
            | Self::MoreThanOne { .. }
            | Self::Flag(_)
            | Self::Bug => Code::Internal,
        }
    }

    /// How it is counted; `None` for a bug, which is counted as a request that ended internally.
    pub(super) fn counted(&self) -> Option<Refused> {
        Some(match self {
            Self::Method | Self::ContentType => Refused::NotGrpc,
            Self::UnknownMethod { .. } | Self::UnknownService { .. } => Refused::UnknownMethod,
            Self::Compressed => Refused::Compressed,
            Self::Timeout => Refused::Timeout,
            Self::NamespaceLabels => Refused::NamespaceLabels,
            Self::NoMessage { .. } | Self::Incomplete { .. } | Self::MoreThanOne { .. } | Self::Flag(_) => {
                Refused::Framing
            }
            Self::TooLarge { .. } => Refused::TooLarge,
            Self::Overloaded { .. } => Refused::Overloaded,
            Self::DeadlineZero | Self::Deadline { .. } => Refused::Deadline,
            Self::NotAReview(_) => Refused::NotAReview,
            Self::Cancelled => Refused::Cancelled,
            Self::Bug => return None,
        })
    }
}

/// Text from the wire, fit to be repeated: printable ASCII, at most 100 characters.
pub(super) fn shortened(text: &str) -> String {
    const LONGEST: usize = 100;
    let mut short: String = text.chars().take(LONGEST).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push_str("...");
    }
    short
}
