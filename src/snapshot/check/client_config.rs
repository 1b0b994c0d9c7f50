//! `clientConfig`: address of a hook, checked, with the certificates read.

use super::{
    credentials::{authorities, client_pair},
    http_url, service,
    url::{UNREACHABLE, certified, is_host, parse_any},
};
use crate::{
    model::{Endpoint, Transport, hook::EndpointTls},
    snapshot::{
        ReadFile,
        document::{dialect::Dialect, node::Node, problem::quoted},
    },
};

pub(crate) const KEYS: [&str; 7] =
    ["url", "service", "caBundle", "caFile", "serverName", "clientCertificateFile", "clientKeyFile"];
const KUBERNETES_KEYS: [&str; 3] = ["url", "service", "caBundle"];

/// Keys that mean something only where the connection is TLS.
const TLS_KEYS: [&str; 5] = ["caBundle", "caFile", "serverName", "clientCertificateFile", "clientKeyFile"];

/// Address of a hook.
pub(crate) struct HookLocation {
    /// Endpoint of the hook. Its transport is the URL's; a service has none.
    pub(crate) endpoint: Endpoint,
    /// Path at which it is asked, where over HTTP.
    pub(crate) path: String,
}

/// Checks a hook's `clientConfig` and reads the files it names; what is wrong is reported.
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
    (at.problems() == before).then_some(HookLocation { endpoint, path })
}

/// Address of the hook: exactly one of `url` and `service`.
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
                true => http_url::parse(text, dialect),
                false => parse_any(text).map(|endpoint| (endpoint, "/".into())),
            };
            parsed.map_err(|problem| url.problem(problem.what, problem.why, problem.fix)).ok()
        }
        (false, true) => service::check(&service, dialect),
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
