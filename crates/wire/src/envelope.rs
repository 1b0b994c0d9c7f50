//! Kubernetes' protobuf envelope: four magic bytes, and a `runtime.Unknown` that contains the message.
//!
//! Source: `k8s.io/apimachinery/pkg/runtime/serializer/protobuf` and `runtime/generated.proto`.

use std::ops::Range;

use super::{
    inbound::{self, ViewError, read_fields},
    json_view::{KIND, version},
    walk::{Pieces, Walk, field_len},
};
use gatepost_api::{Encoding, Review, ReviewVersion, Rope};

/// First bytes of every message in an envelope.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// Views a message in an envelope as a review.
///
/// # Errors
/// [`ViewError`] describes the fault and never quotes the message.
pub fn view(message: Rope) -> Result<Review, ViewError> {
    let unknown = Unknown::read(&message)?;
    if !unknown.encoding.is_empty() {
        return Err(ViewError::Envelope("the message in it is encoded once more (contentEncoding)"));
    }
    let version = version(&unknown.api_version, &unknown.kind)?;
    inbound::review(message, unknown.raw, Encoding::Envelope(version))
}

/// `runtime.Unknown`. Its message is only located.
#[derive(Default)]
pub(super) struct Unknown {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) raw: Range<usize>,
    pub(super) encoding: String,
    pub(super) content_type: String,
}

impl Unknown {
    /// Reads an envelope.
    pub(super) fn read(rope: &Rope) -> Result<Self, ViewError> {
        if rope.copy_of(0..MAGIC.len().min(rope.len()))[..] != MAGIC[..] {
            return Err(ViewError::Envelope("it must begin with the bytes 6b 38 73 00"));
        }
        const UNKNOWN: [&str; 4] = [
            "the envelope's typeMeta",
            "the envelope's raw",
            "the envelope's contentEncoding",
            "the envelope's contentType",
        ];
        const TYPE_META: [&str; 2] = ["the envelope's apiVersion", "the envelope's kind"];
        // Without `raw`, the message is empty.
        let mut unknown = Self { raw: rope.len()..rope.len(), ..Self::default() };
        let walk = Walk::over(rope, MAGIC.len()..rope.len());
        let read = read_fields(walk, &UNKNOWN, 4, |number, at| {
            match number {
                1 => read_fields(walk.inside(at), &TYPE_META, 2, |number, at| {
                    let field = if number == 1 { &mut unknown.api_version } else { &mut unknown.kind };
                    *field = walk.text(at)?.to_string();
                    Ok(())
                })?,
                2 => unknown.raw = at,
                3 => unknown.encoding = walk.text(at)?.to_string(),
                4 => unknown.content_type = walk.text(at)?.to_string(),
                _ => {}
            }
            Ok(())
        });
        read.map_err(|error| match error {
            ViewError::Undecodable(why) => ViewError::Envelope(why),
            other => other,
        })?;
        Ok(unknown)
    }
}

/// Wraps the message in `range` of `rope` in an envelope, byte for byte as Go's serializer does.
pub(super) fn wrap(version: ReviewVersion, rope: &Rope, range: Range<usize>) -> Rope {
    let api_version = version.api_version();
    let mut pieces = Pieces::default();
    pieces.own(MAGIC);
    pieces.field(1, field_len(api_version.len()) + field_len(KIND.len()));
    pieces.field(1, api_version.len());
    pieces.own(api_version);
    pieces.field(2, KIND.len());
    pieces.own(KIND);
    pieces.field(2, range.len());
    pieces.share(rope, range);
    pieces.field(3, 0);
    pieces.field(4, 0);
    pieces.rope()
}
