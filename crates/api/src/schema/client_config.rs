//! `clientConfig`, as written.

use schemars::JsonSchema;

use super::{validation::rules, words::ShortName};

/// The schemes that are known, roughly with what they need; `snapshot/check/url.rs` and `http_url.rs` are exact.
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
