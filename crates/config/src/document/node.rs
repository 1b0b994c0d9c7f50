//! Node: a value, the path that leads to it, and where to report what is wrong there.

use std::{cell::RefCell, fmt::Write as _};

use super::{
    problem::{Problem, nearest, one_of, quoted},
    value::Value,
};

/// The problems found so far.
#[derive(Default)]
pub(crate) struct ProblemReport(RefCell<Vec<Problem>>);

impl ProblemReport {
    pub(crate) fn add(&self, problem: Problem) {
        debug_assert!(problem.is_whole(), "{problem:?} gives no reason, or no advice");
        self.0.borrow_mut().push(problem);
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.0.into_inner()
    }
}

/// Reason where something else is written than what can stand there.
pub(crate) const UNCLEAR: &str = "so what it is to mean would be a guess";

#[derive(Clone, Copy)]
enum Step<'a> {
    /// A document of a file; the index where the file has several.
    Document(&'a str, Option<usize>),
    Key(&'a str),
    Index(usize),
}

/// A value in its place. The path is a chain of steps on the stack, written out only when there is a problem.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    pub(crate) value: &'a Value,
    step: Step<'a>,
    parent: Option<&'a Node<'a>>,
    report: &'a ProblemReport,
}

/// The value, where one was written.
pub(crate) fn given(at: Node<'_>) -> Option<Node<'_>> {
    Some(at).filter(Node::present)
}

impl<'a> Node<'a> {
    /// The root of a document; `index` where its file has several.
    pub(crate) fn document(value: &'a Value, file: &'a str, index: Option<usize>, report: &'a ProblemReport) -> Self {
        Self { value, step: Step::Document(file, index), parent: None, report }
    }

    /// The entry `key` of this map; an empty value where there is none.
    pub(crate) fn key<'b>(&'b self, key: &'b str) -> Node<'b> {
        self.child(self.value.get(key).unwrap_or(&Value::Null), Step::Key(key))
    }

    /// Every entry of this map, in the order written; none where it is no map.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a str, Node<'_>)> {
        let entries = if let Value::Map(entries) = self.value { entries.as_slice() } else { &[] };
        entries.iter().map(|(key, value)| (&**key, self.child(value, Step::Key(key))))
    }

    /// Every item of this list; none where it is no list.
    pub(crate) fn items(&self) -> impl Iterator<Item = Node<'_>> {
        let items = if let Value::List(items) = self.value { items.as_slice() } else { &[] };
        items.iter().enumerate().map(|(index, value)| self.child(value, Step::Index(index)))
    }

    fn child<'b>(&'b self, value: &'b Value, step: Step<'b>) -> Node<'b> {
        Node { value, step, parent: Some(self), report: self.report }
    }

    /// False where nothing, or an explicit null, was written.
    pub(crate) fn present(&self) -> bool {
        *self.value != Value::Null
    }

    /// True where the key was written, if only with nothing behind it.
    pub(crate) fn is_written(&self) -> bool {
        match (self.step, self.parent) {
            (Step::Key(key), Some(parent)) => parent.value.get(key).is_some(),
            _ => true,
        }
    }

    /// Reports a problem with this value.
    pub(crate) fn problem(&self, what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) {
        let (file, path) = self.place();
        self.report.add(Problem { file, path, what: what.into(), why: why.into(), fix: fix.into() });
    }

    /// The file, and the path in it.
    pub(crate) fn place(&self) -> (String, String) {
        let mut chain = vec![self];
        while let Some(parent) = chain[chain.len() - 1].parent {
            chain.push(parent);
        }
        let (mut file, mut path) = (String::new(), String::new());
        for at in chain.iter().rev() {
            match at.step {
                Step::Document(name, index) => {
                    file = name.into();
                    path = index.map_or(String::new(), |index| format!("[{index}]"));
                }
                Step::Key(key) if key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)) => {
                    path.push_str(if path.is_empty() { "" } else { "." });
                    path.push_str(key);
                }
                // Writing to a String does not fail.
                Step::Key(key) => _ = write!(path, "[{}]", quoted(key)),
                Step::Index(index) => _ = write!(path, "[{index}]"),
            }
        }
        (file, path)
    }

    /// `file: path`, for a message about another place.
    pub(crate) fn place_name(&self) -> String {
        let (file, path) = self.place();
        format!("{file}: {path}")
    }

    /// Reports that this is missing, unless it is there; true where it is there.
    pub(crate) fn required(&self, why: &str, fix: &str) -> bool {
        if !self.present() {
            self.problem("is missing", why, fix);
        }
        self.present()
    }

    /// Reports that this should have been `wanted`.
    pub(crate) fn wrong_type(&self, wanted: &str) {
        let fix = match (wanted, self.value) {
            ("a text", Value::Bool(_) | Value::Integer(_) | Value::Float(_)) => "put it in quotes".into(),
            ("a list", Value::Text(_)) => "write it as a list of one: [...]".into(),
            _ => format!("write {wanted} here"),
        };
        self.problem(format!("is {}, not {wanted}", self.value.kind()), UNCLEAR, fix);
    }

    /// Is this a map with no other keys than these? Reports whatever is not as it should be; false where it is no map.
    pub(crate) fn is_map_of(&self, known: &[&str]) -> bool {
        let Value::Map(_) = self.value else {
            self.wrong_type("a map");
            return false;
        };
        for (key, at) in self.entries().filter(|(key, _)| !known.contains(key)) {
            let fix = match nearest(key, known) {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("remove it; known here: {}", known.join(", ")),
            };
            at.problem("is not a known key", "so it would have no effect", fix);
        }
        true
    }

    /// Is this a list? Reports it where it is not.
    pub(crate) fn is_list(&self) -> bool {
        let list = matches!(self.value, Value::List(_));
        if !list {
            self.wrong_type("a list");
        }
        list
    }

    /// The text, where it is one.
    pub(crate) fn text(&self) -> Option<&'a str> {
        match self.value {
            Value::Text(text) => Some(text),
            _ => {
                self.wrong_type("a text");
                None
            }
        }
    }

    /// The yes or no, where it is one.
    pub(crate) fn boolean(&self) -> Option<bool> {
        match self.value {
            Value::Bool(yes) => Some(*yes),
            _ => {
                self.wrong_type("true or false");
                None
            }
        }
    }

    /// The texts of a list, where all are; several problems may be reported.
    pub(crate) fn texts(&self) -> Option<Vec<&'a str>> {
        let Value::List(items) = self.value else {
            self.wrong_type("a list");
            return None;
        };
        self.items().filter(|item| !matches!(item.value, Value::Text(_))).for_each(|item| item.wrong_type("a text"));
        items.iter().map(|item| if let Value::Text(text) = item { Some(&**text) } else { None }).collect()
    }

    /// The meaning of a text that must be one of these words.
    pub(crate) fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let meaning = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        if meaning.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let fix = match nearest(text, &known) {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("write {}", one_of(&known)),
            };
            self.problem(format!("{} is not one of the allowed words", quoted(text)), UNCLEAR, fix);
        }
        meaning
    }

    /// A whole number in this range.
    pub(crate) fn integer(&self, range: std::ops::RangeInclusive<i128>, why: &str) -> Option<i128> {
        let Value::Integer(integer) = self.value else {
            self.wrong_type("a whole number");
            return None;
        };
        if !range.contains(integer) {
            self.problem(
                format!("{integer} is out of range"),
                why,
                format!("write a whole number from {} to {}", range.start(), range.end()),
            );
        }
        range.contains(integer).then_some(*integer)
    }

    /// Number of problems reported so far; for steps that only make sense where there was no new one.
    pub(crate) fn problems(&self) -> usize {
        self.report.0.borrow().len()
    }
}
