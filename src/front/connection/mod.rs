//! Start of a caller's connection: the TLS handshake if the port has TLS, then the version of HTTP.

pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod meter;
pub(crate) mod socket;

use std::{io, sync::Arc, time::Instant};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use self::socket::{HttpVersion, Socket};
use super::{
    accept::{
        client::Identity,
        clients::AdmittedConnection,
        listener::{AcceptedStream, configure_stream},
    },
    drain::DrainSignal,
    limits,
    state::{ConnectionContext, Front},
};
use crate::telemetry::{RefusalReason, Throttle};
use gatepost_tls::{HandshakeFailure, HandshakeFault, ServerConfig};

/// First byte that a TLS client sends (RFC 8446, 5.1: handshake).
const TLS_HANDSHAKE: u8 = 22;

/// Serves one connection on the current runtime until the caller closes it or the drain ends. Once the drain has begun,
/// calls under way are finished, and new calls are accepted only in a short grace.
pub(crate) async fn serve(
    front: Arc<Front>,
    worker: usize,
    accepted: AcceptedStream,
    mut admitted: AdmittedConnection,
    drain: DrainSignal,
) {
    let begin = async {
        let context = ConnectionContext { front, session: Arc::clone(&admitted.session), worker, drain: drain.clone() };
        match accepted {
            AcceptedStream::Tcp(stream, None) => serve_http(context, configure_stream(stream)?).await,
            AcceptedStream::Tcp(stream, Some(config)) => {
                serve_tls(context, configure_stream(stream)?, config, &mut admitted).await
            }
            AcceptedStream::Unix(stream) => serve_http(context, UnixStream::from_std(stream)?).await,
        }
        Ok::<_, io::Error>(())
    };
    tokio::select! {
        served = begin => if let Err(error) = served {
            tracing::debug!(%error, "a connection ended before it began");
        },
        () = drain.ended() => {}
    }
}

/// Serves a connection, detecting the version of HTTP from its first bytes.
pub(super) async fn serve_http<Io>(context: ConnectionContext, io: Io)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut socket = Socket::new(io);
    let metrics = &context.front.deps.metrics;
    let version = tokio::select! {
        biased;
        version = timeout(limits::HANDSHAKE_TIMEOUT, socket.sniff()) => version,
        () = context.drain.grace_over() => return,
        () = context.session.evicted() => return metrics.record_refusal(RefusalReason::Evicted),
    };
    match version {
        Ok(Ok(Some(HttpVersion::Http2))) => http2::serve(context, socket).await,
        Ok(Ok(Some(HttpVersion::Http1))) => http1::serve(context, socket).await,
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection broke before it began"),
        Err(_) => metrics.record_refusal(RefusalReason::Protocol),
    }
}

/// Result of the start of a connection on a TLS port.
enum TlsBeginning {
    Tls(Box<TlsStream<TcpStream>>),
    Plaintext(TcpStream),
    /// The handshake failed, and the peer was sent an alert.
    Failed(io::Error, TcpStream),
    /// The peer closed the connection and sent nothing.
    Nothing,
}

/// Does the TLS handshake and serves the connection with the negotiated version of HTTP. A failed handshake is counted,
/// and reported to the peer by a TLS alert.
async fn serve_tls(
    mut context: ConnectionContext,
    stream: TcpStream,
    config: Arc<ServerConfig>,
    admitted: &mut AdmittedConnection,
) {
    let ConnectionContext { front, session, drain, .. } = &context;
    let metrics = &front.deps.metrics;
    let begun = tokio::select! {
        biased;
        begun = timeout(limits::HANDSHAKE_TIMEOUT, begin_tls(stream, config, front.buffers().tls)) => begun,
        () = drain.grace_over() => return,
        () = session.evicted() => return metrics.record_refusal(RefusalReason::Evicted),
    };
    let stream = match begun {
        Ok(Ok(TlsBeginning::Tls(stream))) => stream,
        Ok(Ok(TlsBeginning::Plaintext(stream))) => {
            metrics.record_refusal(RefusalReason::NotTls);
            return Socket::new(stream).close_unless_evicted(session).await;
        }
        Ok(Ok(TlsBeginning::Nothing)) => return,
        Ok(Ok(TlsBeginning::Failed(error, stream))) => {
            report(&HandshakeFailure::of(&error), &stream);
            metrics.record_refusal(RefusalReason::TlsHandshake);
            return Socket::new(stream).close_unless_evicted(session).await;
        }
        Ok(Err(error)) => return tracing::debug!(%error, "a connection broke before it began"),
        Err(_) => {
            tracing::debug!(within = ?limits::HANDSHAKE_TIMEOUT, "a TLS handshake was not finished in time");
            return metrics.record_refusal(RefusalReason::TlsHandshake);
        }
    };
    // The name in a verified client certificate replaces the address as the identity of the client.
    if let Some(name) = gatepost_tls::client_name(stream.get_ref().1) {
        if admitted.identify(Identity::Certificate(name.into()), Instant::now()).is_err() {
            return metrics.record_refusal(RefusalReason::ClientShare);
        }
        context.session = Arc::clone(&admitted.session);
    }
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => http2::serve(context, Socket::new(*stream)).await,
        Some(_) => http1::serve(context, Socket::new(*stream)).await,
        // The first bytes show the version of HTTP if the client sent no ALPN.
        None => serve_http(context, *stream).await,
    }
}

async fn begin_tls(stream: TcpStream, config: Arc<ServerConfig>, buffer: usize) -> io::Result<TlsBeginning> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => return Ok(TlsBeginning::Nothing),
        _ if first[0] != TLS_HANDSHAKE => return Ok(TlsBeginning::Plaintext(stream)),
        _ => {}
    }
    Ok(match TlsAcceptor::from(config).accept(stream).into_fallible().await {
        Ok(mut stream) => {
            stream.get_mut().1.set_buffer_limit(Some(buffer));
            TlsBeginning::Tls(Box::new(stream))
        }
        Err((error, stream)) => TlsBeginning::Failed(error, stream),
    })
}

/// Logs at most one line a second for each kind of fault, so that port scanners do not hide an apiserver whose
/// handshakes fail.
fn report(failure: &HandshakeFailure, stream: &TcpStream) {
    static LINES: [Throttle; HandshakeFault::COUNT] = [const { Throttle::new() }; HandshakeFault::COUNT];
    if let Some(suppressed) = LINES[failure.fault as usize].pass() {
        let caller = stream.peer_addr().map_or_else(|_| "unknown".to_owned(), |address| address.ip().to_string());
        let HandshakeFailure { reason, fix, .. } = failure;
        tracing::warn!(reason, fix, caller, suppressed, "a caller's TLS handshake failed");
    }
}

#[cfg(test)]
mod tests;
