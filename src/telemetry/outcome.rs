//! Outcome: ends of requests, reads and reloads, each the label of one counter.

use gatepost_base::labels;

labels! {
    /// End of one request.
    pub enum RequestOutcome {
        /// The write may happen.
        Allowed = "allowed",
        /// A hook or an initializer said no, or the creator of an object may not choose its initializers so.
        Denied = "denied",
        /// A CallFailure under Fail, or a held error of matching, rejected it.
        Failed = "failed",
        /// Refused unasked: stale configuration.
        Stale = "stale",
        /// Our fault.
        Internal = "internal",
        /// Allowed without asking a hook, as a bypass says so.
        Bypassed = "bypassed",
    }
}

labels! {
    /// Reason why a call or connection ended at the front. The bounded label of `gatepost_refused_total`.
    pub enum Refused {
        /// Neither HTTP/2 nor HTTP/1.1, or a head that is broken or too long.
        Protocol = "protocol",
        /// The TLS handshake failed.
        TlsHandshake = "tls_handshake",
        /// No TLS where TLS is spoken.
        NotTls = "not_tls",
        /// Another method than POST.
        Method = "method",
        /// Neither gRPC nor a review by its content type.
        ContentType = "content_type",
        /// Nothing is served at this path.
        UnknownPath = "unknown_path",
        /// No such method or service.
        UnknownMethod = "unknown_method",
        /// A compressed message.
        Compressed = "compressed",
        /// An unreadable `grpc-timeout` or `?timeout=`.
        Timeout = "timeout",
        /// Unreadable namespace labels.
        NamespaceLabels = "namespace_labels",
        /// Not exactly one whole gRPC message, or no body.
        Framing = "framing",
        /// A message beyond the limit.
        TooLarge = "too_large",
        /// No room in the memory budget.
        Overloaded = "overloaded",
        /// The deadline passed before the message had arrived.
        Deadline = "deadline",
        /// The message is not a review.
        NotAReview = "not_a_review",
        /// The caller went away before the verdict.
        Cancelled = "cancelled",
        /// Too many connections.
        Connections = "connections",
        /// A client beyond its share of connections, memory, or calls of health and reflection.
        ClientShare = "client_share",
        /// A message that came too slowly.
        Stalled = "stalled",
        /// A connection whose caller did not read its verdicts.
        Unread = "unread",
        /// A connection with more HTTP/2 frames than are of use.
        Flood = "flood",
        /// A connection whose peer answered no PING.
        Unanswered = "unanswered",
        /// An idle connection that made room for another.
        Evicted = "evicted",
        /// A review that has passed through too many Gateposts.
        Loop = "loop",
        /// A claim of an initializer's name by somebody who may not have it.
        Claim = "claim",
        /// More instances of initializers than there are places.
        Instances = "instances",
    }
}

labels! {
    /// Result of one access review: decision of a cluster's authorizer on an access check, or none.
    pub enum AccessReviewOutcome {
        /// The user may do that.
        Allowed = "allowed",
        /// The user may not.
        Denied = "denied",
        /// No decision came.
        Failed = "failed",
        /// The request that it was for ended before.
        Abandoned = "abandoned",
    }
}

impl AccessReviewOutcome {
    /// Index of those that took no time of their own.
    pub(super) const ABANDONED: usize = Self::Abandoned as usize;
}

/// Result of one read of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// It is as it was.
    Unchanged,
    /// It has changed and is in force.
    Changed,
    /// It has changed and is invalid: what was in force stays.
    Rejected,
    /// It enforces less than before, and waits for a second read that lets the same go.
    Unconfirmed,
    /// It has changed and is in force, but for documents that are held back.
    HeldBack,
    /// It could not be read; why, as the source's error names it.
    Failed(&'static str),
}

impl ReadOutcome {
    /// Labels, by index: what came of good reads, then why others failed; anything else is counted as the last.
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
    /// Number of results that are good reads.
    pub(super) const GOOD: usize = 5;

    /// Of its label.
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
        /// In force for new connections.
        Replaced = "replaced",
        /// Unusable.
        Rejected = "rejected",
    }
}
