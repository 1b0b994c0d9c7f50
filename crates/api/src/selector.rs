//! Selector: upstream's LabelSelector, compiled; and Labels, the key-value pairs that it matches.

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
    /// Returns the key of the requirement.
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

/// Requirements that must all be met. An empty selector matches everything. Source:
/// `docs/reference/webhook-semantics.md` §4.5 (upstream `pkg/labels/selector.go`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(pub Vec<Requirement>);

impl Selector {
    /// Returns true if there are no requirements, so that no label must be looked up.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the labels meet every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }
}

impl fmt::Display for Requirement {
    /// Writes the requirement as upstream does: `k=v`, `k in (a,b)`, `k notin (a,b)`, `k`, `!k`.
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
    /// Writes the requirements sorted by key and joined by commas, as upstream does; "" matches everything.
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
    /// Returns the value of `key`; `None` if there is no such label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(AsRef::as_ref)
    }

    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all labels, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}
