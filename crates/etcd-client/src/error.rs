//! Errors of reads from etcd and writes to it.

use std::{error::Error as _, path::Path, time::Duration};

use tonic::{Code, Status};

use crate::member::DialError;
use gatepost_tls::TlsError;

/// Maximum length of etcd's message in an error, in characters.
const MAX_MESSAGE_CHARS: usize = 300;

/// Error of a read from etcd or a write to it. Never contains a password, a token, a key's name or a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// An endpoint or a credential is invalid.
    #[error("{of}: {cause}")]
    Access {
        /// Name of the invalid endpoint or credential.
        of: String,
        /// Reason why it is invalid.
        cause: String,
    },
    /// The TLS files are invalid.
    #[error("the TLS files for etcd: {0}")]
    Tls(TlsError),
    /// The endpoint cannot be reached, or its TLS handshake failed, or the connection broke.
    #[error("cannot reach etcd at {endpoint}: {cause}")]
    Unreachable {
        /// Address of the endpoint.
        endpoint: String,
        /// Innermost cause.
        cause: String,
    },
    /// The call timed out.
    #[error("etcd gave no answer within {}; asked {asked}", rounded(*.timeout))]
    TimedOut {
        /// Timeout of the call.
        timeout: Duration,
        /// Endpoints that did not answer, and the errors of the others.
        asked: String,
    },
    /// The member has no leader, so it cannot serve a linearizable read or a write.
    #[error("etcd at {endpoint} has no leader: {cause}")]
    NoLeader {
        /// Address of the member.
        endpoint: String,
        /// Etcd's message.
        cause: String,
    },
    /// The password is wrong, or the user does not exist.
    #[error("etcd at {endpoint} does not take the password of the user {user:?}")]
    Login {
        /// Address of the member.
        endpoint: String,
        /// Our user name.
        user: String,
    },
    /// Etcd requires a user.
    #[error("etcd at {endpoint} wants a user: {cause}")]
    UserRequired {
        /// Address of the member.
        endpoint: String,
        /// Etcd's message.
        cause: String,
    },
    /// The user lacks the permission.
    #[error("etcd at {endpoint} denies {user} this: {cause}")]
    Denied {
        /// Address of the member.
        endpoint: String,
        /// Description of the user as etcd sees it.
        user: String,
        /// Etcd's message.
        cause: String,
    },
    /// The lease has expired or never existed.
    #[error("etcd at {endpoint} knows no such lease; it may have run out")]
    NoLease {
        /// Address of the member.
        endpoint: String,
    },
    /// The keys and values below the prefix are larger than the limit.
    #[error("etcd holds more than {limit} bytes below {prefix:?}; is this the right prefix?")]
    TooLarge {
        /// Prefix of the read.
        prefix: String,
        /// Limit, in bytes.
        limit: usize,
    },
    /// Etcd returned another gRPC error.
    #[error("etcd at {endpoint} answers {code:?}: {cause}")]
    Refused {
        /// Address of the member.
        endpoint: String,
        /// gRPC status code.
        code: Code,
        /// Etcd's message, shortened.
        cause: String,
    },
    /// The response is invalid: the server is perhaps not etcd.
    #[error("the answer of {endpoint} is not etcd's: {cause}")]
    InvalidResponse {
        /// Address of the endpoint.
        endpoint: String,
        /// Fault of the response.
        cause: String,
    },
    /// All endpoints failed, each with its own error.
    #[error("no endpoint of etcd can be used: {}", listed(.0))]
    All(Vec<EtcdError>),
}

impl EtcdError {
    /// Returns advice for the operator.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Access { .. } => "correct it",
            Self::Tls(error) => error.fix(),
            Self::Unreachable { .. } => {
                "see that etcd and nothing else listens there, with TLS where the endpoint is https:// and without where it \
                 is http://, and that its certificate is of the authority you trust"
            }
            Self::TimedOut { .. } => "see whether its members run, can reach each other, and are not overloaded",
            Self::NoLeader { .. } => "see that more than half of its members run and can reach each other",
            Self::Login { .. } => "correct the user or the password file; etcd logs failed logins",
            Self::UserRequired { .. } => "give a user and a password file, or a client certificate that names a user",
            Self::Denied { .. } => {
                "let the user's role do this on the prefix: `etcdctl role grant-permission --prefix=true ROLE read|readwrite PREFIX`"
            }
            Self::NoLease { .. } => "grant another",
            Self::TooLarge { .. } => "give the prefix that holds the configuration and nothing else",
            Self::Refused { .. } => "see its log",
            Self::InvalidResponse { .. } => "see that the endpoint is etcd's client port, and no proxy's",
            Self::All(errors) => errors.first().map_or("see its log", Self::fix),
        }
    }

    pub(super) fn access(of: &str, cause: &str) -> Self {
        Self::Access { of: of.to_owned(), cause: cause.to_owned() }
    }

    pub(super) fn file(path: &Path, cause: &str) -> Self {
        Self::access(&path.display().to_string(), cause)
    }

    pub(super) fn invalid_response(endpoint: &str, cause: &str) -> Self {
        Self::InvalidResponse { endpoint: endpoint.to_owned(), cause: cause.to_owned() }
    }

    /// Combines the errors of several endpoints. The result does not depend on their order.
    pub(super) fn all(mut errors: Vec<Self>) -> Self {
        errors.sort_by_cached_key(ToString::to_string);
        match errors.len() {
            1 => errors.remove(0),
            _ => Self::All(errors),
        }
    }
}

/// Rounds up to tenths of a second, as the remainder of a longer timeout has nanoseconds.
fn rounded(timeout: Duration) -> humantime::FormattedDuration {
    let tenths = timeout.as_millis().div_ceil(100).max(1);
    humantime::format_duration(Duration::from_millis(u64::try_from(tenths * 100).unwrap_or(u64::MAX)))
}

pub(super) fn listed(errors: &[EtcdError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Whether a failed call may have been processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// No member processed the call: another member may be called.
    NotProcessed,
    /// Unknown: only reads may be sent to another member.
    MaybeProcessed,
    /// The cluster answered: another member would return the same.
    Answered,
}

/// Failure of a call at one member.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) error: EtcdError,
    pub(super) kind: FailureKind,
}

/// Returns true if etcd no longer accepts our token.
// source: etcd api/v3rpc/rpctypes/error.go, ErrGRPCInvalidAuthToken, ErrGRPCAuthOldRevision.
pub(super) fn wants_another_token(status: &Status) -> bool {
    status.message().contains("invalid auth token") || status.message().contains("revision of auth store is old")
}

impl Failure {
    pub(super) fn answered(error: EtcdError) -> Self {
        Self { error, kind: FailureKind::Answered }
    }

    /// Returns the error for a member's status; `user` is the name of our user.
    // source: etcd api/v3rpc/rpctypes/error.go, for the messages.
    pub(super) fn of(status: &Status, endpoint: &str, user: Option<&str>) -> Self {
        let endpoint = endpoint.to_owned();
        if let Some((dialled, cause)) = never_answered(status) {
            let kind = if dialled { FailureKind::MaybeProcessed } else { FailureKind::NotProcessed };
            return Self { error: EtcdError::Unreachable { endpoint, cause }, kind };
        }
        let cause = shortened(status.message());
        let says = |words: &str| cause.contains(words);
        let user =
            || user.map_or("the user of our certificate, or no user,".to_owned(), |user| format!("the user {user:?}"));
        match status.code() {
            Code::Unavailable if says("no leader") => {
                Self { error: EtcdError::NoLeader { endpoint, cause }, kind: FailureKind::NotProcessed }
            }
            Code::InvalidArgument if says("user name is empty") => {
                Self::answered(EtcdError::UserRequired { endpoint, cause })
            }
            Code::Unauthenticated => Self::answered(EtcdError::UserRequired { endpoint, cause }),
            Code::PermissionDenied => Self::answered(EtcdError::Denied { endpoint, user: user(), cause }),
            Code::NotFound if says("lease not found") => Self::answered(EtcdError::NoLease { endpoint }),
            code @ (Code::InvalidArgument | Code::FailedPrecondition | Code::NotFound | Code::OutOfRange) => {
                Self::answered(EtcdError::Refused { endpoint, code, cause })
            }
            // The member is overloaded, starting, stopping or electing a leader; or the server is not etcd.
            code => Self { error: EtcdError::Refused { endpoint, code, cause }, kind: FailureKind::MaybeProcessed },
        }
    }
}

/// Returns whether a connection existed and the innermost cause; `None` if a server sent the status.
fn never_answered(status: &Status) -> Option<(bool, String)> {
    let mut next = status.source();
    next?;
    let (mut dialled, mut text) = (true, status.message().to_owned());
    while let Some(cause) = next {
        if let Some(not) = cause.downcast_ref::<DialError>() {
            return Some((false, not.0.clone()));
        }
        dialled &= !cause.is::<tonic::ConnectError>();
        text = cause.to_string();
        next = cause.source();
    }
    Some((dialled, text))
}

fn shortened(message: &str) -> String {
    message.chars().take(MAX_MESSAGE_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_causes_are_the_same_error_in_whatever_order_they_came() {
        let unreachable =
            |endpoint: &str| EtcdError::Unreachable { endpoint: endpoint.into(), cause: "refused".into() };
        let [one, other] = ["https://a.example", "https://b.example"].map(unreachable);
        let all = EtcdError::all(vec![one.clone(), other.clone()]);
        assert_eq!(EtcdError::all(vec![other, one.clone()]), all);
        assert_eq!(EtcdError::all(vec![one.clone()]), one);
    }

    #[test]
    fn what_was_left_of_a_time_is_printed_in_tenths() {
        let late = |nanos| EtcdError::TimedOut { timeout: Duration::from_nanos(nanos), asked: "x".into() }.to_string();
        assert_eq!(late(1_999_996_383), "etcd gave no answer within 2s; asked x");
        assert_eq!(late(800_000_000), "etcd gave no answer within 800ms; asked x");
        assert_eq!(late(1), "etcd gave no answer within 100ms; asked x");
    }
}
