//! The kind `AdmissionControlConfiguration`, without what all objects have.

use schemars::JsonSchema;

use super::{bypass::Bypass, hook::Hook, initializers::ResourceInitializers, limits, status::Status};

/// Which hooks are asked about which requests, and which initializers act on which new objects.
///
/// There may be several. Their hooks are numbered by the name of the object, byte by byte, and then as written.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct AdmissionControlConfiguration {
    /// The hooks, in order.
    #[schemars(
        length(max = limits::ENTRIES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub external_admission_hooks: Option<Vec<Hook>>,
    /// The initializers of new objects, by resource.
    #[schemars(
        length(max = limits::RESOURCES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["apiGroup", "resource"])
    )]
    pub resource_initializers: Option<Vec<ResourceInitializers>>,
    /// Requests that skip hooks, and why.
    #[schemars(
        length(max = limits::BYPASSES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub bypass: Option<Vec<Bypass>>,
    /// Progress of Gatepost's replicas. Written by Gatepost alone.
    pub status: Option<Status>,
}
