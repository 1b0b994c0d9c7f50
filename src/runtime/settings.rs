//! Settings of a sidecar at its start.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    thread::available_parallelism,
    time::Duration,
};

use super::StatusPlace;
use crate::{
    review::{Reasons, Speculation},
    rotate::{OnHazard, OnInvalid},
    source::{READ_INTERVAL, SourceLocation},
};
use gatepost_kube_support::KubeAccess;
use gatepost_replicas::Replica;
use gatepost_tls::ServerFiles;

/// Sink of audit records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuditLog {
    /// No audit records are created.
    #[default]
    None,
    /// Standard output.
    Stdout,
    /// File to which records are appended.
    File(PathBuf),
}

/// Settings of a sidecar at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Source of the configuration.
    pub source: SourceLocation,
    /// Interval between reads of the source and of the TLS files.
    pub read_every: Duration,
    /// Address that serves callers over TCP, with gRPC and plain HTTP; port 0 selects a free one.
    pub listen: SocketAddr,
    /// Key pair for `listen`, and for admin pages that other machines can reach.
    pub tls: Option<ServerFiles>,
    /// True to serve TCP without TLS, on a loopback address.
    pub plaintext: bool,
    /// Unix socket with the same services in plaintext.
    pub uds: Option<PathBuf>,
    /// True to share the ports, and replace the unix socket, of another instance that shares them: for a handover.
    pub reuse_port: bool,
    /// Address of `/livez`, `/readyz`, `/metrics` and `/configz`: in plaintext on a loopback address, otherwise over
    /// TLS.
    pub admin: SocketAddr,
    /// Threads that serve reviews, each with its own runtime.
    pub workers: NonZeroUsize,
    /// Largest review, in bytes.
    pub max_message_bytes: usize,
    /// Memory budget of reviews, in bytes.
    pub max_inflight_bytes: usize,
    /// Maximum time of a review, even if its caller allows more.
    pub max_deadline: Duration,
    /// Cluster whose namespaces are watched, for their labels.
    pub namespaces_from: Option<KubeAccess>,
    /// Name of the registration by which the watched cluster, or the source's, calls this sidecar. Requests that the
    /// registration does not send are reported.
    pub registration: Option<String>,
    /// True to dial hooks named by a Service of the watched cluster, or of the source's, at its endpoints.
    pub resolve_services: bool,
    /// Namespace of the lease by which replicas agree on who initializes stored objects.
    pub initializers_namespace: String,
    /// Name of this replica.
    pub replica: String,
    /// Place of this replica's status reports, besides its admin address.
    pub status_place: StatusPlace,
    /// Sink of audit records.
    pub audit_log: AuditLog,
    /// True to include the first part of a rejection's message, in hooks' own words, in audit records.
    pub audit_hook_messages: bool,
    /// Local file whose break-glass documents apply in addition to those of the source.
    pub break_glass_file: Option<PathBuf>,
    /// File for the configuration in force, which the next start may use.
    pub last_good: Option<PathBuf>,
    /// Which reasons a rejection contains.
    pub reasons: Reasons,
    /// True to put the patches of mutating hooks into audit annotations.
    pub patch_annotations: bool,
    /// True if requests wait for a change of the configuration that was noticed and is not in force.
    pub hold_for_changes: bool,
    /// Default speculation mode for mutating hooks.
    pub speculation: Speculation,
    /// Treatment of a configuration that can take the cluster down.
    pub on_hazard: OnHazard,
    /// Treatment of documents that cannot be served, at the start.
    pub on_invalid: OnInvalid,
}

impl Settings {
    /// Returns the watched cluster, or the cluster of the source; `None` if there is neither.
    pub fn cluster(&self) -> Option<KubeAccess> {
        let of_source = || match &self.source {
            SourceLocation::Kubernetes(place) => Some(place.access.clone()),
            SourceLocation::File(_) | SourceLocation::Etcd(_) => None,
        };
        self.namespaces_from.clone().or_else(of_source)
    }

    /// Default namespace of the lease for stored objects.
    pub const INITIALIZERS_NAMESPACE: &str = "gatepost";
    /// Default address for callers.
    pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9440);
    /// Default address of the admin pages.
    pub const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9441);
    /// Default largest review: two objects of 3 MiB, doubled for JSON, and 4 MiB for the rest; see
    /// [`FrontLimits::message_bytes`](crate::front::FrontLimits).
    pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
    /// Default memory budget: 32 of the largest reviews. Most reviews are a thousand times smaller.
    pub const MAX_INFLIGHT_BYTES: usize = 512 << 20;
    /// Default longest time of a review: the longest time for which an apiserver waits for a webhook.
    // source: k8s.io/api/admissionregistration/v1, timeoutSeconds "must be between 1 and 30 seconds".
    pub const MAX_DEADLINE: Duration = Duration::from_secs(30);

    /// Maximum number of threads that serve reviews, unless the machine has more cores.
    pub const MAX_WORKERS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

    /// Returns the defaults for the configuration in the file or folder at `config`.
    pub fn new(config: impl Into<PathBuf>) -> Self {
        Self::of(SourceLocation::File(config.into()))
    }

    /// Returns the defaults for `source`.
    pub fn of(source: SourceLocation) -> Self {
        Self {
            source,
            read_every: READ_INTERVAL,
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
            hold_for_changes: false,
            speculation: Speculation::default(),
            on_hazard: OnHazard::Warn,
            on_invalid: OnInvalid::Refuse,
        }
    }

    /// Returns settings for plaintext on free loopback ports with two workers: for demonstrations and tests.
    pub fn local(config: impl Into<PathBuf>) -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let two = NonZeroUsize::MIN.saturating_add(1);
        Self { listen: free, plaintext: true, admin: free, workers: two, ..Self::new(config) }
    }

    /// Returns the number of threads that this process may run at once.
    pub fn cores() -> NonZeroUsize {
        available_parallelism().unwrap_or(NonZeroUsize::MIN)
    }
}
