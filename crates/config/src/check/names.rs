//! Names: the syntaxes that Kubernetes gives to names, label keys and label values.
//! Source: `k8s.io/apimachinery/pkg/util/validation`.

use std::{collections::HashMap, sync::Arc};

/// A DNS-1123 label: lower-case letters, digits and `-`, at most 63, a letter or digit at both ends.
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && is_dns_part(name)
}

/// A DNS-1035 label: as a DNS-1123 label, and begins with a letter.
pub(crate) fn is_dns_1035_label(name: &str) -> bool {
    is_dns_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase())
}

/// A DNS-1123 subdomain: dot-separated parts of lower-case letters, digits and `-`, at most 253 in all.
/// As upstream, one part may be longer than 63.
pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_dns_part)
}

fn is_dns_part(part: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = part.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

/// A qualified name, as label keys are: a name, or a DNS subdomain, `/` and a name.
pub(crate) fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_label_word(name),
        None => is_label_word(key),
    }
}

/// A label's value: empty, or as the name of a qualified name.
pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_label_word(value)
}

fn is_label_word(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// Form of a DNS subdomain, as advice.
pub(crate) const SUBDOMAIN: &str =
    "write lower-case letters, digits, - and dots, at most 253, such as no-latest.example.com";

/// Form of a DNS label, as advice.
pub(crate) const LABEL: &str = "write lower-case letters, digits and -, at most 63, such as kube-system";

/// Form of a label's key, as advice.
pub(crate) const KEY: &str = "write a name of at most 63 letters, digits, -, _ and dots, \
     with a DNS name and / before it if wanted, such as example.com/tier";

/// Form of a label's value, as advice.
pub(crate) const VALUE: &str = "write at most 63 letters, digits, -, _ and dots, or nothing";

/// Gives out ids. Source: `docs/reference/webhook-semantics.md` §3.
#[derive(Default)]
pub(crate) struct Identities(HashMap<String, usize>);

impl Identities {
    /// `<prefix><configuration>/<hook>/<n>`, where n counts how often the rest was given out before.
    pub(crate) fn next(&mut self, prefix: &str, configuration: &str, hook: &str) -> Arc<str> {
        let name = format!("{prefix}{configuration}/{hook}");
        let before = self.0.entry(name.clone()).or_default();
        let id = format!("{name}/{before}");
        *before += 1;
        id.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_upstream() {
        for good in ["a", "a.b", "a-b.c0", &"a".repeat(253)] {
            assert!(is_dns_subdomain(good), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "A", "a_b", "-a", "a-", "a..b", &"a".repeat(254)] {
            assert!(!is_dns_subdomain(bad), "{bad}");
        }
        assert!(is_dns_label("kube-system") && !is_dns_label("a.b") && !is_dns_label(&"a".repeat(64)));
        assert!(is_dns_1035_label("v1") && !is_dns_1035_label("1v") && !is_dns_1035_label("v.1"));
        for good in ["a", "A_b.c-d", "x.y/Z", "0"] {
            assert!(is_qualified_name(good), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "X.y/z", "a b", "é", "-a", &"a".repeat(64)] {
            assert!(!is_qualified_name(bad), "{bad}");
        }
        assert!(is_label_value("") && is_label_value("a.B-c_0") && !is_label_value("a b") && !is_label_value("a/b"));
    }

    #[test]
    fn no_two_are_equal() {
        let mut identities = Identities::default();
        let ids = [("", "c", "h"), ("", "c", "h"), ("manifest/", "c", "h"), ("", "d", "h")]
            .map(|(prefix, configuration, hook)| identities.next(prefix, configuration, hook));
        assert_eq!(ids.each_ref().map(|id| &**id), ["c/h/0", "c/h/1", "manifest/c/h/0", "d/h/0"]);
    }
}
