//! Dialect: the schema a configuration is written in.

/// Schema that a configuration is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Gatepost's own, with what the designs that led to it allowed.
    Gatepost,
    /// Kubernetes' own, to the letter: `docs/reference/webhook-semantics.md` §5 and §14.
    Kubernetes,
}
