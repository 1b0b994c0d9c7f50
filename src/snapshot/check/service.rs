//! `clientConfig.service`: a hook by its name in the cluster.

use super::{
    clean_path,
    names::{LABEL, is_dns_label, is_dns_subdomain},
    url::{UNREACHABLE, place},
};
use crate::{
    model::{Endpoint, Transport},
    snapshot::document::{dialect::Dialect, node::Node, problem::quoted},
};

pub(crate) const KEYS: [&str; 4] = ["namespace", "name", "port", "path"];

/// A Service: always TLS, and the certificate must carry its name in the cluster. The path is `/` unless said.
pub(crate) fn check(at: &Node<'_>, dialect: Dialect) -> Option<(Endpoint, String)> {
    if !at.is_map_of(&KEYS) {
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
    let path = if dialect == Dialect::Kubernetes { clean_path::of_service(&path?) } else { path? };
    Some((place(&host, u16::try_from(port?).ok()?, true, Transport::Grpc), path))
}

/// Upstream's rules for a service's path: `docs/reference/webhook-semantics.md` §14.
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
