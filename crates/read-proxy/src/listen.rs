//! TLS connections of clients, from the handshake to the drain.

use std::{
    convert::Infallible,
    io,
    net::IpAddr,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

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
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{
    activity::{Activity, ActivityCheck},
    peer::{Peer, Place},
    serve::Proxy,
};
use gatepost_base::throttle::Throttle;
use gatepost_tls::{ClientChain, ServerTls};

/// Timeout of a client's TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the header fields of an HTTP/1.1 request.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout of an idle connection after its graceful shutdown has begun.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of checks whether a connection is in use.
const ACTIVITY_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Silence after which a client is pinged, and the timeout of the ping.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// Maximum number of concurrent requests on one HTTP/2 connection, as in an apiserver.
const MAX_CONCURRENT_STREAMS: u32 = 250;
/// HTTP/2 windows of one request and of one connection, in bytes.
const WINDOWS: (u32, u32) = (256 << 10, 4 << 20);
/// Maximum size of a request's header fields over HTTP/2, in bytes: selectors and tokens may be long.
const MAX_HEADER_LIST_BYTES: u32 = 256 << 10;
/// Pause after a failed accept, for example if too many files are open.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Serves connections until `stop` is true, then drains open connections for at most `drain`.
pub async fn serve(
    proxy: Arc<Proxy>,
    listener: TcpListener,
    tls: Arc<ServerTls>,
    stop: watch::Receiver<bool>,
    drain: Duration,
) {
    let connections = proxy.settings.max_connections;
    let room = Arc::new(Semaphore::new(connections));
    let (cutting, cut) = watch::channel(());
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
                    // The semaphore is never closed.
                    let Ok(place) = place else { break };
                    let place = Place::new(place, cut.clone(), Arc::clone(&proxy.metrics));
                    let client = (stream, peer.ip());
                    let connection = connection(Arc::clone(&proxy), client, place, Arc::clone(&tls), stop.clone());
                    serving.spawn(async move {
                        if let Err(error) = connection.await {
                            tracing::debug!(%error, "a client's connection broke");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_RETRY_PAUSE).await;
                }
            },
        }
    }
    proxy.lifecycle.set_draining();
    drop(listener);
    let ending = async {
        while serving.join_next().await.is_some() {}
        // Upgraded connections still have their places.
        let all = u32::try_from(connections).unwrap_or(u32::MAX);
        let _all = room.acquire_many(all).await;
    };
    if timeout(drain, ending).await.is_err() {
        let left = connections.saturating_sub(room.available_permits());
        tracing::info!(connections = left, "ending the connections that are left");
    }
    drop(cutting);
}

/// Serves one connection to its end.
async fn connection(
    proxy: Arc<Proxy>,
    (stream, address): (TcpStream, IpAddr),
    place: Place,
    tls: Arc<ServerTls>,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(PING.0))?;
    let stream = match timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(tls.front()).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            proxy.metrics.handshake_failure();
            static LINES: Throttle = Throttle::new();
            if let Some(suppressed) = LINES.pass() {
                tracing::warn!(%error, client = %address, suppressed, "a client's TLS handshake failed");
            }
            return Ok(());
        }
        Err(_) => {
            proxy.metrics.handshake_failure();
            return Ok(());
        }
    };
    let peer = Arc::new(Peer::new(address, ClientChain::of(stream.get_ref().1), tls, place));
    let activity = Arc::clone(&peer.activity);
    let service = service_fn(move |request: Request<Incoming>| {
        let (proxy, peer) = (Arc::clone(&proxy), Arc::clone(&peer));
        async move { Ok::<_, Infallible>(proxy.answer(&peer, request).await) }
    });
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io: TokioIo<TlsStream<TcpStream>> = TokioIo::new(stream);
    if is_http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .max_header_list_size(MAX_HEADER_LIST_BYTES)
            .keep_alive_interval(PING.0)
            .keep_alive_timeout(PING.1)
            .auto_date_header(false)
            .serve_connection(io, service);
        until_ended(pin!(connection), |connection| connection.graceful_shutdown(), &activity, stop).await
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_READ_TIMEOUT)
            .auto_date_header(false)
            .serve_connection(io, service)
            .with_upgrades();
        until_ended(pin!(connection), |connection| connection.graceful_shutdown(), &activity, stop).await
    }
}

/// Serves a connection until it ends, is idle or retired, or `stop` is true. Requests in progress are then completed,
/// but a connection is closed if its client reads nothing.
async fn until_ended<C: Future<Output = hyper::Result<()>>>(
    mut connection: Pin<&mut C>,
    shut_down: impl FnOnce(Pin<&mut C>),
    activity: &Activity,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut checks = interval(ACTIVITY_CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopping = pin!(stopped(stop));
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(io::Error::other),
            () = stopping.as_mut() => break,
            () = activity.retired() => break,
            _ = checks.tick() => match activity.check(false) {
                ActivityCheck::Used => {}
                ActivityCheck::Idle => break,
                ActivityCheck::Stuck => return Err(io::Error::other("the client takes nothing of its answers")),
            },
        }
    }
    shut_down(connection.as_mut());
    let since = Instant::now();
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(io::Error::other),
            _ = checks.tick() => match activity.check(true) {
                _ if activity.is_idle() && since.elapsed() >= CLOSE_TIMEOUT => return Ok(()),
                ActivityCheck::Stuck => return Err(io::Error::other("the client takes nothing of its answers")),
                ActivityCheck::Used | ActivityCheck::Idle => {}
            },
        }
    }
}

/// Completes once `stop` is true; never if its sender is gone.
async fn stopped(mut stop: watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that says nothing at all, not even the preface of HTTP/2, and one that does not leave when told to.
    #[tokio::test(start_paused = true)]
    async fn a_silent_client_does_not_keep_its_place() {
        let activity = Arc::new(Activity::default());
        let (_stop, stopping) = watch::channel(false);
        let mut told = false;
        let never = pin!(std::future::pending::<hyper::Result<()>>());
        until_ended(never, |_| told = true, &activity, stopping).await.unwrap();
        assert!(told);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_under_way_outlast_the_end_of_their_connection() {
        let activity = Arc::new(Activity::default());
        let (_stop, stopping) = watch::channel(false);
        let request = activity.begin();
        activity.retire();
        let never = pin!(std::future::pending::<hyper::Result<()>>());
        let mut serving = pin!(until_ended(never, |_| {}, &activity, stopping));
        assert!(timeout(Duration::from_secs(3600), serving.as_mut()).await.is_err(), "it is under way");
        drop(request);
        timeout(2 * ACTIVITY_CHECK_INTERVAL, serving).await.expect("it ends").unwrap();
    }
}
