//! Dialling: a target to a connected socket.

use std::{
    fmt::Write,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    net::{TcpStream, UnixStream},
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsConnector;

pub(super) use super::socket::Socket;
use super::{
    connection_budget::{Share, Slot},
    race::{Loser, interleaved, race},
    resolve::Resolver,
    socket::{Stream, TLS_BUFFER},
    target::{Target, Tls},
};
use crate::{
    model::{Step, Unreachable},
    tls::reason,
};

/// A peer that acknowledges nothing for so long is gone, whatever it promised: half-open connections to dead pods
/// end here (kubernetes/kubernetes#80313). Also how long an idle connection may go without a sign of life.
const DEAD_AFTER: Duration = Duration::from_secs(10);
/// Most addresses named in an error.
const MOST_NAMED: usize = 4;

/// Resources that dialling takes, besides the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means<'a> {
    pub(super) resolver: &'a Resolver,
    pub(super) share: &'a Share,
    /// With which of the addresses to begin.
    pub(super) turn: usize,
    pub(super) until: Instant,
}

/// Connects. An error says what was tried.
pub(super) async fn dial(target: &Target, slot: Slot, means: Means<'_>) -> Result<Socket, Unreachable> {
    let stream = match target {
        Target::Unix(path) => {
            let refused = |why: &str| Unreachable::at(Step::Connect, format!("{path}: {why}"));
            let stream =
                timeout_at(means.until, UnixStream::connect(&**path)).await.map_err(|_| refused("no answer"))?;
            Stream::Unix(stream.map_err(|error| refused(&error.to_string()))?)
        }
        Target::Tcp { host, port, tls } => {
            let stream = connect_any(host, *port, means).await?;
            match tls {
                None => Stream::Tcp(stream),
                Some(tls) => protect(stream, tls, means.until)
                    .await
                    .map_err(|why| Unreachable::at(Step::Tls, format!("TLS with {host}:{port}: {why}")))?,
            }
        }
    };
    Ok(Socket::new(stream, slot))
}

async fn protect(stream: TcpStream, tls: &Tls, until: Instant) -> Result<Stream, String> {
    let handshake = TlsConnector::from(tls.config.clone()).connect(tls.name.clone(), stream);
    let stream = timeout_at(until, handshake).await.map_err(|_| "no answer".to_owned())?;
    let mut stream = stream.map_err(|error| reason(&error))?;
    stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
    Ok(Stream::Tls(Box::new(stream)))
}

/// Connects to the first of the host's addresses that lets us.
async fn connect_any(host: &str, port: u16, means: Means<'_>) -> Result<TcpStream, Unreachable> {
    let addresses = timeout_at(means.until, means.resolver.resolve(host, port)).await;
    let addresses = addresses.unwrap_or_else(|_| Err("no answer".to_owned()));
    let addresses = addresses.map_err(|why| Unreachable::at(Step::Resolve, format!("{host}:{port}: {why}")))?;
    let addresses = interleaved(&addresses, means.turn);
    let attempts = Arc::new(AtomicUsize::new(0));
    let connected = race(&addresses, means.until.saturating_duration_since(Instant::now()), |address| {
        let attempts = attempts.clone();
        async move {
            let under_way = UnderWay::begin(&attempts);
            // The slot is for one socket; those of further attempts are counted apart.
            let _permit = match under_way.0 {
                true => means.share.further_attempts().acquire().await.ok(),
                false => None,
            };
            connect(address).await
        }
    });
    connected.await.map_err(|losers| Unreachable::at(Step::Connect, named(losers)))
}

/// One attempt, while it lasts; are there others?
struct UnderWay<'a>(bool, &'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn begin(attempts: &'a AtomicUsize) -> Self {
        Self(attempts.fetch_add(1, Relaxed) > 0, attempts)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Relaxed);
    }
}

/// Failures of the addresses, in an order that does not depend on which was tried first: equal failures read alike.
fn named(mut losers: Vec<Loser<SocketAddr, io::Error>>) -> String {
    losers.sort_by_key(|(address, _)| *address);
    let mut text = String::new();
    for (index, (address, error)) in losers.iter().take(MOST_NAMED).enumerate() {
        let sign = if index > 0 { "; " } else { "" };
        // Writing to a String cannot fail.
        let _ = match error {
            Some(error) => write!(text, "{sign}{address}: {error}"),
            None => write!(text, "{sign}{address}: no answer"),
        };
    }
    if let more @ 1.. = losers.len().saturating_sub(MOST_NAMED) {
        let _ = write!(text, "; and {more} more");
    }
    text
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(&stream);
    socket.set_tcp_keepalive(
        &socket2::TcpKeepalive::new().with_time(DEAD_AFTER).with_interval(DEAD_AFTER / 4).with_retries(3),
    )?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(DEAD_AFTER))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::hooks::ConnectionBudget;

    #[tokio::test]
    async fn every_address_of_a_name_is_tried_and_each_dial_begins_with_another() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        // The other two have no listener.
        let addresses = ["127.0.0.2", "127.0.0.1", "127.0.0.3"];
        let addresses = addresses.map(|address| SocketAddr::new(address.parse().expect("an address"), 0));
        let resolver = Resolver::with(move |_| Ok(addresses.to_vec()));
        let share = ConnectionBudget::new(10).share(1);
        for turn in 0..3 {
            let means =
                Means { resolver: &resolver, share: &share, turn, until: Instant::now() + Duration::from_secs(20) };
            let stream = connect_any("hook", port, means).await.expect("connects");
            assert_eq!(stream.peer_addr().expect("a peer").port(), port, "{turn}");
        }
        drop(listener);
        let means =
            Means { resolver: &resolver, share: &share, turn: 0, until: Instant::now() + Duration::from_secs(20) };
        let why = connect_any("hook", port, means).await.expect_err("nobody listens");
        assert_eq!(why.what.matches("refused").count(), 3, "{why}");
    }

    #[test]
    fn what_became_of_each_address_is_reported_in_one_order_and_bounded() {
        let at = |last| SocketAddr::from(([10, 0, 0, last], 443));
        let refused = || Some(io::Error::other("refused"));
        let message = named(vec![(at(2), None), (at(1), refused())]);
        assert_eq!(message, "10.0.0.1:443: refused; 10.0.0.2:443: no answer");
        assert_eq!(message, named(vec![(at(1), refused()), (at(2), None)]));
        let many = named((0..8).map(|last| (at(last), None)).collect());
        assert!(many.ends_with("10.0.0.3:443: no answer; and 4 more"), "{many}");
    }
}
