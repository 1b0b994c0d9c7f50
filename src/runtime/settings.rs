//! Settings: all settings of a sidecar at its start.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    thread::available_parallelism,
    time::Duration,
};

use crate::{
    replicas::{Replica, StatusPlace},
    review::{Reasons, Speculation},
    rotate::{OnHazard, OnInvalid},
    source::{SourceLocation, poll::READ_EVERY},
};
use gatepost_kube_support::KubeAccess;
use gatepost_tls::ServerFiles;

/// Sink of audit records.
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

/// All settings of a sidecar at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Source of configuration.
    pub source: SourceLocation,
    /// Interval between reads of the source and of the TLS files.
    pub read_every: Duration,
    /// Address that serves callers over TCP, by gRPC and plain HTTP; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The key pair for that, and for admin pages that other machines can reach.
    pub tls: Option<ServerFiles>,
    /// Serve TCP without TLS, on a loopback address.
    pub plaintext: bool,
    /// A unix socket where the same is served in plaintext.
    pub uds: Option<PathBuf>,
    /// Share the ports, and take the unix socket over, with another instance that does so: for a handover.
    pub reuse_port: bool,
    /// Address of `/livez`, `/readyz`, `/metrics` and `/configz`: in plaintext on a loopback address, elsewhere over
    /// TLS.
    pub admin: SocketAddr,
    /// Threads that serve reviews, one runtime each.
    pub workers: NonZeroUsize,
    /// The largest review taken, in bytes.
    pub max_message_bytes: usize,
    /// The most bytes of reviews held at any time.
    pub max_inflight_bytes: usize,
    /// The longest a review may take, whatever its caller allows.
    pub max_deadline: Duration,
    /// The cluster whose namespaces are followed, for their labels.
    pub namespaces_from: Option<KubeAccess>,
    /// The registration by which the followed cluster, or the source's, asks this sidecar: requests that it does not
    /// send are reported.
    pub registration: Option<String>,
    /// Hooks that are named by a Service of the followed cluster, or the source's, are dialled at its endpoints.
    pub resolve_services: bool,
    /// Namespace of the lease by which replicas agree on who initializes stored objects.
    pub initializers_namespace: String,
    /// Name of this replica.
    pub replica: String,
    /// Place of this replica's status reports, for readers that do not ask its admin address.
    pub status_place: StatusPlace,
    /// Sink of audit records.
    pub audit_log: AuditLog,
    /// Records hold the beginning of what a rejection says, in hooks' own words.
    pub audit_hook_messages: bool,
    /// A local file whose break-glass documents count whatever the source does.
    pub break_glass_file: Option<PathBuf>,
    /// File for the configuration in force, which the next start may use.
    pub last_good: Option<PathBuf>,
    /// Reasons that a rejection gives.
    pub reasons: Reasons,
    /// Are the patches of mutating hooks put into audit annotations?
    pub patch_annotations: bool,
    /// Default mode of asking mutating hooks.
    pub speculation: Speculation,
    /// Treatment of a configuration that can take the cluster down.
    pub on_hazard: OnHazard,
    /// Treatment of documents that cannot be served, at start.
    pub on_invalid: OnInvalid,
}

impl Settings {
    /// The cluster that is followed, or that the configuration is read from; `None` where there is none.
    pub fn cluster(&self) -> Option<KubeAccess> {
        let of_source = || match &self.source {
            SourceLocation::Kubernetes(place) => Some(place.access.clone()),
            SourceLocation::File(_) | SourceLocation::Etcd(_) => None,
        };
        self.namespaces_from.clone().or_else(of_source)
    }

    /// The default namespace of the lease for stored objects.
    pub const INITIALIZERS_NAMESPACE: &str = "gatepost";
    /// The default address for callers.
    pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9440);
    /// The default address of the admin pages.
    pub const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9441);
    /// Two objects of 3 MiB, doubled for being written as JSON, and 4 MiB for the rest; see
    /// [`Limits::message_bytes`](crate::front::Limits).
    pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
    /// 32 of the largest messages. Most are a thousand times smaller.
    pub const MAX_INFLIGHT_BYTES: usize = 512 << 20;
    /// An apiserver waits for a webhook no longer than this.
    // source: k8s.io/api/admissionregistration/v1, timeoutSeconds "must be between 1 and 30 seconds".
    pub const MAX_DEADLINE: Duration = Duration::from_secs(30);

    /// The most threads that serve reviews, where the machine has no more cores.
    pub const MOST_WORKERS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

    /// The defaults, for the configuration in the file or folder at `config`.
    pub fn new(config: impl Into<PathBuf>) -> Self {
        Self::of(SourceLocation::File(config.into()))
    }

    /// The defaults, for the configuration at that place.
    pub fn of(source: SourceLocation) -> Self {
        Self {
            source,
            read_every: READ_EVERY,
            listen: Self::LISTEN,
            tls: None,
            plaintext: false,
            uds: None,
            reuse_port: false,
            admin: Self::ADMIN,
            workers: Self::cores(),
            max_message_bytes: Self::MAX_MESSAGE_BYTES,
            max_inflight_bytes: Self::MAX_INFLIGHT_BYTES,
            max_deadline: Self::MAX_DEADLINE,
            namespaces_from: None,
            registration: None,
            resolve_services: false,
            initializers_namespace: Self::INITIALIZERS_NAMESPACE.to_owned(),
            replica: Replica::host(),
            status_place: StatusPlace::Nowhere,
            audit_log: AuditLog::None,
            audit_hook_messages: true,
            break_glass_file: None,
            last_good: None,
            reasons: Reasons::First,
            patch_annotations: false,
            speculation: Speculation::default(),
            on_hazard: OnHazard::Warn,
            on_invalid: OnInvalid::Refuse,
        }
    }

    /// In plaintext on free ports of the loopback interface with two workers: for demonstrations and tests.
    pub fn local(config: impl Into<PathBuf>) -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let two = NonZeroUsize::MIN.saturating_add(1);
        Self { listen: free, plaintext: true, admin: free, workers: two, ..Self::new(config) }
    }

    /// Number of threads that this process may run at once.
    pub fn cores() -> NonZeroUsize {
        available_parallelism().unwrap_or(NonZeroUsize::MIN)
    }
}
