//! Handshake: the beginning of a caller's TLS connection.

use std::{io, sync::Arc, time::Instant};

use tokio::{net::TcpStream, sync::watch, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{clients::Admitted, identity::Identity, life::Life, linger::linger_unless_evicted};
use crate::{
    front::{Front, connection::grace, limits},
    telemetry::{Refused, Throttle},
    tls::{self, HandshakeFailure, HandshakeFault, ServerConfig},
};

/// The first byte of whatever a TLS client says first (RFC 8446, 5.1: handshake).
const TLS: u8 = 22;
/// Protocol by which a connection on a TLS port began.
enum Begun {
    Tls(Box<TlsStream<TcpStream>>),
    /// In plaintext.
    Plain(TcpStream),
    /// And failed; the peer has got an alert.
    Failed(io::Error, TcpStream),
    /// The peer said nothing and hung up.
    Nothing,
}

/// Shakes hands and serves the connection by the version of HTTP that was agreed on. A handshake that fails is counted,
/// and reported to the peer by a TLS alert.
pub(crate) async fn serve(
    front: Arc<Front>,
    worker: usize,
    stream: TcpStream,
    config: Arc<ServerConfig>,
    mut admitted: Admitted,
    life: watch::Receiver<Life>,
) {
    let session = Arc::clone(admitted.session());
    let begun = tokio::select! {
        biased;
        begun = timeout(limits::HANDSHAKE, begin(stream, config, front.buffers().tls)) => begun,
        () = grace::over(life.clone(), grace::length(front.limits())) => return,
        () = session.evicted() => return front.gate().metrics.refused(Refused::Evicted),
    };
    let stream = match begun {
        Ok(Ok(Begun::Tls(stream))) => stream,
        Ok(Ok(Begun::Plain(stream))) => {
            front.gate().metrics.refused(Refused::NotTls);
            return linger_unless_evicted(stream, &session).await;
        }
        Ok(Ok(Begun::Nothing)) => return,
        Ok(Ok(Begun::Failed(error, stream))) => {
            report(&HandshakeFailure::of(&error), &stream);
            front.gate().metrics.refused(Refused::TlsHandshake);
            return linger_unless_evicted(stream, &session).await;
        }
        Ok(Err(error)) => return tracing::debug!(%error, "a connection broke before it began"),
        Err(_) => {
            tracing::debug!(within = ?limits::HANDSHAKE, "a TLS handshake was not finished in time");
            return front.gate().metrics.refused(Refused::TlsHandshake);
        }
    };
    // A client certificate that is let in identifies its caller among others at that address.
    if let Some(name) = tls::client_name(stream.get_ref().1)
        && admitted.identify(Identity::Certificate(name.into()), Instant::now()).is_err()
    {
        return front.gate().metrics.refused(Refused::ClientShare);
    }
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => front.serve_http2(worker, *stream, admitted.session(), life).await,
        Some(_) => front.serve_http1(worker, *stream, admitted.session(), life).await,
        // A client without ALPN shows by its first bytes what it speaks.
        None => front.serve(worker, *stream, &admitted, life).await,
    }
}

/// One line a second for each fault, so that those who only try the port do not hide an apiserver that is kept out.
fn report(failure: &HandshakeFailure, stream: &TcpStream) {
    static LINES: [Throttle; HandshakeFault::COUNT] = [const { Throttle::new() }; HandshakeFault::COUNT];
    if let Some(held_back) = LINES[failure.fault as usize].pass() {
        let caller = stream.peer_addr().map_or_else(|_| "unknown".to_owned(), |address| address.ip().to_string());
        let HandshakeFailure { reason, fix, .. } = failure;
        tracing::warn!(reason, fix, caller, held_back, "a caller's TLS handshake failed");
    }
}

async fn begin(stream: TcpStream, config: Arc<ServerConfig>, buffer: usize) -> io::Result<Begun> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => return Ok(Begun::Nothing),
        _ if first[0] != TLS => return Ok(Begun::Plain(stream)),
        _ => {}
    }
    Ok(match TlsAcceptor::from(config).accept(stream).into_fallible().await {
        Ok(mut stream) => {
            stream.get_mut().1.set_buffer_limit(Some(buffer));
            Begun::Tls(Box::new(stream))
        }
        Err((error, stream)) => Begun::Failed(error, stream),
    })
}
