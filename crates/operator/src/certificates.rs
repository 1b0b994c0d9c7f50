//! `certificates`: maintains the certificate that Gatepost serves behind a Service, and its callers' trust in it.

mod registrations;
mod store;
mod stored;

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use clap::builder::NonEmptyStringValueParser;
use gatepost_api::names::is_dns_label;
use gatepost_kube_support::{KubeClient, KubeError, ReloadingClient};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use self::{
    registrations::{ForeignAuthorities, served_everywhere, trust},
    store::{Store, Version},
    stored::{CertificateSpec, Observation, Step, StoredPairs, issue, shortest_lifetime, step},
};
use crate::command::{CommandExit, Logging, REGISTRATION, Service, access, block_on, complain, duration, misused};

/// Field manager of all writes, for readers of managedFields.
const MANAGER: &str = "gatepost-certificates";
/// Minimum lifetime of a certificate: a shorter one would be renewed before all replicas have it.
const MIN_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum lifetime of a certificate: ten years.
const MAX_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

const EXAMPLES: &str = "\
Examples:
  gatepost certificates --service gatepost/gatepost
      Once: makes the certificate in the Secret gatepost/gatepost-tls, or renews it if it is due.
  gatepost certificates --service gatepost/gatepost --watch --kubeconfig in-cluster
      Again and again, as in deploy/kubernetes/in-cluster.
  gatepost certificates --service gatepost/gatepost --renew
      Now, as after the key was seen by somebody.
  gatepost certificates --service gatepost/gatepost --out /etc/gatepost/tls
      In a folder: tls.crt, tls.key, ca.crt.

A renewal:
  1. a new authority signs a new certificate, and its key is dropped; the authority joins ca.crt and the caBundle of
     every webhook of the registration that names the Service
  2. after --settle, the new certificate becomes tls.crt; `serve` reads it within a second of seeing it
  3. once each endpoint of the Service shows it, the old authority leaves; at the latest when it has ended
  While a registration has no webhook that names the Service, nobody is known to trust the new certificate: it is not
  served before a tenth of the old one's life is left, and this ends with 1.
  Several may run: each change is made to the state that was read, or not at all.

Rights:
  get and patch on that Secret (create, where it does not exist), get and patch on the registrations, list on
  endpointslices in the namespace of the Service.

Exit codes:
  0  the certificate is there, and due for nothing; --watch: asked to stop
  1  not; stderr says why";

/// Make and renew the certificate that Gatepost serves behind a Service, and have the registration trust it
///
/// The certificate is for the names of the Service. It is renewed at two thirds of its life, without failed calls.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Certificates {
    /// Service of Gatepost
    #[arg(long, value_name = "NAMESPACE/NAME")]
    service: Service,

    /// Secret for certificate and key, in the Service's namespace [default: NAME-tls]
    #[arg(long, value_name = "NAME", value_parser = secret, conflicts_with = "out")]
    secret: Option<String>,

    /// Folder for certificate and key, instead of a Secret
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Registration that must trust the authority, as named by `register --name`; repeat for more [default: gatepost;
    /// with --out: none]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    registration: Vec<String>,

    /// Further DNS name or address for the certificate; repeat for more
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    name: Vec<String>,

    /// Lifetime of a certificate, at least fifteen times --settle
    #[arg(long, value_name = "DURATION", value_parser = lifetime, default_value = "90d")]
    lifetime: Duration,

    /// Time after a change of the registration in which all apiservers observe it
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    settle: Duration,

    /// Renew now, whatever the age of the certificate
    #[arg(long)]
    renew: bool,

    /// Do what is due, then exit (the default)
    #[arg(long, conflicts_with = "watch")]
    once: bool,

    /// Check repeatedly until stopped
    #[arg(long)]
    watch: bool,

    /// With --watch: interval between checks
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    every: Duration,

    /// The kubeconfig, or "in-cluster" for the Pod's service account [default: as kubectl has it]
    #[arg(long, value_name = "FILE|in-cluster")]
    kubeconfig: Option<PathBuf>,

    /// The context in it [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    #[command(flatten)]
    logging: Logging,
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = duration(text)?;
    match (MIN_LIFETIME..=MAX_LIFETIME).contains(&lifetime) {
        true => Ok(lifetime),
        false => Err("write a duration from 1m to 3650d, as in 90d".to_owned()),
    }
}

fn secret(text: &str) -> Result<String, &'static str> {
    match text.split('.').all(is_dns_label) {
        true => Ok(text.to_owned()),
        false => Err("write the name of a Secret, as in gatepost-tls"),
    }
}

/// Error of issuing, renewing or storing a certificate.
#[derive(Debug, thiserror::Error)]
enum CertificatesError {
    #[error("{0}; {fix}", fix = .0.fix())]
    Kube(#[from] KubeError),
    #[error("{0}")]
    Store(String),
    #[error("cannot make a certificate: {0}; see that each --name is a DNS name or an address")]
    Issue(#[from] rcgen::Error),
    #[error("no cluster is known; give --kubeconfig")]
    NoCluster,
    #[error(
        "no webhook of the registration {missing} names the Service {service}, so no client is known to trust the \
         next certificate, and it is not served before the current one is about to expire; give each name that \
         `gatepost register --name` had as --registration NAME, or apply the registration"
    )]
    Unregistered { missing: String, service: String },
    #[error("another process has changed the stored state")]
    Conflict,
    #[error("the stored state keeps changing; find out which other process writes it")]
    TooManyConflicts,
}

impl CertificatesError {
    /// Returns true if another writer has changed the state that was read.
    fn is_conflict(&self) -> bool {
        // 422 is a failed test of a JSON patch; 409 is a changed revision, or an object that already exists.
        matches!(self, Self::Conflict | Self::Kube(KubeError::WriteRefused { code: 409 | 422, .. }))
    }
}

impl Certificates {
    /// Issues or renews the certificate, once or repeatedly.
    pub fn run(self, start_log: impl FnOnce(&Logging) -> Result<(), String>) -> CommandExit {
        if let Err(error) = start_log(&self.logging) {
            return complain(&error);
        }
        if self.watch && self.every.is_zero() {
            return misused("certificates", &"--every 0s never rests; give a duration like 30s");
        }
        let (lifetime, settle, shortest) = (self.lifetime, self.settle, shortest_lifetime(self.settle));
        if lifetime < shortest {
            let [lifetime, settle, shortest] = [lifetime, settle, shortest].map(humantime::format_duration);
            let why = format!(
                "--lifetime {lifetime} ends before a renewal with --settle {settle} does; give --lifetime {shortest} or \
                 longer, or a shorter --settle"
            );
            return misused("certificates", &why);
        }
        let (watch, every) = (self.watch, self.every);
        let keeping = async {
            let mut keeper = self.keeper().await?;
            if watch { Ok(keeper.watch(every).await) } else { keeper.once().await.map(|()| CommandExit::Good) }
        };
        match block_on(keeping) {
            Ok(kept) => kept.unwrap_or_else(|failure: CertificatesError| complain(&failure)),
            Err(error) => complain(&error),
        }
    }

    async fn keeper(self) -> Result<Keeper, CertificatesError> {
        let Self { service, out, registration: mut registrations, lifetime, settle, renew, .. } = self;
        let needs_cluster = out.is_none() || !registrations.is_empty();
        let store = match out {
            Some(folder) => Store::Folder(folder),
            None => {
                if registrations.is_empty() {
                    registrations.push(REGISTRATION.to_owned());
                }
                let name = self.secret.unwrap_or_else(|| format!("{}-tls", service.name));
                Store::Secret { namespace: service.namespace.clone(), name }
            }
        };
        let access = access(self.kubeconfig, self.context);
        let connection = if needs_cluster { Some(ReloadingClient::new(access).await?) } else { None };
        let mut names = vec![service.server_name(), format!("{}.{}", service.name, service.namespace)];
        names.extend(self.name);
        let wanted = CertificateSpec { names, settle, renew };
        Ok(Keeper { store, service, registrations, lifetime, wanted, connection, last_list_error: None })
    }
}

/// Maximum number of steps in one round, more than a renewal needs.
const MAX_STEPS: usize = 16;
/// Pause after another writer has changed the state that was read.
const CONFLICT_PAUSE: Duration = Duration::from_millis(300);
/// Maximum number of conflicts in one round.
const MAX_CONFLICTS: usize = 20;

/// Maintains one certificate.
struct Keeper {
    store: Store,
    service: Service,
    registrations: Vec<String>,
    lifetime: Duration,
    wanted: CertificateSpec,
    connection: Option<ReloadingClient>,
    /// The last reported failure to list endpoints.
    last_list_error: Option<String>,
}

impl Keeper {
    /// Executes all due steps, with the pauses between them.
    async fn once(&mut self) -> Result<(), CertificatesError> {
        loop {
            let (rest, settling) = self.round().await?;
            if !settling {
                return Ok(());
            }
            sleep(rest).await;
        }
    }

    /// Executes rounds until SIGTERM or SIGINT.
    async fn watch(&mut self, every: Duration) -> CommandExit {
        let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return complain(&"cannot listen to signals");
        };
        let keeping = async {
            let mut logged = None;
            loop {
                let pause = match self.round().await {
                    Ok((rest, _)) => {
                        if logged.take().is_some() {
                            tracing::info!("the certificate is kept again");
                        }
                        rest.min(every)
                    }
                    Err(failure) => {
                        let failure = failure.to_string();
                        if logged.as_ref() != Some(&failure) {
                            tracing::error!(failure, "cannot keep the certificate; trying again");
                            logged = Some(failure);
                        }
                        every
                    }
                };
                // The due work is done. The minimum pause prevents a busy loop if the clock does not advance.
                sleep(pause.max(CONFLICT_PAUSE)).await;
            }
        };
        tokio::select! {
            ending = keeping => ending,
            _ = terminate.recv() => CommandExit::Good,
            _ = interrupt.recv() => CommandExit::Good,
        }
    }

    /// Executes steps until the next one is not due. Returns the time until then, and whether a renewal is in progress.
    async fn round(&mut self) -> Result<(Duration, bool), CertificatesError> {
        let mut conflicts = 0;
        for _ in 0..MAX_STEPS + MAX_CONFLICTS {
            match self.one_step().await {
                Ok(None) => {}
                Ok(Some(rest)) => return Ok(rest),
                Err(failure) if failure.is_conflict() && conflicts < MAX_CONFLICTS => {
                    conflicts += 1;
                    sleep(CONFLICT_PAUSE).await;
                }
                Err(failure) => {
                    if let (Some(connection), CertificatesError::Kube(error)) = (&mut self.connection, &failure) {
                        connection.failed(error);
                    }
                    return Err(failure);
                }
            }
        }
        Err(CertificatesError::TooManyConflicts)
    }

    /// Executes one step; `None` if another may follow.
    async fn one_step(&mut self) -> Result<Option<(Duration, bool)>, CertificatesError> {
        let client = match &mut self.connection {
            Some(connection) => Some(connection.client().await?),
            None => None,
        };
        let client = client.as_ref();
        let now = SystemTime::now();
        let (stored, version) = self.store.read(client).await?;
        let (seen, missing) = self.make_trusted(client, &stored, &version, now).await?;
        let step = step(&stored, &self.wanted, seen, now);
        let new = || issue(&self.wanted.names, self.lifetime, now);
        let next = match step {
            Step::Rest(rest) => return Ok(Some((rest, stored.next.is_some()))),
            Step::Hold => return Err(CertificatesError::Unregistered { missing, service: self.service.to_string() }),
            Step::Issue => stored.issued(new()?, now),
            Step::Prepare => stored.prepared(new()?),
            Step::Trust => stored.trusted(now),
            Step::Promote => stored.promoted(now),
            Step::Retire => stored.retired(),
        };
        self.store.write(client, &version, &next.files()).await?;
        if matches!(step, Step::Issue | Step::Prepare) {
            self.wanted.renew = false;
        }
        let (place, names) = (&self.store, self.wanted.names.join(","));
        match step {
            Step::Issue => tracing::info!(%place, names, "made a certificate"),
            Step::Prepare => tracing::info!(%place, names, "made the next certificate, and its authority known"),
            Step::Promote if seen.unregistered => {
                let what = "the next certificate is to be served, although it is not known that callers trust it";
                tracing::warn!(%place, missing, "{what}");
            }
            Step::Promote if seen.distrusted => {
                let what = "the registration lost its trust in the next certificate again, which is to be served all the \
                            same: the current one ends soon";
                tracing::warn!(%place, "{what}");
            }
            Step::Promote => tracing::info!(%place, "the next certificate is to be served"),
            Step::Retire => tracing::info!(%place, "former authorities are not trusted any more"),
            Step::Trust if seen.distrusted && stored.next.is_some_and(|next| next.since.is_some()) => {
                let what = "the registration did not trust the next certificate any more; it is served later";
                tracing::warn!(%place, "{what}");
            }
            Step::Trust | Step::Hold | Step::Rest(_) => {}
        }
        Ok(None)
    }

    /// Makes every registration trust the stored authorities. Returns the state of callers and replicas as observed,
    /// and the names of registrations that must trust the authorities but do not name the Service.
    async fn make_trusted(
        &mut self,
        client: Option<&KubeClient>,
        stored: &StoredPairs,
        version: &Version,
        now: SystemTime,
    ) -> Result<(Observation, String), CertificatesError> {
        let (Some(client), false) = (client, stored.current.is_none() && stored.next.is_none()) else {
            return Ok(Default::default());
        };
        let bundle = stored.bundle();
        let trust = |others| trust(client, &self.registrations, &self.service, &bundle, others, now);
        let trusting = trust(ForeignAuthorities::Keep).await?;
        let (distrusted, unregistered) = (trusting.written > 0, !trusting.missing.is_empty());
        let mut seen = Observation { all_replicas_current: false, distrusted, unregistered };
        let missing = trusting.missing.join(", ");
        let Some(current) = &stored.current else { return Ok((seen, missing)) };
        if stored.former.is_empty() && !trusting.others {
            return Ok((seen, missing));
        }
        match served_everywhere(client, &self.service, &current.pair).await {
            Ok(all_replicas_current) => seen.all_replicas_current = all_replicas_current,
            Err(error) => {
                let why = format!("{error}; {}", error.fix());
                if self.last_list_error.as_ref() != Some(&why) {
                    tracing::warn!(why, "cannot list the endpoints; former authorities stay until they end");
                    self.last_list_error = Some(why);
                }
            }
        }
        if seen.all_replicas_current && stored.former.is_empty() {
            trust(ForeignAuthorities::Remove(&self.store, version)).await?;
        }
        Ok((seen, missing))
    }
}
