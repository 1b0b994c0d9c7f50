//! Checks `clientConfig`, the address of a hook, and reads its certificates.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{RootCertStore, crypto::aws_lc_rs::default_provider, sign::CertifiedKey};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{Error, PemObject},
};

use super::{
    names::{LABEL, is_dns_label, is_dns_subdomain},
    url::{self, UNREACHABLE, certified, is_host, parse_any},
};
use crate::{
    ReadFile,
    document::{
        Dialect,
        node::{Node, Value},
        problem::quoted,
    },
};
use gatepost_api::{
    Endpoint, Transport, bundle,
    hook::{Address, Authorization, EndpointTls, Pem},
};

pub(crate) const KEYS: [&str; 8] = [
    "url",
    "service",
    "caBundle",
    "caFile",
    "serverName",
    "clientCertificateFile",
    "clientKeyFile",
    "authorizationFile",
];

const KUBERNETES_KEYS: [&str; 3] = ["url", "service", "caBundle"];

/// Keys that apply only to TLS connections.
const TLS_KEYS: [&str; 5] = ["caBundle", "caFile", "serverName", "clientCertificateFile", "clientKeyFile"];

/// Address of a hook.
pub(crate) struct HookLocation {
    /// Endpoint of the hook. Its transport is the URL's; for a service, it is a placeholder.
    pub(crate) endpoint: Endpoint,
    /// Path of HTTP requests to the hook.
    pub(crate) path: String,
}

/// Checks a hook's `clientConfig`, reads the files that it names, and reports problems.
pub(crate) fn check(at: &Node<'_>, dialect: Dialect, read: ReadFile<'_>) -> Option<HookLocation> {
    let (keys, fix): (&[&str], _) = match dialect {
        Dialect::Gatepost => (&KEYS, "say how the hook is reached: {url: grpc://host:port}"),
        Dialect::Kubernetes => (&KUBERNETES_KEYS, "say how the hook is reached: {url: https://host:port/path}"),
    };
    if !at.required(UNREACHABLE, fix) || !at.is_map_of(keys) {
        return None;
    }
    let before = at.problems();
    let client = place(at, dialect);
    let ca_pem = authorities(at, dialect, read);
    let client_pem = client_pair(at, read);
    let server_name = server_name(at);
    let authorization = authorization(&at.key("authorizationFile"), read);
    let (mut endpoint, path) = client?;
    match &mut endpoint.tls {
        Some(tls) => {
            *tls = EndpointTls { server_name: server_name.unwrap_or(tls.server_name.clone()), ca_pem, client_pem };
        }
        None => TLS_KEYS.iter().map(|key| at.key(key)).filter(Node::present).for_each(|key| {
            let fix = match endpoint.transport {
                Transport::Grpc => "use grpcs://, or remove it",
                Transport::Http => "use https://, or remove it",
            };
            key.problem("has no meaning on a plaintext connection", "which shows no certificate", fix);
        }),
    }
    if authorization.is_some() && is_readable_by_others(&endpoint) {
        at.key("authorizationFile").problem(
            "is set for a plaintext address",
            "so anybody on the way could read it",
            "use grpcs://, or remove it",
        );
    }
    endpoint.authorization = authorization;
    (at.problems() == before).then_some(HookLocation { endpoint, path })
}

/// Reads our credentials for the hook, and shows nothing of them.
fn authorization(place: &Node<'_>, read: ReadFile<'_>) -> Option<Authorization> {
    if !place.present() {
        return None;
    }
    let authorization = Authorization::new(&content(place, read)?);
    if authorization.is_none() {
        place.problem(
            "holds no value of a header",
            "so the hook would refuse each call",
            "write Bearer TOKEN, Basic BASE64, or a token alone, on one line",
        );
    }
    authorization
}

/// Returns true for plaintext to another machine. (URLs of HTTP name this one.)
fn is_readable_by_others(endpoint: &Endpoint) -> bool {
    match &endpoint.address {
        Address::Tcp { host, .. } => {
            let is_here =
                host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) || host.eq_ignore_ascii_case("localhost");
            endpoint.tls.is_none() && !is_here
        }
        Address::Unix(_) => false,
    }
}

/// Reads the address of the hook. Exactly one of `url` and `service` must be present.
fn place(at: &Node<'_>, dialect: Dialect) -> Option<(Endpoint, String)> {
    let (url, service) = (at.key("url"), at.key("service"));
    match (url.present(), service.present()) {
        (true, true) => {
            at.problem(
                "holds both url and service",
                "and either could be the one that is meant",
                "keep exactly one of the two",
            );
            None
        }
        (false, false) => {
            at.problem(
                "holds neither url nor service",
                UNREACHABLE,
                "add exactly one: url: https://host:port/path, or service",
            );
            None
        }
        (true, false) => {
            let text = url.text()?;
            let over_http =
                dialect == Dialect::Kubernetes || text.get(..4).is_some_and(|s| s.eq_ignore_ascii_case("http"));
            let parsed = match over_http {
                true => url::parse_http(text, dialect),
                false => parse_any(text).map(|endpoint| (endpoint, "/".into())),
            };
            parsed.map_err(|problem| url.problem(problem.what, problem.why, problem.fix)).ok()
        }
        (false, true) => check_service(&service, dialect),
    }
}

fn server_name(at: &Node<'_>) -> Option<Box<str>> {
    let name = Some(at.key("serverName")).filter(Node::present)?;
    let text = name.text()?;
    if !is_host(text) {
        name.problem(
            format!("{} is not a host name", quoted(text)),
            "so no certificate carries it",
            "write the name that the certificate carries",
        );
    }
    Some(certified(text).into())
}

pub(crate) const SERVICE_KEYS: [&str; 4] = ["namespace", "name", "port", "path"];

/// Checks a Service. The connection is always TLS, for the Service's name in the cluster. The path defaults to `/`.
pub(crate) fn check_service(at: &Node<'_>, dialect: Dialect) -> Option<(Endpoint, String)> {
    if !at.is_map_of(&SERVICE_KEYS) {
        return None;
    }
    let label = |key: &str| {
        let part = at.key(key);
        let text =
            if part.required(UNREACHABLE, "name the service and its namespace") { part.text()? } else { return None };
        if !is_dns_label(text) {
            part.problem(format!("{} is not a name", quoted(text)), "so no Service can have it", LABEL);
        }
        Some(text.to_owned())
    };
    let (namespace, name) = (label("namespace"), label("name"));
    let (port, path) = (at.key("port"), at.key("path"));
    let port = if port.present() { port.integer(1..=65535, "since there is no such port") } else { Some(443) };
    let path = if path.present() { path_of(&path) } else { Some("/".into()) };
    let host = format!("{}.{}.svc", name?, namespace?);
    let path = if dialect == Dialect::Kubernetes { url::of_service(&path?) } else { path? };
    Some((url::place(&host, u16::try_from(port?).ok()?, true, Transport::Grpc), path))
}

/// Checks a service's path by upstream's rules: `docs/reference/webhook-semantics.md` §14.
fn path_of(at: &Node<'_>) -> Option<String> {
    const REFUSED: &str = "which no apiserver accepts";
    const FIX: &str = "write / and names between slashes: /validate, of lower-case letters, digits, - and dots";
    let path = at.text()?;
    if path.is_empty() || path == "/" {
        return Some("/".into());
    }
    let Some(steps) = path.strip_prefix('/') else {
        at.problem(format!("{} does not begin with /", quoted(path)), REFUSED, FIX);
        return None;
    };
    let before = at.problems();
    for step in steps.strip_suffix('/').unwrap_or(steps).split('/') {
        if step.is_empty() {
            at.problem(format!("{} holds an empty step", quoted(path)), REFUSED, FIX);
        } else if !is_dns_subdomain(step) {
            at.problem(format!("{} is not a step of a path", quoted(step)), REFUSED, FIX);
        }
    }
    (at.problems() == before).then(|| path.into())
}

/// Reads the CA certificates from `caBundle` (base64) or `caFile`. `None` if neither is present: the system's apply.
pub(crate) fn authorities(at: &Node<'_>, dialect: Dialect, read: ReadFile<'_>) -> Option<Pem> {
    let (bundle, file) = (at.key("caBundle"), at.key("caFile"));
    if dialect == Dialect::Kubernetes && matches!(bundle.value, Value::Text(text) if text.is_empty()) {
        return None;
    }
    if bundle.present() && file.present() {
        file.problem(
            "caFile and caBundle are both set",
            "and either could be the one that is meant",
            "keep one of the two",
        );
        return None;
    }
    let (place, pem) = if bundle.present() {
        let encoded: Vec<u8> = bundle.text()?.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let Ok(pem) = STANDARD.decode(encoded) else {
            bundle.problem(
                "is not base64",
                "so no certificate of the hook could be verified",
                "write the PEM file in base64 on one line: base64 -w0 ca.pem",
            );
            return None;
        };
        (bundle, pem.into())
    } else if file.present() {
        let pem = content(&file, read)?;
        (file, pem)
    } else {
        return None;
    };
    if let Err(what) = authority(&pem) {
        place.problem(
            what,
            "so no certificate of the hook could be verified",
            "give at least one certificate (BEGIN CERTIFICATE) of the authority",
        );
    }
    Some(pem)
}

/// Reads Gatepost's client certificate and key. Both or neither must be present.
pub(crate) fn client_pair(at: &Node<'_>, read: ReadFile<'_>) -> Option<(Pem, Pem)> {
    let (certificate, key) = (at.key("clientCertificateFile"), at.key("clientKeyFile"));
    match (certificate.present(), key.present()) {
        (true, false) => {
            key.problem("is missing", "so the hook would see no certificate", "a client certificate needs its key")
        }
        (false, true) => certificate.problem(
            "is missing",
            "so the hook would see no certificate",
            "a client key needs its certificate",
        ),
        _ => {}
    }
    let chain_pem = if certificate.present() { content(&certificate, read) } else { None };
    let chain = chain_pem.as_deref().and_then(|pem| {
        let wrong = |what: String| {
            certificate.problem(
                what,
                "so the hook would see no certificate",
                "give the certificate chain (BEGIN CERTIFICATE)",
            )
        };
        certificates(pem).map_err(wrong).ok()
    });
    let key_pem = if key.present() { content(&key, read) } else { None };
    let private = key_pem.as_deref().and_then(|pem| {
        let wrong = |what: String| {
            key.problem(
                what,
                "so the hook would see no certificate",
                "give an unencrypted RSA, ECDSA or Ed25519 key (BEGIN PRIVATE KEY)",
            )
        };
        private_key(pem).map_err(wrong).ok()
    });
    if !belong_together(chain?, private?) {
        key.problem(
            "is not the key of the first certificate",
            "so every handshake would fail",
            "give the key that belongs to clientCertificateFile",
        );
    }
    chain_pem.zip(key_pem)
}

/// Reads the file whose path is at `place`.
fn content(place: &Node<'_>, read: ReadFile<'_>) -> Option<Pem> {
    let path = place.text()?;
    match read(path) {
        Ok(bytes) => Some(bytes.into()),
        Err(error) => {
            place.problem(
                format!("{} cannot be read: {error}", quoted(path)),
                "so the hook could not be called",
                "correct the path, or let the user that Gatepost runs as read the file",
            );
            None
        }
    }
}

/// Returns the certificates in these bytes, at least one, or the reason why they cannot be used.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| broken(&error))?;
        if RootCertStore::empty().add(certificate.clone()).is_err() {
            return Err(format!("is broken: its CERTIFICATE section {} holds no X.509 certificate", found.len() + 1));
        }
        found.push(certificate);
    }
    if found.is_empty() { Err("holds no CERTIFICATE section in PEM".into()) } else { Ok(found) }
}

/// Returns an error unless these bytes contain a certificate that can be a trust anchor, whatever else they contain.
pub(crate) fn authority(pem: &[u8]) -> Result<(), String> {
    let is_certificate = |der: CertificateDer<'static>| RootCertStore::empty().add(der).is_ok();
    if bundle::sections(pem).into_iter().any(is_certificate) { Ok(()) } else { certificates(pem).map(drop) }
}

/// Returns the private key in these bytes, or the reason why there is none that can be used.
pub(crate) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(key) if default_provider().key_provider.load_private_key(key.clone_key()).is_err() => {
            Err("holds a private key that cannot be read, or of a kind that is not known".into())
        }
        Ok(key) => Ok(key),
        Err(Error::NoItemsFound) => Err("holds no PRIVATE KEY section in PEM".into()),
        Err(error) => Err(broken(&error)),
    }
}

/// Returns true if the key matches the first certificate of the chain.
pub(crate) fn belong_together(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> bool {
    CertifiedKey::from_der(chain, key, &default_provider()).is_ok()
}

/// Describes the damage without any of the content.
fn broken(error: &Error) -> String {
    match error {
        Error::MissingSectionEnd { .. } => "is broken PEM: a section has no END line".into(),
        Error::IllegalSectionStart { .. } => "is broken PEM: a BEGIN line is malformed".into(),
        Error::Base64Decode(_) => "is broken PEM: a section is not base64".into(),
        _ => "is broken PEM".into(),
    }
}
