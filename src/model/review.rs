//! Review: one question.

use std::{fmt, ops::Range};

use bytestring::ByteString;

use super::Rope;

/// What happens to the object. Upstream: `admission.Operation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of a stored object.
    Update,
    /// A removal.
    Delete,
    /// A connection to a subresource (exec, proxy).
    Connect,
}

impl Operation {
    /// Every operation, in the order of [`Operation::index`].
    pub const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Delete, Self::Connect];

    /// The name upstream uses on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// From the wire's name; case-sensitive as upstream.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.as_str() == name)
    }

    /// 0 to 3, for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Group, version and kind. The core group is "".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gvk {
    /// API group.
    pub group: ByteString,
    /// API version.
    pub version: ByteString,
    /// Kind, singular and CamelCase.
    pub kind: ByteString,
}

/// Group, version and resource. The core group is "".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gvr {
    /// API group.
    pub group: ByteString,
    /// API version.
    pub version: ByteString,
    /// Resource, plural and lower case.
    pub resource: ByteString,
}

/// Which of the service's three calls was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Every phase that applies.
    Review,
    /// Mutating hooks only.
    Mutate,
    /// Validating hooks only.
    Validate,
}

/// One question: who wants to do what to which object.
///
/// Short fields are read; `object`, `old_object` and `options` stay where they are in `bytes`, unread and uncopied.
/// Source of the fields: `k8s.io/api/admission/v1` AdmissionRequest.
#[derive(Clone, Debug)]
pub struct Review {
    /// The caller's identifier of this request; answers must repeat it.
    pub uid: ByteString,
    /// Kind of the object as sent.
    pub kind: Gvk,
    /// Resource as matched by the caller.
    pub resource: Gvr,
    /// Subresource, or "".
    pub sub_resource: ByteString,
    /// The kind the client asked for, where the caller says so.
    pub request_kind: Option<Gvk>,
    /// The resource the client asked for, where the caller says so.
    pub request_resource: Option<Gvr>,
    /// Name of the object, or "" when the server will generate it.
    pub name: ByteString,
    /// Namespace of the request, or "" for cluster scope.
    pub namespace: ByteString,
    /// What happens to the object.
    pub operation: Operation,
    /// The acting user's name, or "".
    pub username: ByteString,
    /// True when nothing will be stored.
    pub dry_run: bool,
    /// Where the object's own encoding lies in `bytes`; absent on DELETE.
    pub object: Option<Range<usize>>,
    /// Where the stored object's encoding lies in `bytes`; UPDATE and DELETE only.
    pub old_object: Option<Range<usize>>,
    /// Where the operation's options lie in `bytes`.
    pub options: Option<Range<usize>>,
    /// The message as it arrived, gRPC frame head included: what a gRPC hook is sent.
    pub bytes: Rope,
}
