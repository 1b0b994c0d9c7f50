//! A gRPC message to a [`Review`]: viewed, not rebuilt.

use crate::model::{Review, Rope};

/// Why a message is not a review. All are the caller's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The bytes are not a protobuf AdmissionReview.
    #[error("the message is not a protobuf AdmissionReview: {0}")]
    Undecodable(&'static str),
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

/// Length of a gRPC message's frame head.
pub const FRAME_HEAD: usize = 5;

/// Views one gRPC message, frame head included, as a review.
pub fn view(_message: Rope) -> Result<Review, ViewError> {
    Err(ViewError::NoRequest)
}
