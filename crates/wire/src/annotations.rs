//! Single annotations inside an object's JSON, found without building the object.

use std::ops::Range;

use super::json::{Cursor, JsonReadError};
use gatepost_api::Rope;

/// Values of these annotations of the object that lies in `range`, in the order of `wanted`; `None` where it does not
/// have one. Of equal keys the last one counts, as in Go's decoder.
///
/// # Errors
/// The object is not JSON; the text says where, and repeats nothing of it.
pub fn of_object<const N: usize>(
    rope: &Rope,
    range: Range<usize>,
    wanted: [&str; N],
) -> Result<[Option<String>; N], String> {
    let object = rope.copy_of(range);
    read(&String::from_utf8_lossy(&object), wanted).map_err(|error| match error {
        JsonReadError::Json(error) => format!("the object is not JSON at {error}"),
        JsonReadError::Type { .. } => format!("the object cannot be read: {error}"),
    })
}

fn read<const N: usize>(object: &str, wanted: [&str; N]) -> Result<[Option<String>; N], JsonReadError> {
    let (mut cursor, mut found) = (Cursor::new(object), [const { None }; N]);
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
            if key.plain() != "annotations" {
                cursor.skip()?;
                continue;
            }
            if !cursor.object("metadata.annotations")? {
                continue;
            }
            while let Some(key) = cursor.key()? {
                let key = key.plain();
                match wanted.iter().position(|wanted| *wanted == key) {
                    Some(at) => {
                        let value = cursor.string("metadata.annotations")?;
                        found[at] = Some(value.map_or_else(String::new, |text| text.plain().into_owned()));
                    }
                    None => cursor.skip()?,
                }
            }
        }
    }
    cursor.end()?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn found(json: &'static str) -> Result<[Option<String>; 2], String> {
        of_object(&Rope::new([Bytes::from_static(json.as_bytes())]), 0..json.len(), ["a", "b/c"])
    }

    #[test]
    fn annotations_are_found_wherever_they_stand() {
        let none = || Ok([None, None]);
        assert_eq!(found(r#"{}"#), none());
        assert_eq!(found(r#"{"metadata":null,"spec":{"metadata":{"annotations":{"a":"x"}}}}"#), none());
        assert_eq!(found(r#"{"metadata":{"annotations":null,"labels":{"a":"x"}}}"#), none());
        let both = Ok([Some("1".to_owned()), Some(String::new())]);
        assert_eq!(found(r#"{"metadata":{"annotations":{"x":{},"\u0061":"1","b/c":null}}}"#), both);
        assert_eq!(
            found(r#"{"metadata":{"annotations":{"a":"0"}},"metadata":{"annotations":{"a":"1","b/c":""}}}"#),
            both
        );
    }

    #[test]
    fn what_is_not_such_an_object_is_refused_without_showing_it() {
        assert!(found("null").is_err() && found(r#"{"metadata":{"annotations":[]}}"#).is_err());
        let error = found(r#"{"metadata":{"annotations":{"a":12345}}}"#).unwrap_err();
        assert!(!error.contains("12345"), "{error}");
        assert!(found("{} {}").is_err() && found("{").is_err());
    }
}
