//! Review: one admission request, its deadline, and the number of Gateposts that it has passed through.
//!
//! A Gatepost that is called as a hook receives this number, and refuses a review that has passed through too many
//! Gateposts.
//! Otherwise a configuration that points back at itself would call itself and every other hook until the deadline.

use std::{
    fmt,
    ops::Range,
    sync::Arc,
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

    /// Returns the operation's name on the wire, as in upstream.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// Parses the operation's name on the wire; case-sensitive, as in upstream.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.as_str() == name)
    }

    /// Returns 0 to 3, an index for tables.
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
    /// Writes `<group>/<version>, Resource=<resource>`, as upstream does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, version, resource } = self;
        write!(f, "{group}/{version}, Resource={resource}")
    }
}

/// The version of `admission.k8s.io` in which a review is written. Both have the same fields; only v1 checks the
/// answer's uid and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`
    V1,
    /// `admission.k8s.io/v1beta1`
    V1beta1,
}

impl ReviewVersion {
    /// Returns the value of `apiVersion`.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }

    /// Returns the value in `admissionReviewVersions`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }

    /// Returns 0 or 1, an index for tables.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the first of these versions that is known, as upstream does.
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

/// Which of the service's three methods was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Every phase that applies.
    Review,
    /// Mutating hooks only.
    Mutate,
    /// Validating hooks only.
    Validate,
}

/// One admission request.
///
/// Short fields are parsed. `object`, `old_object` and `options` are ranges of `bytes`, neither parsed nor copied.
/// Source of the fields: `k8s.io/api/admission/v1` AdmissionRequest.
#[derive(Clone, Debug)]
pub struct Review {
    /// The caller's identifier of this request; answers must repeat it.
    pub uid: ByteString,
    /// Kind of the object in this review.
    pub kind: Gvk,
    /// Resource in the version of the object in this review.
    pub resource: Gvr,
    /// Subresource, or "".
    pub sub_resource: ByteString,
    /// Kind that the client requested; `None` if the caller does not report it.
    pub request_kind: Option<Gvk>,
    /// Resource that the client requested; `None` if the caller does not report it.
    pub request_resource: Option<Gvr>,
    /// Subresource that the client requested; "" if there is none or the caller does not report it.
    pub request_sub_resource: ByteString,
    /// Name of the object; "" if the server will generate it.
    pub name: ByteString,
    /// Namespace of the request; "" for cluster scope.
    pub namespace: ByteString,
    /// Operation on the object.
    pub operation: Operation,
    /// The acting user's name, or "".
    pub username: ByteString,
    /// True if nothing will be stored.
    pub dry_run: bool,
    /// Range in `bytes` of the whole `userInfo`, in the review's own encoding.
    pub user: Option<Range<usize>>,
    /// Range in `bytes` of the object's own encoding; absent on DELETE.
    pub object: Option<Range<usize>>,
    /// Ends of the large objects and arrays in `object`; `None` if they were not recorded.
    pub object_ends: Option<ContainerEnds>,
    /// Range in `bytes` of the stored object's encoding; UPDATE and DELETE only.
    pub old_object: Option<Range<usize>>,
    /// Ends of the large objects and arrays in `old_object`; `None` if they were not recorded.
    pub old_object_ends: Option<ContainerEnds>,
    /// Range in `bytes` of the operation's options.
    pub options: Option<Range<usize>>,
    /// Encoding of `bytes`.
    pub encoding: Encoding,
    /// Range in `bytes` of the AdmissionReview itself: without frame head or envelope.
    pub message: Range<usize>,
    /// The message as received, including frame head or envelope. A hook with the same encoding is sent these bytes.
    pub bytes: Rope,
}

impl Review {
    /// Creates a review with these fields only, without user, object and bytes, for tests and benches of rules.
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
    /// Number that the first Gatepost sends to its hooks.
    pub const FIRST: Self = Self(1);
    /// Number at which a review is refused. Chains of two or three are in use; more is a loop.
    pub const LIMIT: Self = Self(4);

    /// Parses the value of the header: one to three digits, at most 255.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let digits = (1..=3).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
        let number = value.iter().fold(0_u32, |number, digit| number * 10 + u32::from(digit.wrapping_sub(b'0')));
        if digits { number.try_into().ok().map(Self) } else { None }
    }

    /// Returns the number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the number to send to hooks: one more.
    #[must_use]
    pub const fn passed_on(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns true if the review has passed through too many Gateposts and must be refused.
    pub fn is_too_many(self) -> bool {
        self >= Self::LIMIT
    }
}

/// Headers in which a caller describes the trace that its request belongs to. Gatepost passes them on unchanged.
/// Source: W3C Trace Context, W3C Baggage; kube-apiserver sends them to webhooks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext([Option<Box<[u8]>>; 3]);

impl TraceContext {
    /// Names of the headers.
    pub const HEADERS: [&'static str; 3] = ["traceparent", "tracestate", "baggage"];
    /// Maximum length of all values together, in bytes. A header whose value would exceed it is dropped. W3C Baggage
    /// requires at least 8192.
    pub const MAX_BYTES: usize = 8192;

    /// Creates the context from the lines of each header; `None` if there is nothing to pass on. Several lines of one
    /// header are joined by commas. A repeated `traceparent` is invalid, and `tracestate` has no meaning without a
    /// `traceparent`.
    pub fn new<'a, L: Iterator<Item = &'a [u8]>>(lines: impl Fn(&'static str) -> L) -> Option<Arc<Self>> {
        let [parent, state, baggage] = Self::HEADERS;
        let mut left = Self::MAX_BYTES;
        let mut value = |name, max_lines| {
            if lines(name).count() > max_lines {
                return None;
            }
            let value = lines(name).collect::<Vec<_>>().join(&b","[..]);
            left = left.checked_sub(value.len()).filter(|_| !value.is_empty())?;
            Some(value.into_boxed_slice())
        };
        let parent = value(parent, 1);
        let state = parent.as_ref().and_then(|_| value(state, usize::MAX));
        let all = [parent, state, value(baggage, usize::MAX)];
        all.iter().any(Option::is_some).then(|| Arc::new(Self(all)))
    }

    /// Iterates over the names and values of the headers that are present.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        Self::HEADERS.into_iter().zip(&self.0).filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}

/// Headers of the caller that Gatepost passes on to every hook, beside the review: the number of hops, and the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardedContext {
    /// Number of Gateposts that the review has passed through.
    pub hops: Hops,
    /// Trace that the caller's request belongs to; `None` if it belongs to none.
    pub trace: Option<Arc<TraceContext>>,
}

impl ForwardedContext {
    /// Returns the context to send to hooks: with one hop more.
    #[must_use]
    pub fn passed_on(&self) -> Self {
        Self { hops: self.hops.passed_on(), ..self.clone() }
    }
}

impl From<Hops> for ForwardedContext {
    /// Creates a context without a trace.
    fn from(hops: Hops) -> Self {
        Self { hops, trace: None }
    }
}

/// An instant by which something must be done. That of a request is set once, on its arrival, and never recomputed;
/// that of a hook's call is the earlier of the request's and the hook's own ([`Deadline::within`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// Creates the deadline `budget` after `now`.
    pub fn after(now: Instant, budget: Duration) -> Self {
        Self(now + budget)
    }

    /// Returns the time left at `now`; zero if the deadline has passed.
    pub fn left(self, now: Instant) -> Duration {
        self.0.saturating_duration_since(now)
    }

    /// Returns the earlier of this deadline and `now + limit`.
    pub fn within(self, now: Instant, limit: Duration) -> Self {
        Self(self.0.min(now + limit))
    }

    /// Returns the instant of the deadline.
    pub fn instant(self) -> Instant {
        self.0
    }
}

#[cfg(test)]
mod trace_tests {
    use super::*;

    fn context(headers: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        let lines = |name| headers.iter().filter(move |(of, _)| *of == name).map(|(_, line)| line.as_bytes());
        let context = TraceContext::new(lines).unwrap_or_default();
        context.iter().map(|(name, value)| (name, String::from_utf8_lossy(value).into_owned())).collect()
    }

    #[test]
    fn trace_headers_are_passed_on_as_they_came_and_lists_are_joined() {
        let sent = [("traceparent", "00-ab-cd-01"), ("tracestate", "a=1"), ("tracestate", "b=2"), ("baggage", "c=3")];
        let passed = [("traceparent", "00-ab-cd-01"), ("tracestate", "a=1,b=2"), ("baggage", "c=3")];
        assert_eq!(context(&sent), passed.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(context(&[]), []);
    }

    #[test]
    fn tracestate_is_dropped_without_a_single_traceparent() {
        assert_eq!(context(&[("tracestate", "a=1")]), []);
        let twice = [("traceparent", "1"), ("traceparent", "2"), ("tracestate", "a=1"), ("baggage", "c=3")];
        assert_eq!(context(&twice), [("baggage", "c=3".to_owned())]);
    }

    #[test]
    fn trace_headers_beyond_the_bound_are_left_out() {
        let long = "x".repeat(TraceContext::MAX_BYTES);
        assert_eq!(context(&[("traceparent", "1"), ("baggage", &long)]), [("traceparent", "1".to_owned())]);
    }
}

#[cfg(test)]
mod hops_tests {
    use super::*;

    #[test]
    fn hops_header_accepts_only_digits() {
        for (value, hops) in [("0", Some(0)), ("1", Some(1)), ("007", Some(7)), ("255", Some(255))] {
            assert_eq!(Hops::parse(value.as_bytes()).map(Hops::get), hops, "{value}");
        }
        for value in ["", "256", "0001", "-1", "+1", "1 ", "1,2", "x"] {
            assert_eq!(Hops::parse(value.as_bytes()), None, "{value:?}");
        }
    }

    #[test]
    fn hops_reach_limit_and_saturate() {
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
