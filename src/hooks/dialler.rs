//! Dialler: makes connections to one endpoint that are ready to be asked over.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use rustls::ClientConfig;
use tokio::time::{Instant, timeout_at};

use super::{
    Resources,
    answer_room::AnswerRoom,
    connection_budget::{Exhausted, Share, Slot},
    dial::{Means, Socket, dial},
    http2::{Http2Connection, Limits},
    reply::LARGEST_ANSWER,
    target::Target,
};
use crate::model::{Endpoint, Step, Transport, Unreachable, hook::Address};

/// Resolve, connect, TLS and HTTP handshake together.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A connection, by what is spoken on it.
#[derive(Debug)]
pub(super) enum Dialled {
    /// Many calls at once; the HTTP/2 handshake is done.
    Http2(Http2Connection<Socket>),
    /// One call at a time.
    Http1(Socket),
}

/// Makes connections to one endpoint.
#[derive(Debug)]
pub(super) struct Dialler {
    pub(super) endpoint: Endpoint,
    target: Result<Target, Unreachable>,
    pub(super) resources: Resources,
    /// Room of its answers, whichever connection they come over.
    pub(super) answers: Arc<AnswerRoom>,
    share: Arc<Share>,
    /// Counts the dials, from a start that no other process has: each begins with another address.
    turn: AtomicUsize,
}

impl Dialler {
    /// For so many clients.
    pub(super) fn new(
        endpoint: Endpoint,
        tls: Option<Arc<ClientConfig>>,
        resources: &Resources,
        clients: usize,
    ) -> Self {
        let target = Target::of(&endpoint, tls);
        let turn = RandomState::new().build_hasher().finish() as usize;
        let share = resources.connections.share(clients);
        let answers = AnswerRoom::of_one_hook(&resources.memory);
        Self { endpoint, target, resources: resources.clone(), answers, share, turn: AtomicUsize::new(turn) }
    }

    /// Dials, and does the HTTP/2 handshake where there is one. An error says what was tried.
    pub(super) async fn dial(&self) -> Result<Dialled, Unreachable> {
        let until = Instant::now() + CONNECT_WITHIN;
        let room = timeout_at(until, self.room()).await;
        let late = || format!("{}: its connections were all in use for {CONNECT_WITHIN:?}", self.endpoint);
        let slot = room.unwrap_or_else(|_| Err(Unreachable::at(Step::Connect, late())))?;
        self.dial_until(slot, until).await
    }

    /// Dials, where there is room for the connection already.
    pub(super) async fn dial_with(&self, slot: Slot) -> Result<Dialled, Unreachable> {
        self.dial_until(slot, Instant::now() + CONNECT_WITHIN).await
    }

    async fn dial_until(&self, slot: Slot, until: Instant) -> Result<Dialled, Unreachable> {
        let target = self.target.as_ref().map_err(Unreachable::clone)?;
        let turn = self.turn.fetch_add(1, Relaxed);
        let means = Means { resolver: &self.resources.resolver, share: &self.share, turn, until };
        let socket = dial(target, slot, means).await?;
        if self.endpoint.transport == Transport::Http && !socket.is_http2() {
            return Ok(Dialled::Http1(socket));
        }
        if self.endpoint.tls.is_some() && !socket.is_http2() {
            let why = format!("TLS with {}: the hook does not offer HTTP/2", self.authority());
            return Err(Unreachable::at(Step::Tls, why));
        }
        let limits = Limits {
            batch: socket.batch(),
            answer: LARGEST_ANSWER,
            answers: Arc::clone(&self.answers),
            budget: Arc::clone(&self.resources.memory),
        };
        let mut connection = Http2Connection::new(socket, limits, self.endpoint.tls.is_some(), &self.authority());
        let ready = timeout_at(until, connection.handshake()).await;
        let ready = ready.unwrap_or_else(|_| Err(format!("no HTTP/2 handshake within {CONNECT_WITHIN:?}")));
        ready.map_err(|why| Unreachable::at(Step::Handshake, why))?;
        Ok(Dialled::Http2(connection))
    }

    /// Room for a connection, once there is any; those who wait are served in order.
    pub(super) async fn room(&self) -> Result<Slot, Unreachable> {
        self.share.clone().take().await.map_err(|why| self.exhausted(&why))
    }

    /// Room for a connection, if there is any at once, and nobody waits for it.
    pub(super) fn room_at_once(&self) -> Option<Result<Slot, Unreachable>> {
        Some(self.share.try_take()?.map_err(|why| self.exhausted(&why)))
    }

    fn exhausted(&self, why: &Exhausted) -> Unreachable {
        Unreachable::at(Step::Connect, format!("{}: {why}", self.endpoint))
    }

    /// Number of clients that wait for room.
    pub(super) fn waiting(&self) -> usize {
        self.share.waiting()
    }

    /// Is a connection beyond what the hook is guaranteed wanted by another hook?
    pub(super) fn others_wait(&self) -> bool {
        self.share.others_wait()
    }

    /// The connections that each client may keep while another waits.
    pub(super) fn fair(&self) -> usize {
        self.share.fair()
    }

    /// Known without dialling: HTTP/2 is agreed on over TLS only.
    pub(super) fn speaks_http1(&self) -> bool {
        self.endpoint.transport == Transport::Http && self.endpoint.tls.is_none()
    }

    /// HTTP/2's `:authority`, and HTTP/1.1's `host`.
    pub(super) fn authority(&self) -> String {
        match &self.endpoint.address {
            Address::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Address::Tcp { host, port } => format!("{host}:{port}"),
            Address::Unix(_) => "localhost".to_owned(),
        }
    }
}
