//! Settings: everything a sidecar is told at its start.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    thread::available_parallelism,
    time::Duration,
};

use crate::{admit::Reasons, source::poll::READ_EVERY};

/// Where audit records go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuditLog {
    /// Nowhere: none is built.
    #[default]
    None,
    /// Standard output.
    Stdout,
    /// The end of this file.
    File(PathBuf),
}

/// Everything a sidecar is told at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The file or folder configuration is read from.
    pub config: PathBuf,
    /// How often it is read.
    pub read_every: Duration,
    /// Where gRPC is served in plaintext; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Serve plaintext to other machines too.
    pub insecure_listen: bool,
    /// A unix socket where gRPC is served as well.
    pub uds: Option<PathBuf>,
    /// Where `/livez`, `/readyz`, `/metrics` and `/configz` are served.
    pub admin: SocketAddr,
    /// Threads that serve reviews, one runtime each.
    pub workers: NonZeroUsize,
    /// The largest review taken, in bytes.
    pub max_message_bytes: usize,
    /// The most bytes of reviews held at any time.
    pub max_inflight_bytes: usize,
    /// The longest a review may take, whatever its caller allows.
    pub max_deadline: Duration,
    /// Where audit records go.
    pub audit_log: AuditLog,
    /// How many reasons a rejection gives.
    pub reasons: Reasons,
}

impl Settings {
    /// The default address of the gRPC service.
    pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9440);
    /// The default address of the admin pages.
    pub const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9441);
    /// Larger than any object an apiserver stores (etcd takes 1.5 MiB), old and new object together, with room.
    pub const MAX_MESSAGE_BYTES: usize = 8 << 20;
    /// 64 of the largest messages.
    pub const MAX_INFLIGHT_BYTES: usize = 512 << 20;
    /// An apiserver waits for a webhook no longer than this.
    // source: k8s.io/api/admissionregistration/v1, timeoutSeconds "must be between 1 and 30 seconds".
    pub const MAX_DEADLINE: Duration = Duration::from_secs(30);

    /// The defaults, for the configuration at `config`.
    pub fn new(config: impl Into<PathBuf>) -> Self {
        Self {
            config: config.into(),
            read_every: READ_EVERY,
            listen: Self::LISTEN,
            insecure_listen: false,
            uds: None,
            admin: Self::ADMIN,
            workers: Self::cores(),
            max_message_bytes: Self::MAX_MESSAGE_BYTES,
            max_inflight_bytes: Self::MAX_INFLIGHT_BYTES,
            max_deadline: Self::MAX_DEADLINE,
            audit_log: AuditLog::None,
            reasons: Reasons::First,
        }
    }

    /// On free ports of the loopback interface with two workers: for demonstrations and tests.
    pub fn local(config: impl Into<PathBuf>) -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let two = NonZeroUsize::MIN.saturating_add(1);
        Self { listen: free, admin: free, workers: two, ..Self::new(config) }
    }

    /// How many threads the machine runs at once, as far as this process may use them.
    pub fn cores() -> NonZeroUsize {
        available_parallelism().unwrap_or(NonZeroUsize::MIN)
    }
}
