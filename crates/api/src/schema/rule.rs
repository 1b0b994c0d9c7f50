//! One entry of a hook's `rules` and of a bypass's `resources`, as written.

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::{limits, validation::rules};

const RULE: [(&str, &str); 3] = [
    (
        "!has(self.operations) || !has(self.verbs)",
        "verbs stands beside operations, which says the same: keep one of the two",
    ),
    (
        "has(self.apiGroups) != has(self.apiGroup)",
        "list apiGroups, or name one apiGroup, and not both: \"\" is the core group, \"*\" is all",
    ),
    (
        "has(self.apiVersions) || has(self.verbs) || has(self.apiGroup)",
        "apiVersions is missing: list the API versions, or [\"*\"] for all",
    ),
];

const STAR: [(&str, &str); 1] =
    [("self.size() == 1 || !self.exists(word, word == '*')", "\"*\" is everything: let it stand alone, or remove it")];

const STAR_STAR: [(&str, &str); 1] = [(
    "self.size() == 1 || !self.exists(word, word == '*/*')",
    "\"*/*\" is everything: let it stand alone, or remove it",
)];

/// Beside `subresources` no resource names a subresource. In CEL this would cost more than a cluster allows.
fn one_form() -> Value {
    json!([{ "not": { "required": ["subresources"] } }, { "properties": { "resources": { "items": { "pattern": "^[^/]*$" } } } }])
}

/// Requests: one is meant when all parts of the rule mean it. The comparison is case-sensitive.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("anyOf" = one_form(), "x-kubernetes-validations" = rules(&RULE)))]
pub struct Rule {
    /// Operations on the object. `["*"]`, everything, by default.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-validations" = rules(&STAR)))]
    pub operations: Option<Vec<Operation>>,
    /// The same in the words of an earlier form; one of the two at most.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-validations" = rules(&STAR)))]
    pub verbs: Option<Vec<Operation>>,
    /// API groups: `""` is the core group, `*` alone is all.
    #[schemars(
        length(min = 1, max = limits::WORDS),
        inner(length(max = 253)),
        extend("x-kubernetes-validations" = rules(&STAR))
    )]
    pub api_groups: Option<Vec<String>>,
    /// The same for one group.
    #[schemars(length(max = 253))]
    pub api_group: Option<String>,
    /// API versions, or `*` alone. Must be said unless `verbs` or `apiGroup` is used.
    #[schemars(
        length(min = 1, max = limits::WORDS),
        inner(length(min = 1, max = 63)),
        extend("x-kubernetes-validations" = rules(&STAR))
    )]
    pub api_versions: Option<Vec<String>>,
    /// Resources and subresources: `pods`, `pods/log`, `pods/*`, `*`, `*/scale`, `*/*`.
    #[schemars(
        length(min = 1, max = limits::WORDS),
        inner(length(min = 1, max = 253), regex(pattern = r"^[^A-Z\s]+$")),
        extend("x-kubernetes-validations" = rules(&STAR_STAR))
    )]
    pub resources: Vec<String>,
    /// The earliest form: each resource with each of these. `""` is the resource itself, `*` alone is all of them.
    #[schemars(
        length(min = 1, max = limits::WORDS),
        inner(length(max = 253)),
        extend("x-kubernetes-validations" = rules(&STAR))
    )]
    pub subresources: Option<Vec<String>>,
    /// Objects in a namespace, or not. `*`, both, by default.
    pub scope: Option<Scope>,
}

/// Operation on an object, in the words of each form.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[allow(missing_docs, reason = "each is its own description")]
pub enum Operation {
    #[schemars(rename = "CREATE")]
    UpperCreate,
    #[schemars(rename = "UPDATE")]
    UpperUpdate,
    #[schemars(rename = "DELETE")]
    UpperDelete,
    #[schemars(rename = "CONNECT")]
    UpperConnect,
    #[schemars(rename = "*")]
    Any,
    #[schemars(rename = "POST")]
    Post,
    #[schemars(rename = "PUT")]
    Put,
    Create,
    Update,
    Delete,
    Connect,
}

/// Objects in a namespace, or not.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Scope {
    /// Both.
    #[schemars(rename = "*")]
    Any,
    /// In a namespace.
    Namespaced,
    /// Not in a namespace; a Namespace itself is such an object.
    Cluster,
}
