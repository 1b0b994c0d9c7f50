//! Problem: one thing that is wrong with a configuration, where, and what to do about it.

use std::{borrow::Cow, fmt};

/// One thing that is wrong with what people wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, named as the source names it.
    pub file: String,
    /// The place in it: `externalAdmissionHooks[0].rules[2].scope`, preceded by `[1].` for the second document of a
    /// file that has several; or `line 3, column 5` where the file could not be read as YAML or JSON.
    pub path: String,
    /// Fault that was found.
    pub what: String,
    /// Reason for which it is one, or what comes of it: a clause with its conjunction, so, since, which or and.
    pub why: String,
    /// Advice on the fault.
    pub fix: String,
}

/// Words that a reason begins with.
const REASONS: [&str; 4] = ["so", "since", "which", "and"];

impl Problem {
    /// Does it give a reason, and advice? Every problem does.
    pub fn is_whole(&self) -> bool {
        is_reason(&self.why) && [&self.what, &self.fix].iter().all(|part| !part.trim().is_empty())
    }

    /// Nothing is written where something was to be. That is not taken for "no hooks", which somebody has to write.
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

/// Is it a clause with its conjunction, such as `so the rule never matches`?
pub(crate) fn is_reason(text: &str) -> bool {
    text.split_once(' ').is_some_and(|(word, rest)| REASONS.contains(&word) && !rest.trim().is_empty())
}

/// A file's or a key's name, control characters escaped: whoever may write there chose it.
pub(crate) fn one_line(name: &str) -> Cow<'_, str> {
    match name.contains(char::is_control) {
        true => name.escape_debug().to_string().into(),
        false => name.into(),
    }
}

/// `text` in quotes, control characters escaped, cut short where it is long: fit for a message of one line.
pub(crate) fn quoted(text: &str) -> String {
    const MAX_QUOTED_CHARS: usize = 80;
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{:?} (cut short)", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// `a, b or c`.
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

/// Note on a configuration that is no problem, and that its author should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The file, named as the source names it.
    pub file: String,
    /// The place in it, as in a [`crate::Problem`].
    pub path: String,
    /// Remark on what is written.
    pub what: String,
    /// Consequence of it: a clause, as in a [`crate::Problem`].
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

/// The word of `known` nearest to `word`, where one is near enough to be worth suggesting.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    /// Longer words are nobody's typing error, and comparing them costs time.
    const MAX_TYPO_BYTES: usize = 64;
    near(word, known, MAX_TYPO_BYTES).min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// The words of `known` that are near enough to `word` to be worth suggesting, at most three, the nearest first. Words
/// are as long as names of hooks may be.
pub fn nearest_words<'a>(word: &str, known: &[&'a str]) -> Vec<&'a str> {
    const MAX_NAME_BYTES: usize = 253;
    const MAX_SUGGESTIONS: usize = 3;
    let mut near: Vec<_> = near(word, known, MAX_NAME_BYTES).collect();
    near.sort_by_key(|(distance, _)| *distance);
    // A word that is twice as far off as the nearest was hardly meant.
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

/// Letters to insert, remove or replace to turn one word into the other (Levenshtein).
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
