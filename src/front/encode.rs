//! Encode: a verdict in its review's own words: encoding, version and uid.

use bytes::Bytes;

use crate::{
    model::{Encoding, Review, Verdict},
    offload,
    wire::outbound,
};

/// Writes a verdict, beside the worker where it is large: a patch may have megabytes.
pub(super) async fn encode(review: Review, verdict: Verdict) -> Bytes {
    let annotations = verdict.audit_annotations.iter().map(|(key, value)| key.len() + value.len());
    let size = verdict.patch.as_ref().map_or(0, Bytes::len) + annotations.sum::<usize>();
    offload::run(size, move || match review.encoding {
        Encoding::Json(version) => outbound::json(version, &review.uid, &verdict),
        Encoding::Envelope(version) => outbound::envelope(version, &review.uid, &verdict),
        Encoding::Grpc => outbound::encode(&review.uid, &verdict),
    })
    .await
}
