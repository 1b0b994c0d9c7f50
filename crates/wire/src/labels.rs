//! The labels inside an object's JSON, found without building the object.

use std::ops::Range;

use super::json::{Cursor, JsonReadError};
use gatepost_api::{Labels, Rope};

/// The most labels of one object, and the most bytes of them: more than can be stored.
const MAX_LABELS: usize = 1 << 16;
const MOST_BYTES: usize = 2 << 20;

/// The labels of the object that lies in `range`: `None` where it has no object metadata (many CONNECT options have
/// none), an empty set where it has metadata without labels. Of equal keys the last one counts, as in Go's decoder.
///
/// # Errors
/// The object is not JSON, or has too many labels; the text says where, and repeats nothing of it.
pub fn of_object(rope: &Rope, range: Range<usize>) -> Result<Option<Labels>, String> {
    // Shared where the object lies in one piece. Else it is joined for as long as this takes: reading across the pieces
    // would take many times longer.
    let object = rope.copy_of(range);
    // Invalid UTF-8 becomes U+FFFD, as in Go's decoder.
    labels(&String::from_utf8_lossy(&object)).map_err(|error| match error {
        JsonReadError::Json(error) => format!("the object is not JSON at {error}"),
        JsonReadError::Type { .. } => format!("the object cannot be read: {error}"),
    })
}

fn labels(object: &str) -> Result<Option<Labels>, JsonReadError> {
    let mut cursor = Cursor::new(object);
    let mut labels = None;
    if !cursor.object("it")? {
        return Err(JsonReadError::Type { field: "it", wanted: "an object" });
    }
    while let Some(key) = cursor.key()? {
        if key.plain() == "metadata" {
            labels = metadata(&mut cursor)?;
        } else {
            cursor.skip()?;
        }
    }
    cursor.end()?;
    Ok(labels)
}

fn metadata(cursor: &mut Cursor<'_>) -> Result<Option<Labels>, JsonReadError> {
    if !cursor.object("metadata")? {
        return Ok(None);
    }
    let mut pairs = Vec::new();
    while let Some(key) = cursor.key()? {
        if key.plain() != "labels" {
            cursor.skip()?;
            continue;
        }
        pairs.clear();
        let mut bytes = 0;
        if cursor.object("metadata.labels")? {
            while let Some(key) = cursor.key()? {
                let value = cursor.string("metadata.labels")?.map_or_else(Default::default, |text| text.plain());
                let key = key.plain();
                bytes += key.len() + value.len();
                if pairs.len() == MAX_LABELS || bytes > MOST_BYTES {
                    let wanted = "at most 65,536 labels of 2 MiB together";
                    return Err(JsonReadError::Type { field: "metadata.labels", wanted });
                }
                pairs.push((key, value));
            }
        }
    }
    Ok(Some(pairs.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn labels_in(json: &str) -> Result<Option<Labels>, String> {
        let bytes = Bytes::copy_from_slice(json.as_bytes());
        let whole = of_object(&Rope::new(vec![bytes.clone()]), 0..json.len());
        let half = json.len() / 2;
        let parts = of_object(&Rope::new(vec![bytes.slice(..half), bytes.slice(half..)]), 0..json.len());
        assert_eq!(whole, parts);
        whole
    }

    #[test]
    fn labels_are_found_wherever_they_stand() {
        let found = labels_in(
            r#"{"spec":{"metadata":{"labels":{"no":"x"}}},"metadata":{"name":"a","labels":{"a":"1","b":null}}}"#,
        );
        assert_eq!(found, Ok(Some([("a", "1"), ("b", "")].into_iter().collect())));
    }

    #[test]
    fn no_metadata_is_not_the_same_as_no_labels() {
        assert_eq!(labels_in(r#"{"kind":"PodExecOptions"}"#), Ok(None));
        assert_eq!(labels_in(r#"{"metadata":{}}"#), Ok(Some(Labels::default())));
        assert_eq!(labels_in(r#"{"metadata":{"labels":null}}"#), Ok(Some(Labels::default())));
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        let one = |key: &str, value: &str| Ok(Some([(key.to_owned(), value.to_owned())].into_iter().collect()));
        assert_eq!(labels_in(r#"{"metadata":{"labels":{"a":"1","a":"2"}}}"#), one("a", "2"));
        assert_eq!(labels_in(r#"{"metadata":{"labels":{"a":"1"},"labels":{"b":"2"}}}"#), one("b", "2"));
        assert_eq!(labels_in(r#"{"metadata":{"labels":{"a":"1"}},"metadata":{"labels":{"b":"2"}}}"#), one("b", "2"));
        assert_eq!(labels_in(r#"{"metadata":null,"met\u0061data":{"labels":{"\u0062":"\u0032"}}}"#), one("b", "2"));
    }

    #[test]
    fn more_labels_than_can_be_stored_are_refused() {
        let object = |count: usize, value: &str| {
            let labels: Vec<_> = (0..count).map(|n| format!("\"{n}\":\"{value}\"")).collect();
            format!("{{\"metadata\":{{\"labels\":{{{}}}}}}}", labels.join(","))
        };
        let refused = "the object cannot be read: metadata.labels must be at most 65,536 labels of 2 MiB together";
        assert_eq!(labels_in(&object(MAX_LABELS, "")).unwrap().unwrap().len(), MAX_LABELS);
        assert_eq!(labels_in(&object(MAX_LABELS + 1, "")), Err(refused.to_owned()));
        assert_eq!(labels_in(&object(1, &"x".repeat(MOST_BYTES))), Err(refused.to_owned()));
    }

    #[test]
    fn what_is_not_utf8_is_replaced() {
        let bytes = Bytes::from_static(b"{\"data\":\"\xff\",\"metadata\":{\"labels\":{\"a\":\"\xff\"}}}");
        let found = of_object(&Rope::new([bytes.clone()]), 0..bytes.len()).unwrap().unwrap();
        assert_eq!(found.get("a"), Some("\u{fffd}"));
    }

    #[test]
    fn what_is_not_json_is_refused_without_showing_it() {
        assert_eq!(labels_in("{\"secret\": oops}"), Err("the object is not JSON at byte 11: expected a value".into()));
        assert_eq!(labels_in("{} {}"), Err("the object is not JSON at byte 3: there is more after the value".into()));
        assert_eq!(labels_in("null"), Err("the object cannot be read: it must be an object".into()));
        let number = labels_in(r#"{"metadata":{"labels":{"a":1}}}"#);
        assert_eq!(number, Err("the object cannot be read: metadata.labels must be a string".into()));
    }
}
