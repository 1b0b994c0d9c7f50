//! Reasons why a sidecar does not start, with advice.

use std::{fmt, io, net::SocketAddr};

use super::listeners::BindError;
use crate::source::{LastGoodError, ReadError};
use gatepost_config::Problem;
use gatepost_kube_support::KubeError;
use gatepost_tls::TlsError;

/// Reasons why a sidecar does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither TLS nor plaintext was chosen for callers.
    #[error(
        "no TLS certificate for {0}: give --tls-cert FILE and --tls-key FILE, or, on a loopback address, --plaintext"
    )]
    NoTls(SocketAddr),
    /// The key pair or the clients' CA file cannot be used.
    #[error("{0}; {fix}", fix = .0.fix())]
    Tls(#[from] TlsError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The audit log cannot be written.
    #[error(
        "cannot open the audit log {path}: {cause}; its folder must exist, and this process be able to write there"
    )]
    Audit {
        /// The file.
        path: String,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// The last good configuration cannot be written.
    #[error("--last-good: {0}; make that folder, or name another path")]
    LastGood(LastGoodError),
    /// The configuration cannot be read.
    #[error("{0}; nothing is served without a configuration")]
    Unreadable(#[from] ReadError),
    /// The configuration is invalid.
    #[error("{}", Listed(.0))]
    Invalid(Vec<Problem>),
    /// The kubeconfig, or the Pod's service account, cannot be used.
    #[error("{0}; {fix}", fix = .0.fix())]
    Cluster(#[from] KubeError),
    /// The operating system cannot create a thread or an event queue.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Display of problems, one a line, after their number.
struct Listed<'a>(&'a [Problem]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the configuration has problems ({}); nothing is served until they are corrected", self.0.len())?;
        for (index, problem) in self.0.iter().enumerate() {
            let end = if index + 1 < self.0.len() { "\n" } else { "" };
            write!(f, "{problem}{end}")?;
        }
        Ok(())
    }
}
