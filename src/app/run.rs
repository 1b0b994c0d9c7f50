//! Threads: the threads of a sidecar, and their start.
//!
//! N worker threads serve reviews, each on a runtime of its own. One more thread is the [control
//! plane](super::control).

use std::{
    io,
    sync::{Arc, OnceLock},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::{
    runtime::Builder,
    sync::{oneshot, watch},
};

use super::{
    Addresses, Running, Settings, UnwaitedRuntime,
    certificates::Certificates,
    control::Control,
    descriptors::Descriptors,
    listeners::{self, Port, UnixPort},
    priority::give_way,
    process,
    saving::Saving,
    sizing,
};
use crate::{
    front::{Front, FrontLimits, Worker, admin::Admin},
    hooks::{ConnectionBudget, Resources},
    kube::{KubeClient, ReloadingClient},
    live::Current,
    memory::MemoryBudget,
    replicas::{Publisher, Publishing, Replica},
    review::Gate,
    rotate::{Candidate, OwnAddresses, Rotator},
    snapshot::Kept,
    source::{LastGoodFile, Source},
    telemetry::{Audit, Metrics, Reading},
    tls::ServerTls,
    watch::{AccessReviews, Adoption, LabelledObjects, NamespaceWatcher, RegistrationWatch, ServiceWatcher},
};

/// Time for requests beyond their deadline before they are cut: the answer has to be written, too.
const MARGIN: Duration = Duration::from_millis(500);
/// Time for the end beyond the longest deadline, whatever blocks. The process needs the rest of a second to end.
const END: Duration = Duration::from_millis(800);
/// Longest wait of a stop for an audit sink that takes nothing, where there is time.
const LAST_RECORDS: Duration = Duration::from_secs(2);

/// Parts of a sidecar before it runs.
pub(super) struct Parts {
    pub(super) settings: Settings,
    pub(super) tls: Option<Arc<ServerTls>>,
    pub(super) tcp: Port,
    pub(super) admin: Port,
    pub(super) uds: Option<UnixPort>,
    pub(super) audit: Arc<Audit>,
    pub(super) source: Source,
    pub(super) current: Arc<Current>,
    pub(super) metrics: Arc<Metrics>,
    /// The control plane's runtime, and a client made on it where namespaces are followed.
    pub(super) runtime: UnwaitedRuntime,
    pub(super) cluster: Option<KubeClient>,
    pub(super) registration: Option<RegistrationWatch>,
    pub(super) services: Option<ServiceWatcher>,
    /// The cluster whose authorizer is asked.
    pub(super) access: Option<AccessReviews>,
    pub(super) adoption: Option<Adoption>,
    /// The cluster whose objects may be stored unfinished.
    pub(super) labelled: Option<ReloadingClient>,
    pub(super) replica: Arc<Replica>,
    pub(super) publisher: Publisher,
    /// File with the last good configuration.
    pub(super) last_good: Option<LastGoodFile>,
}

/// Starts the threads and puts the first candidate in force, where there is one yet.
pub(super) fn start(parts: Parts, first: Option<Candidate>, kept: Kept) -> io::Result<Running> {
    let settings = &parts.settings;
    let addresses = Addresses { tcp: parts.tcp.address()?, uds: settings.uds.clone(), admin: parts.admin.address()? };
    let (current, metrics) = (Arc::clone(&parts.current), Arc::clone(&parts.metrics));
    let following = parts.cluster.map(NamespaceWatcher::new);
    // The one budget of everything that callers and hooks can make grow.
    let budget = MemoryBudget::new(sizing::fitting(settings.max_inflight_bytes, settings.max_message_bytes));
    let gate = Arc::new(Gate {
        current: Arc::clone(&current),
        metrics: Arc::clone(&metrics),
        audit: parts.audit,
        reasons: settings.reasons,
        patch_annotations: settings.patch_annotations,
        speculation: settings.speculation,
        memory: Arc::clone(&budget),
        namespaces: following.as_ref().map(NamespaceWatcher::namespaces),
        discovery: following.as_ref().map(NamespaceWatcher::discovery),
        authorizer: parts.access.as_ref().map(AccessReviews::authorizer),
    });
    let labelled = parts.labelled.map(|connection| {
        let agreed = (&*settings.initializers_namespace, &*settings.replica);
        LabelledObjects::new(connection, agreed, Arc::clone(&current), (gate.namespaces.clone(), Arc::clone(&budget)))
    });
    let drain = settings.max_deadline + MARGIN;
    let descriptors = Descriptors::of_this_process(FrontLimits::default().connections, settings.workers.get());
    let limits = FrontLimits {
        connections: descriptors.callers,
        message_bytes: settings.max_message_bytes,
        timeout: settings.max_deadline,
        drain,
        ..FrontLimits::default()
    };
    let front = Front::new(Arc::clone(&gate), limits, Arc::clone(&budget)).map_err(io::Error::other)?;

    let (stop, shutdown) = watch::channel(false);
    let (end, ended) = oneshot::channel();
    // From here on, dropping `running` ends every thread that was started.
    let outcome = Arc::new(OnceLock::new());
    let mut running = Running {
        addresses,
        current,
        metrics,
        stop,
        ended,
        outcome: Arc::clone(&outcome),
        audit: Arc::clone(&gate.audit),
        ends_within: settings.max_deadline + END,
        threads: Vec::new(),
    };
    let (over, workers_shutdown) = watch::channel(false);
    let mut workers = Vec::with_capacity(settings.workers.get());
    for index in 0..settings.workers.get() {
        // Work offloaded by a worker gives way to the workers themselves.
        let runtime = UnwaitedRuntime::build(Builder::new_current_thread().enable_all().on_thread_start(give_way))?;
        workers.push(Worker::new(index, runtime.handle().clone()));
        let until = workers_shutdown.clone();
        running.threads.push(spawn(format!("gatepost-worker-{index}"), move || until_true(runtime, until))?);
    }
    let handles = workers.iter().map(|worker| worker.handle().clone()).collect();
    let rotator = Rotator::new(Arc::clone(&parts.current), Arc::clone(&parts.metrics), handles, drain);
    let connections = ConnectionBudget::new(descriptors.hooks);
    observe_connections(&parts.metrics, &connections);
    process::observe(&parts.metrics);
    if let Some(tls) = &parts.tls {
        gate.current.serve_with(Arc::clone(tls), parts.uds.is_none());
    }
    let mut resources = Resources::new(budget, connections);
    if let Some(services) = &parts.services {
        let addresses = services.addresses();
        resources = resources.knowing(Arc::clone(&addresses));
        let age = move || addresses.age(Instant::now()).map(|age| age.as_secs_f64());
        parts.metrics.observe(Reading::EndpointsAge, age);
    }
    let mut rotator =
        rotator.with_hazards(settings.on_hazard).with_invalid(settings.on_invalid).with_resources(resources);
    let (keeper, news) = watch::channel(None);
    let saving = parts.last_good.map(|file| Saving { file, current: Arc::clone(&gate.current), news });
    let own = OwnAddresses::new([running.addresses.tcp, running.addresses.admin], running.addresses.uds.as_deref());
    rotator = rotator
        .listening_at(own)
        .with_authorizer(parts.access.is_some())
        .with_kept(kept)
        .with_last_good(saving.is_some().then_some(keeper));
    if let Some(candidate) = first {
        rotator.put_in_force(candidate);
    }

    let runtime = parts.runtime;
    let (sockets, socket_file, admin) = {
        let _entered = runtime.enter();
        // An operator who reads that we are ready may end the instance that has had the callers so far.
        let decides = gate.current.decides(Instant::now());
        let mut sockets = vec![parts.tcp.for_callers(parts.tls.clone(), decides)?];
        let mut socket_file = None;
        if let Some(uds) = parts.uds {
            let (socket, file) = uds.for_callers(decides)?;
            sockets.push(socket);
            socket_file = Some(file);
        }
        (sockets, socket_file, parts.admin.for_operators()?)
    };
    let break_glass_file = settings.break_glass_file.clone();
    let certificates = Certificates::new(parts.tls.clone(), Arc::clone(&gate.current), Arc::clone(&gate.metrics));
    let publishing = Publishing::new(Arc::clone(&gate.current), Arc::clone(&parts.replica), parts.publisher);
    let pages = Admin {
        current: Arc::clone(&gate.current),
        replica: parts.replica,
        metrics: Arc::clone(&gate.metrics),
        namespaces: gate.namespaces.clone(),
        tls: parts.tls.filter(|_| !listeners::is_local(settings.admin)),
    };
    let control = Control {
        break_glass_file,
        front,
        sockets,
        pages,
        admin,
        certificates,
        workers,
        rotator,
        source: parts.source,
        following,
        registration: parts.registration,
        services: parts.services,
        access: parts.access.map(|access| access.with_metrics(Arc::clone(&parts.metrics))),
        adoption: parts.adoption,
        labelled,
        publishing,
        saving,
        shutdown,
    };
    let read_every = settings.read_every;
    running.threads.push(spawn("gatepost-control".to_owned(), move || {
        let drained = runtime.block_on(control.run(read_every, &outcome));
        if let Some(file) = socket_file {
            file.remove();
        }
        drop(runtime);
        over.send_replace(true);
        if !gate.audit.close_within(LAST_RECORDS) {
            tracing::warn!("cannot write the last lines of the audit log; they are lost");
        }
        let _ = end.send(drained);
    })?);
    Ok(running)
}

/// Registers the readings of connections to hooks with the metrics.
fn observe_connections(metrics: &Metrics, connections: &Arc<ConnectionBudget>) {
    let limit = connections.limit();
    metrics.observe(Reading::HookConnectionsLimit, move || Some(limit as f64));
    let connections = Arc::clone(connections);
    metrics.observe(Reading::HookConnections, move || Some(connections.open() as f64));
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(run)
}

/// Runs the tasks of the runtime until the signal that it is over, or until no sender of it is left.
fn until_true(runtime: UnwaitedRuntime, mut over: watch::Receiver<bool>) {
    let _ = runtime.block_on(over.wait_for(|over| *over));
}
