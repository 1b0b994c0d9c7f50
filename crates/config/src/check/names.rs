//! Names: Kubernetes' syntax of names, label keys and label values.
//! Source: `k8s.io/apimachinery/pkg/util/validation`.

use std::{collections::HashMap, sync::Arc};

/// Returns true if this is a DNS-1123 label: 1 to 63 lower-case letters, digits or inner `-`.
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && is_dns_part(name)
}

/// Returns true if this is a DNS-1035 label: a DNS-1123 label that begins with a letter.
pub(crate) fn is_dns_1035_label(name: &str) -> bool {
    is_dns_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Returns true if this is a DNS-1123 subdomain: at most 253 characters, dot-separated parts of lower-case letters,
/// digits and `-`. As upstream, a part may be longer than 63.
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

/// Returns true if this is a qualified name, such as a label key: a name, or a DNS subdomain, `/` and a name.
pub(crate) fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_label_word(name),
        None => is_label_word(key),
    }
}

/// Returns true if this is a label value: empty, or the name part of a qualified name.
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

/// Advice on the syntax of a DNS subdomain.
pub(crate) const SUBDOMAIN: &str =
    "write lower-case letters, digits, - and dots, at most 253, such as no-latest.example.com";

/// Advice on the syntax of a DNS label.
pub(crate) const LABEL: &str = "write lower-case letters, digits and -, at most 63, such as kube-system";

/// Advice on the syntax of a label key.
pub(crate) const KEY: &str = "write a name of at most 63 letters, digits, -, _ and dots, \
     with a DNS name and / before it if wanted, such as example.com/tier";

/// Advice on the syntax of a label value.
pub(crate) const VALUE: &str = "write at most 63 letters, digits, -, _ and dots, or nothing";

/// Assigns ids to hooks. Source: `docs/reference/webhook-semantics.md` §3.
#[derive(Default)]
pub(crate) struct Identities(HashMap<String, usize>);

impl Identities {
    /// Returns `<prefix><configuration>/<hook>/<n>`; n is the number of earlier ids that differ only in n.
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
