//! Bound: a socket that callers come to, and what it accepts.

use std::{io, sync::Arc, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::watch,
};

use super::{
    clients::Admitted,
    handshake,
    identity::Identity,
    life::Life,
    shared_port::{SharedPort, turn_away},
    worker::Serving,
};
use crate::{
    front::Front,
    tls::{ServerConfig, ServerTls},
};

/// A silent peer is asked whether it is still there after this.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// More connections than any queue holds: whoever connects without end does not keep a socket from closing.
const MOST_QUEUED: usize = 8192;

/// A bound socket.
#[derive(Debug)]
pub enum Bound {
    /// TCP, plaintext.
    Tcp(TcpListener),
    /// TCP, with what is in force of TLS when a connection comes.
    Tls(TcpListener, Arc<ServerTls>),
    /// A unix socket.
    Unix(UnixListener),
    /// TCP, on a port that another instance may serve as well.
    Shared(SharedPort),
}

/// An accepted connection, not yet tied to a runtime.
pub(crate) enum Accepted {
    Tcp(std::net::TcpStream),
    Tls(std::net::TcpStream, Arc<ServerConfig>),
    Unix(std::os::unix::net::UnixStream),
}

impl Bound {
    /// The next connection.
    pub(crate) async fn accept(&self) -> io::Result<(Accepted, Identity)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Accepted::Tcp(stream.into_std()?), Identity::of(peer.ip())))
            }
            Self::Tls(listener, tls) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Accepted::Tls(stream.into_std()?, tls.front()), Identity::of(peer.ip())))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let identity = user_of(&stream);
                Ok((Accepted::Unix(stream.into_std()?), identity))
            }
            Self::Shared(_) => std::future::pending().await,
        }
    }

    /// Leaves to another instance what would begin now, where another may be there. True where handshakes that have
    /// begun are still to be waited for.
    pub(crate) fn turn_away(&self) -> bool {
        let (Self::Tcp(listener) | Self::Tls(listener, _)) = self else { return false };
        let turned = turn_away(listener);
        if let Err(error) = &turned {
            tracing::warn!(%error, "a connection that comes in this very moment may be reset");
        }
        turned.unwrap_or_default()
    }

    /// Connections in the system's queue; then the socket is closed.
    pub(crate) fn close(self, mut take: impl FnMut(Accepted, Identity)) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => {
                let listener = listener.into_std()?;
                for (stream, peer) in queued(|| listener.accept()) {
                    stream.set_nonblocking(true)?;
                    take(Accepted::Tcp(stream), Identity::of(peer.ip()));
                }
            }
            Self::Tls(listener, tls) => {
                let listener = listener.into_std()?;
                for (stream, peer) in queued(|| listener.accept()) {
                    stream.set_nonblocking(true)?;
                    take(Accepted::Tls(stream, tls.front()), Identity::of(peer.ip()));
                }
            }
            Self::Unix(listener) => {
                let listener = listener.into_std()?;
                for (stream, _) in queued(|| listener.accept()) {
                    stream.set_nonblocking(true)?;
                    let stream = UnixStream::from_std(stream)?;
                    let identity = user_of(&stream);
                    take(Accepted::Unix(stream.into_std()?), identity);
                }
            }
            Self::Shared(_) => {}
        }
        Ok(())
    }
}

/// Everything that a listener which does not block gives, until there is no more of it.
fn queued<T>(mut accept: impl FnMut() -> io::Result<T>) -> impl Iterator<Item = T> {
    let next = move || {
        loop {
            match accept() {
                Ok(accepted) => return Some(accepted),
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                }
                Err(_) => return None,
            }
        }
    };
    std::iter::from_fn(next).take(MOST_QUEUED)
}

fn user_of(stream: &UnixStream) -> Identity {
    stream.peer_cred().map_or(Identity::Unix, |peer| Identity::User(peer.uid()))
}

impl Accepted {
    /// Ties the connection to the runtime this is polled on, and serves it there.
    pub(crate) async fn serve(
        self,
        front: Arc<Front>,
        worker: usize,
        admitted: Admitted,
        life: watch::Receiver<Life>,
        _serving: Serving,
    ) -> io::Result<()> {
        let mut over = life.clone();
        let over = async move { over.wait_for(|life| *life == Life::Over).await.map(drop) };
        match self {
            Self::Tcp(stream) => {
                let stream = tuned(stream)?;
                tokio::select! { () = front.serve(worker, stream, &admitted, life) => {}, _ = over => {} }
            }
            Self::Tls(stream, config) => {
                let stream = tuned(stream)?;
                tokio::select! { () = handshake::serve(front, worker, stream, config, admitted, life) => {}, _ = over => {} }
            }
            Self::Unix(stream) => {
                let stream = UnixStream::from_std(stream)?;
                tokio::select! { () = front.serve(worker, stream, &admitted, life) => {}, _ = over => {} }
            }
        }
        Ok(())
    }
}

fn tuned(stream: std::net::TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    TcpStream::from_std(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_in_the_queue_when_a_socket_is_closed_is_taken() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gate.sock");
        let unix = UnixListener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        for _ in 0..3 {
            waiting.push(std::net::TcpStream::connect(address).unwrap());
        }
        let _also = std::os::unix::net::UnixStream::connect(&path).unwrap();
        for (bound, wanted) in [(Bound::Tcp(tcp), 3), (Bound::Unix(unix), 1)] {
            let mut taken = Vec::new();
            bound.close(|accepted, _| taken.push(accepted)).unwrap();
            assert_eq!(taken.len(), wanted);
        }
        assert!(std::net::TcpStream::connect(address).is_err(), "it is closed");
    }
}
