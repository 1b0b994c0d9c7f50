//! Merging the hooks' warnings. Source: `docs/reference/webhook-semantics.md` §10.2 (upstream
//! `pkg/endpoints/filters/warning.go`).

use std::{borrow::Cow, collections::HashSet};

/// All warnings of a request together, in characters.
const TOTAL: usize = 4096;
/// One warning, once the total has been exceeded.
const ITEM: usize = 256;

/// The warnings of one request, within upstream's limits.
#[derive(Debug, Default)]
pub(super) struct Warnings<'a> {
    /// In order, untruncated.
    accepted: Vec<Cow<'a, str>>,
    /// The same, to look for repeats. The texts are foreign: the hash is a keyed one.
    seen: HashSet<Cow<'a, str>>,
    /// Characters that the client gets.
    written: usize,
    truncating: bool,
}

impl<'a> Warnings<'a> {
    /// Adds one, unless it is empty, repeated, not printable, or beyond the limit.
    pub(super) fn add(&mut self, text: impl Into<Cow<'a, str>>) {
        let text = text.into();
        if self.written >= TOTAL || text.is_empty() || text.chars().any(char::is_control) {
            return;
        }
        if !self.seen.insert(text.clone()) {
            return;
        }
        let len = text.chars().count();
        self.accepted.push(text);
        if self.truncating {
            self.written += len.min(ITEM);
        } else if self.written + len > TOTAL {
            self.truncating = true;
            self.written = self.accepted.iter().map(|text| text.chars().take(ITEM).count()).sum();
        } else {
            self.written += len;
        }
    }

    /// Warnings for the client.
    pub(super) fn into_vec(self) -> Vec<String> {
        let item = if self.truncating { ITEM } else { TOTAL };
        let cut = |text: Cow<'a, str>| text.chars().take(item).collect::<String>();
        let mut written = 0;
        let mut kept: Vec<_> = self.accepted.into_iter().map(cut).collect();
        kept.retain(|text| {
            let fits = written < TOTAL;
            written += text.chars().count();
            fits
        });
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Vec<String> {
        let mut warnings = Warnings::default();
        let texts: Vec<S> = texts.into_iter().collect();
        texts.iter().for_each(|text| warnings.add(text.as_ref()));
        warnings.into_vec()
    }

    #[test]
    fn empty_repeated_and_unprintable_ones_are_dropped() {
        assert_eq!(merged(["a", "", "b", "a", "x\ny", "c\u{7f}"]), ["a", "b"]);
    }

    #[test]
    fn what_fits_is_whole_and_from_the_first_overflow_on_all_are_cut() {
        let long = "é".repeat(4000);
        assert_eq!(merged(std::slice::from_ref(&long)), std::slice::from_ref(&long));
        assert_eq!(
            merged([long, "second".into(), "x".repeat(300)]),
            ["é".repeat(256), "second".into(), "x".repeat(256)]
        );
    }

    #[test]
    fn nothing_is_added_beyond_the_total() {
        let many = (0..100).map(|n| format!("{n:0>300}"));
        let kept = merged(many);
        assert_eq!(kept.len(), 16);
        assert!(kept.iter().all(|text| text.len() == 256));
    }
}
