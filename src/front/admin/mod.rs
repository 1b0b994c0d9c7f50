//! The admin address: `/livez`, `/readyz`, `/metrics`, `/configz`. HTTP/1.1, read only.

pub(crate) mod configz;
pub mod pages;
pub mod readiness;

use std::sync::Arc;

use http::{StatusCode, Uri};
use tokio::net::TcpListener;

use self::{
    pages::{AdminPage, AdminPages, body, text},
    readiness::{Readiness, degradations},
};
use crate::{
    live::{Namespaces, ReplicaHealth},
    replicas::Replica,
    telemetry::Metrics,
    tls::ServerTls,
};

/// State that operators may see.
#[derive(Clone, Debug)]
pub struct Admin {
    /// What this replica reports about itself.
    pub health: Arc<ReplicaHealth>,
    /// This replica, and the progress of publishing its reports.
    pub replica: Arc<Replica>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The cluster's namespaces, where they are followed.
    pub namespaces: Option<Arc<Namespaces>>,
    /// TLS for the pages, where other machines can reach them.
    pub tls: Option<Arc<ServerTls>>,
}

impl Admin {
    /// Serves on the runtime this is polled on until `shutdown`; connections still open are then closed.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let tls = self.tls.clone();
        pages::serve(self, tls, listener, shutdown).await;
    }

    /// The readiness, and below it what is amiss without making us unready.
    fn readyz_verbose(&self) -> AdminPage {
        let (readiness, degradations) = (Readiness::of(&self.health), degradations(&self.health));
        let degraded = if degradations.is_empty() { "" } else { ", degraded" };
        let lines: String = degradations.iter().map(|line| format!("[-] {line}\n")).collect();
        text(status_of(readiness), format!("{readiness}{degraded}\n{lines}"))
    }

    fn configz(&self) -> AdminPage {
        let page = configz::page(&self.health, &self.replica, self.namespaces.as_deref());
        body(StatusCode::OK, "application/json", format!("{page:#}\n"))
    }
}

impl AdminPages for Admin {
    const PATHS: &'static [&'static str] = &["/readyz", "/metrics", "/configz"];

    fn is_large(uri: &Uri) -> bool {
        uri.path() != "/readyz" || has(uri, "verbose")
    }

    fn page(&self, uri: &Uri) -> AdminPage {
        match uri.path() {
            "/readyz" if has(uri, "verbose") => self.readyz_verbose(),
            "/readyz" => {
                let among_replicas = has(uri, "fresh");
                let of = if among_replicas { Readiness::among_replicas } else { Readiness::of };
                let readiness = of(&self.health);
                text(status_of(readiness), format!("{readiness}\n"))
            }
            "/metrics" => pages::metrics(self.metrics.render()),
            _ => self.configz(),
        }
    }
}

fn status_of(readiness: Readiness) -> StatusCode {
    match readiness {
        Readiness::Ready => StatusCode::OK,
        Readiness::NeverRead
        | Readiness::Rejected
        | Readiness::Nameless
        | Readiness::Stale
        | Readiness::Unreachable
        | Readiness::Draining => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Does the query have this key?
fn has(uri: &Uri, key: &str) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|one| one == key))
}
