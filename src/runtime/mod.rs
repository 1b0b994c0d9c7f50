//! The program around reviews: settings, start, background loops, drain.
//!
//! N worker threads serve reviews, each on its own runtime. One more thread is the control plane: it starts everything,
//! accepts connections and assigns them to workers, and runs the [background loops](background).

mod background;
mod certificates;
mod last_good;
pub mod listeners;
mod process;
mod proxy_admin;
mod reports;
pub mod resources;
mod running;
pub mod settings;
pub mod signals;
pub mod threads;

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{Arc, OnceLock, mpsc},
    time::{Duration, Instant},
};

use tokio::sync::{mpsc::channel, oneshot, watch};

use self::{
    background::Loops,
    certificates::Certificates,
    last_good::{FirstGeneration, LastGoodWriter},
    listeners::{BindError, Port, UnixPort},
    reports::Publishing,
    resources::{Descriptors, fitting_budget},
    running::Service,
    settings::AuditLog,
    threads::{Workers, lower_priority},
};
pub use self::{
    proxy_admin::ProxyAdmin,
    reports::StatusPlace,
    running::{Addresses, DrainResult, Running},
    settings::Settings,
};
use crate::{
    front::{Front, FrontLimits, admin::Admin},
    hooks::{ConnectionBudget, Resources, ServiceAddresses},
    live::{AdoptionSidecar, Authorizer, ClusterObjects, Current, Discovery, Namespaces, ReplicaHealth},
    review::AdmissionDeps,
    rotate::{OwnAddresses, Rotator, RotatorOptions, candidate::CandidateCache},
    source::{
        self, AccessReviews, ClusterReader, LabelledObjects, LastGoodError, LastGoodFile, NamespaceWatcher, ReadError,
        RegistrationWatch, ServiceWatcher, break_glass,
    },
    telemetry::{Audit, Metrics, Reading},
};
use gatepost_adopt::Adoption;
use gatepost_base::memory::MemoryBudget;
use gatepost_config::Problem;
use gatepost_kube_support::{KubeAccess, KubeClient, KubeError, ReloadingClient};
use gatepost_replicas::Replica;
use gatepost_tls::{ServerTls, TlsError};
pub(crate) use threads::UnwaitedRuntime;

/// Time beyond the deadline of requests before a drain cuts them, to write their answers.
const DRAIN_MARGIN: Duration = Duration::from_millis(500);
/// Time beyond the longest deadline after which a blocked shutdown is abandoned; the process then ends within 1 s.
const STOP_MARGIN: Duration = Duration::from_millis(800);

/// A whole sidecar in this process: what `gatepost serve` runs. Demonstrations, tests and benches run it, too.
#[derive(Debug)]
pub struct Sidecar;

impl Sidecar {
    /// Binds, opens the audit log, reads and checks the configuration, and serves. On return the first generation is in
    /// force; or every review is refused, if the configuration could not be read and may be read later
    /// ([`SourceLocation::can_start_without_configuration`](crate::source::SourceLocation::can_start_without_configuration)).
    ///
    /// Blocks. It creates its own threads and runtimes, so a thread of a runtime may call it.
    ///
    /// # Errors
    /// Returns [`StartError`]; everything that was started has ended.
    pub fn start(settings: Settings) -> Result<Running, StartError> {
        let runtime = threads::new_runtime()?;
        let (report, started) = mpsc::channel();
        let control = threads::spawn("gatepost-control".to_owned(), move || match runtime.block_on(start(settings)) {
            Ok((running, service)) => {
                let _ = report.send(Ok(running));
                service.run(runtime);
            }
            Err(error) => drop(report.send(Err(error))),
        })?;
        match started.recv() {
            Ok(Ok(mut running)) => {
                running.threads.push(control);
                Ok(running)
            }
            Ok(Err(error)) => {
                let _ = control.join();
                Err(error)
            }
            Err(_) => Err(io::Error::other("the control plane panicked; see stderr").into()),
        }
    }
}

/// Creates all parts of a sidecar and puts the first generation in force. Runs on the control plane's runtime. Each
/// background loop is added to `loops`.
async fn start(settings: Settings) -> Result<(Running, Service), StartError> {
    if settings.tls.is_none() && !settings.plaintext {
        return Err(StartError::NoTls(settings.listen));
    }
    let tls = settings.tls.clone().map(ServerTls::load).transpose()?.map(Arc::new);
    let tcp = Port::bind("--listen", settings.listen, tls.is_some(), settings.reuse_port)?;
    let admin = Port::bind("--admin", settings.admin, tls.is_some(), settings.reuse_port)?;
    let last_good = settings.last_good.clone().map(|path| LastGoodFile::new(path, settings.source.to_string()));
    last_good.as_ref().map_or(Ok(()), LastGoodFile::check_folder).map_err(StartError::LastGood)?;
    let audit = Arc::new(open_audit(&settings.audit_log)?.with_hook_messages(settings.audit_hook_messages));
    let metrics = Arc::new(Metrics::new(settings.workers.get()));
    process::observe(&metrics);
    let current = Arc::new(Current::new(Instant::now()));
    let health = Arc::new(ReplicaHealth::new(Arc::clone(&current)));

    let mut source = settings.source.open().await?;
    let first = FirstGeneration::read(&settings, &mut source, &health, last_good.as_ref()).await?;
    let mut loops = Loops::default();
    let cluster = Cluster::open(&settings, (&health, &metrics), &mut loops).await?;
    let replica = Arc::new(Replica::new(settings.replica.clone()));
    let publisher = settings.status_place.open(&replica).await?;
    if let Some((reads, authorizer)) = source.adoption().zip(settings.cluster()) {
        let (current, metrics, audit) = (Arc::clone(&current), Arc::clone(&metrics), Arc::clone(&audit));
        let sidecar = Arc::new(AdoptionSidecar::new(current, metrics, audit));
        let mut adoption = Adoption::new(reads, authorizer, sidecar).await?;
        loops.add_with_shutdown("adoption", |shutdown| async move {
            shutdown.or(adoption.run()).await;
            adoption.leave().await;
        });
    }
    // Bound last, because a start that fails must not leave the socket's file behind.
    let uds = settings.uds.as_deref().map(|path| UnixPort::bind(path, settings.reuse_port)).transpose()?;

    // The only memory budget for memory that callers and hooks can allocate.
    let budget = MemoryBudget::new(fitting_budget(settings.max_inflight_bytes, settings.max_message_bytes));
    let gate = Arc::new(AdmissionDeps {
        current: Arc::clone(&current),
        status: Arc::clone(&health.status),
        break_glass: Arc::clone(&health.break_glass),
        metrics: Arc::clone(&metrics),
        audit: Arc::clone(&audit),
        reasons: settings.reasons,
        patch_annotations: settings.patch_annotations,
        speculation: settings.speculation,
        memory: Arc::clone(&budget),
        shadow_slots: Default::default(),
        namespaces: cluster.namespaces.clone(),
        objects: cluster.objects.clone(),
        discovery: cluster.discovery,
        authorizer: cluster.authorizer.clone(),
    });
    if let Some(connection) = cluster.labelled {
        let agreed = (&*settings.initializers_namespace, &*settings.replica);
        let shared = (cluster.namespaces.clone(), Arc::clone(&budget));
        let mut objects = LabelledObjects::new(connection, agreed, Arc::clone(&current), shared);
        loops.add_with_shutdown("stored objects", |shutdown| async move {
            shutdown.or(objects.run()).await;
            objects.leave().await;
        });
    }
    let drain = settings.max_deadline + DRAIN_MARGIN;
    let descriptors = Descriptors::of_this_process(FrontLimits::default().connections, settings.workers.get());
    let limits = FrontLimits {
        connections: descriptors.callers,
        message_bytes: settings.max_message_bytes,
        timeout: settings.max_deadline,
        drain,
        ..FrontLimits::default()
    };
    let front = Front::new(gate, Arc::clone(&health), limits, Arc::clone(&budget)).map_err(io::Error::other)?;
    if let Some(tls) = &tls {
        let _ = health.tls.set((Arc::clone(tls), uds.is_none()));
    }

    let workers = Workers::start(settings.workers.get())?;
    let addresses = Addresses { tcp: tcp.address()?, uds: settings.uds.clone(), admin: admin.address()? };
    let (in_force, news) = watch::channel(None);
    let own = OwnAddresses::new([addresses.tcp, addresses.admin], addresses.uds.as_deref());
    let options = RotatorOptions {
        status: Arc::clone(&health.status),
        break_glass: Arc::clone(&health.break_glass),
        workers: workers.runtimes(),
        drain_bound: drain,
        on_hazard: settings.on_hazard,
        on_invalid: settings.on_invalid,
        cache: CandidateCache::listening_at(own).with_authorizer(cluster.authorizer.is_some()),
        resources: hook_resources(budget, descriptors.hooks, cluster.services, &metrics),
        objects: cluster.objects,
        last_good: first.last_good,
        in_force: last_good.is_some().then_some(in_force),
    };
    let mut rotator = Rotator::new(Arc::clone(&current), Arc::clone(&metrics), options);
    if let Some(candidate) = first.candidate {
        rotator.put_in_force(candidate);
    }
    let (readings, read) = channel(1);
    if settings.hold_for_changes {
        current.freshness().hold_for_changes();
    }
    let changing = Arc::clone(&current);
    let noticed = move || changing.freshness().notice_change(Instant::now());
    loops.add("source", source::poll(source, settings.read_every, readings, noticed));
    loops.add("rotation", rotator.run(read));
    if let Some(file) = last_good {
        loops.add("last good", LastGoodWriter { file, status: Arc::clone(&health.status), news }.run());
    }

    // An operator who sees that this instance is ready may end the instance that has served the callers so far.
    let decides = current.decides(Instant::now());
    let mut sockets = vec![tcp.for_callers(tls.clone(), decides)?];
    let mut socket_file = None;
    if let Some(uds) = uds {
        let (socket, file) = uds.for_callers(decides)?;
        sockets.push(socket);
        socket_file = Some(file);
    }
    let certificates = Certificates::new(tls.clone(), Arc::clone(&current), Arc::clone(&metrics));
    loops.add("certificates", certificates.watch(settings.read_every));
    let break_glass_file = settings.break_glass_file.clone();
    loops.add(
        "break-glass",
        break_glass::run_break_glass(Arc::clone(&health.break_glass), break_glass_file, settings.read_every),
    );
    loops.add("samples", process::sample(Arc::clone(&metrics)));
    let mut publishing = Publishing::new(Arc::clone(&health), Arc::clone(&replica), publisher);
    loops.add_with_shutdown("status", |shutdown| async move {
        shutdown.or(publishing.run()).await;
        publishing.leave().await;
    });
    let tls = tls.filter(|_| !listeners::is_local(settings.admin));
    let (of, counters) = (Arc::clone(&health), Arc::clone(&metrics));
    let pages = Admin { health: of, replica, metrics: counters, namespaces: cluster.namespaces, tls };
    loops.add("admin pages", pages.serve(admin.for_operators()?, std::future::pending()));

    let (stop, stopped) = watch::channel(false);
    let (end, ended) = oneshot::channel();
    let outcome = Arc::new(OnceLock::new());
    let service = Service { front, sockets, socket_file, workers, loops, stopped, outcome: Arc::clone(&outcome), end };
    let (ends_within, threads) = (settings.max_deadline + STOP_MARGIN, Vec::new());
    Ok((Running { addresses, current, health, metrics, stop, ended, outcome, audit, ends_within, threads }, service))
}

/// Parts that are kept current from a cluster, if there is one.
#[derive(Default)]
struct Cluster {
    namespaces: Option<Arc<Namespaces>>,
    discovery: Option<Arc<Discovery>>,
    services: Option<Arc<ServiceAddresses>>,
    authorizer: Option<Arc<Authorizer>>,
    objects: Option<Arc<ClusterObjects>>,
    /// Client for objects that are stored unfinished.
    labelled: Option<ReloadingClient>,
}

impl Cluster {
    /// Reads addresses and credentials. Does not connect yet.
    async fn open(
        settings: &Settings,
        (health, metrics): (&ReplicaHealth, &Arc<Metrics>),
        loops: &mut Loops,
    ) -> Result<Self, StartError> {
        let mut cluster = Self::default();
        if let Some(access) = &settings.namespaces_from {
            let watcher = NamespaceWatcher::new(KubeClient::open(access).await?);
            (cluster.namespaces, cluster.discovery) = (Some(watcher.namespaces()), Some(watcher.discovery()));
            loops.add("namespaces", watcher.run());
        }
        let Some(access) = settings.cluster() else { return Ok(cluster) };
        let access = || KubeAccess::clone(&access);
        if let Some(name) = &settings.registration {
            loops.add("registration", RegistrationWatch::new(access(), name, health).await?.run());
        }
        if settings.resolve_services {
            let watcher = ServiceWatcher::new(access(), Arc::clone(&health.current)).await?;
            cluster.services = Some(watcher.addresses());
            loops.add("services", watcher.run());
        }
        let reviews = AccessReviews::new(access(), Arc::clone(metrics)).await?;
        cluster.authorizer = Some(reviews.authorizer());
        loops.add("access reviews", reviews.run());
        let reader = ClusterReader::new(access()).await?;
        cluster.objects = Some(reader.objects());
        loops.add("policy objects", reader.run());
        cluster.labelled = Some(ReloadingClient::new(access()).await?);
        Ok(cluster)
    }
}

/// Creates the resources that the connections to all hooks share, and registers their readings.
fn hook_resources(
    budget: Arc<MemoryBudget>,
    limit: usize,
    services: Option<Arc<ServiceAddresses>>,
    metrics: &Metrics,
) -> Resources {
    let connections = ConnectionBudget::new(limit);
    let (limit, open) = (connections.limit(), Arc::clone(&connections));
    metrics.observe(Reading::HookConnectionsLimit, move || Some(limit as f64));
    metrics.observe(Reading::HookConnections, move || Some(open.open() as f64));
    let resources = Resources::new(budget, connections);
    let Some(addresses) = services else { return resources };
    let resources = resources.with_services(Arc::clone(&addresses));
    metrics.observe(Reading::EndpointsAge, move || addresses.age(Instant::now()).map(|age| age.as_secs_f64()));
    resources
}

fn open_audit(log: &AuditLog) -> Result<Audit, StartError> {
    let path = match log {
        AuditLog::None => return Ok(Audit::off()),
        AuditLog::Stdout => "-".as_ref(),
        AuditLog::File(path) => path.as_path(),
    };
    Audit::to_path(path, lower_priority).map_err(|cause| StartError::Audit { path: path.display().to_string(), cause })
}

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
