//! Answer and CallFailure: answer of one hook, or the reason why it is unusable; and the step on the way to a hook at
//! which a call was stopped.

use std::{fmt, time::Duration};

use bytes::Bytes;

use super::{FailureClass, FailureKind, StatusInfo};

/// A hook's definite no, as the hook worded it (before upstream's rules turn it into the client's status). Boxed, as it
/// is rare and large, and every hook's outcome of every request has room for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denial(pub Box<StatusInfo>);

/// A change of the object that a mutating hook asks for, unread. Only of a yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedPatch {
    /// The patch as it was sent, never empty: a list of operations in JSON, if the hook is right.
    pub text: Bytes,
    /// `patchType`, where it is not `JSONPatch`.
    pub other_type: Option<Box<str>>,
}

/// Answer of one hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// `None` is yes.
    pub denial: Option<Denial>,
    /// The change that a mutating hook asks for; a validating hook has none.
    pub patch: Option<Box<ProposedPatch>>,
    /// Texts for the client, unfiltered where they are few.
    pub warnings: Vec<String>,
    /// Notes for the audit log, keys without the hook's name, unfiltered.
    pub audit_annotations: Vec<(String, String)>,
    /// Further ones that are not kept.
    pub annotations_left_out: usize,
}

/// No usable answer. The failure policy decides what becomes of it; it is never a denial.
///
/// Its `Display` is the cause alone; [`CallFailure::step`] names the step of the call, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The hook did not answer within its own timeout, or within what was left of the request's.
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
        /// The hook's text, percent-decoded and shortened.
        message: String,
    },
    /// The hook answered with an HTTP status other than 200, or with something that is not gRPC.
    #[error("the hook does not speak gRPC: {0}")]
    NotGrpc(String),
    /// The hook answered with an HTTP status that is no answer to a review.
    #[error("the hook answered with HTTP status {status}{}{message}", if message.is_empty() { "" } else { ": " })]
    Http {
        /// The status.
        status: u16,
        /// The hook's text, shortened; may be empty.
        message: String,
    },
    /// The hook's connection does not speak HTTP as it should.
    #[error("the hook does not speak HTTP: {0}")]
    NotHttp(String),
    /// The review cannot be written as this hook wants it.
    #[error("the review cannot be written for this hook: {0}")]
    Unwritable(String),
    /// The hook's rules name only other versions of the resource, and an AdmissionReview holds the object in one.
    #[error(
        "unable to convert to {wanted}: the review holds {got}, and only the caller can convert; have it ask about \
         {wanted} (`gatepost register --config`)"
    )]
    OtherVersion {
        /// The version a rule names, `<group>/<version>, Resource=<resource>` as upstream writes it.
        wanted: String,
        /// The version the object is in, written alike.
        got: String,
    },
    /// The hook selects by labels of a namespace that cannot be looked up.
    #[error("{0}")]
    NamespaceUnavailable(String),
    /// The answer is larger than we accept.
    #[error("the answer is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The limit in force.
        limit: usize,
    },
    /// The memory budget has no room for the answer.
    #[error("gatepost has no memory budget left for the answer")]
    Overloaded,
    /// The answer is not an AdmissionReview.
    #[error("the answer cannot be decoded: {0}")]
    Undecodable(String),
    /// The answer is an AdmissionReview, and breaks a rule that has no variant of its own.
    #[error("{0}")]
    Invalid(String),
    /// The answer has no `response`.
    #[error("webhook response was absent")]
    NoResponse,
    /// The answer belongs to another request.
    #[error("expected response.uid={expected:?}, got {got:?}")]
    WrongUid {
        /// Expected value.
        expected: String,
        /// Value that came back, shortened.
        got: String,
    },
    /// A validating hook tried to change the object: it returned this field, `patch` or `patchType`.
    #[error("validating webhook may not return response.{0}")]
    PatchFromValidating(&'static str),
    /// A mutating hook's patch is no list of operations, or a larger one than is taken.
    #[error("{0}")]
    UndecodablePatch(String),
    /// A mutating hook's patch has operations and is of another type than JSON Patch.
    #[error("unsupported patch type {0:?}")]
    PatchType(String),
    /// A mutating hook's patch adds more of its own to the object than is taken.
    #[error("{0}")]
    PatchOverLimit(String),
    /// A dry run cannot reach a hook whose side effects are not declared.
    #[error("the hook does not declare sideEffects, so a dry run must not reach it")]
    SideEffectsUndeclared,
}

impl CallFailure {
    /// The step that failed, in upstream's words (`docs/reference/webhook-semantics.md` §10); "" where upstream names
    /// none.
    pub fn step(&self) -> &'static str {
        match self {
            Self::Invalid(_) | Self::NoResponse | Self::WrongUid { .. } | Self::PatchFromValidating(_) => {
                "received invalid webhook response"
            }
            Self::UndecodablePatch(_) => "received undecodable patch in webhook response",
            Self::PatchType(_) | Self::PatchOverLimit(_) | Self::NamespaceUnavailable(_) => "",
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

    /// Loggable part of the failure.
    pub fn class(&self) -> FailureClass<'_> {
        FailureClass(self)
    }

    /// Label for metrics and the audit log.
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

    /// True where asking again elsewhere may help: nothing usable came back and the hook itself did not answer.
    pub fn may_retry(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Connection(_) => true,
            Self::Grpc { code, .. } => *code == "UNAVAILABLE",
            Self::Http { status, .. } => matches!(status, 502..=504),
            _ => false,
        }
    }
}

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
