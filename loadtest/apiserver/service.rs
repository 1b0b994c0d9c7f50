//! Service: objects that lead the apiserver to a sidecar as in a cluster, without a proxy. It resolves Services by their
//! EndpointSlices (`--enable-aggregator-routing`), which may not name loopback addresses.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use serde_json::{Value, json};

use super::variant::Variant;
use crate::Fallible;

/// Namespace of the Services; the certificate of sidecars is for all names in it.
pub(super) const NAMESPACE: &str = "side-by-side";

/// One object that is to be there.
#[derive(Debug)]
pub(super) struct Object {
    /// Path of the objects of its kind.
    pub(super) path: &'static str,
    pub(super) document: Value,
    /// True where it has to be replaced, as it differs from rig to rig.
    pub(super) is_moving: bool,
}

/// The Service of that variant, and what leads it to the sidecar at `address`.
pub(super) fn objects(variant: Variant, address: SocketAddr) -> [Object; 3] {
    let name = variant.as_str();
    let object = |path, document, is_moving| Object { path, document, is_moving };
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {"ports": [{"name": "https", "port": 443}]}});
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": name}},
        "endpoints": [{"addresses": [address.ip()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": address.port()}]});
    [
        object("/api/v1/namespaces", namespace, false),
        object("/api/v1/namespaces/side-by-side/services", service, false),
        object("/apis/discovery.k8s.io/v1/namespaces/side-by-side/endpointslices", slice, true),
    ]
}

/// An address of this machine that an EndpointSlice may name.
pub(super) fn own_address() -> Fallible<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // Nothing is sent: only the way there is looked up.
    let found = socket.connect("198.51.100.1:9").and_then(|()| socket.local_addr());
    match found {
        Ok(address) if !address.ip().is_loopback() => Ok(address.ip()),
        _ => Err("NOT RUN: this machine has no address but loopback, which no EndpointSlice may name".into()),
    }
}
