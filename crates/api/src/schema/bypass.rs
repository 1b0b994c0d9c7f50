//! One entry of `bypass`, as written.

use schemars::JsonSchema;

use super::{
    limits,
    rule::Rule,
    validation::rules,
    words::{Line, Name, ShortName},
};

/// A name and no pattern.
pub(super) const EXACT: &str = "^[^*]+$";
/// Namespace and name.
pub(super) const ACCOUNT: &str =
    r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

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

const SOMEBODY: [(&str, &str); 1] = [(
    "!self.exists(one, one in ['system:authenticated', 'system:unauthenticated', 'system:anonymous'])",
    "that is anybody, and would open everything: write the exact name of somebody",
)];

/// Requests that skip hooks: those that match everything named here.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules(&BYPASS)))]
pub struct Bypass {
    /// Name in the audit log and metrics; a DNS name of at most 63.
    #[schemars(length(min = 1, max = 63))]
    pub name: Name,
    /// Reason in one line: it stands in the audit log for every request that skips hooks.
    pub reason: Line,
    /// Effect on such requests. `Skip` by default.
    pub effect: Option<Effect>,
    /// Hooks concerned; all by default.
    #[schemars(length(min = 1, max = limits::NAMES), inner(length(min = 1, max = 253)))]
    pub hooks: Option<Vec<String>>,
    /// Namespaces of the objects; by default all, and objects outside of any.
    #[schemars(length(min = 1, max = limits::NAMES))]
    pub namespaces: Option<Vec<ShortName>>,
    /// Users who make the request: their exact names.
    #[schemars(
        length(min = 1, max = limits::NAMES),
        inner(length(min = 1, max = 1024), regex(pattern = EXACT)),
        extend("x-kubernetes-validations" = rules(&SOMEBODY))
    )]
    pub users: Option<Vec<String>>,
    /// Groups of users who make the request: their exact names.
    #[schemars(
        length(min = 1, max = limits::NAMES),
        inner(length(min = 1, max = 1024), regex(pattern = EXACT)),
        extend("x-kubernetes-validations" = rules(&SOMEBODY))
    )]
    pub groups: Option<Vec<String>>,
    /// Service accounts that make the request: `namespace/name`.
    #[schemars(length(min = 1, max = limits::NAMES), inner(length(min = 3, max = 317), regex(pattern = ACCOUNT)))]
    pub service_accounts: Option<Vec<String>>,
    /// Operations and resources; one matching rule is enough, and everything matches by default.
    #[schemars(length(min = 1, max = limits::RULES))]
    pub resources: Option<Vec<Rule>>,
}

/// Effect on a request that it matches.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Effect {
    /// The hooks are not asked.
    Skip,
    /// The hooks are asked, and passed over where no usable answer comes.
    FailOpen,
}
