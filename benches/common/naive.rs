//! The naive reference as a whole sidecar, with the settings of `loadtest/naive/start.rs`, in this process.

use std::net::SocketAddr;

use tonic::transport::{Endpoint, Server, server::TcpIncoming};

use super::common::naive_pb as pb;

#[path = "../../loadtest/naive/sidecar.rs"]
mod sidecar;

const MIB: u32 = 1 << 20;

/// Serves until the runtime ends; returns the address.
pub(crate) async fn start(hooks: &[SocketAddr]) -> SocketAddr {
    let mut clients = Vec::with_capacity(hooks.len());
    for hook in hooks {
        let endpoint = Endpoint::from_shared(format!("http://{hook}"))
            .expect("an address")
            .tcp_nodelay(true)
            .initial_stream_window_size(MIB)
            .initial_connection_window_size(4 * MIB);
        clients
            .push(pb::gatepost::v1::admission_client::AdmissionClient::new(endpoint.connect().await.expect("a hook")));
    }
    let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port").with_nodelay(Some(true));
    let address = incoming.local_addr().expect("an address");
    let service = pb::gatepost::v1::admission_server::AdmissionServer::new(sidecar::Sidecar { hooks: clients });
    tokio::spawn(
        Server::builder()
            .initial_stream_window_size(MIB)
            .initial_connection_window_size(4 * MIB)
            .add_service(service)
            .serve_with_incoming(incoming),
    );
    address
}
