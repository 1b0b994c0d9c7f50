//! Kinds of operations, their paths, and the errors of a patch that cannot be read or does not apply.
//!
//! Paths are parsed as in kube-apiserver's library, with two departures from RFC 6901: text before the first `/` is
//! ignored, and a `~` that does not begin an escape is literal.

use std::{borrow::Cow, fmt};

use gatepost_json::{JsonError, JsonReadError, MAX_DEPTH, pointer};

/// Maximum number of operations of one patch. This is kube-apiserver's limit for patches of its clients; it has no
/// limit for those of webhooks.
pub const MAX_OPERATIONS: usize = 10_000;

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Sets a member, or inserts an item.
    Add,
    /// Removes a member or item.
    Remove,
    /// Sets a member, even a missing one, or an item.
    Replace,
    /// Removes from one place and adds at another.
    Move,
    /// Copies from one place and adds at another.
    Copy,
    /// Compares a value.
    Test,
}

impl OperationKind {
    pub(super) const ALL: [Self; 6] = [Self::Add, Self::Remove, Self::Replace, Self::Move, Self::Copy, Self::Test];

    /// Returns the kind as the value of `op`.
    pub fn as_str(self) -> &'static str {
        ["add", "remove", "replace", "move", "copy", "test"][self as usize]
    }
}

/// A patch that cannot be read or does not apply. The messages name an operation by its index from 0 and the beginning
/// of its path, and never quote the object or a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not a JSON list of objects.
    #[error("the patch is not a JSON list of operations: {0}")]
    Undecodable(JsonError),
    /// The patch has more than [`MAX_OPERATIONS`] operations.
    #[error("the patch has more than {MAX_OPERATIONS} operations; send fewer, or replace a whole part of the object")]
    TooManyOperations,
    /// An operation is malformed or does not apply to the object.
    #[error("operation {index} ({operation}) does not apply: {fault}")]
    Operation {
        /// Index of the operation, from 0.
        index: usize,
        /// Kind and path of the operation.
        operation: OperationLabel,
        /// Reason.
        fault: OperationFault,
    },
    /// The patched object is larger than the limit.
    #[error("the patched object would have {len} bytes; the limit is {limit}")]
    ObjectTooLarge {
        /// Length of the patched object in bytes.
        len: usize,
        /// Maximum length in bytes.
        limit: usize,
    },
    /// The patched object nests too deep.
    #[error("the patched object would nest deeper than {MAX_DEPTH}")]
    TooDeep,
    /// The caller cancelled the application.
    #[error("the request was cancelled before its patch was applied")]
    Cancelled,
    /// Applying the patch takes more memory than the limit.
    #[error("applying the patch takes too much memory; send fewer operations, or replace a whole part of the object")]
    NoRoom,
    /// The document to be patched is not a JSON object.
    #[error("what the patch is for is not a JSON object: {0}")]
    NotAnObject(JsonError),
}

impl PatchError {
    /// Returns true if the patch cannot be read. kube-apiserver treats a patch that does not apply differently.
    pub fn is_undecodable(&self) -> bool {
        matches!(self, Self::Undecodable(_))
    }

    /// Returns true if the patched object is larger than the limit.
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::ObjectTooLarge { .. })
    }
}

/// Reason why an operation does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationFault {
    /// A field is missing or has another type.
    #[error("{0}")]
    Malformed(&'static str),
    /// The path does not lead to a container.
    #[error("`{0}` leads to nothing that could have children")]
    NoParent(&'static str),
    /// The member does not exist.
    #[error("`{0}` names a member that is not there")]
    NoMember(&'static str),
    /// An array is indexed by something that is not a number.
    #[error("`{0}` indexes an array with what is no number")]
    NotAnIndex(&'static str),
    /// The item does not exist.
    #[error("`{0}` names an item behind the end or before the beginning of its array")]
    OutOfRange(&'static str),
    /// The root can be replaced only by an object or array.
    #[error("the whole object can be replaced only by an object or array")]
    RootValue,
    /// A `test` found another value.
    #[error("the value there is not the one it must be")]
    TestFailed,
    /// The copies add more bytes than the limit.
    #[error("the `copy` operations of the patch add more bytes than may be copied")]
    CopiedTooMuch,
    /// The operation opens or copies more of the object than the memory limit allows.
    #[error("it takes too much memory")]
    NoRoom,
    /// The caller cancelled the application.
    #[error("the request was cancelled")]
    Cancelled,
    /// A checked text cannot be read again. This should not occur.
    #[error("the object cannot be read at {0}")]
    Unreadable(JsonError),
}

impl From<JsonReadError> for OperationFault {
    fn from(error: JsonReadError) -> Self {
        Self::Unreadable(json_error(error, 0))
    }
}

/// Converts a read error; `at` is the place of a value of another type.
pub(super) fn json_error(error: JsonReadError, at: usize) -> JsonError {
    match error {
        JsonReadError::Json(error) => error,
        JsonReadError::Type { wanted, .. } => JsonError::new(at, wanted),
    }
}

/// Kind and beginning of the path of an operation, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationLabel {
    kind: Option<OperationKind>,
    path: Option<Box<str>>,
}

/// Maximum number of characters of a path in a message.
const MAX_LABEL_CHARS: usize = 80;

impl OperationLabel {
    pub(super) fn new(kind: Option<OperationKind>, path: Option<&str>) -> Self {
        let shown = |path: &str| {
            let mut shown: String = path.chars().take(MAX_LABEL_CHARS).collect();
            if shown.len() < path.len() {
                shown.push('…');
            }
            shown.into()
        };
        Self { kind, path: path.map(shown) }
    }
}

impl fmt::Display for OperationLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.map_or("of no known kind", OperationKind::as_str))?;
        match &self.path {
            // Escaped, because it goes into logs and responses.
            Some(path) => write!(f, " {path:?}"),
            None => Ok(()),
        }
    }
}

/// A path to a child of a container.
#[derive(Clone, Copy)]
pub(super) struct Pointer<'a> {
    /// Path of the container, escaped, without the first slash; `None` for the root.
    parents: Option<&'a str>,
    /// Name of the child, escaped.
    last: &'a str,
}

impl<'a> Pointer<'a> {
    /// Splits a path; `None` if it has no slash and so names no child.
    pub(super) fn new(path: &'a str) -> Option<Self> {
        let (_, rest) = path.split_once('/')?;
        Some(match rest.rsplit_once('/') {
            Some((parents, last)) => Self { parents: Some(parents), last },
            None => Self { parents: None, last: rest },
        })
    }

    /// Returns the steps of the container's path, unescaped.
    pub(super) fn parents(self) -> impl Iterator<Item = Cow<'a, str>> {
        self.parents.into_iter().flat_map(|parents| parents.split('/')).map(pointer::unescaped)
    }

    /// Returns the name of the child, unescaped.
    pub(super) fn last(self) -> Cow<'a, str> {
        pointer::unescaped(self.last)
    }
}

/// Returns the length in bytes of a step, escaped, in a path that is written as a JSON string.
pub(super) fn len_in_json(part: &str) -> usize {
    let escaped = part.bytes().map(|byte| match byte {
        b'~' | b'/' | b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        ..b' ' => 6,
        _ => 1,
    });
    "/".len() + escaped.sum::<usize>()
}

/// Reads an index as Go's `strconv.Atoi` does: with an optional sign and leading zeros.
pub(super) fn index(part: &str) -> Option<i64> {
    let digits = part.strip_prefix(['+', '-']).unwrap_or(part);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    part.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_in_go() {
        let read = |path: &str| {
            let pointer = Pointer::new(path)?;
            Some((pointer.parents().map(Cow::into_owned).collect::<Vec<_>>().join("|"), pointer.last().into_owned()))
        };
        let some = |parents: &str, last: &str| Some((parents.to_owned(), last.to_owned()));
        assert_eq!(read(""), None);
        assert_eq!(read("a"), None);
        assert_eq!(read("/"), some("", ""));
        assert_eq!(read("/a"), some("", "a"));
        assert_eq!(read("x/a"), some("", "a"));
        assert_eq!(read("/a//b"), some("a|", "b"));
        assert_eq!(read("/a~1b/~01~2~/~0~1~"), some("a/b|~1~2~", "~/~"));
    }

    #[test]
    fn indexes_are_read_as_in_go() {
        for (text, wanted) in [("0", 0), ("01", 1), ("+1", 1), ("-1", -1), ("-0", 0), ("9223372036854775807", i64::MAX)]
        {
            assert_eq!(index(text), Some(wanted), "{text}");
        }
        for text in ["", "-", "+", "1_0", " 1", "1 ", "1.0", "0x1", "--1", "9223372036854775808", "a"] {
            assert_eq!(index(text), None, "{text}");
        }
    }

    #[test]
    fn step_length_is_that_of_the_written_step() {
        for step in (0..0x3000).filter_map(char::from_u32).map(String::from).chain(["".into(), "a/b~1\n\"é".into()]) {
            let mut path = String::new();
            pointer::push(&mut path, &step);
            let written = serde_json::Value::from(path).to_string();
            assert_eq!(len_in_json(&step), written.len() - 2, "{step:?}");
        }
    }
}
