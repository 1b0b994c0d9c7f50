//! Review: one question.

use std::{fmt, ops::Range};

use bytestring::ByteString;

use super::{ContainerEnds, Rope};

/// Operation on an object. Upstream: `admission.Operation`.
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

impl fmt::Display for Gvr {
    /// As upstream writes it: `<group>/<version>, Resource=<resource>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, version, resource } = self;
        write!(f, "{group}/{version}, Resource={resource}")
    }
}

/// The version of `admission.k8s.io` a review is written in. Both have the same fields; only v1 checks the answer's
/// uid and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`
    V1,
    /// `admission.k8s.io/v1beta1`
    V1beta1,
}

impl ReviewVersion {
    /// As `apiVersion` has it.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }

    /// As `admissionReviewVersions` has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }

    /// 0 or 1, for tables.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The first of these versions that is known, as upstream chooses.
    pub fn choose<S: AsRef<str>>(versions: impl IntoIterator<Item = S>) -> Option<Self> {
        versions.into_iter().find_map(|version| match version.as_ref() {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1beta1),
            _ => None,
        })
    }
}

/// Encoding of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// One gRPC message, frame head included.
    Grpc,
    /// Protobuf in Kubernetes' envelope (`k8s\0`).
    Envelope(ReviewVersion),
    /// JSON.
    Json(ReviewVersion),
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
    /// The subresource the client asked for, where the caller says so; "" is none.
    pub request_sub_resource: ByteString,
    /// Name of the object, or "" when the server will generate it.
    pub name: ByteString,
    /// Namespace of the request, or "" for cluster scope.
    pub namespace: ByteString,
    /// Operation on the object.
    pub operation: Operation,
    /// The acting user's name, or "".
    pub username: ByteString,
    /// True when nothing will be stored.
    pub dry_run: bool,
    /// Range in `bytes` of the whole `userInfo`, in the review's own encoding.
    pub user: Option<Range<usize>>,
    /// Range in `bytes` of the object's own encoding; absent on DELETE.
    pub object: Option<Range<usize>>,
    /// Ends of the large objects and arrays in `object`; `None` where they were not noted.
    pub object_ends: Option<ContainerEnds>,
    /// Range in `bytes` of the stored object's encoding; UPDATE and DELETE only.
    pub old_object: Option<Range<usize>>,
    /// The same of `old_object`.
    pub old_object_ends: Option<ContainerEnds>,
    /// Range in `bytes` of the operation's options.
    pub options: Option<Range<usize>>,
    /// Encoding of `bytes`.
    pub encoding: Encoding,
    /// Range in `bytes` of the AdmissionReview itself: without frame head or envelope.
    pub message: Range<usize>,
    /// The message as it arrived, frame head or envelope included: a hook of the same encoding is sent just this.
    pub bytes: Rope,
}

impl Review {
    /// A review about that and nothing more, without user, object and bytes: what tests and benches of rules begin
    /// with.
    #[doc(hidden)]
    pub fn bare(operation: Operation, kind: Gvk, resource: Gvr) -> Self {
        let none = ByteString::new;
        Self {
            uid: none(),
            kind,
            resource,
            sub_resource: none(),
            request_kind: None,
            request_resource: None,
            request_sub_resource: none(),
            name: none(),
            namespace: none(),
            operation,
            username: none(),
            dry_run: false,
            user: None,
            object: None,
            object_ends: None,
            old_object: None,
            old_object_ends: None,
            options: None,
            encoding: Encoding::Grpc,
            message: 0..0,
            bytes: Rope::new([]),
        }
    }
}
