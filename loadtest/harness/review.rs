//! The review that is sent: a real-looking Pod or ConfigMap, padded to size, with every field an apiserver fills.

use bytes::{BufMut, Bytes, BytesMut};
use clap::ValueEnum;
use gatepost_wire::{
    pb::k8s::io::{
        api::{
            admission::v1::{AdmissionRequest, AdmissionReview},
            authentication::v1::{ExtraValue, UserInfo},
        },
        apimachinery::pkg::runtime::RawExtension,
    },
    request,
};
use prost::Message;
use serde_json::{Value, json};

use crate::size::Size;

/// The uid of every review; the hooks repeat it, the generator checks it.
pub(crate) const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// Kind of object the review is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// A Pod whose annotation carries the padding
    Pod,
    /// A ConfigMap whose data carries the padding
    ConfigMap,
}

impl Subject {
    /// The subject's name as the command line takes it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::ConfigMap => "config-map",
        }
    }
}

/// One gRPC message: flag, length, review. Shared by every request of a run.
pub(crate) fn framed(subject: Subject, size: Size) -> Bytes {
    let message = review(subject, size);
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(5 + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    framed.put_slice(&message.encode_to_vec());
    framed.freeze()
}

/// A CREATE of `subject` whose object is `size` bytes of JSON (more only where the bare object is larger).
pub(crate) fn review(subject: Subject, size: Size) -> AdmissionReview {
    let (kind, resource) = match subject {
        Subject::Pod => ("Pod", "pods"),
        Subject::ConfigMap => ("ConfigMap", "configmaps"),
    };
    let create_options = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl"});
    let create = request::create(UID, kind, resource, object(subject, size));
    let request = AdmissionRequest {
        request_kind: create.kind.clone(),
        request_resource: create.resource.clone(),
        name: text("checkout-6f9d7c5b8-x2x7p"),
        namespace: text("shop"),
        user_info: Some(user()),
        dry_run: Some(false),
        options: Some(RawExtension { raw: Some(create_options.to_string().into()) }),
        ..create
    };
    AdmissionReview { request: Some(request), response: None }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn user() -> UserInfo {
    let pod = ExtraValue { items: vec!["replicaset-controller-7d4b9".to_owned()] };
    UserInfo {
        username: text("system:serviceaccount:kube-system:replicaset-controller"),
        uid: text("014fbff9-a7d0-4f5c-9cdc-8b4cf2f4a1ef"),
        groups: ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]
            .map(str::to_owned)
            .into(),
        extra: [("authentication.kubernetes.io/pod-name".to_owned(), pod)].into(),
    }
}

/// The object's JSON, its padding in the one place each kind has for free text.
fn object(subject: Subject, size: Size) -> Bytes {
    let bare = render(subject, String::new()).len();
    let padding = "0123456789abcdefghijklmnopqrstuvwxyz-_".bytes().cycle().take(size.0.saturating_sub(bare));
    render(subject, padding.map(char::from).collect()).into()
}

fn render(subject: Subject, padding: String) -> String {
    let metadata = |annotations: Value| {
        json!({
            "name": "checkout-6f9d7c5b8-x2x7p", "namespace": "shop", "uid": "f9a1c3a2-1c1f-4b43-8f4d-1a2b3c4d5e6f",
            "creationTimestamp": "2026-01-07T09:00:00Z",
            "labels": {"app": "checkout", "tier": "frontend", "pod-template-hash": "6f9d7c5b8"},
            "annotations": annotations,
        })
    };
    match subject {
        Subject::Pod => json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": metadata(json!({"shop.example.com/notes": padding})),
            "spec": {
                "containers": [{
                    "name": "checkout", "image": "registry.example.com/shop/checkout:1.42.0",
                    "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                    "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "REGION", "value": "eu-1"}],
                    "resources": {"limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "256Mi"}},
                    "securityContext": {"runAsNonRoot": true, "readOnlyRootFilesystem": true},
                }],
                "restartPolicy": "Always", "serviceAccountName": "checkout", "terminationGracePeriodSeconds": 30,
            },
        }),
        Subject::ConfigMap => json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(json!({})), "data": {"settings": padding},
        }),
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_exactly_the_size_asked_for() {
        for subject in [Subject::Pod, Subject::ConfigMap] {
            for size in Size::TABLE {
                assert_eq!(object(subject, size).len(), size.0, "{subject:?} {size}");
            }
        }
    }
}
