//! Review: one question, the instant by which it must be answered, and the number of Gateposts that it has passed
//! through.
//!
//! A hook that is a Gatepost is sent this number, and refuses a review that has come too far. Without it, a
//! configuration that points back at itself would ask itself, and every other hook, again and again until time is up.

use std::{
    fmt,
    ops::Range,
    time::{Duration, Instant},
};

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

/// Number of Gateposts that a review has passed through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hops(u8);

impl Hops {
    /// Header, or gRPC metadata, that carries the number to hooks.
    pub const HEADER: &'static str = "gatepost-hops";
    /// Hops of a review that no Gatepost has passed on yet.
    pub const FIRST: Self = Self(1);
    /// A review that has passed through so many is refused. Chains of two or three are in use; more is a circle.
    pub const LIMIT: Self = Self(4);

    /// The number in a header's value: one to three digits, no more than 255.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let digits = (1..=3).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
        let number = value.iter().fold(0_u32, |number, digit| number * 10 + u32::from(digit.wrapping_sub(b'0')));
        if digits { number.try_into().ok().map(Self) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The number once this Gatepost has passed the review on.
    #[must_use]
    pub const fn passed_on(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Has the review come too far to be asked about?
    pub fn is_too_many(self) -> bool {
        self >= Self::LIMIT
    }
}

/// An instant by which something must be done. Stamped once, at the front, and never recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// `budget` after `now`.
    pub fn after(now: Instant, budget: Duration) -> Self {
        Self(now + budget)
    }

    /// Time left at `now`; zero when the deadline has passed.
    pub fn left(self, now: Instant) -> Duration {
        self.0.saturating_duration_since(now)
    }

    /// The earlier of this and `now + limit`.
    pub fn within(self, now: Instant, limit: Duration) -> Self {
        Self(self.0.min(now + limit))
    }

    /// The instant itself.
    pub fn instant(self) -> Instant {
        self.0
    }
}

#[cfg(test)]
mod hops_tests {
    use super::*;

    #[test]
    fn a_number_is_digits_and_nothing_else() {
        for (value, hops) in [("0", Some(0)), ("1", Some(1)), ("007", Some(7)), ("255", Some(255))] {
            assert_eq!(Hops::parse(value.as_bytes()).map(Hops::get), hops, "{value}");
        }
        for value in ["", "256", "0001", "-1", "+1", "1 ", "1,2", "x"] {
            assert_eq!(Hops::parse(value.as_bytes()), None, "{value:?}");
        }
    }

    #[test]
    fn the_limit_is_reached_by_passing_on_and_never_wraps() {
        let mut hops = Hops::default();
        for passed in 0..Hops::LIMIT.get() {
            assert!(!hops.is_too_many(), "{passed}");
            hops = hops.passed_on();
        }
        assert!(hops.is_too_many());
        assert_eq!(Hops(255).passed_on(), Hops(255));
        assert_eq!(Hops::default().passed_on(), Hops::FIRST);
    }
}
