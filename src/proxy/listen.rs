//! Listening: clients' connections, by TLS, from the handshake to the drain.

use std::{convert::Infallible, io, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use http::Request;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::serve::{Peer, Proxy};
use crate::{
    telemetry::Throttle,
    tls::{self, ServerTls},
};

/// A client that does not finish its TLS handshake by then is let go.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A connection over HTTP/1.1 without a request is closed after this.
const IDLE: Duration = Duration::from_secs(120);
/// A silent client is asked whether it is still there after this, and given up after that.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// Requests on one HTTP/2 connection, as an apiserver takes them from its clients.
const MOST_STREAMS: u32 = 250;
/// Unread bytes of one request, and of one connection.
const WINDOWS: (u32, u32) = (256 << 10, 4 << 20);
/// Bytes of the fields of a request over HTTP/2: selectors and tokens may be long.
const FIELDS: u32 = 256 << 10;
/// Pause after the operating system has refused a connection, as when there are too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves connections until `stop` says so, and then those that are there for `drain` at most. At most `connections` are
/// served at a time; others wait to be accepted.
pub async fn serve(
    proxy: Arc<Proxy>,
    listener: TcpListener,
    tls: Arc<ServerTls>,
    connections: usize,
    stop: watch::Receiver<bool>,
    drain: Duration,
) {
    let room = Arc::new(Semaphore::new(connections));
    let mut serving = JoinSet::new();
    let mut stopping = pin!(stopped(stop.clone()));
    loop {
        let accepting = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            () = stopping.as_mut() => break,
            Some(_) = serving.join_next(), if !serving.is_empty() => {}
            (place, accepted) = accepting => match accepted {
                Ok((stream, peer)) => {
                    let connection = connection(Arc::clone(&proxy), stream, peer.ip(), Arc::clone(&tls), stop.clone());
                    serving.spawn(async move {
                        let _place = place;
                        if let Err(error) = connection.await {
                            tracing::debug!(%error, "a client's connection broke");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let ending = async { while serving.join_next().await.is_some() {} };
    if timeout(drain, ending).await.is_err() {
        tracing::info!(connections = serving.len(), "ending the connections that are left");
    }
}

/// Serves one connection to its end.
async fn connection(
    proxy: Arc<Proxy>,
    stream: TcpStream,
    address: IpAddr,
    tls: Arc<ServerTls>,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(PING.0))?;
    let stream = match timeout(HANDSHAKE, TlsAcceptor::from(tls.front()).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            static LINES: Throttle = Throttle::new();
            if let Some(held_back) = LINES.pass() {
                tracing::warn!(%error, client = %address, held_back, "a client's TLS handshake failed");
            }
            return Ok(());
        }
        Err(_) => return Ok(()),
    };
    let peer = Arc::new(Peer::new(address, tls::client_user(stream.get_ref().1)));
    let service = service_fn(move |request: Request<Incoming>| {
        let (proxy, peer) = (Arc::clone(&proxy), Arc::clone(&peer));
        async move { Ok::<_, Infallible>(proxy.answer(&peer, request).await) }
    });
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io: TokioIo<TlsStream<TcpStream>> = TokioIo::new(stream);
    if is_http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .max_header_list_size(FIELDS)
            .keep_alive_interval(PING.0)
            .keep_alive_timeout(PING.1)
            .auto_date_header(false)
            .serve_connection(io, service);
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(io::Error::other),
            () = stopped(stop) => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await.map_err(io::Error::other)
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .auto_date_header(false)
            .serve_connection(io, service)
            .with_upgrades();
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(io::Error::other),
            () = stopped(stop) => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await.map_err(io::Error::other)
    }
}

/// Done once it is time to end; never where nobody can say so any more.
async fn stopped(mut stop: watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}
