//! One entry of `externalAdmissionHooks`, as written.

use schemars::JsonSchema;

use super::{
    client_config::ClientConfig,
    limits,
    rule::Rule,
    selector::LabelSelector,
    validation::{duration, rules},
    words::{LabelKey, Name, Time},
};

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
        "!has(self.failurePolicy) || self.failurePolicy != 'Retry' || (has(self.sideEffects) && self.sideEffects.startsWith('None'))",
        "failurePolicy: Retry may ask twice: declare sideEffects None or NoneOnDryRun if that is true, or use Fail or Ignore",
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
    /// By which denials, metrics and annotations speak of the hook; unique among all configurations.
    pub name: Name,
    /// May the hook change the object? `Validating` unless said.
    #[schemars(rename = "type")]
    pub hook_type: Option<HookType>,
    /// How the hook is reached.
    pub client_config: ClientConfig,
    /// What is sent. Unless said the scheme of the URL decides: `grpc` for grpc, grpcs, unix and a service, `json` for
    /// https, http and http+unix.
    pub protocol: Option<Protocol>,
    /// The versions of AdmissionReview that the hook reads; the first that is known is sent. `[v1]` unless said; only
    /// for `json` and `protobuf`.
    #[schemars(
        length(min = 1, max = 16),
        inner(length(min = 1, max = 63), regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$")),
        extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = rules(&VERSIONS))
    )]
    pub admission_review_versions: Option<Vec<String>>,
    /// What the hook is asked about; any rule suffices. `[]` is a hook that is never asked.
    #[schemars(length(max = limits::RULES))]
    pub rules: Vec<Rule>,
    /// What of a request made or sent in a version that no rule names. `Equivalent` unless said.
    pub match_policy: Option<MatchPolicy>,
    /// What happens when no usable answer comes. `Fail` unless said.
    pub failure_policy: Option<FailurePolicy>,
    /// The longest one call may take, with its unit, from `1ms` to `30s`. `10s` unless said.
    pub timeout: Option<Time>,
    /// The same in whole seconds; one of the two at most.
    #[schemars(range(min = 1, max = 30))]
    pub timeout_seconds: Option<u8>,
    /// What a call changes in the world. A dry run reaches only hooks that say `None` or `NoneOnDryRun`.
    pub side_effects: Option<SideEffects>,
    /// Is a mutating hook asked once more where something changes the object after it? `Never` unless said.
    pub reinvocation_policy: Option<ReinvocationPolicy>,
    /// How a mutating hook is asked. As `serve --dispatch` says unless said here.
    pub dispatch: Option<Dispatch>,
    /// Is a mutating hook registered with the apiserver apart from the others, so that the apiserver sets defaults before
    /// and behind it? `false` unless said.
    pub isolate: Option<bool>,
    /// Which namespaces' objects the hook sees, by the labels of the namespace. All unless said.
    pub namespace_selector: Option<LabelSelector>,
    /// Which objects the hook sees, by the labels of the new or the old object. All unless said.
    pub object_selector: Option<LabelSelector>,
    /// What else must hold of a request the hook is asked about; the first that is false excludes it.
    #[schemars(length(max = limits::CONDITIONS), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub match_conditions: Option<Vec<MatchCondition>>,
    /// How the hook is brought into rotation.
    pub rollout: Option<Rollout>,
}

/// An expression in CEL that must say yes.
#[derive(Clone, Debug, JsonSchema)]
pub struct MatchCondition {
    /// By which messages speak of it; unique in its hook.
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

/// How is a mutating hook asked?
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum Dispatch {
    /// By itself, when it is its turn.
    Serial,
    /// Together with others, ahead of its turn, where that comes to the same.
    Speculative,
}

/// What is sent to a hook.
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

/// What of a request in a version that no rule names?
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum MatchPolicy {
    /// The hook does not mean it.
    Exact,
    /// The hook means it.
    Equivalent,
}

/// What happens when no usable answer comes.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum FailurePolicy {
    /// The request is rejected.
    Fail,
    /// The hook is passed over.
    Ignore,
    /// The hook is asked once more, then as `Fail`; only with sideEffects `None` or `NoneOnDryRun`.
    Retry,
}

/// What a call changes in the world.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub enum SideEffects {
    /// Nothing.
    None,
    /// Nothing in a dry run.
    NoneOnDryRun,
    /// Something.
    Some,
    /// Nobody knows.
    Unknown,
}

/// How a hook is brought into rotation.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1))]
pub struct Rollout {
    /// While it stands here, the failure policy in force is `Ignore`, whatever `failurePolicy` says. Remove it when
    /// the hook has proved itself.
    pub create_as: Option<CreateAs>,
    /// A hook that has passed no probe for so long is told as overdue; `1s` to `24h`, `5m` unless said.
    pub probe_within: Option<Time>,
    /// What follows then for a hook that nobody asks. `Wait` unless said.
    pub on_probe_failure: Option<OnProbeFailure>,
}

/// What becomes of a hook that has passed no probe in time.
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
