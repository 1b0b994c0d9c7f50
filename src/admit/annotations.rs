//! Merging the hooks' audit annotations. Source: `docs/reference/webhook-semantics.md` §10.3 (upstream `pkg/admission/attributes.go`).

/// The audit annotations of one request.
#[derive(Debug, Default)]
pub(super) struct Annotations(Vec<(String, String)>);

impl Annotations {
    /// As [`Annotations::add`], of a hook that may itself be a sidecar: its keys then name its own hooks
    /// (`<inner hook>/<key>`) and are kept as `<hook>/<inner hook>.<key>` where that fits.
    pub(super) fn add_chained(&mut self, hook: &str, key: &str, value: &str) {
        match key.split_once('/') {
            Some((inner, rest)) if is_subdomain(inner) => self.add(hook, &format!("{inner}.{rest}"), value),
            _ => self.add(hook, key, value),
        }
    }

    /// Adds `<hook>/<key>`. A bad key is dropped with a log line, and so is a second value for a key.
    pub(super) fn add(&mut self, hook: &str, key: &str, value: &str) {
        let full = format!("{hook}/{key}");
        if !is_subdomain(hook) || !is_name(key) {
            tracing::warn!(hook, "dropped an audit annotation: {hook}/<key> must be a qualified name");
            return;
        }
        match self.0.iter().find(|(known, _)| *known == full) {
            Some((_, same)) if same == value => {}
            Some(_) => tracing::warn!(hook, key, "dropped an audit annotation: the key has another value already"),
            None => self.0.push((full, value.to_owned())),
        }
    }

    /// All, in the order they were added.
    pub(super) fn into_vec(self) -> Vec<(String, String)> {
        self.0
    }
}

/// A DNS-1123 subdomain of at most 253 characters.
fn is_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.first().is_some_and(|&b| plain(b))
            && bytes.last().is_some_and(|&b| plain(b))
            && bytes.iter().all(|&b| plain(b) || b == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// The part behind the slash: 1 to 63 of `[A-Za-z0-9._-]`, alphanumeric at both ends.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes[bytes.len() - 1].is_ascii_alphanumeric()
        && bytes.iter().all(|&b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream: pkg/admission/attributes_test.go TestAddAnnotation, restated.
    #[test]
    fn keys_must_be_qualified_and_the_first_value_wins() {
        let mut annotations = Annotations::default();
        annotations.add("podsecuritypolicy.admission.k8s.io", "validate-policy", "privileged");
        annotations.add("podsecuritypolicy.admission.k8s.io", "admit-policy", "privileged");
        annotations.add("podsecuritypolicy.admission.k8s.io", "admit-policy", "another");
        annotations.add("podsecuritypolicy.admission.k8s.io", "admit-policy", "privileged");
        for bad in ["", "two/slashes/here", "Not.a.subdomain/key", "-x", "x-", "ümlaut", &"x".repeat(64)] {
            annotations.add("podsecuritypolicy.admission.k8s.io", bad, "value");
        }
        annotations.add("Upper.case", "key", "value");
        annotations.add("hook.example.com", "inner.example.com/checked", "yes");
        annotations.add_chained("sidecar.example.com", "inner.example.com/checked", "yes");
        annotations.add_chained("sidecar.example.com", "two/slashes/here", "yes");
        assert_eq!(
            annotations.into_vec(),
            [
                ("podsecuritypolicy.admission.k8s.io/validate-policy".to_owned(), "privileged".to_owned()),
                ("podsecuritypolicy.admission.k8s.io/admit-policy".to_owned(), "privileged".to_owned()),
                ("sidecar.example.com/inner.example.com.checked".to_owned(), "yes".to_owned()),
            ]
        );
    }
}
