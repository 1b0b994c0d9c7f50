//! Views an AdmissionReview in JSON as a [`Review`], without building it.
//!
//! Short fields share the body's buffer. The object, the old object and the options are checked to be JSON objects;
//! only their ranges are recorded, and for the two objects also the ends of their large containers. As in Go's decoder,
//! keys are case-sensitive, unknown keys are skipped, and `null` equals an absent field. Unlike in Go's decoder, a
//! field given twice is rejected, because every reader of the forwarded bytes must see the same review.

use bytes::Bytes;
use bytestring::ByteString;

pub use super::inbound::ViewError;
use super::{
    inbound::{
        KIND as KIND_FIELDS, REQUEST, REQUEST_KIND, REQUEST_RESOURCE, RESOURCE, RequestFields, SeenFields, Three,
    },
    json::{Cursor, EndsRecorder},
    user::{self, once},
};
use gatepost_api::{ContainerEnds, Encoding, Gvk, Gvr, Review, ReviewVersion, Rope};

/// `kind` of a review in both versions.
pub(super) const KIND: &str = "AdmissionReview";

/// Views a JSON body as a review.
///
/// # Errors
/// [`ViewError`] describes the fault and never quotes the body.
pub fn view(body: Bytes) -> Result<Review, ViewError> {
    let text = ByteString::try_from(body.clone()).map_err(|_| {
        ViewError::NotUtf8(std::str::from_utf8(&body).map_or_else(|error| error.valid_up_to(), str::len))
    })?;
    let (version, fields) = read_review(&text)?;
    let len = body.len();
    fields.review(Rope::new([body]), 0..len, Encoding::Json(version))
}

/// Returns the version of a review with this `apiVersion` and `kind`. Fails if they are not those of a review.
pub(super) fn version(api_version: &str, kind: &str) -> Result<ReviewVersion, ViewError> {
    if kind != KIND {
        return Err(ViewError::NotAReview("kind", KIND));
    }
    [ReviewVersion::V1, ReviewVersion::V1beta1]
        .into_iter()
        .find(|version| version.api_version() == api_version)
        .ok_or(ViewError::NotAReview("apiVersion", "admission.k8s.io/v1 or admission.k8s.io/v1beta1"))
}

fn read_review(body: &ByteString) -> Result<(ReviewVersion, RequestFields), ViewError> {
    let (mut api_version, mut kind, mut request) = (None, None, None);
    let mut cursor = Cursor::new(body);
    let is_object = cursor.read_object("the review", |cursor, key| match key {
        "apiVersion" => once(&mut api_version, text(body, cursor, "apiVersion")?, "apiVersion"),
        "kind" => once(&mut kind, text(body, cursor, "kind")?, "kind"),
        "request" => once(&mut request, read_request(body, cursor)?, "request"),
        _ => Ok(cursor.skip()?),
    })?;
    if !is_object {
        return Err(ViewError::Type { field: "the review", wanted: "an object" });
    }
    cursor.end()?;
    let version = version(&api_version.unwrap_or_default(), &kind.unwrap_or_default())?;
    Ok((version, request.flatten().ok_or(ViewError::NoRequest)?))
}

fn read_request(body: &ByteString, cursor: &mut Cursor<'_>) -> Result<Option<RequestFields>, ViewError> {
    let (mut fields, mut seen) = (RequestFields::default(), SeenFields::default());
    let is_object = cursor.read_object("request", |cursor, key| {
        let known = REQUEST.into_iter().zip(1..).find(|(path, _)| path["request.".len()..] == *key);
        let Some((path, number)) = known else { return Ok(cursor.skip()?) };
        match key {
            "uid" => fields.uid = text(body, cursor, path)?,
            "kind" => fields.kind = three(body, cursor, path, KIND_FIELDS)?.map(gvk).unwrap_or_default(),
            "resource" => fields.resource = three(body, cursor, path, RESOURCE)?.map(gvr).unwrap_or_default(),
            "subResource" => fields.sub_resource = text(body, cursor, path)?,
            "requestKind" => fields.request_kind = three(body, cursor, path, REQUEST_KIND)?.map(gvk),
            "requestResource" => fields.request_resource = three(body, cursor, path, REQUEST_RESOURCE)?.map(gvr),
            "requestSubResource" => fields.request_sub_resource = text(body, cursor, path)?,
            "name" => fields.name = text(body, cursor, path)?,
            "namespace" => fields.namespace = text(body, cursor, path)?,
            "operation" => fields.operation = text(body, cursor, path)?,
            "userInfo" => {
                let start = cursor.at();
                let user = user::from_json(cursor)?;
                fields.user = user.as_ref().map(|_| start..cursor.value_end());
                fields.username = user.and_then(|user| user.username).unwrap_or_default().into();
            }
            "object" => (fields.object, fields.object_ends) = object(cursor, path)?,
            "oldObject" => (fields.old_object, fields.old_object_ends) = object(cursor, path)?,
            "dryRun" => fields.dry_run = cursor.boolean(path)?.unwrap_or_default(),
            "options" => fields.options = cursor.object_range(path)?,
            _ => cursor.skip()?,
        }
        seen.record(number, &REQUEST)
    })?;
    Ok(is_object.then_some(fields))
}

/// Reads the range of an object, and the ends of its large containers.
fn object(cursor: &mut Cursor<'_>, field: &'static str) -> Result<(NullableRange, Option<ContainerEnds>), ViewError> {
    let mut recorder = EndsRecorder::sparse();
    let place = cursor.object_range_recorded(field, &mut recorder)?;
    let ends = place.as_ref().and_then(|place| recorder.relative_to(place.start));
    Ok((place, ends))
}

fn text(body: &ByteString, cursor: &mut Cursor<'_>, field: &'static str) -> Result<ByteString, ViewError> {
    Ok(cursor.string(field)?.map_or_else(ByteString::new, |text| text.shared(body)))
}

/// Reads a group, a version and a third string, whose paths are `names`.
fn three(
    body: &ByteString,
    cursor: &mut Cursor<'_>,
    field: &'static str,
    names: Three,
) -> Result<Option<[ByteString; 3]>, ViewError> {
    let (mut parts, mut seen) = (<[ByteString; 3]>::default(), SeenFields::default());
    let is_object = cursor.read_object(field, |cursor, key| {
        let known = names.into_iter().zip(1..).zip(&mut parts).find(|((name, _), _)| name[field.len() + 1..] == *key);
        let Some(((name, number), part)) = known else { return Ok(cursor.skip()?) };
        *part = text(body, cursor, name)?;
        seen.record(number, &names)
    })?;
    Ok(is_object.then_some(parts))
}

type NullableRange = Option<std::ops::Range<usize>>;

fn gvk([group, version, kind]: [ByteString; 3]) -> Gvk {
    Gvk { group, version, kind }
}

fn gvr([group, version, resource]: [ByteString; 3]) -> Gvr {
    Gvr { group, version, resource }
}

#[cfg(test)]
mod tests;
