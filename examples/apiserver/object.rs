//! Object: one stored object as JSON, and where it is stored.

use serde_json::Value;

use crate::{etcd::Entry, kind::Kind};
use gatepost_api::StatusInfo;
use gatepost_initializers::{Initializers, stored_result};

/// Prefix of all keys.
pub(crate) const ROOT: &str = "/apiserver-example/";

/// Kind, namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) kind: &'static Kind,
    /// "" where the kind has none.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Place {
    pub(crate) fn key(&self) -> String {
        format!("{}{}/{}", Self::below(self.kind), self.namespace, self.name)
    }

    /// Prefix of all of a kind.
    pub(crate) fn below(kind: &Kind) -> String {
        format!("{ROOT}{}/", kind.resource)
    }

    /// The place of a key.
    pub(crate) fn of(key: &str) -> Option<Self> {
        let mut parts = key.strip_prefix(ROOT)?.splitn(3, '/');
        let kind = Kind::of(parts.next()?)?;
        Some(Self { kind, namespace: parts.next()?.to_owned(), name: parts.next()?.to_owned() })
    }
}

/// A stored object, its resource version in it.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) place: Place,
    pub(crate) json: Value,
    /// Revision of its last change; 0 where it is not stored yet.
    pub(crate) revision: i64,
}

impl Object {
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        let mut json: Value = serde_json::from_slice(&entry.value).ok()?;
        json["metadata"]["resourceVersion"] = entry.revision.to_string().into();
        Some(Self { place: Place::of(&entry.key)?, json, revision: entry.revision })
    }

    pub(crate) fn uid(&self) -> &str {
        self.json["metadata"]["uid"].as_str().unwrap_or_default()
    }

    /// `metadata.initializers`; none where it is initialized.
    pub(crate) fn list(&self) -> Option<Initializers> {
        list(&self.json)
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.json["metadata"].get("initializers").is_none_or(Value::is_null)
    }
}

pub(crate) fn list(json: &Value) -> Option<Initializers> {
    Initializers::read(json["metadata"]["initializers"].to_string().as_bytes()).ok().flatten()
}

/// The same object with another list; the creator stays beside it.
pub(crate) fn with_list(json: &Value, list: &Initializers) -> Value {
    let mut json = json.clone();
    let creator = json["metadata"]["initializers"]["creator"].take();
    json["metadata"]["initializers"] = serde_json::from_str(&list.write()).unwrap_or_default();
    json["metadata"]["initializers"]["creator"] = creator;
    json
}

/// The same object with a result, by which its initialization has failed.
pub(crate) fn failed(json: &Value, result: StatusInfo) -> Value {
    let pending = list(json).unwrap_or_default().pending;
    with_list(json, &Initializers { pending, result: Some(Box::new(stored_result(result))) })
}
