//! Dialler: makes connections to one endpoint that are ready to be asked over.

use std::{sync::Arc, time::Duration};

use rustls::ClientConfig;
use tokio::time::timeout;

use super::{
    dial::{Socket, dial},
    http2::{Connection, Limits},
};
use crate::{
    memory::MemoryBudget,
    model::{Endpoint, Step, Transport, Unreachable, hook::Address},
};

/// Resolve, connect, TLS and greeting together.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The largest answer taken from a hook: as much as the largest review, which some hooks send back with it.
pub(super) const LARGEST_ANSWER: usize = 16 << 20;

/// A connection, by what is spoken on it.
#[derive(Debug)]
pub(super) enum Dialled {
    /// Many calls at once; the hook has greeted us.
    Http2(Connection<Socket>),
    /// One call at a time.
    Http1(Socket),
}

/// Makes connections to one endpoint.
#[derive(Debug)]
pub(super) struct Dialler {
    pub(super) endpoint: Endpoint,
    tls: Option<Arc<ClientConfig>>,
    /// What answers are held in.
    pub(super) budget: Arc<MemoryBudget>,
}

impl Dialler {
    pub(super) fn new(endpoint: Endpoint, tls: Option<Arc<ClientConfig>>) -> Self {
        Self { endpoint, tls, budget: MemoryBudget::unlimited() }
    }

    /// Answers are held in this budget.
    pub(super) fn within(self, budget: Arc<MemoryBudget>) -> Self {
        Self { budget, ..self }
    }

    /// Dials, and greets where the protocol begins with that. An error says what was tried.
    pub(super) async fn dial(&self) -> Result<Dialled, Unreachable> {
        let attempt = async {
            let socket = dial(&self.endpoint, self.tls.as_ref()).await?;
            if self.endpoint.transport == Transport::Http && !socket.is_http2() {
                return Ok(Dialled::Http1(socket));
            }
            let limits = Limits { batch: socket.batch(), answer: LARGEST_ANSWER, budget: self.budget.clone() };
            let mut connection = Connection::new(socket, limits, self.endpoint.tls.is_some(), &self.authority());
            connection.greet().await.map_err(|why| Unreachable::at(Step::Greet, why))?;
            Ok(Dialled::Http2(connection))
        };
        let result = timeout(CONNECT_WITHIN, attempt).await;
        let late = || format!("{}: no connection within {CONNECT_WITHIN:?}", self.endpoint);
        result.unwrap_or_else(|_| Err(Unreachable::at(Step::Connect, late())))
    }

    /// Known without dialling: HTTP/2 is agreed on over TLS only.
    pub(super) fn speaks_http1(&self) -> bool {
        self.endpoint.transport == Transport::Http && (self.tls.is_none() || self.endpoint.tls.is_none())
    }

    /// What HTTP/2 calls `:authority`, and HTTP/1.1 `host`.
    pub(super) fn authority(&self) -> String {
        match &self.endpoint.address {
            Address::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Address::Tcp { host, port } => format!("{host}:{port}"),
            Address::Unix(_) => "localhost".to_owned(),
        }
    }
}
