//! `runlevels`: which namespaces run before which, as labels that hooks select by.

mod cluster;
mod plan;
mod text;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use self::plan::{ClusterFacts, Plan, plan};
use super::{CommandExit, complain};
use crate::{
    kube::{KubeAccess, KubeClient, KubeError},
    runtime::UnwaitedRuntime,
    snapshot::{self, Snapshot},
    source::FileSource,
};

/// Longest wait for one read. Only a person waits for this command: a slow mount may take its time.
const PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  gatepost runlevels --print --config /etc/gatepost            # needs no cluster
  gatepost runlevels --print --config /etc/gatepost --kubeconfig admin.conf --add-on calico-system
  gatepost runlevels --apply --config /etc/gatepost --add-on calico-system --dry-run
  gatepost runlevels --apply --config /etc/gatepost --add-on calico-system

Runlevels, in the label gatepost.dev/runlevel:
  0   kube-system, kube-public, kube-node-lease
  1   add-ons that hooks need (the network, DNS): name each one's namespace with --add-on. An add-on in kube-system,
      where the cluster's DNS mostly is, has level 0 and needs none
  2   the namespaces of hooks, as far as clientConfig names a Service
  3+  the namespaces of hooks whose pods other hooks must approve: one more than the highest of these
  Every hook should exclude its own level and all below it; the selector for that is printed.
  A namespace keeps the level that its label says, unless --force.

Rights:
  Reading needs the verb list on namespaces, --apply also patch. Anybody who may change this label can hide a namespace
  from every hook: let a hook or a ValidatingAdmissionPolicy guard it (chapter
  'How do I keep hooks from locking up my cluster?').

Exit codes:
  0  printed, or labelled
  1  not, or not all; stderr says why, stdout what was done before";

/// Label the namespaces of a cluster by what must run before what
///
/// Computes the runlevel of each namespace from the hooks of a configuration, and prints the labels or writes them, one
/// merge patch a namespace that changes only this label. Doing it again changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["print", "apply"]))]
pub struct Runlevels {
    /// Print Namespace documents for kubectl apply --server-side, and what each hook should select
    #[arg(long)]
    print: bool,

    /// Write the labels
    #[arg(long)]
    apply: bool,

    /// The hooks: a YAML or JSON file, or a folder of them [default: none are known]
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// The namespace of an add-on that hooks need, such as the network's; repeat for more. Not for DNS in kube-system
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    add_on: Vec<String>,

    /// The kubeconfig, or "in-cluster" for the Pod's service account [default: as kubectl has it; --print with --config
    /// reads no cluster unless one is named]
    #[arg(long, value_name = "FILE|in-cluster")]
    kubeconfig: Option<PathBuf>,

    /// The context in it [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Replace labels that say another level
    #[arg(long)]
    force: bool,

    /// Let the apiserver check everything, and write nothing
    #[arg(long, requires = "apply")]
    dry_run: bool,
}

fn namespace(text: &str) -> Result<String, &'static str> {
    match snapshot::is_dns_label(text) {
        true => Ok(text.to_owned()),
        false => Err("write the name of a namespace: lower-case letters, digits and dashes, at most 63"),
    }
}

impl Runlevels {
    /// Prints or labels.
    pub fn run(self) -> CommandExit {
        let (report, ended) = self.run_and_report();
        // A reader that closed our output (`| head`) has seen enough.
        let _ = io::stdout().write_all(report.as_bytes());
        ended.map_or_else(|error| complain(&error), |()| CommandExit::Good)
    }

    /// Labels written, also where it ended in an error.
    fn run_and_report(self) -> (String, Result<(), String>) {
        let mut report = String::new();
        let ended = self.go(&mut report);
        (report, ended)
    }

    fn go(self, report: &mut String) -> Result<(), String> {
        let hooks = self.config.as_deref().map_or_else(|| Ok(Snapshot::empty()), hooks)?;
        let mut known =
            ClusterFacts { cluster: None, add_ons: self.add_on.iter().cloned().collect(), force: self.force };
        let named = self.kubeconfig.is_some() || self.context.is_some();
        if self.print && self.config.is_some() && !named {
            report.push_str(&text::manifest(&plan(hooks, &known)?)?);
            return Ok(());
        }
        let access = match self.kubeconfig {
            Some(path) if path.as_os_str() == "in-cluster" => KubeAccess::InCluster,
            path => KubeAccess::find(path, self.context),
        };
        let runtime = UnwaitedRuntime::new().map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let client = KubeClient::open(&access).await.map_err(with_fix)?;
            known.cluster = Some(cluster::read(&client).await.map_err(with_fix)?);
            let plan = plan(hooks, &known)?;
            if self.print {
                report.push_str(&text::manifest(&plan)?);
                return Ok(());
            }
            apply(&client, &plan, self.dry_run, report).await?;
            report.push_str(&text::advice(&plan.hooks)?);
            Ok(())
        })
    }
}

/// Labels one namespace after the other; stops at the first that cannot be.
async fn apply(client: &KubeClient, plan: &Plan, dry: bool, report: &mut String) -> Result<(), String> {
    if dry {
        report.push_str("nothing is written; this would be done:\n");
    }
    for planned in &plan.namespaces {
        if planned.changes() {
            cluster::label(client, planned, dry).await.map_err(with_fix)?;
        }
        report.push_str(&text::done(planned));
    }
    Ok(())
}

fn with_fix(error: KubeError) -> String {
    format!("{error}; {}", error.fix())
}

/// The hooks of this configuration.
fn hooks(path: &Path) -> Result<Snapshot, String> {
    let contents = FileSource::new(path).read(PATIENCE).map_err(|error| error.to_string())?;
    let shown = path.display();
    snapshot::load(&contents.files, &|written| contents.reference(written))
        .map_err(|problems| format!("{shown} has problems ({}); see `gatepost check {shown}`", problems.len()))
}
