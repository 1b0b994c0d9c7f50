//! Versions of Kubernetes that an expression may be written for, and what differs between them.
//!
//! Sources: `k8s.io/apiserver/pkg/cel/environment/base.go`, and the versions of cel-go that kube-apiserver is built with:
//! 0.26.0 in 1.36, 0.29.2 in 1.37 and 1.38. `tests/cel/answers.json` and `tests/cel/changed.json` have the answers of
//! all three.

use std::fmt;

/// A version of Kubernetes, by whose rules an expression is compiled, evaluated and charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KubernetesVersion {
    /// 1.36.
    V1_36,
    /// 1.37.
    V1_37,
    /// 1.38.
    #[default]
    V1_38,
}

impl KubernetesVersion {
    /// Every version, the oldest first, with its name.
    pub const ALL: [(&'static str, Self); 3] = [("1.36", Self::V1_36), ("1.37", Self::V1_37), ("1.38", Self::V1_38)];

    /// Annotation of a policy that names its version.
    pub const ANNOTATION: &'static str = "gatepost.dev/compat";
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL[*self as usize].0)
    }
}

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Older versions refuse what uses the symbol.
    Added,
    /// This version and newer ones refuse what uses the symbol. In older ones it is always an error.
    Removed,
    /// Older versions answer otherwise where this holds.
    Answer(&'static str),
    /// In older versions it costs this.
    Cost(&'static str),
}

/// A difference between versions.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// A function, or a part of the syntax.
    pub symbol: &'static str,
    /// First version with the change.
    pub since: KubernetesVersion,
    /// What the change is about.
    pub effect: Effect,
}

const fn change(symbol: &'static str, since: KubernetesVersion, effect: Effect) -> Change {
    Change { symbol, since, effect }
}

pub(super) static INCLUDES: Change = change("includes", KubernetesVersion::V1_37, Effect::Added);
pub(super) static IS_MASK: Change = change("isMask", KubernetesVersion::V1_38, Effect::Added);
pub(super) static BACKQUOTES: Change = change("a name in backquotes", KubernetesVersion::V1_37, Effect::Added);
pub(super) static DURATION_OF_INT: Change = change("duration of an int", KubernetesVersion::V1_37, Effect::Removed);
pub(super) static LEADING_DOT: Change =
    change("a leading dot", KubernetesVersion::V1_37, Effect::Answer("a macro has a variable of the name"));
pub(super) static INDEX_OF: Change = change(
    "indexOf",
    KubernetesVersion::V1_37,
    Effect::Answer("an empty text is sought before the beginning or behind the end"),
);
pub(super) static LAST_INDEX_OF: Change = Change { symbol: "lastIndexOf", ..INDEX_OF };
pub(super) static OR: Change =
    change("or", KubernetesVersion::V1_37, Effect::Answer("it is called on a value that is not optional"));
pub(super) static OR_VALUE: Change = Change { symbol: "orValue", ..OR };
pub(super) static RANGE: Change =
    change("lists.range", KubernetesVersion::V1_37, Effect::Answer("the number is negative"));
pub(super) static PART_OF_REQUEST: Change = change(
    "a part of the request",
    KubernetesVersion::V1_37,
    Effect::Answer("it is compared with a value of another type, or looked up by a key that is no string"),
);
pub(super) static STARTS_WITH: Change =
    change("startsWith", KubernetesVersion::V1_37, Effect::Cost("a tenth of the size of the text, not of the prefix"));
pub(super) static ENDS_WITH: Change =
    change("endsWith", KubernetesVersion::V1_37, Effect::Cost("a tenth of the size of the text, not of the suffix"));
pub(super) static MATCHES: Change =
    change("matches(…)", KubernetesVersion::V1_37, Effect::Cost("1, whatever the sizes of text and pattern"));

impl Effect {
    /// Returns true if older and newer versions may decide differently, other than by limits on cost.
    pub const fn is_on_decisions(self) -> bool {
        !matches!(self, Self::Cost(_))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { symbol, since, effect } = self;
        match effect {
            Effect::Added => write!(f, "compiles from {since} on: uses `{symbol}`"),
            Effect::Removed => write!(f, "compiles before {since} only: uses `{symbol}`"),
            Effect::Answer(when) => write!(f, "answers otherwise before {since}: `{symbol}`, where {when}"),
            Effect::Cost(cost) => write!(f, "costs otherwise before {since}: `{symbol}`, {cost}"),
        }
    }
}
