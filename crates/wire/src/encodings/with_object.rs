//! A review about another object: the review for hooks behind one that has changed it.

use std::ops::Range;

use super::json;
use crate::pieces::Pieces;
use gatepost_api::{CallFailure, Encoding, Review, ReviewVersion, Rope};

/// The same review about `object`, which is one JSON object. Neither object is copied.
///
/// A review that arrived in protobuf is in JSON from then on: there the object's length stands in front of everything
/// around it.
///
/// # Errors
/// `Unwritable`: it has no object, or what arrived in protobuf is not JSON inside.
pub fn with_object(review: &Review, object: &Rope) -> Result<Review, CallFailure> {
    let written;
    let (review, place) = match (review.encoding, &review.object) {
        (_, None) => return Err(CallFailure::Unwritable("it has no object".into())),
        (Encoding::Json(_), Some(place)) => (review, place.clone()),
        (Encoding::Grpc | Encoding::Envelope(_), Some(_)) => {
            json::others_are_fit(review)?;
            written = json::written(review, ReviewVersion::V1)?;
            match &written.object {
                Some(place) => (&written, place.clone()),
                None => return Err(CallFailure::Unwritable("it has no object".into())),
            }
        }
    };
    let mut pieces = Pieces::default();
    pieces.share(&review.bytes, 0..place.start);
    pieces.share(object, 0..object.len());
    pieces.share(&review.bytes, place.end..review.bytes.len());
    // Ranges behind the object move with its end; nothing overlaps it.
    let moved = |at: usize| if at >= place.end { at - place.end + place.start + object.len() } else { at };
    let place_of = |range: &Option<Range<usize>>| range.clone().map(|range| moved(range.start)..moved(range.end));
    Ok(Review {
        user: place_of(&review.user),
        object: Some(place.start..place.start + object.len()),
        object_ends: None,
        old_object: place_of(&review.old_object),
        options: place_of(&review.options),
        message: moved(review.message.start)..moved(review.message.end),
        bytes: pieces.rope(),
        ..review.clone()
    })
}
