//! `certificates`: the certificate that Gatepost serves behind a Service, and the authority that its callers trust.

mod issue;
mod plan;
mod registrations;
mod served;
mod store;
mod stored;

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use clap::builder::NonEmptyStringValueParser;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use self::{
    plan::{Step, Wanted, step},
    store::Store,
};
use super::{Ending, complain, duration, logging::Logging, misused, service::Service};
use crate::{
    app::UnwaitedRuntime,
    kube::{Access, Client, Connection, KubeError},
    snapshot,
};

/// Field manager of all that is written, for readers of managedFields.
const MANAGER: &str = "gatepost-certificates";
/// Steps of one renewal, and some.
const MOST_STEPS: usize = 16;
/// Pause after somebody else has written what was read.
const AFTER_CONFLICT: Duration = Duration::from_millis(300);
/// The most such pauses in one round.
const MOST_CONFLICTS: usize = 20;
/// Shortest life of a certificate: a shorter one would be renewed again before all replicas have it.
const SHORTEST: Duration = Duration::from_secs(60);
/// Longest life of a certificate: ten years.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

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
  Several may run: each change is made to the state that was read, or not at all.

Rights:
  get and patch on that Secret (create, where it does not exist), get and patch on the registrations, list on
  endpointslices in the namespace of the Service.

Exit codes:
  0  the certificate is there, and due for nothing; --watch: asked to stop
  1  not; stderr says why";

/// Make and renew the certificate that Gatepost serves behind a Service, and have the registration trust it
///
/// The certificate is for the names of the Service. It is renewed at two thirds of its life, and no call fails meanwhile.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Certificates {
    /// Service of Gatepost
    #[arg(long, value_name = "NAMESPACE/NAME")]
    service: Service,

    /// Secret that holds certificate and key, in the Service's namespace [default: NAME-tls]
    #[arg(long, value_name = "NAME", value_parser = secret, conflicts_with = "out")]
    secret: Option<String>,

    /// Folder that holds them instead
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Registration that has to trust the authority; repeat for more [default: gatepost; with --out: none]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    registration: Vec<String>,

    /// One more name or address for the certificate; repeat for more
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    name: Vec<String>,

    /// Life of a certificate
    #[arg(long, value_name = "DURATION", value_parser = lifetime, default_value = "90d")]
    lifetime: Duration,

    /// Time between a change of the registration and the use of what it says: all apiservers have seen it by then
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    settle: Duration,

    /// Renew now, whatever the age of the certificate
    #[arg(long)]
    renew: bool,

    /// Do what is due, and end (the default)
    #[arg(long, conflicts_with = "watch")]
    once: bool,

    /// Look again and again until stopped
    #[arg(long)]
    watch: bool,

    /// With --watch: time between two looks
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
    match (SHORTEST..=LONGEST).contains(&lifetime) {
        true => Ok(lifetime),
        false => Err("write a duration from 1m to 3650d, as in 90d".to_owned()),
    }
}

fn secret(text: &str) -> Result<String, &'static str> {
    match text.split('.').all(snapshot::is_dns_label) {
        true => Ok(text.to_owned()),
        false => Err("write the name of a Secret, as in gatepost-tls"),
    }
}

/// Failure to make, renew or store a certificate.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}; {fix}", fix = .0.fix())]
    Kube(#[from] KubeError),
    #[error("{0}")]
    Store(String),
    #[error("cannot make a certificate: {0}; see that each --name is a DNS name or an address")]
    Issue(#[from] rcgen::Error),
    #[error("no cluster is known; give --kubeconfig")]
    NoCluster,
    #[error("the stored state changes again and again; see who else writes it")]
    Restless,
}

impl Failure {
    /// A lost race: somebody else has written the state that was read.
    fn is_conflict(&self) -> bool {
        // A test of a JSON patch that fails is 422; an object that was created meanwhile is 409, and so is a revision.
        matches!(self, Self::Kube(KubeError::Unwritten { code: 409 | 422, .. }))
    }
}

/// Keeper of one certificate.
struct Keeper {
    store: Store,
    service: Service,
    registrations: Vec<String>,
    lifetime: Duration,
    wanted: Wanted,
    connection: Option<Connection>,
    /// The last reported failure to list endpoints.
    unlisted: Option<String>,
}

impl Certificates {
    /// Runs the command.
    pub fn run(self) -> Ending {
        if let Err(error) = self.logging.start() {
            return complain(&error);
        }
        if self.watch && self.every.is_zero() {
            return misused("certificates", &"--every 0s never rests; give a duration like 30s");
        }
        let runtime = match UnwaitedRuntime::new() {
            Ok(runtime) => runtime,
            Err(error) => return complain(&error),
        };
        let (watch, every) = (self.watch, self.every);
        runtime.block_on(async {
            let mut keeper = match self.keeper().await {
                Ok(keeper) => keeper,
                Err(failure) => return complain(&failure),
            };
            match watch {
                true => keeper.watch(every).await,
                false => keeper.once().await.map_or_else(|failure| complain(&failure), |()| Ending::Good),
            }
        })
    }

    async fn keeper(self) -> Result<Keeper, Failure> {
        let Self { service, out, mut registration, .. } = self;
        let needs_cluster = out.is_none() || !registration.is_empty();
        let store = match out {
            Some(folder) => Store::Folder(folder),
            None => {
                if registration.is_empty() {
                    registration.push("gatepost".to_owned());
                }
                let name = self.secret.unwrap_or_else(|| format!("{}-tls", service.name));
                Store::Secret { namespace: service.namespace.clone(), name }
            }
        };
        let access = match self.kubeconfig {
            Some(path) if path.as_os_str() == "in-cluster" => Access::InCluster,
            path => Access::find(path, self.context),
        };
        let connection = if needs_cluster { Some(Connection::new(access).await?) } else { None };
        let mut names = vec![service.server_name(), format!("{}.{}", service.name, service.namespace)];
        names.extend(self.name);
        let wanted = Wanted { names, settle: self.settle, renew: self.renew };
        Ok(Keeper {
            store,
            service,
            registrations: registration,
            lifetime: self.lifetime,
            wanted,
            connection,
            unlisted: None,
        })
    }
}

impl Keeper {
    /// All steps that are due, with the pauses between them.
    async fn once(&mut self) -> Result<(), Failure> {
        loop {
            let (rest, settling) = self.round().await?;
            if !settling {
                return Ok(());
            }
            sleep(rest).await;
        }
    }

    /// The same again and again, until SIGTERM or SIGINT.
    async fn watch(&mut self, every: Duration) -> Ending {
        let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return complain(&"cannot listen to signals");
        };
        let keeping = async {
            let mut told = None;
            loop {
                let pause = match self.round().await {
                    Ok((rest, _)) => {
                        if told.take().is_some() {
                            tracing::info!("the certificate is kept again");
                        }
                        rest.min(every)
                    }
                    Err(failure) => {
                        let failure = failure.to_string();
                        if told.as_ref() != Some(&failure) {
                            tracing::error!(failure, "cannot keep the certificate; trying again");
                            told = Some(failure);
                        }
                        every
                    }
                };
                // Work that was due is done; a clock that does not advance must not make this a busy loop.
                sleep(pause.max(AFTER_CONFLICT)).await;
            }
        };
        tokio::select! {
            ending = keeping => ending,
            _ = terminate.recv() => Ending::Good,
            _ = interrupt.recv() => Ending::Good,
        }
    }

    /// Steps, until there is nothing to do but wait: for how long, and whether a renewal is under way.
    async fn round(&mut self) -> Result<(Duration, bool), Failure> {
        let mut conflicts = 0;
        for _ in 0..MOST_STEPS + MOST_CONFLICTS {
            match self.one_step().await {
                Ok(None) => {}
                Ok(Some(rest)) => return Ok(rest),
                Err(failure) if failure.is_conflict() && conflicts < MOST_CONFLICTS => {
                    conflicts += 1;
                    sleep(AFTER_CONFLICT).await;
                }
                Err(failure) => {
                    if let (Some(connection), Failure::Kube(error)) = (&mut self.connection, &failure) {
                        connection.failed(error);
                    }
                    return Err(failure);
                }
            }
        }
        Err(Failure::Restless)
    }

    /// One step; `None` where another may follow.
    async fn one_step(&mut self) -> Result<Option<(Duration, bool)>, Failure> {
        let client = match &mut self.connection {
            Some(connection) => Some(connection.client().await?),
            None => None,
        };
        let client = client.as_ref();
        let now = SystemTime::now();
        let (stored, version) = self.store.read(client).await?;
        let alone = self.make_trusted(client, &stored, now).await?;
        let step = step(&stored, &self.wanted, alone, now);
        let new = || issue::issue(&self.wanted.names, self.lifetime, now);
        let next = match step {
            Step::Rest(rest) => return Ok(Some((rest, stored.next.is_some()))),
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
            Step::Promote => tracing::info!(%place, "the next certificate is to be served"),
            Step::Retire => tracing::info!(%place, "former authorities are not trusted any more"),
            Step::Trust | Step::Rest(_) => {}
        }
        Ok(None)
    }

    /// Lets every registration trust what is stored. Does each replica serve the current pair, as far as that is asked?
    async fn make_trusted(
        &mut self,
        client: Option<&Client>,
        stored: &stored::Stored,
        now: SystemTime,
    ) -> Result<bool, Failure> {
        let (Some(client), Some(current)) = (client, &stored.current) else { return Ok(false) };
        let bundle = stored.bundle();
        let trust = |keep| registrations::trust(client, &self.registrations, &self.service, &bundle, keep, now);
        let trusting = trust(true).await?;
        if stored.former.is_empty() && !trusting.others {
            return Ok(false);
        }
        let alone = match served::everywhere(client, &self.service, &current.pair).await {
            Ok(alone) => alone,
            Err(error) => {
                let why = format!("{error}; {}", error.fix());
                if self.unlisted.as_ref() != Some(&why) {
                    tracing::warn!(why, "cannot list the endpoints; former authorities stay until they end");
                    self.unlisted = Some(why);
                }
                return Ok(false);
            }
        };
        if alone && stored.former.is_empty() {
            trust(false).await?;
        }
        Ok(alone)
    }
}
