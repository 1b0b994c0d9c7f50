//! The server side of TLS: for hooks of ours and for trials.

use std::sync::Arc;

use rustls::{ServerConfig, server::WebPkiClientVerifier};

use super::{ALPN_H2, TlsError, pem, provider};

/// The server side of TLS: HTTP/2 by ALPN, ring, TLS 1.3 (1.2 accepted). With `client_ca_pem` only clients whose
/// certificate one of these authorities has signed get in.
///
/// # Errors
/// Whatever of the material is unusable, see [`TlsError`].
pub fn server_config(
    chain_pem: &[u8],
    key_pem: &[u8],
    client_ca_pem: Option<&[u8]>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| TlsError::Refused(error.to_string()))?;
    let builder = match client_ca_pem {
        Some(ca_pem) => {
            let roots = pem::authorities(ca_pem, "clients' certificate authority")?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
                .build()
                .map_err(|error| TlsError::Refused(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let chain = pem::certificates(chain_pem, "server certificate")?;
    let key = pem::private_key(key_pem, "server key")?;
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::BadPair { what: "server certificate", cause: error.to_string() })?;
    config.alpn_protocols = vec![ALPN_H2.to_vec()];
    Ok(Arc::new(config))
}
