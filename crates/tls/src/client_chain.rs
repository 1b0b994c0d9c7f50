//! Client chain: the certificates that a client has shown, kept so that they can be judged again.

use rustls_pki_types::CertificateDer;

use super::x509::{self, CertificateUser};

/// Certificates that a client has shown in its handshake: its own first.
#[derive(Clone, Debug)]
pub struct ClientChain(Vec<CertificateDer<'static>>);

impl ClientChain {
    /// Chain of a connection; `None` where it has shown none.
    pub fn of(connection: &rustls::ServerConnection) -> Option<Self> {
        let chain = connection.peer_certificates()?;
        let owned = |certificate: &CertificateDer<'_>| certificate.clone().into_owned();
        (!chain.is_empty()).then(|| Self(chain.iter().map(owned).collect()))
    }

    /// Owner, as Kubernetes reads it.
    pub fn user(&self) -> Option<CertificateUser> {
        x509::user(self.0.first()?)
    }

    /// Its own certificate and the others.
    pub(super) fn parts(&self) -> Option<(&CertificateDer<'static>, &[CertificateDer<'static>])> {
        self.0.split_first()
    }
}
