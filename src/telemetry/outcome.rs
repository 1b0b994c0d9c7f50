//! Outcome: ends of requests, reads and reloads, each the label of one counter.

/// End of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The write may happen.
    Allowed,
    /// A hook or an initializer said no, or the creator of an object may not choose its initializers so.
    Denied,
    /// A CallFailure under Fail, or a held error of matching, rejected it.
    Failed,
    /// Refused unasked: stale configuration.
    Stale,
    /// Our fault.
    Internal,
    /// Allowed without asking a hook, as a bypass says so.
    Bypassed,
}

impl RequestOutcome {
    /// Labels, by index.
    pub(super) const LABELS: [&'static str; 6] = ["allowed", "denied", "failed", "stale", "internal", "bypassed"];
}

/// Reason why a call or connection ended at the front. The bounded label of `gatepost_refused_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Neither HTTP/2 nor HTTP/1.1, or a head that is broken or too long.
    Protocol,
    /// The TLS handshake failed.
    TlsHandshake,
    /// No TLS where TLS is spoken.
    NotTls,
    /// Another method than POST.
    Method,
    /// Neither gRPC nor a review by its content type.
    ContentType,
    /// Nothing is served at this path.
    UnknownPath,
    /// No such method or service.
    UnknownMethod,
    /// A compressed message.
    Compressed,
    /// An unreadable `grpc-timeout` or `?timeout=`.
    Timeout,
    /// Unreadable namespace labels.
    NamespaceLabels,
    /// Not exactly one whole gRPC message, or no body.
    Framing,
    /// A message beyond the limit.
    TooLarge,
    /// No room in the memory budget.
    Overloaded,
    /// The deadline passed before the message had arrived.
    Deadline,
    /// The message is not a review.
    NotAReview,
    /// The caller went away before the verdict.
    Cancelled,
    /// Too many connections.
    Connections,
    /// A client beyond its share of connections, memory, or calls of health and reflection.
    ClientShare,
    /// A message that came too slowly.
    Stalled,
    /// A connection whose caller did not read its verdicts.
    Unread,
    /// A connection with more HTTP/2 frames than are of use.
    Flood,
    /// A connection whose peer answered no PING.
    Unanswered,
    /// An idle connection that made room for another.
    Evicted,
    /// A review that has passed through too many Gateposts.
    Loop,
    /// A claim of an initializer's name by somebody who may not have it.
    Claim,
    /// More instances of initializers than there are places.
    Instances,
}

impl Refused {
    /// Labels, by index.
    pub(super) const LABELS: [&'static str; 26] = [
        "protocol",
        "tls_handshake",
        "not_tls",
        "method",
        "content_type",
        "unknown_path",
        "unknown_method",
        "compressed",
        "timeout",
        "namespace_labels",
        "framing",
        "too_large",
        "overloaded",
        "deadline",
        "not_a_review",
        "cancelled",
        "connections",
        "client_share",
        "stalled",
        "unread",
        "flood",
        "unanswered",
        "evicted",
        "loop",
        "claim",
        "instances",
    ];
}

/// Result of one access review: decision of a cluster's authorizer on an access check, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessReviewOutcome {
    /// The user may do that.
    Allowed,
    /// The user may not.
    Denied,
    /// No decision came.
    Failed,
    /// The request that it was for ended before.
    Abandoned,
}

impl AccessReviewOutcome {
    /// Labels, by index.
    pub(super) const LABELS: [&'static str; 4] = ["allowed", "denied", "failed", "abandoned"];
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

/// Result of a change of the TLS files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsReload {
    /// In force for new connections.
    Replaced,
    /// Unusable.
    Rejected,
}

impl TlsReload {
    /// Labels, by index.
    pub(super) const LABELS: [&'static str; 2] = ["replaced", "rejected"];
}
