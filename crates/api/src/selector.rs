//! Selector: upstream's LabelSelector, compiled; and Labels, the key-value pairs that it looks at.

use std::{collections::BTreeMap, fmt};

/// One requirement on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The key is present with this value.
    Is(Box<str>, Box<str>),
    /// The key is present with one of the values.
    In(Box<str>, Vec<Box<str>>),
    /// The key is absent, or present with none of the values.
    NotIn(Box<str>, Vec<Box<str>>),
    /// The key is present.
    Exists(Box<str>),
    /// The key is absent.
    DoesNotExist(Box<str>),
}

impl Requirement {
    /// The key it speaks of.
    pub fn key(&self) -> &str {
        match self {
            Self::Is(key, _) | Self::In(key, _) | Self::NotIn(key, _) | Self::Exists(key) | Self::DoesNotExist(key) => {
                key
            }
        }
    }

    fn holds(&self, labels: &Labels) -> bool {
        let listed = |values: &[Box<str>], value: &str| values.iter().any(|v| &**v == value);
        match self {
            Self::Is(key, wanted) => labels.get(key).is_some_and(|value| value == &**wanted),
            Self::In(key, values) => labels.get(key).is_some_and(|value| listed(values, value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !listed(values, value)),
            Self::Exists(key) => labels.get(key).is_some(),
            Self::DoesNotExist(key) => labels.get(key).is_none(),
        }
    }
}

/// Requirements that must all hold; none at all matches everything.
/// Source: `docs/reference/webhook-semantics.md` §4.5 (upstream `pkg/labels/selector.go`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(pub Vec<Requirement>);

impl Selector {
    /// True when the selector asks for nothing, so that no label needs to be looked up.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Do these labels meet every requirement?
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }
}

impl fmt::Display for Requirement {
    /// As upstream prints it: `k=v`, `k in (a,b)`, `k notin (a,b)`, `k`, `!k`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sorted = |values: &[Box<str>]| {
            let mut values = values.to_vec();
            values.sort();
            values.join(",")
        };
        match self {
            Self::Is(key, value) => write!(f, "{key}={value}"),
            Self::In(key, values) => write!(f, "{key} in ({})", sorted(values)),
            Self::NotIn(key, values) => write!(f, "{key} notin ({})", sorted(values)),
            Self::Exists(key) => f.write_str(key),
            Self::DoesNotExist(key) => write!(f, "!{key}"),
        }
    }
}

impl fmt::Display for Selector {
    /// The requirements by key, joined by commas, as upstream prints a selector; "" matches everything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut requirements: Vec<&Requirement> = self.0.iter().collect();
        requirements.sort_by_key(|requirement| requirement.key());
        for (index, requirement) in requirements.into_iter().enumerate() {
            write!(f, "{}{requirement}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// The labels of one object or namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<Box<str>, Box<str>>);

impl Labels {
    /// The value of `key`, where there is one.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(AsRef::as_ref)
    }

    /// Number of labels.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All pairs, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}
