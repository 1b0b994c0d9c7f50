//! PatchError: a patch that cannot be read or does not apply.

use std::fmt;

use super::{MAX_OPERATIONS, OperationKind};
use gatepost_json::{JsonError, JsonReadError, MAX_DEPTH};

/// Failure to make the patched object. It names operations by their index from 0, and repeats nothing of the object and
/// of the values; of a path, only its beginning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The hook's fault: the patch is no JSON list of objects.
    #[error("the patch is not a JSON list of operations: {0}")]
    Undecodable(JsonError),
    /// The hook's fault.
    #[error("the patch has more than {MAX_OPERATIONS} operations; send fewer, or replace a whole part of the object")]
    TooManyOperations,
    /// The hook's fault: an operation lacks something, or does not fit this object.
    #[error("operation {index} ({operation}) does not apply: {fault}")]
    Operation {
        /// From 0.
        index: usize,
        /// Its kind and path.
        operation: Label,
        /// Fault of the operation.
        fault: OperationFault,
    },
    /// The hook's fault.
    #[error("the patched object would have {len} bytes; the limit is {limit}")]
    ObjectTooLarge {
        /// Its length.
        len: usize,
        /// The limit in force.
        limit: usize,
    },
    /// The hook's fault.
    #[error("the patched object would nest deeper than {MAX_DEPTH}")]
    TooDeep,
    /// No fault: the caller no longer waits for the patched object.
    #[error("nobody waits for the patched object any more")]
    Cancelled,
    /// The hook's fault, or the limit was too low for the object.
    #[error("applying the patch takes too much memory; send fewer operations, or replace a whole part of the object")]
    NoRoom,
    /// The caller's fault: what shall be patched is no JSON object.
    #[error("what the patch is for is not a JSON object: {0}")]
    NotAnObject(JsonError),
}

impl PatchError {
    /// True where the patch is unreadable as such, which kube-apiserver takes for a failed call of the hook; what is
    /// read and does not apply it takes for a refusal of the request.
    pub fn is_undecodable(&self) -> bool {
        matches!(self, Self::Undecodable(_))
    }

    /// True where the patched object is larger than is taken.
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::ObjectTooLarge { .. })
    }
}

/// Fault of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationFault {
    /// A field is missing or has another type.
    #[error("{0}")]
    Malformed(&'static str),
    /// No container stands where the path leads.
    #[error("`{0}` leads to nothing that could have children")]
    NoParent(&'static str),
    /// There is no such member.
    #[error("`{0}` names a member that is not there")]
    NoMember(&'static str),
    /// An array is indexed by something that is no number.
    #[error("`{0}` indexes an array with what is no number")]
    NotAnIndex(&'static str),
    /// There is no such item.
    #[error("`{0}` names an item behind the end or before the beginning of its array")]
    OutOfRange(&'static str),
    /// Only an object or array may replace the root.
    #[error("the whole object can be replaced only by an object or array")]
    RootValue,
    /// The value is another one.
    #[error("the value there is not the one it must be")]
    TestFailed,
    /// Copies add too much.
    #[error("the `copy` operations of the patch add more bytes than may be copied")]
    CopiedTooMuch,
    /// It opens or copies more parts of the object than there is memory for.
    #[error("it takes too much memory")]
    NoRoom,
    /// The caller no longer waits for the patched object.
    #[error("nobody waits for it any more")]
    Cancelled,
    /// A checked text cannot be read again. It should not occur.
    #[error("the object cannot be read at {0}")]
    Unreadable(JsonError),
}

impl From<JsonReadError> for OperationFault {
    fn from(error: JsonReadError) -> Self {
        Self::Unreadable(json_error(error, 0))
    }
}

/// The same as an error at a place; `at` is where something of another type was found.
pub(super) fn json_error(error: JsonReadError, at: usize) -> JsonError {
    match error {
        JsonReadError::Json(error) => error,
        JsonReadError::Type { wanted, .. } => JsonError::new(at, wanted),
    }
}

/// Kind and path of an operation, the path cut short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    kind: Option<OperationKind>,
    path: Option<Box<str>>,
}

/// Characters of a path that are shown.
const SHOWN: usize = 80;

impl Label {
    pub(super) fn new(kind: Option<OperationKind>, path: Option<&str>) -> Self {
        let shown = |path: &str| {
            let mut shown: String = path.chars().take(SHOWN).collect();
            if shown.len() < path.len() {
                shown.push('…');
            }
            shown.into()
        };
        Self { kind, path: path.map(shown) }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.map_or("of no known kind", OperationKind::as_str))?;
        match &self.path {
            // Escaped, as it goes into logs and statuses.
            Some(path) => write!(f, " {path:?}"),
            None => Ok(()),
        }
    }
}
