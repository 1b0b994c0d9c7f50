//! Webhooks that drain a review and say yes, over HTTP/2 and TLS, all on one thread of their own.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use bytes::Bytes;
use gatepost_api::{
    Endpoint, Transport,
    hook::{Address, EndpointTls},
};
use gatepost_tls::{SystemRoots, client_config};
use h2::{RecvStream, server::SendResponse};
use http::{Request, Response};
use rustls::ClientConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
};
use tokio_rustls::TlsAcceptor;

use crate::certificates::localhost;

/// Frames and windows as in Go's HTTP/2 server.
const LARGEST: u32 = 1 << 20;

/// Starts so many; they live as long as the process. Where they are, and how TLS is done with them.
pub(crate) fn start(hooks: usize) -> (Vec<Endpoint>, Arc<ClientConfig>) {
    let (ca, config) = localhost(&[b"h2"]);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (sender, message) = mpsc::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            for _ in 0..hooks {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                sender.send(listener.local_addr().expect("an address")).expect("somebody waits");
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    while let Ok((socket, _)) = listener.accept().await {
                        tokio::spawn(connection(socket, acceptor.clone()));
                    }
                });
            }
            drop(sender);
            std::future::pending::<()>().await;
        });
    });
    let tls = EndpointTls { server_name: "localhost".into(), ca_pem: Some(ca.as_bytes().into()), client_pem: None };
    let config = client_config(&tls, Transport::Http, &SystemRoots::default()).expect("good material");
    let endpoint = |address: std::net::SocketAddr| Endpoint {
        address: Address::Tcp { host: address.ip().to_string().into(), port: address.port() },
        tls: Some(tls.clone()),
        transport: Transport::Http,
        authorization: None,
    };
    (message.iter().map(endpoint).collect(), config)
}

async fn connection(socket: TcpStream, acceptor: TlsAcceptor) {
    socket.set_nodelay(true).expect("nodelay");
    let Ok(socket) = acceptor.accept(socket).await else { return };
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(LARGEST).initial_connection_window_size(LARGEST).max_frame_size(LARGEST);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond));
    }
}

/// Says yes to the uid in the path.
async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let uid = query.split('&').find_map(|part| part.strip_prefix("uid=")).unwrap_or_default();
    let mut body = request.into_body();
    while let Some(Ok(data)) = body.data().await {
        // Fails only when the stream is gone, which the next read reports.
        let _ = body.flow_control().release_capacity(data.len());
    }
    let yes = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{uid}","allowed":true}}}}"#
    );
    let response = Response::builder().header("content-type", "application/json").body(()).expect("a response");
    let Ok(mut stream) = respond.send_response(response, false) else { return };
    // Fails only when the caller has left.
    let _ = stream.send_data(yes.into(), true);
}
