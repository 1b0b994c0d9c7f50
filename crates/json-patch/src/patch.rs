//! A patch: a list of operations, read in one pass.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    ops::Range,
};

use bytes::Bytes;
use bytestring::ByteString;
use gatepost_json::{self as json, Cursor, JsonError, JsonReadError, JsonText};

use crate::{
    node::{Piece, Value},
    operation::{MAX_OPERATIONS, OperationFault, OperationKind, OperationLabel, PatchError, Pointer},
};

/// A range of one of the two texts of a patch.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextRange {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// The `value` of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    /// The operation has no `value`.
    Absent,
    /// The value is `null`.
    Null,
    /// Any other value, in the text of the patch.
    Text(TextRange),
}

/// One operation with valid fields.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) kind: OperationKind,
    pub(super) path: ByteString,
    /// Empty unless the operation moves or copies.
    pub(super) from: ByteString,
    pub(super) value: Operand,
    /// Range in [`Patch::names`] of the last step of the path as a JSON string.
    pub(super) name: TextRange,
}

impl Operation {
    pub(super) fn label(&self) -> OperationLabel {
        OperationLabel::new(Some(self.kind), Some(&self.path))
    }
}

/// A JSON Patch.
#[derive(Clone, Debug)]
pub struct Patch {
    pub(super) text: ByteString,
    /// The keys that the operations may add, as JSON strings.
    pub(super) names: ByteString,
    pub(super) operations: Vec<Operation>,
}

impl Patch {
    /// Parses a patch. Empty bytes, `null` and `[]` are a patch without operations. As in Go, the last of equal keys of
    /// an operation or of an object in its value counts, and unknown fields of an operation are ignored.
    ///
    /// # Errors
    /// [`PatchError`] if the text is not a list of objects, has too many operations, or an operation is malformed.
    pub fn parse(bytes: Bytes) -> Result<Self, PatchError> {
        let none = Self { text: ByteString::new(), names: ByteString::new(), operations: Vec::new() };
        if bytes.is_empty() {
            return Ok(none);
        }
        let undecodable = |at, what| PatchError::Undecodable(JsonError::new(at, what));
        if u32::try_from(bytes.len()).is_err() {
            return Err(undecodable(0, "it has more than 4 GiB"));
        }
        let text = ByteString::try_from(bytes).map_err(|_| undecodable(0, "it is not UTF-8"))?;
        let patch = Self::read(text)?;
        let values = patch.operations.iter().filter_map(|operation| match operation.value {
            Operand::Text(TextRange { start, end }) => Some(start as usize..end as usize),
            Operand::Absent | Operand::Null => None,
        });
        match without_repeated_keys(&patch.text, values) {
            Some(text) => Self::read(text.into()),
            None => Ok(patch),
        }
    }

    fn read(text: ByteString) -> Result<Self, PatchError> {
        let mut reader = Reader { text: &text, names: String::new() };
        let operations = reader.operations()?;
        let names = reader.names.into();
        Ok(Self { names, operations, text })
    }

    /// Returns true if there are no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns true if the patch has a `copy`, which may grow the object by more than the length of the patch.
    pub fn copies(&self) -> bool {
        self.operations.iter().any(|operation| operation.kind == OperationKind::Copy)
    }

    /// Returns the maximum memory in bytes that the `test` operations take to compare with an object of `object` bytes.
    /// Comparing separates every compared item on both sides, and every member of the object's containers, even if the
    /// value of the test has fewer.
    pub fn compared(&self, object: usize) -> usize {
        /// An item has at least two bytes, and takes memory on both sides.
        const PER_TEST_BYTE: usize = 2 * (size_of::<Piece>() + size_of::<(Value, Value)>());
        /// A member has at least six bytes, and takes memory for itself and its index entry.
        const PER_OBJECT_BYTE: usize = (size_of::<Piece>() + 32) / 6 + 1;
        let containers = self.operations.iter().filter_map(|operation| match (operation.kind, operation.value) {
            (OperationKind::Test, Operand::Text(TextRange { start, end })) => {
                let value = &self.text[start as usize..end as usize];
                value.starts_with(['{', '[']).then_some(value.len())
            }
            _ => None,
        });
        let values: usize = containers.sum();
        if values == 0 { 0 } else { values.saturating_mul(PER_TEST_BYTE) + object.saturating_mul(PER_OBJECT_BYTE) }
    }

    /// Returns the length of the patch and its names in bytes.
    pub fn size(&self) -> usize {
        self.text.len() + self.names.len()
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }
}

struct Reader<'a> {
    text: &'a ByteString,
    names: String,
}

/// A string field: absent or `null`, of another type, or present.
enum Field {
    Missing,
    Mistyped,
    Text(ByteString),
}

impl Reader<'_> {
    fn operations(&mut self) -> Result<Vec<Operation>, PatchError> {
        let mut operations = Vec::new();
        // An unreadable list takes precedence over an invalid operation, even an earlier one.
        let mut first_fault = None;
        let mut cursor = Cursor::new(self.text);
        let read = cursor.read_array("the patch", |cursor| {
            if operations.len() == MAX_OPERATIONS {
                // There are too many.
                return Err(None);
            }
            match self.operation(cursor)? {
                Ok(operation) => operations.push(operation),
                Err(_) if first_fault.is_some() => {}
                Err((operation, what)) => {
                    let (index, fault) = (operations.len(), OperationFault::Malformed(what));
                    first_fault = Some(PatchError::Operation { index, operation, fault });
                }
            }
            Ok(())
        });
        match read.and_then(|_| Ok(cursor.end()?)) {
            Ok(()) => first_fault.map_or(Ok(operations), Err),
            Err(None) => Err(PatchError::TooManyOperations),
            Err(Some(error)) => Err(undecodable(error, cursor.value_end())),
        }
    }

    fn operation(
        &mut self,
        cursor: &mut Cursor<'_>,
    ) -> Result<Result<Operation, (OperationLabel, &'static str)>, JsonReadError> {
        let (mut kind, mut path, mut from) = (Field::Missing, Field::Missing, Field::Missing);
        let mut value = Operand::Absent;
        cursor.read_object("an operation", |cursor, key| {
            match key {
                "op" => kind = self.field(cursor)?,
                "path" => path = self.field(cursor)?,
                "from" => from = self.field(cursor)?,
                "value" => value = self.value(cursor)?,
                _ => cursor.skip()?,
            }
            Ok::<_, JsonReadError>(())
        })?;
        Ok(self.complete(kind, path, from, value))
    }

    fn complete(
        &mut self,
        kind: Field,
        path: Field,
        from: Field,
        value: Operand,
    ) -> Result<Operation, (OperationLabel, &'static str)> {
        let kind = match kind {
            Field::Text(word) => OperationKind::ALL.into_iter().find(|kind| kind.as_str() == &*word),
            Field::Missing | Field::Mistyped => None,
        };
        let path = match path {
            Field::Text(path) => Ok(path),
            Field::Missing => Err("it has no `path`"),
            Field::Mistyped => Err("its `path` is not a string"),
        };
        let label = |kind| OperationLabel::new(kind, path.as_deref().ok());
        let Some(kind) = kind else {
            return Err((label(None), "its `op` is none of add, remove, replace, move, copy and test"));
        };
        let from = match from {
            _ if !matches!(kind, OperationKind::Move | OperationKind::Copy) => ByteString::new(),
            Field::Text(from) => from,
            Field::Missing => return Err((label(Some(kind)), "it has no `from`")),
            Field::Mistyped => return Err((label(Some(kind)), "its `from` is not a string")),
        };
        let path = path.map_err(|what| (OperationLabel::new(Some(kind), None), what))?;
        let name = self.name(&path);
        Ok(Operation { kind, path, from, value, name })
    }

    /// Appends the last step of a path to the names, as a JSON string.
    fn name(&mut self, path: &str) -> TextRange {
        let start = self.names.len();
        if let Some(pointer) = Pointer::new(path) {
            let last = pointer.last();
            if last.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
                self.names.push_str(&serde_json::Value::from(&*last).to_string());
            } else {
                self.names.extend(["\"", &*last, "\""]);
            }
        }
        TextRange { start: start as u32, end: self.names.len() as u32 }
    }

    fn field(&self, cursor: &mut Cursor<'_>) -> Result<Field, JsonReadError> {
        match cursor.string("") {
            Ok(None) => Ok(Field::Missing),
            Ok(Some(text)) => Ok(Field::Text(text.shared(self.text))),
            Err(JsonReadError::Type { .. }) => Ok(Field::Mistyped),
            Err(error) => Err(error),
        }
    }

    fn value(&self, cursor: &mut Cursor<'_>) -> Result<Operand, JsonReadError> {
        let place = cursor.value_range()?;
        if &self.text[place.clone()] == "null" {
            return Ok(Operand::Null);
        }
        Ok(Operand::Text(TextRange { start: place.start as u32, end: place.end as u32 }))
    }
}

/// Returns the error for a text that cannot be read as a patch; `at` is the end of the value last read.
fn undecodable(error: JsonReadError, at: usize) -> PatchError {
    PatchError::Undecodable(match error {
        JsonReadError::Type { field: "the patch", .. } => JsonError::new(0, "a list is expected"),
        JsonReadError::Type { .. } => JsonError::new(at, "an operation must be an object"),
        JsonReadError::Json(error) => error,
    })
}

/// Removes members of objects in `values` whose key is repeated later in the same object. `None` if there are none, or
/// if the text cannot be read, which does not occur because the values have been read.
///
/// kube-apiserver decodes the patched object before it calls the next webhook, so no webhook sees a repeated key. This
/// crate forwards the text, and readers that take the first of equal keys would see another object than those that take
/// the last.
fn without_repeated_keys(text: &str, values: impl Iterator<Item = Range<usize>>) -> Option<String> {
    let mut finder = Finder { text, hasher: RandomState::new(), members: HashMap::new(), repeated: Vec::new() };
    for value in values {
        finder.look_through(value).ok()?;
    }
    let mut repeated = finder.repeated;
    if repeated.is_empty() {
        return None;
    }
    repeated.sort_unstable();
    let mut kept = String::with_capacity(text.len());
    let mut from = 0;
    // Repeated members inside a removed member are removed with it.
    for start in repeated {
        if start >= from {
            kept.push_str(&text[from..start]);
            from = next_member(text, start).ok()?;
        }
    }
    kept.push_str(&text[from..]);
    Some(kept)
}

/// Returns the offset of the member after the one at `start`, or of white space before it.
fn next_member(text: &str, start: usize) -> Result<usize, JsonError> {
    let colon = text[start..].len() - text[json::skip(text, start)?..].trim_start().len();
    let end = json::skip(text, start + colon + 1)?;
    let comma = text.len() - text[end..].trim_start().len();
    Ok(comma + 1)
}

struct Finder<'a> {
    text: &'a str,
    /// Randomly seeded, because the sender chooses the keys.
    hasher: RandomState,
    /// Offset of the last member by the hash of its object and key.
    members: HashMap<u64, usize>,
    /// Offsets of members whose key is repeated later.
    repeated: Vec<usize>,
}

impl Finder<'_> {
    fn look_through(&mut self, value: Range<usize>) -> Result<(), JsonError> {
        // Offset of each open object; `None` for an array.
        let mut open: Vec<Option<usize>> = Vec::new();
        let (mut at, mut key_follows) = (value.start, false);
        while at < value.end {
            match self.text.as_bytes()[at] {
                b'{' => open.push(Some(at)),
                b'[' => open.push(None),
                b'}' | b']' => drop(open.pop()),
                b'"' => {
                    let (text, end) = JsonText::read(self.text, at)?;
                    if let Some(object) = open.last().copied().flatten().filter(|_| key_follows) {
                        self.note(object, at, text)?;
                    }
                    (at, key_follows) = (end, false);
                    continue;
                }
                _ => {}
            }
            key_follows = matches!(self.text.as_bytes()[at], b'{' | b',') || key_follows;
            at += 1;
        }
        Ok(())
    }

    fn note(&mut self, object: usize, at: usize, key: JsonText<'_>) -> Result<(), JsonError> {
        let key = key.plain();
        let hash = self.hasher.hash_one((object, &*key));
        if let Some(earlier) = self.members.insert(hash, at)
            && json::string(self.text, earlier)? == key
        {
            self.repeated.push(earlier);
        }
        Ok(())
    }
}
