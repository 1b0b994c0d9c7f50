//! Level: the label that gives a namespace its runlevel, and its values.

use crate::model::Labels;

/// The label that says a namespace's runlevel: a number.
pub const LABEL: &str = "gatepost.dev/runlevel";
/// The runlevel of hooks that depend on no other hook.
pub const HOOKS: u32 = 2;
/// The namespaces of the control plane: runlevel 0.
pub const SYSTEM: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Level in a label, where it is a number.
pub(super) fn stated(labels: Option<&Labels>) -> Option<u32> {
    labels?.get(LABEL)?.parse().ok()
}

/// `0` to this level, as values of the label.
pub(super) fn levels_up_to(level: u32) -> Vec<String> {
    /// More are never in use; a label may say anything.
    const MOST: u32 = 99;
    (0..=level.min(MOST)).map(|level| level.to_string()).collect()
}
