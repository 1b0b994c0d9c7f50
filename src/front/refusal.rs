//! Refusal: reason why a call ends without a verdict, and the answer to the caller.
//!
//! | request | gRPC | `/validate`, `/mutate` |
//! | --- | --- | --- |
//! | an unknown path | UNIMPLEMENTED | 404 |
//! | a method other than POST | HTTP 405 | 405, `allow: POST` |
//! | a content type that the path does not support | HTTP 415 | 415 |
//! | gRPC over HTTP/1.1 | HTTP 505 | |
//! | a compressed message | UNIMPLEMENTED, `grpc-accept-encoding: identity` | 415, `accept-encoding: identity` |
//! | an invalid timeout (such as a negative one) | INVALID_ARGUMENT | 400 |
//! | a timeout of zero | DEADLINE_EXCEEDED | 400 |
//! | an invalid `gatepost-namespace-labels-bin` | INVALID_ARGUMENT | |
//! | `gatepost-unfinished` with another word than `stored` | INVALID_ARGUMENT | |
//! | an invalid `gatepost-versions` | INVALID_ARGUMENT | |
//! | an invalid `gatepost-hops` | INVALID_ARGUMENT | 400 |
//! | a review that has passed through four Gateposts | FAILED_PRECONDITION | 508 |
//! | no message or no body | INTERNAL | 400 |
//! | a body with broken chunks | | 400 |
//! | an incomplete message, more than one message, an unknown flag in the frame head | INTERNAL | |
//! | a message declared larger than the limit | RESOURCE_EXHAUSTED, before it is read | 413, before it is read |
//! | a body of undeclared length that exceeds the limit | | 413 |
//! | a message larger than the memory of all reviews | RESOURCE_EXHAUSTED | 413 |
//! | no room in the process's memory budget | RESOURCE_EXHAUSTED, `grpc-retry-pushback-ms` | 503, `retry-after: 1` |
//! | no room in the client's share | RESOURCE_EXHAUSTED, `grpc-retry-pushback-ms` | 503, `retry-after: 1` |
//! | a message slower than 16 KiB a second, after 5 s | DEADLINE_EXCEEDED | 408 |
//! | a message that is incomplete at the deadline | DEADLINE_EXCEEDED | 408 |
//! | a message that is not an AdmissionReview with a request, uid and operation | INVALID_ARGUMENT | 400 |
//! | a claim to an initializer's name that is not admitted | PERMISSION_DENIED | |
//! | a stream of an initializer that does not begin with a claim | INVALID_ARGUMENT | |
//! | more attached streams (initializers, apiservers, plugins) than the limit | RESOURCE_EXHAUSTED | |
//! | an Initialization message that is invalid, has too long texts or an impossible write | INVALID_ARGUMENT | |
//! | more concurrent Initialization calls than the limit | RESOURCE_EXHAUSTED, `grpc-retry-pushback-ms` | |
//! | a `Hold` while the process drains | UNAVAILABLE | |
//! | a request that causes a panic | INTERNAL | 500 |
//!
//! A refusal over HTTP has a `metav1.Status` as its body, since client-go shows its message to the client.
//!
//! A body that does not arrive is answered with 408 and not 504, because no hook was called. Overload is answered with
//! 503 and `retry-after`, because kube-apiserver then retries within the hook's timeout.
//!
//! INTERNAL and INVALID_ARGUMENT differ as in gRPC: a broken frame is the fault of the caller's gRPC library and does
//! not depend on the review (grpc-go and grpc-java answer INTERNAL as well); a complete message that is no review is
//! the fault of its author.
//!
//! `te: trailers` is not required: HTTP/2 itself forbids any other value, and a caller without it still reads trailers.

use std::time::Duration;

use http::StatusCode;
use tonic::Code;

use crate::telemetry::RefusalReason;
use gatepost_api::Hops;
use gatepost_wire::inbound::ViewError;

/// Reason why a call ends without a verdict.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("there is nothing at {path}: this port serves POST /validate, POST /mutate and gRPC")]
    UnknownPath { path: String },
    #[error("calls are made with POST")]
    Method,
    #[error("the content-type must be application/grpc or application/grpc+proto")]
    NotGrpc,
    #[error("the content-type must be application/json or application/vnd.kubernetes.protobuf")]
    ContentType,
    #[error("gRPC is spoken over HTTP/2 only")]
    GrpcOverHttp1,
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
    #[error("gatepost-unfinished must be the word stored, once")]
    Unfinished,
    #[error("gatepost-versions must be 1 to 64 texts GROUP/VERSION/RESOURCE joined by commas, once")]
    Versions,
    #[error("{} must be a number from 0 to 255, once", Hops::HEADER)]
    Hops,
    #[error(
        "the review has passed through {0} Gateposts, and the limit is {limit}: a hook of one of them leads back to it; \
         correct that hook's clientConfig (`gatepost check` names hooks that lead to Gatepost itself)",
        limit = Hops::LIMIT.get()
    )]
    Loop(u8),
    #[error("the body must not be compressed: send it with content-encoding identity")]
    ContentEncoding,
    #[error("?timeout= must be given once, as a duration of more than zero such as 10s, 1m30s or 500ms")]
    TimeoutParameter,
    #[error("the request has no body: send one AdmissionReview")]
    NoBody,
    #[error("the body cannot be read: its chunks are broken")]
    BrokenBody,
    #[error("the body is longer than the limit of {limit} bytes")]
    TooLong { limit: usize },
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
    #[error("no room for {bytes} bytes of this call at the moment: try again")]
    Overloaded { bytes: usize },
    #[error("no room for {bytes} bytes of this call: this client has used up its share of the memory; try again")]
    Share { bytes: usize },
    #[error(
        "{bytes} bytes of this call do not fit into the {limit} bytes that all reviews may have: raise \
         --max-inflight-bytes, or send less"
    )]
    TooLargeForMemory { bytes: usize, limit: usize },
    #[error("a call of this service sends at most {limit} bytes")]
    AuxTooLong { limit: usize },
    #[error("too many calls of health and reflection at once")]
    TooManyAuxCalls,
    #[error("the call took longer than {}", humantime::format_duration(*within))]
    CallDeadline { within: Duration },
    #[error("the name is not configured as one that you may claim: see `attach` of the initializer")]
    NotYours,
    #[error("the first message must be a claim, and every message must be a gatepost.v1.InitializerMessage")]
    NotAClaim,
    #[error("too many attached streams (initializers, apiservers, plugins): try again later")]
    TooManyInstances,
    #[error("this call of gatepost.v1.Initialization does not take such a message")]
    NotAMessage,
    #[error("too many calls of gatepost.v1.Initialization at once: try again")]
    TooManyInitializationCalls,
    #[error("shutting down: ask again")]
    Draining,
    #[error("the deadline had already passed when the call arrived")]
    DeadlineZero,
    #[error("the message was not complete within {}: {received} bytes had arrived", humantime::format_duration(*within))]
    Deadline { within: Duration, received: usize },
    #[error(
        "the message came too slowly: {received} bytes within {}, where 16 KiB a second are expected",
        humantime::format_duration(*within)
    )]
    Stalled { within: Duration, received: usize },
    #[error("{0}")]
    NotAReview(#[from] ViewError),
    #[error("the caller went away")]
    Cancelled,
    #[error("the request could not be handled; this is a bug in gatepost")]
    Bug,
}

impl Refusal {
    /// Returns true if the answer must be plain HTTP, because the request is not valid gRPC.
    pub(super) fn is_plain_http(&self) -> bool {
        matches!(self, Self::UnknownPath { .. } | Self::Method | Self::NotGrpc | Self::GrpcOverHttp1)
    }

    /// Returns the gRPC status.
    pub(super) fn code(&self) -> Code {
        self.statuses().0
    }

    /// Returns the HTTP status.
    pub(super) fn http(&self) -> StatusCode {
        self.statuses().1
    }

    /// Returns the label of the metric. `None` for a drain, which is no fault, and for a bug, which is counted as a
    /// request with an internal error.
    pub(super) fn metric_label(&self) -> Option<RefusalReason> {
        self.statuses().2
    }

    /// Returns the gRPC status, the HTTP status, and the label of the metric.
    fn statuses(&self) -> (Code, StatusCode, Option<RefusalReason>) {
        use StatusCode as Http;
        let (code, http, label) = match self {
            Self::UnknownPath { .. } => (Code::Unimplemented, Http::NOT_FOUND, RefusalReason::UnknownPath),
            Self::UnknownMethod { .. } | Self::UnknownService { .. } => {
                (Code::Unimplemented, Http::NOT_FOUND, RefusalReason::UnknownMethod)
            }
            Self::Method => (Code::Internal, Http::METHOD_NOT_ALLOWED, RefusalReason::Method),
            Self::NotGrpc | Self::ContentType => {
                (Code::Internal, Http::UNSUPPORTED_MEDIA_TYPE, RefusalReason::ContentType)
            }
            Self::GrpcOverHttp1 => (Code::Internal, Http::HTTP_VERSION_NOT_SUPPORTED, RefusalReason::Protocol),
            Self::Compressed => (Code::Unimplemented, Http::UNSUPPORTED_MEDIA_TYPE, RefusalReason::Compressed),
            Self::ContentEncoding => (Code::Internal, Http::UNSUPPORTED_MEDIA_TYPE, RefusalReason::Compressed),
            Self::Timeout | Self::TimeoutParameter => {
                (Code::InvalidArgument, Http::BAD_REQUEST, RefusalReason::Timeout)
            }
            Self::NamespaceLabels => (Code::InvalidArgument, Http::BAD_REQUEST, RefusalReason::NamespaceLabels),
            Self::Unfinished | Self::Versions | Self::Hops | Self::NotAClaim | Self::NotAMessage => {
                (Code::InvalidArgument, Http::BAD_REQUEST, RefusalReason::Framing)
            }
            Self::NotAReview(_) => (Code::InvalidArgument, Http::BAD_REQUEST, RefusalReason::NotAReview),
            Self::Loop(_) => (Code::FailedPrecondition, Http::LOOP_DETECTED, RefusalReason::Loop),
            Self::NoBody
            | Self::BrokenBody
            | Self::NoMessage { .. }
            | Self::Incomplete { .. }
            | Self::MoreThanOne { .. }
            | Self::Flag(_) => (Code::Internal, Http::BAD_REQUEST, RefusalReason::Framing),
            Self::TooLarge { .. } | Self::TooLong { .. } | Self::TooLargeForMemory { .. } | Self::AuxTooLong { .. } => {
                (Code::ResourceExhausted, Http::PAYLOAD_TOO_LARGE, RefusalReason::TooLarge)
            }
            Self::Overloaded { .. } => (Code::ResourceExhausted, Http::SERVICE_UNAVAILABLE, RefusalReason::Overloaded),
            Self::Share { .. } | Self::TooManyAuxCalls | Self::TooManyInitializationCalls => {
                (Code::ResourceExhausted, Http::SERVICE_UNAVAILABLE, RefusalReason::ClientShare)
            }
            Self::TooManyInstances => (Code::ResourceExhausted, Http::SERVICE_UNAVAILABLE, RefusalReason::Instances),
            Self::NotYours => (Code::PermissionDenied, Http::FORBIDDEN, RefusalReason::Claim),
            Self::DeadlineZero => (Code::DeadlineExceeded, Http::BAD_REQUEST, RefusalReason::Deadline),
            Self::Deadline { .. } | Self::CallDeadline { .. } => {
                (Code::DeadlineExceeded, Http::REQUEST_TIMEOUT, RefusalReason::Deadline)
            }
            Self::Stalled { .. } => (Code::DeadlineExceeded, Http::REQUEST_TIMEOUT, RefusalReason::Stalled),
            Self::Cancelled => (Code::Cancelled, Http::REQUEST_TIMEOUT, RefusalReason::Cancelled),
            Self::Draining => return (Code::Unavailable, Http::SERVICE_UNAVAILABLE, None),
            Self::Bug => return (Code::Internal, Http::INTERNAL_SERVER_ERROR, None),
        };
        (code, http, Some(label))
    }
}

/// Returns text from the wire in a form fit for messages: printable ASCII, at most 100 characters.
pub(super) fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 100;
    let mut short: String = text.chars().take(MAX_CHARS).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push_str("...");
    }
    short
}
