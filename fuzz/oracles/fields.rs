//! Fields: an object of JSON with every key that it has, also one that is there twice.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// A value that was read; `None` for `null`.
pub(crate) type Read<T> = Result<Option<T>, String>;

/// Keys and values in the order written.
pub(crate) struct Fields<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// The fields of an object; `None` for `null`.
    pub(crate) fn of(raw: &'a RawValue) -> Read<Self> {
        plain(raw)
    }
}

/// A value as serde reads it.
pub(crate) fn plain<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Read<T> {
    serde_json::from_str(raw.get()).map_err(|error| error.to_string())
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = entries.next_entry()? {
                    fields.push(field);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Entries).map(Self)
    }
}
