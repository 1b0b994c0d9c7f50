//! The few fields of an object's metadata that a reader of an apiserver's responses needs.
//!
//! No other field is read, and no schema is needed: every kind has `metadata` as one key in JSON and as field 1 in
//! protobuf.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;

use super::{
    envelope::Unknown,
    walk::{Value, Walk, WalkError},
};
use gatepost_api::{
    Rope,
    initialization::{PENDING_LABEL, STATE_ANNOTATION},
};

/// Group and kind of a list of objects as table rows. Other groups may also have a kind `Table`.
const TABLE: (&str, &str) = ("meta.k8s.io", "Table");

/// Keys of the label and the annotation to read.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Key of the label.
    pub label: &'a str,
    /// Key of the annotation.
    pub annotation: &'a str,
}

/// Label and annotation that mark an object as stored unfinished.
pub const MARKS: Wanted<'static> = Wanted { label: PENDING_LABEL, annotation: STATE_ANNOTATION };

/// Fields of an object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectHead {
    /// Name.
    pub name: String,
    /// UID; never empty.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// Value of the label [`Wanted::label`], if present.
    pub label: Option<String>,
    /// Value of the annotation [`Wanted::annotation`], if present.
    pub annotation: Option<String>,
    /// True if the object has a deletion timestamp.
    pub deleting: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Table {
    rows: Option<Vec<Row>>,
}

#[derive(Deserialize)]
struct Row {
    object: Option<RowObject>,
}

#[derive(Deserialize)]
struct RowObject {
    metadata: Option<Metadata>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

impl ObjectHead {
    /// Returns the head of the object in a JSON text, or of the object in the first row of a table. `None` if the text
    /// is invalid or the object has no uid; table rows may omit their object.
    pub fn of_json(text: &[u8], wanted: Wanted<'_>) -> Option<Self> {
        let object: Object = serde_json::from_slice(text).ok()?;
        let metadata = match object.metadata.filter(|metadata| !metadata.uid.is_empty()) {
            Some(own) => own,
            None if is_table(&object.api_version, &object.kind) => {
                let table: Table = serde_json::from_slice(text).ok()?;
                table.rows?.into_iter().next()?.object?.metadata?
            }
            None => return None,
        };
        let of = |map: Option<BTreeMap<String, String>>, key: &str| map.and_then(|mut map| map.remove(key));
        Self {
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            label: of(metadata.labels, wanted.label),
            annotation: of(metadata.annotations, wanted.annotation),
            deleting: metadata.deletion_timestamp.is_some(),
        }
        .require_uid()
    }

    /// Returns the head of the object in Kubernetes' protobuf envelope. `None` if the text is invalid, the object is a
    /// table, or it has no uid.
    // source: k8s.io/apimachinery/pkg/runtime/generated.proto, pkg/apis/meta/v1/generated.proto.
    pub fn of_protobuf(text: Bytes, wanted: Wanted<'_>) -> Option<Self> {
        let rope = Rope::new([text]);
        let unknown = Unknown::read(&rope).ok()?;
        if is_table(&unknown.api_version, &unknown.kind) || !unknown.encoding.is_empty() {
            return None;
        }
        let mut object = Walk::over(&rope, unknown.raw);
        let mut head = Self::default();
        while let Some((number, value)) = object.next().ok()? {
            if let (1, Value::Bytes(metadata)) = (number, value) {
                head.read_metadata(object.inside(metadata), wanted).ok()?;
            }
        }
        head.require_uid()
    }

    fn read_metadata(&mut self, mut metadata: Walk<'_>, wanted: Wanted<'_>) -> Result<(), WalkError> {
        while let Some((number, value)) = metadata.next()? {
            let Value::Bytes(at) = value else { continue };
            match number {
                1 => self.name = metadata.text(at)?.to_string(),
                5 => self.uid = metadata.text(at)?.to_string(),
                6 => self.resource_version = metadata.text(at)?.to_string(),
                9 => self.deleting = true,
                11 => self.label = entry(metadata.inside(at), wanted.label)?.or(self.label.take()),
                12 => self.annotation = entry(metadata.inside(at), wanted.annotation)?.or(self.annotation.take()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the head if it has a uid, as every stored object has.
    fn require_uid(self) -> Option<Self> {
        (!self.uid.is_empty()).then_some(self)
    }
}

fn is_table(api_version: &str, kind: &str) -> bool {
    api_version.split_once('/').is_some_and(|(group, _)| (group, kind) == TABLE)
}

/// Returns the value of a map's entry if its key is `wanted`.
fn entry(mut entry: Walk<'_>, wanted: &str) -> Result<Option<String>, WalkError> {
    let (mut matches, mut found) = (false, String::new());
    while let Some((number, value)) = entry.next()? {
        match (number, value) {
            (1, Value::Bytes(at)) => matches = &*entry.text(at)? == wanted,
            (2, Value::Bytes(at)) => found = entry.text(at)?.to_string(),
            _ => {}
        }
    }
    Ok(matches.then_some(found))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WANTED: Wanted<'_> = Wanted { label: "l.example/x", annotation: "a.example/x" };

    fn head() -> ObjectHead {
        ObjectHead {
            name: "a".into(),
            uid: "u".into(),
            resource_version: "7".into(),
            label: Some("id".into()),
            annotation: Some("{}".into()),
            deleting: false,
        }
    }

    #[test]
    fn an_object_in_json_and_the_first_row_of_a_table_are_read() {
        let read = |text: &str| ObjectHead::of_json(text.as_bytes(), WANTED);
        let metadata = json!({"name": "a", "uid": "u", "resourceVersion": "7", "generation": 3,
            "labels": {"x": "y", "l.example/x": "id"}, "annotations": {"a.example/x": "{}"}});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"metadata": "x"}, "metadata": metadata});
        assert_eq!(read(&object.to_string()), Some(head()));
        let rows = json!([{"cells": ["a"], "object": object}]);
        const V1: &str = "meta.k8s.io/v1";
        let metadata = json!({"resourceVersion": "9"});
        let table = json!({"apiVersion": V1, "kind": "Table", "metadata": metadata, "rows": rows});
        assert_eq!(read(&table.to_string()), Some(head()));
        let none = [
            json!({"apiVersion": V1, "kind": "Table", "rows": [{"cells": ["a"], "object": null}]}),
            json!({"apiVersion": V1, "kind": "Table", "rows": []}),
            json!({"apiVersion": "example.com/v1", "kind": "Table", "metadata": metadata, "rows": rows}),
            json!({"kind": "Table", "rows": rows}),
            json!({"kind": "Status", "metadata": {}}),
            json!([]),
        ];
        for text in none {
            assert_eq!(read(&text.to_string()), None, "{text}");
        }
        assert_eq!(read("{\"kind\": \"Con"), None, "what is cut off is no object");
    }

    #[test]
    fn object_of_a_kind_named_table_is_its_own_head() {
        let metadata = json!({"name": "a", "uid": "u", "resourceVersion": "7",
            "labels": {"l.example/x": "id"}, "annotations": {"a.example/x": "{}"}});
        let shown = json!([{"object": {"metadata": {"name": "b", "uid": "v", "resourceVersion": "8"}}}]);
        for version in ["dynamodb.example.com/v1", "meta.k8s.io/v1", "v1", "example.meta.k8s.io/v1"] {
            for rows in [json!(null), json!(5), json!([]), shown.clone()] {
                let object = json!({"apiVersion": version, "kind": "Table", "metadata": metadata, "rows": rows});
                assert_eq!(ObjectHead::of_json(object.to_string().as_bytes(), WANTED), Some(head()), "{object}");
            }
        }
    }

    #[test]
    fn deep_nesting_outside_read_fields_is_accepted() {
        let deep = format!("{}1{}", "{\"f:a\":".repeat(100_000), "}".repeat(100_000));
        let metadata = "\"name\": \"a\", \"uid\": \"u\", \"resourceVersion\": \"7\"";
        let object = format!("{{\"metadata\": {{\"managedFields\": [{deep}], {metadata}}}, \"spec\": {deep}}}");
        let head = ObjectHead::of_json(object.as_bytes(), WANTED);
        assert_eq!(head, Some(ObjectHead { label: None, annotation: None, ..self::head() }));
    }

    /// Field `number` with these bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        // Lengths of two bytes suffice here.
        let len = [u8::try_from(bytes.len() & 0x7f).unwrap() | 0x80, u8::try_from(bytes.len() >> 7).unwrap()];
        [&[(number << 3) | 2][..], &len, bytes].concat()
    }

    fn entry(key: &str, value: &str) -> Vec<u8> {
        [field(1, key.as_bytes()), field(2, value.as_bytes())].concat()
    }

    fn enveloped(version: &str, kind: &str, raw: &[u8]) -> Bytes {
        let types = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [&b"k8s\0"[..], &field(1, &types), &field(2, raw)].concat().into()
    }

    #[test]
    fn an_object_in_protobuf_is_read() {
        let metadata = [
            field(1, b"a"),
            field(3, b"namespace"),
            field(5, b"u"),
            field(6, b"7"),
            field(11, &entry("l.example/x", "id")),
            field(11, &entry("x", "y")),
            field(12, &entry("a.example/x", "{}")),
        ];
        let metadata = metadata.concat();
        let raw = [field(1, &metadata), field(2, b"data")].concat();
        let read = |text| ObjectHead::of_protobuf(text, WANTED);
        assert_eq!(read(enveloped("v1", "ConfigMap", &raw)), Some(head()));
        let deleting = field(1, &[&metadata[..], &field(9, b"")].concat());
        assert_eq!(read(enveloped("v1", "ConfigMap", &deleting)), Some(ObjectHead { deleting: true, ..head() }));
        assert_eq!(read(enveloped("meta.k8s.io/v1", "Table", &raw)), None);
        assert_eq!(read(enveloped("example.com/v1", "Table", &raw)), Some(head()));
        assert_eq!(read(enveloped("v1", "ConfigMap", &raw[..9])), None, "what is cut off is no object");
        assert_eq!(read(Bytes::from_static(b"{}")), None);
    }
}
