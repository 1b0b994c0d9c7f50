//! What was seen of a review while its bytes were walked, in whichever encoding, and why it is none.

use std::ops::Range;

use bytestring::ByteString;

use super::{json::JsonError, walk::WalkError};
use crate::model::{Encoding, Gvk, Gvr, Operation, Review, Rope};

/// Why a message is not a review. All are the caller's fault.
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
        /// What it must be.
        wanted: &'static str,
    },
    /// A field is there twice: two readers might read two different reviews.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// There is no `request`.
    #[error("the review has no request")]
    NoRequest,
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

/// What was seen of AdmissionRequest so far.
#[derive(Default)]
pub(super) struct Seen {
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
    pub(super) old_object: Option<Range<usize>>,
    pub(super) dry_run: bool,
    pub(super) options: Option<Range<usize>>,
    pub(super) request_kind: Option<Gvk>,
    pub(super) request_resource: Option<Gvr>,
    pub(super) request_sub_resource: ByteString,
}

impl Seen {
    /// The review, where all is there that one must have.
    pub(super) fn review(self, bytes: Rope, message: Range<usize>, encoding: Encoding) -> Result<Review, ViewError> {
        if self.uid.is_empty() {
            return Err(ViewError::NoUid);
        }
        let operation = Operation::from_name(&self.operation).ok_or(ViewError::Operation)?;
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
            old_object: self.old_object,
            options: self.options,
            encoding,
            message,
            bytes,
        })
    }
}
