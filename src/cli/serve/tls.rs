//! Flags of `serve` about TLS with callers.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::tls::{Oldest, ServerFiles};

/// TLS, as `serve` is asked for it.
#[derive(Debug, Args)]
pub(super) struct TlsArgs {
    /// The server certificate and its intermediates (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Accept only clients with a certificate of these authorities (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,

    /// Accept only clients with this common name, or DNS or URI alternative name; repeat for more
    #[arg(long, value_name = "NAME", requires = "client_ca")]
    client_name: Vec<String>,

    /// The oldest TLS version that is accepted
    #[arg(long, value_enum, value_name = "VERSION", default_value = "1.3")]
    tls_min: TlsMin,
}

/// TLS versions.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TlsMin {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

impl TlsArgs {
    /// The files; `None` where callers are served in plaintext.
    pub(super) fn files(self) -> Option<ServerFiles> {
        let (cert, key) = self.tls_cert.zip(self.tls_key)?;
        let oldest = match self.tls_min {
            TlsMin::Tls12 => Oldest::Tls12,
            TlsMin::Tls13 => Oldest::Tls13,
        };
        let (client_ca, client_names) = (self.client_ca, self.client_name);
        Some(ServerFiles { cert, key, client_ca, client_names, certificate_optional: false, oldest })
    }
}
