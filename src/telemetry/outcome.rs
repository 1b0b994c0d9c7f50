//! Outcome: results of requests, reads and reloads, each the label of a counter.

use gatepost_base::labels;

labels! {
    /// Outcome of a request.
    pub enum RequestOutcome {
        /// The write is allowed.
        Allowed = "allowed",
        /// A hook or an initializer denied the request, or the creator of the object may not choose its initializers.
        Denied = "denied",
        /// A failed call or a matching error rejected the request.
        Failed = "failed",
        /// Rejected without calling a hook: the configuration is stale.
        Stale = "stale",
        /// Rejected without calling a hook, so that its caller sends it again: something reads in JSON the objects that came in
        /// protobuf.
        WrongEncoding = "wrong_encoding",
        /// A bug in Gatepost.
        Internal = "internal",
        /// Allowed without calling a hook, by a bypass rule or break-glass.
        Bypassed = "bypassed",
    }
}

labels! {
    /// Reason why a call or connection ended without a verdict. The bounded label of `gatepost_refused_total`.
    pub enum RefusalReason {
        /// Neither HTTP/2 nor HTTP/1.1, or an invalid or too long head.
        Protocol = "protocol",
        /// The TLS handshake failed.
        TlsHandshake = "tls_handshake",
        /// No TLS on a port with TLS.
        NotTls = "not_tls",
        /// A method other than POST.
        Method = "method",
        /// Content type neither of gRPC nor of a review.
        ContentType = "content_type",
        /// Unknown path.
        UnknownPath = "unknown_path",
        /// Unknown gRPC service or method.
        UnknownMethod = "unknown_method",
        /// A compressed message.
        Compressed = "compressed",
        /// Invalid `grpc-timeout` or `?timeout=`.
        Timeout = "timeout",
        /// Invalid namespace labels.
        NamespaceLabels = "namespace_labels",
        /// Not exactly one complete gRPC message, or no body.
        Framing = "framing",
        /// A message larger than the limit.
        TooLarge = "too_large",
        /// No room in the memory budget.
        Overloaded = "overloaded",
        /// The deadline passed before the message had arrived.
        Deadline = "deadline",
        /// The message is not a review.
        NotAReview = "not_a_review",
        /// The caller cancelled the call before the verdict.
        Cancelled = "cancelled",
        /// Too many connections.
        Connections = "connections",
        /// A client exceeded its share of connections, memory, or calls of health and reflection.
        ClientShare = "client_share",
        /// A message that arrived too slowly.
        Stalled = "stalled",
        /// A connection whose caller did not read its verdicts.
        Unread = "unread",
        /// A connection with too many HTTP/2 frames that serve no call.
        Flood = "flood",
        /// A connection whose peer did not answer a PING.
        Unanswered = "unanswered",
        /// An idle connection that was closed to admit another.
        Evicted = "evicted",
        /// A review that has passed through too many Gateposts.
        Loop = "loop",
        /// A claim of an initializer's name by a client that is not entitled to it.
        Claim = "claim",
        /// Too many instances of initializers.
        Instances = "instances",
    }
}

labels! {
    /// Result of an access review by the cluster's authorizer.
    pub enum AccessReviewOutcome {
        /// The user has access.
        Allowed = "allowed",
        /// The user has no access.
        Denied = "denied",
        /// The authorizer made no decision.
        Failed = "failed",
        /// The request ended before the decision.
        Abandoned = "abandoned",
    }
}

/// Result of one read of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The contents are the same.
    Unchanged,
    /// Changed contents are in force.
    Changed,
    /// Changed contents are invalid, or every change is quarantined: the configuration in force stays.
    Rejected,
    /// Changed contents enforce less than before, and wait for a second read with the same relaxations.
    Unconfirmed,
    /// Changed contents are in force, except documents that are quarantined.
    HeldBack,
    /// The source could not be read; see [`ReadError::kind`](crate::source::ReadError::kind).
    Failed(&'static str),
}

impl ReadOutcome {
    /// Labels, by index: good reads, then failures by kind. Unknown kinds are counted as the last.
    pub(super) const LABELS: [&'static str; 17] = [
        "unchanged",
        "changed",
        "rejected",
        "unconfirmed",
        "held_back",
        "failed_unreadable",
        "failed_not_a_file",
        "failed_too_large",
        "failed_unsettled",
        "failed_hung",
        "failed_unreachable",
        "failed_refused",
        "failed_garbled",
        "failed_not_installed",
        "failed_went_back",
        "failed_other_store",
        "failed_other",
    ];
    /// Number of outcomes of good reads, which come first.
    pub(super) const GOOD: usize = 5;

    /// Returns the index of the label.
    pub(super) fn index(self) -> usize {
        match self {
            Self::Unchanged => 0,
            Self::Changed => 1,
            Self::Rejected => 2,
            Self::Unconfirmed => 3,
            Self::HeldBack => 4,
            Self::Failed(why) => {
                let failed = Self::LABELS.iter().position(|label| label.strip_prefix("failed_") == Some(why));
                failed.unwrap_or(Self::LABELS.len() - 1)
            }
        }
    }
}

labels! {
    /// Result of a change of the TLS files.
    pub enum TlsReload {
        /// The new files are in force for new connections.
        Replaced = "replaced",
        /// The new files are unusable.
        Rejected = "rejected",
    }
}
