//! Settings, listeners and channels of the naive reference.

use std::{error::Error, fs, net::SocketAddr, path::PathBuf};

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, server::TcpIncoming};

use super::{
    pb::gatepost::v1::{admission_client::AdmissionClient, admission_server::AdmissionServer},
    sidecar::Sidecar,
};

const MIB: u32 = 1 << 20;

/// `naive`: run the reference sidecar.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// A hook's address; repeat for more
    #[arg(long = "hook", value_name = "ADDRESS", required = true)]
    hooks: Vec<SocketAddr>,
    /// Folder with ca.pem, client.pem and client.key: speak mutual TLS to the hooks
    #[arg(long, value_name = "FOLDER")]
    tls: Option<PathBuf>,
}

/// Serves until it is killed; prints its address in the product's words.
pub(crate) fn run(settings: &Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(settings))
}

async fn serve(settings: &Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut hooks = Vec::with_capacity(settings.hooks.len());
    for address in &settings.hooks {
        hooks.push(AdmissionClient::new(connect(*address, settings.tls.as_ref()).await?));
    }
    let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?.with_nodelay(Some(true));
    println!("listening tcp {}", incoming.local_addr()?);
    Server::builder()
        .initial_stream_window_size(MIB)
        .initial_connection_window_size(4 * MIB)
        .add_service(AdmissionServer::new(Sidecar { hooks }))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

async fn connect(hook: SocketAddr, tls: Option<&PathBuf>) -> Result<Channel, Box<dyn Error + Send + Sync>> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{hook}"))?
        .tcp_nodelay(true)
        .initial_stream_window_size(MIB)
        .initial_connection_window_size(4 * MIB);
    if let Some(folder) = tls {
        let read = |name: &str| fs::read(folder.join(name));
        let tls = ClientTlsConfig::new()
            .domain_name("localhost")
            .ca_certificate(Certificate::from_pem(read("ca.pem")?))
            .identity(Identity::from_pem(read("client.pem")?, read("client.key")?));
        endpoint = endpoint.tls_config(tls)?;
    }
    Ok(endpoint.connect().await?)
}
