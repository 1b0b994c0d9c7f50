//! Reads single fields of an object's `metadata` in JSON, its labels also in protobuf, without building the object.
//!
//! The last of equal keys counts, as in Go's decoder. Errors give the position of invalid JSON and never quote the
//! object.

use std::ops::Range;

use gatepost_api::{Labels, Rope};
use prost::Message;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    json::{Cursor, JsonReadError},
    labels::LabelsBuilder,
    pb::gatepost::v1::NamespaceLabels,
    protobuf_object,
};

/// Label and annotation found in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMarks {
    /// Value of the label; the outer `None` if the object has no labels.
    pub label: Option<Option<Box<str>>>,
    /// Value of the annotation; the outer `None` if the object has no annotations.
    pub annotation: Option<Option<Box<str>>>,
    /// True if the object has a deletion timestamp.
    pub is_being_deleted: bool,
}

/// Returns the labels of the object in `range`: `None` if it has no metadata (as many CONNECT options), an empty set if
/// it has metadata without labels.
///
/// # Errors
/// The object is neither JSON nor protobuf, or has too many labels.
pub fn labels(rope: &Rope, range: Range<usize>) -> Result<Option<Labels>, String> {
    const FIELD: &str = "metadata.labels";
    if protobuf_object::is_protobuf(rope, &range) {
        return protobuf_object::labels(rope, range).map(Some);
    }
    let mut found: Option<LabelsBuilder> = None;
    walk(rope, range, |cursor, key| {
        if key != Some("labels") {
            if key.is_none() {
                found = Some(LabelsBuilder::default());
            }
            return Ok(false);
        }
        let mut labels = LabelsBuilder::default();
        cursor.read_object(FIELD, |cursor, key| {
            let value = cursor.string(FIELD)?.map_or_else(String::new, |text| text.plain().into_owned());
            match labels.add(key.to_owned(), value) {
                true => Ok(()),
                false => Err(JsonReadError::Type { field: FIELD, wanted: LabelsBuilder::LIMIT }),
            }
        })?;
        found = Some(labels);
        Ok(true)
    })?;
    Ok(found.map(LabelsBuilder::labels))
}

/// Returns the label and the annotation with these keys of the object in `range`.
///
/// # Errors
/// The object is not JSON.
pub fn marks(rope: &Rope, range: Range<usize>, label: &str, annotation: &str) -> Result<ObjectMarks, String> {
    let mut found = ObjectMarks::default();
    walk(rope, range, |cursor, key| {
        match key {
            Some("labels") => found.label = one_value(cursor, "metadata.labels", label)?,
            Some("annotations") => found.annotation = one_value(cursor, "metadata.annotations", annotation)?,
            Some("deletionTimestamp") => {
                found.is_being_deleted = cursor.string("metadata.deletionTimestamp")?.is_some()
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(found)
}

/// Returns the values of these annotations of the object in `range`, in the order of `wanted`.
///
/// # Errors
/// The object is not JSON.
pub fn annotations<const N: usize>(
    rope: &Rope,
    range: Range<usize>,
    wanted: [&str; N],
) -> Result<[Option<String>; N], String> {
    let mut found = [const { None }; N];
    walk(rope, range, |cursor, key| {
        if key != Some("annotations") {
            return Ok(false);
        }
        values(cursor, "metadata.annotations", wanted, &mut found)?;
        Ok(true)
    })?;
    Ok(found)
}

/// Returns the text of `metadata.initializers` of the object in `range`. `None` if it is absent or `null`.
///
/// # Errors
/// The object is not JSON.
pub fn initializers(rope: &Rope, range: Range<usize>) -> Result<Option<String>, String> {
    let object = rope.copy_of(range);
    let (object, mut found) = (String::from_utf8_lossy(&object), None);
    walk_text(&object, |cursor, key| {
        if key != Some("initializers") {
            return Ok(false);
        }
        found = cursor.object_range("metadata.initializers")?;
        Ok(true)
    })?;
    Ok(found.and_then(|place| object.get(place)).map(str::to_owned))
}

/// Returns the name of the object in `range`, or the prefix of a name that the apiserver will make; `None` without
/// either.
///
/// # Errors
/// The object is not JSON.
pub fn name(rope: &Rope, range: Range<usize>) -> Result<Option<String>, String> {
    const KEYS: [&str; 2] = ["name", "generateName"];
    let mut found = [const { None }; KEYS.len()];
    walk(rope, range, |cursor, key| {
        let Some(at) = KEYS.iter().position(|known| Some(*known) == key) else { return Ok(false) };
        found[at] = cursor.string("metadata.name")?.map(|text| text.plain().into_owned());
        Ok(true)
    })?;
    Ok(found.into_iter().flatten().find(|name| !name.is_empty()))
}

/// Calls `field` with each key of `metadata`, and with `None` where a `metadata` begins. `field` reads the value of the
/// key, or returns false to have the value skipped.
fn walk(
    rope: &Rope,
    range: Range<usize>,
    field: impl FnMut(&mut Cursor<'_>, Option<&str>) -> Result<bool, JsonReadError>,
) -> Result<(), String> {
    walk_text(&String::from_utf8_lossy(&rope.copy_of(range)), field)
}

fn walk_text<'a>(
    object: &'a str,
    mut field: impl FnMut(&mut Cursor<'a>, Option<&str>) -> Result<bool, JsonReadError>,
) -> Result<(), String> {
    let mut walk = || {
        let mut cursor = Cursor::new(object);
        let is_object = cursor.read_object("it", |cursor, key| {
            if key != "metadata" {
                return cursor.skip();
            }
            if cursor.object("metadata")? {
                field(cursor, None)?;
                while let Some(key) = cursor.key()? {
                    if !field(cursor, Some(&key.plain()))? {
                        cursor.skip()?;
                    }
                }
            }
            Ok(())
        })?;
        if !is_object {
            return Err(JsonReadError::Type { field: "it", wanted: "an object" });
        }
        cursor.end()
    };
    walk().map_err(|error| match error {
        JsonReadError::Json(error) => format!("the object is not JSON at {error}"),
        JsonReadError::Type { .. } => format!("the object cannot be read: {error}"),
    })
}

/// Reads one value of a map of strings; `None` if the map is `null`.
fn one_value(
    cursor: &mut Cursor<'_>,
    field: &'static str,
    wanted: &str,
) -> Result<Option<Option<Box<str>>>, JsonReadError> {
    let mut found = [None];
    Ok(values(cursor, field, [wanted], &mut found)?.then(|| found[0].take().map(Into::into)))
}

/// Reads the values of these keys of a map of strings into `found`. Returns false if the map is `null`.
fn values<const N: usize>(
    cursor: &mut Cursor<'_>,
    field: &'static str,
    wanted: [&str; N],
    found: &mut [Option<String>; N],
) -> Result<bool, JsonReadError> {
    cursor.read_object(field, |cursor, key| {
        let Some(at) = wanted.iter().position(|wanted| *wanted == key) else { return cursor.skip() };
        found[at] = Some(cursor.string(field)?.map_or_else(String::new, |text| text.plain().into_owned()));
        Ok(())
    })
}

/// The creator of an unfinished object, in the field of the list, so that each initializer can read it.
#[derive(Deserialize)]
struct InitializersField<'a> {
    #[serde(borrow)]
    creator: Option<&'a RawValue>,
}

/// Returns the text of the creator in `metadata.initializers`.
pub fn creator(field: &str) -> Option<&str> {
    let InitializersField { creator } = serde_json::from_str(field).ok()?;
    creator.map(RawValue::get)
}

/// Returns the user name in the text of a creator.
pub fn username(creator: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Creator {
        username: String,
    }
    serde_json::from_str(creator).ok().map(|Creator { username }| username)
}

/// Adds the creator to a list in the form of `Initializers::write` of `gatepost-initializers`.
pub fn with_creator(list: &str, creator: Option<&str>) -> String {
    match (list.strip_suffix('}'), creator) {
        (Some(open), Some(creator)) => format!("{open},\"creator\":{creator}}}"),
        _ => list.to_owned(),
    }
}

/// Decodes a protobuf `gatepost.v1.NamespaceLabels`; `None` if it is invalid.
pub fn namespace_labels(bytes: &[u8]) -> Option<Labels> {
    Some(NamespaceLabels::decode(bytes).ok()?.labels.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::labels::{MAX_LABEL_BYTES, MAX_LABELS};

    fn labels_in(json: &str) -> Result<Option<Labels>, String> {
        let bytes = Bytes::copy_from_slice(json.as_bytes());
        let whole = labels(&Rope::new(vec![bytes.clone()]), 0..json.len());
        let half = json.len() / 2;
        let parts = labels(&Rope::new(vec![bytes.slice(..half), bytes.slice(half..)]), 0..json.len());
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
    fn null_metadata_behind_the_metadata_hides_no_labels() {
        let found = labels_in(r#"{"metadata":{"labels":{"a":"1"}},"metadata":null}"#);
        assert_eq!(found, Ok(Some([("a", "1")].into_iter().collect())));
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
        assert_eq!(labels_in(&object(1, &"x".repeat(MAX_LABEL_BYTES))), Err(refused.to_owned()));
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let bytes = Bytes::from_static(b"{\"data\":\"\xff\",\"metadata\":{\"labels\":{\"a\":\"\xff\"}}}");
        let found = labels(&Rope::new([bytes.clone()]), 0..bytes.len()).unwrap().unwrap();
        assert_eq!(found.get("a"), Some("\u{fffd}"));
    }

    #[test]
    fn invalid_json_is_refused_without_showing_it() {
        assert_eq!(labels_in("{\"secret\": oops}"), Err("the object is not JSON at byte 11: expected a value".into()));
        assert_eq!(labels_in("{} {}"), Err("the object is not JSON at byte 3: there is more after the value".into()));
        assert_eq!(labels_in("null"), Err("the object cannot be read: it must be an object".into()));
        let number = labels_in(r#"{"metadata":{"labels":{"a":1}}}"#);
        assert_eq!(number, Err("the object cannot be read: metadata.labels must be a string".into()));
    }

    fn marks_of(json: &'static str) -> Result<ObjectMarks, String> {
        marks(&Rope::new([Bytes::from_static(json.as_bytes())]), 0..json.len(), "a/b", "c")
    }

    #[test]
    fn marks_are_found_wherever_they_stand() {
        assert_eq!(
            marks_of(r#"{"spec":{"metadata":{"labels":{"a/b":"x"}}},"metadata":null}"#),
            Ok(ObjectMarks::default())
        );
        let without = ObjectMarks { label: Some(None), annotation: None, is_being_deleted: false };
        assert_eq!(marks_of(r#"{"metadata":{"labels":{"c":"x","d":{}},"annotations":null}}"#), Ok(without));
        let both =
            ObjectMarks { label: Some(Some("1".into())), annotation: Some(Some("".into())), is_being_deleted: true };
        assert_eq!(
            marks_of(
                r#"{"metadata":{"labels":{"a\/b":"0"},"deletionTimestamp":"t","annotations":{"\u0063":null},"labels":{"a/b":"1"}}}"#
            ),
            Ok(both)
        );
        let error = marks_of(r#"{"metadata":{"labels":{"a/b":12345}}}"#).unwrap_err();
        assert!(!error.contains("12345"), "{error}");
        assert!(marks_of("null").is_err() && marks_of("{").is_err());
    }

    fn annotations_of(json: &'static str) -> Result<[Option<String>; 2], String> {
        annotations(&Rope::new([Bytes::from_static(json.as_bytes())]), 0..json.len(), ["a", "b/c"])
    }

    #[test]
    fn annotations_are_found_wherever_they_stand() {
        let none = || Ok([None, None]);
        assert_eq!(annotations_of(r#"{}"#), none());
        assert_eq!(annotations_of(r#"{"metadata":null,"spec":{"metadata":{"annotations":{"a":"x"}}}}"#), none());
        assert_eq!(annotations_of(r#"{"metadata":{"annotations":null,"labels":{"a":"x"}}}"#), none());
        let both = Ok([Some("1".to_owned()), Some(String::new())]);
        assert_eq!(annotations_of(r#"{"metadata":{"annotations":{"x":{},"\u0061":"1","b/c":null}}}"#), both);
        assert_eq!(
            annotations_of(r#"{"metadata":{"annotations":{"a":"0"}},"metadata":{"annotations":{"a":"1","b/c":""}}}"#),
            both
        );
    }

    #[test]
    fn annotations_of_a_non_object_are_refused_without_showing_it() {
        assert!(annotations_of("null").is_err() && annotations_of(r#"{"metadata":{"annotations":[]}}"#).is_err());
        let error = annotations_of(r#"{"metadata":{"annotations":{"a":12345}}}"#).unwrap_err();
        assert!(!error.contains("12345"), "{error}");
        assert!(annotations_of("{} {}").is_err() && annotations_of("{").is_err());
    }

    fn initializers_of(json: &'static str) -> Result<Option<String>, String> {
        initializers(&Rope::new([Bytes::from_static(json.as_bytes())]), 0..json.len())
    }

    #[test]
    fn the_field_is_found_wherever_it_stands() {
        assert_eq!(initializers_of(r#"{"spec":{"metadata":{"initializers":{}}}}"#), Ok(None));
        assert_eq!(initializers_of(r#"{"metadata":{"initializers":null}}"#), Ok(None));
        assert_eq!(
            initializers_of(r#"{"metadata":{"name":"p","initi\u0061lizers": {"pending" : []} }}"#),
            Ok(Some(r#"{"pending" : []}"#.to_owned()))
        );
        assert_eq!(
            initializers_of(r#"{"metadata":{"initializers":{"a":1}},"metadata":{"initializers":{}}}"#),
            Ok(Some("{}".to_owned()))
        );
        let error = initializers_of(r#"{"metadata":{"initializers":[12345]}}"#).unwrap_err();
        assert!(!error.contains("12345"), "{error}");
        assert!(initializers_of("null").is_err() && initializers_of("{").is_err());
    }

    #[test]
    fn the_creator_stands_beside_the_list() {
        let field = with_creator(r#"{"pending":[]}"#, Some(r#"{"username":"ann"}"#));
        assert_eq!(field, r#"{"pending":[],"creator":{"username":"ann"}}"#);
        assert_eq!(creator(&field).and_then(username), Some("ann".to_owned()));
        assert_eq!((creator("{}"), creator("[]"), with_creator("{}", None)), (None, None, "{}".to_owned()));
    }
}
