//! Task: the phase that asks the hooks of a rig, and what each of them does before it answers.

use std::{ops::RangeInclusive, time::Duration};

use super::variant::Variant;

/// Phase of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Validating,
    Mutating,
}

impl Kind {
    /// As `gatepost register --kind` takes it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Mutating => "mutating",
        }
    }

    /// Kind of the objects that register its webhooks.
    pub(super) fn configuration(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Mutating => "MutatingWebhookConfiguration",
        }
    }

    /// Path of these objects.
    pub(super) fn configurations(self) -> String {
        format!("/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations", self.as_str())
    }
}

/// Work of every hook of a rig.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) kind: Kind,
    /// Pause of each hook before it answers
    pub(super) wait: Duration,
    /// Hook that patches every object, counted from 1
    pub(super) patching: Option<usize>,
}

impl Task {
    /// Hooks that allow everything at once.
    pub(super) const ALLOW: Self = Self { kind: Kind::Validating, wait: Duration::ZERO, patching: None };

    /// Calls that hook `number`, counted from 1, may get in so many writes. Gatepost may have asked a hook that stands
    /// behind one that patches about the object before it was patched, too.
    pub(super) fn calls(&self, variant: Variant, number: usize, writes: u64) -> RangeInclusive<u64> {
        let is_behind = self.patching.is_some_and(|patching| patching < number);
        writes..=if is_behind && variant.has_sidecar() && !variant.is_serial() { 2 * writes } else { writes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hooks_behind_one_that_patches_may_be_asked_twice_and_only_by_gatepost() {
        let task = Task { kind: Kind::Mutating, patching: Some(4), ..Task::ALLOW };
        assert_eq!(task.calls(Variant::Json, 4, 10), 10..=10);
        assert_eq!(task.calls(Variant::Json, 5, 10), 10..=20);
        assert_eq!(task.calls(Variant::Direct, 5, 10), 10..=10);
        assert_eq!(task.calls(Variant::JsonSerial, 5, 10), 10..=10);
        assert_eq!(Task::ALLOW.calls(Variant::Json, 5, 10), 10..=10);
    }
}
