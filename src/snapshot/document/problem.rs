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
    pub(crate) fn nothing_written(file: &str, what: &str) -> Self {
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
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
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
}
