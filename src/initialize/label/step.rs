//! Step: a change of a marked object by Gatepost itself, as one JSON Patch.
//!
//! Each patch begins with tests of what it was made for: the object's uid and resource version, and the state, which has the
//! head. An apiserver that finds anything else changes nothing. So a step may be sent twice, by two replicas, or long after
//! it was decided.

use serde_json::{Value, json};

use super::{Marks, PENDING, STATE, State};

/// Object that a step is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// uid.
    pub uid: &'a str,
    /// Resource version.
    pub resource_version: &'a str,
    /// Its marks.
    pub marks: &'a Marks,
}

/// Change of a marked object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MarksStep<'a> {
    /// It goes on with this state, which is not Completed.
    Goes(&'a State),
    /// It is initialized.
    Completes(&'a State),
    /// It says nothing of what is left to do, and becomes visible.
    Uncovers,
}

impl<'a> MarksStep<'a> {
    /// The step to that state.
    pub fn to(state: &'a State) -> Self {
        if state.list.clone().normalized().is_some() { Self::Goes(state) } else { Self::Completes(state) }
    }

    /// The patch. `changes` is what an initializer makes of the object at the same time.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn patch(self, target: Target<'_>, changes: Vec<Value>) -> Result<Value, String> {
        let state = format!("/metadata/annotations/{}", escaped(STATE));
        let label = json!({"op": "remove", "path": format!("/metadata/labels/{}", escaped(PENDING))});
        let mut patch = vec![
            json!({"op": "test", "path": "/metadata/uid", "value": target.uid}),
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": target.resource_version}),
        ];
        if let Some(before) = &target.marks.state {
            patch.push(json!({"op": "test", "path": state, "value": before}));
        }
        patch.extend(changes);
        match self {
            Self::Goes(after) => patch.push(json!({"op": "replace", "path": state, "value": after.write()?})),
            Self::Completes(after) => {
                patch.push(json!({"op": "replace", "path": state, "value": after.write()?}));
                patch.push(label);
            }
            Self::Uncovers => {
                // As any other completion: an apiserver's policy takes the label away in no other way.
                if target.marks.state.is_some() {
                    let completed = State::completed().write()?;
                    patch.push(json!({"op": "replace", "path": state, "value": completed}));
                }
                patch.push(label);
            }
        }
        Ok(patch.into())
    }
}

/// The patch that marks a new object, or gives it back the marks that an update has forgotten. `has` says of its labels and
/// of its annotations that there are any.
pub fn marking((labels, annotations): (bool, bool), marks: &Marks) -> Value {
    let mut patch = Vec::new();
    let maps = [("labels", labels, PENDING, &marks.label), ("annotations", annotations, STATE, &marks.state)];
    for (map, there, key, value) in maps {
        let Some(value) = value else { continue };
        match there {
            true => patch.push(json!({
                "op": "add", "path": format!("/metadata/{map}/{}", escaped(key)), "value": value,
            })),
            false => patch.push(json!({"op": "add", "path": format!("/metadata/{map}"), "value": {key: value}})),
        }
    }
    patch.into()
}

/// The patch that removes both marks of a new object.
pub fn unmarking() -> Value {
    let remove = |map: &str, key: &str| json!({"op": "remove", "path": format!("/metadata/{map}/{}", escaped(key))});
    json!([remove("labels", PENDING), remove("annotations", STATE)])
}

/// Does a patch change the marks, what identifies the object, or something around one of these? No initializer may.
pub fn touches_reserved(changes: &[Value]) -> bool {
    let reserved = [
        format!("/metadata/labels/{}", escaped(PENDING)),
        format!("/metadata/annotations/{}", escaped(STATE)),
        "/apiVersion".to_owned(),
        "/kind".to_owned(),
        "/metadata/name".to_owned(),
        "/metadata/namespace".to_owned(),
        "/metadata/uid".to_owned(),
        "/metadata/resourceVersion".to_owned(),
    ];
    let is_reserved = |path: &Value| {
        // Apiservers pass over what stands before the first slash.
        let path = path.as_str().unwrap_or_default();
        let path = path.find('/').map_or("", |at| &path[at..]);
        let within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        reserved.iter().any(|reserved| within(reserved, path) || within(path, reserved))
    };
    changes.iter().any(|change| match change["op"].as_str() {
        Some("test") => false,
        // A `move` also changes the place that it reads; any other operation may read anywhere.
        Some("move") => is_reserved(&change["path"]) || is_reserved(&change["from"]),
        _ => is_reserved(&change["path"]),
    })
}

/// A key as a step of a JSON Pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
