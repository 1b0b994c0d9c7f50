//! Go: JSON as Go's decoder reads it into a type, by a table of types and serde's view of the text.
//!
//! A value is read into what is there already: that is what becomes of a key given twice, of `null`, and of elements
//! that an earlier list has left.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::fields::{Fields, plain};

/// A type of Go's.
pub(crate) enum Type {
    Text,
    Flag,
    /// Whole numbers in this range.
    Number(i64, i64),
    Raw,
    Struct(&'static [(&'static str, Type)]),
    Pointer(&'static Type),
    Map(&'static Type),
    /// One of bytes may be written in base64.
    Slice(&'static Type),
}

/// A value of such a type.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Flag(bool),
    Number(i64),
    Raw,
    Struct(Vec<(&'static str, Value)>),
    Pointer(Option<Box<Value>>),
    Map(BTreeMap<String, Value>),
    /// Items in memory, and the capacity of the list.
    Slice(Vec<Value>, usize),
}

pub(crate) const BYTE: Type = Type::Number(0, 255);
pub(crate) const INT32: Type = Type::Number(i32::MIN as i64, i32::MAX as i64);
pub(crate) const INT64: Type = Type::Number(i64::MIN, i64::MAX);

impl Type {
    /// The zero value.
    pub(crate) fn zero(&self) -> Value {
        match self {
            Self::Text => Value::Text(String::new()),
            Self::Flag => Value::Flag(false),
            Self::Number(..) => Value::Number(0),
            Self::Raw => Value::Raw,
            Self::Struct(fields) => Value::Struct(fields.iter().map(|(name, of)| (*name, of.zero())).collect()),
            Self::Pointer(_) => Value::Pointer(None),
            Self::Map(_) => Value::Map(BTreeMap::new()),
            Self::Slice(_) => Value::Slice(Vec::new(), 0),
        }
    }

    /// Reads `raw` into a value of this type.
    pub(crate) fn read(&self, raw: &RawValue, into: &mut Value) -> Result<(), String> {
        if raw.get() == "null" {
            if matches!(self, Self::Pointer(_) | Self::Map(_) | Self::Slice(_)) {
                *into = self.zero();
            }
            return Ok(());
        }
        match (self, into) {
            (Self::Text, Value::Text(text)) => *text = one(raw)?,
            (Self::Flag, Value::Flag(flag)) => *flag = one(raw)?,
            (Self::Number(least, most), Value::Number(number)) => {
                // Minus zero is one of Go's integers, but for those without a sign.
                let read = if raw.get() == "-0" && *least < 0 { 0 } else { one(raw)? };
                if read < *least || read > *most {
                    return Err("the number has no room".into());
                }
                *number = read;
            }
            (Self::Raw, Value::Raw) => {}
            (Self::Pointer(of), Value::Pointer(there)) => {
                of.read(raw, there.get_or_insert_with(|| Box::new(of.zero())))?;
            }
            (Self::Struct(types), Value::Struct(values)) => {
                for (key, raw) in fields(raw)?.0 {
                    let Some(at) = types.iter().position(|(name, _)| *name == key) else { continue };
                    types[at].1.read(raw, &mut values[at].1)?;
                }
            }
            (Self::Map(of), Value::Map(values)) => {
                for (key, raw) in fields(raw)?.0 {
                    let mut value = of.zero();
                    of.read(raw, &mut value)?;
                    values.insert(key, value);
                }
            }
            (Self::Slice(of), into) if matches!(of, Self::Number(0, 255)) && raw.get().starts_with('"') => {
                let bytes = decoded_len(&one::<String>(raw)?).ok_or("it is no base64")?;
                *into = Value::Slice(vec![Value::Number(0); bytes], bytes);
            }
            (Self::Slice(of), Value::Slice(there, len)) => {
                let items: Vec<&RawValue> = one(raw)?;
                for (at, raw) in items.iter().enumerate() {
                    if at == there.len() {
                        there.push(of.zero());
                    }
                    of.read(raw, &mut there[at])?;
                }
                *len = items.len();
                if items.is_empty() {
                    there.clear();
                }
            }
            (_, value) => unreachable!("{value:?} is of another type"),
        }
        Ok(())
    }
}

impl Value {
    /// A field of a struct, or of the struct that is pointed to.
    pub(crate) fn field(&self, name: &str) -> &Self {
        match self {
            Self::Struct(fields) => &fields.iter().find(|(field, _)| *field == name).expect("a field").1,
            Self::Pointer(Some(value)) => value.field(name),
            value => panic!("{value:?} has no fields"),
        }
    }

    /// Target of the pointer, if there is one.
    pub(crate) fn pointed(&self) -> Option<&Self> {
        let Self::Pointer(value) = self else { panic!("{self:?} points to nothing") };
        value.as_deref()
    }

    pub(crate) fn text(&self) -> String {
        let Self::Text(text) = self else { panic!("{self:?} is no text") };
        text.clone()
    }

    pub(crate) fn flag(&self) -> bool {
        matches!(self, Self::Flag(true))
    }

    pub(crate) fn number(&self) -> i64 {
        let Self::Number(number) = self else { panic!("{self:?} is no number") };
        *number
    }

    pub(crate) fn items(&self) -> &[Self] {
        let Self::Slice(items, len) = self else { panic!("{self:?} is no list") };
        &items[..*len]
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&String, &Self)> {
        let Self::Map(entries) = self else { panic!("{self:?} is no map") };
        entries.iter()
    }
}

fn one<'a, T: serde::Deserialize<'a>>(raw: &'a RawValue) -> Result<T, String> {
    plain(raw)?.ok_or_else(|| "it is null".to_owned())
}

fn fields(raw: &RawValue) -> Result<Fields<'_>, String> {
    Fields::of(raw)?.ok_or_else(|| "it is null".to_owned())
}

/// Length in bytes of a text in padded base64, decoded; line breaks are skipped.
fn decoded_len(text: &str) -> Option<usize> {
    let signs: Vec<char> = text.chars().filter(|sign| !matches!(sign, '\r' | '\n')).collect();
    let padding = signs.iter().rev().take_while(|sign| **sign == '=').count();
    let coded = &signs[..signs.len() - padding];
    let sound = coded.iter().all(|sign| sign.is_ascii_alphanumeric() || matches!(sign, '+' | '/'));
    // Counted only where it is base64: two signs of padding alone would be fewer bytes than none.
    (sound && signs.len().is_multiple_of(4) && padding < 3).then(|| signs.len() / 4 * 3 - padding)
}
