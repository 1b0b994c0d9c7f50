//! EtcdError: failure to read from etcd or to write to it.

use std::{error::Error as _, path::Path, time::Duration};

use tonic::{Code, Status};

use crate::member::NotDialled;
use gatepost_tls::TlsError;

/// Longest part of etcd's message that is repeated.
const LONGEST_MESSAGE: usize = 300;

/// Failure to read from etcd or to write to it. Never holds a password, a token, a key's name or a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// Endpoints or credentials cannot be used as they stand.
    #[error("{of}: {cause}")]
    Access {
        /// Name of the faulty endpoint or credential.
        of: String,
        /// Fault that was found.
        cause: String,
    },
    /// The TLS files cannot be used.
    #[error("the TLS files for etcd: {0}")]
    Tls(TlsError),
    /// The address does not answer, or not in a way that can be trusted.
    #[error("cannot reach etcd at {endpoint}: {cause}")]
    Unreachable {
        /// Its address.
        endpoint: String,
        /// The innermost cause.
        cause: String,
    },
    /// It took too long.
    #[error("etcd gave no answer within {}; asked {asked}", rounded(*.patience))]
    Late {
        /// The time it had.
        patience: Duration,
        /// Which endpoints were asked, and why those have failed that have.
        asked: String,
    },
    /// The member has no leader, so it cannot know what is true now.
    #[error("etcd at {endpoint} has no leader: {cause}")]
    NoLeader {
        /// The member's address.
        endpoint: String,
        /// Etcd's words.
        cause: String,
    },
    /// The password is not the user's, or there is no such user.
    #[error("etcd at {endpoint} does not take the password of the user {user:?}")]
    Login {
        /// The member's address.
        endpoint: String,
        /// Our user name.
        user: String,
    },
    /// Etcd wants to know who we are.
    #[error("etcd at {endpoint} wants a user: {cause}")]
    Unknown {
        /// The member's address.
        endpoint: String,
        /// Etcd's words.
        cause: String,
    },
    /// The user may not do this.
    #[error("etcd at {endpoint} denies {user} this: {cause}")]
    Denied {
        /// The member's address.
        endpoint: String,
        /// User as etcd sees us.
        user: String,
        /// Etcd's words.
        cause: String,
    },
    /// The lease is over, or never was.
    #[error("etcd at {endpoint} knows no such lease; it may have run out")]
    NoLease {
        /// The member's address.
        endpoint: String,
    },
    /// More than is plausible.
    #[error("etcd holds more than {limit} bytes below {prefix:?}; is this the right prefix?")]
    TooLarge {
        /// Prefix of the read.
        prefix: String,
        /// The most that is taken, in bytes.
        limit: usize,
    },
    /// Etcd says no for another reason.
    #[error("etcd at {endpoint} answers {code:?}: {cause}")]
    Refused {
        /// The member's address.
        endpoint: String,
        /// Its gRPC status.
        code: Code,
        /// Its message, shortened.
        cause: String,
    },
    /// The answer is not one of etcd.
    #[error("the answer of {endpoint} is not etcd's: {cause}")]
    Nonsense {
        /// The address.
        endpoint: String,
        /// Fault that was found.
        cause: String,
    },
    /// No endpoint could do it, each for a reason of its own.
    #[error("no endpoint of etcd can be used: {}", listed(.0))]
    All(Vec<EtcdError>),
}

impl EtcdError {
    /// Advice for the operator.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Access { .. } => "correct it",
            Self::Tls(error) => error.fix(),
            Self::Unreachable { .. } => {
                "see that etcd and nothing else listens there, with TLS where the endpoint is https:// and without where it \
                 is http://, and that its certificate is of the authority you trust"
            }
            Self::Late { .. } => "see whether its members run, can reach each other, and are not overloaded",
            Self::NoLeader { .. } => "see that more than half of its members run and can reach each other",
            Self::Login { .. } => "correct the user or the password file; etcd logs failed logins",
            Self::Unknown { .. } => "give a user and a password file, or a client certificate that names a user",
            Self::Denied { .. } => {
                "let the user's role do this on the prefix: `etcdctl role grant-permission --prefix=true ROLE read|readwrite PREFIX`"
            }
            Self::NoLease { .. } => "grant another",
            Self::TooLarge { .. } => "give the prefix that holds the configuration and nothing else",
            Self::Refused { .. } => "see its log",
            Self::Nonsense { .. } => "see that the endpoint is etcd's client port, and no proxy's",
            Self::All(errors) => errors.first().map_or("see its log", Self::fix),
        }
    }

    pub(super) fn access(of: &str, cause: &str) -> Self {
        Self::Access { of: of.to_owned(), cause: cause.to_owned() }
    }

    pub(super) fn file(path: &Path, cause: &str) -> Self {
        Self::access(&path.display().to_string(), cause)
    }

    pub(super) fn nonsense(endpoint: &str, cause: &str) -> Self {
        Self::Nonsense { endpoint: endpoint.to_owned(), cause: cause.to_owned() }
    }

    /// The causes of several endpoints as one error. In whatever order they were asked, it is the same cause.
    pub(super) fn all(mut errors: Vec<Self>) -> Self {
        errors.sort_by_cached_key(ToString::to_string);
        match errors.len() {
            1 => errors.remove(0),
            _ => Self::All(errors),
        }
    }
}

/// Rounded for people: the rest of a longer time has nanoseconds.
fn rounded(patience: Duration) -> humantime::FormattedDuration {
    let tenths = patience.as_millis().div_ceil(100).max(1);
    humantime::format_duration(Duration::from_millis(u64::try_from(tenths * 100).unwrap_or(u64::MAX)))
}

pub(super) fn listed(errors: &[EtcdError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// May a call that failed have been carried out all the same?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// Not processed by any member: another may be asked.
    No,
    /// Unknown: only reads may be sent to another member.
    Perhaps,
    /// The cluster's answer: another member would say the same.
    Answered,
}

/// A call that failed at one member.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) error: EtcdError,
    pub(super) done: Done,
}

/// Does this status say that our token is worth nothing any more?
// source: etcd api/v3rpc/rpctypes/error.go, ErrGRPCInvalidAuthToken, ErrGRPCAuthOldRevision.
pub(super) fn wants_another_token(status: &Status) -> bool {
    status.message().contains("invalid auth token") || status.message().contains("revision of auth store is old")
}

impl Failure {
    pub(super) fn answered(error: EtcdError) -> Self {
        Self { error, done: Done::Answered }
    }

    /// Error for a member's status; `user` is our user as etcd sees it.
    // source: etcd api/v3rpc/rpctypes/error.go, for the messages.
    pub(super) fn of(status: &Status, endpoint: &str, user: Option<&str>) -> Self {
        let endpoint = endpoint.to_owned();
        if let Some((dialled, cause)) = never_answered(status) {
            let done = if dialled { Done::Perhaps } else { Done::No };
            return Self { error: EtcdError::Unreachable { endpoint, cause }, done };
        }
        let cause = shortened(status.message());
        let says = |words: &str| cause.contains(words);
        let user =
            || user.map_or("the user of our certificate, or no user,".to_owned(), |user| format!("the user {user:?}"));
        match status.code() {
            Code::Unavailable if says("no leader") => {
                Self { error: EtcdError::NoLeader { endpoint, cause }, done: Done::No }
            }
            Code::InvalidArgument if says("user name is empty") => {
                Self::answered(EtcdError::Unknown { endpoint, cause })
            }
            Code::Unauthenticated => Self::answered(EtcdError::Unknown { endpoint, cause }),
            Code::PermissionDenied => Self::answered(EtcdError::Denied { endpoint, user: user(), cause }),
            Code::NotFound if says("lease not found") => Self::answered(EtcdError::NoLease { endpoint }),
            code @ (Code::InvalidArgument | Code::FailedPrecondition | Code::NotFound | Code::OutOfRange) => {
                Self::answered(EtcdError::Refused { endpoint, code, cause })
            }
            // Overloaded, starting, stopping, changing its leader, or not etcd at all.
            code => Self { error: EtcdError::Refused { endpoint, code, cause }, done: Done::Perhaps },
        }
    }
}

/// A status that no server has sent: was there a connection, and the innermost cause.
fn never_answered(status: &Status) -> Option<(bool, String)> {
    let mut next = status.source();
    next?;
    let (mut dialled, mut text) = (true, status.message().to_owned());
    while let Some(cause) = next {
        if let Some(not) = cause.downcast_ref::<NotDialled>() {
            return Some((false, not.0.clone()));
        }
        dialled &= !cause.is::<tonic::ConnectError>();
        text = cause.to_string();
        next = cause.source();
    }
    Some((dialled, text))
}

fn shortened(message: &str) -> String {
    message.chars().take(LONGEST_MESSAGE).map(|c| if c.is_control() { ' ' } else { c }).collect()
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
        let late = |nanos| EtcdError::Late { patience: Duration::from_nanos(nanos), asked: "x".into() }.to_string();
        assert_eq!(late(1_999_996_383), "etcd gave no answer within 2s; asked x");
        assert_eq!(late(800_000_000), "etcd gave no answer within 800ms; asked x");
        assert_eq!(late(1), "etcd gave no answer within 100ms; asked x");
    }
}
