//! `certificates`: the certificate that Gatepost serves behind a Service, and the authority that its callers trust.

mod issue;
mod keeper;
mod plan;
mod registrations;
mod served;
mod store;
mod stored;

use std::{path::PathBuf, time::Duration};

use clap::builder::NonEmptyStringValueParser;

use self::{
    keeper::Keeper,
    plan::{Wanted, shortest},
    store::Store,
};
use super::{
    CommandExit, complain, duration,
    logging::Logging,
    misused,
    service::{REGISTRATION, Service},
};
use crate::{
    kube::{KubeAccess, KubeError, ReloadingClient},
    runtime::UnwaitedRuntime,
    snapshot,
};

/// Field manager of all that is written, for readers of managedFields.
const MANAGER: &str = "gatepost-certificates";
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

    /// Registration that has to trust the authority, as `register --name` named it; repeat for more [default: gatepost;
    /// with --out: none]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    registration: Vec<String>,

    /// One more name or address for the certificate; repeat for more
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    name: Vec<String>,

    /// Life of a certificate, at least fifteen times --settle
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
    #[error(
        "no webhook of the registration {missing} names the Service {service}, so nobody is known to trust the next \
         certificate, and it is not served before the current one is about to end; give each name that `gatepost \
         register --name` had as --registration NAME, or apply the registration"
    )]
    Unregistered { missing: String, service: String },
    #[error("somebody else has changed the stored state meanwhile")]
    Outrun,
    #[error("the stored state changes again and again; see who else writes it")]
    Restless,
}

impl Failure {
    /// A lost race: somebody else has written the state that was read.
    fn is_conflict(&self) -> bool {
        // A test of a JSON patch that fails is 422; an object that was created meanwhile is 409, and so is a revision.
        matches!(self, Self::Outrun | Self::Kube(KubeError::Unwritten { code: 409 | 422, .. }))
    }
}

impl Certificates {
    /// Runs the command.
    pub fn run(self) -> CommandExit {
        if let Err(error) = self.logging.start() {
            return complain(&error);
        }
        if self.watch && self.every.is_zero() {
            return misused("certificates", &"--every 0s never rests; give a duration like 30s");
        }
        let (lifetime, settle, shortest) = (self.lifetime, self.settle, shortest(self.settle));
        if lifetime < shortest {
            let [lifetime, settle, shortest] = [lifetime, settle, shortest].map(humantime::format_duration);
            return misused(
                "certificates",
                &format_args!(
                    "--lifetime {lifetime} ends before a renewal with --settle {settle} does; give --lifetime \
                     {shortest} or longer, or a shorter --settle"
                ),
            );
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
                false => keeper.once().await.map_or_else(|failure| complain(&failure), |()| CommandExit::Good),
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
                    registration.push(REGISTRATION.to_owned());
                }
                let name = self.secret.unwrap_or_else(|| format!("{}-tls", service.name));
                Store::Secret { namespace: service.namespace.clone(), name }
            }
        };
        let access = match self.kubeconfig {
            Some(path) if path.as_os_str() == "in-cluster" => KubeAccess::InCluster,
            path => KubeAccess::find(path, self.context),
        };
        let connection = if needs_cluster { Some(ReloadingClient::new(access).await?) } else { None };
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
