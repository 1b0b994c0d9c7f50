//! Kubernetes' syntax of names, label keys and label values.
//! Source: `k8s.io/apimachinery/pkg/util/validation`.

/// Returns true if this is a DNS-1123 label: 1 to 63 lower-case letters, digits or inner `-`.
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && is_dns_part(name)
}

/// Returns true if this is a DNS-1035 label: a DNS-1123 label that begins with a letter.
pub fn is_dns_1035_label(name: &str) -> bool {
    is_dns_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Returns true if this is a DNS-1123 subdomain: at most 253 characters, dot-separated parts of lower-case letters,
/// digits and `-`. As upstream, a part may be longer than 63.
pub fn is_dns_subdomain(name: &str) -> bool {
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
pub fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_label_word(name),
        None => is_label_word(key),
    }
}

/// Returns true if this is a label value: empty, or the name part of a qualified name.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_label_word(value)
}

/// Returns true if this is the name part of a qualified name: 1 to 63 of `[A-Za-z0-9._-]`, alphanumeric at both ends.
pub fn is_label_word(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
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
}
