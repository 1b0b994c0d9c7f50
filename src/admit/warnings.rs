//! Merging the hooks' warnings. Source: `webhook-semantics.md` §10.2 (upstream `pkg/endpoints/filters/warning.go`).

/// All warnings of a request together, in characters.
const TOTAL: usize = 4096;
/// One warning, once the total has been exceeded.
const ITEM: usize = 256;

/// The warnings of one request, within upstream's limits.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    kept: Vec<String>,
    /// Everything accepted so far, untruncated; replayed when truncation begins, and looked at for repeats.
    seen: Vec<String>,
    written: usize,
    truncating: bool,
}

impl Warnings {
    /// Adds one, unless it is empty, repeated, not printable, or beyond the limit.
    pub(super) fn add(&mut self, text: &str) {
        if text.is_empty() || text.chars().any(char::is_control) || self.written >= TOTAL {
            return;
        }
        if self.seen.iter().any(|seen| seen == text) {
            return;
        }
        self.seen.push(text.to_owned());
        let len = text.chars().count();
        if self.truncating || self.written + len > TOTAL {
            if !std::mem::replace(&mut self.truncating, true) {
                self.kept.clear();
                self.written = 0;
                for earlier in std::mem::take(&mut self.seen) {
                    self.keep_cut(&earlier);
                    self.seen.push(earlier);
                }
            } else {
                self.keep_cut(text);
            }
        } else {
            self.kept.push(text.to_owned());
            self.written += len;
        }
    }

    fn keep_cut(&mut self, text: &str) {
        if self.written >= TOTAL {
            return;
        }
        let cut: String = text.chars().take(ITEM).collect();
        self.written += cut.chars().count();
        self.kept.push(cut);
    }

    /// What the client gets.
    pub(super) fn into_vec(self) -> Vec<String> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Vec<String> {
        let mut warnings = Warnings::default();
        texts.into_iter().for_each(|text| warnings.add(text.as_ref()));
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
