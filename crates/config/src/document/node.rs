//! Value: a document as it was written. Node: a value, the path that leads to it, and where to report a problem with
//! it.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fmt::{self, Write as _},
};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::problem::{Problem, nearest, one_of, quoted};

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

/// One YAML or JSON value. Unlike `serde_json::Value` it keeps every entry of a map, so that a key written twice is
/// still seen twice.
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
    /// Type of the value, in words for a message.
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

    /// The entry of a map with this key; the first, where it was written twice.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.iter().find(|(name, _)| **name == *key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Is there a map with two entries of one key, here or anywhere below?
    pub(crate) fn holds_a_key_twice(&self) -> bool {
        match self {
            Self::List(items) => items.iter().any(Self::holds_a_key_twice),
            Self::Map(entries) => twice(entries) || entries.iter().any(|(_, value)| value.holds_a_key_twice()),
            _ => false,
        }
    }

    /// Depth of maps and lists in it; 1 for anything else.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Self::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Map(entries) => 1 + entries.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
            _ => 1,
        }
    }

    /// The same as JSON has it; a number that JSON has not is null.
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

    /// The text that a map holds under this key.
    pub(crate) fn text_of(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Self::Text(text)) => Some(text),
            _ => None,
        }
    }
}

/// Is there a key twice among these?
fn twice(entries: &[(Box<str>, Value)]) -> bool {
    /// Among so few, comparing each with each is quicker than sorting them in.
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
