//! `builtIn` of an initializer, as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;

/// Additions to an object that lacks them. Fields that the object has stay as they are.
///
/// Texts may hold `${namespace}`, `${name}`, `${user}`, `${namespace.labels.KEY}` and `${labels.KEY}`. An addition with
/// a variable that a request does not have is left out.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1))]
pub struct BuiltIn {
    /// Labels of the object.
    #[schemars(extend("maxProperties" = 64))]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of the object.
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Environment variables of every container.
    #[schemars(length(max = 64))]
    pub env: Option<Vec<Named>>,
    /// Volumes of the Pod.
    #[schemars(length(max = 64))]
    pub volumes: Option<Vec<Named>>,
    /// Mounts of every container.
    #[schemars(length(max = 64))]
    pub volume_mounts: Option<Vec<Mount>>,
    /// Containers of the Pod.
    #[schemars(length(max = 16))]
    pub containers: Option<Vec<Named>>,
    /// Init containers of the Pod.
    #[schemars(length(max = 16))]
    pub init_containers: Option<Vec<Named>>,
    /// Requests and limits of every container that says nothing of that resource.
    pub resources: Option<Resources>,
    /// The pull policy of every container, whatever it says itself.
    pub image_pull_policy: Option<PullPolicy>,
    /// Longest run of Pods that run once (`restartPolicy` Never or OnFailure), in seconds.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub active_deadline_seconds: Option<i32>,
    /// Images as containers name them, each with the image by digest that takes its place.
    #[schemars(extend("maxProperties" = 1024))]
    pub images: Option<BTreeMap<String, Digest>>,
}

/// Something as a Pod has it, known by its name.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Named {
    /// A Pod that has one of this name already keeps its own.
    pub name: String,
}

/// A volume mount as a container has it, known by its path.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Mount {
    /// A container that mounts something at this path already keeps its own.
    pub mount_path: String,
}

/// Requests and limits.
#[derive(Clone, Debug, JsonSchema)]
pub struct Resources {
    /// Quantities by resource.
    #[schemars(extend("maxProperties" = 16))]
    pub requests: Option<BTreeMap<String, String>>,
    /// Quantities by resource.
    #[schemars(extend("maxProperties" = 16))]
    pub limits: Option<BTreeMap<String, String>>,
}

/// Time at which an image is pulled.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum PullPolicy {
    /// Every time.
    Always,
    /// Only where the node does not have it.
    IfNotPresent,
    /// Not at all.
    Never,
}

/// An image with its digest.
#[derive(Clone, Debug, JsonSchema)]
pub struct Digest(#[schemars(regex(pattern = "^.+@sha256:[0-9a-f]{64}$"))] pub String);
