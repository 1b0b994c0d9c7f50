//! `import`: the webhooks of a cluster as a configuration of ours.

mod advice;
pub(super) mod folder;
mod object;
mod servable;

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::PathBuf,
};

use clap::ValueEnum;

use self::{
    folder::Written,
    object::{Object, Phase},
    servable::Fate,
};
use super::{CommandExit, check, complain, plural::counted};
use crate::{
    kube::{KubeAccess, KubeClient, KubeError, List},
    rotate::{OnHazard, OwnAddresses, candidate::CandidateCache},
    runtime::{Settings, UnwaitedRuntime},
};

const EXAMPLES: &str = "\
Examples:
  gatepost import /etc/gatepost/hooks
  gatepost import --kubeconfig /etc/kubernetes/admin.conf --context prod ./hooks
  gatepost import --force ./hooks      # again, after somebody changed them in the cluster

Files:
  One for each object, named after it: validating-NAME.yaml, mutating-NAME.yaml, as a client would apply it: without
  managedFields, resourceVersion, uid, creationTimestamp and generation. The same cluster gives the same bytes.
  Objects that Gatepost cannot serve (some matchConditions) go into the folder not-served below it, which serve does not
  read, and the reason is printed: leave those in the cluster. If a file exists and differs, nothing is written without
  --force. Gatepost's own registration (label app.kubernetes.io/managed-by: gatepost) is left out. Nothing in the
  cluster is changed.

Exit codes:
  0  written: what would be in force is printed, what is not served and why, and what to do next
  1  not written: stderr says why; or the folder has problems, which are on stdout as `gatepost check` prints them";

/// Copy the webhooks of a cluster into a folder, as a configuration
///
/// Reads the ValidatingWebhookConfigurations of a cluster, as the store has them now, writes a file for each (what
/// cannot be served into a folder of its own), checks the folder as `gatepost check` does, and says what to do next.
/// The user needs the verb list on them.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Import {
    /// Folder that the files are written to
    folder: PathBuf,

    /// The kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the Pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context in it [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Which configurations
    #[arg(long, value_enum, default_value = "validating")]
    kind: KindArg,

    /// Replace files that differ
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindArg {
    Validating,
    Mutating,
    All,
}

impl KindArg {
    fn phases(self) -> &'static [Phase] {
        match self {
            Self::Validating => &[Phase::Validating],
            Self::Mutating => &[Phase::Mutating],
            Self::All => &[Phase::Validating, Phase::Mutating],
        }
    }
}

impl Import {
    /// Copies, checks and prints the result.
    pub fn run(self) -> CommandExit {
        match self.import() {
            Ok((report, ending)) => {
                // A reader that closed our output (`| head`) has seen enough.
                let _ = io::stdout().write_all(report.as_bytes());
                ending
            }
            Err(error) => complain(&error),
        }
    }

    fn import(&self) -> Result<(String, CommandExit), String> {
        let runtime = UnwaitedRuntime::new().map_err(|error| error.to_string())?;
        let access = KubeAccess::find(self.kubeconfig.clone(), self.context.clone());
        let (server, lists) = runtime.block_on(read(&access)).map_err(|error| format!("{error}; {}", error.fix()))?;
        let mut report = String::new();
        let mut objects = Vec::new();
        for (phase, list) in lists {
            let wanted = self.kind.phases().contains(&phase);
            let list = match list {
                Ok(list) => list,
                // A kind that is not asked for need not be readable.
                Err(_) if !wanted => continue,
                Err(error) => return Err(format!("{error}; {}", error.fix())),
            };
            let number = counted(list.items.len(), phase.kind());
            let _ = writeln!(report, "{server} has {number} at revision {}", list.revision);
            if !wanted {
                report.push_str(&not_asked_for(phase, list.items));
                continue;
            }
            for item in list.items {
                match Object::new(phase, item) {
                    Ok(object) => objects.push(object),
                    Err(what) => {
                        let _ = writeln!(report, "  left out   {what}; it stays in the cluster as it is");
                    }
                }
            }
        }
        let (own, objects): (Vec<_>, Vec<_>) = objects.into_iter().partition(Object::is_our_own);
        self.write(objects, &own, report)
    }

    /// Writes each object where it belongs, and checks what is to be served.
    fn write(&self, objects: Vec<Object>, own: &[Object], mut report: String) -> Result<(String, CommandExit), String> {
        let judged: Vec<(Object, Fate)> =
            objects.into_iter().map(|object| Fate::of(&object).map(|fate| (object, fate))).collect::<Result<_, _>>()?;
        let files = judged.iter().map(|(object, fate)| Ok((fate.path(object), object.text()?)));
        let files = files.collect::<Result<Vec<_>, String>>()?;
        // Where an object was written to before it could be served, or while it still could.
        let stale: Vec<PathBuf> = judged.iter().map(|(object, fate)| fate.other_path(object)).collect();
        let fates = folder::write(&self.folder, &files, &stale, self.force).map_err(|error| error.to_string())?;
        for ((file, _), fate) in files.iter().zip(fates) {
            let fate = match fate {
                Written::New => "written",
                Written::Replaced => "replaced",
                Written::Unchanged => "unchanged",
            };
            let _ = writeln!(report, "  {fate:<9}  {}", self.folder.join(file).display());
        }
        for object in own {
            let _ = writeln!(report, "  {:<9}  {}, which is Gatepost's own registration", "left out", object.name);
        }
        if judged.is_empty() {
            report.push_str("there is nothing to import, and nothing was checked\n");
            return Ok((report, CommandExit::Good));
        }
        report.push_str(&servable::report(&judged));
        let (served, kept): (Vec<_>, Vec<_>) = judged.into_iter().partition(|(_, fate)| *fate == Fate::Served);
        let [served, kept] = [served, kept].map(|part| part.into_iter().map(|(object, _)| object).collect::<Vec<_>>());
        let ending = if served.is_empty() { CommandExit::Good } else { self.check(&mut report)? };
        report.push_str(&advice::advice(&self.folder, &served, &kept, ending == CommandExit::Good));
        Ok((report, ending))
    }

    /// Check of the folder as it is now, with whatever else is in it.
    fn check(&self, report: &mut String) -> Result<CommandExit, String> {
        let own = OwnAddresses::new([Settings::LISTEN, Settings::ADMIN], None);
        let known = CandidateCache::listening_at(own).with_authorizer(true);
        let found = check::examined(&self.folder, OnHazard::Warn, known).map_err(|error| error.to_string())?;
        report.push_str(&found.report);
        Ok(found.ending)
    }
}

/// A line about the objects of a kind that are not copied; Gatepost's own registration is none of them.
fn not_asked_for(phase: Phase, items: Vec<serde_json::Value>) -> String {
    let objects = items.into_iter().filter_map(|item| Object::new(phase, item).ok());
    let names: Vec<_> = objects.filter(|object| !object.is_our_own()).map(|object| object.name).collect();
    if names.is_empty() {
        return String::new();
    }
    let names = names.join(", ");
    format!(
        "  left out   {names}: of another kind than --kind names, and still called by the apiserver; see --kind all\n"
    )
}

/// Both kinds: what is not asked for is named.
async fn read(access: &KubeAccess) -> Result<(String, Vec<(Phase, Result<List, KubeError>)>), KubeError> {
    let client = KubeClient::open(access).await?;
    let mut lists = Vec::new();
    for &phase in KindArg::All.phases() {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{}", phase.resource());
        lists.push((phase, client.list(&path).await));
    }
    Ok((client.server().to_owned(), lists))
}
