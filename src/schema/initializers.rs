//! One entry of `resourceInitializers`, as written. A name alone, which files may hold in an initializer's place, has no
//! place in a schema: a list in a cluster holds texts or maps, and not both.

use schemars::JsonSchema;

use super::words::{Name, ShortName};

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
    /// Who must act on a new object, in order.
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub initializers: Vec<Initializer>,
}

/// Who must act on a new object.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Initializer {
    /// Its name.
    pub name: Name,
    /// What happens when it does not act in time. `Ignore` unless said.
    pub failure_policy: Option<InitializerFailurePolicy>,
}

/// What happens when an initializer does not act in time.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum InitializerFailurePolicy {
    /// The object goes on without it.
    Ignore,
    /// The creation fails.
    Fail,
}
