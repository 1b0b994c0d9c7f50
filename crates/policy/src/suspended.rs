//! Evaluations that end without a result, and are to begin again.

use gatepost_cel::AccessCheck;

/// Reason why a policy is undecided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Suspended {
    /// The evaluation takes more steps than allowed. Decide again with a larger allowance, on a thread that may block.
    TooLong,
    /// An access check has no decision yet. Decide again with one.
    Undecided(Box<AccessCheck>),
    /// The deadline has passed.
    Deadline,
}
