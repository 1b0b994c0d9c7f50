//! Shape: the types of a review's request, by which an answer that repeats one is checked.
//!
//! Nothing of it is used. But kube-apiserver decodes it, and an answer whose request has a field of another type is
//! none.

use crate::json::{Cursor, JsonReadError};

/// Type of a value. `null` is of every type, as in Go's decoder.
enum Shape {
    Text,
    Flag,
    /// Any JSON.
    Raw,
    List(&'static Shape),
    Map(&'static Shape),
    /// Fields by their names; others may be of any type.
    Fields(&'static [(&'static str, Shape)]),
}

use Shape::{Fields, Flag, List, Map, Raw, Text};

const TEXTS: Shape = List(&Text);
const KIND: Shape = Fields(&[("group", Text), ("version", Text), ("kind", Text)]);
const RESOURCE: Shape = Fields(&[("group", Text), ("version", Text), ("resource", Text)]);
const USER: Shape = Fields(&[("username", Text), ("uid", Text), ("groups", TEXTS), ("extra", Map(&TEXTS))]);
/// `admission.k8s.io/v1` and `v1beta1`: k8s.io/api, `admission/v1/types.go`.
const REQUEST: Shape = Fields(&[
    ("uid", Text),
    ("kind", KIND),
    ("resource", RESOURCE),
    ("subResource", Text),
    ("requestKind", KIND),
    ("requestResource", RESOURCE),
    ("requestSubResource", Text),
    ("name", Text),
    ("namespace", Text),
    ("operation", Text),
    ("userInfo", USER),
    ("object", Raw),
    ("oldObject", Raw),
    ("dryRun", Flag),
    ("options", Raw),
]);

/// Checks the request that comes next.
pub(super) fn request(cursor: &mut Cursor<'_>) -> Result<(), JsonReadError> {
    REQUEST.check(cursor).map_err(|error| match error {
        JsonReadError::Type { .. } => {
            JsonReadError::Type { field: "request", wanted: "of the types that a request has" }
        }
        error => error,
    })
}

impl Shape {
    fn check(&self, cursor: &mut Cursor<'_>) -> Result<(), JsonReadError> {
        const FIELD: &str = "request";
        match self {
            Text => cursor.string(FIELD).map(drop),
            Flag => cursor.boolean(FIELD).map(drop),
            Raw => cursor.skip(),
            List(item) => {
                if cursor.array(FIELD)? {
                    while cursor.item()? {
                        item.check(cursor)?;
                    }
                }
                Ok(())
            }
            Map(value) => {
                if cursor.object(FIELD)? {
                    while cursor.key()?.is_some() {
                        value.check(cursor)?;
                    }
                }
                Ok(())
            }
            Fields(known) => {
                if cursor.object(FIELD)? {
                    while let Some(key) = cursor.key()? {
                        let key = key.plain();
                        let field = known.iter().find(|(name, _)| *name == key);
                        field.map_or(&Raw, |(_, shape)| shape).check(cursor)?;
                    }
                }
                Ok(())
            }
        }
    }
}
