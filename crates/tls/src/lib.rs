//! Key pairs and trust: PEM text to what rustls works with, or a precise account of what is wrong with it.

mod authorities;
pub mod client;
pub mod expiry;
pub mod failure;
pub mod pem;
pub mod serving;
mod trust;
mod x509;

use std::sync::Arc;

pub use client::{ClientChain, SystemRoots, client_config, over, server_verifier, without_http2};
pub use expiry::{CertificateFault, Expiry, Reminder};
pub use failure::{HandshakeFailure, HandshakeFault, normalize_error, reason};
use rustls::crypto::CryptoProvider;
pub use rustls::{ClientConfig, ServerConfig};
pub use serving::{FileCheck, Oldest, ServerFiles, ServerTls, read_file, server_config};
pub use x509::CertificateUser;

/// Name of a caller, by the client certificate that was accepted; `None` where none was asked for.
pub fn client_name(connection: &rustls::ServerConnection) -> Option<String> {
    x509::name(connection.peer_certificates()?.first()?)
}

/// Owner of the client certificate that was accepted, as Kubernetes reads it; `None` where there was none.
pub fn client_user(connection: &rustls::ServerConnection) -> Option<CertificateUser> {
    x509::user(connection.peer_certificates()?.first()?)
}

/// HTTP/2, as ALPN names it. gRPC is spoken over nothing else.
const ALPN_H2: &[u8] = b"h2";
/// HTTP/1.1, as ALPN names it: what most webhooks speak.
const ALPN_HTTP1: &[u8] = b"http/1.1";

/// Named at every use: a process-wide provider would be one more thing to install, and to forget in a test.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Fault of TLS material, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {cause}")]
    Unreadable {
        /// The file.
        path: String,
        /// The operating system's words.
        cause: String,
    },
    /// A PEM file is damaged.
    #[error("the {what} is not PEM: {cause}")]
    NotPem {
        /// Which of the PEM files.
        what: &'static str,
        /// The parser's words.
        cause: String,
    },
    /// A PEM file holds nothing of the expected sort.
    #[error("the {what} has no \"-----BEGIN {label}-----\" section")]
    Empty {
        /// Which of the PEM files.
        what: &'static str,
        /// The PEM label looked for.
        label: &'static str,
    },
    /// A certificate cannot be used as an authority.
    #[error("certificate {number} of the {what} cannot be trusted as an authority: {cause}")]
    BadAuthority {
        /// Which of the PEM files.
        what: &'static str,
        /// Which certificate of it, from 1.
        number: usize,
        /// rustls' words.
        cause: String,
    },
    /// Certificate and key cannot be used together.
    #[error("the {what} and its private key do not belong together, or cannot be used: {cause}")]
    BadPair {
        /// Which certificate.
        what: &'static str,
        /// rustls' words.
        cause: String,
    },
    /// A new certificate that is not valid at present would replace one that is.
    #[error("the new server certificate {0}")]
    OutOfDate(CertificateFault),
    /// The name to look for in the server's certificate is none.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    BadServerName(String),
    /// The system has no certificate authorities.
    #[error("the system's certificate authorities cannot be read: {0}")]
    NoSystemRoots(String),
    /// rustls refuses for a reason of its own.
    #[error("{0}")]
    Refused(String),
}

impl TlsError {
    /// Advice for the operator.
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
