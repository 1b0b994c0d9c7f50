//! Merging the hooks' audit annotations. Source: `docs/reference/webhook-semantics.md` §10.3 (upstream
//! `pkg/admission/attributes.go`).

use std::collections::{HashMap, hash_map::Entry};

use crate::{telemetry::DroppedAnnotation, wire::answer::MOST_ANNOTATIONS as MOST};

/// The most bytes of one answer's annotations, keys and values.
const MOST_BYTES: usize = 256 << 10;

/// The audit annotations of one request.
#[derive(Debug, Default)]
pub(super) struct Annotations {
    /// Annotations by key, each with its place in the order they were added. The keys are foreign: the hash is a keyed
    /// one.
    by_key: HashMap<String, (usize, String)>,
}

impl Annotations {
    /// Adds the annotations of one hook's answer as `<hook>/<key>`, and reports how many are left out and why.
    ///
    /// `chained`: the hook may itself be a sidecar: its keys then name its own hooks (`<inner hook>/<key>`) and are
    /// kept as `<hook>/<inner hook>.<key>` where that fits.
    pub(super) fn add_all(
        &mut self,
        hook: &str,
        chained: bool,
        pairs: &[(String, String)],
        mut dropped: impl FnMut(DroppedAnnotation, usize),
    ) {
        // Most answers have none, and then the hook's name need not be looked at.
        if pairs.is_empty() {
            return;
        }
        let (mut left, named) = (MOST_BYTES, is_subdomain(hook));
        for (looked_at, (key, value)) in pairs.iter().enumerate() {
            let size = hook.len() + 1 + key.len() + value.len();
            if looked_at == MOST || size > left {
                return dropped(DroppedAnnotation::Limit, pairs.len() - looked_at);
            }
            let added = if named { self.add_one(hook, chained, key, value) } else { Err(DroppedAnnotation::Key) };
            match added {
                Ok(()) => left -= size,
                Err(cause) => dropped(cause, 1),
            }
        }
    }

    /// Adds one of our own.
    pub(super) fn add(&mut self, prefix: &str, key: &str, value: &str) {
        let _ = self.insert(format!("{prefix}/{key}"), value);
    }

    fn add_one(&mut self, hook: &str, chained: bool, key: &str, value: &str) -> Result<(), DroppedAnnotation> {
        let inner = key.split_once('/').filter(|(inner, _)| chained && is_subdomain(inner));
        let full = match inner {
            Some((inner, rest)) => format!("{hook}/{inner}.{rest}"),
            None => format!("{hook}/{key}"),
        };
        if is_name(&full[hook.len() + 1..]) { self.insert(full, value) } else { Err(DroppedAnnotation::Key) }
    }

    /// The first value of a key stays.
    fn insert(&mut self, full: String, value: &str) -> Result<(), DroppedAnnotation> {
        let place = self.by_key.len();
        match self.by_key.entry(full) {
            Entry::Vacant(entry) => _ = entry.insert((place, value.to_owned())),
            Entry::Occupied(entry) if entry.get().1 == value => {}
            Entry::Occupied(_) => return Err(DroppedAnnotation::Value),
        }
        Ok(())
    }

    /// All, in the order they were added.
    pub(super) fn into_vec(self) -> Vec<(String, String)> {
        let mut all: Vec<_> = self.by_key.into_iter().map(|(key, (place, value))| (place, key, value)).collect();
        all.sort_unstable_by_key(|(place, ..)| *place);
        all.into_iter().map(|(_, key, value)| (key, value)).collect()
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

    fn added(
        annotations: &mut Annotations,
        hook: &str,
        chained: bool,
        pairs: &[(&str, &str)],
    ) -> Vec<(DroppedAnnotation, usize)> {
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut dropped = Vec::new();
        annotations.add_all(hook, chained, &pairs, |cause, count| dropped.push((cause, count)));
        dropped
    }

    /// Upstream: pkg/admission/attributes_test.go TestAddAnnotation, restated.
    #[test]
    fn keys_must_be_qualified_and_the_first_value_wins() {
        let mut annotations = Annotations::default();
        let hook = "podsecuritypolicy.admission.k8s.io";
        let dropped = added(
            &mut annotations,
            hook,
            false,
            &[
                ("validate-policy", "privileged"),
                ("admit-policy", "privileged"),
                ("admit-policy", "another"),
                ("admit-policy", "privileged"),
            ],
        );
        assert_eq!(dropped, [(DroppedAnnotation::Value, 1)]);
        for bad in ["", "two/slashes/here", "Not.a.subdomain/key", "-x", "x-", "ümlaut", &"x".repeat(64)] {
            assert_eq!(added(&mut annotations, hook, false, &[(bad, "value")]), [(DroppedAnnotation::Key, 1)], "{bad}");
        }
        let bad = [(DroppedAnnotation::Key, 1)];
        assert_eq!(added(&mut annotations, "Upper.case", false, &[("key", "value")]), bad);
        assert_eq!(added(&mut annotations, "hook.example.com", false, &[("inner.example.com/checked", "yes")]), bad);
        assert_eq!(added(&mut annotations, "sidecar.example.com", true, &[("inner.example.com/checked", "yes")]), []);
        assert_eq!(added(&mut annotations, "sidecar.example.com", true, &[("two/slashes/here", "yes")]), bad);
        assert_eq!(
            annotations.into_vec(),
            [
                ("podsecuritypolicy.admission.k8s.io/validate-policy".to_owned(), "privileged".to_owned()),
                ("podsecuritypolicy.admission.k8s.io/admit-policy".to_owned(), "privileged".to_owned()),
                ("sidecar.example.com/inner.example.com.checked".to_owned(), "yes".to_owned()),
            ]
        );
    }

    #[test]
    fn one_answer_adds_so_many_and_so_much_and_no_more() {
        let many: Vec<_> = (0..100_000).map(|n| (format!("key-{n}"), "v".to_owned())).collect();
        let mut annotations = Annotations::default();
        for hook in ["a.example.com", "b.example.com"] {
            let mut dropped = Vec::new();
            annotations.add_all(hook, false, &many, |cause, count| dropped.push((cause, count)));
            assert_eq!(dropped, [(DroppedAnnotation::Limit, 99_000)], "reported once");
        }
        assert_eq!(annotations.into_vec().len(), 2 * MOST);

        let large = "v".repeat(MOST_BYTES / 2);
        let mut annotations = Annotations::default();
        let pairs = [("a", &*large), ("b", &*large), ("c", "v")];
        assert_eq!(added(&mut annotations, "a.example.com", false, &pairs), [(DroppedAnnotation::Limit, 2)]);
        assert_eq!(annotations.into_vec().len(), 1);
    }
}
