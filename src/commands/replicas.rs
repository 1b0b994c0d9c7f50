//! Replicas: reads the replicas' reports for `status` and `drain`; and `drain`, which waits until no replica calls a hook
//! or an initializer that was removed.

use std::{
    io::Write as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use clap::builder::NonEmptyStringValueParser;
use gatepost_operator::command::{CommandExit, block_on, complain, duration, misused, print, with_fix};
use tokio::time::{sleep, timeout};

use super::source::SourceArgs;
use crate::{runtime::StatusPlace, source::SourceLocation};
use gatepost_etcd_client::EtcdClient;
use gatepost_kube_support::{KubeAccess, KubeClient};
use gatepost_replicas::{AdminUrl, Progress, ReplicasSeen, authorities, read_all, read_etcd, read_objects};

/// Timeout of one read of the reports.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of reads of the reports while the command waits.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Flag for the location of replicas' reports in etcd.
#[derive(Debug, clap::Args)]
pub(super) struct StatusPrefix {
    /// etcd: prefix of the keys in which replicas report; apart from --etcd-prefix
    #[arg(long, value_name = "PREFIX", default_value = StatusPlace::ETCD_PREFIX)]
    pub(super) etcd_status_prefix: String,
}

/// Flags that select the source of the reports: replicas at their admin addresses, or the store that they publish in.
#[derive(Debug, clap::Args)]
pub(super) struct ReplicaArgs {
    /// A replica's admin address: host:port, http://host:port or https://host:port; repeat for more [default:
    /// 127.0.0.1:9441]
    ///
    /// Each must answer with /configz, because a replica that does not answer may still decide requests. Or use
    /// --source etcd or kubernetes, with the flags of that source, to read the reports that replicas publish there.
    #[arg(long, value_name = "URL", conflicts_with = "source")]
    admin: Vec<AdminUrl>,

    /// Certificate authorities (PEM) for https:// admin addresses [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Wait for at least this many live replicas; 0 counts as 1
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(super) expect: usize,

    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    status: StatusPrefix,
}

/// Source of replicas' reports.
enum ReportSource {
    /// Admin addresses of replicas, and the authorities of their certificates.
    Admin { places: Vec<AdminUrl>, ca: Option<Arc<[u8]>> },
    /// Keys of etcd with this prefix.
    Etcd { client: EtcdClient, prefix: String },
    /// Status of a cluster's configuration objects.
    Kubernetes(KubeClient),
}

impl ReplicaArgs {
    /// Returns the error of the flags, for rules that clap cannot check.
    pub(super) fn misuse(&self) -> Option<String> {
        match self.source.clone().replicas() {
            Ok(Some(SourceLocation::Etcd(place))) => StatusPlace::beside(place, &self.status.etcd_status_prefix).err(),
            Ok(_) => None,
            Err(why) => Some(why),
        }
    }

    /// Returns the location of the configuration.
    ///
    /// # Errors
    /// A message, if a flag is missing, invalid, or belongs to another source.
    pub(super) fn place(&self) -> Result<SourceLocation, String> {
        self.source.clone().place()
    }

    /// Returns the access to the cluster that has the reports; `None` for other sources.
    pub(super) fn cluster(&self) -> Option<KubeAccess> {
        match self.source.clone().replicas() {
            Ok(Some(SourceLocation::Kubernetes(place))) => Some(place.access),
            _ => None,
        }
    }

    /// Opens the source of the reports.
    async fn open(self) -> Result<ReportSource, String> {
        match self.source.replicas()? {
            Some(SourceLocation::Etcd(place)) => {
                let client =
                    EtcdClient::open(&place.access).await.map_err(|error| format!("{error}; {}", error.fix()))?;
                StatusPlace::beside(place, &self.status.etcd_status_prefix)?;
                Ok(ReportSource::Etcd { client, prefix: self.status.etcd_status_prefix })
            }
            Some(SourceLocation::Kubernetes(place)) => {
                let client = KubeClient::open(&place.access).await;
                client.map(ReportSource::Kubernetes).map_err(with_fix)
            }
            Some(SourceLocation::File(_)) | None => {
                let ca = self.ca.as_deref().map(authorities).transpose()?;
                let places = if self.admin.is_empty() { vec![AdminUrl::local()] } else { self.admin };
                Ok(ReportSource::Admin { places, ca })
            }
        }
    }
}

impl ReportSource {
    /// Reads the current reports.
    async fn read(&self, within: Duration) -> Result<ReplicasSeen, String> {
        match self {
            Self::Admin { places, ca } => Ok(read_all(places, ca.as_ref(), within.min(ANSWER_TIMEOUT)).await),
            Self::Etcd { client, prefix } => {
                let seen = read_etcd(&client.within(within.min(ANSWER_TIMEOUT)), prefix).await;
                seen.map_err(|error| format!("{error}; {}", error.fix()))
            }
            Self::Kubernetes(client) => {
                let looking = timeout(within.min(ANSWER_TIMEOUT), read_objects(client, SystemTime::now())).await;
                looking.unwrap_or_else(|_| Err(format!("the apiserver {} gives no answer", client.server())))
            }
        }
    }
}

/// Reads the reports once.
pub(super) fn read(args: ReplicaArgs) -> Result<ReplicasSeen, String> {
    block_on(async { args.open().await?.read(ANSWER_TIMEOUT).await }).flatten()
}

/// Reads the reports until `judge` returns a result, or time is up. Prints the unmet condition on stderr, each time
/// that it changes. Prints success on stdout, and failure on stderr.
pub(super) fn wait(args: ReplicaArgs, within: Duration, judge: impl Fn(&ReplicasSeen) -> Progress) -> CommandExit {
    match block_on(poll(args, within, judge)).flatten() {
        Ok(done) => print(done + "\n"),
        Err(why) => complain(&why),
    }
}

async fn poll(
    args: ReplicaArgs,
    within: Duration,
    judge: impl Fn(&ReplicasSeen) -> Progress,
) -> Result<String, String> {
    let replicas = args.open().await?;
    let end = Instant::now() + within;
    let mut reported = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let missing = match replicas.read(left.max(Duration::from_millis(100))).await {
            Ok(seen) => match judge(&seen) {
                Progress::Done(done) => return Ok(done),
                Progress::Failed(why) => return Err(why),
                Progress::Waiting(missing) => missing,
            },
            Err(why) => vec![why],
        };
        if missing != reported {
            let _ = writeln!(std::io::stderr(), "waiting: {}", missing.join("; "));
            reported = missing;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("not within {}: {}", humantime::format_duration(within), reported.join("; ")));
        }
        sleep(POLL_INTERVAL.min(left)).await;
    }
}

const DRAIN_EXAMPLES: &str = "\
Examples:
  gatepost drain images.example.com
      Is that hook gone from the sidecar on this machine, at 127.0.0.1:9441?
  gatepost drain images.example.com --admin 10.0.0.1:9441 --admin 10.0.0.2:9441 --timeout 2m
  gatepost drain images.example.com --source etcd --etcd-endpoint https://etcd.example:2379 --etcd-ca ca.crt --expect 3
  gatepost drain images.example.com --source kubernetes --kubeconfig kubeconfig --expect 3
  gatepost drain grpcs://10.1.0.7:9001
      After a hook has moved: does any replica still call the old endpoint?

To remove a hook, or an initializer that a process acts for:
  1. Take its entry out of the configuration.
  2. gatepost drain NAME
  3. When that has ended with 0, switch the endpoint off, or stop the processes.

Exit codes:
  0  no replica calls it, nor will one: its endpoint may be switched off, or its processes be stopped
  1  it is still configured or draining when time is up, no replica knows it, or another hook is called there; see stderr";

/// Wait until no replica calls a hook or an initializer that was removed
///
/// A hook or initializer that was removed from the configuration gets no new reviews, but reviews that began before may
/// still call it. This command waits until every live replica has a fresh configuration without it, and no such review.
#[derive(Debug, clap::Args)]
#[command(after_long_help = DRAIN_EXAMPLES)]
pub struct Drain {
    /// Name or id of the hook or initializer, or an endpoint as /configz shows it
    #[arg(value_name = "HOOK", value_parser = NonEmptyStringValueParser::new())]
    hook: String,

    #[command(flatten)]
    replicas: ReplicaArgs,

    /// Time to wait
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    timeout: Duration,
}

impl Drain {
    /// Reads the replicas' reports until no replica calls it, and prints the result.
    pub fn run(self) -> CommandExit {
        if let Some(why) = self.replicas.misuse() {
            return misused("drain", &why);
        }
        let expect = self.replicas.expect;
        wait(self.replicas, self.timeout, |seen| gatepost_replicas::wait::drained(seen, &self.hook, expect))
    }
}
