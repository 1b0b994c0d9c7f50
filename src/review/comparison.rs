//! Comparison: the two decisions of a canary pair about one request.

use std::{collections::BTreeMap, fmt};

/// Decision of one side of a pair. Of several, the last in this order counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Decision {
    Allowed,
    Patched,
    Failed,
    /// Denied, with this message if messages are kept.
    Denied(Option<String>),
    /// It has not decided, for no reason of its own.
    Unknown,
}

impl Decision {
    /// Returns true if the request would go the same way. Messages may differ.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed => f.write_str("allowed"),
            Self::Patched => f.write_str("patched"),
            Self::Failed => f.write_str("failed"),
            Self::Denied(None) => f.write_str("denied"),
            Self::Denied(Some(message)) => write!(f, "denied ({message})"),
            Self::Unknown => f.write_str("not decided"),
        }
    }
}

/// A pair of hooks or of policies, by its index among these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pair {
    Hooks(usize),
    Policies(usize),
}

/// Decisions of one side of each pair.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// True if the verdict rejects the request. Then only pairs with a decision are compared: the others may not have
    /// been called at all.
    pub(super) is_rejected: bool,
    pub(super) decisions: BTreeMap<Pair, Decision>,
}

impl Compared {
    /// Returns true if a pair has decided.
    pub(super) fn has_decisions(&self) -> bool {
        self.decisions.values().any(|decision| *decision != Decision::Unknown)
    }

    /// Adds all decisions of `other`.
    pub(super) fn add_all(&mut self, other: Self) {
        other.decisions.into_iter().for_each(|(pair, decision)| self.add(pair, decision));
    }

    /// Adds a decision of a pair.
    pub(super) fn add(&mut self, pair: Pair, decision: Decision) {
        let kept = self.decisions.entry(pair).or_insert(Decision::Allowed);
        *kept = std::mem::replace(kept, Decision::Allowed).max(decision);
    }

    /// Returns true if the pair is compared.
    pub(super) fn includes(&self, pair: Pair) -> bool {
        !self.is_rejected || self.decisions.get(&pair).is_some_and(|decision| *decision != Decision::Unknown)
    }
}
