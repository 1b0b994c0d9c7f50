//! Views a gRPC message as a [`Review`], without building it.
//!
//! The protobuf is read field by field from the pieces it arrived in. Short fields are read; the object, the old object
//! and the options are skipped, and only their ranges are recorded. As in protobuf, fields may come in any order, and
//! unknown fields are skipped and so forwarded to the hooks. Unlike in protobuf, a known field given twice is rejected.

use std::ops::Range;

use bytestring::ByteString;

pub use super::seen::ViewError;
use super::{
    seen::{RequestFields, SeenFields},
    walk::{Field, Value, Walk},
};
use gatepost_api::{Encoding, Gvk, Gvr, Review, Rope};

/// Length of the frame header of a gRPC message: one flag byte and the message's length as four bytes, big-endian.
pub const FRAME_HEAD: usize = 5;

/// Fields of AdmissionRequest, from number 1.
const REQUEST: [&str; 15] = [
    "request.uid",
    "request.kind",
    "request.resource",
    "request.subResource",
    "request.name",
    "request.namespace",
    "request.operation",
    "request.userInfo",
    "request.object",
    "request.oldObject",
    "request.dryRun",
    "request.options",
    "request.requestKind",
    "request.requestResource",
    "request.requestSubResource",
];
/// Fields of UserInfo that may occur once, from number 1. `groups` and `extra` are repeated.
const USER: [&str; 2] = ["request.userInfo.username", "request.userInfo.uid"];

/// Views one gRPC message, including its frame header, as a review.
///
/// # Errors
/// [`ViewError`] describes the fault and never quotes the message.
pub fn view(message: Rope) -> Result<Review, ViewError> {
    let body = FRAME_HEAD..message.len();
    review(message, body, Encoding::Grpc)
}

/// Views the protobuf AdmissionReview in `body` of `message`.
pub(super) fn review(message: Rope, body: Range<usize>, encoding: Encoding) -> Result<Review, ViewError> {
    let seen = RequestFields::read(&message, body.clone())?.ok_or(ViewError::NoRequest)?;
    seen.review(message, body, encoding)
}

/// Field numbers: `proto/k8s.io/api/admission/v1/generated.proto`.
impl RequestFields {
    /// Reads an AdmissionReview; `None` if it has no request.
    fn read(rope: &Rope, range: Range<usize>) -> Result<Option<Self>, ViewError> {
        let (mut seen, mut met) = (None::<Self>, SeenFields::default());
        let mut review = Walk::over(rope, range);
        while let Some(field) = review.next()? {
            met.record(field.number, &["request"])?;
            match (field.number, field.value) {
                (1, Value::Bytes(request)) => seen.get_or_insert_default().request(review.inside(request))?,
                (1 | 2, value) => value.expect_bytes()?,
                _ => {}
            }
        }
        Ok(seen)
    }

    fn request(&mut self, mut walk: Walk<'_>) -> Result<(), ViewError> {
        let mut met = SeenFields::default();
        while let Some(Field { number, value }) = walk.next()? {
            met.record(number, &REQUEST)?;
            match (number, value) {
                (1, Value::Bytes(at)) => self.uid = walk.text(at)?,
                (2, Value::Bytes(at)) => gvk(walk.inside(at), &mut self.kind, KIND)?,
                (3, Value::Bytes(at)) => gvr(walk.inside(at), &mut self.resource, RESOURCE)?,
                (4, Value::Bytes(at)) => self.sub_resource = walk.text(at)?,
                (5, Value::Bytes(at)) => self.name = walk.text(at)?,
                (6, Value::Bytes(at)) => self.namespace = walk.text(at)?,
                (7, Value::Bytes(at)) => self.operation = walk.text(at)?,
                (8, Value::Bytes(at)) => {
                    self.user = Some(at.clone());
                    username(walk.inside(at), &mut self.username)?;
                }
                (9, Value::Bytes(at)) => raw(walk.inside(at), &mut self.object, "request.object.raw")?,
                (10, Value::Bytes(at)) => raw(walk.inside(at), &mut self.old_object, "request.oldObject.raw")?,
                (11, Value::Number(flag)) => self.dry_run = flag != 0,
                (12, Value::Bytes(at)) => raw(walk.inside(at), &mut self.options, "request.options.raw")?,
                (13, Value::Bytes(at)) => {
                    gvk(walk.inside(at), self.request_kind.get_or_insert_default(), REQUEST_KIND)?
                }
                (14, Value::Bytes(at)) => {
                    gvr(walk.inside(at), self.request_resource.get_or_insert_default(), REQUEST_RESOURCE)?
                }
                (15, Value::Bytes(at)) => self.request_sub_resource = walk.text(at)?,
                (1..=10 | 12..=15, value) => value.expect_bytes()?,
                (11, _) => return Err(ViewError::Undecodable("a field has the wrong wire type")),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Paths of the three fields of a GroupVersionKind or a GroupVersionResource.
type Three = [&'static str; 3];

const KIND: Three = ["request.kind.group", "request.kind.version", "request.kind.kind"];
const RESOURCE: Three = ["request.resource.group", "request.resource.version", "request.resource.resource"];
const REQUEST_KIND: Three = ["request.requestKind.group", "request.requestKind.version", "request.requestKind.kind"];
const REQUEST_RESOURCE: Three =
    ["request.requestResource.group", "request.requestResource.version", "request.requestResource.resource"];

fn gvk(walk: Walk<'_>, gvk: &mut Gvk, names: Three) -> Result<(), ViewError> {
    three(walk, [&mut gvk.group, &mut gvk.version, &mut gvk.kind], names)
}

fn gvr(walk: Walk<'_>, gvr: &mut Gvr, names: Three) -> Result<(), ViewError> {
    three(walk, [&mut gvr.group, &mut gvr.version, &mut gvr.resource], names)
}

fn three(mut walk: Walk<'_>, parts: [&mut ByteString; 3], names: Three) -> Result<(), ViewError> {
    let mut met = SeenFields::default();
    while let Some(Field { number, value }) = walk.next()? {
        met.record(number, &names)?;
        match (number, value) {
            (1..=3, Value::Bytes(at)) => *parts[number as usize - 1] = walk.text(at)?,
            (1..=3, value) => value.expect_bytes()?,
            _ => {}
        }
    }
    Ok(())
}

fn username(mut walk: Walk<'_>, username: &mut ByteString) -> Result<(), ViewError> {
    let mut met = SeenFields::default();
    while let Some(Field { number, value }) = walk.next()? {
        met.record(number, &USER)?;
        match (number, value) {
            (1, Value::Bytes(at)) => *username = walk.text(at)?,
            (1..=4, value) => value.expect_bytes()?,
            _ => {}
        }
    }
    Ok(())
}

/// Records the range of a RawExtension's `raw`. An empty `raw` is no object: Go's marshaller of these messages always
/// writes all three extensions, and an unset one is empty.
fn raw(mut walk: Walk<'_>, place: &mut Option<Range<usize>>, name: &'static str) -> Result<(), ViewError> {
    let mut met = SeenFields::default();
    while let Some(Field { number, value }) = walk.next()? {
        met.record(number, &[name])?;
        match (number, value) {
            (1, Value::Bytes(at)) => *place = Some(at).filter(|at| !at.is_empty()),
            (1, value) => value.expect_bytes()?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
