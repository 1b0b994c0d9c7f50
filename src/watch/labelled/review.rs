//! Review of a stored object for a process: the review of its CREATE, with the object as it is now.

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::resource::ServedResource;
use gatepost_api::Labels;
use gatepost_base::memory::Reservation;
use gatepost_initializers::{hub::TaskMessage, marks::InitState as State, unfinished::StoredObject};
use gatepost_wire::{
    encodings::{Encodings, HookEncoding},
    inbound::FRAME_HEAD,
    initializers::is_review,
    json_view,
};

/// Returns the review of an object, with the user that its state names as its creator.
pub(super) fn of(resource: &ServedResource, stored: &StoredObject, state: &State, object: &Value) -> String {
    let ServedResource { group, version, resource, kind, .. } = resource;
    let kind = json!({"group": group, "version": version, "kind": kind});
    let resource = json!({"group": group, "version": version, "resource": resource});
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": &*stored.uid,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": stored.name,
            "namespace": stored.namespace,
            "operation": "CREATE",
            "userInfo": state.creator,
            "object": object,
            "dryRun": false,
        },
    })
    .to_string()
}

/// Encodes a review as the task of the initializer `name`.
///
/// # Errors
/// Returns a message if the review cannot be encoded.
pub(super) fn message(
    name: &str,
    review: String,
    labels: &Labels,
    mut room: Reservation,
) -> Result<TaskMessage, String> {
    let review = json_view::view(review.into()).map_err(|error| error.to_string())?;
    let framed = Encodings::of(&review).get(HookEncoding::Grpc).map_err(|failure| failure.to_string())?;
    let review: Bytes = framed.copy_of(FRAME_HEAD..framed.len());
    if !is_review(review.clone()) {
        return Err("the review is no AdmissionReview to readers of protobuf".to_owned());
    }
    let namespace_labels = labels.iter().map(|(key, value)| (key.into(), value.into())).collect();
    room.shrink_to(review.len());
    // Names contain no zero byte.
    let digest = Sha256::new().chain_update(name).chain_update([0_u8]).chain_update(&review).finalize().into();
    Ok(TaskMessage { review, namespace_labels, digest, room })
}
