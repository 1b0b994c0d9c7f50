//! The policy: images are pinned. Pure, so it is tested without a server.

use std::collections::BTreeSet;

use gatepost_wire::pb::k8s::io::{
    api::admission::v1::{AdmissionRequest, AdmissionResponse},
    apimachinery::pkg::apis::meta::v1::Status,
};
use serde::Deserialize;

/// Fields of a Pod that the policy reads; everything else in the object is skipped while parsing.
#[derive(Deserialize)]
struct Pod {
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    init_containers: Vec<Container>,
    containers: Vec<Container>,
    ephemeral_containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    #[serde(default)]
    image: String,
    #[serde(default)]
    resources: Resources,
}

#[derive(Default, Deserialize)]
struct Resources {
    #[serde(default)]
    limits: serde_json::Map<String, serde_json::Value>,
}

/// Judges one request.
///
/// # Errors
/// A sentence, where the object cannot be understood: then there is no verdict, and Gatepost's failure policy decides.
pub(crate) fn judge(request: &AdmissionRequest) -> Result<AdmissionResponse, String> {
    let mut response =
        AdmissionResponse { uid: request.uid.clone(), allowed: Some(true), ..AdmissionResponse::default() };
    if !concerns(request) {
        return Ok(response);
    }
    let object = request.object.as_ref().and_then(|object| object.raw.as_deref()).unwrap_or_default();
    // The text of a parse error tells the place, not the content.
    let pod: Pod = serde_json::from_slice(object)
        .map_err(|error| format!("the object is no Pod in JSON (line {}, column {})", error.line(), error.column()))?;

    let spec = &pod.spec;
    let mut unpinned = Vec::new();
    let mut images = BTreeSet::new();
    for container in spec.init_containers.iter().chain(&spec.containers).chain(&spec.ephemeral_containers) {
        images.insert(container.image.as_str());
        if !pinned(&container.image) {
            unpinned.push(format!("container {:?} runs {:?}", container.name, container.image));
        }
    }
    for container in &spec.containers {
        for resource in ["cpu", "memory"] {
            if !container.resources.limits.contains_key(resource) {
                response.warnings.push(format!("container {:?} has no {resource} limit", container.name));
            }
        }
    }
    let images: Vec<&str> = images.into_iter().collect();
    response.audit_annotations.insert("images".to_owned(), images.join(", "));
    if !unpinned.is_empty() {
        response.allowed = Some(false);
        response.status = Some(Status {
            status: Some("Failure".to_owned()),
            message: Some(format!("images need a tag other than latest, or a digest: {}", unpinned.join("; "))),
            reason: Some("Forbidden".to_owned()),
            code: Some(403),
            ..Status::default()
        });
    }
    Ok(response)
}

/// Pods that are made or changed. A hook's rules say this too; a hook that trusts them alone breaks when they change.
fn concerns(request: &AdmissionRequest) -> bool {
    let kind = request.kind.as_ref();
    kind.is_some_and(|kind| kind.group().is_empty() && kind.kind() == "Pod")
        && matches!(request.operation(), "CREATE" | "UPDATE")
        && matches!(request.sub_resource(), "" | "ephemeralcontainers")
}

/// Does this image name one thing for ever, or nearly so?
fn pinned(image: &str) -> bool {
    if image.contains('@') {
        return true;
    }
    // A colon before the last slash belongs to the registry's port.
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').is_some_and(|(_, tag)| !tag.is_empty() && tag != "latest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_or_a_digest_pins_an_image() {
        for (image, expected) in [
            ("nginx", false),
            ("nginx:", false),
            ("nginx:latest", false),
            ("nginx:1.29", true),
            ("registry.example.com:5000/nginx", false),
            ("registry.example.com:5000/nginx:1.29", true),
            ("nginx@sha256:6b1c", true),
            ("nginx:latest@sha256:6b1c", true),
            ("", false),
        ] {
            assert_eq!(pinned(image), expected, "{image:?}");
        }
    }
}
