//! Connect: makes a connected socket to the address of a hook, over TLS if the hook requires it.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpStream, UnixStream},
    sync::Semaphore,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    connection_budget::{CountGuard, Slot},
    resolver::Resolver,
};
use gatepost_api::{Endpoint, Step, Unreachable, hook::Address};
use gatepost_tls::reason;

/// Time without any acknowledgement after which a peer is dead, so that half-open connections to dead pods end
/// (kubernetes/kubernetes#80313). Also the time after which keepalive probes begin on an idle connection.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of addresses in an error.
const MAX_ERROR_ADDRESSES: usize = 4;
/// Connection Attempt Delay: time after which the next attempt begins in addition to a silent one.
// source: RFC 8305 §5, "a recommended value is 250 milliseconds".
const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Maximum number of addresses of a name that one dial tries. The next dial begins with another address.
const MAX_ADDRESSES: usize = 8;
/// Maximum ciphertext that a TLS connection buffers, in bytes. A larger buffer saves too few system calls for its
/// memory.
const TLS_BUFFER: usize = 256 << 10;
/// Maximum time for an orderly close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// TLS with one host.
#[derive(Debug)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Returns the TLS parameters of that endpoint; `None` if it does not use TLS.
    ///
    /// # Errors
    /// The endpoint requires TLS that is not possible. It is never dialled without TLS.
    pub(super) fn of(endpoint: &Endpoint, config: Option<Arc<ClientConfig>>) -> Result<Option<Self>, Unreachable> {
        let Some(names) = &endpoint.tls else { return Ok(None) };
        let why = match (&endpoint.address, config, ServerName::try_from(names.server_name.to_string())) {
            (Address::Unix(_), ..) => "TLS is wanted over a unix socket, where none is spoken".to_owned(),
            (_, None, _) => "TLS is wanted, and nothing is known of how".to_owned(),
            (_, _, Err(_)) => format!("{:?} cannot be a server's name", names.server_name),
            (Address::Tcp { .. }, Some(config), Ok(name)) => return Ok(Some(Self { config, name })),
        };
        Err(Unreachable::at(Step::Tls, format!("{endpoint}: {why}")))
    }
}

/// Parameters of a connect, besides address and TLS.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectParams<'a> {
    pub(super) resolver: &'a Resolver,
    pub(super) further_attempts: &'a Semaphore,
    /// Number of the dial. It selects the address to begin with.
    pub(super) turn: usize,
    pub(super) until: Instant,
}

/// Connects to that address, with TLS if there is any.
///
/// # Errors
/// No connection was made; the error names the attempts.
pub(super) async fn connect(
    address: &Address,
    tls: Option<&Tls>,
    slot: Slot,
    params: ConnectParams<'_>,
) -> Result<Socket, Unreachable> {
    let stream = match address {
        Address::Unix(path) => {
            let refused = |why: &str| Unreachable::at(Step::Connect, format!("{path}: {why}"));
            let stream =
                timeout_at(params.until, UnixStream::connect(&**path)).await.map_err(|_| refused("no answer"))?;
            Stream::Unix(stream.map_err(|error| refused(&error.to_string()))?)
        }
        Address::Tcp { host, port } => {
            let stream = connect_any(host, *port, params).await?;
            match tls {
                None => Stream::Tcp(stream),
                Some(tls) => handshake(stream, tls, params.until)
                    .await
                    .map_err(|why| Unreachable::at(Step::Tls, format!("TLS with {host}:{port}: {why}")))?,
            }
        }
    };
    Ok(Socket { stream, slot })
}

async fn handshake(stream: TcpStream, tls: &Tls, until: Instant) -> Result<Stream, String> {
    let handshake = TlsConnector::from(tls.config.clone()).connect(tls.name.clone(), stream);
    let stream = timeout_at(until, handshake).await.map_err(|_| "no answer".to_owned())?;
    let mut stream = stream.map_err(|error| reason(&error))?;
    stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
    Ok(Stream::Tls(Box::new(stream)))
}

/// Connects to the first of the host's addresses that accepts.
async fn connect_any(host: &str, port: u16, params: ConnectParams<'_>) -> Result<TcpStream, Unreachable> {
    let addresses = timeout_at(params.until, params.resolver.resolve(host, port)).await;
    let addresses = addresses.unwrap_or_else(|_| Err("no answer".to_owned()));
    let addresses = addresses.map_err(|why| Unreachable::at(Step::Resolve, format!("{host}:{port}: {why}")))?;
    let addresses = interleaved(&addresses, params.turn);
    let attempts = AtomicUsize::new(0);
    let connected = race(&addresses, params.until.saturating_duration_since(Instant::now()), |address| {
        let attempts = &attempts;
        async move {
            let is_further = attempts.load(SeqCst) > 0;
            let _attempt = CountGuard::new(attempts);
            // The slot is for one socket. Sockets of extra attempts are counted apart.
            let _permit = if is_further { params.further_attempts.acquire().await.ok() } else { None };
            connect_tcp(address).await
        }
    });
    connected.await.map_err(|attempts| Unreachable::at(Step::Connect, failures(attempts)))
}

/// Returns the text of failed attempts, in an order that does not depend on which failed first, so that equal failures
/// have equal texts.
fn failures(mut attempts: Vec<FailedAttempt<SocketAddr, io::Error>>) -> String {
    attempts.sort_by_key(|(address, _)| *address);
    let more = attempts.len().saturating_sub(MAX_ERROR_ADDRESSES);
    let texts = attempts.iter().take(MAX_ERROR_ADDRESSES).map(|(address, error)| match error {
        Some(error) => format!("{address}: {error}"),
        None => format!("{address}: no answer"),
    });
    let more = (more > 0).then(|| format!("and {more} more"));
    texts.chain(more).collect::<Vec<_>>().join("; ")
}

async fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(&stream);
    socket.set_tcp_keepalive(
        &socket2::TcpKeepalive::new().with_time(TCP_USER_TIMEOUT).with_interval(TCP_USER_TIMEOUT / 4).with_retries(3),
    )?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT))?;
    Ok(stream)
}

/// An address that was tried, and its error; `None` if it was silent.
type FailedAttempt<A, E> = (A, Option<E>);

/// Connects to the first of the addresses that accepts (Happy Eyeballs, RFC 8305). The next attempt begins when the one
/// before has failed, or has been silent for [`CONNECTION_ATTEMPT_DELAY`]. Attempts that lose are dropped.
///
/// # Errors
/// The attempts, if all have failed or the time is over.
async fn race<A, T, E, F>(
    addresses: &[A],
    within: Duration,
    connect: impl Fn(A) -> F,
) -> Result<T, Vec<FailedAttempt<A, E>>>
where
    A: Copy + PartialEq,
    F: Future<Output = Result<T, E>>,
{
    let attempt = |address| {
        let connected = connect(address);
        async move { (address, connected.await) }
    };
    let mut waiting = addresses.iter().copied();
    let mut silent = Vec::new();
    let mut failed = Vec::new();
    let mut attempts = FuturesUnordered::new();
    let mut over = pin!(sleep(within));
    let mut next = pin!(sleep(Duration::ZERO));
    loop {
        if attempts.is_empty() && waiting.len() == 0 {
            return Err(failed);
        }
        tokio::select! {
            biased;
            Some((address, result)) = attempts.next() => {
                match result {
                    Ok(connected) => return Ok(connected),
                    Err(error) => failed.push((address, Some(error))),
                }
                silent.retain(|other| *other != address);
                next.as_mut().reset(Instant::now());
            }
            () = &mut over => {
                failed.extend(silent.into_iter().map(|address| (address, None)));
                return Err(failed);
            }
            () = &mut next, if waiting.len() > 0 => {
                if let Some(address) = waiting.next() {
                    silent.push(address);
                    attempts.push(attempt(address));
                }
                next.as_mut().reset(Instant::now() + CONNECTION_ATTEMPT_DELAY);
            }
        }
    }
}

/// Returns the addresses in the order of the attempts. Families take turns, beginning with the resolver's first. The
/// position in each family depends on `start`, so that not all connections use the same address.
fn interleaved(addresses: &[SocketAddr], start: usize) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let (preferred, other): (Vec<_>, Vec<_>) =
        addresses.iter().copied().partition(|address| address.is_ipv4() == first.is_ipv4());
    let mut families = [preferred, other].map(|mut family| {
        family.dedup();
        let middle = start % family.len().max(1);
        family.rotate_left(middle);
        VecDeque::from(family)
    });
    let mut order = Vec::with_capacity(addresses.len().min(MAX_ADDRESSES));
    while order.len() < MAX_ADDRESSES && families.iter().any(|family| !family.is_empty()) {
        order.extend(families.iter_mut().filter_map(VecDeque::pop_front));
    }
    order.truncate(MAX_ADDRESSES);
    order
}

/// Bytes in both directions.
trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for T {}

/// Socket of any kind.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// A connected socket. Its slot in the connection budget is released after it is closed.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) stream: Stream,
    pub(super) slot: Slot,
}

impl Socket {
    /// Returns the number of bytes to gather for one write. Over TLS that is as much as rustls buffers. Over unix
    /// sockets it is small: their buffers are small, and larger batches were measured slower.
    pub(super) fn batch(&self) -> usize {
        match self.stream {
            Stream::Tcp(_) => 1 << 20,
            Stream::Tls(_) => TLS_BUFFER,
            Stream::Unix(_) => 64 << 10,
        }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut dyn ByteStream> {
        match &mut self.get_mut().stream {
            Stream::Tcp(stream) => Pin::new(stream),
            Stream::Tls(stream) => Pin::new(stream),
            Stream::Unix(stream) => Pin::new(stream),
        }
    }

    /// Closes an unused connection in order, so that the hook need not report a fault.
    pub(super) async fn close(mut self) {
        // A hook that does not close its side is cut off.
        let _ = timeout(CLOSE_TIMEOUT, self.shutdown()).await;
    }

    /// Returns true if ALPN has selected HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        matches!(&self.stream, Stream::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2"))
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
