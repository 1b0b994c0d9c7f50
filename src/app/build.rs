//! Settings to a running sidecar: bind, open, read, check, and only then run.

use std::{
    fmt, io,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};

use tokio::runtime::Builder;

use super::{
    Running, Settings,
    first::First,
    listeners::{BindError, Port, UnixPort},
    priority::give_way,
    run::{self, Parts},
    settings::AuditLog,
    unwaited::UnwaitedRuntime,
};
use crate::{
    clock::{Moment, slept},
    files::BlockingReads,
    kube::{KubeClient, KubeError, ReloadingClient},
    live::{Current, break_glass::GlassOrigin},
    replicas::Replica,
    snapshot::{self, Problem},
    source::{Contents, LastGood, LastGoodError, LastGoodFile, ReadError},
    telemetry::{Audit, Metrics},
    tls::{ServerTls, TlsError},
    watch::{AccessReviews, Adoption, RegistrationWatch, ServiceWatcher, break_glass::look},
};

/// Reasons why a sidecar does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither TLS nor plaintext was chosen for callers.
    #[error(
        "no TLS certificate for {0}: give --tls-cert FILE and --tls-key FILE, or, on a loopback address, --plaintext"
    )]
    NoTls(SocketAddr),
    /// The key pair or the clients' authority cannot be used.
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
    /// The last good configuration cannot be kept.
    #[error("--last-good: {0}; make that folder, or name another path")]
    LastGood(LastGoodError),
    /// The configuration cannot be read.
    #[error("{0}; nothing is served without a configuration")]
    Unreadable(#[from] ReadError),
    /// The configuration is not sound.
    #[error("{}", Listed(.0))]
    Invalid(Vec<Problem>),
    /// The kubeconfig, or the Pod's service account, cannot be used.
    #[error("{0}; {fix}", fix = .0.fix())]
    Cluster(#[from] KubeError),
    /// The operating system gives us no thread or event queue.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Problems, one a line, and their number.
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

/// A whole sidecar in this process: what `gatepost serve` runs, for demonstrations, tests and benches too.
#[derive(Debug)]
pub struct Sidecar;

impl Sidecar {
    /// Binds, opens the audit log, reads and checks the configuration, and serves. When this returns, the first
    /// generation is in force; or every review is refused, where the configuration is held by other machines
    /// ([`SourceLocation::may_come_later`](crate::source::SourceLocation::may_come_later)) and could not be had.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running.
    pub fn start(settings: Settings) -> Result<Running, StartError> {
        if settings.tls.is_none() && !settings.plaintext {
            return Err(StartError::NoTls(settings.listen));
        }
        let tls = settings.tls.clone().map(ServerTls::load).transpose()?.map(Arc::new);
        let tcp = Port::bind("--listen", settings.listen, tls.is_some(), settings.reuse_port)?;
        let admin = Port::bind("--admin", settings.admin, tls.is_some(), settings.reuse_port)?;
        let last_good = settings.last_good.clone().map(|path| LastGoodFile::new(path, settings.source.to_string()));
        last_good.as_ref().map_or(Ok(()), LastGoodFile::check_folder).map_err(StartError::LastGood)?;
        let audit = Arc::new(open_audit(&settings.audit_log)?.with_hook_messages(settings.audit_hook_messages));
        let runtime = control_runtime()?;
        let mut source = finish(&runtime, settings.source.open())?;
        let current = Arc::new(Current::new(Instant::now()));
        let read_at = Moment::now(slept);
        let read = finish(&runtime, source.read());
        let contents = read.as_ref().map_or_else(ReadError::contents, Some);
        let emergency = is_open(&current, contents, settings.break_glass_file.as_deref());
        let found = last_good.as_ref().and_then(|file| finish(&runtime, found(file, &current)));
        let First { candidate, kept, as_of } = First::find(&settings, &current, (&read, read_at), found);
        let candidate = match candidate {
            // Reviews are refused until it can be read; but for those that break-glass lets past, and whoever has
            // opened it does not want a sidecar that was restarted to stay away.
            Err(error) if settings.source.may_come_later() || emergency => {
                tracing::error!(%error, "no configuration yet; trying again every second");
                None
            }
            candidate => Some(candidate?),
        };
        let cluster =
            settings.namespaces_from.as_ref().map(|from| finish(&runtime, KubeClient::open(from))).transpose()?;
        let registration = settings.registration.as_deref().zip(settings.cluster());
        let registration = registration
            .map(|(name, access)| finish(&runtime, RegistrationWatch::new(access, name, Arc::clone(&current))))
            .transpose()?;
        let services = settings.cluster().filter(|_| settings.resolve_services);
        let services =
            services.map(|access| finish(&runtime, ServiceWatcher::new(access, Arc::clone(&current)))).transpose()?;
        let access = settings.cluster().map(|access| finish(&runtime, AccessReviews::new(access))).transpose()?;
        let labelled = settings.cluster().map(|access| finish(&runtime, ReloadingClient::new(access))).transpose()?;
        let replica = Arc::new(Replica::new(settings.replica.clone()));
        let publisher = finish(&runtime, settings.status_place.open(&replica))?;
        // Last, as a start that fails must not leave the socket's file behind.
        let uds = settings.uds.as_deref().map(|path| UnixPort::bind(path, settings.reuse_port)).transpose()?;
        match (as_of.filter(|_| candidate.is_some()), &read) {
            (Some(as_of), _) => current.stamp_read(as_of),
            (None, Err(error)) if candidate.is_some() => tracing::error!(%error, "no review is accepted yet"),
            (None, _) => {}
        }
        let metrics = Arc::new(Metrics::new(settings.workers.get()));
        let adoption = source.adoption().zip(settings.cluster()).map(|(reads, authorizer)| {
            let (current, metrics, audit) = (Arc::clone(&current), Arc::clone(&metrics), Arc::clone(&audit));
            finish(&runtime, Adoption::new(reads, authorizer, current, metrics, audit))
        });
        let adoption = adoption.transpose()?;
        Ok(run::start(
            Parts {
                settings,
                tls,
                tcp,
                admin,
                uds,
                audit,
                source,
                current,
                metrics,
                runtime,
                cluster,
                registration,
                services,
                access,
                adoption,
                labelled,
                replica,
                publisher,
                last_good,
            },
            candidate,
            kept,
        )?)
    }
}

/// Configuration in force when the process before this one ended, as far as it was kept.
async fn found(file: &LastGoodFile, current: &Current) -> Option<LastGood> {
    /// A disk that takes longer is not waited for.
    const WITHIN: Duration = Duration::from_secs(5);
    current.keeps_last_good(file.shown());
    let theirs = file.clone();
    let why = match BlockingReads::default().run(WITHIN, move || theirs.read()).await {
        Ok(Ok(found)) => return found,
        Ok(Err(error)) => error.to_string(),
        Err(unread) => unread.to_string(),
    };
    tracing::warn!(why, "the last good configuration on disk is not used");
    current.with_last_good(|state| state.refused = Some(why));
    None
}

/// Is anything opened in an emergency, by the source, sound or not, or by the local file?
fn is_open(current: &Current, contents: Option<&Contents>, file: Option<&Path>) -> bool {
    let glasses = current.break_glass();
    if let Some(contents) = contents {
        glasses.take(GlassOrigin::Source, snapshot::break_glass(&contents.files), Instant::now(), SystemTime::now());
    }
    file.into_iter().for_each(|file| look(glasses, file));
    !glasses.open(Instant::now()).is_empty()
}

/// The control plane's runtime. Its threads, which read and check the configuration above all, give way to reviews: a
/// large configuration keeps a core busy for longer than a review takes.
fn control_runtime() -> io::Result<UnwaitedRuntime> {
    UnwaitedRuntime::build(Builder::new_current_thread().enable_all().on_thread_start(give_way))
}

/// Waits for the future. On a thread of its own, as whoever starts us may be a runtime's thread.
fn finish<T: Send>(runtime: &UnwaitedRuntime, future: impl Future<Output = T> + Send) -> T {
    let ended = thread::scope(|scope| scope.spawn(|| runtime.block_on(future)).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn open_audit(log: &AuditLog) -> Result<Audit, StartError> {
    let path = match log {
        AuditLog::None => return Ok(Audit::off()),
        AuditLog::Stdout => "-".as_ref(),
        AuditLog::File(path) => path.as_path(),
    };
    Audit::to_path(path, give_way).map_err(|cause| StartError::Audit { path: path.display().to_string(), cause })
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn what_is_checked_beside_the_control_plane_gives_way_to_reviews() {
        let runtime = control_runtime().unwrap();
        let ours = getpriority_process(None).unwrap();
        let beside = runtime.block_on(runtime.spawn_blocking(|| getpriority_process(None).unwrap())).unwrap();
        assert_eq!((getpriority_process(None).unwrap(), beside), (ours, 5.max(ours)));
    }
}
