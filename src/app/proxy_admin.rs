//! ProxyAdmin: the admin address of a read proxy: `/livez`, `/readyz`, `/metrics`.

use std::sync::Arc;

use http::{StatusCode, Uri};
use tokio::net::TcpListener;

use super::process;
use crate::{
    front::admin::pages::{self, AdminPage, AdminPages},
    proxy::{Proxy, ProxyReadiness},
    telemetry::Metrics,
    tls::ServerTls,
};

/// Pages of a read proxy for operators.
#[derive(Debug)]
pub struct ProxyAdmin {
    proxy: Arc<Proxy>,
    /// Metrics that any process has.
    process: Arc<Metrics>,
}

impl ProxyAdmin {
    /// Pages about that proxy, in the process with those metrics.
    pub fn new(proxy: Arc<Proxy>, process: Arc<Metrics>) -> Self {
        process::observe(&process);
        Self { proxy, process }
    }

    /// Serves on the runtime this is polled on until dropped; by TLS where other machines can reach the pages.
    pub async fn serve(self, listener: TcpListener, tls: Option<Arc<ServerTls>>) {
        pages::serve(self, tls, listener, std::future::pending()).await;
    }
}

impl AdminPages for ProxyAdmin {
    const PATHS: &'static [&'static str] = &["/readyz", "/metrics"];

    fn is_large(uri: &Uri) -> bool {
        // It reads files of the system.
        uri.path() == "/metrics"
    }

    fn page(&self, uri: &Uri) -> AdminPage {
        match uri.path() {
            "/readyz" => {
                let readiness = self.proxy.readiness();
                let status = match readiness {
                    ProxyReadiness::Ready => StatusCode::OK,
                    ProxyReadiness::Unanswered | ProxyReadiness::Draining => StatusCode::SERVICE_UNAVAILABLE,
                };
                pages::text(status, format!("{readiness}\n"))
            }
            _ => pages::metrics(self.proxy.metrics().render(self.proxy.load(), &self.process)),
        }
    }
}
