//! Fields collected from the bytes of a review in any encoding, and reasons why a message is not a review.

use std::ops::Range;

use bytestring::ByteString;

use super::{json::JsonError, walk::WalkError};
use gatepost_api::{ContainerEnds, Encoding, Gvk, Gvr, Operation, Review, Rope, builtin};

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
mod tests;
