//! Hook: endpoint, protocol, rules and policies of one hook, and its rollout: the bound on the time that it may go
//! unproven.

use std::{sync::Arc, time::Duration};

use super::{ReviewVersion, Rule, Selector};

/// Type of a hook: it decides whether the hook may change the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookType {
    /// Says yes or no.
    Validating,
    /// May return a patch; asked before the validating ones.
    Mutating,
}

impl HookType {
    /// As written in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validating => "Validating",
            Self::Mutating => "Mutating",
        }
    }

    /// Kind of the objects in which a cluster has hooks of this type.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Mutating => "MutatingWebhookConfiguration",
        }
    }

    /// Resource of these objects.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Validating => "validatingwebhookconfigurations",
            Self::Mutating => "mutatingwebhookconfigurations",
        }
    }
}

/// Reinvocation of a mutating hook where something changes the object after it. Upstream: `reinvocationPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reinvocation {
    /// Once is enough.
    #[default]
    Never,
    /// Once more, about the object as it then is.
    IfNeeded,
}

impl Reinvocation {
    /// As written in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "Never",
            Self::IfNeeded => "IfNeeded",
        }
    }
}

/// Calling mode of a mutating hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// One by one, each in its turn.
    Serial,
    /// Together with others, ahead of its turn, where that comes to the same.
    Speculative,
}

impl Dispatch {
    /// As written in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serial => "Serial",
            Self::Speculative => "Speculative",
        }
    }
}

/// Effect of a CallFailure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request is rejected.
    Fail,
    /// The hook is passed over, and that is counted, logged and annotated.
    Ignore,
    /// Asked once more on another connection inside the budget, then as Fail.
    Retry,
}

impl FailurePolicy {
    /// Is a hook, or an initializer, passed over where it cannot do its part? Otherwise the request is rejected.
    pub const fn fails_open(self) -> bool {
        matches!(self, Self::Ignore)
    }

    /// As written in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
            Self::Retry => "Retry",
        }
    }
}

/// Side effects of a call besides its answer. Upstream: `sideEffects`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideEffects {
    /// Not said; a dry run cannot reach the hook.
    Undeclared,
    /// Nothing.
    None,
    /// Nothing on a dry run.
    NoneOnDryRun,
    /// Something; a dry run that matches is rejected.
    Some,
    /// Perhaps something; a dry run that matches is rejected.
    Unknown,
}

impl SideEffects {
    /// As written in a configuration; "" where nothing is.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Undeclared => "",
            Self::None => "None",
            Self::NoneOnDryRun => "NoneOnDryRun",
            Self::Some => "Some",
            Self::Unknown => "Unknown",
        }
    }

    /// True where a call has none, about a dry run or about a real request: the hook may be asked in vain, and twice.
    pub fn none_for(self, dry_run: bool) -> bool {
        match self {
            Self::None => true,
            Self::NoneOnDryRun => dry_run,
            Self::Undeclared | Self::Some | Self::Unknown => false,
        }
    }
}

/// Address of a hook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host name or IP address, and a port.
    Tcp {
        /// Host name or IP address.
        host: Box<str>,
        /// Port.
        port: u16,
    },
    /// A unix socket's absolute path.
    Unix(Box<str>),
}

/// Certificates, or a private key, as PEM text.
pub type Pem = Arc<[u8]>;

/// The TLS material of an endpoint, as PEM text read when the configuration was read.
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointTls {
    /// Name the server's certificate must carry.
    pub server_name: Box<str>,
    /// Certificate authorities (PEM) that may have signed it; `None` means the system's.
    pub ca_pem: Option<Pem>,
    /// Our certificate chain and private key (PEM), where the hook wants to know who asks.
    pub client_pem: Option<(Pem, Pem)>,
}

impl std::hash::Hash for EndpointTls {
    /// Hash of the name and the lengths of the texts: most differ in these, and kilobytes of PEM need not be read.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let len = |pem: &Pem| pem.len();
        self.server_name.hash(state);
        self.ca_pem.as_ref().map(len).hash(state);
        self.client_pem.as_ref().map(|(chain, key)| (len(chain), len(key))).hash(state);
    }
}

impl std::fmt::Debug for EndpointTls {
    /// Never shows key material.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointTls")
            .field("server_name", &self.server_name)
            .field("own_ca", &self.ca_pem.is_some())
            .field("client_certificate", &self.client_pem.is_some())
            .finish()
    }
}

/// Protocol on an endpoint's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// HTTP/2 with gRPC in it.
    Grpc,
    /// HTTP/2 or HTTP/1.1, as the hook's TLS chooses; HTTP/1.1 in plaintext.
    Http,
}

/// Encoding of the review for a hook that is asked over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HttpForm {
    /// An AdmissionReview in JSON, as kube-apiserver sends it.
    Json(ReviewVersion),
    /// An AdmissionReview in protobuf, in Kubernetes' envelope.
    Protobuf(ReviewVersion),
    /// JSON with `spec`, answered by status 200, 204 or 400. Source: `docs/writing-a-hook.md`, the seeds' contract.
    Legacy,
}

/// Protocol of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `gatepost.v1.Admission/Validate`.
    Grpc,
    /// A POST.
    Http {
        /// Path, and query where the URL has one; begins with `/`.
        path: Arc<str>,
        /// Encoding of the review.
        form: HttpForm,
    },
}

/// Treatment of rules for other versions of the same resource. Upstream: `matchPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchPolicy {
    /// Only what the rules say.
    Exact,
    /// A request made through another version of the resource counts too.
    Equivalent,
}

impl MatchPolicy {
    /// As written in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "Exact",
            Self::Equivalent => "Equivalent",
        }
    }
}

/// Address, TLS and transport of a hook. Two hooks with equal endpoints share connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Address to connect to.
    pub address: Address,
    /// TLS, or plaintext.
    pub tls: Option<EndpointTls>,
    /// Protocol on its connections.
    pub transport: Transport,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = match (self.transport, self.tls.is_some()) {
            (Transport::Grpc, true) => "grpcs",
            (Transport::Grpc, false) => "grpc",
            (Transport::Http, true) => "https",
            (Transport::Http, false) => "http",
        };
        match &self.address {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "{scheme}://[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{scheme}://{host}:{port}"),
            Address::Unix(path) if self.transport == Transport::Http => write!(f, "http+unix://{path}"),
            Address::Unix(path) => write!(f, "unix://{path}"),
        }
    }
}

/// One external decider, ready to use: everything was checked when the configuration was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Name in denials, metrics and annotations. Hooks of different configurations may share it.
    pub name: Arc<str>,
    /// Identity among all hooks, also those of the same name: `<configuration>/<name>/<n>`, n counting equal names in
    /// one configuration from 0. Source: `docs/reference/webhook-semantics.md` §3.
    pub id: Arc<str>,
    /// May it change the object?
    pub hook_type: HookType,
    /// Rules that select requests; one match is enough.
    pub rules: Vec<Rule>,
    /// Do other versions of the rules' resources count?
    pub match_policy: MatchPolicy,
    /// Is it asked about the configuration of admission itself? Upstream asks only hooks of static manifests.
    pub sees_admission_config: bool,
    /// Endpoint of the hook.
    pub endpoint: Endpoint,
    /// Protocol of the calls.
    pub protocol: Protocol,
    /// Effect of a CallFailure: `Ignore` while `rollout.createAs: Ignore` stands in the entry.
    pub failure_policy: FailurePolicy,
    /// The longest one call may take.
    pub timeout: Duration,
    /// Side effects of a call.
    pub side_effects: SideEffects,
    /// Of a mutating hook: is it asked once more?
    pub reinvocation: Reinvocation,
    /// Of a mutating hook: how it is asked; `None`: as all are.
    pub dispatch: Option<Dispatch>,
    /// Of a mutating hook: does the apiserver ask about it by a webhook of its own?
    pub isolated: bool,
    /// Which namespaces' objects it sees.
    pub namespace_selector: Selector,
    /// Which objects it sees, by their labels.
    pub object_selector: Selector,
}

/// Treatment of a hook that has passed no probe in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnProbeFailure {
    /// It stays out of rotation until a probe passes.
    #[default]
    Wait,
    /// It enters rotation unproven: its failure policy decides.
    Enforce,
}

impl OnProbeFailure {
    /// As written in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "Wait",
            Self::Enforce => "Enforce",
        }
    }
}

/// Bound on the time that a hook may go unproven, and the effect of passing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// Time after which it is reported as overdue.
    pub probe_within: Duration,
    /// Effect on a hook that is not called.
    pub on_probe_failure: OnProbeFailure,
}

impl Default for Rollout {
    fn default() -> Self {
        Self { probe_within: Duration::from_secs(5 * 60), on_probe_failure: OnProbeFailure::Wait }
    }
}
