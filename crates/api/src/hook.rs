//! Hook: endpoint, protocol, rules and policies of one hook; and Rollout: the time within which it must pass a probe.

use std::{sync::Arc, time::Duration};

use super::{ReviewVersion, Rule, Selector};

/// Type of a hook, which decides whether it may change the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookType {
    /// Allows or denies.
    Validating,
    /// May return a patch. Called before the validating hooks.
    Mutating,
}

impl HookType {
    /// Returns the name used in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validating => "Validating",
            Self::Mutating => "Mutating",
        }
    }

    /// Returns the kind of the Kubernetes objects that configure hooks of this type.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Mutating => "MutatingWebhookConfiguration",
        }
    }

    /// Returns the resource of the Kubernetes objects that configure hooks of this type.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Validating => "validatingwebhookconfigurations",
            Self::Mutating => "mutatingwebhookconfigurations",
        }
    }
}

/// Whether a mutating hook is called again if the object changes after its call. Upstream: `reinvocationPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reinvocation {
    /// It is called once.
    #[default]
    Never,
    /// It is called once more, with the changed object.
    IfNeeded,
}

impl Reinvocation {
    /// Returns the name used in a configuration.
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
    /// One by one, in order.
    Serial,
    /// Concurrently with the hooks before it. The answer is discarded if one of them changes the object or rejects the
    /// request, so the result is the same as with `Serial`.
    Speculative,
}

impl Dispatch {
    /// Returns the name used in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serial => "Serial",
            Self::Speculative => "Speculative",
        }
    }
}

/// Effect of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request is rejected.
    Fail,
    /// The hook is skipped. This is counted, logged and annotated.
    Ignore,
    /// The hook is called once more, on another connection and within its budget; then as `Fail`.
    Retry,
}

impl FailurePolicy {
    /// Returns true if a hook or initializer that fails is skipped. Otherwise the request is rejected.
    pub const fn fails_open(self) -> bool {
        matches!(self, Self::Ignore)
    }

    /// Returns the name used in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
            Self::Retry => "Retry",
        }
    }
}

/// Effect of a hook or policy on requests, so that it can be tried before it rejects any. Ordered from the strictest on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Enforcement {
    /// Its denials reject, and its failures by its failure policy.
    #[default]
    Deny,
    /// What it would reject passes, and the client is warned.
    Warn,
    /// What it would reject passes, with an audit annotation.
    Audit,
    /// It decides after the verdict, without any effect on it. What it would reject is counted.
    Shadow,
}

impl Enforcement {
    /// Annotation of Kubernetes' documents, which have no field for it.
    pub const ANNOTATION: &str = "gatepost.dev/enforcement";

    /// Returns true if its rejections take effect.
    pub const fn denies(self) -> bool {
        matches!(self, Self::Deny)
    }

    /// Returns the name used in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
            Self::Shadow => "Shadow",
        }
    }
}

/// Share of the requests that a hook or policy decides in place of the one that it is to replace. Each decides the
/// other requests in shadow, so that what they decide can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canary {
    /// Name of the hook or policy that it is to replace.
    pub replaces: Arc<str>,
    /// The share, in hundredths of a percent: 1 to 9,999.
    share: u16,
}

impl Canary {
    /// Annotation of Kubernetes' documents, which have no field for it.
    pub const ANNOTATION: &str = "gatepost.dev/canary";

    /// Reads a text such as `5% of NAME` or `0.25% of NAME`; `None` if it is none, or if the share is not between 0 and
    /// 100 %. Does not check the name.
    pub fn parse(text: &str) -> Option<Self> {
        let (percent, name) = text.split_once("% of ")?;
        let (whole, hundredths) = match percent.split_once('.') {
            None => (percent, String::new()),
            Some((whole, decimals)) => (whole, format!("{decimals:0<2}")),
        };
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || whole.len() > 2 || !is_number(whole) || !is_number(&hundredths) || percent.ends_with('.')
        {
            return None;
        }
        let share = match hundredths.len() {
            0 => whole.parse::<u16>().ok()? * 100,
            2 => whole.parse::<u16>().ok()? * 100 + hundredths.parse::<u16>().ok()?,
            _ => return None,
        };
        (share > 0 && !name.is_empty()).then(|| Self { replaces: name.into(), share })
    }

    /// Returns true if it decides the request with this UID in place of the other. The same UID has the same result in
    /// every replica, and a larger share includes the requests of a smaller one.
    pub fn decides(&self, uid: &str) -> bool {
        // FNV-1a, whose upper bits are mixed best.
        let hash = uid
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        (hash >> 32) % 10_000 < u64::from(self.share)
    }
}

impl std::fmt::Display for Canary {
    /// Writes the text that [`Canary::parse`] reads.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { replaces, share } = self;
        match share % 100 {
            0 => write!(f, "{}% of {replaces}", share / 100),
            hundredths => write!(f, "{}.{hundredths:02}% of {replaces}", share / 100),
        }
    }
}

/// Side effects of a call besides its answer. Upstream: `sideEffects`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideEffects {
    /// Not declared; a dry run cannot reach the hook.
    Undeclared,
    /// No side effects.
    None,
    /// No side effects on a dry run.
    NoneOnDryRun,
    /// Side effects; a dry run that matches is rejected.
    Some,
    /// Perhaps side effects; a dry run that matches is rejected.
    Unknown,
}

impl SideEffects {
    /// Returns the name used in a configuration; "" if undeclared.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Undeclared => "",
            Self::None => "None",
            Self::NoneOnDryRun => "NoneOnDryRun",
            Self::Some => "Some",
            Self::Unknown => "Unknown",
        }
    }

    /// Returns true if a call has no side effects, so that it may be repeated, or its answer discarded.
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

/// TLS settings of an endpoint. PEM texts were read when the configuration was read. If a file has other PEM, that is a
/// new endpoint, to which the hook moves once a probe has passed (`src/rotate/placements.rs`).
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointTls {
    /// Name that the server's certificate must contain.
    pub server_name: Box<str>,
    /// Certificate authorities (PEM) for the server's certificate; `None` for those of the system.
    pub ca_pem: Option<Pem>,
    /// Our certificate chain and private key (PEM); `None` if the hook does not authenticate clients.
    pub client_pem: Option<(Pem, Pem)>,
}

impl std::hash::Hash for EndpointTls {
    /// Hashes the name and the lengths of the texts. Most endpoints differ in these, and the texts are long.
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

/// Value of the `authorization` header of every call to an endpoint. A secret: its text is never shown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Authorization(Arc<str>);

impl Authorization {
    /// Returns the authorization that a file contains: `Bearer TOKEN`, `Basic BASE64`, another scheme, or a token alone,
    /// as Kubernetes writes those of service accounts. `None` if that is no value of a header.
    pub fn new(content: &[u8]) -> Option<Self> {
        let text = str::from_utf8(content).ok()?.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
            return None;
        }
        Some(Self(if text.contains(' ') { text.into() } else { format!("Bearer {text}").into() }))
    }

    /// Returns the value: printable ASCII.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Authorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authorization")
    }
}

/// Protocol on an endpoint's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// gRPC over HTTP/2.
    Grpc,
    /// HTTP/2 or HTTP/1.1, as negotiated by TLS; HTTP/1.1 in plaintext.
    Http,
}

/// Encoding of the review for a hook that is called over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HttpForm {
    /// An AdmissionReview in JSON, as kube-apiserver sends it.
    Json(ReviewVersion),
    /// An AdmissionReview in protobuf, in Kubernetes' envelope.
    Protobuf(ReviewVersion),
    /// JSON with `spec`, answered by status 200, 204 or 400. Source: `docs/writing-a-hook.md`, "legacy".
    Legacy,
}

/// Protocol of a hook.
///
/// A new protocol is a variant here, and of [`HttpForm`] or [`Transport`] if it is another form or another kind of
/// connection. The compiler then names most places, and these are all:
///
/// - read: `schema/hook.rs`, and in `crates/config/src` `check/hook.rs` (`check_protocol`), `check/client_config.rs`
///   and `check/url.rs`; shown and compared: `describe.rs`, `reload/relaxation.rs` and `coverage/mod.rs`;
/// - encoded: `crates/wire/src/encodings.rs`; TLS (ALPN): `crates/tls/src/client.rs`;
/// - sent and judged: in `src/hooks` `protocol/mod.rs`, `dialler.rs`, `http1/exchange.rs` and `probe.rs`;
/// - called and decoded: in `src/review` `attempt.rs`, `round.rs` and `record.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `gatepost.v1.Admission/Validate`.
    Grpc,
    /// A POST.
    Http {
        /// Path, and query if the URL has one; begins with `/`.
        path: Arc<str>,
        /// Encoding of the review.
        form: HttpForm,
    },
}

/// Whether rules match requests in other versions of their resources. Upstream: `matchPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchPolicy {
    /// Only the versions that the rules name match.
    Exact,
    /// A request in another version of the resource also matches.
    Equivalent,
}

impl MatchPolicy {
    /// Returns the name used in a configuration.
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
    /// Our credentials; `None` if the hook takes none, or a client certificate.
    pub authorization: Option<Authorization>,
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

/// A hook whose configuration has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Name in denials, metrics and annotations. Hooks of different configurations may share it.
    pub name: Arc<str>,
    /// Identity among all hooks, also those of the same name: `<configuration>/<name>/<n>`, n counting equal names in
    /// one configuration from 0. Source: `docs/reference/webhook-semantics.md` §3.
    pub id: Arc<str>,
    /// Whether the hook may change the object.
    pub hook_type: HookType,
    /// Rules that select requests; one match is enough.
    pub rules: Vec<Rule>,
    /// Whether rules match requests in other versions of their resources.
    pub match_policy: MatchPolicy,
    /// True if it is called for the configuration of admission itself. Upstream calls only hooks of static manifests.
    pub sees_admission_config: bool,
    /// Endpoint of the hook.
    pub endpoint: Endpoint,
    /// Protocol of the calls.
    pub protocol: Protocol,
    /// True if it also takes objects in Kubernetes' protobuf envelope: a validating hook over gRPC.
    pub takes_protobuf: bool,
    /// Effect of a failed call: `Ignore` while the entry has `rollout.createAs: Ignore`.
    pub failure_policy: FailurePolicy,
    /// Effect of what the hook rejects, and of failed calls that its failure policy rejects.
    pub enforcement: Enforcement,
    /// Set if it is to replace another hook, and decides only a share of the requests until it does.
    pub canary: Option<Canary>,
    /// Timeout of one call.
    pub timeout: Duration,
    /// Side effects of a call.
    pub side_effects: SideEffects,
    /// Whether a mutating hook is called again.
    pub reinvocation: Reinvocation,
    /// Calling mode of a mutating hook; `None` for the default mode.
    pub dispatch: Option<Dispatch>,
    /// Names of the hooks that are called before it, for mutating and transactional hooks.
    pub after: Box<[Box<str>]>,
    /// True if a validating hook is called after all others, and only for requests that none of them rejects.
    pub is_transactional: bool,
    /// True if a mutating hook is registered with the apiserver as a webhook of its own.
    pub isolated: bool,
    /// Selects objects by the labels of their namespaces.
    pub namespace_selector: Selector,
    /// Selects objects by their labels.
    pub object_selector: Selector,
}

impl Hook {
    /// Returns true if a failed call rejects the request under this failure policy.
    pub const fn fails_closed(&self, policy: FailurePolicy) -> bool {
        self.enforcement.denies() && !policy.fails_open()
    }
}

/// Effect on a hook that has passed no probe within [`Rollout::probe_within`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnProbeFailure {
    /// It stays out of rotation until a probe passes.
    #[default]
    Wait,
    /// It enters rotation without a passed probe, and its failure policy applies.
    Enforce,
}

impl OnProbeFailure {
    /// Returns the name used in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "Wait",
            Self::Enforce => "Enforce",
        }
    }
}

/// Time within which a hook must pass a probe, and the effect of missing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// Time after which a hook without a passed probe is reported as overdue.
    pub probe_within: Duration,
    /// Effect on an overdue hook that is not called yet.
    pub on_probe_failure: OnProbeFailure,
}

impl Default for Rollout {
    fn default() -> Self {
        Self { probe_within: Duration::from_secs(5 * 60), on_probe_failure: OnProbeFailure::Wait }
    }
}

#[cfg(test)]
mod tests {
    use super::Canary;

    #[test]
    fn a_canary_is_written_as_it_is_read_and_its_share_is_between_0_and_100_percent() {
        for text in ["5% of a", "0.25% of old.example.com", "99.99% of a", "0.01% of a"] {
            assert_eq!(Canary::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Canary::parse("2.5% of a").unwrap().to_string(), "2.50% of a");
        for text in
            ["", "5%", "5% of ", "0% of a", "100% of a", "0.001% of a", "-1% of a", "5.% of a", ".5% of a", "5 % of a"]
        {
            assert_eq!(Canary::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_canary_decides_its_share_of_uids_and_a_larger_share_includes_it() {
        let (some, more) = (Canary::parse("5% of a").unwrap(), Canary::parse("50% of a").unwrap());
        let uids: Vec<_> = (0..10_000).map(|number| format!("705ab4f5-6393-11e8-b7cc-{number:012}")).collect();
        let count = |canary: &Canary| uids.iter().filter(|uid| canary.decides(uid)).count();
        assert!((400..600).contains(&count(&some)), "{}", count(&some));
        assert!((4_700..5_300).contains(&count(&more)), "{}", count(&more));
        assert!(uids.iter().all(|uid| !some.decides(uid) || more.decides(uid)));
    }
}
