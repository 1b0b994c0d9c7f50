//! Client of one connection: its address, its identity, and how long its certificate is trusted.
//!
//! Its place among the connections served at the same time is kept also after the connection has upgraded to another
//! protocol.

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

/// Maximum age of a verification of the certificate.
const MAX_VERIFICATION_AGE: Duration = Duration::from_secs(5);

/// Client of one connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    /// Owner of the client certificate.
    user: Result<Option<RemoteUser>, Unnameable>,
    certificate: Option<Certificate>,
    pub(super) activity: Arc<Activity>,
    pub(super) place: Arc<Place>,
}

/// Client certificate of a connection, and its last verification.
#[derive(Debug)]
struct Certificate {
    chain: ClientChain,
    tls: Arc<ServerTls>,
    verification: Mutex<Verification>,
}

#[derive(Clone, Copy, Debug)]
struct Verification {
    at: Instant,
    /// Version of the trusted files at the verification.
    files: u64,
    is_trusted: bool,
}

impl Peer {
    pub(super) fn new(address: IpAddr, chain: Option<ClientChain>, tls: Arc<ServerTls>, place: Place) -> Self {
        let user = chain.as_ref().and_then(ClientChain::user).map_or(Ok(None), RemoteUser::of);
        let certificate = chain.map(|chain| {
            // The handshake may have used files that were replaced meanwhile.
            let is_trusted = tls.accepts(&chain);
            let verification = Mutex::new(Verification { at: Instant::now(), files: tls.number(), is_trusted });
            Certificate { chain, tls, verification }
        });
        Self { address, user, certificate, activity: Arc::default(), place: Arc::new(place) }
    }

    /// Returns the owner of the certificate while it is trusted; `None` without a certificate.
    ///
    /// # Errors
    /// A refusal if the certificate is no longer trusted (then the connection retires) or its owner cannot be named.
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
    /// Returns true while a handshake would accept the certificate.
    fn is_trusted(&self) -> bool {
        let mut verification = self.verification.lock().unwrap_or_else(PoisonError::into_inner);
        let files = self.tls.number();
        if verification.is_trusted && (verification.files != files || verification.at.elapsed() >= MAX_VERIFICATION_AGE)
        {
            *verification = Verification { at: Instant::now(), files, is_trusted: self.tls.accepts(&self.chain) };
        }
        verification.is_trusted
    }
}

/// Place of a connection among those served at the same time.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    /// Its sender is dropped once the drain has timed out.
    cut: watch::Receiver<()>,
    metrics: Arc<ReadProxyMetrics>,
}

impl Place {
    /// Creates a place that is valid until the sender of `cut` is dropped.
    pub(super) fn new(permit: OwnedSemaphorePermit, cut: watch::Receiver<()>, metrics: Arc<ReadProxyMetrics>) -> Self {
        metrics.connection_begins();
        Self { _permit: permit, cut, metrics }
    }

    /// Completes once the sender of `cut` is dropped.
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
