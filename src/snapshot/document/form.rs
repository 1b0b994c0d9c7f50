//! Form: in whose words a configuration is written.

/// In whose words a configuration is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Ours, with what the designs that led to it allowed.
    Gatepost,
    /// Kubernetes' own, to the letter: `docs/reference/webhook-semantics.md` §5 and §14.
    Kubernetes,
}
