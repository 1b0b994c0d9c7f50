//! Patch: a list of operations, read in one pass.

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
    operation::{MAX_OPERATIONS, OperationFault, OperationKind, OperationLabel, PatchError, Pointer, json_error},
};

/// Range of one of a patch's two texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextRange {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// The `value` of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Given {
    /// There is none.
    Nothing,
    /// It is `null`.
    Null,
    /// Anything else, in the patch's text.
    Written(TextRange),
}

/// One operation, its fields there and of the right type.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) kind: OperationKind,
    pub(super) path: ByteString,
    /// Empty unless it moves or copies.
    pub(super) from: ByteString,
    pub(super) value: Given,
    /// The last step of the path as a JSON string, in the patch's names.
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
    /// Keys that the operations may add, each a JSON string.
    pub(super) names: ByteString,
    pub(super) operations: Vec<Operation>,
}

impl Patch {
    /// Reads a patch. No bytes, `null` and `[]` are a patch without operations. Of a key that an operation, or an object
    /// in its value, has twice the last counts, and unknown ones of an operation do not, as in Go.
    ///
    /// # Errors
    /// [`PatchError`]: not a list of objects, too many operations, or an operation that lacks something.
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
            Given::Written(TextRange { start, end }) => Some(start as usize..end as usize),
            Given::Nothing | Given::Null => None,
        });
        match removed(&patch.text, values) {
            Some(text) => Self::read(text.into()),
            None => Ok(patch),
        }
    }

    fn read(text: ByteString) -> Result<Self, PatchError> {
        let mut reader = Reader { text: &text, cursor: Cursor::new(&text), names: String::new() };
        let operations = reader.operations()?;
        let names = reader.names.into();
        Ok(Self { names, operations, text })
    }

    /// True where there are no operations: it then changes nothing.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// True where an operation may make the object larger than what it adds.
    pub fn copies(&self) -> bool {
        self.operations.iter().any(|operation| operation.kind == OperationKind::Copy)
    }

    /// The most bytes of memory that its tests take for a while, of an object of so many bytes. Every item that is
    /// compared stands alone then, on both sides; and every member of the object's own containers, however few the test
    /// has.
    pub fn compared(&self, object: usize) -> usize {
        /// For an item, which has two bytes at least, on both sides.
        const OF_ITEMS: usize = 2 * (size_of::<Piece>() + size_of::<(Value, Value)>());
        /// For a member, which has six, and its place in an index.
        const OF_MEMBERS: usize = (size_of::<Piece>() + 32) / 6 + 1;
        let containers = self.operations.iter().filter_map(|operation| match (operation.kind, operation.value) {
            (OperationKind::Test, Given::Written(TextRange { start, end })) => {
                let value = &self.text[start as usize..end as usize];
                value.starts_with(['{', '[']).then_some(value.len())
            }
            _ => None,
        });
        let values: usize = containers.sum();
        if values == 0 { 0 } else { values.saturating_mul(OF_ITEMS) + object.saturating_mul(OF_MEMBERS) }
    }

    /// Bytes of its text.
    pub fn size(&self) -> usize {
        self.text.len() + self.names.len()
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }
}

struct Reader<'a> {
    text: &'a ByteString,
    cursor: Cursor<'a>,
    names: String,
}

/// A field that is a string: not there or `null`, of another type, or there.
enum Field {
    Missing,
    Mistyped,
    Text(ByteString),
}

impl Reader<'_> {
    fn operations(&mut self) -> Result<Vec<Operation>, PatchError> {
        let mut operations = Vec::new();
        // A list that cannot be read at all is another fault than an operation that cannot, wherever that stands.
        let mut first_fault = None;
        let entered = self.cursor.array("the patch");
        if self.read(entered)? {
            loop {
                let more = self.cursor.item();
                if !self.read(more)? {
                    break;
                }
                if operations.len() == MAX_OPERATIONS {
                    return Err(PatchError::TooManyOperations);
                }
                match self.operation()? {
                    Ok(operation) => operations.push(operation),
                    Err(_) if first_fault.is_some() => {}
                    Err((operation, what)) => {
                        let (index, fault) = (operations.len(), OperationFault::Malformed(what));
                        first_fault = Some(PatchError::Operation { index, operation, fault });
                    }
                }
            }
        }
        let end = self.cursor.end();
        self.read(end)?;
        first_fault.map_or(Ok(operations), Err)
    }

    fn operation(&mut self) -> Result<Result<Operation, (OperationLabel, &'static str)>, PatchError> {
        let (mut kind, mut path, mut from) = (Field::Missing, Field::Missing, Field::Missing);
        let mut value = Given::Nothing;
        let entered = self.cursor.object("an operation");
        if self.read(entered)? {
            loop {
                let key = self.cursor.key();
                let Some(key) = self.read(key)? else { break };
                match &*key.plain() {
                    "op" => kind = self.field()?,
                    "path" => path = self.field()?,
                    "from" => from = self.field()?,
                    "value" => value = self.value()?,
                    _ => {
                        let skipped = self.cursor.skip();
                        self.read(skipped)?;
                    }
                }
            }
        }
        Ok(self.complete(kind, path, from, value))
    }

    fn complete(
        &mut self,
        kind: Field,
        path: Field,
        from: Field,
        value: Given,
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

    /// Notes the last step of a path as a JSON string.
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

    fn field(&mut self) -> Result<Field, PatchError> {
        match self.cursor.string("") {
            Ok(None) => Ok(Field::Missing),
            Ok(Some(text)) => Ok(Field::Text(text.shared(self.text))),
            Err(JsonReadError::Type { .. }) => Ok(Field::Mistyped),
            Err(JsonReadError::Json(error)) => Err(PatchError::Undecodable(error)),
        }
    }

    fn value(&mut self) -> Result<Given, PatchError> {
        let place = self.cursor.value_range();
        let place = self.read(place)?;
        if &self.text[place.clone()] == "null" {
            return Ok(Given::Null);
        }
        Ok(Given::Written(TextRange { start: place.start as u32, end: place.end as u32 }))
    }

    fn read<T>(&self, read: Result<T, JsonReadError>) -> Result<T, PatchError> {
        read.map_err(|error| {
            let wanted = match error {
                JsonReadError::Type { field: "the patch", .. } => {
                    return PatchError::Undecodable(JsonError::new(0, "a list is expected"));
                }
                JsonReadError::Type { .. } => "an operation must be an object",
                JsonReadError::Json(_) => "",
            };
            let error = json_error(error, self.cursor.value_end());
            PatchError::Undecodable(if wanted.is_empty() { error } else { JsonError::new(error.at, wanted) })
        })
    }
}

// Repeats: members of a patch's values whose key comes again in the same object.
//
// kube-apiserver decodes what a webhook has made of an object before it calls the next one, so nobody behind sees a key
// twice. Here the text is passed on, and readers that take the first of equal keys would see another object than those
// that take the last. So all but the last go.

/// The text without members of objects in `values` whose key comes again in the same object; `None` where there are
/// none. The values have been read: a text that cannot be read is left as it is.
pub(super) fn removed(text: &str, values: impl Iterator<Item = Range<usize>>) -> Option<String> {
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
    // Repeated members of a member that goes are gone with it.
    for start in repeated {
        if start >= from {
            kept.push_str(&text[from..start]);
            from = next_member(text, start).ok()?;
        }
    }
    kept.push_str(&text[from..]);
    Some(kept)
}

/// Where the member behind the one that begins at `start` begins, at the latest.
fn next_member(text: &str, start: usize) -> Result<usize, JsonError> {
    let colon = text[start..].len() - text[json::skip(text, start)?..].trim_start().len();
    let end = json::skip(text, start + colon + 1)?;
    let comma = text.len() - text[end..].trim_start().len();
    Ok(comma + 1)
}

struct Finder<'a> {
    text: &'a str,
    /// Keyed, as the keys are the sender's choice.
    hasher: RandomState,
    /// Beginning of the last member, by the hash of its object and key.
    members: HashMap<u64, usize>,
    /// Beginnings of those whose key comes again.
    repeated: Vec<usize>,
}

impl Finder<'_> {
    fn look_through(&mut self, value: Range<usize>) -> Result<(), JsonError> {
        // Where each open container begins; none for a list.
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
