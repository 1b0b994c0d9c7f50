//! One entry of `externalAdmissionHooks`, as written, with its `clientConfig`, rules and selectors.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::words::{self, LabelKey, LabelValue, Name, ShortName, Time, duration, rules};

/// CEL expression for hooks without `protocol`. True if the URL's scheme is http, https or http+unix.
macro_rules! over_http {
    () => {
        "(has(self.clientConfig.url) && self.clientConfig.url.lowerAscii().startsWith('http'))"
    };
}

const HOOK: [(&str, &str); 13] = [
    (
        "!has(self.reinvocationPolicy) || (has(self.type) && self.type == 'Mutating')",
        "reinvocationPolicy: only a hook of type Mutating is called again: remove it, or make the hook Mutating",
    ),
    (
        "!has(self.dispatch) || (has(self.type) && self.type == 'Mutating')",
        "dispatch: validating hooks are always called concurrently: remove it, or make the hook Mutating",
    ),
    (
        "!has(self.after) || has(self.phase) || (has(self.type) && self.type == 'Mutating')",
        "after: validating hooks are called together: remove it, or make the hook Mutating, or write phase: Transactional",
    ),
    (
        "!has(self.phase) || !has(self.type) || self.type == 'Validating'",
        "phase: only a hook of type Validating can be called after all others: remove it, or make the hook Validating",
    ),
    (
        "!has(self.isolate) || (has(self.type) && self.type == 'Mutating')",
        "isolate: only a hook of type Mutating can be registered apart: remove it, or make the hook Mutating",
    ),
    (
        "!has(self.dispatch) || self.dispatch != 'Speculative' || (has(self.sideEffects) && self.sideEffects.startsWith('None'))",
        "dispatch: Speculative may call the hook with objects it would not receive in serial mode: declare sideEffects None or NoneOnDryRun if that is true, or remove dispatch",
    ),
    (
        "!has(self.failurePolicy) || self.failurePolicy != 'Retry' || (has(self.sideEffects) && self.sideEffects == 'None')",
        "failurePolicy: Retry may call the hook twice: declare sideEffects None if that is true (NoneOnDryRun is not enough), or use Fail or Ignore",
    ),
    ("!has(self.timeout) || !has(self.timeoutSeconds)", "timeout and timeoutSeconds are both set: keep one of the two"),
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
        "protocol does not match the scheme of clientConfig.url: grpc for grpc, grpcs and unix; json, protobuf or legacy for https, http and http+unix",
    ),
    (
        concat!(
            "!has(self.objectEncoding) || self.objectEncoding == 'JSON' || ((!has(self.type) || self.type == 'Validating') && (has(self.protocol) ? self.protocol == 'grpc' : !",
            over_http!(),
            "))"
        ),
        "objectEncoding: only a hook of type Validating over gRPC can take objects in protobuf: remove it",
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
    "admissionReviewVersions contains no supported version: list v1 or v1beta1",
)];

/// A hook: its address, the requests for which it is called, and the effect of a failed call.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules(&HOOK)))]
pub struct Hook {
    /// Name in denials, metrics and annotations; unique among all configurations.
    pub name: Name,
    /// Whether the hook may change the object. `Validating` by default.
    #[schemars(rename = "type")]
    pub hook_type: Option<HookType>,
    /// Address of the hook.
    pub client_config: ClientConfig,
    /// Protocol and encoding. By default the scheme of the URL decides: `grpc` for grpc, grpcs, unix and a service,
    /// `json` for https, http and http+unix.
    pub protocol: Option<Protocol>,
    /// Encodings of objects that the hook takes. `JSON` by default.
    pub object_encoding: Option<ObjectEncoding>,
    /// Versions of AdmissionReview that the hook reads; the first known one is sent. `[v1]` by default; only for `json`
    /// and `protobuf`.
    #[schemars(
        length(min = 1, max = 16),
        inner(length(min = 1, max = 63), regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$")),
        extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = rules(&VERSIONS))
    )]
    pub admission_review_versions: Option<Vec<String>>,
    /// Rules that select requests; one match is enough. With `[]`, the hook is never called.
    #[schemars(length(max = words::MAX_RULES))]
    pub rules: Vec<Rule>,
    /// Whether rules match requests in other versions of their resources. `Equivalent` by default.
    pub match_policy: Option<MatchPolicy>,
    /// Effect of a failed call. `Fail` by default.
    pub failure_policy: Option<FailurePolicy>,
    /// Effect of what the hook rejects, and of failed calls that `failurePolicy` rejects. `Deny` by default.
    pub enforcement: Option<Enforcement>,
    /// Share of the requests that the hook decides in place of the hook that it is to replace, such as `5% of NAME`.
    /// Each of the two decides the other requests in shadow.
    #[schemars(length(max = 261), regex(pattern = r"^[0-9]{1,2}(\.[0-9]{1,2})?% of [a-z0-9]([-.a-z0-9]*[a-z0-9])?$"))]
    pub canary: Option<String>,
    /// Timeout of one call, with its unit, from `1ms` to `30s`. `10s` by default.
    pub timeout: Option<Time>,
    /// Timeout of one call in whole seconds. Excludes `timeout`.
    #[schemars(range(min = 1, max = 30))]
    pub timeout_seconds: Option<u8>,
    /// Side effects of a call. Dry runs call only hooks with `None` or `NoneOnDryRun`.
    pub side_effects: Option<SideEffects>,
    /// Whether a mutating hook is called again if the object changes after its call. `Never` by default.
    pub reinvocation_policy: Option<ReinvocationPolicy>,
    /// Calling mode of a mutating hook. By default that of `serve --dispatch`.
    pub dispatch: Option<Dispatch>,
    /// Names of hooks that are called before this one, which is mutating or transactional.
    #[schemars(length(max = words::MAX_NAMES))]
    pub after: Option<Vec<Name>>,
    /// `Transactional`: a validating hook that is called after all others, and only for requests that none of them
    /// rejects, for hooks that keep accounts, such as quotas.
    pub phase: Option<HookPhase>,
    /// Whether a mutating hook is registered with the apiserver as a webhook of its own, so that the apiserver sets
    /// defaults before and after it. `false` by default.
    pub isolate: Option<bool>,
    /// Selects objects by the labels of their namespaces. All by default.
    pub namespace_selector: Option<LabelSelector>,
    /// Selects objects by the labels of the new or the old object. All by default.
    pub object_selector: Option<LabelSelector>,
    /// Conditions on the request. The hook is called only if all are true.
    #[schemars(length(max = words::MAX_CONDITIONS), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub match_conditions: Option<Vec<MatchCondition>>,
    /// Rollout of the hook.
    pub rollout: Option<Rollout>,
}

/// A CEL expression that must be true.
#[derive(Clone, Debug, JsonSchema)]
pub struct MatchCondition {
    /// Name in messages; unique in its hook.
    pub name: LabelKey,
    /// Expression over `object`, `oldObject`, `request` and `authorizer`, as in an apiserver.
    #[schemars(length(min = 1, max = 16384))]
    pub expression: String,
}

/// Whether a hook may change the object.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum HookType {
    /// Allows or denies the request.
    Validating,
    /// May return a patch, and is called before the validating hooks.
    Mutating,
}

/// Whether a mutating hook is called again if the object changes after its call.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum ReinvocationPolicy {
    /// It is called once.
    Never,
    /// It is called once more, with the changed object.
    IfNeeded,
}

/// Calling mode of a mutating hook.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Dispatch {
    /// One by one, in order.
    Serial,
    /// Concurrently with the hooks before it. The answer is discarded if one of them changes the object or rejects the
    /// request, so the result is the same as with `Serial`.
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
    /// JSON with `spec`, answered by status 200, 204 or 400.
    Legacy,
}

/// Whether rules match requests in other versions of their resources.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum MatchPolicy {
    /// Only the versions that the rules name match.
    Exact,
    /// A request in another version of the resource also matches.
    Equivalent,
}

/// Effect of a failed call.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum FailurePolicy {
    /// The request is rejected.
    Fail,
    /// The hook is skipped.
    Ignore,
    /// The hook is called once more. If that call fails too, the request is rejected. Only with sideEffects `None`.
    Retry,
}

/// Encodings of objects that a hook takes.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum ObjectEncoding {
    /// JSON.
    #[schemars(rename = "JSON")]
    Json,
    /// JSON, and Kubernetes' protobuf envelope, in which an API server's plugin sends objects of built-in types if
    /// nothing else reads them: a validating hook over gRPC.
    Protobuf,
}

/// When a validating hook is called.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum HookPhase {
    /// After all others.
    Transactional,
}

/// Effect of what a hook rejects.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Enforcement {
    /// The request is rejected.
    Deny,
    /// The request passes, and the client is warned.
    Warn,
    /// The request passes, with an audit annotation.
    Audit,
    /// The hook is called after the verdict, and only counted.
    Shadow,
}

/// Side effects of a call.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum SideEffects {
    /// No side effects.
    None,
    /// No side effects on a dry run.
    NoneOnDryRun,
    /// Side effects.
    Some,
    /// Perhaps side effects.
    Unknown,
}

/// Rollout of a hook.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1))]
pub struct Rollout {
    /// While this is set, the failure policy in force is `Ignore`, whatever `failurePolicy` says. Remove it once the
    /// hook works.
    pub create_as: Option<CreateAs>,
    /// Time after which a hook without a passed probe is reported as overdue; `1s` to `24h`, `5m` by default.
    pub probe_within: Option<Time>,
    /// Effect on an overdue hook that is not called yet. `Wait` by default.
    pub on_probe_failure: Option<OnProbeFailure>,
}

/// Effect on an overdue hook that is not called yet.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum OnProbeFailure {
    /// It stays out of rotation until a probe passes.
    Wait,
    /// It enters rotation without a passed probe, and its failure policy applies.
    Enforce,
}

/// Failure policy of a hook during its rollout.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum CreateAs {
    /// The hook is skipped if the call fails.
    Ignore,
}

/// Known schemes with their required parts, approximately; `crates/config/src/check/url.rs` is exact.
const URL: &str = r"^(grpc://[^/?#@]+:[0-9]+/?|grpcs://[^/?#@]+/?|unix:///.+|(?i:https)://[^/?#@]+([/?#].*)?|(?i:http)://((?i:localhost)|127\.[0-9.]+|\[[0:]*1\])(:[0-9]*)?([/?#].*)?|(?i:http\+unix):///.+)$";
/// Allowed paths of a Service.
const PATH: &str = r"^(/?|(/[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)+/?)$";
/// Base64 with any white space.
const BASE64: &str = r"^[A-Za-z0-9+/\s]+={0,2}\s*$";

const CLIENT: [(&str, &str); 5] = [
    ("has(self.url) != has(self.service)", "clientConfig needs exactly one of url and service"),
    ("!has(self.caBundle) || !has(self.caFile)", "caFile and caBundle are both set: keep one of the two"),
    (
        "has(self.clientCertificateFile) == has(self.clientKeyFile)",
        "a client certificate needs its key, and a key its certificate: write clientCertificateFile and clientKeyFile, or neither",
    ),
    (
        "!has(self.url) || self.url.startsWith('grpcs:') || self.url.lowerAscii().startsWith('https:') || \
         !(has(self.caBundle) || has(self.caFile) || has(self.serverName) || has(self.clientCertificateFile) || has(self.clientKeyFile))",
        "caBundle, caFile, serverName and client certificates have no meaning on a plaintext connection: use grpcs:// or https://, or remove them",
    ),
    (
        "!has(self.authorizationFile) || !has(self.url) || !self.url.startsWith('grpc:') || \
         self.url.lowerAscii().startsWith('grpc://localhost') || self.url.startsWith('grpc://127.') || self.url.startsWith('grpc://[::1]')",
        "authorizationFile would be readable on a plaintext connection to another machine: use grpcs://",
    ),
];

/// Address of a hook: exactly one of `url` and `service`, and files for TLS in Gatepost's own file system.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules(&CLIENT)))]
pub struct ClientConfig {
    /// URL of the hook: `grpcs://host[:port]`, `grpc://host:port`, `unix:///path`, `https://host[:port][/path]`,
    /// `http://` to a loopback address, `http+unix:///path[:/path]`.
    #[schemars(length(min = 1, max = 2048), regex(pattern = URL))]
    pub url: Option<String>,
    /// A Service. Gatepost connects by TLS, and the certificate must contain the name NAME.NAMESPACE.svc.
    pub service: Option<Service>,
    /// Certificate authorities for the hook's certificate, as PEM in base64. Those of the system by default.
    #[schemars(length(min = 1), regex(pattern = BASE64))]
    pub ca_bundle: Option<String>,
    /// Certificate authorities for the hook's certificate, as a PEM file. Excludes `caBundle`.
    #[schemars(length(min = 1, max = 4096))]
    pub ca_file: Option<String>,
    /// Name that the hook's certificate must contain. The host by default.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-A-Za-z0-9_.:]+$"))]
    pub server_name: Option<String>,
    /// Our certificate chain, for hooks that authenticate clients; with `clientKeyFile`.
    #[schemars(length(min = 1, max = 4096))]
    pub client_certificate_file: Option<String>,
    /// Private key of the client certificate, unencrypted.
    #[schemars(length(min = 1, max = 4096))]
    pub client_key_file: Option<String>,
    /// File with the value of the header `authorization`, `Bearer TOKEN` or `Basic BASE64`, or with a token alone.
    #[schemars(length(min = 1, max = 4096))]
    pub authorization_file: Option<String>,
}

/// A Service of the cluster.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct Service {
    /// Namespace of the Service.
    pub namespace: ShortName,
    /// Name of the Service.
    pub name: ShortName,
    /// Port of the Service. 443 by default.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Path of the calls; not in gRPC. `/` by default.
    #[schemars(length(max = 2048), regex(pattern = PATH))]
    pub path: Option<String>,
}

const RULE: [(&str, &str); 3] = [
    ("!has(self.operations) || !has(self.verbs)", "verbs and operations are both set: keep one of the two"),
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

/// Forbids subresources in `resources` beside `subresources`. In CEL this would cost more than a cluster allows.
fn one_form() -> Value {
    json!([{ "not": { "required": ["subresources"] } }, { "properties": { "resources": { "items": { "pattern": "^[^/]*$" } } } }])
}

/// Requests that match all fields of the rule. The comparison is case-sensitive.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("anyOf" = one_form(), "x-kubernetes-validations" = rules(&RULE)))]
pub struct Rule {
    /// Operations on the object. `["*"]`, all operations, by default.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-validations" = rules(&STAR)))]
    pub operations: Option<Vec<Operation>>,
    /// Operations in an earlier form of this configuration. Excludes `operations`.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-validations" = rules(&STAR)))]
    pub verbs: Option<Vec<Operation>>,
    /// API groups: `""` is the core group, `*` alone matches all.
    #[schemars(
        length(min = 1, max = words::MAX_RULE_ENTRIES),
        inner(length(max = 253)),
        extend("x-kubernetes-validations" = rules(&STAR))
    )]
    pub api_groups: Option<Vec<String>>,
    /// A single API group. Excludes `apiGroups`.
    #[schemars(length(max = 253))]
    pub api_group: Option<String>,
    /// API versions, or `*` alone. Required unless `verbs` or `apiGroup` is used.
    #[schemars(
        length(min = 1, max = words::MAX_RULE_ENTRIES),
        inner(length(min = 1, max = 63)),
        extend("x-kubernetes-validations" = rules(&STAR))
    )]
    pub api_versions: Option<Vec<String>>,
    /// Resources and subresources: `pods`, `pods/log`, `pods/*`, `*`, `*/scale`, `*/*`.
    #[schemars(
        length(min = 1, max = words::MAX_RULE_ENTRIES),
        inner(length(min = 1, max = 253), regex(pattern = r"^[^A-Z\s]+$")),
        extend("x-kubernetes-validations" = rules(&STAR_STAR))
    )]
    pub resources: Vec<String>,
    /// Subresources of each resource, in the earliest form of this configuration. `""` is the resource itself, `*`
    /// alone matches all.
    #[schemars(
        length(min = 1, max = words::MAX_RULE_ENTRIES),
        inner(length(max = 253)),
        extend("x-kubernetes-validations" = rules(&STAR))
    )]
    pub subresources: Option<Vec<String>>,
    /// Scope of the objects. `*` by default.
    pub scope: Option<Scope>,
}

/// Operation on an object, in the words of every form of this configuration.
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

/// Scope of objects.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Scope {
    /// Objects in a namespace, and outside of any.
    #[schemars(rename = "*")]
    Any,
    /// Objects in a namespace.
    Namespaced,
    /// Objects outside of any namespace, and Namespaces themselves.
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

/// Requirements that must all be met. An empty selector matches everything.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelector {
    /// Labels with the values that they must have.
    #[schemars(extend("maxProperties" = words::MAX_REQUIREMENTS))]
    pub match_labels: Option<BTreeMap<String, LabelValue>>,
    /// Requirements that labels must meet.
    #[schemars(length(max = words::MAX_REQUIREMENTS))]
    pub match_expressions: Option<Vec<Requirement>>,
}

/// Requirement on one label.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules(&REQUIREMENT)))]
pub struct Requirement {
    /// Key of the label.
    pub key: LabelKey,
    /// Operator of the requirement.
    pub operator: Operator,
    /// Values for `In` and `NotIn`, at least one. Other operators take no values.
    #[schemars(length(max = words::MAX_NAMES))]
    pub values: Option<Vec<LabelValue>>,
}

/// Operator of a requirement on a label.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent, or has none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}
