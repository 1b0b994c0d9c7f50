//! A validating hook in Rust: Pods must pin their images.
//!
//! ```text
//! cargo run --example hook-rust -- --listen 127.0.0.1:9001
//! ```
#![forbid(unsafe_code)]

mod policy;

use std::{error::Error, net::SocketAddr, path::PathBuf};

use clap::Parser;
use gatepost_wire::pb::{
    gatepost::v1::admission_server::{Admission, AdmissionServer},
    k8s::io::api::admission::v1::AdmissionReview,
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tonic::{
    Request, Response, Status,
    transport::{Certificate, Identity, Server, ServerTlsConfig, server::TcpIncoming},
};

/// An object and the one before it, each up to etcd's limits, with room to spare. The libraries' default is 4 MiB.
const LARGEST_REVIEW: usize = 16 << 20;

/// Refuse Pods whose images are not pinned.
#[derive(Parser)]
struct Flags {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:9001")]
    listen: SocketAddr,
    /// Certificate chain (PEM); with --tls-key the hook speaks TLS
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key (PEM)
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Only callers with a certificate from these authorities (PEM) are served
    #[arg(long, requires = "tls_cert")]
    client_ca: Option<PathBuf>,
}

struct PinnedImages;

#[tonic::async_trait]
impl Admission for PinnedImages {
    /// Call that Gatepost makes to a validating hook.
    async fn validate(&self, review: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        let request =
            review.into_inner().request.ok_or_else(|| Status::invalid_argument("the review has no request"))?;
        let response = policy::judge(&request).map_err(Status::invalid_argument)?;
        Ok(Response::new(AdmissionReview { request: None, response: Some(response) }))
    }

    /// Every phase that this hook has, which is one.
    async fn review(&self, review: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        self.validate(review).await
    }

    async fn mutate(&self, _: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        Err(Status::unimplemented("this hook only validates"))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse();
    let mut server = Server::builder();
    if let (Some(certificate), Some(key)) = (&flags.tls_cert, &flags.tls_key) {
        let identity = Identity::from_pem(std::fs::read(certificate)?, std::fs::read(key)?);
        let mut tls = ServerTlsConfig::new().identity(identity);
        if let Some(authorities) = &flags.client_ca {
            tls = tls.client_ca_root(Certificate::from_pem(std::fs::read(authorities)?));
        }
        server = server.tls_config(tls)?;
    }

    // Gatepost asks for the health of this very service before it puts the hook in rotation.
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<AdmissionServer<PinnedImages>>().await;
    let admission = AdmissionServer::new(PinnedImages).max_decoding_message_size(LARGEST_REVIEW);

    let listener = TcpListener::bind(flags.listen).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut terminate = signal(SignalKind::terminate())?;
    // Calls under way finish; new ones are told to go elsewhere.
    let asked_to_stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        health.set_not_serving::<AdmissionServer<PinnedImages>>().await;
    };
    server
        .add_service(health_service)
        .add_service(admission)
        .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), asked_to_stop)
        .await?;
    Ok(())
}
