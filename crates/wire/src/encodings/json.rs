//! Writes a review in JSON: as an AdmissionReview with the fields that kube-apiserver sends
//! (`docs/reference/webhook-semantics.md` §9), or in the `legacy` form of *Dynamic admission control configuration*,
//! with `spec` instead of `request` (`docs/writing-a-hook.md`). Replaces the object for hooks after a change of it.

use std::ops::Range;

use gatepost_api::{CallFailure, Encoding, Operation, Review, ReviewVersion, Rope};

use crate::{
    json::{self, Cursor},
    json_view::KIND,
    user,
    walk::Pieces,
};

/// Number of JSON objects that enclose the objects of a review: the review and its request.
const ENCLOSING_OBJECTS: usize = 2;

/// Writes a JSON review in the other version: the same bytes with another `apiVersion`.
pub(super) fn write_version(review: &Review, version: ReviewVersion) -> Result<Rope, CallFailure> {
    let place = place_of_api_version(review)
        .ok_or_else(|| CallFailure::Unwritable("its apiVersion cannot be found again".into()))?;
    let mut pieces = Pieces::default();
    pieces.share(&review.bytes, 0..place.start);
    pieces.json(version.api_version());
    pieces.share(&review.bytes, place.end..review.bytes.len());
    Ok(pieces.rope())
}

/// Returns the range of the review's own `apiVersion`. Scans a copy without the objects, because they are large, and
/// span several pieces if a hook has changed the object.
fn place_of_api_version(review: &Review) -> Option<Range<usize>> {
    let objects = [&review.object, &review.old_object, &review.options];
    let mut objects: Vec<_> = objects.into_iter().flatten().cloned().collect();
    objects.sort_by_key(|place| place.start);
    let end = review.bytes.len();
    // The copy, and the position in it and the number of bytes left out for each object.
    let (mut copy, mut left_out) = (Vec::new(), Vec::new());
    let mut behind = 0;
    for place in objects.into_iter().chain(std::iter::once(end..end)) {
        review.bytes.slices(behind..place.start).for_each(|slice| copy.extend_from_slice(slice));
        if !place.is_empty() {
            left_out.push((copy.len(), place.len() - 1));
            copy.push(b'0');
        }
        behind = place.end;
    }
    let mut cursor = Cursor::new(std::str::from_utf8(&copy).ok()?);
    cursor.object("the review").ok()?;
    while let Some(key) = cursor.key().ok()? {
        let place = cursor.value_range().ok()?;
        if key.plain() == "apiVersion" {
            let before: usize = left_out.iter().filter(|(at, _)| *at < place.start).map(|(_, len)| len).sum();
            return Some(place.start + before..place.end + before);
        }
    }
    None
}

/// Checks that `object`, `oldObject` and `options` are absent or exactly one JSON object, as copying their bytes into
/// JSON requires. Does not check an `object` that will be replaced.
pub(super) fn check_objects(review: &Review, is_object_replaced: bool) -> Result<(), CallFailure> {
    let places = [("object", &review.object), ("oldObject", &review.old_object), ("options", &review.options)];
    for (name, place) in places.into_iter().skip(usize::from(is_object_replaced)) {
        let Some(place) = place.clone() else { continue };
        let checked = match review.bytes.contiguous(place.clone()) {
            Some(bytes) => json::object(bytes, ENCLOSING_OBJECTS),
            // The check needs contiguous bytes; the bytes that are sent stay shared.
            None => json::object(&review.bytes.copy_of(place), ENCLOSING_OBJECTS),
        };
        checked.map_err(|error| CallFailure::Unwritable(format!("its {name} is not one JSON object: {error}")))?;
    }
    Ok(())
}

/// Returns a review that arrived in protobuf as a review in JSON. Its objects must have been checked.
pub(super) fn write_review(review: &Review, version: ReviewVersion) -> Result<Review, CallFailure> {
    let mut out = Pieces::default();
    let text = |out: &mut Pieces, key: &str, text: &str| {
        if !text.is_empty() {
            out.own(key);
            out.json(text);
        }
    };
    out.own("{\"kind\":");
    out.json(KIND);
    text(&mut out, ",\"apiVersion\":", version.api_version());
    out.own(",\"request\":{\"uid\":");
    out.json(&*review.uid);
    let (kind, resource) = (&review.kind, &review.resource);
    three(&mut out, "kind", "kind", [&kind.group, &kind.version, &kind.kind]);
    three(&mut out, "resource", "resource", [&resource.group, &resource.version, &resource.resource]);
    text(&mut out, ",\"subResource\":", &review.sub_resource);
    // A caller that omits the requested kind and resource has converted nothing.
    let kind = review.request_kind.as_ref().unwrap_or(kind);
    three(&mut out, "requestKind", "kind", [&kind.group, &kind.version, &kind.kind]);
    let (resource, sub_resource) = match &review.request_resource {
        Some(resource) => (resource, &review.request_sub_resource),
        None => (resource, &review.sub_resource),
    };
    three(&mut out, "requestResource", "resource", [&resource.group, &resource.version, &resource.resource]);
    text(&mut out, ",\"requestSubResource\":", sub_resource);
    text(&mut out, ",\"name\":", &review.name);
    text(&mut out, ",\"namespace\":", &review.namespace);
    text(&mut out, ",\"operation\":", review.operation.as_str());
    out.own(",\"userInfo\":");
    let user = out.len();
    user::to_json(&super::user_of(review)?, &mut out);
    let user = user..out.len();
    let object_place = object(&mut out, ",\"object\":", review, &review.object);
    let old_object = object(&mut out, ",\"oldObject\":", review, &review.old_object);
    out.own(if review.dry_run { ",\"dryRun\":true" } else { ",\"dryRun\":false" });
    let options = object(&mut out, ",\"options\":", review, &review.options);
    out.own("}}");
    Ok(Review {
        user: Some(user),
        object: object_place,
        old_object,
        options,
        encoding: Encoding::Json(version),
        message: 0..out.len(),
        bytes: out.rope(),
        ..review.clone()
    })
}

/// Writes an object's own bytes and returns their range. Writes `null` if it is absent.
pub(super) fn object(
    out: &mut Pieces,
    key: &str,
    review: &Review,
    place: &Option<Range<usize>>,
) -> Option<Range<usize>> {
    out.own(key);
    let start = out.len();
    match place {
        Some(place) => out.share(&review.bytes, place.clone()),
        None => out.own("null"),
    }
    place.is_some().then(|| start..out.len())
}

fn three(out: &mut Pieces, key: &str, third: &str, parts: [&str; 3]) {
    out.own(",\"");
    out.own(key);
    out.own("\":{\"group\":");
    out.json(parts[0]);
    out.own(",\"version\":");
    out.json(parts[1]);
    out.own(",\"");
    out.own(third);
    out.own("\":");
    out.json(parts[2]);
    out.own("}");
}

/// Writes the review in the `legacy` form. Its objects must have been checked.
pub(super) fn legacy_review(review: &Review) -> Result<Rope, CallFailure> {
    let user = super::user_of(review)?;
    let mut out = Pieces::default();
    out.own("{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"spec\":{\"resource\":");
    out.json(&*review.resource.resource);
    for (key, text) in [
        (",\"subresource\":", &*review.sub_resource),
        (",\"operation\":", operation(review.operation)),
        (",\"name\":", &review.name),
        (",\"namespace\":", &review.namespace),
        (",\"group\":", &review.resource.group),
        (",\"version\":", &review.resource.version),
    ] {
        out.own(key);
        out.json(text);
    }
    object(&mut out, ",\"object\":", review, &review.object);
    object(&mut out, ",\"oldObject\":", review, &review.old_object);
    out.own(",\"userInfo\":{\"name\":");
    out.json(user.username());
    out.own(",\"uid\":");
    out.json(user.uid());
    out.own(",\"groups\":");
    out.json(&user.groups);
    out.own(if review.dry_run { "},\"dryRun\":true}}" } else { "},\"dryRun\":false}}" });
    Ok(out.rope())
}

/// Returns the operation's name in the `legacy` form.
const fn operation(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "Create",
        Operation::Update => "Update",
        Operation::Delete => "Delete",
        Operation::Connect => "Connect",
    }
}

/// Returns the review with its object replaced by `object`, which must be one JSON object. Copies neither object.
///
/// A review that arrived in protobuf is converted to JSON, because in protobuf the lengths of all enclosing messages
/// would change with the object's length.
///
/// # Errors
/// `Unwritable`: the review has no object, or an object that arrived in protobuf is not JSON.
pub fn with_object(review: &Review, object: &Rope) -> Result<Review, CallFailure> {
    let json_review;
    let (review, place) = match (review.encoding, &review.object) {
        (_, None) => return Err(CallFailure::Unwritable("it has no object".into())),
        (Encoding::Json(_), Some(place)) => (review, place.clone()),
        (Encoding::Grpc | Encoding::Envelope(_), Some(_)) => {
            check_objects(review, true)?;
            json_review = write_review(review, ReviewVersion::V1)?;
            match &json_review.object {
                Some(place) => (&json_review, place.clone()),
                None => return Err(CallFailure::Unwritable("it has no object".into())),
            }
        }
    };
    let mut pieces = Pieces::default();
    pieces.share(&review.bytes, 0..place.start);
    pieces.share(object, 0..object.len());
    pieces.share(&review.bytes, place.end..review.bytes.len());
    // Positions after the object move with its end. No other range begins or ends inside it.
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
