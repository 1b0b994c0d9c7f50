//! Decision: what the leader does about one webhook at one turn.

use super::Reason;

/// Decision on one webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Announce it, and wait until every replica calls it.
    Announce,
    /// Apply the condition.
    Take,
    /// It carries the condition, and keeps it.
    Keep,
    /// Remove the condition.
    GiveBack(Reason),
    /// Leave it to the apiserver.
    Leave(Reason),
    /// Leave it to the apiserver; but a write that gives it the condition may be on its way, of ours or of the leader
    /// before us. It stays announced until the object is another one, so that such a write comes too late.
    Fence(Reason),
}

impl Decision {
    /// Is it part of the announcement?
    pub const fn announces(&self) -> bool {
        matches!(self, Self::Announce | Self::Take | Self::Keep | Self::Fence(_))
    }
}
