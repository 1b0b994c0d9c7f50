//! Listener: a socket that accepts connections.
//!
//! A [`SharedPort`] is an address that another instance of Gatepost may serve as well: a TCP port (`SO_REUSEPORT`), or
//! the path of a unix socket. Linux assigns each new connection to one of the sockets that *listen* on the port. So
//! this one listens only once it can decide, and stops in an order that resets no connection: closing a socket resets
//! the queued connections (unless `net.ipv4.tcp_migrate_req` is on) and every TCP handshake that has begun.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, TcpKeepalive, Type};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time::sleep,
};

use super::client::Identity;
use crate::live::ReplicaHealth;
use gatepost_tls::{ServerConfig, ServerTls};

/// Time after which TCP keepalive probes a silent peer.
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);
/// Maximum number of queued connections accepted at the close. It is more than any queue holds, and bounds the close if
/// clients connect endlessly.
const MAX_QUEUED: usize = 8192;
/// Connections that may wait to be accepted; the system's limit (`net.core.somaxconn`) is usually lower.
const BACKLOG: i32 = 4096;
/// Interval at which an instance checks whether it can decide yet.
const READINESS_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time to accept TCP handshakes that were in progress when new SYNs were diverted.
pub(crate) const HANDSHAKE_SETTLE_TIME: Duration = Duration::from_millis(20);

/// Socket that accepts connections.
#[derive(Debug)]
pub enum Listener {
    /// TCP, plaintext.
    Tcp(TcpListener),
    /// TCP with TLS, by the configuration in force when a connection is accepted.
    Tls(TcpListener, Arc<ServerTls>),
    /// Unix socket.
    Unix(UnixListener),
    /// Address that another instance may serve as well.
    Shared(SharedPort),
}

/// Accepted connection that is not registered with a runtime yet.
pub(crate) enum AcceptedStream {
    Tcp(std::net::TcpStream, Option<Arc<ServerConfig>>),
    Unix(std::os::unix::net::UnixStream),
}

impl AcceptedStream {
    fn tcp(stream: std::net::TcpStream, peer: SocketAddr, tls: Option<&ServerTls>) -> (Self, Identity) {
        (Self::Tcp(stream, tls.map(ServerTls::front)), Identity::of(peer.ip()))
    }

    fn unix(stream: UnixStream) -> io::Result<(Self, Identity)> {
        let identity = stream.peer_cred().map_or(Identity::Unix, |peer| Identity::User(peer.uid()));
        Ok((Self::Unix(stream.into_std()?), identity))
    }
}

impl Listener {
    /// Accepts the next connection.
    pub(crate) async fn accept(&self) -> io::Result<(AcceptedStream, Identity)> {
        let (listener, tls) = match self {
            Self::Tcp(listener) => (listener, None),
            Self::Tls(listener, tls) => (listener, Some(&**tls)),
            Self::Unix(listener) => return AcceptedStream::unix(listener.accept().await?.0),
            Self::Shared(_) => std::future::pending().await,
        };
        let (stream, peer) = listener.accept().await?;
        Ok(AcceptedStream::tcp(stream.into_std()?, peer, tls))
    }

    /// Makes the system pass new connections to another instance, if another can listen on the port. Returns true if
    /// the caller must still accept handshakes that have begun.
    pub(crate) fn divert_new_connections(&self) -> bool {
        let (Self::Tcp(listener) | Self::Tls(listener, _)) = self else { return false };
        let diverted = divert_new_connections(listener);
        if let Err(error) = &diverted {
            tracing::warn!(%error, "cannot divert new connections; connections that arrive during the close may be reset");
        }
        diverted.unwrap_or_default()
    }

    /// Closes the socket after passing the connections in the system's queue to `take`.
    pub(crate) fn close(self, mut take: impl FnMut(AcceptedStream, Identity)) -> io::Result<()> {
        let (listener, tls) = match self {
            Self::Tcp(listener) => (listener, None),
            Self::Tls(listener, tls) => (listener, Some(tls)),
            Self::Unix(listener) => {
                let listener = listener.into_std()?;
                for (stream, _) in queued(|| listener.accept()) {
                    stream.set_nonblocking(true)?;
                    let (accepted, identity) = AcceptedStream::unix(UnixStream::from_std(stream)?)?;
                    take(accepted, identity);
                }
                return Ok(());
            }
            Self::Shared(_) => return Ok(()),
        };
        let listener = listener.into_std()?;
        for (stream, peer) in queued(|| listener.accept()) {
            stream.set_nonblocking(true)?;
            let (accepted, identity) = AcceptedStream::tcp(stream, peer, tls.as_deref());
            take(accepted, identity);
        }
        Ok(())
    }
}

/// Returns the connections in the queue of a nonblocking listener.
fn queued<T>(mut accept: impl FnMut() -> io::Result<T>) -> impl Iterator<Item = T> {
    let next = move || {
        loop {
            match accept() {
                Ok(accepted) => return Some(accepted),
                Err(error) if is_peer_abort(&error) => {}
                Err(_) => return None,
            }
        }
    };
    std::iter::from_fn(next).take(MAX_QUEUED)
}

/// Returns true if an accept failed because the peer gave up while it waited in the queue.
pub(crate) fn is_peer_abort(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// Registers the stream with the current runtime and sets its TCP options.
pub(crate) fn configure_stream(stream: std::net::TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_TIME))?;
    TcpStream::from_std(stream)
}

/// Address that another instance may serve until this one can.
pub struct SharedPort(Box<dyn FnOnce() -> io::Result<Listener> + Send + Sync>);

impl fmt::Debug for SharedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPort").finish_non_exhaustive()
    }
}

impl SharedPort {
    /// Creates a shared address that `open` binds. `open` is called on a runtime.
    pub fn new(open: impl FnOnce() -> io::Result<Listener> + Send + Sync + 'static) -> Self {
        Self(Box::new(open))
    }

    /// Opens the socket once a configuration or break-glass lets this instance decide. Until then another one serves.
    pub(crate) async fn open(self, health: &ReplicaHealth) -> io::Result<Listener> {
        while !health.current.decides(now()) && health.break_glass.open(now()).is_empty() {
            sleep(READINESS_POLL_INTERVAL).await;
        }
        (self.0)()
    }
}

/// Binds a socket to an address that other sockets bound by this function may share.
///
/// # Errors
/// Returns the system's error, such as if a process of another user, or one that does not share, has the address.
pub fn bind_shared(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Makes the socket listen. It must listen before it is polled: epoll reports a socket that does not listen as closed.
///
/// # Errors
/// Returns the system's error.
pub fn listen(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

/// Makes the system drop SYN packets to this socket, and nothing else. The peer retransmits after a second and then
/// meets another instance. Returns false if the socket does not share its port, as new peers would then be refused.
fn divert_new_connections(listener: &TcpListener) -> io::Result<bool> {
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let socket = SockRef::from(listener);
    if !socket.reuse_port()? {
        return Ok(false);
    }
    // Classic BPF over the TCP header: `ldb [13]`, `and #(SYN|ACK)`, `jeq #SYN`, then drop or pass the whole packet.
    socket.attach_filter(&[
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
        SockFilter::new(AND, 0, 0, SYN | ACK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ])?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::{
        io::ErrorKind,
        net::{Ipv4Addr, TcpStream},
    };

    use super::*;

    #[tokio::test]
    async fn close_accepts_the_queued_connections() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gate.sock");
        let unix = UnixListener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        for _ in 0..3 {
            waiting.push(TcpStream::connect(address).unwrap());
        }
        let _also = std::os::unix::net::UnixStream::connect(&path).unwrap();
        for (bound, wanted) in [(Listener::Tcp(tcp), 3), (Listener::Unix(unix), 1)] {
            let mut taken = Vec::new();
            bound.close(|accepted, _| taken.push(accepted)).unwrap();
            assert_eq!(taken.len(), wanted);
        }
        assert!(TcpStream::connect(address).is_err(), "it is closed");
    }

    fn bound(port: u16) -> Socket {
        bind_shared((Ipv4Addr::LOCALHOST, port).into()).unwrap()
    }

    fn address(socket: &Socket) -> SocketAddr {
        socket.local_addr().unwrap().as_socket().unwrap()
    }

    #[tokio::test]
    async fn shared_port_that_does_not_listen_gets_no_connection() {
        let first = bound(0);
        let address = address(&first);
        let second = bound(address.port());
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let first = listen(first).unwrap();
        for _ in 0..32 {
            let _connection = TcpStream::connect(address).unwrap();
            first.accept().await.unwrap();
        }
        drop(second);
    }

    #[tokio::test]
    async fn divert_keeps_begun_handshakes_and_drops_new_syns() {
        let first = bound(0);
        let address = address(&first);
        let first = listen(first).unwrap();
        let earlier = TcpStream::connect(address).unwrap();
        assert!(divert_new_connections(&first).unwrap());
        let late = TcpStream::connect_timeout(&address, Duration::from_millis(100)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut, "neither accepted nor refused: the peer retransmits");
        let (_, peer) = first.accept().await.unwrap();
        assert_eq!(peer, earlier.local_addr().unwrap());
        let alone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        assert!(!divert_new_connections(&alone).unwrap());
        assert!(TcpStream::connect(alone.local_addr().unwrap()).is_ok());
    }
}
