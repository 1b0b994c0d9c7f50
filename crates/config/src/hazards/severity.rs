//! Severity of a finding. Apart, as the view of hooks needs it below findings.

/// Severity of a finding. A worse one goes before a lesser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Once the hook is down, nothing brings it back but a person.
    Deadlock,
    /// While the hook is down, so is a part of the cluster that others rest on.
    Danger,
    /// Something passes unseen that the hook surely means, or that is not known here.
    Gap,
}

impl Severity {
    /// In one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadlock => "deadlock",
            Self::Danger => "danger",
            Self::Gap => "gap",
        }
    }
}
