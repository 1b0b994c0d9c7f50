//! JSON Patch beside the crate `json-patch`, which applies RFC 6902 to the letter.
//!
//! An input is lines: an object, then patches, applied one after the other. kube-apiserver's library departs from the
//! RFC; each departure is a step of [`Model`], which sets the same to the crate in the RFC's own terms.

use bytes::Bytes;
use gatepost_api::Rope;
use gatepost_json_patch::{Document, IdentityField, OperationFault, Patch, PatchError, PatchLimits};
use serde_json::{Value, json};

/// The default of what may be copied.
const COPIED: usize = 3 << 20;

pub(crate) fn check(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let object = Bytes::copy_from_slice(lines.next().unwrap_or_default());
    let model: Option<Value> = serde_json::from_slice(&object).ok();
    let document = Document::new(Rope::new([object.clone()]));
    let (Ok(original), Some(before)) = (document, model) else {
        // An object for serde is one for us; serde reads fewer: none that nests deeper than 128.
        assert!(!serde_json::from_slice::<Value>(&object).is_ok_and(|value| value.is_object()), "an object is refused");
        return;
    };
    let mut document = original.clone();
    let mut model = before.clone();
    for line in lines.take(8) {
        let Some(now) = one(&document, &model, line) else { return };
        (document, model) = now;
    }
    one_patch_back(&original, &before, &document, &model);
    identity(&before, &document, &model);
}

/// The document and the model after a patch that applies to both; none where nothing more is to be compared.
fn one(document: &Document, model: &Value, line: &[u8]) -> Option<(Document, Value)> {
    let ours =
        Patch::parse(Bytes::copy_from_slice(line)).and_then(|patch| document.patched(&patch, PatchLimits::default()));
    let operations = match serde_json::from_slice(line) {
        _ if line.is_empty() => Vec::new(),
        Ok(Value::Array(operations)) => operations,
        Ok(Value::Null) => Vec::new(),
        Ok(_) => {
            assert!(ours.is_err_and(|error| error.is_undecodable()), "what is no list is taken for a patch");
            return None;
        }
        // serde does not read these, though Go and we do: halves of surrogate pairs, numbers beyond f64, depth.
        Err(_) => return None,
    };
    if operations.iter().any(|operation| !operation.is_object() && !operation.is_null()) {
        assert!(ours.is_err_and(|error| error.is_undecodable()), "what is no operation is taken for one");
        return None;
    }
    // Go distinguishes a null that was given from one that was written in a document: `tests/patches` has what follows.
    let gives_null = |operation: &Value| operation.get("value").is_some_and(Value::is_null);
    let looks = |operation: &Value| matches!(operation["op"].as_str(), Some("test" | "copy"));
    if operations.iter().any(gives_null) && operations.iter().any(looks) {
        return None;
    }
    let mut after = Model { value: model.clone(), copied: 0 };
    let applied = operations.iter().try_for_each(|operation| after.apply(operation));
    match (ours, applied) {
        (Ok(document), Ok(())) => {
            assert_eq!(value(document.rope()), after.value, "another object comes out");
            Some((document, after.value))
        }
        (Err(PatchError::Operation { fault: OperationFault::CopiedTooMuch, .. }), _) => {
            assert!(after.copied * 6 > COPIED, "{} bytes are too many to be copied", after.copied);
            None
        }
        (Err(PatchError::ObjectTooLarge { len, limit }), Ok(())) => {
            assert!(len > limit);
            None
        }
        // Go compares scalars as they are written: `1.0` is not `1` there, and "\u0061" not "a".
        (Err(PatchError::Operation { fault: OperationFault::TestFailed, .. }), Ok(())) => {
            let text = [&document.rope().to_bytes()[..], line].concat();
            assert!(text.iter().any(|byte| b"\\.eE-".contains(byte)), "a test fails that holds");
            None
        }
        (Err(error), Ok(())) => panic!("refused, though it applies: {error}"),
        (Ok(_), Err(why)) => panic!("applied, though it does not: {why}"),
        (Err(_), Err(_)) => None,
    }
}

/// Difference of the patched object from the original: one patch of plain RFC 6902, or none.
fn one_patch_back(original: &Document, before: &Value, document: &Document, model: &Value) {
    let Some(difference) = document.difference() else {
        assert_eq!(before, model, "something differs, and there is no patch");
        return;
    };
    let difference = difference.to_bytes();
    let mut again = before.clone();
    let operations: json_patch::Patch = serde_json::from_slice(&difference).expect("operations");
    json_patch::patch(&mut again, &operations).expect("applies");
    assert_eq!(again, *model, "the one patch comes to something else");
    let patch = Patch::parse(difference).expect("a patch");
    let patched = original.patched(&patch, PatchLimits::default()).expect("applies");
    assert_eq!(value(patched.rope()), *model, "the one patch comes to something else here");
}

fn identity(before: &Value, document: &Document, model: &Value) {
    let changed = document.changed_identity();
    assert_eq!(changed == [IdentityField::Root], !model.is_object());
    if !model.is_object() {
        return;
    }
    let fields = [
        (IdentityField::ApiVersion, "/apiVersion"),
        (IdentityField::Kind, "/kind"),
        (IdentityField::Name, "/metadata/name"),
        (IdentityField::Namespace, "/metadata/namespace"),
        (IdentityField::Uid, "/metadata/uid"),
    ];
    for (field, path) in fields {
        // null is as good as nothing.
        let said = |value: &Value| value.pointer(path).filter(|value| !value.is_null()).cloned();
        let (before, now) = (said(before), said(model));
        let text = |value: &Option<Value>| value.as_ref().is_none_or(Value::is_string);
        if text(&before) && text(&now) {
            assert_eq!(changed.contains(&field), before != now, "{field}");
        }
    }
}

fn value(rope: &Rope) -> Value {
    serde_json::from_slice(&rope.to_bytes()).expect("JSON comes out")
}

/// A document that the crate patches.
struct Model {
    value: Value,
    copied: usize,
}

type Applied<T> = Result<T, &'static str>;

impl Model {
    fn apply(&mut self, operation: &Value) -> Applied<()> {
        let field = |name: &str| operation.get(name).and_then(Value::as_str);
        let kind = field("op").ok_or("no op")?;
        let path = field("path").ok_or("no path")?;
        // No `value` is null.
        let value = operation.get("value").cloned().unwrap_or_default();
        match kind {
            "add" => self.add(path, value),
            "remove" => {
                let path = self.present(path)?.ok_or("nothing there")?;
                self.say(json!({"op": "remove", "path": path}))
            }
            // Only a container may replace the root.
            "replace" if path.is_empty() => match value {
                Value::Object(_) | Value::Array(_) => self.say(json!({"op": "replace", "path": "", "value": value})),
                _ => Err("the root"),
            },
            // A member that is not there is added.
            "replace" => match self.present(path)? {
                Some(path) => self.say(json!({"op": "replace", "path": path, "value": value})),
                None => self.add(path, value),
            },
            "move" => {
                let from = self.present(field("from").ok_or("no from")?)?.ok_or("nothing there")?;
                let value = self.value.pointer(&from).cloned().unwrap_or_default();
                self.say(json!({"op": "remove", "path": from}))?;
                self.add(path, value)
            }
            "copy" => {
                // A member that is not there is null.
                let value = match self.present(field("from").ok_or("no from")?)? {
                    Some(from) => self.value.pointer(&from).cloned().unwrap_or_default(),
                    None => Value::Null,
                };
                self.copied += value.to_string().len();
                if self.copied > 2 * COPIED {
                    return Err("too much copied");
                }
                self.add(path, value)
            }
            "test" if path.is_empty() => self.say(json!({"op": "test", "path": "", "value": value})),
            // A member that is not there is null.
            "test" => match self.present(path)? {
                Some(path) => self.say(json!({"op": "test", "path": path, "value": value})),
                None if value.is_null() => Ok(()),
                None => Err("nothing there"),
            },
            _ => Err("no such op"),
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Applied<()> {
        let (mut pointer, container, last) = self.container(path)?;
        match container {
            Value::Array(items) if last == "-" => step(&mut pointer, &items.len().to_string()),
            Value::Array(items) => step(&mut pointer, &index(&last, items.len() + 1)?.to_string()),
            _ => step(&mut pointer, &last),
        }
        self.say(json!({"op": "add", "path": pointer, "value": value}))
    }

    fn say(&mut self, operation: Value) -> Applied<()> {
        let patch: json_patch::Patch = serde_json::from_value(json!([operation])).expect("an operation");
        json_patch::patch(&mut self.value, &patch).map_err(|_| "the crate refuses it")
    }

    /// The path in the RFC's terms where something is; none where a member is not.
    fn present(&self, path: &str) -> Applied<Option<String>> {
        let (mut pointer, container, last) = self.container(path)?;
        match container {
            Value::Array(items) => step(&mut pointer, &index(&last, items.len())?.to_string()),
            Value::Object(members) if members.contains_key(&last) => step(&mut pointer, &last),
            _ => return Ok(None),
        }
        Ok(Some(pointer))
    }

    /// Path of the container, the container, and the step from it.
    fn container(&self, path: &str) -> Applied<(String, &Value, String)> {
        // Text before the first slash counts for nothing, and a lone `~` is itself.
        let mut steps = path.split('/').skip(1).map(|part| {
            let mut plain = part.replace("~1", "\u{0}");
            plain = plain.replace("~0", "~");
            plain.replace('\u{0}', "/")
        });
        let mut last = steps.next().ok_or("no path")?;
        let (mut pointer, mut at) = (String::new(), &self.value);
        for next in steps {
            at = match at {
                Value::Object(members) => {
                    step(&mut pointer, &last);
                    members.get(&last).ok_or("nothing there")?
                }
                Value::Array(items) => {
                    let index = index(&last, items.len())?;
                    step(&mut pointer, &index.to_string());
                    &items[index]
                }
                _ => return Err("no container"),
            };
            last = next;
        }
        if at.is_object() || at.is_array() { Ok((pointer, at, last)) } else { Err("no container") }
    }
}

fn step(pointer: &mut String, part: &str) {
    pointer.push('/');
    pointer.push_str(&part.replace('~', "~0").replace('/', "~1"));
}

/// Signs and leading zeros are allowed, and negative indexes count from the end.
fn index(part: &str, len: usize) -> Applied<usize> {
    let index: i64 = part.parse().map_err(|_| "no index")?;
    let index = if index < 0 { index + len as i64 } else { index };
    usize::try_from(index).ok().filter(|index| *index < len).ok_or("out of range")
}
