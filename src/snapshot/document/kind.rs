//! Kind: kind of a document.

use super::{node::Node, problem::quoted, value::Value};
use crate::model::HookType;

/// Kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DocumentKind {
    /// Our own configuration.
    Configuration,
    /// One of Kubernetes' two webhook configurations.
    Webhooks(HookType),
    /// A namespace with its labels.
    Namespace,
    /// Something opened for a while.
    BreakGlass,
}

const KINDS: [DocumentKind; 5] = [
    DocumentKind::Configuration,
    DocumentKind::Webhooks(HookType::Validating),
    DocumentKind::Webhooks(HookType::Mutating),
    DocumentKind::Namespace,
    DocumentKind::BreakGlass,
];

const FIX: &str = "write apiVersion: gatepost.dev/v1alpha1 and kind: AdmissionControlConfiguration or BreakGlass; \
     ValidatingWebhookConfiguration or MutatingWebhookConfiguration of admissionregistration.k8s.io/v1; \
     or Namespace of v1";

/// Reason where the kind is none that is read here.
const UNKNOWN: &str = "so what it is to mean is not known here";

/// Kind of webhook configuration that holds hooks of this type.
pub(crate) const fn webhooks_kind(hook_type: HookType) -> &'static str {
    match hook_type {
        HookType::Validating => "ValidatingWebhookConfiguration",
        HookType::Mutating => "MutatingWebhookConfiguration",
    }
}

impl DocumentKind {
    /// `apiVersion` and `kind`.
    fn written(self) -> (&'static str, &'static str) {
        match self {
            Self::Configuration => ("gatepost.dev/v1alpha1", "AdmissionControlConfiguration"),
            Self::Webhooks(hook_type) => ("admissionregistration.k8s.io/v1", webhooks_kind(hook_type)),
            Self::Namespace => ("v1", "Namespace"),
            Self::BreakGlass => ("gatepost.dev/v1alpha1", "BreakGlass"),
        }
    }

    /// Noun for it in problems.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Configuration | Self::Webhooks(_) => "the configuration",
            Self::Namespace => "the namespace",
            Self::BreakGlass => "the break-glass",
        }
    }

    /// Kind written in a document, where it is one of ours; nothing is reported.
    pub(crate) fn written_in(document: &Value) -> Option<Self> {
        let written = (document.text_of("apiVersion")?, document.text_of("kind")?);
        KINDS.into_iter().find(|kind| kind.written() == written)
    }

    /// Kind of a document; faults of it are reported.
    pub(crate) fn of(at: &Node<'_>) -> Option<Self> {
        if !matches!(at.value, Value::Map(_)) {
            at.problem(format!("the document is {}, not a map", at.value.kind()), UNKNOWN, FIX);
            return None;
        }
        let (version, kind) = (at.key("apiVersion"), at.key("kind"));
        let both = version.required(UNKNOWN, FIX) & kind.required(UNKNOWN, FIX);
        let (version_text, kind_text) = if both { (version.text()?, kind.text()?) } else { return None };
        if let Some(found) = KINDS.into_iter().find(|kind| kind.written() == (version_text, kind_text)) {
            return Some(found);
        }
        if let Some(meant) = KINDS.into_iter().find(|kind| kind.written().1 == kind_text) {
            version.problem(
                format!("{} is not a version of {kind_text}", quoted(version_text)),
                UNKNOWN,
                format!("write {}", meant.written().0),
            );
        } else if version_text == Self::Configuration.written().0 {
            let ours = Self::Configuration.written();
            kind.problem(
                format!("{} is not a kind of {}", quoted(kind_text), ours.0),
                UNKNOWN,
                format!("write {} or {}", ours.1, Self::BreakGlass.written().1),
            );
        } else {
            at.problem(format!("{} of {} is not read here", quoted(kind_text), quoted(version_text)), UNKNOWN, FIX);
        }
        None
    }

    /// Kind of the items of a typed list, which need not name it themselves.
    pub(crate) fn listed(document: &Value) -> Option<Self> {
        let (version, kind) = (document.text_of("apiVersion")?, document.text_of("kind")?.strip_suffix("List")?);
        KINDS.into_iter().find(|known| *known != Self::Configuration && known.written() == (version, kind))
    }
}
