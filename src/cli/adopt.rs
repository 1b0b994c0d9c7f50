//! `adopt` and `release`: which webhooks of a cluster Gatepost calls in the apiserver's place.

mod alone;
mod wish;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    time::Duration,
};

use tokio::time::timeout;

use self::wish::{Cluster, State};
use super::{CommandExit, complain, duration, misused, source::access};
use crate::{adopt::AdoptionScope, kube::KubeAccess, runtime::UnwaitedRuntime};

/// Timeout of `status` for reading the leases.
const ASKED_WITHIN: Duration = Duration::from_secs(2);

/// Default namespace of the leases.
pub(super) const ADOPT_NAMESPACE: &str = "gatepost";

const ADOPT_EXAMPLES: &str = "\
Examples:
  gatepost adopt --plan                      # what could be taken over, what not, and why; changes nothing
  gatepost adopt --plan --selector team=shop
  gatepost adopt policy-webhook              # both kinds of that name
  gatepost adopt validating/policy-webhook
  gatepost adopt --all

Replicas that serve with --adopt do the work; this command tells them what is wanted, and waits. A name counts more than
the selector of --adopt and than --all, until `gatepost release` takes it back.

Exit codes:
  0  every webhook that was named is taken; with --plan: shown
  1  one is not, or no replica serves with --adopt: why is on stderr. It stays wanted, and is taken once that is possible;
     gatepost release ends that";

const RELEASE_EXAMPLES: &str = "\
Examples:
  gatepost release policy-webhook
  gatepost release --all                     # before you remove Gatepost's registration, or Gatepost

Where no replica with --adopt is alive, this command removes the conditions by itself. Do not remove Gatepost's
registration before it has ended with 0: until then nobody would call these webhooks.

Exit codes:
  0  the apiserver calls every webhook that was named
  1  one still carries the condition: why is on stderr";

/// Which cluster, and where its replicas agree.
#[derive(Debug, clap::Args)]
struct ClusterArgs {
    /// The kubeconfig, or "in-cluster" for the Pod's service account [default: as kubectl has it]
    #[arg(long, value_name = "FILE|in-cluster")]
    kubeconfig: Option<PathBuf>,

    /// The context in it [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The namespace of the leases, as serve --adopt-namespace has it
    #[arg(long, value_name = "NAMESPACE", default_value = ADOPT_NAMESPACE)]
    adopt_namespace: String,

    /// The name of Gatepost's registration, as serve --registration has it, where another Gatepost has one, too
    #[arg(long, value_name = "NAME")]
    registration: Option<String>,

    /// How long to wait until it is done
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    timeout: Duration,
}

/// Take webhooks over: Gatepost calls them, and the apiserver does not
///
/// Nothing is deleted: each webhook gets the match condition gatepost.dev/served, which `gatepost release` removes. Both
/// call a webhook for a few seconds; at no moment does nobody.
#[derive(Debug, clap::Args)]
#[command(after_long_help = ADOPT_EXAMPLES)]
pub struct AdoptCommand {
    /// Webhook configurations: NAME, validating/NAME or mutating/NAME
    #[arg(value_name = "NAME", conflicts_with_all = ["all", "plan"])]
    names: Vec<String>,

    /// Everything that can be taken over
    #[arg(long, conflicts_with = "plan")]
    all: bool,

    /// Only show how each webhook stands
    #[arg(long)]
    plan: bool,

    /// With --plan: of configurations with these labels
    #[arg(long, value_name = "SELECTOR", requires = "plan", value_parser = AdoptionScope::parse)]
    selector: Option<AdoptionScope>,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Give webhooks back: the apiserver calls them again
///
/// Gatepost goes on for a few seconds, until every apiserver has heard of it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = RELEASE_EXAMPLES)]
pub struct Release {
    /// Webhook configurations: NAME, validating/NAME or mutating/NAME
    #[arg(value_name = "NAME", conflicts_with = "all")]
    names: Vec<String>,

    /// Everything, and nothing is taken over from now on
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

impl ClusterArgs {
    async fn open(self) -> Result<(Cluster, Duration), String> {
        let access = access(self.kubeconfig, self.context);
        Ok((Cluster::open(&access, self.adopt_namespace, self.registration).await?, self.timeout))
    }
}

/// State of webhooks of others in that cluster, as the leader reports it; `None` where there is nothing to report, or
/// it cannot be read in time.
pub(super) fn standing(access: &KubeAccess, namespace: String) -> Option<String> {
    let asking = async { Cluster::open(access, namespace, None).await.ok()?.standing().await };
    UnwaitedRuntime::new().ok()?.block_on(async { timeout(ASKED_WITHIN, asking).await.ok()? })
}

/// Runs the work of a command, and prints its result.
fn told(doing: impl Future<Output = Result<String, String>>) -> CommandExit {
    let runtime = match UnwaitedRuntime::new() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error),
    };
    match runtime.block_on(doing) {
        Ok(text) => {
            // A reader that closed our output has seen enough.
            let _ = io::stdout().write_all(text.as_bytes());
            CommandExit::Good
        }
        Err(why) => complain(&why),
    }
}

impl AdoptCommand {
    /// Publishes the request, and waits until it is done; with `--plan`, prints the state of webhooks.
    pub fn run(self) -> CommandExit {
        if self.names.is_empty() && !self.all && !self.plan {
            return misused("adopt", &"name a webhook configuration, or give --all or --plan");
        }
        let Self { names, all, plan, selector, cluster } = self;
        told(async move {
            let (mut cluster, within) = cluster.open().await?;
            if plan {
                return cluster.plan(selector.as_ref().unwrap_or(&AdoptionScope::All)).await;
            }
            cluster.wish(|wishes| wishes.adopt(&names, all)).await?;
            cluster.wait(&names, within, State::Taken).await
        })
    }
}

impl Release {
    /// Publishes the request, and waits until it is done.
    pub fn run(self) -> CommandExit {
        if self.names.is_empty() && !self.all {
            return misused("release", &"name a webhook configuration, or give --all");
        }
        let Self { names, all, cluster } = self;
        told(async move {
            let (mut cluster, within) = cluster.open().await?;
            cluster.wish(|wishes| wishes.release(&names, all)).await?;
            cluster.wait(&names, within, State::Released).await
        })
    }
}
