//! `read-proxy`: runs a proxy in front of an apiserver that hides objects which are not initialized.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use gatepost_operator::command::{CommandExit, Logging, access, complain, duration, misused};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use super::text;
use crate::{
    runtime::{
        ProxyAdmin, Settings, UnwaitedRuntime,
        listeners::{Port, is_local},
        resources::raise_file_limit,
    },
    telemetry::{Metrics, TlsReload},
};
use gatepost_base::files::BlockingReads;
use gatepost_read_proxy::{Cluster, ProxiedResources, Proxy, ProxySettings, RequestOrigin, listen};
use gatepost_tls::{FileCheck, MinTlsVersion, ServerFiles, ServerTls};

/// Default address for clients.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8443);
/// Default address of the admin pages. It differs from that of `serve`, because both may run on one machine.
const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9442);
/// File descriptors reserved for everything but client connections, such as connection pools to the apiserver.
const RESERVED_FILES: usize = 256;
/// File descriptors of a client connection: its own, and one to the apiserver if it is upgraded to another protocol.
const FILES_PER_CONNECTION: usize = 2;
/// Interval between reads of the TLS files.
const TLS_READ_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of one read of the TLS files.
const TLS_READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the default number of threads. It is low, because each request uses two connections: if these are on two
/// threads, each frame on one connection wakes the thread of the other.
fn default_workers() -> NonZeroUsize {
    NonZeroUsize::new(Settings::cores().get().div_ceil(4)).unwrap_or(NonZeroUsize::MIN)
}

const EXAMPLES: &str = "\
Examples:
  gatepost read-proxy --resources configmaps,widgets.example.com --listen 0.0.0.0:6443 \\
      --tls-cert apiserver.crt --tls-key apiserver.key --client-ca client-ca.crt \\
      --front-proxy-cert read-proxy.crt --front-proxy-key read-proxy.key --upstream-kubeconfig read-proxy.kubeconfig
  gatepost read-proxy --resources configmaps --tls-cert tls.crt --tls-key tls.key --upstream-kubeconfig in-cluster
      For clients with tokens alone.

On stdout, one line for each address once it is bound:
  listening tcp 0.0.0.0:6443
  listening admin 127.0.0.1:9442

Signals:
  SIGTERM or SIGINT: /readyz fails and new connections are not accepted; requests in flight have --drain to finish.
                     A second signal stops immediately.";

/// Run a proxy in front of an apiserver that hides uninitialized objects
///
/// LIST and WATCH leave them out, GET answers 202, and the answer to a CREATE is held until the object's initializers
/// have finished. Everything else passes untouched. `gatepost serve` marks the objects and runs the initializers.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ReadProxy {
    /// TCP address for clients; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", default_value_t = DEFAULT_LISTEN)]
    listen: SocketAddr,

    /// Address of /livez, /readyz and /metrics: plaintext on loopback, TLS elsewhere
    #[arg(long, value_name = "ADDRESS", default_value_t = DEFAULT_ADMIN)]
    admin: SocketAddr,

    /// The server certificate and its intermediates (PEM)
    #[arg(long, value_name = "FILE")]
    tls_cert: PathBuf,

    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: PathBuf,

    /// CA certificates for client certificates (the apiserver's --client-ca-file, PEM) [default: tokens only]
    #[arg(long, value_name = "FILE", requires = "front_proxy_cert")]
    client_ca: Option<PathBuf>,

    /// Client certificate that the apiserver trusts for impersonation headers (front proxy, PEM)
    #[arg(long, value_name = "FILE", requires = "front_proxy_key")]
    front_proxy_cert: Option<PathBuf>,

    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "front_proxy_cert")]
    front_proxy_key: Option<PathBuf>,

    /// The apiserver, its authority, and the proxy's own account: a kubeconfig, or "in-cluster"
    #[arg(long, value_name = "FILE|in-cluster")]
    upstream_kubeconfig: Option<PathBuf>,

    /// The context in the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The apiserver's address for clients' requests [default: the kubeconfig's]
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,

    /// Resources whose unfinished objects are hidden, as configmaps,widgets.example.com
    #[arg(long, value_name = "RESOURCES", value_delimiter = ',', required = true)]
    resources: Vec<String>,

    /// A user who sees all objects, besides the garbage collector and the like; repeat for more
    #[arg(long, value_name = "USER")]
    see_all: Vec<String>,

    /// Answer 404 instead of 202 to user agents with this prefix; repeat for more
    #[arg(long, value_name = "PREFIX")]
    not_found_for: Vec<String>,

    /// Maximum time that the answer to a CREATE is held
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    hold_timeout: Duration,

    /// Maximum number of concurrent writes of these resources; more are rejected with 429
    #[arg(long, value_name = "NUMBER", default_value = "1024")]
    max_holds: NonZeroUsize,

    /// Maximum number of client connections
    #[arg(long, value_name = "NUMBER", default_value = "4096")]
    max_connections: NonZeroUsize,

    /// Threads [default: one for every four cores]
    #[arg(long, value_name = "NUMBER", default_value_t = default_workers(), hide_default_value = true)]
    workers: NonZeroUsize,

    /// Time for requests under way to finish after a signal to stop
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    drain: Duration,

    #[command(flatten)]
    logging: Logging,
}

impl ReadProxy {
    /// Runs the command.
    pub fn run(self) -> CommandExit {
        let resources = match ProxiedResources::parse(self.resources.iter().map(String::as_str)) {
            Ok(resources) => resources,
            Err(error) => return misused("read-proxy", &format_args!("--resources: {error}")),
        };
        if let Err(error) = super::start_log(&self.logging) {
            return complain(&error);
        }
        self.serve(resources).unwrap_or_else(|error| complain(&error))
    }

    fn serve(self, resources: ProxiedResources) -> Result<CommandExit, String> {
        let tls = ServerTls::load(ServerFiles {
            cert: self.tls_cert,
            key: self.tls_key,
            client_ca: self.client_ca,
            client_names: Vec::new(),
            certificate_optional: true,
            oldest: MinTlsVersion::Tls12,
        });
        let tls = Arc::new(tls.map_err(|error| format!("{error}; {}", error.fix()))?);
        let port = Port::bind("--listen", self.listen, true, false).map_err(text)?;
        let admin_port = Port::bind("--admin", self.admin, true, false).map_err(text)?;
        let admin_is_remote = !is_local(self.admin);
        let mut threads = Builder::new_multi_thread();
        let runtime = UnwaitedRuntime::build(threads.worker_threads(self.workers.get()).enable_all());
        let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
        let files = raise_file_limit().saturating_sub(RESERVED_FILES) / FILES_PER_CONNECTION;
        let connections = self.max_connections.get().min(files).max(1);
        if connections < self.max_connections.get() {
            tracing::warn!(
                connections,
                "too few open files for --max-connections; raise the hard limit of RLIMIT_NOFILE"
            );
        }
        let settings = ProxySettings {
            resources,
            see_all: self.see_all,
            not_found_for: self.not_found_for,
            hold_timeout: self.hold_timeout,
            max_holds: self.max_holds.get(),
            max_connections: connections,
        };
        let drain = self.drain;
        let access = access(self.upstream_kubeconfig, self.context);
        let front_proxy = self.front_proxy_cert.zip(self.front_proxy_key);
        let origin = RequestOrigin { access: access.clone(), url: self.upstream, front_proxy };
        runtime.block_on(async {
            let (plain, front_proxy) = origin.upstreams().await.map_err(text)?;
            let cluster = Cluster::new(access).await.map_err(|error| format!("{error}; {}", error.fix()))?;
            let proxy = Proxy::new(settings, cluster, plain, front_proxy);
            let address = port.address().map_err(text)?;
            let listener = port.for_operators().map_err(text)?;
            tokio::spawn(origin.follow(Arc::clone(&proxy)));
            let process = Arc::new(Metrics::new(1));
            tokio::spawn(reload_tls_files(Arc::clone(&tls), Arc::clone(&process)));
            let admin_address = admin_port.address().map_err(text)?;
            let admin_listener = admin_port.for_operators().map_err(text)?;
            let admin = ProxyAdmin::new(Arc::clone(&proxy), Arc::clone(&tls), process);
            tokio::spawn(admin.serve(admin_listener, admin_is_remote));
            let waiting = Arc::clone(&proxy);
            tokio::spawn(async move { waiting.await_apiserver().await });
            announce(address, admin_address).map_err(|error| format!("cannot print: {error}"))?;
            let (stop, stopping) = watch::channel(false);
            let mut serving = tokio::spawn(listen::serve(proxy, listener, tls, stopping, drain));
            let mut terminate = signal(SignalKind::terminate()).map_err(text)?;
            let mut interrupt = signal(SignalKind::interrupt()).map_err(text)?;
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = &mut serving => return Err("the proxy stopped unexpectedly; see the log".to_owned()),
            }
            tracing::info!("shutting down: draining");
            // Sending fails only if the task has ended already.
            let _ = stop.send(true);
            Ok(tokio::select! {
                _ = &mut serving => CommandExit::Good,
                _ = terminate.recv() => CommandExit::Aborted,
                _ = interrupt.recv() => CommandExit::Aborted,
            })
        })
    }
}

/// Checks the TLS files for changes, and publishes their expiry, until dropped.
async fn reload_tls_files(tls: Arc<ServerTls>, metrics: Arc<Metrics>) {
    let reads = BlockingReads::default();
    let mut ticks = interval(TLS_READ_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let look = Arc::clone(&tls);
        match reads.run(TLS_READ_TIMEOUT, move || look.reload(SystemTime::now())).await {
            Ok(FileCheck::Replaced) => {
                tracing::info!("using the new TLS files for new connections");
                metrics.record_tls_reload(TlsReload::Replaced);
            }
            Ok(FileCheck::Rejected { error, news: true }) => {
                metrics.record_tls_reload(TlsReload::Rejected);
                tracing::warn!(%error, fix = error.fix(), "the changed TLS files are not valid; the old ones stay in use");
            }
            Ok(FileCheck::Same | FileCheck::Rejected { .. }) => {}
            Err(why) => tracing::warn!(%why, "cannot read the TLS files; the last good ones stay in use"),
        }
        metrics.set_ends(tls.expiries().into_iter().map(|expiry| (expiry.certificate, expiry.end)).collect());
    }
}

fn announce(address: SocketAddr, admin: SocketAddr) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "listening tcp {address}\nlistening admin {admin}")?;
    stdout.flush()
}
