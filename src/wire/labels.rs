//! The labels inside an object's JSON, found without building the object.

use std::{collections::BTreeMap, ops::Range};

use serde::Deserialize;

use crate::model::{Labels, Rope};

/// Just what selectors look at; serde skips the rest without keeping it.
#[derive(Deserialize)]
struct Object {
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    labels: Option<BTreeMap<Box<str>, Option<Box<str>>>>,
}

/// The labels of the object that lies in `range`: `None` where it has no object metadata (many CONNECT options have
/// none), an empty set where it has metadata without labels.
///
/// # Errors
/// The object is not JSON; the text says where, and repeats nothing of it.
pub fn of_object(rope: &Rope, range: Range<usize>) -> Result<Option<Labels>, String> {
    let object: Object = match rope.contiguous(range.clone()) {
        Some(slice) => serde_json::from_slice(slice),
        // Read across the pieces; slower, but the object is not joined for it.
        None => serde_json::from_reader(std::io::BufReader::new(rope.reader(range))),
    }
    .map_err(|error| format!("the object is not JSON at line {} column {}", error.line(), error.column()))?;
    Ok(object.metadata.map(|metadata| {
        let labels = metadata.labels.unwrap_or_default();
        labels.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect()
    }))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn labels(json: &str) -> Result<Option<Labels>, String> {
        let bytes = Bytes::copy_from_slice(json.as_bytes());
        let whole = of_object(&Rope::new(vec![bytes.clone()]), 0..json.len());
        let half = json.len() / 2;
        let parts = of_object(&Rope::new(vec![bytes.slice(..half), bytes.slice(half..)]), 0..json.len());
        assert_eq!(whole, parts);
        whole
    }

    #[test]
    fn labels_are_found_wherever_they_stand() {
        let found = labels(
            r#"{"spec":{"metadata":{"labels":{"no":"x"}}},"metadata":{"name":"a","labels":{"a":"1","b":null}}}"#,
        );
        assert_eq!(found, Ok(Some([("a", "1"), ("b", "")].into_iter().collect())));
    }

    #[test]
    fn no_metadata_is_not_the_same_as_no_labels() {
        assert_eq!(labels(r#"{"kind":"PodExecOptions"}"#), Ok(None));
        assert_eq!(labels(r#"{"metadata":{}}"#), Ok(Some(Labels::default())));
        assert_eq!(labels(r#"{"metadata":{"labels":null}}"#), Ok(Some(Labels::default())));
    }

    #[test]
    fn what_is_not_json_is_refused_without_showing_it() {
        let error = labels("{\"secret\": oops}").expect_err("not JSON");
        assert!(error.contains("line 1") && !error.contains("secret") && !error.contains("oops"), "{error}");
    }
}
