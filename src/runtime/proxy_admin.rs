//! Admin address of a read proxy: `/livez`, `/readyz`, `/metrics`.

use std::{sync::Arc, time::SystemTime};

use http::{StatusCode, Uri};
use tokio::net::TcpListener;

use super::process;
use crate::{
    front::admin::pages::{self, AdminPage, AdminPages},
    telemetry::{Metrics, render_read_proxy},
};
use gatepost_read_proxy::{Proxy, ProxyReadiness};
use gatepost_tls::ServerTls;

/// Pages of a read proxy for operators.
#[derive(Debug)]
pub struct ProxyAdmin {
    proxy: Arc<Proxy>,
    /// TLS configuration for its clients.
    tls: Arc<ServerTls>,
    /// Metrics of the process.
    process: Arc<Metrics>,
}

impl ProxyAdmin {
    /// Creates the pages about `proxy`, with the metrics of the process.
    pub fn new(proxy: Arc<Proxy>, tls: Arc<ServerTls>, process: Arc<Metrics>) -> Self {
        process::observe(&process);
        Self { proxy, tls, process }
    }

    /// Serves on the current runtime until dropped; over TLS if `others`, that is if other machines reach the pages.
    pub async fn serve(self, listener: TcpListener, others: bool) {
        let tls = others.then(|| Arc::clone(&self.tls));
        pages::serve(self, tls, listener, std::future::pending()).await;
    }
}

impl AdminPages for ProxyAdmin {
    const PATHS: &'static [&'static str] = &["/readyz", "/metrics"];

    fn is_large(uri: &Uri) -> bool {
        // The page reads files of the system.
        uri.path() == "/metrics"
    }

    fn page(&self, uri: &Uri) -> AdminPage {
        match uri.path() {
            "/readyz" => {
                if let Some(why) = self.tls.certificate_fault(SystemTime::now()) {
                    let text = format!("not ready: the serving certificate {why}, and clients reject it\n");
                    return pages::text(StatusCode::SERVICE_UNAVAILABLE, text);
                }
                let readiness = self.proxy.readiness();
                let status = match readiness {
                    ProxyReadiness::Ready => StatusCode::OK,
                    ProxyReadiness::Unanswered | ProxyReadiness::Draining => StatusCode::SERVICE_UNAVAILABLE,
                };
                pages::text(status, format!("{readiness}\n"))
            }
            _ => pages::metrics(render_read_proxy(self.proxy.metrics(), self.proxy.load(), &self.process)),
        }
    }
}
