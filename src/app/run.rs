//! Threads, signals and the bounded drain.
//!
//! N worker threads serve reviews, each on a runtime of its own. One more thread, the control plane, accepts
//! connections and hands them out, reads the configuration, rotates it, and serves the admin pages.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot, watch},
};

use super::{Settings, certificates::Certificates, listeners};
use crate::{
    admit::Gate,
    front::{self, Bound, Front, Limits, Worker, admin::Admin},
    kube::Client,
    live::{Current, break_glass::keeping::keep, following::Following},
    replicas::{Publisher, Publishing, Replica},
    rotate::{Candidate, Rotator},
    source::{self, Source},
    telemetry::{Audit, Metrics},
    tls::ServerTls,
};

/// What requests may take beyond their deadline before they are cut: the answer has to be written, too.
const MARGIN: Duration = Duration::from_secs(1);

/// Where a sidecar is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// gRPC and plain HTTP over TCP.
    pub tcp: SocketAddr,
    /// The same over a unix socket.
    pub uds: Option<PathBuf>,
    /// The admin pages.
    pub admin: SocketAddr,
}

/// How a sidecar ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that still had reviews under way when time was up; `None` when the control plane broke.
    pub cut: Option<usize>,
}

impl Drained {
    /// Was every review under way finished?
    pub fn complete(self) -> bool {
        self.cut == Some(0)
    }
}

/// A sidecar that serves. Dropping it stops it and waits, as [`Running::stop`] does.
#[derive(Debug)]
pub struct Running {
    /// Where it is reached.
    pub addresses: Addresses,
    /// What is in force.
    pub current: Arc<Current>,
    /// Its counters.
    pub metrics: Arc<Metrics>,
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<Drained>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Turns readiness red, takes nothing new, lets reviews under way finish for a bounded time, and ends every thread.
    /// Blocks meanwhile.
    pub fn stop(mut self) -> Drained {
        self.begin_to_stop();
        self.join();
        self.ended.try_recv().unwrap_or(Drained { cut: None })
    }

    fn begin_to_stop(&self) {
        self.stop.send_replace(true);
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.begin_to_stop();
        self.join();
    }
}

/// How often a sidecar was told to stop before it had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Once: it drained.
    Once(Drained),
    /// Twice: the process should end now.
    Twice,
}

/// Announces that it runs, once signals are heard; waits until SIGTERM or SIGINT, then drains; a second signal does not
/// wait for that.
///
/// # Errors
/// Signals cannot be listened to, or the control plane ended by itself.
pub fn until_told(mut running: Running, announce: impl FnOnce(&Running)) -> io::Result<Told> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let told = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        announce(&running);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = &mut running.ended => return Err(io::Error::other("the control plane ended by itself; see the log")),
        }
        tracing::info!("told to stop: draining; a second signal stops at once");
        running.begin_to_stop();
        tokio::select! {
            biased;
            drained = &mut running.ended => Ok(Told::Once(drained.unwrap_or(Drained { cut: None }))),
            _ = terminate.recv() => Ok(Told::Twice),
            _ = interrupt.recv() => Ok(Told::Twice),
        }
    });
    match told {
        Ok(Told::Twice) => {
            tracing::warn!("told to stop twice: reviews under way are cut");
            // The process ends with the main thread; its other threads are not waited for.
            std::mem::forget(running);
        }
        Ok(Told::Once(_)) | Err(_) => drop(running),
    }
    told
}

/// What a sidecar is made of before it runs.
pub(super) struct Parts {
    pub(super) settings: Settings,
    pub(super) tls: Option<Arc<ServerTls>>,
    pub(super) tcp: TcpListener,
    pub(super) admin: TcpListener,
    pub(super) uds: Option<UnixListener>,
    pub(super) audit: Audit,
    pub(super) source: Source,
    pub(super) current: Arc<Current>,
    pub(super) metrics: Arc<Metrics>,
    /// The control plane's runtime, and a client made on it where namespaces are followed.
    pub(super) runtime: Runtime,
    pub(super) cluster: Option<Client>,
    pub(super) replica: Arc<Replica>,
    pub(super) publisher: Publisher,
}

/// Starts the threads and puts the first candidate in force, where there is one yet.
pub(super) fn start(parts: Parts, first: Option<Candidate>) -> io::Result<Running> {
    let settings = &parts.settings;
    let addresses =
        Addresses { tcp: parts.tcp.local_addr()?, uds: settings.uds.clone(), admin: parts.admin.local_addr()? };
    let (current, metrics) = (Arc::clone(&parts.current), Arc::clone(&parts.metrics));
    let following = parts.cluster.map(Following::new);
    let gate = Arc::new(Gate {
        current: Arc::clone(&current),
        metrics: Arc::clone(&metrics),
        audit: Arc::new(parts.audit),
        reasons: settings.reasons,
        namespaces: following.as_ref().map(Following::namespaces),
    });
    let drain = settings.max_deadline + MARGIN;
    let limits = Limits {
        message_bytes: settings.max_message_bytes,
        inflight_bytes: settings.max_inflight_bytes,
        timeout: settings.max_deadline,
        drain,
        ..Limits::default()
    };
    let front = Front::new(Arc::clone(&gate), limits).map_err(io::Error::other)?;

    let (stop, told) = watch::channel(false);
    let (end, ended) = oneshot::channel();
    // From here on, dropping `running` ends every thread that was started.
    let mut running = Running { addresses, current, metrics, stop, ended, threads: Vec::new() };
    let (over, workers_told) = watch::channel(false);
    let mut workers = Vec::with_capacity(settings.workers.get());
    for index in 0..settings.workers.get() {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        workers.push(Worker::new(index, runtime.handle().clone()));
        let until = workers_told.clone();
        running.threads.push(spawn(format!("gatepost-worker-{index}"), move || until_true(&runtime, until))?);
    }
    let handles = workers.iter().map(|worker| worker.handle().clone()).collect();
    let rotator = Rotator::new(Arc::clone(&parts.current), Arc::clone(&parts.metrics), handles, drain);
    let mut rotator = rotator.with_hazards(settings.on_hazard);
    if let Some(first) = first {
        rotator.put_in_force(first);
    }

    let runtime = parts.runtime;
    let (sockets, admin) = {
        let _entered = runtime.enter();
        let tcp = tokio::net::TcpListener::from_std(parts.tcp)?;
        let mut sockets = vec![match &parts.tls {
            Some(tls) => Bound::Tls(tcp, Arc::clone(tls)),
            None => Bound::Tcp(tcp),
        }];
        if let Some(uds) = parts.uds {
            sockets.push(Bound::Unix(tokio::net::UnixListener::from_std(uds)?));
        }
        (sockets, tokio::net::TcpListener::from_std(parts.admin)?)
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
        publishing,
        told,
    };
    let read_every = settings.read_every;
    let socket = settings.uds.clone();
    running.threads.push(spawn("gatepost-control".to_owned(), move || {
        let drained = runtime.block_on(control.run(read_every));
        if let Some(socket) = socket {
            let _ = std::fs::remove_file(socket);
        }
        // A hung read must not hold us up.
        runtime.shutdown_background();
        over.send_replace(true);
        gate.audit.close();
        let _ = end.send(drained);
    })?);
    Ok(running)
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(run)
}

/// Runs what is spawned on the runtime until told that it is over, or nobody is left to tell.
fn until_true(runtime: &Runtime, mut over: watch::Receiver<bool>) {
    let _ = runtime.block_on(over.wait_for(|over| *over));
}

/// The control plane.
struct Control {
    front: Arc<Front>,
    sockets: Vec<Bound>,
    pages: Admin,
    admin: tokio::net::TcpListener,
    certificates: Certificates,
    workers: Vec<Arc<Worker>>,
    rotator: Rotator,
    source: Source,
    following: Option<Following>,
    publishing: Publishing,
    break_glass_file: Option<PathBuf>,
    told: watch::Receiver<bool>,
}

impl Control {
    /// Until told to stop and drained. The configuration is followed, and the admin pages are served, to the last.
    async fn run(self, read_every: Duration) -> Drained {
        let (mut told, mut publishing) = (self.told, self.publishing);
        let told = async move { told.wait_for(|told| *told).await.map_or((), drop) };
        let (readings, read) = mpsc::channel(1);
        let current = Arc::clone(&self.pages.current);
        let serving = front::listen::serve(self.front, self.sockets, self.workers, told);
        let following = async {
            match self.following {
                Some(following) => following.run().await,
                None => std::future::pending().await,
            }
        };
        let beside = async {
            tokio::join!(
                source::poll(self.source, read_every, readings),
                self.rotator.run(read),
                self.certificates.watch(read_every),
                following,
                publishing.run(),
                keep(current, self.break_glass_file, read_every),
                self.pages.serve(self.admin, std::future::pending()),
            )
        };
        let drained = tokio::select! {
            drained = serving => Drained { cut: Some(drained.cut) },
            _ = beside => Drained { cut: None },
        };
        publishing.leave().await;
        drained
    }
}
