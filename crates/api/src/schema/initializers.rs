//! One entry of `resourceInitializers`, as written, with built-in initializers. A configuration file may also write an
//! initializer as a string, its name. This schema does not allow that, because the items of a list in a CRD must have
//! one type.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::{
    hook::LabelSelector,
    words::{self, ACCOUNT, EXACT, Name, ShortName, Time},
};

/// The initializers of one resource.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct ResourceInitializers {
    /// The resource's API group; `""` is the core group.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$"),
        extend("default" = "")
    )]
    pub api_group: Option<String>,
    /// The resource: plural, lower case, without subresource or wildcard.
    pub resource: ShortName,
    /// Initializers that must act on a new object, in order.
    #[schemars(
        length(max = words::MAX_INITIALIZERS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub initializers: Vec<Initializer>,
    /// Users who may create such objects with another list of initializers, or an empty one. No users by default.
    pub may_initialize: Option<People>,
    /// Storage of new objects before they are initialized, by an apiserver that does not support initializers. By
    /// default objects are initialized in flight, and not stored before.
    pub stored: Option<Stored>,
}

/// Mark of an object that is stored before it is initialized.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Stored {
    /// The label `init.gatepost.dev/pending`.
    Label,
}

/// Part of an object that an initializer changes.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Changes {
    /// Nothing outside of `metadata`.
    Metadata,
}

/// An initializer that must act on a new object.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Initializer {
    /// Name of the initializer.
    pub name: Name,
    /// Effect if it does not act in time. `Ignore` by default.
    pub failure_policy: Option<InitializerFailurePolicy>,
    /// Maximum time that an object waits for it, from `1ms` to `30s`, or to `24h` if objects are stored before it acts.
    /// `30s` by default.
    pub timeout: Option<Time>,
    /// Initializers of the same resource that act before it.
    #[schemars(length(min = 1, max = words::MAX_INITIALIZERS))]
    pub after: Option<Vec<Name>>,
    /// Selects objects by the labels of their namespaces. All by default.
    pub namespace_selector: Option<LabelSelector>,
    /// Selects objects by their labels. All by default.
    pub object_selector: Option<LabelSelector>,
    /// Additions that Gatepost itself makes to the object, for which no process is needed.
    pub built_in: Option<ObjectAdditions>,
    /// Clients that may claim the name, if a process acts for it. No clients by default.
    pub attach: Option<Claimants>,
    /// Side effects of the process besides the changed object. Dry runs call only a process with `None` or
    /// `NoneOnDryRun`.
    pub side_effects: Option<super::hook::SideEffects>,
    /// Users who act on objects that an apiserver stores uninitialized, if that apiserver asks Gatepost for permission.
    /// By default all who may `initialize` the resource.
    pub owners: Option<People>,
    /// Whether the process may be called together with adjacent parallel initializers. Each must change other fields of
    /// the object; if patches overlap, the later initializer is called again. `false` by default.
    pub parallel: Option<bool>,
    /// Part of the object that it changes. A patch of other parts fails. Everything by default.
    pub changes: Option<Changes>,
}

/// Clients that may claim the name of an initializer. One match is enough.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1))]
pub struct Claimants {
    /// Common names of client certificates.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 253)))]
    pub common_names: Option<Vec<String>>,
    /// SHA-256 digests of tokens, in hexadecimal digits.
    #[schemars(length(min = 1, max = 64), inner(length(min = 64, max = 64), regex(pattern = "^[0-9a-f]{64}$")))]
    pub token_sha256: Option<Vec<String>>,
}

/// Effect if an initializer does not act in time.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum InitializerFailurePolicy {
    /// The object continues without it.
    Ignore,
    /// The creation fails.
    Fail,
}

/// A set of users.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1))]
pub struct People {
    /// Exact names of users.
    #[schemars(
        length(min = 1, max = words::MAX_NAMES),
        inner(length(min = 1, max = 1024), regex(pattern = EXACT))
    )]
    pub users: Option<Vec<String>>,
    /// Exact names of groups of users.
    #[schemars(
        length(min = 1, max = words::MAX_NAMES),
        inner(length(min = 1, max = 1024), regex(pattern = EXACT))
    )]
    pub groups: Option<Vec<String>>,
    /// Service accounts: `namespace/name`.
    #[schemars(length(min = 1, max = words::MAX_NAMES), inner(length(min = 3, max = 317), regex(pattern = ACCOUNT)))]
    pub service_accounts: Option<Vec<String>>,
}

/// Additions to an object. Fields that the object has stay unchanged, except image pull policies and images.
///
/// Texts may contain `${namespace}`, `${name}`, `${user}`, `${namespace.labels.KEY}` and `${labels.KEY}`. An addition
/// with a variable that a request lacks is skipped.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1))]
pub struct ObjectAdditions {
    /// Labels of the object.
    #[schemars(extend("maxProperties" = 64))]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of the object.
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Environment variables of every container.
    #[schemars(length(max = 64))]
    pub env: Option<Vec<NamedItem>>,
    /// Volumes of the Pod.
    #[schemars(length(max = 64))]
    pub volumes: Option<Vec<NamedItem>>,
    /// Mounts of every container.
    #[schemars(length(max = 64))]
    pub volume_mounts: Option<Vec<Mount>>,
    /// Containers of the Pod.
    #[schemars(length(max = 16))]
    pub containers: Option<Vec<NamedItem>>,
    /// Init containers of the Pod.
    #[schemars(length(max = 16))]
    pub init_containers: Option<Vec<NamedItem>>,
    /// Requests and limits of every container that does not set them for that resource.
    pub resources: Option<Resources>,
    /// Pull policy of every container; replaces the one that a container sets.
    pub image_pull_policy: Option<PullPolicy>,
    /// Maximum run time of Pods that run once (`restartPolicy` Never or OnFailure), in seconds.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub active_deadline_seconds: Option<i32>,
    /// Map from images, as containers name them, to images with a digest, which replace them.
    #[schemars(extend("maxProperties" = 1024))]
    pub images: Option<BTreeMap<String, Digest>>,
}

/// An item of a Pod, identified by its name.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct NamedItem {
    /// Name of the item. A Pod that has an item of this name keeps its own.
    pub name: String,
}

/// A volume mount of a container, identified by its path.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Mount {
    /// Path of the mount. A container that has a mount at this path keeps its own.
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
    /// Only if the node does not have it.
    IfNotPresent,
    /// Not at all.
    Never,
}

/// An image with its digest.
#[derive(Clone, Debug, JsonSchema)]
pub struct Digest(#[schemars(regex(pattern = "^.+@sha256:[0-9a-f]{64}$"))] pub String);
