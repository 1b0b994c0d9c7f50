//! Problem: one fault of a configuration, its place, and the fix.

use std::{borrow::Cow, fmt};

/// One fault of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the file in the source.
    pub file: String,
    /// Path in the file: `externalAdmissionHooks[0].rules[2].scope`, with the prefix `[1].` for the second of several
    /// documents; or `line 3, column 5` if the file could not be read as YAML or JSON.
    pub path: String,
    /// Fault that was found.
    pub what: String,
    /// Reason or consequence of the fault: a clause that begins with a conjunction: so, since, which or and.
    pub why: String,
    /// Advice on the fault.
    pub fix: String,
}

/// Conjunctions with which a reason begins.
const REASONS: [&str; 4] = ["so", "since", "which", "and"];

impl Problem {
    /// Returns true if it has a fault, a reason and advice, as every problem does.
    pub fn is_whole(&self) -> bool {
        is_reason(&self.why) && [&self.what, &self.fix].iter().all(|part| !part.trim().is_empty())
    }

    /// Returns the problem of an empty file or source. Having no hooks must be written explicitly.
    pub fn nothing_written(file: &str, what: &str) -> Self {
        const FIX: &str = "to have no hooks, write externalAdmissionHooks: [] in an AdmissionControlConfiguration, or \
                           a List with items: []; otherwise see what has emptied it";
        const WHY: &str = "which is not taken for no hooks, as that would allow every write";
        let (what, why, fix) = (what.to_owned(), WHY.to_owned(), FIX.to_owned());
        Self { file: file.to_owned(), path: String::new(), what, why, fix }
    }
}

impl fmt::Display for Problem {
    /// `file: path: what, why; fix`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, what, why, fix, .. } = self;
        let file = one_line(&self.file);
        match path.is_empty() {
            true => write!(f, "{file}: {what}, {why}; {fix}"),
            false => write!(f, "{file}: {path}: {what}, {why}; {fix}"),
        }
    }
}

/// Returns true if this is a clause with a conjunction, such as `so the rule never matches`.
pub(crate) fn is_reason(text: &str) -> bool {
    text.split_once(' ').is_some_and(|(word, rest)| REASONS.contains(&word) && !rest.trim().is_empty())
}

/// Escapes control characters in the name of a file or key, which is untrusted input.
pub(crate) fn one_line(name: &str) -> Cow<'_, str> {
    match name.contains(char::is_control) {
        true => name.escape_debug().to_string().into(),
        false => name.into(),
    }
}

/// Quotes `text` for a message of one line: escapes control characters, and cuts a long text short.
pub(crate) fn quoted(text: &str) -> String {
    const MAX_QUOTED_CHARS: usize = 80;
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{:?} (cut short)", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Joins words to `a, b or c`.
pub(crate) fn one_of<S: AsRef<str>>(words: &[S]) -> String {
    match words {
        [] => String::new(),
        [only] => only.as_ref().into(),
        [first @ .., last] => {
            let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
            format!("{} or {}", first.join(", "), last.as_ref())
        }
    }
}

/// A remark on a configuration that is no problem, but that its author should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Name of the file in the source.
    pub file: String,
    /// Path in the file, as in a [`crate::Problem`].
    pub path: String,
    /// The remark.
    pub what: String,
    /// Consequence of the remark: a clause, as in a [`crate::Problem`].
    pub why: String,
    /// Advice on the remark.
    pub fix: String,
}

impl fmt::Display for Note {
    /// `file: path: what, why; fix`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, path, what, why, fix } = self;
        debug_assert!(is_reason(why) && !fix.is_empty(), "{self:?} gives no reason, or no advice");
        write!(f, "{}: {path}: {what}, {why}; {fix}", one_line(file))
    }
}

/// Returns the word of `known` nearest to `word`, if it is near enough to be suggested.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    /// Maximum length of a mistyped word. Longer ones are no typing errors, and are slow to compare.
    const MAX_TYPO_BYTES: usize = 64;
    near(word, known, MAX_TYPO_BYTES).min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Returns the words of `known` that are near enough to `word` to be suggested, at most three, the nearest first. Words
/// may be as long as names of hooks.
pub fn nearest_words<'a>(word: &str, known: &[&'a str]) -> Vec<&'a str> {
    const MAX_NAME_BYTES: usize = 253;
    const MAX_SUGGESTIONS: usize = 3;
    let mut near: Vec<_> = near(word, known, MAX_NAME_BYTES).collect();
    near.sort_by_key(|(distance, _)| *distance);
    // Drops words more than twice as far as the nearest: they are unlikely.
    let most = near.first().map_or(0, |(distance, _)| distance * 2);
    near.into_iter()
        .take_while(|(distance, _)| *distance <= most)
        .map(|(_, candidate)| candidate)
        .take(MAX_SUGGESTIONS)
        .collect()
}

fn near<'a>(word: &str, known: &[&'a str], longest: usize) -> impl Iterator<Item = (usize, &'a str)> {
    let (lower, short) = (word.to_lowercase(), word.len() <= longest);
    known
        .iter()
        .filter(move |candidate| short && candidate.len() <= longest)
        .map(move |candidate| (distance(&lower, &candidate.to_lowercase()), *candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
}

/// Returns the Levenshtein distance of two words: the letters to insert, remove or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line() {
        let problem = Problem {
            file: "a.yaml".into(),
            path: "kind".into(),
            what: format!("is {}", quoted("x\ny")),
            why: "so it is not read".into(),
            fix: "say K".into(),
        };
        assert_eq!(problem.to_string(), r#"a.yaml: kind: is "x\ny", so it is not read; say K"#);
        let problem = Problem { file: "a\n2026 ERROR b.yaml".into(), ..problem };
        assert_eq!(problem.to_string(), r#"a\n2026 ERROR b.yaml: kind: is "x\ny", so it is not read; say K"#);
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(quoted(&"é".repeat(200)), format!("\"{}\" (cut short)", "é".repeat(80)));
    }

    #[test]
    fn a_slip_is_recognized_and_a_different_word_is_not() {
        let known = ["failurePolicy", "rules", "name"];
        assert_eq!(nearest("failurepolicy", &known), Some("failurePolicy"));
        assert_eq!(nearest("failPolicy", &known), Some("failurePolicy"));
        assert_eq!(nearest("rule", &known), Some("rules"));
        assert_eq!(nearest("webhooks", &known), None);
        assert_eq!(nearest(&"n".repeat(100_000), &known), None);
    }

    #[test]
    fn of_several_near_words_the_nearest_come_first_and_those_far_off_are_left_out() {
        let known = ["no-root.example.com", "no-latests.example.com", "no-latest.example.com", "quota.example.com"];
        assert_eq!(nearest_words("no-latst.example.com", &known), ["no-latest.example.com", "no-latests.example.com"]);
        assert_eq!(nearest_words("something-else.org", &known), [""; 0]);
    }
}
