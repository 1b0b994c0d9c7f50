//! `metadata.initializers` inside an object's JSON, found without building the object.

use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{Cursor, JsonReadError};
use gatepost_api::Rope;

/// The field of the object that lies in `range`, as it is written; `None` where it has none, or `null`. Of equal keys the
/// last one counts, as in Go's decoder.
///
/// # Errors
/// The object is not JSON; the text says where, and repeats nothing of it.
pub fn of_object(rope: &Rope, range: Range<usize>) -> Result<Option<String>, String> {
    let object = rope.copy_of(range);
    read(&String::from_utf8_lossy(&object)).map_err(|error| match error {
        JsonReadError::Json(error) => format!("the object is not JSON at {error}"),
        JsonReadError::Type { .. } => format!("the object cannot be read: {error}"),
    })
}

fn read(object: &str) -> Result<Option<String>, JsonReadError> {
    let (mut cursor, mut found) = (Cursor::new(object), None);
    if !cursor.object("it")? {
        return Err(JsonReadError::Type { field: "it", wanted: "an object" });
    }
    while let Some(key) = cursor.key()? {
        if key.plain() != "metadata" {
            cursor.skip()?;
            continue;
        }
        if !cursor.object("metadata")? {
            continue;
        }
        while let Some(key) = cursor.key()? {
            if key.plain() != "initializers" {
                cursor.skip()?;
                continue;
            }
            found = cursor.object_range("metadata.initializers")?;
        }
    }
    cursor.end()?;
    Ok(found.and_then(|place| object.get(place)).map(str::to_owned))
}

/// The creator of an unfinished object: beside the list, so that each initializer finds it there.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    creator: Option<&'a RawValue>,
}

/// The creator in a `metadata.initializers`, as it is written.
pub fn creator(field: &str) -> Option<&str> {
    let Written { creator } = serde_json::from_str(field).ok()?;
    creator.map(RawValue::get)
}

/// The name of such a creator.
pub fn username(creator: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        username: String,
    }
    serde_json::from_str(creator).ok().map(|Named { username }| username)
}

/// A list as `Initializers::write` of `gatepost-initializers` has it, with the creator beside it.
pub fn with_creator(list: &str, creator: Option<&str>) -> String {
    match (list.strip_suffix('}'), creator) {
        (Some(open), Some(creator)) => format!("{open},\"creator\":{creator}}}"),
        _ => list.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn found(json: &'static str) -> Result<Option<String>, String> {
        of_object(&Rope::new([Bytes::from_static(json.as_bytes())]), 0..json.len())
    }

    #[test]
    fn the_field_is_found_wherever_it_stands() {
        assert_eq!(found(r#"{"spec":{"metadata":{"initializers":{}}}}"#), Ok(None));
        assert_eq!(found(r#"{"metadata":{"initializers":null}}"#), Ok(None));
        assert_eq!(
            found(r#"{"metadata":{"name":"p","initi\u0061lizers": {"pending" : []} }}"#),
            Ok(Some(r#"{"pending" : []}"#.to_owned()))
        );
        assert_eq!(
            found(r#"{"metadata":{"initializers":{"a":1}},"metadata":{"initializers":{}}}"#),
            Ok(Some("{}".to_owned()))
        );
        let error = found(r#"{"metadata":{"initializers":[12345]}}"#).unwrap_err();
        assert!(!error.contains("12345"), "{error}");
        assert!(found("null").is_err() && found("{").is_err());
    }

    #[test]
    fn the_creator_stands_beside_the_list() {
        let field = with_creator(r#"{"pending":[]}"#, Some(r#"{"username":"ann"}"#));
        assert_eq!(field, r#"{"pending":[],"creator":{"username":"ann"}}"#);
        assert_eq!(creator(&field).and_then(username), Some("ann".to_owned()));
        assert_eq!((creator("{}"), creator("[]"), with_creator("{}", None)), (None, None, "{}".to_owned()));
    }
}
