//! Value: a document as written. Node: a value, its path, and the report for its problems.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fmt::{self, Write as _},
};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::problem::{Problem, nearest, one_of, quoted};

/// Collects problems.
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

/// Consequence of a value that cannot be interpreted.
pub(crate) const UNCLEAR: &str = "so what it is to mean would be a guess";

#[derive(Clone, Copy)]
enum Step<'a> {
    /// A document of a file, and its index if the file has several.
    Document(&'a str, Option<usize>),
    Key(&'a str),
    Index(usize),
}

/// A value with its path, a chain of steps on the stack. The path is formatted only if there is a problem.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    pub(crate) value: &'a Value,
    step: Step<'a>,
    parent: Option<&'a Node<'a>>,
    report: &'a ProblemReport,
}

/// Returns the node if its value is present.
pub(crate) fn given(at: Node<'_>) -> Option<Node<'_>> {
    Some(at).filter(Node::present)
}

impl<'a> Node<'a> {
    /// Returns the root of a document; `index` is its index if the file has several.
    pub(crate) fn document(value: &'a Value, file: &'a str, index: Option<usize>, report: &'a ProblemReport) -> Self {
        Self { value, step: Step::Document(file, index), parent: None, report }
    }

    /// Returns the entry `key` of this map; a null value if there is none.
    pub(crate) fn key<'b>(&'b self, key: &'b str) -> Node<'b> {
        self.child(self.value.get(key).unwrap_or(&Value::Null), Step::Key(key))
    }

    /// Returns every entry of this map, in the order written; nothing if it is no map.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a str, Node<'_>)> {
        let entries = if let Value::Map(entries) = self.value { entries.as_slice() } else { &[] };
        entries.iter().map(|(key, value)| (&**key, self.child(value, Step::Key(key))))
    }

    /// Returns every item of this list; nothing if it is no list.
    pub(crate) fn items(&self) -> impl Iterator<Item = Node<'_>> {
        let items = if let Value::List(items) = self.value { items.as_slice() } else { &[] };
        items.iter().enumerate().map(|(index, value)| self.child(value, Step::Index(index)))
    }

    fn child<'b>(&'b self, value: &'b Value, step: Step<'b>) -> Node<'b> {
        Node { value, step, parent: Some(self), report: self.report }
    }

    /// Returns false if the value is absent or null.
    pub(crate) fn present(&self) -> bool {
        *self.value != Value::Null
    }

    /// Returns true if the key is present, even with a null value.
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

    /// Reports a problem with a value at this path below this one.
    pub(crate) fn problem_below(&self, below: &str, what: &str, why: &str, fix: &str) {
        let (file, path) = self.place();
        let dot = if path.is_empty() || below.is_empty() || below.starts_with('[') { "" } else { "." };
        let path = format!("{path}{dot}{below}");
        self.report.add(Problem { file, path, what: what.into(), why: why.into(), fix: fix.into() });
    }

    /// Returns the file, and the path in it.
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

    /// Returns `file: path`, for messages about another place.
    pub(crate) fn place_name(&self) -> String {
        let (file, path) = self.place();
        format!("{file}: {path}")
    }

    /// Returns true if the value is present; otherwise reports that it is missing.
    pub(crate) fn required(&self, why: &str, fix: &str) -> bool {
        if !self.present() {
            self.problem("is missing", why, fix);
        }
        self.present()
    }

    /// Reports that the value is not `wanted`.
    pub(crate) fn wrong_type(&self, wanted: &str) {
        let fix = match (wanted, self.value) {
            ("a text", Value::Bool(_) | Value::Integer(_) | Value::Float(_)) => "put it in quotes".into(),
            ("a list", Value::Text(_)) => "write it as a list of one: [...]".into(),
            _ => format!("write {wanted} here"),
        };
        self.problem(format!("is {}, not {wanted}", self.value.kind()), UNCLEAR, fix);
    }

    /// Returns true if this is a map; otherwise reports it. Reports keys that are not among `known`.
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

    /// Returns true if this is a list; otherwise reports it.
    pub(crate) fn is_list(&self) -> bool {
        let list = matches!(self.value, Value::List(_));
        if !list {
            self.wrong_type("a list");
        }
        list
    }

    /// Returns the text; reports any other value.
    pub(crate) fn text(&self) -> Option<&'a str> {
        match self.value {
            Value::Text(text) => Some(text),
            _ => {
                self.wrong_type("a text");
                None
            }
        }
    }

    /// Returns the boolean; reports any other value.
    pub(crate) fn boolean(&self) -> Option<bool> {
        match self.value {
            Value::Bool(yes) => Some(*yes),
            _ => {
                self.wrong_type("true or false");
                None
            }
        }
    }

    /// Returns the texts of a list; reports every item that is not a text.
    pub(crate) fn texts(&self) -> Option<Vec<&'a str>> {
        let Value::List(items) = self.value else {
            self.wrong_type("a list");
            return None;
        };
        self.items().filter(|item| !matches!(item.value, Value::Text(_))).for_each(|item| item.wrong_type("a text"));
        items.iter().map(|item| if let Value::Text(text) = item { Some(&**text) } else { None }).collect()
    }

    /// Returns the meaning of a text, which must be one of these words.
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

    /// Returns a whole number, which must be in this range.
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

    /// Returns the number of problems so far. A step can be skipped if there are new ones.
    pub(crate) fn problems(&self) -> usize {
        self.report.0.borrow().len()
    }
}

/// A YAML or JSON value. Unlike `serde_json::Value`, it keeps every entry of a map, so that duplicate keys are found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(Box<str>),
    List(Vec<Value>),
    Map(Vec<(Box<str>, Value)>),
}

impl Value {
    /// Returns the type of the value, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "empty",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }

    /// Returns the entry of a map with this key; the first one if the key is duplicate.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.iter().find(|(name, _)| **name == *key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns true if a map has a duplicate key, at any depth.
    pub(crate) fn has_duplicate_key(&self) -> bool {
        match self {
            Self::List(items) => items.iter().any(Self::has_duplicate_key),
            Self::Map(entries) => twice(entries) || entries.iter().any(|(_, value)| value.has_duplicate_key()),
            _ => false,
        }
    }

    /// Returns the depth of nested maps and lists; 1 for any other value.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Self::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Map(entries) => 1 + entries.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
            _ => 1,
        }
    }

    /// Converts the value to JSON. A number that JSON cannot represent becomes null.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Integer(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => number.into(),
                (_, Ok(number)) => number.into(),
                _ => (*number as f64).into(),
            },
            Self::Float(number) => (*number).into(),
            Self::Text(text) => (**text).into(),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Map(entries) => {
                let entry = |(key, value): &(Box<str>, Self)| (key.to_string(), value.to_json());
                serde_json::Value::Object(entries.iter().map(entry).collect())
            }
        }
    }

    /// Returns the text of a map's entry with this key.
    pub(crate) fn text_of(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Self::Text(text)) => Some(text),
            _ => None,
        }
    }
}

/// Returns true if two entries have the same key.
fn twice(entries: &[(Box<str>, Value)]) -> bool {
    /// Up to this size, comparing pairs is faster than building a set.
    const MAX_PAIRWISE_KEYS: usize = 16;
    if entries.len() > MAX_PAIRWISE_KEYS {
        let mut seen = BTreeSet::new();
        return entries.iter().any(|(key, _)| !seen.insert(key));
    }
    entries.iter().enumerate().any(|(index, (key, _))| entries[..index].iter().any(|(before, _)| before == key))
}

impl From<&serde_json::Value> for Value {
    fn from(json: &serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(bool) => Self::Bool(*bool),
            serde_json::Value::Number(number) => match number.as_i128() {
                Some(integer) => Self::Integer(integer),
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Self::Text(text.as_str().into()),
            serde_json::Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            serde_json::Value::Object(entries) => {
                Self::Map(entries.iter().map(|(key, value)| (key.as_str().into(), value.into())).collect())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a null, boolean, number, text, list or map")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Value, E> {
        Ok(Value::Bool(bool))
    }

    fn visit_i64<E>(self, integer: i64) -> Result<Value, E> {
        Ok(Value::Integer(integer.into()))
    }

    fn visit_u64<E>(self, integer: u64) -> Result<Value, E> {
        Ok(Value::Integer(integer.into()))
    }

    fn visit_i128<E>(self, integer: i128) -> Result<Value, E> {
        Ok(Value::Integer(integer))
    }

    fn visit_u128<E>(self, integer: u128) -> Result<Value, E> {
        Ok(i128::try_from(integer).map_or(Value::Float(integer as f64), Value::Integer))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.into()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some((key, value)) = entries.next_entry::<String, Value>()? {
            map.push((key.into_boxed_str(), value));
        }
        Ok(Value::Map(map))
    }
}
