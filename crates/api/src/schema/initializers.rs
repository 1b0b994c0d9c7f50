//! One entry of `resourceInitializers`, as written. A name alone, which files may hold in an initializer's place, has
//! no place in a schema: a list in a cluster holds texts or maps, and not both.

use schemars::JsonSchema;

use super::{
    built_in::BuiltIn,
    bypass::{ACCOUNT, EXACT},
    limits,
    selector::LabelSelector,
    words::{Name, ShortName, Time},
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
        length(max = limits::INITIALIZERS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub initializers: Vec<Initializer>,
    /// Users who may create such objects with another list of initializers, or none. No user by default.
    pub may_initialize: Option<People>,
    /// Storage of new objects before they are initialized, by an apiserver that knows nothing of initializers. Not at all
    /// by default: they are initialized in flight.
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

/// Initializer that must act on a new object.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Initializer {
    /// Its name.
    pub name: Name,
    /// Effect of not acting in time. `Ignore` by default.
    pub failure_policy: Option<InitializerFailurePolicy>,
    /// Longest wait of an object for it, from `1ms` to `30s`, or to `24h` where objects are stored before it acts. `30s` by
    /// default.
    pub timeout: Option<Time>,
    /// Initializers of the same resource that act before it.
    #[schemars(length(min = 1, max = limits::INITIALIZERS))]
    pub after: Option<Vec<Name>>,
    /// It acts on objects in namespaces with such labels; on all by default.
    pub namespace_selector: Option<LabelSelector>,
    /// It acts on objects with such labels; on all by default.
    pub object_selector: Option<LabelSelector>,
    /// Additions that Gatepost itself makes to the object, so that no process is needed.
    pub built_in: Option<BuiltIn>,
    /// Clients that may claim the name, where a process acts for it. No client may by default.
    pub attach: Option<Claimants>,
    /// Side effects of the process besides the changed object. Dry runs reach only one that says `None` or
    /// `NoneOnDryRun`.
    pub side_effects: Option<super::hook::SideEffects>,
    /// Users who act on objects that an apiserver stores unfinished, where that apiserver asks. Without it, all who may
    /// `initialize` the resource.
    pub owners: Option<People>,
    /// The process may be asked at once with neighbours in the list that say so as well: each touches other fields of the
    /// object. Where two patches meet after all, the later initializer is asked again. `false` by default.
    pub parallel: Option<bool>,
    /// Part of the object that it changes; what else its patch touches makes it fail. Everything by default.
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

/// Effect of an initializer that does not act in time.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum InitializerFailurePolicy {
    /// The object goes on without it.
    Ignore,
    /// The creation fails.
    Fail,
}

/// Some users.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1))]
pub struct People {
    /// Their exact names.
    #[schemars(
        length(min = 1, max = limits::NAMES),
        inner(length(min = 1, max = 1024), regex(pattern = EXACT))
    )]
    pub users: Option<Vec<String>>,
    /// Users of these groups: their exact names.
    #[schemars(
        length(min = 1, max = limits::NAMES),
        inner(length(min = 1, max = 1024), regex(pattern = EXACT))
    )]
    pub groups: Option<Vec<String>>,
    /// Service accounts: `namespace/name`.
    #[schemars(length(min = 1, max = limits::NAMES), inner(length(min = 3, max = 317), regex(pattern = ACCOUNT)))]
    pub service_accounts: Option<Vec<String>>,
}
