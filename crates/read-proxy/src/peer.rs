//! Peer: the client of one connection: its address, its identity, and for how long that is believed.
//!
//! Its place among the connections that are served at the same time is kept also while the connection is another
//! protocol's.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gatepost_tls::{ClientChain, ServerTls};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::Instant,
};

use super::{
    activity::Activity,
    refusal::ProxyRefusal,
    requester::{RemoteUser, Unnameable},
};
use crate::metrics::ReadProxyMetrics;

/// Age up to which a judgement on a certificate is used again.
const JUDGED_FOR: Duration = Duration::from_secs(5);

/// Client of one connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    /// Owner of its certificate.
    user: Result<Option<RemoteUser>, Unnameable>,
    certificate: Option<Certificate>,
    pub(super) activity: Arc<Activity>,
    pub(super) place: Arc<Place>,
}

/// Certificate of a connection, as it was judged the last time.
#[derive(Debug)]
struct Certificate {
    chain: ClientChain,
    tls: Arc<ServerTls>,
    judged: Mutex<Judged>,
}

#[derive(Clone, Copy, Debug)]
struct Judged {
    at: Instant,
    /// Files by which it was judged.
    files: u64,
    is_trusted: bool,
}

impl Peer {
    pub(super) fn new(address: IpAddr, chain: Option<ClientChain>, tls: Arc<ServerTls>, place: Place) -> Self {
        let user = chain.as_ref().and_then(ClientChain::user).map_or(Ok(None), RemoteUser::of);
        let certificate = chain.map(|chain| {
            // The handshake may have been by files that are not in force any more.
            let is_trusted = tls.accepts(&chain);
            let judged = Mutex::new(Judged { at: Instant::now(), files: tls.number(), is_trusted });
            Certificate { chain, tls, judged }
        });
        Self { address, user, certificate, activity: Arc::default(), place: Arc::new(place) }
    }

    /// Owner of the certificate, as long as it is one; `None` without a certificate.
    ///
    /// # Errors
    /// A refusal where there is one, and it counts for nothing. The connection is to end, then.
    pub(super) fn user(&self) -> Result<Option<&RemoteUser>, ProxyRefusal> {
        if self.certificate.as_ref().is_some_and(|certificate| !certificate.is_trusted()) {
            self.activity.retire();
            let why = "the client certificate has expired, or its authority is no longer trusted; connect again";
            return Err(ProxyRefusal::unauthorized(why));
        }
        self.user.as_ref().map(Option::as_ref).map_err(|why| ProxyRefusal::unauthorized(&why.to_string()))
    }
}

impl Certificate {
    /// True while it would be accepted in a handshake.
    fn is_trusted(&self) -> bool {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let files = self.tls.number();
        if judged.is_trusted && (judged.files != files || judged.at.elapsed() >= JUDGED_FOR) {
            *judged = Judged { at: Instant::now(), files, is_trusted: self.tls.accepts(&self.chain) };
        }
        judged.is_trusted
    }
}

/// Place of a connection among those that are served at the same time.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    /// Its other end is dropped once time is up for whatever is left.
    cut: watch::Receiver<()>,
    metrics: Arc<ReadProxyMetrics>,
}

impl Place {
    /// Place that ends with the other end of `cut`.
    pub(super) fn new(permit: OwnedSemaphorePermit, cut: watch::Receiver<()>, metrics: Arc<ReadProxyMetrics>) -> Self {
        metrics.connection_begins();
        Self { _permit: permit, cut, metrics }
    }

    /// Done once time is up.
    pub(super) async fn cut(&self) {
        let mut cut = self.cut.clone();
        while cut.changed().await.is_ok() {}
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.connection_ends();
    }
}
