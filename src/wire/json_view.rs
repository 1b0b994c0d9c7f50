//! Placeholder until the `wire` branch is merged: a JSON review, decoded.
#![allow(missing_docs)]

use bytes::Bytes;
use prost::Message;

use super::{
    inbound::{self, ViewError},
    review_json,
};
use crate::model::{Encoding, Review, ReviewVersion, Rope};

pub fn view(text: Bytes) -> Result<Review, ViewError> {
    let review = review_json::from_json(&text).map_err(|_| ViewError::Undecodable("not JSON"))?;
    let bytes: Bytes = review.encode_to_vec().into();
    let len = bytes.len();
    inbound::review(Rope::new([bytes]), 0..len, Encoding::Json(ReviewVersion::V1))
}
