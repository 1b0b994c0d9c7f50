//! The server side of TLS, from PEM texts.

use std::sync::Arc;

use rustls::{ServerConfig, server::NoServerSessionStorage};

use super::{ALPN_H2, TlsError, clients, pem, provider};

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oldest {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3, the newest.
    #[default]
    Tls13,
}

/// The clients that are let in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clients<'a> {
    /// Authorities that must have signed their certificates.
    pub(super) ca_pem: &'a [u8],
    /// Names, one of which they must have; none is any.
    pub(super) names: &'a [String],
    /// Clients without a certificate are let in as well.
    pub(super) optional: bool,
}

/// The server side of TLS of a hook: HTTP/2 by ALPN, aws-lc-rs, TLS 1.3 (1.2 accepted). With `client_ca_pem` only clients
/// whose certificate one of these authorities has signed get in.
///
/// # Errors
/// [`TlsError`] for unusable material.
pub fn server_config(
    chain_pem: &[u8],
    key_pem: &[u8],
    client_ca_pem: Option<&[u8]>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let clients = client_ca_pem.map(|ca_pem| Clients { ca_pem, names: &[], optional: false });
    config(chain_pem, key_pem, clients, Oldest::Tls12, &[ALPN_H2])
}

/// The server side of TLS, speaking these protocols by ALPN. The key is checked against its certificate.
///
/// # Errors
/// [`TlsError`] for unusable material.
pub(super) fn config(
    chain_pem: &[u8],
    key_pem: &[u8],
    clients: Option<Clients<'_>>,
    oldest: Oldest,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, TlsError> {
    let versions: &[_] = match oldest {
        Oldest::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        Oldest::Tls13 => &[&rustls::version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::Refused(error.to_string()))?;
    let builder = match &clients {
        Some(Clients { ca_pem, names, optional }) => {
            builder.with_client_cert_verifier(clients::verifier(ca_pem, names, *optional)?)
        }
        None => builder.with_no_client_auth(),
    };
    let chain = pem::certificates(chain_pem, "server certificate")?;
    let key = pem::private_key(key_pem, "server key")?;
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::BadPair { what: "server certificate", cause: error.to_string() })?;
    if clients.is_some() {
        // A resumed session shows no certificate, and so would outlive one.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}
