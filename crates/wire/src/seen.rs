//! Fields seen of a review while its bytes were walked, in whichever encoding, and the reasons why it is none.

use std::ops::Range;

use bytestring::ByteString;

use super::{json::JsonError, walk::WalkError};
use gatepost_api::{ContainerEnds, Encoding, Gvk, Gvr, Operation, Review, Rope, builtin};

/// Reason why a message is not a review. All are the caller's fault.
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
    /// `apiVersion` or `kind` say that the message is something else, or nothing.
    #[error("{0} must be {1}")]
    NotAReview(&'static str, &'static str),
    /// A field has another type than it must have.
    #[error("{field} must be {wanted}")]
    Type {
        /// Its path.
        field: &'static str,
        /// Required type.
        wanted: &'static str,
    },
    /// A field is there twice: two readers might read two different reviews.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// A field that rules are compared with is not there, or holds nothing: fewer hooks would see the request.
    #[error("{0} is missing or empty")]
    Lacks(&'static str),
    /// A resource holds a slash, as rules name subresources.
    #[error("{0} holds a slash: a subresource goes into request.subResource")]
    Slash(&'static str),
    /// The client cannot have asked for another subresource than the caller matched.
    #[error("request.requestSubResource must be the same as request.subResource")]
    OtherSubResource,
    /// A resource of Kubernetes' own is in namespaces, and the request is in none.
    #[error("request.namespace is missing or empty, and {0} is a resource in namespaces")]
    NoNamespace(&'static str),
    /// A resource of Kubernetes' own is in no namespace, and the request is in one.
    #[error("request.namespace must be empty: {0} is a resource in no namespace")]
    Namespace(&'static str),
    /// There is no `request`.
    #[error("the review has no request")]
    NoRequest,
    /// A field is longer than it can be.
    #[error("{0} is longer than {1} bytes")]
    TooLong(&'static str, usize),
    /// `request.uid` is missing.
    #[error("the review's request has no uid")]
    NoUid,
    /// `request.operation` is not one of the four.
    #[error("the review's operation must be CREATE, UPDATE, DELETE or CONNECT")]
    Operation,
}

impl From<WalkError> for ViewError {
    fn from(error: WalkError) -> Self {
        Self::Undecodable(error.0)
    }
}

/// The most bytes of a request's user. Bypass rules look through all of it, one after the other; what proves a user to
/// an apiserver comes in one header and is shorter.
const LONGEST_USER: usize = 1 << 20;

/// Fields of AdmissionRequest seen so far.
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
    /// The review, where all is there that one must have.
    pub(super) fn review(self, bytes: Rope, message: Range<usize>, encoding: Encoding) -> Result<Review, ViewError> {
        if self.uid.is_empty() {
            return Err(ViewError::NoUid);
        }
        if self.user.as_ref().is_some_and(|user| user.len() > LONGEST_USER) {
            return Err(ViewError::TooLong("request.userInfo", LONGEST_USER));
        }
        let operation = Operation::from_name(&self.operation).ok_or(ViewError::Operation)?;
        self.is_whole()?;
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

    /// Is all there that rules and selectors look at, and that every apiserver sends? Only groups may be empty.
    fn is_whole(&self) -> Result<(), ViewError> {
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
        let says_what_was_asked = self.request_resource.is_some() || !self.request_sub_resource.is_empty();
        if says_what_was_asked && self.request_sub_resource != self.sub_resource {
            return Err(ViewError::OtherSubResource);
        }
        self.is_named(&self.resource, "request.resource.resource")?;
        self.request_resource.as_ref().map_or(Ok(()), |made| self.is_named(made, "request.requestResource.resource"))
    }

    /// Can this be what the request is about? Of Kubernetes' own resources it is known which of them are in namespaces;
    /// a Namespace's request may name itself.
    fn is_named(&self, Gvr { group, resource, .. }: &Gvr, field: &'static str) -> Result<(), ViewError> {
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

/// The fields of one message that were met, each of which may be there once.
#[derive(Default)]
pub(super) struct Once(u16);

impl Once {
    /// Notes the field of this number, where it is one of those in `names`, which begin with number 1. Protobuf takes
    /// the last of two, or merges them; who reads another encoding of the same, or stops early, would see something
    /// else.
    pub(super) fn meet(&mut self, number: u32, names: &[&'static str]) -> Result<(), ViewError> {
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
