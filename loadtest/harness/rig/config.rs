//! The product's configuration for a rig. JSON, which every YAML reader reads.

use std::{net::SocketAddr, path::Path};

use serde_json::{Value, json};

use super::Hooks;

/// One document: every hook matches every review, fails closed and may take ten seconds.
/// A first hook that stands apart sees config maps only, fails open and may take 100 ms.
pub(super) fn write(hooks: &[SocketAddr], tls: Option<&Path>, first: Hooks) -> String {
    let hooks: Vec<Value> = hooks
        .iter()
        .enumerate()
        .map(|(index, address)| {
            let apart = first != Hooks::Alike && index == 0;
            let (resource, policy, timeout) =
                if apart { ("configmaps", "Ignore", "100ms") } else { ("*/*", "Fail", "10s") };
            json!({
                "name": format!("hook-{index}.load.example.com"),
                "clientConfig": client(*address, tls),
                "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]}],
                "failurePolicy": policy,
                "timeout": timeout,
                "sideEffects": "None",
            })
        })
        .collect();
    let document = json!({
        "apiVersion": "gatepost.dev/v1alpha1",
        "kind": "AdmissionControlConfiguration",
        "metadata": {"name": "load"},
        "externalAdmissionHooks": hooks,
    });
    format!("{document:#}\n")
}

fn client(address: SocketAddr, tls: Option<&Path>) -> Value {
    match tls {
        None => json!({"url": format!("grpc://{address}")}),
        Some(folder) => json!({
            "url": format!("grpcs://{address}"),
            "caFile": folder.join("ca.pem"),
            "serverName": "localhost",
            "clientCertificateFile": folder.join("client.pem"),
            "clientKeyFile": folder.join("client.key"),
        }),
    }
}
