//! Objects of a review in Kubernetes' protobuf envelope, as in `proto/gatepost/v1/protobuf_admission.proto`.
//!
//! Only the envelope and the object's labels are read, without a schema: every object has its `metadata` in field 1. An
//! object is told by its first bytes, which no JSON has.

use std::ops::Range;

use gatepost_api::{Labels, Review, Rope};

use super::{
    envelope::{MAGIC, Unknown},
    labels::LabelsBuilder,
    walk::{Value, WRONG_WIRE_TYPE, Walk, WalkError},
};

/// Content type of the message in an envelope; absent as Go's serializer writes it.
const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Returns true if the object or the old object of the review is in protobuf.
pub fn has_any(review: &Review) -> bool {
    [&review.object, &review.old_object].into_iter().flatten().any(|place| is_protobuf(&review.bytes, place))
}

/// Returns true if the object in `range` is in protobuf.
pub(super) fn is_protobuf(rope: &Rope, range: &Range<usize>) -> bool {
    range.len() >= MAGIC.len() && rope.slices(range.start..range.start + MAGIC.len()).flatten().eq(MAGIC.iter())
}

/// Checks the objects of the review that are in protobuf: each is a message with metadata, of the review's kind. A hook
/// would decode another kind as what the envelope says.
///
/// # Errors
/// What is wrong, without a quotation of the object.
pub fn check(review: &Review) -> Result<(), String> {
    let objects = [("object", &review.object), ("oldObject", &review.old_object)];
    for (field, place) in objects.into_iter().filter_map(|(field, place)| Some((field, place.clone()?))) {
        if is_protobuf(&review.bytes, &place) {
            let object = ProtobufObject::read(&review.bytes, place).map_err(|why| format!("request.{field}: {why}"))?;
            object.check_kind(review).map_err(|why| format!("request.{field}: {why}"))?;
        }
    }
    Ok(())
}

/// Returns the labels of the object in `range`, which is in protobuf.
///
/// # Errors
/// The object is malformed, or has too many labels.
pub(super) fn labels(rope: &Rope, range: Range<usize>) -> Result<Labels, String> {
    const NUMBER: u32 = 11;
    let ProtobufObject { rope, metadata, .. } = ProtobufObject::read(rope, range)?;
    let mut labels = LabelsBuilder::default();
    let mut fields = Walk::over(&rope, metadata);
    while let Some((number, value)) = fields.next().map_err(malformed)? {
        match (number, value) {
            (NUMBER, Value::Bytes(at)) => {
                let (key, value) = entry(fields.inside(at)).map_err(malformed)?;
                if !labels.add(key, value) {
                    return Err(format!("the object cannot be read: metadata.labels must be {}", LabelsBuilder::LIMIT));
                }
            }
            (NUMBER, _) => return Err(malformed(WRONG_WIRE_TYPE)),
            _ => {}
        }
    }
    Ok(labels.labels())
}

/// An object in protobuf, as far as it is read.
struct ProtobufObject {
    rope: Rope,
    envelope: Unknown,
    /// Range of the metadata in the rope.
    metadata: Range<usize>,
}

impl ProtobufObject {
    /// Reads the envelope in `range`, and finds the metadata in its message.
    fn read(rope: &Rope, range: Range<usize>) -> Result<Self, String> {
        let rope = Rope::new(rope.shared(range).collect::<Vec<_>>());
        let envelope = Unknown::read(&rope).map_err(|error| error.to_string())?;
        if !envelope.encoding.is_empty() {
            return Err("the message in the envelope is encoded once more (contentEncoding)".to_owned());
        }
        if !matches!(&*envelope.content_type, "" | CONTENT_TYPE) {
            return Err(format!("the message in the envelope must be {CONTENT_TYPE} (contentType)"));
        }
        let (mut fields, mut metadata) = (Walk::over(&rope, envelope.raw.clone()), None);
        while let Some((number, value)) = fields.next().map_err(malformed)? {
            match (number, value, &metadata) {
                (1, Value::Bytes(at), None) => metadata = Some(at),
                (1, _, Some(_)) => return Err("the object's metadata is given twice".to_owned()),
                (1, ..) => return Err(malformed(WRONG_WIRE_TYPE)),
                _ => {}
            }
        }
        // Go's serializer always writes it. Without labels, hooks with an objectSelector would be skipped.
        let metadata = metadata.ok_or_else(|| "the object has no metadata".to_owned())?;
        Ok(Self { rope, envelope, metadata })
    }

    fn check_kind(&self, review: &Review) -> Result<(), String> {
        let Unknown { api_version, kind, .. } = &self.envelope;
        let wanted = &review.kind;
        let is_version = match &*wanted.group {
            "" => **api_version == *wanted.version,
            group => api_version.split_once('/') == Some((group, &*wanted.version)),
        };
        match is_version && **kind == *wanted.kind {
            true => Ok(()),
            false => Err("the envelope's apiVersion and kind must be those of request.kind".to_owned()),
        }
    }
}

fn malformed(WalkError(why): WalkError) -> String {
    format!("the object is not protobuf: {why}")
}

/// Returns the key and the value of a map's entry.
fn entry(mut entry: Walk<'_>) -> Result<(String, String), WalkError> {
    let mut pair = [String::new(), String::new()];
    while let Some((number, value)) = entry.next()? {
        match (number, value) {
            (1 | 2, Value::Bytes(at)) => pair[number as usize - 1] = entry.text(at)?.to_string(),
            (1 | 2, _) => return Err(WRONG_WIRE_TYPE),
            _ => {}
        }
    }
    let [key, value] = pair;
    Ok((key, value))
}

#[cfg(test)]
mod tests;
