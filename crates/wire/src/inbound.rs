//! Views a gRPC message as a [`Review`], without building it.
//!
//! The protobuf is read field by field from the pieces it arrived in. Short fields are read; the object, the old object
//! and the options are skipped, and only their ranges are recorded. As in protobuf, fields may come in any order, and
//! unknown fields are skipped and so forwarded to the hooks. Unlike in protobuf, a known field given twice is rejected.

use std::ops::Range;

use bytestring::ByteString;
use gatepost_api::{ContainerEnds, Encoding, Gvk, Gvr, Operation, Review, Rope, builtin};

use super::{
    json::{JsonError, JsonReadError},
    walk::{Value, WRONG_WIRE_TYPE, Walk, WalkError},
};

/// Reason why a message is not a review. Each is the caller's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The bytes are not a protobuf AdmissionReview.
    #[error("the message is not a protobuf AdmissionReview: {0}")]
    Undecodable(&'static str),
    /// The bytes are not Kubernetes' protobuf envelope.
    #[error("the message is not in Kubernetes' protobuf envelope: {0}")]
    Envelope(&'static str),
    /// The bytes are not UTF-8, so they cannot be JSON.
    #[error("the message is not JSON: it is not UTF-8 from byte {0} on")]
    NotUtf8(usize),
    /// The bytes are not JSON.
    #[error("the message is not JSON at {0}")]
    NotJson(#[from] JsonError),
    /// `apiVersion` or `kind` is absent or not that of a review.
    #[error("{0} must be {1}")]
    NotAReview(&'static str, &'static str),
    /// A field has the wrong type.
    #[error("{field} must be {wanted}")]
    Type {
        /// Path of the field.
        field: &'static str,
        /// Required type.
        wanted: &'static str,
    },
    /// A field occurs twice, so two readers might see different reviews.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// A field that rules match is missing or empty, so fewer hooks would match the request.
    #[error("{0} is missing or empty")]
    Lacks(&'static str),
    /// A resource contains a slash. Only rules name subresources in this way.
    #[error("{0} holds a slash: a subresource goes into request.subResource")]
    Slash(&'static str),
    /// The subresource of the client's request differs from the one that the caller matched, which is impossible.
    #[error("request.requestSubResource must be the same as request.subResource")]
    OtherSubResource,
    /// A built-in resource is namespaced, and the request has no namespace.
    #[error("request.namespace is missing or empty, and {0} is a resource in namespaces")]
    NoNamespace(&'static str),
    /// A built-in resource is cluster-scoped, and the request has a namespace.
    #[error("request.namespace must be empty: {0} is a resource in no namespace")]
    Namespace(&'static str),
    /// There is no `request`.
    #[error("the review has no request")]
    NoRequest,
    /// A field exceeds its maximum length.
    #[error("{0} is longer than {1} bytes")]
    TooLong(&'static str, usize),
    /// `request.uid` is missing.
    #[error("the review's request has no uid")]
    NoUid,
    /// `request.operation` is not one of the four operations.
    #[error("the review's operation must be CREATE, UPDATE, DELETE or CONNECT")]
    Operation,
}

impl From<WalkError> for ViewError {
    fn from(error: WalkError) -> Self {
        Self::Undecodable(error.0)
    }
}

impl From<JsonReadError> for ViewError {
    fn from(error: JsonReadError) -> Self {
        match error {
            JsonReadError::Json(error) => Self::NotJson(error),
            JsonReadError::Type { field, wanted } => Self::Type { field, wanted },
        }
    }
}

/// Length of the frame header of a gRPC message: one flag byte and the message's length as four bytes, big-endian.
pub const FRAME_HEAD: usize = 5;

/// Fields of AdmissionRequest, from number 1.
pub(super) const REQUEST: [&str; 15] = [
    "request.uid",
    "request.kind",
    "request.resource",
    "request.subResource",
    "request.name",
    "request.namespace",
    "request.operation",
    "request.userInfo",
    "request.object",
    "request.oldObject",
    "request.dryRun",
    "request.options",
    "request.requestKind",
    "request.requestResource",
    "request.requestSubResource",
];
/// Fields of UserInfo that may occur once, from number 1. `groups` and `extra` are repeated.
const USER: [&str; 2] = ["request.userInfo.username", "request.userInfo.uid"];

/// Views one gRPC message, including its frame header, as a review.
///
/// # Errors
/// [`ViewError`] describes the fault and never quotes the message.
pub fn view(message: Rope) -> Result<Review, ViewError> {
    let body = FRAME_HEAD..message.len();
    review(message, body, Encoding::Grpc)
}

/// Views the protobuf AdmissionReview in `body` of `message`. Field numbers:
/// `proto/k8s.io/api/admission/v1/generated.proto`.
pub(super) fn review(message: Rope, body: Range<usize>, encoding: Encoding) -> Result<Review, ViewError> {
    let mut request = None::<RequestFields>;
    let walk = Walk::over(&message, body.clone());
    read_fields(walk, &["request"], 2, |number, at| match number {
        1 => request.get_or_insert_default().request(walk.inside(at)),
        _ => Ok(()),
    })?;
    request.ok_or(ViewError::NoRequest)?.review(message, body, encoding)
}

impl RequestFields {
    fn request(&mut self, mut walk: Walk<'_>) -> Result<(), ViewError> {
        let mut seen = SeenFields::default();
        while let Some((number, value)) = walk.next()? {
            seen.record(number, &REQUEST)?;
            match (number, value) {
                (1, Value::Bytes(at)) => self.uid = walk.text(at)?,
                (2, Value::Bytes(at)) => gvk(walk.inside(at), &mut self.kind, KIND)?,
                (3, Value::Bytes(at)) => gvr(walk.inside(at), &mut self.resource, RESOURCE)?,
                (4, Value::Bytes(at)) => self.sub_resource = walk.text(at)?,
                (5, Value::Bytes(at)) => self.name = walk.text(at)?,
                (6, Value::Bytes(at)) => self.namespace = walk.text(at)?,
                (7, Value::Bytes(at)) => self.operation = walk.text(at)?,
                (8, Value::Bytes(at)) => {
                    self.user = Some(at.clone());
                    username(walk.inside(at), &mut self.username)?;
                }
                (9, Value::Bytes(at)) => raw(walk.inside(at), &mut self.object, "request.object.raw")?,
                (10, Value::Bytes(at)) => raw(walk.inside(at), &mut self.old_object, "request.oldObject.raw")?,
                (11, Value::Number(flag)) => self.dry_run = flag != 0,
                (12, Value::Bytes(at)) => raw(walk.inside(at), &mut self.options, "request.options.raw")?,
                (13, Value::Bytes(at)) => {
                    gvk(walk.inside(at), self.request_kind.get_or_insert_default(), REQUEST_KIND)?
                }
                (14, Value::Bytes(at)) => {
                    gvr(walk.inside(at), self.request_resource.get_or_insert_default(), REQUEST_RESOURCE)?
                }
                (15, Value::Bytes(at)) => self.request_sub_resource = walk.text(at)?,
                (1..=15, _) => return Err(WRONG_WIRE_TYPE.into()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Paths of the three fields of a GroupVersionKind or a GroupVersionResource.
pub(super) type Three = [&'static str; 3];

pub(super) const KIND: Three = ["request.kind.group", "request.kind.version", "request.kind.kind"];
pub(super) const RESOURCE: Three = ["request.resource.group", "request.resource.version", "request.resource.resource"];
pub(super) const REQUEST_KIND: Three =
    ["request.requestKind.group", "request.requestKind.version", "request.requestKind.kind"];
pub(super) const REQUEST_RESOURCE: Three =
    ["request.requestResource.group", "request.requestResource.version", "request.requestResource.resource"];

fn gvk(walk: Walk<'_>, gvk: &mut Gvk, names: Three) -> Result<(), ViewError> {
    three(walk, [&mut gvk.group, &mut gvk.version, &mut gvk.kind], names)
}

fn gvr(walk: Walk<'_>, gvr: &mut Gvr, names: Three) -> Result<(), ViewError> {
    three(walk, [&mut gvr.group, &mut gvr.version, &mut gvr.resource], names)
}

fn three(walk: Walk<'_>, parts: [&mut ByteString; 3], names: Three) -> Result<(), ViewError> {
    read_fields(walk, &names, 3, |number, at| {
        *parts[number as usize - 1] = walk.text(at)?;
        Ok(())
    })
}

fn username(walk: Walk<'_>, username: &mut ByteString) -> Result<(), ViewError> {
    read_fields(walk, &USER, 4, |number, at| {
        if number == 1 {
            *username = walk.text(at)?;
        }
        Ok(())
    })
}

/// Records the range of a RawExtension's `raw`. An empty `raw` is no object: Go's marshaller of these messages always
/// writes all three extensions, and an unset one is empty.
fn raw(walk: Walk<'_>, place: &mut Option<Range<usize>>, name: &'static str) -> Result<(), ViewError> {
    read_fields(walk, &[name], 1, |_, at| {
        *place = Some(at).filter(|at| !at.is_empty());
        Ok(())
    })
}

/// Calls `read` with the number and the range of each field up to number `last`. All of them must be bytes. Those in
/// `names`, which begin with number 1, may occur once.
pub(super) fn read_fields(
    mut walk: Walk<'_>,
    names: &[&'static str],
    last: u32,
    mut read: impl FnMut(u32, Range<usize>) -> Result<(), ViewError>,
) -> Result<(), ViewError> {
    let mut seen = SeenFields::default();
    while let Some((number, value)) = walk.next()? {
        seen.record(number, names)?;
        match value {
            _ if number > last => {}
            Value::Bytes(at) => read(number, at)?,
            _ => return Err(WRONG_WIRE_TYPE.into()),
        }
    }
    Ok(())
}

/// Maximum size of a request's user in bytes. Each bypass rule scans all of it. A real user is smaller, because its
/// credentials fit into one HTTP header.
const MAX_USER_BYTES: usize = 1 << 20;

/// Fields of AdmissionRequest read so far.
#[derive(Default)]
pub(super) struct RequestFields {
    pub(super) uid: ByteString,
    pub(super) kind: Gvk,
    pub(super) resource: Gvr,
    pub(super) sub_resource: ByteString,
    pub(super) name: ByteString,
    pub(super) namespace: ByteString,
    pub(super) operation: ByteString,
    pub(super) username: ByteString,
    pub(super) user: Option<Range<usize>>,
    pub(super) object: Option<Range<usize>>,
    pub(super) object_ends: Option<ContainerEnds>,
    pub(super) old_object: Option<Range<usize>>,
    pub(super) old_object_ends: Option<ContainerEnds>,
    pub(super) dry_run: bool,
    pub(super) options: Option<Range<usize>>,
    pub(super) request_kind: Option<Gvk>,
    pub(super) request_resource: Option<Gvr>,
    pub(super) request_sub_resource: ByteString,
}

impl RequestFields {
    /// Returns the review. Fails if a required field is missing or invalid.
    pub(super) fn review(self, bytes: Rope, message: Range<usize>, encoding: Encoding) -> Result<Review, ViewError> {
        if self.uid.is_empty() {
            return Err(ViewError::NoUid);
        }
        if self.user.as_ref().is_some_and(|user| user.len() > MAX_USER_BYTES) {
            return Err(ViewError::TooLong("request.userInfo", MAX_USER_BYTES));
        }
        let operation = Operation::from_name(&self.operation).ok_or(ViewError::Operation)?;
        self.check_required()?;
        Ok(Review {
            uid: self.uid,
            kind: self.kind,
            resource: self.resource,
            sub_resource: self.sub_resource,
            request_kind: self.request_kind,
            request_resource: self.request_resource,
            request_sub_resource: self.request_sub_resource,
            name: self.name,
            namespace: self.namespace,
            operation,
            username: self.username,
            dry_run: self.dry_run,
            user: self.user,
            object: self.object,
            object_ends: self.object_ends,
            old_object: self.old_object,
            old_object_ends: self.old_object_ends,
            options: self.options,
            encoding,
            message,
            bytes,
        })
    }

    /// Checks the fields that rules and selectors use and that every apiserver sends. Only groups may be empty.
    fn check_required(&self) -> Result<(), ViewError> {
        let given = |text: &str, field| if text.is_empty() { Err(ViewError::Lacks(field)) } else { Ok(()) };
        given(&self.kind.version, "request.kind.version")?;
        given(&self.kind.kind, "request.kind.kind")?;
        given(&self.resource.version, "request.resource.version")?;
        given(&self.resource.resource, "request.resource.resource")?;
        if let Some(kind) = &self.request_kind {
            given(&kind.version, "request.requestKind.version")?;
            given(&kind.kind, "request.requestKind.kind")?;
        }
        if let Some(resource) = &self.request_resource {
            given(&resource.version, "request.requestResource.version")?;
            given(&resource.resource, "request.requestResource.resource")?;
        }
        let has_original_resource = self.request_resource.is_some() || !self.request_sub_resource.is_empty();
        if has_original_resource && self.request_sub_resource != self.sub_resource {
            return Err(ViewError::OtherSubResource);
        }
        self.check_resource(&self.resource, "request.resource.resource")?;
        self.request_resource
            .as_ref()
            .map_or(Ok(()), |made| self.check_resource(made, "request.requestResource.resource"))
    }

    /// Checks the name of a resource, and the namespace of the request if the resource is built in. A request for a
    /// Namespace may have that namespace.
    fn check_resource(&self, Gvr { group, resource, .. }: &Gvr, field: &'static str) -> Result<(), ViewError> {
        if resource.contains('/') {
            return Err(ViewError::Slash(field));
        }
        match builtin(group, resource) {
            Some(known) if known.namespaced && self.namespace.is_empty() => Err(ViewError::NoNamespace(known.resource)),
            Some(known) if !known.namespaced && !self.namespace.is_empty() && resource != "namespaces" => {
                Err(ViewError::Namespace(known.resource))
            }
            _ => Ok(()),
        }
    }
}

/// Fields of one message that have occurred. Each may occur once.
#[derive(Default)]
pub(super) struct SeenFields(u16);

impl SeenFields {
    /// Records the field with this number if it is in `names`, which begin with number 1. Fails if it occurs again:
    /// protobuf takes the last of two or merges them, but a reader of another encoding, or one that stops early, would
    /// see something else.
    pub(super) fn record(&mut self, number: u32, names: &[&'static str]) -> Result<(), ViewError> {
        let Some(name) = (number as usize).checked_sub(1).and_then(|number| names.get(number)) else { return Ok(()) };
        let bit = 1 << (number - 1);
        if self.0 & bit != 0 {
            return Err(ViewError::Twice(name));
        }
        self.0 |= bit;
        Ok(())
    }
}

#[cfg(test)]
mod review_tests;
#[cfg(test)]
mod tests;
