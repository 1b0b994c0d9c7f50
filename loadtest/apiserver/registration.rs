//! Registrations: the webhook configuration that the apiserver gets, and the one that a sidecar gets.
//!
//! For JSON hooks it is the same document: what stood in the apiserver stands in the sidecar's folder, word by word.

use std::{fs, net::SocketAddr, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{service::NAMESPACE, task::Kind, variant::Variant};
use crate::Fallible;

/// The configuration's name, in the apiserver and in a sidecar's folder.
pub(super) const NAME: &str = "side-by-side";

/// A stock document with a hook at each address; `folder` has the authority of their certificate.
pub(super) fn stock(kind: Kind, addresses: &[SocketAddr], folder: &Path) -> Fallible<String> {
    let authority = STANDARD.encode(fs::read(folder.join("ca.pem"))?);
    let webhooks = addresses.iter().enumerate().map(|(index, address)| {
        json!({
            "name": name(index),
            "clientConfig": {"url": format!("https://{address}/{}", path(kind)), "caBundle": authority},
            "rules": rules(),
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 10,
        })
    });
    let document = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind.configuration(),
        "metadata": {"name": NAME},
        "webhooks": webhooks.collect::<Vec<_>>(),
    });
    Ok(format!("{document:#}\n"))
}

/// A stock document with the sidecar behind the Service of that variant as its one hook.
pub(super) fn behind_service(kind: Kind, variant: Variant, folder: &Path) -> Fallible<String> {
    let mut document: Value = serde_json::from_str(&stock(kind, &[([127, 0, 0, 1], 1).into()], folder)?)?;
    let client_config = &mut document["webhooks"][0]["clientConfig"];
    let path = format!("/{}", path(kind));
    let service = json!({"namespace": NAMESPACE, "name": variant.as_str(), "port": 443, "path": path});
    *client_config = json!({"service": service, "caBundle": client_config["caBundle"]});
    Ok(format!("{document:#}\n"))
}

/// Configuration of a sidecar: the stock document for JSON hooks, our own kind for gRPC ones.
pub(super) fn for_gatepost(
    (variant, kind): (Variant, Kind),
    addresses: &[SocketAddr],
    folder: &Path,
) -> Fallible<String> {
    if variant.protocol() == "json" {
        return stock(kind, addresses, folder);
    }
    let hooks = addresses.iter().enumerate().map(|(index, address)| {
        let client = match variant.has_tls() {
            true => json!({"url": format!("grpcs://{address}"), "caFile": folder.join("ca.pem")}),
            false => json!({"url": format!("grpc://{address}")}),
        };
        json!({
            "name": name(index),
            "clientConfig": client,
            "objectEncoding": if variant.takes_protobuf() { "Protobuf" } else { "JSON" },
            "rules": rules(),
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "timeoutSeconds": 10,
        })
    });
    let document = json!({
        "apiVersion": "gatepost.dev/v1alpha1",
        "kind": "AdmissionControlConfiguration",
        "metadata": {"name": NAME},
        "externalAdmissionHooks": hooks.collect::<Vec<_>>(),
    });
    Ok(format!("{document:#}\n"))
}

/// Path of a hook.
fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Validating => "validate",
        Kind::Mutating => "mutate",
    }
}

fn name(index: usize) -> String {
    format!("hook-{index}.load.example.com")
}

/// The writes that are measured, and nothing that the apiserver does by itself meanwhile.
fn rules() -> Value {
    json!([{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
        "scope": "Namespaced",
    }])
}
