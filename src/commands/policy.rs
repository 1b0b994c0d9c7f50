//! `policy`: writes and tests Kubernetes' admission policies, without a cluster and without a server.

mod bench;
mod catalogue;
mod cluster;
mod decision;
mod document;
mod gatekeeper;
mod gator;
mod import;
mod kyverno;
mod new;
mod report;
mod request;
mod search;
mod suite;
mod test;
mod translate;

use clap::Subcommand;
use gatepost_operator::command::CommandExit;

pub(super) use self::decision::{caller_of, deps_without_cluster};
use self::{bench::PolicyBenchArgs, import::PolicyImportArgs, new::PolicyNewArgs, test::PolicyTestArgs};

const EXAMPLES: &str = "\
Examples:
  gatepost policy new --list
  gatepost policy new pinned-images --from no-latest-tag
  gatepost policy test pinned-images
  gatepost policy bench pinned-images
  gatepost policy import kyverno/ gatekeeper/ > policies.yaml
  gatepost review pod.json --config pinned-images/policy.yaml";

/// Write and test admission policies, without a cluster and without a server
///
/// The policies are Kubernetes' own: ValidatingAdmissionPolicy and MutatingAdmissionPolicy. `gatepost serve` evaluates
/// those in its configuration, and kube-apiserver those in the cluster.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicySubcommand,
}

#[derive(Debug, Subcommand)]
enum PolicySubcommand {
    Bench(PolicyBenchArgs),
    Import(PolicyImportArgs),
    New(PolicyNewArgs),
    Test(PolicyTestArgs),
}

impl PolicyArgs {
    /// Runs the subcommand.
    pub fn run(self) -> CommandExit {
        match self.command {
            PolicySubcommand::Bench(bench) => bench.run(),
            PolicySubcommand::Import(import) => import.run(),
            PolicySubcommand::New(new) => new.run(),
            PolicySubcommand::Test(test) => test.run(),
        }
    }
}
