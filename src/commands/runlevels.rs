//! `runlevels`: labels namespaces with the order in which they must run, for the selectors of hooks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::PathBuf,
};

use gatepost_operator::command::{CommandExit, access, block_on, complain, print, with_fix, yaml};
use serde_json::{Value, json};

use super::load::load;
use gatepost_api::Labels;
use gatepost_config::{
    Snapshot,
    hazards::{Advice, LABEL, SYSTEM, levels},
};
use gatepost_kube_support::{KubeClient, KubeError};

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

/// Label the namespaces of a cluster by their order of startup
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
    match gatepost_api::names::is_dns_label(text) {
        true => Ok(text.to_owned()),
        false => Err("write the name of a namespace: lower-case letters, digits and dashes, at most 63"),
    }
}

impl Runlevels {
    /// Prints or writes the labels.
    pub fn run(self) -> CommandExit {
        // Print the labels that were written before an error, too.
        let mut report = String::new();
        let ended = self.print_or_apply(&mut report);
        print(report);
        ended.map_or_else(|error| complain(&error), |()| CommandExit::Good)
    }

    fn print_or_apply(self, report: &mut String) -> Result<(), String> {
        let hooks = self.config.as_deref().map_or_else(|| Ok(Snapshot::empty()), load)?;
        let mut known =
            ClusterFacts { cluster: None, add_ons: self.add_on.iter().cloned().collect(), force: self.force };
        let named = self.kubeconfig.is_some() || self.context.is_some();
        if self.print && self.config.is_some() && !named {
            report.push_str(&manifest(&plan(hooks, &known)?)?);
            return Ok(());
        }
        let access = access(self.kubeconfig, self.context);
        block_on(async {
            let client = KubeClient::open(&access).await.map_err(with_fix)?;
            known.cluster = Some(read(&client).await.map_err(with_fix)?);
            let plan = plan(hooks, &known)?;
            if self.print {
                report.push_str(&manifest(&plan)?);
                return Ok(());
            }
            apply(&client, &plan, self.dry_run, report).await?;
            report.push_str(&advice(&plan.hooks)?);
            Ok(())
        })
        .flatten()
    }
}

/// Labels one namespace after another. Stops at the first error.
async fn apply(client: &KubeClient, plan: &Plan, dry: bool, report: &mut String) -> Result<(), String> {
    if dry {
        report.push_str("nothing is written; this would be done:\n");
    }
    for planned in &plan.namespaces {
        if planned.changes() {
            label(client, planned, dry).await.map_err(with_fix)?;
        }
        report.push_str(&report_line(planned));
    }
    Ok(())
}

const NAMESPACES: &str = "/api/v1/namespaces";
/// Field manager of our labels in managedFields.
const MANAGER: &str = "gatepost-runlevels";

/// Reads the labels of every namespace.
async fn read(client: &KubeClient) -> Result<BTreeMap<String, Labels>, KubeError> {
    let list = client.list(NAMESPACES).await?;
    Ok(list.items.iter().filter_map(name_and_labels).collect())
}

fn name_and_labels(namespace: &Value) -> Option<(String, Labels)> {
    let metadata = namespace.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    let labels = metadata.get("labels").and_then(Value::as_object);
    let texts = labels.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    Some((name.to_owned(), texts.collect()))
}

/// Writes only the label of a namespace. With `dry`, the apiserver checks the write and stores nothing.
async fn label(client: &KubeClient, planned: &PlannedNamespace, dry: bool) -> Result<(), KubeError> {
    let dry = if dry { "&dryRun=All" } else { "" };
    let path = format!("{NAMESPACES}/{}?fieldManager={MANAGER}{dry}", planned.name);
    let patch = json!({"metadata": {"labels": {LABEL: planned.level}}});
    client.patch(&path, "application/merge-patch+json", &patch).await
}

/// Facts that a plan needs besides the configuration.
#[derive(Debug, Default)]
struct ClusterFacts {
    /// Namespaces of the cluster; `None` if no cluster was read.
    cluster: Option<BTreeMap<String, Labels>>,
    /// Namespaces of add-ons that hooks need.
    add_ons: BTreeSet<String>,
    /// True to replace labels with another level.
    force: bool,
}

/// A namespace with a runlevel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlannedNamespace {
    name: String,
    /// Value that the label should have: the current one, unless it is replaced.
    level: String,
    /// Current value of the label.
    was: Option<String>,
    /// True if the namespace exists, or no cluster was read.
    exists: bool,
}

impl PlannedNamespace {
    /// Returns true if the label must be written.
    fn changes(&self) -> bool {
        self.exists && self.was.as_ref() != Some(&self.level)
    }
}

/// Runlevels that namespaces should have, and selectors that hooks should have.
#[derive(Debug)]
struct Plan {
    /// Namespaces with a runlevel, sorted by name.
    namespaces: Vec<PlannedNamespace>,
    /// Namespaces that need no label.
    unlabelled: Vec<String>,
    hooks: Vec<Advice>,
}

/// Returns the plan for these hooks.
///
/// # Errors
/// A message, if the cluster does not have the namespace of an add-on, or the namespace is one of Kubernetes' own.
fn plan(snapshot: Snapshot, known: &ClusterFacts) -> Result<Plan, String> {
    if let Some(system) = known.add_ons.iter().find(|name| SYSTEM.contains(&&***name)) {
        return Err(format!(
            "--add-on names {system}, which has runlevel 0 already, below all add-ons: what runs there, as the cluster's \
             DNS mostly does, needs no --add-on; leave the flag out"
        ));
    }
    let own = snapshot.namespaces().map(|(name, labels)| (name.to_owned(), labels.clone()));
    let mut all: BTreeMap<String, Labels> = own.collect();
    if let Some(cluster) = &known.cluster {
        all.extend(cluster.iter().map(|(name, labels)| (name.clone(), labels.clone())));
    }
    let label = |name: &str| all.get(name).and_then(|labels| labels.get(LABEL)).map(ToOwned::to_owned);
    let given = |name: &str| {
        let add_on = || known.add_ons.contains(name).then_some(1);
        SYSTEM.contains(&name).then_some(0).or_else(add_on)
    };
    let kept = |name: &str| label(name).filter(|_| !known.force);
    // A kept label that is not a number does not count for the levels of other namespaces.
    let stated = |name: &str| kept(name).map_or_else(|| given(name), |label| label.parse().ok());
    let labelled = all.iter().map(|(name, labels)| (name.as_str().into(), labels.clone()));
    let snapshot = snapshot.with_namespaces(labelled.collect::<Vec<_>>());
    let (homes, hooks) = levels(&snapshot, &stated);
    let exists = |name: &str| known.cluster.as_ref().is_none_or(|cluster| cluster.contains_key(name));
    if let Some(absent) = known.add_ons.iter().find(|name| !exists(name)) {
        return Err(format!(
            "the cluster has no namespace {absent}, which --add-on names; correct the name, or leave the flag out for an \
             add-on that runs in kube-system, as the cluster's DNS mostly does"
        ));
    }
    let names = all.keys().map(String::as_str).chain(SYSTEM).chain(known.add_ons.iter().map(String::as_str));
    let names: BTreeSet<&str> = names.chain(homes.keys().map(String::as_str)).collect();
    let (mut namespaces, mut unlabelled) = (Vec::new(), Vec::new());
    for name in names {
        let was = label(name);
        let computed = given(name).or_else(|| homes.get(name).copied()).map(|level| level.to_string());
        match kept(name).or(computed).or_else(|| was.clone()) {
            Some(level) => {
                namespaces.push(PlannedNamespace { name: name.to_owned(), level, was, exists: exists(name) });
            }
            None => unlabelled.push(name.to_owned()),
        }
    }
    Ok(Plan { namespaces, unlabelled, hooks })
}

/// Returns Namespace documents, for `kubectl apply --server-side` and for a configuration, with the selectors that
/// hooks should have in comments.
fn manifest(plan: &Plan) -> Result<String, String> {
    let mut text = String::from(
        "# Runlevels, by gatepost runlevels --print. Put them in force by one of\n\
         #   gatepost runlevels --apply\n\
         #   kubectl apply --server-side --field-manager=gatepost-runlevels -f FILE\n\
         # and keep the file beside the hooks, where gatepost check looks for the labels of namespaces.\n",
    );
    if !plan.unlabelled.is_empty() {
        let _ = writeln!(text, "# Without a runlevel: {}", plan.unlabelled.join(", "));
    }
    for planned in &plan.namespaces {
        if !planned.exists {
            let _ = writeln!(text, "# The cluster has no namespace {}.", planned.name);
            continue;
        }
        let document = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": planned.name, "labels": {LABEL: planned.level}},
        });
        let _ = write!(text, "---\n{}", yaml(&document)?);
    }
    for line in advice(&plan.hooks)?.lines() {
        let _ = writeln!(text, "{}", format!("# {line}").trim_end());
    }
    Ok(text)
}

/// Returns a line about the change of a namespace.
fn report_line(planned: &PlannedNamespace) -> String {
    let PlannedNamespace { name, level, was, exists } = planned;
    match (exists, was) {
        (false, _) => format!("absent      {name}: the cluster has no such namespace\n"),
        (true, Some(was)) if was == level => format!("unchanged   {name} {level}\n"),
        (true, Some(was)) => format!("relabelled  {name} {level} (was {was})\n"),
        (true, None) => format!("labelled    {name} {level}\n"),
    }
}

/// Returns the selector of each hook, as a patch of its entry.
fn advice(hooks: &[Advice]) -> Result<String, String> {
    let mut text = String::new();
    for Advice { hook, place, namespace, level, selector } in hooks {
        let home = namespace.as_ref().map_or_else(String::new, |namespace| format!(" in namespace {namespace}"));
        let _ = writeln!(text, "\nhook {hook:?}{home} has runlevel {level}; in its entry ({place}):");
        for line in yaml(&json!({"namespaceSelector": selector}))?.lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatepost_config::{SourceFile, load};

    const HOOK: &str = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
        externalAdmissionHooks: [{name: a, clientConfig: {service: {namespace: policy, name: hook}}, rules: []}]\n";

    fn hooks() -> Snapshot {
        let file = SourceFile { name: "a.yaml".into(), bytes: HOOK.into() };
        load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap()
    }

    fn cluster(labels: &[(&str, &str)]) -> BTreeMap<String, Labels> {
        let labelled = |(name, level): &(&str, &str)| {
            let labels: Labels = Some((LABEL, *level)).filter(|(_, level)| !level.is_empty()).into_iter().collect();
            ((*name).to_owned(), labels)
        };
        labels.iter().map(labelled).collect()
    }

    fn levels(plan: &Plan) -> Vec<(&str, &str, bool)> {
        plan.namespaces.iter().map(|it| (&*it.name, &*it.level, it.changes())).collect()
    }

    #[test]
    fn runlevels_without_a_cluster_cover_known_namespaces() {
        let plan = plan(hooks(), &ClusterFacts { add_ons: ["kube-dns".to_owned()].into(), ..ClusterFacts::default() })
            .unwrap();
        let all = [("kube-dns", "1"), ("kube-node-lease", "0"), ("kube-public", "0"), ("kube-system", "0")];
        let mut all: Vec<_> = all.into_iter().map(|(name, level)| (name, level, true)).collect();
        all.push(("policy", "2", true));
        assert_eq!((levels(&plan), plan.hooks[0].level), (all, 2));
    }

    #[test]
    fn runlevels_keep_existing_labels_unless_forced() {
        let namespaces = cluster(&[("kube-system", "9"), ("policy", "core"), ("shop", ""), ("network", "1")]);
        let mut known = ClusterFacts { cluster: Some(namespaces), ..ClusterFacts::default() };
        let kept = plan(hooks(), &known).unwrap();
        let unchanged = [("kube-system", "9", false), ("network", "1", false), ("policy", "core", false)];
        let present = |plan: &Plan| plan.namespaces.iter().filter(|it| it.exists).count();
        assert_eq!((present(&kept), kept.unlabelled.clone()), (3, vec!["shop".to_owned()]));
        for expected in unchanged {
            assert!(levels(&kept).contains(&expected), "{expected:?}: {kept:?}");
        }
        known.force = true;
        let forced = plan(hooks(), &known).unwrap();
        for expected in [("kube-system", "0", true), ("network", "1", false), ("policy", "2", true)] {
            assert!(levels(&forced).contains(&expected), "{expected:?}: {forced:?}");
        }
    }

    #[test]
    fn runlevels_refuse_an_add_on_without_a_namespace() {
        let mut known = ClusterFacts { cluster: Some(cluster(&[("kube-system", "")])), ..ClusterFacts::default() };
        let planned = plan(hooks(), &known).unwrap();
        let changes: Vec<_> = planned.namespaces.iter().filter(|it| it.changes()).map(|it| &*it.name).collect();
        assert_eq!(changes, ["kube-system"]);
        known.add_ons = ["dns".to_owned()].into();
        assert!(plan(hooks(), &known).unwrap_err().contains("no namespace dns"));
        known.add_ons = ["kube-system".to_owned()].into();
        assert!(plan(hooks(), &known).unwrap_err().contains("needs no --add-on; leave the flag out"));
    }
}
