//! TLS with rustls: configurations and certificate verification from PEM text, with precise errors.

mod authorities;
pub mod client;
pub mod expiry;
pub mod failure;
pub mod serving;
mod trust;
mod x509;

use std::sync::Arc;

pub use client::{ClientChain, SystemRoots, client_config, server_verifier, without_http2};
pub use expiry::{CertificateFault, Expiry, Reminder};
pub use failure::{HandshakeFailure, HandshakeFault, normalize_error, reason};
use rustls::crypto::CryptoProvider;
pub use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};
pub use serving::{FileCheck, MinTlsVersion, ServerFiles, ServerTls, read_file, server_config};
pub use x509::CertificateUser;

/// Returns the name in the client certificate of a connection; `None` if there is no certificate.
pub fn client_name(connection: &rustls::ServerConnection) -> Option<String> {
    x509::name(connection.peer_certificates()?.first()?)
}

/// ALPN name of HTTP/2, the only protocol of gRPC.
const ALPN_H2: &[u8] = b"h2";
/// ALPN name of HTTP/1.1, which most webhooks speak.
const ALPN_HTTP1: &[u8] = b"http/1.1";

/// Returns the crypto provider for one configuration. A process-wide provider would have to be installed in each test.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Error in TLS material, with its location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {cause}")]
    Unreadable {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        cause: String,
    },
    /// A PEM file is damaged.
    #[error("the {what} is not PEM: {cause}")]
    NotPem {
        /// Description of the PEM file.
        what: &'static str,
        /// Error of the parser.
        cause: String,
    },
    /// A PEM file has no section of the expected kind.
    #[error("the {what} has no \"-----BEGIN {label}-----\" section")]
    Empty {
        /// Description of the PEM file.
        what: &'static str,
        /// Expected PEM label.
        label: &'static str,
    },
    /// A certificate cannot be used as an authority.
    #[error("certificate {number} of the {what} cannot be trusted as an authority: {cause}")]
    BadAuthority {
        /// Description of the PEM file.
        what: &'static str,
        /// Number of the certificate in the file, from 1.
        number: usize,
        /// Reason.
        cause: String,
    },
    /// Certificate and key cannot be used together.
    #[error("the {what} and its private key do not belong together, or cannot be used: {cause}")]
    BadPair {
        /// Description of the certificate.
        what: &'static str,
        /// Error of rustls.
        cause: String,
    },
    /// A new certificate that is not valid now would replace one that is valid.
    #[error("the new server certificate {0}")]
    OutOfDate(CertificateFault),
    /// The name to verify in the server's certificate is not a valid name.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    BadServerName(String),
    /// The system's certificate authorities cannot be read, or there are none.
    #[error("the system's certificate authorities cannot be read: {0}")]
    NoSystemRoots(String),
    /// Any other error of rustls.
    #[error("{0}")]
    Refused(String),
}

impl TlsError {
    /// Returns advice for the operator.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "check the path, and that the file may be read",
            Self::NotPem { .. } => "write it again from its origin; PEM is text between BEGIN and END lines",
            Self::Empty { .. } => "check that certificate, key and authority are not mixed up",
            Self::BadAuthority { .. } => {
                "give the certificate of the authority that signed the peer's, or that very certificate"
            }
            Self::BadPair { .. } => "give the key the certificate was issued for; a rotation must replace both",
            Self::OutOfDate(_) => "issue one that is valid now, and look at this machine's clock",
            Self::BadServerName(_) => "give the name in the server's certificate",
            Self::NoSystemRoots(_) => "install the system's ca-certificates, or name an authority in the configuration",
            Self::Refused(_) => "see the cause",
        }
    }
}

/// Returns the certificates in a PEM text, at least one.
///
/// # Errors
/// `NotPem`, `Empty`.
fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|cause| not_pem(what, &cause))?;
    if found.is_empty() {
        return Err(TlsError::Empty { what, label: "CERTIFICATE" });
    }
    Ok(found)
}

/// Returns the first private key in a PEM text. Errors never quote it.
///
/// # Errors
/// `NotPem`, `Empty`.
fn private_key(pem: &[u8], what: &'static str) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|cause| match cause {
        pem::Error::NoItemsFound => TlsError::Empty { what, label: "PRIVATE KEY" },
        pem::Error::Base64Decode(_) => TlsError::NotPem { what, cause: "damaged base64".to_owned() },
        _ => TlsError::NotPem { what, cause: "damaged section".to_owned() },
    })
}

fn not_pem(what: &'static str, cause: &pem::Error) -> TlsError {
    let cause = match cause {
        pem::Error::MissingSectionEnd { .. } => "a section has no END line",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is damaged",
        pem::Error::Base64Decode(_) => "damaged base64",
        _ => "damaged section",
    };
    TlsError::NotPem { what, cause: cause.to_owned() }
}
