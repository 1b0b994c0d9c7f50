//! Key pairs and trust.

use std::sync::Arc;

use crate::model::hook::EndpointTls;

/// What is wrong with an endpoint's TLS material.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub String);

/// The client side of TLS to a hook: HTTP/2 by ALPN, ring, TLS 1.3 (1.2 accepted).
pub fn client_config(_tls: &EndpointTls) -> Result<Arc<rustls::ClientConfig>, TlsError> {
    Err(TlsError("in the making".into()))
}
