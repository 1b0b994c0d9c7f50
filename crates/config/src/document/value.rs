//! Value: a document as it was written, before anything is made of it.

use std::{collections::BTreeSet, fmt};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

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
