//! SharedPort: a place that another instance of us may serve as well, from bound to closed: a TCP port
//! (`SO_REUSEPORT`), or the path of a unix socket.
//!
//! Linux gives each new connection to one of the sockets that *listen* on the port. So this one begins to listen only
//! once it can decide, and stops in an order that leaves no connection behind: what waits in a socket's queue when it
//! is closed is reset (unless `net.ipv4.tcp_migrate_req` is on), and so is whoever is in the middle of the TCP
//! handshake.

use std::{fmt, io, net::SocketAddr, time::Duration};

use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};
use tokio::{net::TcpListener, time::sleep};

use crate::{front::Bound, live::Current};

/// Connections that may wait to be accepted; the system's own limit (`net.core.somaxconn`) is mostly lower.
const BACKLOG: i32 = 4096;
/// Interval at which an instance that cannot decide yet looks whether it can.
const LOOK: Duration = Duration::from_millis(20);
/// Handshakes that had begun when the socket was closed to new ones are over by then, wherever in the cluster they came
/// from.
pub(crate) const SETTLE: Duration = Duration::from_millis(20);

/// A place that another instance may serve until this one can.
pub struct SharedPort(Open);

/// Takes the place; called on a runtime.
type Open = Box<dyn FnOnce() -> io::Result<Bound> + Send + Sync>;

impl fmt::Debug for SharedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPort").finish_non_exhaustive()
    }
}

/// A socket bound to the address beside whoever else has bound to it in this way.
///
/// # Errors
/// The operating system refuses: the address is taken by a process that does not share it, or of another user.
pub fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

impl SharedPort {
    /// The place that is taken by this, which is called on a runtime.
    pub fn new(open: impl FnOnce() -> io::Result<Bound> + Send + Sync + 'static) -> Self {
        Self(Box::new(open))
    }

    /// Takes the place as soon as there is something to decide by: before that, another instance does it better.
    pub(crate) async fn opened(self, current: &Current) -> io::Result<Bound> {
        while !current.decides(now()) && current.break_glass().open(now()).is_empty() {
            sleep(LOOK).await;
        }
        (self.0)()
    }
}

/// The same socket, listening. It must be so before it is watched: one that is not looks closed for ever.
///
/// # Errors
/// The operating system refuses.
pub fn listening(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

/// Has the system drop what would begin a connection to this socket, and nothing else. The peer asks again after a
/// second, and then meets another instance. False where the port is ours alone: whoever comes is refused at once then.
pub(crate) fn turn_away(listener: &TcpListener) -> io::Result<bool> {
    /// Classic BPF, over the TCP header: `ldb [13]`, `and #(SYN|ACK)`, `jeq #SYN`, then none of the packet or all.
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

    fn bound(port: u16) -> Socket {
        bind((Ipv4Addr::LOCALHOST, port).into()).unwrap()
    }

    fn address(socket: &Socket) -> SocketAddr {
        socket.local_addr().unwrap().as_socket().unwrap()
    }

    #[tokio::test]
    async fn a_port_that_is_only_bound_takes_no_connection_from_one_that_listens() {
        let first = bound(0);
        let address = address(&first);
        let second = bound(address.port());
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let first = listening(first).unwrap();
        for _ in 0..32 {
            let _connection = TcpStream::connect(address).unwrap();
            first.accept().await.unwrap();
        }
        drop(second);
    }

    #[tokio::test]
    async fn a_socket_that_turns_away_keeps_what_has_begun_and_takes_nothing_new() {
        let first = bound(0);
        let address = address(&first);
        let first = listening(first).unwrap();
        let begun = TcpStream::connect(address).unwrap();
        assert!(turn_away(&first).unwrap());
        let late = TcpStream::connect_timeout(&address, Duration::from_millis(100)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut, "neither taken nor refused: it asks again");
        let (_, peer) = first.accept().await.unwrap();
        assert_eq!(peer, begun.local_addr().unwrap());
        let alone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        assert!(!turn_away(&alone).unwrap());
        assert!(TcpStream::connect(alone.local_addr().unwrap()).is_ok());
    }
}
