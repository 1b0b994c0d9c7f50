//! Severity of a finding, in a module of its own because `view` and `finding` both need it.

/// Severity of a finding, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Once the hook is down, only a person can bring it back.
    Deadlock,
    /// While the hook is down, so is a part of the cluster on which others depend.
    Danger,
    /// Requests pass unreviewed that the hook surely means to review, or the effect is uncertain.
    Gap,
}

impl Severity {
    /// Returns the severity as one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadlock => "deadlock",
            Self::Danger => "danger",
            Self::Gap => "gap",
        }
    }
}
