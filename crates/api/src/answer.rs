//! The answer of one hook, the reason why a hook gave no usable answer, and the step at which a connection or a probe
//! failed.

use std::{fmt, time::Duration};

use bytes::Bytes;

use super::{FailureClass, FailureKind, StatusInfo};

/// A denial, as the hook sent it (before upstream's rules turn it into the client's status). Boxed because it is rare
/// and large, and every outcome of a hook has room for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denial(pub Box<StatusInfo>);

/// A patch that a mutating hook returned with an allowing answer, not parsed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedPatch {
    /// The patch as it was sent, never empty. A correct hook sends a list of operations in JSON.
    pub text: Bytes,
    /// `patchType`; `None` if it is `JSONPatch`.
    pub other_type: Option<Box<str>>,
}

/// Answer of one hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The denial; `None` if the hook allows the request.
    pub denial: Option<Denial>,
    /// The patch of a mutating hook; `None` for a validating hook.
    pub patch: Option<Box<ProposedPatch>>,
    /// Warnings for the client. Not filtered, unless they are many or long.
    pub warnings: Vec<String>,
    /// Audit annotations, not filtered. Keys are without the hook's name.
    pub audit_annotations: Vec<(String, String)>,
    /// Number of further audit annotations, which were dropped.
    pub annotations_left_out: usize,
}

/// The reason why a call gave no usable answer. The failure policy decides its effect; it is never a denial.
///
/// `Display` writes only the cause. [`CallFailure::upstream_prefix`] returns the message that upstream writes before
/// it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The hook did not answer within its own timeout or the request's remaining time.
    #[error("no answer within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
    /// No connection could be made.
    #[error("cannot connect: {0}")]
    Connect(Unreachable),
    /// The connection broke before the answer was complete.
    #[error("connection lost: {0}")]
    Connection(String),
    /// The hook ended the call with a gRPC status other than OK.
    #[error("the hook answered with gRPC status {code}: {message}")]
    Grpc {
        /// Name of the code, as in the gRPC specification.
        code: &'static str,
        /// The hook's message, percent-decoded and shortened.
        message: String,
    },
    /// The hook answered with an HTTP status other than 200, or with something that is not gRPC.
    #[error("the hook does not speak gRPC: {0}")]
    NotGrpc(String),
    /// The hook answered with an HTTP status that is not an answer to a review.
    #[error("the hook answered with HTTP status {status}{}{message}", if message.is_empty() { "" } else { ": " })]
    Http {
        /// HTTP status code.
        status: u16,
        /// The hook's message, shortened; may be empty.
        message: String,
    },
    /// The hook's responses are not valid HTTP.
    #[error("the hook does not speak HTTP: {0}")]
    NotHttp(String),
    /// The review cannot be encoded for this hook.
    #[error("the review cannot be written for this hook: {0}")]
    Unwritable(String),
    /// The hook's rules do not name the version of the object, and Gatepost cannot convert objects.
    #[error(
        "unable to convert to {wanted}: the review holds {got}, and only the caller can convert; have it ask about \
         {wanted} (`gatepost register --config`)"
    )]
    OtherVersion {
        /// Version that a rule names, as `<group>/<version>, Resource=<resource>` (upstream's format).
        wanted: String,
        /// Version of the object, in the same format.
        got: String,
    },
    /// The hook selects by namespace labels, and the labels of the namespace cannot be looked up.
    #[error("{0}")]
    NamespaceUnavailable(String),
    /// A policy in this process could not be evaluated. The status is the whole rejection, in upstream's words.
    #[error("{}", .0.message)]
    Evaluation(Box<StatusInfo>),
    /// The answer exceeds the size limit.
    #[error("the answer is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The memory budget has no room for the answer.
    #[error("gatepost has no memory budget left for the answer")]
    Overloaded,
    /// The answer is not an AdmissionReview.
    #[error("the answer cannot be decoded: {0}")]
    Undecodable(String),
    /// The answer is an AdmissionReview that breaks a rule without a variant of its own.
    #[error("{0}")]
    Invalid(String),
    /// The answer has no `response`.
    #[error("webhook response was absent")]
    NoResponse,
    /// The answer has the uid of another request.
    #[error("expected response.uid={expected:?}, got {got:?}")]
    WrongUid {
        /// Expected uid.
        expected: String,
        /// Uid of the answer, shortened.
        got: String,
    },
    /// A validating hook returned this field, `patch` or `patchType`.
    #[error("validating webhook may not return response.{0}")]
    PatchFromValidating(&'static str),
    /// A mutating hook's patch is not a list of operations, or has too many operations.
    #[error("{0}")]
    UndecodablePatch(String),
    /// A mutating hook's patch has operations, but its type is not JSON Patch.
    #[error("unsupported patch type {0:?}")]
    PatchType(String),
    /// A mutating hook's patch adds more data to the object than the limit allows.
    #[error("{0}")]
    PatchOverLimit(String),
    /// The request is a dry run, and the hook does not declare its side effects.
    #[error("the hook does not declare sideEffects, so a dry run must not reach it")]
    SideEffectsUndeclared,
}

impl CallFailure {
    /// Returns the message that upstream writes before the cause (`docs/reference/webhook-semantics.md` §10), such as
    /// "failed to call webhook"; "" if it writes none. It does not name a [`Step`].
    pub fn upstream_prefix(&self) -> &'static str {
        match self {
            Self::Invalid(_) | Self::NoResponse | Self::WrongUid { .. } | Self::PatchFromValidating(_) => {
                "received invalid webhook response"
            }
            Self::UndecodablePatch(_) => "received undecodable patch in webhook response",
            Self::PatchType(_) | Self::PatchOverLimit(_) | Self::NamespaceUnavailable(_) | Self::Evaluation(_) => "",
            Self::SideEffectsUndeclared | Self::Unwritable(_) | Self::OtherVersion { .. } => {
                "could not create admission objects"
            }
            Self::Timeout(_)
            | Self::Connect(_)
            | Self::Connection(_)
            | Self::Grpc { .. }
            | Self::NotGrpc(_)
            | Self::Http { .. }
            | Self::NotHttp(_)
            | Self::Undecodable(_)
            | Self::TooLarge { .. }
            | Self::Overloaded => "failed to call webhook",
        }
    }

    /// Returns the part of the failure that may be logged.
    pub fn class(&self) -> FailureClass<'_> {
        FailureClass(self)
    }

    /// Returns the label for metrics and the audit log.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Timeout(_) => FailureKind::Timeout,
            Self::Connect(_) => FailureKind::Connect,
            Self::Connection(_) => FailureKind::Connection,
            Self::Grpc { .. } => FailureKind::GrpcStatus,
            Self::NotGrpc(_) => FailureKind::NotGrpc,
            Self::Http { .. } => FailureKind::HttpStatus,
            Self::NotHttp(_) => FailureKind::NotHttp,
            Self::Unwritable(_) => FailureKind::Unwritable,
            Self::OtherVersion { .. } => FailureKind::OtherVersion,
            Self::NamespaceUnavailable(_) => FailureKind::NamespaceUnavailable,
            Self::Evaluation(_) => FailureKind::Evaluation,
            Self::Invalid(_) => FailureKind::Invalid,
            Self::TooLarge { .. } => FailureKind::TooLarge,
            Self::Overloaded => FailureKind::Overloaded,
            Self::Undecodable(_) => FailureKind::Undecodable,
            Self::NoResponse => FailureKind::NoResponse,
            Self::WrongUid { .. } => FailureKind::WrongUid,
            Self::PatchFromValidating(_) => FailureKind::PatchFromValidating,
            Self::UndecodablePatch(_) => FailureKind::UndecodablePatch,
            Self::PatchType(_) => FailureKind::PatchType,
            Self::PatchOverLimit(_) => FailureKind::PatchOverLimit,
            Self::SideEffectsUndeclared => FailureKind::SideEffectsUndeclared,
        }
    }

    /// Returns true if a retry may help: the connection failed, or the status says that the hook is unavailable.
    pub fn may_retry(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Connection(_) => true,
            Self::Grpc { code, .. } => *code == "UNAVAILABLE",
            Self::Http { status, .. } => matches!(status, 502..=504),
            _ => false,
        }
    }
}

/// A step of connecting to a hook or probing it, in the order of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Resolving the host name.
    Resolve,
    /// Opening the socket.
    Connect,
    /// The TLS handshake, including the check of the peer's certificate.
    Tls,
    /// The start of the HTTP connection.
    Handshake,
    /// The call of the standard gRPC health service.
    Health,
    /// The call with the canned dry-run review.
    Review,
}

impl Step {
    /// Returns the name that operators read.
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

/// A failure to connect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Unreachable {
    /// Step that failed.
    pub step: Step,
    /// Attempts that were made, with the error of the peer or the operating system.
    pub what: String,
}

impl Unreachable {
    /// Creates a failure at this step.
    pub fn at(step: Step, what: impl Into<String>) -> Self {
        Self { step, what: what.into() }
    }
}
