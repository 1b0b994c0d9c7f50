//! `clientConfig`: how a hook is reached, checked, with the certificates read.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    ReadFile,
    at::At,
    names::{LABEL, is_dns_label},
    pem::{belong_together, certificates, private_key},
    problem::quoted,
    url::{is_host, parse_url},
};
use crate::model::{
    Endpoint, Transport,
    hook::{Address, EndpointTls, Pem},
};

const KEYS: [&str; 7] =
    ["url", "service", "caBundle", "caFile", "serverName", "clientCertificateFile", "clientKeyFile"];

/// Keys that mean something only where the connection is TLS.
const TLS_KEYS: [&str; 5] = ["caBundle", "caFile", "serverName", "clientCertificateFile", "clientKeyFile"];

/// Checks a hook's `clientConfig` and reads the files it names; what is wrong is reported.
pub(super) fn check(at: &At<'_>, read: ReadFile<'_>) -> Option<Endpoint> {
    if !at.required("say how the hook is reached: {url: grpc://host:port}") || !at.is_map_of(&KEYS) {
        return None;
    }
    let before = at.problems();
    let endpoint = place(at);
    let ca_pem = authorities(at, read);
    let client_pem = client_pair(at, read);
    let server_name = server_name(at);
    let mut endpoint = endpoint?;
    match &mut endpoint.tls {
        Some(tls) => {
            *tls = EndpointTls { server_name: server_name.unwrap_or(tls.server_name.clone()), ca_pem, client_pem };
        }
        None => TLS_KEYS.iter().map(|key| at.key(key)).filter(At::present).for_each(|key| {
            key.problem("has no meaning on a plaintext connection", "use grpcs://, or remove it");
        }),
    }
    (at.problems() == before).then_some(endpoint)
}

/// Where the hook listens: exactly one of `url` and `service`.
fn place(at: &At<'_>) -> Option<Endpoint> {
    let (url, service) = (at.key("url"), at.key("service"));
    match (url.present(), service.present()) {
        (true, true) => {
            at.problem("holds both url and service", "keep exactly one of the two");
            None
        }
        (false, false) => {
            at.problem("holds neither url nor service", "add exactly one: url: grpc://host:port, or service");
            None
        }
        (true, false) => match parse_url(url.text()?) {
            Ok(endpoint) => Some(endpoint),
            Err(problem) => {
                url.problem(problem.what, problem.fix);
                None
            }
        },
        (false, true) => service_place(&service),
    }
}

/// A service by its cluster name: always TLS, and the certificate must carry that name.
fn service_place(at: &At<'_>) -> Option<Endpoint> {
    if !at.is_map_of(&["namespace", "name", "port"]) {
        return None;
    }
    let label = |key: &str| {
        let part = at.key(key);
        let text = if part.required("name the service and its namespace") { part.text()? } else { return None };
        if !is_dns_label(text) {
            part.problem(format!("{} is not a name", quoted(text)), LABEL);
        }
        Some(text.to_owned())
    };
    let (namespace, name) = (label("namespace"), label("name"));
    let port = at.key("port");
    let port = if port.present() { port.integer(1..=65535)? } else { 443 };
    let host: Box<str> = format!("{}.{}.svc", name?, namespace?).into();
    Some(Endpoint {
        address: Address::Tcp { host: host.clone(), port: u16::try_from(port).ok()? },
        tls: Some(EndpointTls { server_name: host, ca_pem: None, client_pem: None }),
        transport: Transport::Grpc,
    })
}

fn server_name(at: &At<'_>) -> Option<Box<str>> {
    let name = Some(at.key("serverName")).filter(At::present)?;
    let text = name.text()?;
    if !is_host(text) {
        name.problem(format!("{} is not a host name", quoted(text)), "write the name that the certificate carries");
    }
    Some(text.into())
}

/// The authorities: `caBundle` in base64, or `caFile`, or the system's.
fn authorities(at: &At<'_>, read: ReadFile<'_>) -> Option<Pem> {
    let (bundle, file) = (at.key("caBundle"), at.key("caFile"));
    if bundle.present() && file.present() {
        file.problem("stands beside caBundle", "keep one of the two");
        return None;
    }
    let (place, pem) = if bundle.present() {
        let encoded: Vec<u8> = bundle.text()?.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let Ok(pem) = STANDARD.decode(encoded) else {
            bundle.problem("is not base64", "write the PEM file in base64 on one line: base64 -w0 ca.pem");
            return None;
        };
        (bundle, pem.into())
    } else if file.present() {
        let pem = content(&file, read)?;
        (file, pem)
    } else {
        return None;
    };
    if let Err(what) = certificates(&pem) {
        place.problem(what, "give at least one certificate (BEGIN CERTIFICATE) of the authority");
    }
    Some(pem)
}

/// Our own certificate and key: both, or neither.
fn client_pair(at: &At<'_>, read: ReadFile<'_>) -> Option<(Pem, Pem)> {
    let (certificate, key) = (at.key("clientCertificateFile"), at.key("clientKeyFile"));
    match (certificate.present(), key.present()) {
        (true, false) => key.problem("is missing", "a client certificate needs its key"),
        (false, true) => certificate.problem("is missing", "a client key needs its certificate"),
        _ => {}
    }
    let chain_pem = if certificate.present() { content(&certificate, read) } else { None };
    let chain = chain_pem.as_deref().and_then(|pem| {
        let wrong = |what: String| certificate.problem(what, "give the certificate chain (BEGIN CERTIFICATE)");
        certificates(pem).map_err(wrong).ok()
    });
    let key_pem = if key.present() { content(&key, read) } else { None };
    let private = key_pem.as_deref().and_then(|pem| {
        let wrong =
            |what: String| key.problem(what, "give an unencrypted RSA, ECDSA or Ed25519 key (BEGIN PRIVATE KEY)");
        private_key(pem).map_err(wrong).ok()
    });
    if !belong_together(chain?, private?) {
        key.problem("is not the key of the first certificate", "give the key that belongs to clientCertificateFile");
    }
    chain_pem.zip(key_pem)
}

/// The content of the file that is named here.
fn content(place: &At<'_>, read: ReadFile<'_>) -> Option<Pem> {
    let path = place.text()?;
    match read(path) {
        Ok(bytes) => Some(bytes.into()),
        Err(error) => {
            place.problem(
                format!("{} cannot be read: {error}", quoted(path)),
                "correct the path, or let the user that Gatepost runs as read the file",
            );
            None
        }
    }
}
