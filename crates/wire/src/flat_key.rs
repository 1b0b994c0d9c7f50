//! Flat keys: an audit annotation's `<hook>/<key>` as one name without a slash.
//!
//! Kube-apiserver puts our own name and a slash before each key that an answer brings, and a key has exactly one slash.
//! Source: `docs/reference/webhook-semantics.md` §10.3 and §17.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use gatepost_api::verdict::OWN;

/// Longest name part of a qualified name.
const MAX_NAME_CHARS: usize = 63;
/// Shortest rest of the key behind the hook's name, where something must be cut.
const KEPT_OF_KEY: usize = 32;
/// Length of the hash that keeps cut keys different.
const HASH: usize = 8;

/// The key as one name part: `<hook>_<key>` where that is valid and fits, otherwise as much of both as fits around a
/// hash of the whole. A hook's name has no underscore, so the first one ends it. Our own keys are bare: the apiserver
/// puts our name before them.
pub fn of(key: &str) -> String {
    let (hook, name) = match key.split_once('/') {
        None | Some((OWN, _)) => ("", key.rsplit('/').next().unwrap_or(key)),
        Some(of_hook) => of_hook,
    };
    let plain = if hook.is_empty() { name.to_owned() } else { format!("{hook}_{name}") };
    if plain.len() <= MAX_NAME_CHARS && is_name(&plain) && !hook.contains('_') {
        return plain;
    }
    let mut flat = String::with_capacity(MAX_NAME_CHARS);
    let name = cut(name, KEPT_OF_KEY.max((MAX_NAME_CHARS - HASH - 2).saturating_sub(hook.len())));
    let hook = cut(hook, MAX_NAME_CHARS - HASH - 2 - name.len());
    if !hook.is_empty() {
        flat.push_str(&hook);
        flat.push('-');
    }
    for byte in &Sha256::digest(key)[..HASH / 2] {
        // Writing to a String cannot fail.
        let _ = write!(flat, "{byte:02x}");
    }
    if !name.is_empty() {
        flat.push('_');
        flat.push_str(&name);
    }
    flat
}

fn is_name(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.bytes().all(in_name) && edge(text.as_bytes().first()) && edge(text.as_bytes().last())
}

fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// At most so many characters of a text, only such as names have, letters or digits at both ends.
fn cut(text: &str, longest: usize) -> String {
    let legal = text.chars().map(|sign| if sign.is_ascii() && in_name(sign as u8) { sign } else { '-' });
    let cut: String = legal.take(longest).collect();
    cut.trim_matches(|sign: char| !sign.is_ascii_alphanumeric()).to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn our_own_keys_are_bare() {
        assert_eq!(of(gatepost_api::verdict::REVISION), "revision");
        assert_eq!(of("gatepost.dev.example.com/revision"), "gatepost.dev.example.com_revision");
    }

    #[test]
    fn what_fits_stays_readable() {
        assert_eq!(of("quota.example.com/team"), "quota.example.com_team");
        assert_eq!(
            of("failed-open.validating.webhook.admission.k8s.io/round_0_index_0"),
            "failed-open.validating.webhook.admission.k8s.io_round_0_index_0"
        );
        let cut = of("failed-open.validating.webhook.admission.k8s.io/round_0_index_10");
        assert!(cut.starts_with("failed-open.validating.webhook.admi") && cut.ends_with("_round_0_index_10"), "{cut}");
        assert_eq!(of("alone"), "alone");
    }

    #[test]
    fn what_is_cut_stays_apart() {
        let hook = |end: &str| format!("{}.{end}.example.com/decision", "a".repeat(60));
        let keys: BTreeSet<_> = (0..1000).map(|n| of(&hook(&format!("h{n}")))).collect();
        assert_eq!(keys.len(), 1000);
        assert_eq!(of(&hook("x")), of(&hook("x")));
        assert_ne!(of("a.b/c d"), of("a.b/c-d"));
        assert_ne!(of("a_b/c"), of("a/b_c"));
    }

    proptest! {
        #[test]
        fn every_key_becomes_a_name(hook in "[a-z.-]{0,120}", key in "[ -~é]{0,120}", slash: bool) {
            let key = if slash { format!("{hook}/{key}") } else { format!("{hook}{key}") };
            let flat = of(&key);
            prop_assert!(flat.len() <= MAX_NAME_CHARS && is_name(&flat), "{} of {}", flat, key);
        }
    }
}
