//! Scope of adoption: the configurations that `serve --adopt` selects, and those that commands request.

use std::collections::BTreeSet;

use gatepost_api::{Labels, Selector, selector::Requirement};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{ClusterEntry, Reason};

/// Annotation of the leader's lease with the requests made by commands.
pub(crate) const REQUESTS_ANNOTATION: &str = "gatepost.dev/wishes";

/// Configurations to take over unless a command overrides this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdoptionScope {
    /// Only configurations that `gatepost adopt` names.
    Named,
    /// All.
    All,
    /// Configurations with these labels.
    Labelled(Selector),
}

impl AdoptionScope {
    /// Returns true if the entry is to be taken.
    pub fn matches(&self, standing: &ClusterEntry) -> bool {
        match self {
            Self::Named => false,
            Self::All => true,
            Self::Labelled(selector) => {
                let labels = standing.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                selector.matches(&labels.collect::<Labels>())
            }
        }
    }

    /// Parses `named`, `all`, or a label selector in kubectl's syntax.
    ///
    /// # Errors
    /// Returns a message with the invalid part.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "named" => Ok(Self::Named),
            "all" => Ok(Self::All),
            _ => parse_selector(text).map(Self::Labelled),
        }
    }
}

/// Requests made by `gatepost adopt` and `gatepost release`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdoptionRequests {
    /// Configurations and policies to take: `NAME`, or `validating/NAME`.
    pub adopt: BTreeSet<String>,
    /// Take all configurations.
    pub adopt_all: bool,
    /// Configurations to give back. They override a request or selector for all.
    pub release: BTreeSet<String>,
    /// Give all configurations back.
    pub release_all: bool,
}

impl AdoptionRequests {
    /// Checks whether the entry is to be taken.
    ///
    /// # Errors
    /// Returns the [`Reason`] to leave it to the apiserver.
    pub fn judge(&self, standing: &ClusterEntry, scope: &AdoptionScope) -> Result<(), Reason> {
        let names = |names: &BTreeSet<String>| standing.key.is_named(names.iter());
        if names(&self.adopt) {
            return Ok(());
        }
        if self.release_all || names(&self.release) {
            return Err(Reason::Released);
        }
        if self.adopt_all || scope.matches(standing) { Ok(()) } else { Err(Reason::NotWanted) }
    }

    /// Requests the takeover of these configurations, or of all.
    pub fn adopt(&mut self, names: &[String], all: bool) {
        if all {
            *self = Self { adopt_all: true, ..Self::default() };
        }
        for name in names {
            self.release.remove(name);
            self.adopt.insert(name.clone());
        }
    }

    /// Requests that these configurations, or all, are given back.
    pub fn release(&mut self, names: &[String], all: bool) {
        if all {
            *self = Self { release_all: true, ..Self::default() };
        }
        for name in names {
            self.adopt.remove(name);
            self.release.insert(name.clone());
        }
    }

    /// Returns a merge patch of the leader's lease that stores these requests.
    pub fn patch(&self) -> Value {
        json!({"metadata": {"annotations": {REQUESTS_ANNOTATION: to_json(self)}}})
    }
}

/// Parses a label selector in kubectl's syntax: `team=a,tier in (x,y),!old`.
///
/// # Errors
/// Returns a message with the invalid part.
pub fn parse_selector(text: &str) -> Result<Selector, String> {
    let wrong = |part: &str| format!("{part:?} is no label selector; write key=value, key in (a,b), key or !key");
    let mut requirements = Vec::new();
    for part in split(text) {
        let part = part.trim();
        let requirement = if let Some(key) = part.strip_prefix('!') {
            Requirement::DoesNotExist(key.trim().into())
        } else if let Some((key, value)) = part.split_once("!=") {
            Requirement::NotIn(key.trim().into(), vec![value.trim().into()])
        } else if let Some((key, value)) = part.split_once('=') {
            let value = value.strip_prefix('=').unwrap_or(value);
            Requirement::Is(key.trim().into(), value.trim().into())
        } else if let Some((head, list)) = part.split_once('(') {
            let values = list.trim_end().strip_suffix(')').ok_or_else(|| wrong(part))?;
            let values = values.split(',').map(|value| value.trim().into()).collect();
            match head.split_whitespace().collect::<Vec<_>>()[..] {
                [key, "in"] => Requirement::In(key.into(), values),
                [key, "notin"] => Requirement::NotIn(key.into(), values),
                _ => return Err(wrong(part)),
            }
        } else {
            Requirement::Exists(part.into())
        };
        let is_key = |key: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
            !key.is_empty() && key.bytes().all(plain)
        };
        if !is_key(requirement.key()) {
            return Err(wrong(part));
        }
        requirements.push(requirement);
    }
    Ok(Selector(requirements))
}

/// Splits a text at the commas that are not in parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut began, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, sign) in text.char_indices() {
        match sign {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text.get(began..at).unwrap_or_default());
                began = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(began..).unwrap_or_default());
    parts
}

/// Serialization of strings, numbers and sets of them cannot fail.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use gatepost_api::HookType;

    use super::*;
    use crate::webhooks_of;

    #[test]
    fn selector_is_parsed_as_by_kubectl() {
        let read = |text: &str| parse_selector(text).map(|selector| selector.to_string());
        for (text, selector) in [
            ("a=b", "a=b"),
            ("a==b , c", "a=b,c"),
            ("a in (x, y),!b,c!=d,e notin (f)", "a in (x,y),!b,c notin (d),e notin (f)"),
            ("app.kubernetes.io/part-of=x", "app.kubernetes.io/part-of=x"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(selector), "{text}");
        }
        for wrong in ["", ",", "a,", "=b", "a in x", "a in (x", "a within (x)", "a b", "ä=b", "!", "a(in)"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            (AdoptionScope::parse("all"), AdoptionScope::parse("named")),
            (Ok(AdoptionScope::All), Ok(AdoptionScope::Named))
        );
    }

    #[test]
    fn named_request_overrides_requests_for_all() {
        let object = json!({"metadata": {"name": "c", "labels": {"team": "x"}}, "webhooks": [{"name": "w"}]});
        let standing = webhooks_of(HookType::Validating, &object).remove(0);
        let judge = |requests: &AdoptionRequests, wanted: &AdoptionScope| requests.judge(&standing, wanted);
        let mut requests = AdoptionRequests::default();
        assert_eq!(judge(&requests, &AdoptionScope::Named), Err(Reason::NotWanted));
        assert_eq!(judge(&requests, &AdoptionScope::All), Ok(()));
        requests.release(&["validating/c".to_owned()], false);
        assert_eq!(judge(&requests, &AdoptionScope::All), Err(Reason::Released));
        requests.adopt(&["validating/c".to_owned()], false);
        assert_eq!(judge(&requests, &AdoptionScope::Named), Ok(()));
        requests.release(&[], true);
        assert_eq!(judge(&requests, &AdoptionScope::All), Err(Reason::Released));
        requests.adopt(&["c".to_owned()], false);
        assert_eq!(judge(&requests, &AdoptionScope::Named), Ok(()), "one by one");
        requests.release(&[], true);
        requests.adopt(&[], true);
        assert_eq!(judge(&requests, &AdoptionScope::Named), Ok(()));
    }
}
