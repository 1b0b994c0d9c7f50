use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::{
    envelope, json_view,
    outbound::framed,
    pb::k8s::io::{
        api::admission::v1::{AdmissionRequest, AdmissionReview},
        apimachinery::pkg::apis::meta::v1::{GroupVersionKind, GroupVersionResource},
    },
};
use gatepost_api::ReviewVersion;

/// A review with everything that kube-apiserver sends.
fn whole() -> Value {
    let (kind, resource) = (["group", "version", "kind"], ["group", "version", "resource"]);
    let three = |names: [&str; 3], values: [&str; 3]| names.iter().copied().zip(values).collect::<Value>();
    json!({
        "uid": "u-1", "name": "web", "namespace": "shop", "operation": "CREATE", "subResource": "scale",
        "kind": three(kind, ["autoscaling", "v1", "Scale"]),
        "resource": three(resource, ["apps", "v1", "deployments"]),
        "requestKind": three(kind, ["extensions", "v1beta1", "Scale"]),
        "requestResource": three(resource, ["extensions", "v1beta1", "deployments"]),
        "requestSubResource": "scale", "object": {"kind": "Scale"}, "dryRun": false,
    })
}

fn in_protobuf(request: &Value) -> AdmissionRequest {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let kind = |of: &Value| {
        let three =
            || GroupVersionKind { group: text(&of["group"]), version: text(&of["version"]), kind: text(&of["kind"]) };
        of.is_object().then(three)
    };
    let resource = |of: &Value| {
        let [group, version, resource] = ["group", "version", "resource"].map(|name| text(&of[name]));
        of.is_object().then_some(GroupVersionResource { group, version, resource })
    };
    AdmissionRequest {
        uid: text(&request["uid"]),
        kind: kind(&request["kind"]),
        resource: resource(&request["resource"]),
        sub_resource: text(&request["subResource"]),
        name: text(&request["name"]),
        namespace: text(&request["namespace"]),
        operation: text(&request["operation"]),
        request_kind: kind(&request["requestKind"]),
        request_resource: resource(&request["requestResource"]),
        request_sub_resource: text(&request["requestSubResource"]),
        ..AdmissionRequest::default()
    }
}

/// Result of a request in each encoding: all are the same.
fn outcome(request: &Value) -> Result<(), String> {
    let body = |version: ReviewVersion| {
        let review = json!({"apiVersion": version.api_version(), "kind": "AdmissionReview", "request": request});
        Bytes::from(review.to_string())
    };
    let message = framed(&AdmissionReview { request: Some(in_protobuf(request)), response: None });
    let (rope, len) = (Rope::new([message.slice(5..)]), message.len() - 5);
    let enveloped = |version| envelope::wrap(version, &rope, 0..len);
    let mut all = Vec::new();
    for version in [ReviewVersion::V1, ReviewVersion::V1beta1] {
        all.push(json_view::view(body(version)));
        all.push(envelope::view(enveloped(version)));
    }
    all.push(view(Rope::new([message])));
    let all: Vec<_> = all.into_iter().map(|view| view.map(drop).map_err(|error| error.to_string())).collect();
    assert!(all.iter().all(|one| *one == all[0]), "{request}: {all:?}");
    all[0].clone()
}

/// Rules could not see such a request, and every hook would be passed over in silence.
#[test]
fn reviews_that_lack_what_rules_look_at_are_refused_in_every_encoding() {
    assert_eq!(outcome(&whole()), Ok(()));
    for (of, names) in [
        ("kind", ["version", "kind"]),
        ("resource", ["version", "resource"]),
        ("requestKind", ["version", "kind"]),
        ("requestResource", ["version", "resource"]),
    ] {
        for name in names {
            let lacking = format!("request.{of}.{name} is missing or empty");
            let mut request = whole();
            request[of][name] = "".into();
            assert_eq!(outcome(&request), Err(lacking.clone()));
            request[of].as_object_mut().expect("three").remove(name);
            assert_eq!(outcome(&request), Err(lacking));
        }
        let mut request = whole();
        request[of] = json!({});
        assert_eq!(
            outcome(&request),
            Err(format!("request.{of}.{} is missing or empty", names[0])),
            "present, and empty"
        );
        request.as_object_mut().expect("a request").remove(of);
        let shown = outcome(&request);
        match of.starts_with("request") {
            // Fields that apiservers before 1.15 do not send. A request with a part of them must have all.
            true => assert_eq!(shown, Ok(())),
            false => assert_eq!(shown, Err(format!("request.{of}.version is missing or empty"))),
        }
    }
    for (field, lacking) in [
        ("uid", "the review's request has no uid"),
        ("operation", "the review's operation must be CREATE, UPDATE, DELETE or CONNECT"),
    ] {
        for wrong in [json!(""), json!(null)] {
            let mut request = whole();
            request[field] = wrong;
            assert_eq!(outcome(&request), Err(lacking.to_owned()));
        }
    }
    let mut request = whole();
    request["operation"] = "PATCH".into();
    assert!(outcome(&request).is_err());
}

/// A rule for `pods/exec` sees neither `pods` nor a resource of that name.
#[test]
fn subresources_are_where_they_belong_and_of_one_mind() {
    for (field, wrong) in [("subResource", ""), ("subResource", "status"), ("requestSubResource", "")] {
        let mut request = whole();
        request[field] = wrong.into();
        let other = "request.requestSubResource must be the same as request.subResource";
        assert_eq!(outcome(&request), Err(other.to_owned()), "{field} {wrong:?}");
    }
    for of in ["resource", "requestResource"] {
        let mut request = whole();
        request[of]["resource"] = "deployments/scale".into();
        let slash = format!("request.{of}.resource holds a slash: a subresource goes into request.subResource");
        assert_eq!(outcome(&request), Err(slash));
    }
    let mut request = whole();
    for field in ["subResource", "requestSubResource"] {
        request.as_object_mut().expect("a request").remove(field);
    }
    assert_eq!(outcome(&request), Ok(()));
}

/// Rules with a scope would not see it, or a namespaceSelector would look at another namespace than there is.
#[test]
fn what_is_in_namespaces_says_in_which_one_and_nothing_else_does() {
    for (group, resource, namespace, good) in [
        ("", "pods", "shop", true),
        ("", "pods", "", false),
        ("", "nodes", "", true),
        ("", "nodes", "shop", false),
        // kube-apiserver repeats the name of a Namespace; with generateName it has none yet.
        ("", "namespaces", "shop", true),
        ("", "namespaces", "", true),
        ("example.com", "pods", "", true),
        ("example.com", "widgets", "shop", true),
        ("example.com", "widgets", "", true),
        ("authorization.k8s.io", "localsubjectaccessreviews", "shop", true),
        ("authorization.k8s.io", "subjectaccessreviews", "", true),
    ] {
        let mut request = whole();
        for of in ["resource", "requestResource"] {
            (request[of]["group"], request[of]["resource"]) = (group.into(), resource.into());
        }
        request["namespace"] = namespace.into();
        let shown = outcome(&request);
        assert_eq!(shown.is_ok(), good, "{group} {resource} {namespace:?}: {shown:?}");
        if let Err(shown) = shown {
            assert!(shown.contains(resource) && shown.contains("request.namespace"), "{shown}");
        }
    }
}
