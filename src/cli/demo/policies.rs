//! Policies of the demo's hooks: small ones over the object's JSON, as a hook author would write them.

use serde_json::Value;

use crate::wire::pb::k8s::io::api::admission::v1::AdmissionRequest;

/// Answer of a hook.
#[derive(Debug, Default)]
pub(super) struct PolicyAnswer {
    /// Reason of a denial; nothing is yes.
    pub(super) no: Option<String>,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(&'static str, String)>,
}

/// Looks at a request and its object, and says something.
pub(super) type Policy = fn(&AdmissionRequest, &Value) -> PolicyAnswer;

fn unless(no: Option<String>) -> PolicyAnswer {
    PolicyAnswer { no, ..PolicyAnswer::default() }
}

fn containers(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let spec = object.pointer("/spec/template/spec").unwrap_or(&object["spec"]);
    let all = ["initContainers", "containers"].into_iter().filter_map(|list| spec[list].as_array()).flatten();
    all.map(|container| (container["name"].as_str().unwrap_or("?"), container))
}

/// No image without a tag, and none that is `:latest`; a digest is better than both.
pub(super) fn no_latest_tag(_: &AdmissionRequest, object: &Value) -> PolicyAnswer {
    let floats = |image: &&str| {
        let name = image.rsplit('/').next().unwrap_or(image);
        !image.contains('@') && matches!(name.split_once(':'), None | Some((_, "latest")))
    };
    let image = containers(object).filter_map(|(_, container)| container["image"].as_str()).find(floats);
    unless(image.map(|image| format!("image {image} floats; pin a version or a digest")))
}

/// No container may have the run of the node.
pub(super) fn no_privileged(_: &AdmissionRequest, object: &Value) -> PolicyAnswer {
    let privileged = |(_, container): &(&str, &Value)| container["securityContext"]["privileged"] == true;
    unless(containers(object).find(privileged).map(|(name, _)| format!("container {name} is privileged")))
}

/// Every Deployment belongs to a team.
pub(super) fn owner_label(_: &AdmissionRequest, object: &Value) -> PolicyAnswer {
    let team = &object["metadata"]["labels"]["team"];
    unless(team.is_null().then(|| "label team is missing; who is called at night?".to_owned()))
}

/// Says a word about containers without limits, and lets them in.
pub(super) fn warn_no_limits(_: &AdmissionRequest, object: &Value) -> PolicyAnswer {
    let unlimited = containers(object).filter(|(_, container)| container["resources"]["limits"].is_null());
    let warnings = unlimited.map(|(name, _)| format!("container {name} has no resource limits")).collect();
    PolicyAnswer { warnings, ..PolicyAnswer::default() }
}

/// Notes what it saw.
pub(super) fn audit_everything(request: &AdmissionRequest, _: &Value) -> PolicyAnswer {
    let object = request.object.as_ref().or(request.old_object.as_ref());
    let bytes = object.and_then(|object| object.raw.as_ref()).map_or(0, |raw| raw.len());
    PolicyAnswer { annotations: vec![("object-bytes", bytes.to_string())], ..PolicyAnswer::default() }
}

/// Balancers cost money.
pub(super) fn no_load_balancer(_: &AdmissionRequest, object: &Value) -> PolicyAnswer {
    let balancer = object["spec"]["type"] == "LoadBalancer";
    unless(balancer.then(|| "type LoadBalancer costs money; ask for a ClusterIP".to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_that_float_are_found() {
        let said = |image: &str| {
            let pod = json!({"spec": {"containers": [{"name": "a", "image": image}]}});
            no_latest_tag(&AdmissionRequest::default(), &pod).no
        };
        for floats in ["web", "web:latest", "example.com:5000/web", "example.com:5000/web:latest"] {
            assert!(said(floats).is_some(), "{floats}");
        }
        for pinned in ["web:1", "example.com:5000/web:1", "example.com:5000/web@sha256:00", "web:latest@sha256:00"] {
            assert_eq!(said(pinned), None, "{pinned}");
        }
    }
}
