//! One entry of `externalAdmissionHooks`, as written, with its `clientConfig`, rules and selectors.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::words::{self, LabelKey, LabelValue, Name, ShortName, Time, duration, rules};

/// The hook is asked over HTTP; what CEL says where no protocol is written.
macro_rules! over_http {
    () => {
        "(has(self.clientConfig.url) && self.clientConfig.url.lowerAscii().startsWith('http'))"
    };
}

const HOOK: [(&str, &str); 10] = [
    (
        "!has(self.reinvocationPolicy) || (has(self.type) && self.type == 'Mutating')",
        "reinvocationPolicy: only a hook of type Mutating is asked once more: remove it, or make the hook Mutating",
    ),
    (
        "!has(self.dispatch) || (has(self.type) && self.type == 'Mutating')",
        "dispatch: validating hooks are always asked at once: remove it, or make the hook Mutating",
    ),
    (
        "!has(self.isolate) || (has(self.type) && self.type == 'Mutating')",
        "isolate: only a hook of type Mutating can be registered apart: remove it, or make the hook Mutating",
    ),
    (
        "!has(self.dispatch) || self.dispatch != 'Speculative' || (has(self.sideEffects) && self.sideEffects.startsWith('None'))",
        "dispatch: Speculative may ask about objects that never come to the hook: declare sideEffects None or NoneOnDryRun if that is true, or remove dispatch",
    ),
    (
        "!has(self.failurePolicy) || self.failurePolicy != 'Retry' || (has(self.sideEffects) && self.sideEffects == 'None')",
        "failurePolicy: Retry may ask twice: declare sideEffects None if that is true (NoneOnDryRun is not enough), or use Fail or Ignore",
    ),
    ("!has(self.timeout) || !has(self.timeoutSeconds)", "timeout and timeoutSeconds say the same: keep one of the two"),
    (
        concat!(
            "!has(self.timeout) || (",
            duration!("self.timeout"),
            " >= duration('1ms') && ",
            duration!("self.timeout"),
            " <= duration('30s'))"
        ),
        "timeout: write a time from 1ms to 30s, such as 250ms",
    ),
    (
        concat!("!has(self.protocol) || !has(self.clientConfig.url) || (self.protocol != 'grpc') == ", over_http!()),
        "protocol is not what the scheme of clientConfig.url says: grpc for grpc, grpcs and unix; json, protobuf or legacy for https, http and http+unix",
    ),
    (
        "!has(self.clientConfig.service) || !has(self.clientConfig.service.path) || (has(self.protocol) && self.protocol != 'grpc')",
        "clientConfig.service.path has no meaning in gRPC: remove it, or write protocol: json or protobuf",
    ),
    (
        concat!(
            "!has(self.admissionReviewVersions) || (has(self.protocol) ? self.protocol in ['json', 'protobuf'] : ",
            over_http!(),
            ")"
        ),
        "admissionReviewVersions has no meaning in this hook's protocol: remove it, or write protocol: json or protobuf",
    ),
];

const VERSIONS: [(&str, &str); 1] = [(
    "'v1' in self || 'v1beta1' in self",
    "admissionReviewVersions holds no version that is known: list v1 or v1beta1",
)];

/// A hook: who is asked, about what, and what becomes of a request when no usable answer comes.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules(&HOOK)))]
pub struct Hook {
    /// Name in denials, metrics and annotations; unique among all configurations.
    pub name: Name,
    /// May the hook change the object? `Validating` by default.
    #[schemars(rename = "type")]
    pub hook_type: Option<HookType>,
    /// Address of the hook.
    pub client_config: ClientConfig,
    /// Protocol and encoding. By default the scheme of the URL decides: `grpc` for grpc, grpcs, unix and a service,
    /// `json` for https, http and http+unix.
    pub protocol: Option<Protocol>,
    /// The versions of AdmissionReview that the hook reads; the first that is known is sent. `[v1]` by default; only
    /// for `json` and `protobuf`.
    #[schemars(
        length(min = 1, max = 16),
        inner(length(min = 1, max = 63), regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$")),
        extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = rules(&VERSIONS))
    )]
    pub admission_review_versions: Option<Vec<String>>,
    /// Rules that select the requests to ask about; one match is enough. `[]` is a hook that is never asked.
    #[schemars(length(max = words::RULES))]
    pub rules: Vec<Rule>,
    /// Treatment of a request made or sent in a version that no rule names. `Equivalent` by default.
    pub match_policy: Option<MatchPolicy>,
    /// Effect of a call without a usable answer. `Fail` by default.
    pub failure_policy: Option<FailurePolicy>,
    /// The longest one call may take, with its unit, from `1ms` to `30s`. `10s` by default.
    pub timeout: Option<Time>,
    /// The same in whole seconds; one of the two at most.
    #[schemars(range(min = 1, max = 30))]
    pub timeout_seconds: Option<u8>,
    /// Side effects of a call. A dry run reaches only hooks that say `None` or `NoneOnDryRun`.
    pub side_effects: Option<SideEffects>,
    /// Is a mutating hook asked once more where something changes the object after it? `Never` by default.
    pub reinvocation_policy: Option<ReinvocationPolicy>,
    /// Calling mode of a mutating hook. By default that of `serve --dispatch`.
    pub dispatch: Option<Dispatch>,
    /// Is a mutating hook registered with the apiserver apart from the others, so that the apiserver sets defaults
    /// before and behind it? `false` by default.
    pub isolate: Option<bool>,
    /// Namespaces whose objects the hook sees, by their labels. All by default.
    pub namespace_selector: Option<LabelSelector>,
    /// Objects that the hook sees, by the labels of the new or the old object. All by default.
    pub object_selector: Option<LabelSelector>,
    /// Conditions on a request, over its fields; the first that is false excludes it.
    #[schemars(length(max = words::CONDITIONS), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub match_conditions: Option<Vec<MatchCondition>>,
    /// Steps of bringing the hook into rotation.
    pub rollout: Option<Rollout>,
}

/// An expression in CEL that must say yes.
#[derive(Clone, Debug, JsonSchema)]
pub struct MatchCondition {
    /// Name in messages; unique in its hook.
    pub name: LabelKey,
    /// Over `object`, `oldObject` and `request`, as an apiserver has them.
    #[schemars(length(min = 1, max = 16384))]
    pub expression: String,
}

/// May a hook change the object?
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum HookType {
    /// It answers yes or no.
    Validating,
    /// It may return a patch, and is asked before the validating ones.
    Mutating,
}

/// Is a mutating hook asked once more where something changes the object after it?
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum ReinvocationPolicy {
    /// Once is enough.
    Never,
    /// Once more, about the object as it then is.
    IfNeeded,
}

/// Calling mode of a mutating hook.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Dispatch {
    /// One by one, each in its turn.
    Serial,
    /// Together with others, ahead of its turn, where that comes to the same.
    Speculative,
}

/// Protocol and encoding of calls to a hook.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// An AdmissionReview in JSON, in a POST.
    Json,
    /// An AdmissionReview in Kubernetes' protobuf, in a POST.
    Protobuf,
    /// The earliest form, answered by the status 200, 204 or 400.
    Legacy,
}

/// Treatment of a request in a version that no rule names.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum MatchPolicy {
    /// The hook does not mean it.
    Exact,
    /// The hook means it.
    Equivalent,
}

/// Effect of a call without a usable answer.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum FailurePolicy {
    /// The request is rejected.
    Fail,
    /// The hook is passed over.
    Ignore,
    /// The hook is asked once more, then as `Fail`; only with sideEffects `None`.
    Retry,
}

/// Side effects of a call.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum SideEffects {
    /// Nothing.
    None,
    /// Nothing in a dry run.
    NoneOnDryRun,
    /// Something.
    Some,
    /// Unknown.
    Unknown,
}

/// Steps of bringing a hook into rotation.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1))]
pub struct Rollout {
    /// While it stands here, the failure policy in force is `Ignore`, whatever `failurePolicy` says. Remove it when
    /// the hook has proved itself.
    pub create_as: Option<CreateAs>,
    /// A hook that has passed no probe for so long is reported as overdue; `1s` to `24h`, `5m` by default.
    pub probe_within: Option<Time>,
    /// Effect then on a hook that is not called yet. `Wait` by default.
    pub on_probe_failure: Option<OnProbeFailure>,
}

/// Effect on a hook that has passed no probe in time.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum OnProbeFailure {
    /// It stays out of rotation until a probe passes.
    Wait,
    /// It enters rotation unproven, and its failure policy decides.
    Enforce,
}

/// The failure policy of a hook that is being brought in.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum CreateAs {
    /// The hook is passed over when no usable answer comes.
    Ignore,
}

/// The schemes that are known, roughly with what they need; `crates/config/src/check/url.rs` is exact.
const URL: &str = r"^(grpc://[^/?#@]+:[0-9]+/?|grpcs://[^/?#@]+/?|unix:///.+|(?i:https)://[^/?#@]+([/?#].*)?|(?i:http)://((?i:localhost)|127\.[0-9.]+|\[[0:]*1\])(:[0-9]*)?([/?#].*)?|(?i:http\+unix):///.+)$";
/// Allowed paths of a Service.
const PATH: &str = r"^(/?|(/[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)+/?)$";
/// Base64, white space in between.
const BASE64: &str = r"^[A-Za-z0-9+/\s]+={0,2}\s*$";

const CLIENT: [(&str, &str); 4] = [
    ("has(self.url) != has(self.service)", "clientConfig needs exactly one of url and service"),
    ("!has(self.caBundle) || !has(self.caFile)", "caFile stands beside caBundle: keep one of the two"),
    (
        "has(self.clientCertificateFile) == has(self.clientKeyFile)",
        "a client certificate needs its key, and a key its certificate: write clientCertificateFile and clientKeyFile, or neither",
    ),
    (
        "!has(self.url) || self.url.startsWith('grpcs:') || self.url.lowerAscii().startsWith('https:') || \
         !(has(self.caBundle) || has(self.caFile) || has(self.serverName) || has(self.clientCertificateFile) || has(self.clientKeyFile))",
        "caBundle, caFile, serverName and client certificates have no meaning on a plaintext connection: use grpcs:// or https://, or remove them",
    ),
];

/// Address of a hook: exactly one of `url` and `service`, and files for TLS. Files are read where Gatepost runs.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules(&CLIENT)))]
pub struct ClientConfig {
    /// URL of the hook: `grpcs://host[:port]`, `grpc://host:port`, `unix:///path`, `https://host[:port][/path]`,
    /// `http://` to the machine itself, `http+unix:///path[:/path]`.
    #[schemars(length(min = 1, max = 2048), regex(pattern = URL))]
    pub url: Option<String>,
    /// A Service: TLS to NAME.NAMESPACE.svc, which its certificate must name.
    pub service: Option<Service>,
    /// Authorities that may have signed the hook's certificate, as PEM in base64. The system's by default.
    #[schemars(length(min = 1), regex(pattern = BASE64))]
    pub ca_bundle: Option<String>,
    /// The same from a file; one of the two at most.
    #[schemars(length(min = 1, max = 4096))]
    pub ca_file: Option<String>,
    /// The name that the hook's certificate must carry. The host by default.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-A-Za-z0-9_.:]+$"))]
    pub server_name: Option<String>,
    /// Our own certificate chain, for hooks that check who asks; with `clientKeyFile`.
    #[schemars(length(min = 1, max = 4096))]
    pub client_certificate_file: Option<String>,
    /// Its key, unencrypted.
    #[schemars(length(min = 1, max = 4096))]
    pub client_key_file: Option<String>,
}

/// A Service of the cluster.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Service {
    /// Its namespace.
    pub namespace: ShortName,
    /// Its name.
    pub name: ShortName,
    /// Its port. 443 by default.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// The path at which the hook is asked; not in gRPC. `/` by default.
    #[schemars(length(max = 2048), regex(pattern = PATH))]
    pub path: Option<String>,
}

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
        length(min = 1, max = words::WORDS),
        inner(length(max = 253)),
        extend("x-kubernetes-validations" = rules(&STAR))
    )]
    pub api_groups: Option<Vec<String>>,
    /// The same for one group.
    #[schemars(length(max = 253))]
    pub api_group: Option<String>,
    /// API versions, or `*` alone. Must be said unless `verbs` or `apiGroup` is used.
    #[schemars(
        length(min = 1, max = words::WORDS),
        inner(length(min = 1, max = 63)),
        extend("x-kubernetes-validations" = rules(&STAR))
    )]
    pub api_versions: Option<Vec<String>>,
    /// Resources and subresources: `pods`, `pods/log`, `pods/*`, `*`, `*/scale`, `*/*`.
    #[schemars(
        length(min = 1, max = words::WORDS),
        inner(length(min = 1, max = 253), regex(pattern = r"^[^A-Z\s]+$")),
        extend("x-kubernetes-validations" = rules(&STAR_STAR))
    )]
    pub resources: Vec<String>,
    /// The earliest form: each resource with each of these. `""` is the resource itself, `*` alone is all of them.
    #[schemars(
        length(min = 1, max = words::WORDS),
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

const REQUIREMENT: [(&str, &str); 2] = [
    (
        "!self.operator.endsWith('In') || (has(self.values) && self.values.size() > 0)",
        "values is empty: In and NotIn need at least one value",
    ),
    (
        "self.operator.endsWith('In') || !has(self.values) || self.values.size() == 0",
        "values is not empty: Exists and DoesNotExist take no values",
    ),
];

/// All requirements must hold. An empty selector matches everything.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelector {
    /// Each of these labels has this value.
    #[schemars(extend("maxProperties" = words::REQUIREMENTS))]
    pub match_labels: Option<BTreeMap<String, LabelValue>>,
    /// Each of these requirements holds.
    #[schemars(length(max = words::REQUIREMENTS))]
    pub match_expressions: Option<Vec<Requirement>>,
}

/// Requirement on one label.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules(&REQUIREMENT)))]
pub struct Requirement {
    /// The label.
    pub key: LabelKey,
    /// Operator of the requirement.
    pub operator: Operator,
    /// For `In` and `NotIn`, which need some; the others take none.
    #[schemars(length(max = words::NAMES))]
    pub values: Option<Vec<LabelValue>>,
}

/// Operator of a requirement on a label.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Operator {
    /// It is there, with one of the values.
    In,
    /// It is not there, or has none of the values.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}
