//! One label and one annotation inside an object's JSON, found without building the object.

use std::ops::Range;

use super::json::{Cursor, JsonReadError};
use gatepost_api::Rope;

/// Label and annotation found in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMarks {
    /// It has labels, and the value of the one that was looked for.
    pub label: Option<Option<Box<str>>>,
    /// The same of annotations.
    pub annotation: Option<Option<Box<str>>>,
    /// It is being deleted.
    pub leaves: bool,
}

/// The label and the annotation with these keys of the object that lies in `range`. Of equal keys the last one counts, as in
/// Go's decoder.
///
/// # Errors
/// The object is not JSON; the text says where, and repeats nothing of it.
pub fn of_object(rope: &Rope, range: Range<usize>, label: &str, annotation: &str) -> Result<ObjectMarks, String> {
    let object = rope.copy_of(range);
    read(&String::from_utf8_lossy(&object), label, annotation).map_err(|error| match error {
        JsonReadError::Json(error) => format!("the object is not JSON at {error}"),
        JsonReadError::Type { .. } => format!("the object cannot be read: {error}"),
    })
}

fn read(object: &str, label: &str, annotation: &str) -> Result<ObjectMarks, JsonReadError> {
    let (mut cursor, mut found) = (Cursor::new(object), ObjectMarks::default());
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
            let key = key.plain();
            if key == "labels" {
                found.label = one(&mut cursor, "metadata.labels", label)?;
            } else if key == "annotations" {
                found.annotation = one(&mut cursor, "metadata.annotations", annotation)?;
            } else if key == "deletionTimestamp" {
                found.leaves = cursor.string("metadata.deletionTimestamp")?.is_some();
            } else {
                cursor.skip()?;
            }
        }
    }
    cursor.end()?;
    Ok(found)
}

/// One value of a map of texts; nothing where there is no map.
fn one(cursor: &mut Cursor<'_>, field: &'static str, wanted: &str) -> Result<Option<Option<Box<str>>>, JsonReadError> {
    if !cursor.object(field)? {
        return Ok(None);
    }
    let mut found = None;
    while let Some(key) = cursor.key()? {
        if key.plain() == wanted {
            let value = cursor.string(field)?;
            found = Some(value.map_or_else(String::new, |text| text.plain().into_owned()).into());
        } else {
            cursor.skip()?;
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn found(json: &'static str) -> Result<ObjectMarks, String> {
        of_object(&Rope::new([Bytes::from_static(json.as_bytes())]), 0..json.len(), "a/b", "c")
    }

    #[test]
    fn marks_are_found_wherever_they_stand() {
        assert_eq!(
            found(r#"{"spec":{"metadata":{"labels":{"a/b":"x"}}},"metadata":null}"#),
            Ok(ObjectMarks::default())
        );
        let without = ObjectMarks { label: Some(None), annotation: None, leaves: false };
        assert_eq!(found(r#"{"metadata":{"labels":{"c":"x","d":{}},"annotations":null}}"#), Ok(without));
        let both = ObjectMarks { label: Some(Some("1".into())), annotation: Some(Some("".into())), leaves: true };
        assert_eq!(
            found(
                r#"{"metadata":{"labels":{"a\/b":"0"},"deletionTimestamp":"t","annotations":{"\u0063":null},"labels":{"a/b":"1"}}}"#
            ),
            Ok(both)
        );
        let error = found(r#"{"metadata":{"labels":{"a/b":12345}}}"#).unwrap_err();
        assert!(!error.contains("12345"), "{error}");
        assert!(found("null").is_err() && found("{").is_err());
    }
}
