//! The kinds `AdmissionControlConfiguration`, with its bypass rules, and `BreakGlass`, without `apiVersion`, `kind` and
//! `metadata`.

use schemars::JsonSchema;

use super::{
    hook::{Hook, Rule},
    initializers::ResourceInitializers,
    status::Status,
    words::{self, ACCOUNT, EXACT, Line, Moment, Name, ShortName, Time, duration, rules},
};

/// Hooks to call for requests, and initializers of new objects.
///
/// There may be several objects. Their hooks are ordered by the name of the object, byte by byte, and then as written.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct AdmissionControlConfiguration {
    /// Hooks, in order.
    #[schemars(
        length(max = words::MAX_HOOKS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub external_admission_hooks: Option<Vec<Hook>>,
    /// Initializers of new objects, by resource.
    #[schemars(
        length(max = words::MAX_RESOURCES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["apiGroup", "resource"])
    )]
    pub resource_initializers: Option<Vec<ResourceInitializers>>,
    /// Rules by which requests skip hooks, or are not rejected by failed calls.
    #[schemars(
        length(max = words::MAX_BYPASSES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub bypass: Option<Vec<Bypass>>,
    /// Progress of Gatepost's replicas. Only Gatepost writes it.
    pub status: Option<Status>,
}

const BREAK_GLASS: [(&str, &str); 3] = [
    ("self.metadata.name.size() <= 63", "metadata.name: write a lower-case DNS name of at most 63 characters"),
    (
        concat!(duration!("self.__for__"), " >= duration('1s') && ", duration!("self.__for__"), " <= duration('24h')"),
        "for: write how long it stays open, from 1s to 24h, such as 15m",
    ),
    (
        concat!("self.until == self.opened + ", duration!("self.__for__")),
        "until must equal opened + for; `gatepost break-glass` writes a consistent document",
    ),
];

/// Lets requests skip hooks for a limited time, because waiting for the hooks would do more harm.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules(&BREAK_GLASS)))]
pub struct BreakGlass {
    /// Time of the opening.
    pub opened: Moment,
    /// Duration, from `1s` to `24h`, such as `15m`.
    #[schemars(rename = "for")]
    pub duration: Time,
    /// Time at which it closes by itself: `opened` plus `for`.
    pub until: Moment,
    /// Reason in one line, written to the audit log for every request that skips hooks.
    pub reason: Line,
    /// Hooks to skip; all by default.
    #[schemars(length(min = 1, max = words::MAX_NAMES), inner(length(min = 1, max = 253)))]
    pub hooks: Option<Vec<String>>,
    /// User who opened it.
    #[schemars(length(max = 253), regex(pattern = r"^[^\p{Cc}]*$"))]
    pub by: Option<String>,
}

const BYPASS: [(&str, &str); 2] = [
    (
        "has(self.namespaces) || has(self.users) || has(self.groups) || has(self.serviceAccounts) || has(self.resources)",
        "the bypass would let every request past: name namespaces, users, groups, serviceAccounts or resources",
    ),
    (
        "self.name != 'own-configuration'",
        "own-configuration is what requests about Gatepost's own configuration are counted as: rename the bypass",
    ),
];

const NOT_EVERYBODY: [(&str, &str); 1] = [(
    "!self.exists(one, one in ['system:authenticated', 'system:unauthenticated', 'system:anonymous'])",
    "this matches every user and would bypass hooks for all of them: name specific users or groups",
)];

/// Requests that skip hooks, or that failed calls do not reject. A request matches if every field that is set matches.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules(&BYPASS)))]
pub struct Bypass {
    /// Name in the audit log and metrics; a DNS name of at most 63 characters.
    #[schemars(length(min = 1, max = 63))]
    pub name: Name,
    /// Reason in one line, written to the audit log for every matching request.
    pub reason: Line,
    /// Effect on matching requests. `Skip` by default.
    pub effect: Option<Effect>,
    /// Hooks that the bypass applies to; all by default.
    #[schemars(length(min = 1, max = words::MAX_NAMES), inner(length(min = 1, max = 253)))]
    pub hooks: Option<Vec<String>>,
    /// Namespaces of the objects; by default all, including objects outside of namespaces.
    #[schemars(length(min = 1, max = words::MAX_NAMES))]
    pub namespaces: Option<Vec<ShortName>>,
    /// Exact names of users who make the request.
    #[schemars(
        length(min = 1, max = words::MAX_NAMES),
        inner(length(min = 1, max = 1024), regex(pattern = EXACT)),
        extend("x-kubernetes-validations" = rules(&NOT_EVERYBODY))
    )]
    pub users: Option<Vec<String>>,
    /// Exact names of groups of users who make the request.
    #[schemars(
        length(min = 1, max = words::MAX_NAMES),
        inner(length(min = 1, max = 1024), regex(pattern = EXACT)),
        extend("x-kubernetes-validations" = rules(&NOT_EVERYBODY))
    )]
    pub groups: Option<Vec<String>>,
    /// Service accounts that make the request: `namespace/name`.
    #[schemars(length(min = 1, max = words::MAX_NAMES), inner(length(min = 3, max = 317), regex(pattern = ACCOUNT)))]
    pub service_accounts: Option<Vec<String>>,
    /// Operations and resources; one matching rule is enough, and everything matches by default.
    #[schemars(length(min = 1, max = words::MAX_RULES))]
    pub resources: Option<Vec<Rule>>,
}

/// Effect of a bypass on a matching request.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Effect {
    /// The hooks are not called.
    Skip,
    /// The hooks are called, but skipped if the call fails.
    FailOpen,
}
