//! Writes a review that arrived in JSON as a protobuf AdmissionReview.

use prost::Message;

use crate::{
    pb::k8s::io::{
        api::admission::v1::AdmissionRequest,
        apimachinery::pkg::apis::meta::v1::{GroupVersionKind, GroupVersionResource},
    },
    walk::{Pieces, field_len},
};
use gatepost_api::{CallFailure, Gvk, Gvr, Review, Rope};

/// Writes the bare message. Field numbers: `proto/k8s.io/api/admission/v1/generated.proto`.
pub(super) fn write_message(review: &Review) -> Result<Rope, CallFailure> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let request = AdmissionRequest {
        uid: text(&review.uid),
        kind: Some(gvk(&review.kind)),
        resource: Some(gvr(&review.resource)),
        sub_resource: text(&review.sub_resource),
        name: text(&review.name),
        namespace: text(&review.namespace),
        operation: text(review.operation.as_str()),
        user_info: review.user.is_some().then(|| super::user_of(review)).transpose()?,
        dry_run: Some(review.dry_run),
        request_kind: review.request_kind.as_ref().map(gvk),
        request_resource: review.request_resource.as_ref().map(gvr),
        request_sub_resource: text(&review.request_sub_resource),
        // Appended below without a copy.
        object: None,
        old_object: None,
        options: None,
    };
    // Fields may come in any order, so all small ones form one piece.
    let objects = [(9, &review.object), (10, &review.old_object), (12, &review.options)];
    let objects = objects.map(|(number, place)| place.clone().map(|place| (number, place)));
    let objects_len: usize = objects.iter().flatten().map(|(_, place)| field_len(field_len(place.len()))).sum();
    let mut pieces = Pieces::default();
    pieces.field(1, request.encoded_len() + objects_len);
    pieces.own(request.encode_to_vec());
    for (number, place) in objects.into_iter().flatten() {
        pieces.field(number, field_len(place.len()));
        pieces.field(1, place.len());
        pieces.share(&review.bytes, place);
    }
    Ok(pieces.rope())
}

fn gvk(Gvk { group, version, kind }: &Gvk) -> GroupVersionKind {
    GroupVersionKind {
        group: Some(group.to_string()),
        version: Some(version.to_string()),
        kind: Some(kind.to_string()),
    }
}

fn gvr(Gvr { group, version, resource }: &Gvr) -> GroupVersionResource {
    GroupVersionResource {
        group: Some(group.to_string()),
        version: Some(version.to_string()),
        resource: Some(resource.to_string()),
    }
}
