//! `import`: copies the webhooks of a cluster into a configuration of ours.

mod object;
mod park;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use gatepost_operator::command::{CommandExit, block_on, counted, finish, one_of, replace_file, with_fix};

use self::object::{Object, advice};
use super::examine::examine;
use crate::{
    rotate::{OnHazard, OwnAddresses, candidate::CandidateCache},
    runtime::Settings,
    source::{Contents, kubernetes::Kind},
};
use gatepost_api::HookType;
use gatepost_config::SourceFile;
use gatepost_kube_support::{KubeAccess, KubeClient, KubeError, List};
use gatepost_replicas::AdminUrl;

const EXAMPLES: &str = "\
Examples:
  gatepost import /etc/gatepost/hooks
  gatepost import --kubeconfig /etc/kubernetes/admin.conf --context prod ./hooks
  gatepost import --force ./hooks      # again, after somebody changed them in the cluster
  gatepost import --park ./hooks       # at the end of the move: the apiserver calls them no more
  gatepost import --give-back ./hooks  # and back

Files:
  One for each object, named after it: validating-NAME.yaml, mutating-NAME.yaml, as a client would apply it: without
  managedFields, resourceVersion, uid, creationTimestamp and generation. The same cluster gives the same bytes.
  Objects that Gatepost cannot serve (some matchConditions) go into the folder not-served below it, which serve does not
  read, and the reason is printed: leave those in the cluster. If a file exists and differs, nothing is written without
  --force. Gatepost's own registration (label app.kubernetes.io/managed-by: gatepost) is left out. Nothing in the
  cluster is changed.

Park:
  The originals of the files in the folder stay, and each of their webhooks gets the match condition gatepost.dev/served,
  which is false, as field manager gatepost-adopt. Every sidecar named by --admin must have the folder in force, call all
  of them and enforce what they say. An original that its file differs from is left. Deleted originals would lose what their owners look for, and from
  Kubernetes 1.37 on the tokens that are bound to them. Where replicas serve with --adopt, use `gatepost adopt`.

Exit codes:
  0  written: what would be in force is printed, what is not served and why, and what to do next; parked; given back
  1  not written, not parked, or something stays parked: stderr says why; or the folder has problems, which are on stdout as `gatepost check` prints them";

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
    #[arg(long, default_value = "validating", value_parser = one_of([
        ("validating", VALIDATING),
        ("mutating", MUTATING),
        ("all", ALL),
    ]))]
    kind: &'static [HookType],

    /// Replace files that differ
    #[arg(long, conflicts_with_all = ["park", "give_back"])]
    force: bool,

    /// Park the originals of the files in the folder: they stay in the cluster, and the apiserver does not call them
    #[arg(long, conflicts_with = "give_back")]
    park: bool,

    /// With --park: a sidecar, by its admin address, that must call their hooks; repeat for more [default:
    /// 127.0.0.1:9441]
    #[arg(long, value_name = "URL", requires = "park")]
    admin: Vec<AdminUrl>,

    /// With --park: park although the cluster has no registration of Gatepost: where it is on the apiservers' disks, or
    /// follows at once
    #[arg(long, requires = "park")]
    unregistered: bool,

    /// Give the originals of the files in the folder back, of both kinds: the apiserver calls them again
    #[arg(long)]
    give_back: bool,
}

const VALIDATING: &[HookType] = &[HookType::Validating];
const MUTATING: &[HookType] = &[HookType::Mutating];
const ALL: &[HookType] = &[HookType::Validating, HookType::Mutating];

impl Import {
    /// Copies the webhooks, checks the folder, and prints the result.
    pub fn run(self) -> CommandExit {
        finish(self.import())
    }

    fn import(&self) -> Result<(String, CommandExit), String> {
        let access = KubeAccess::find(self.kubeconfig.clone(), self.context.clone());
        if self.park {
            let local = [AdminUrl::local()];
            let sidecars = if self.admin.is_empty() { &local[..] } else { &self.admin };
            let parking = park::park(&access, &self.folder, self.kind, sidecars, self.unregistered);
            return Ok((block_on(parking).flatten()?, CommandExit::Good));
        }
        if self.give_back {
            let (given, all) = block_on(park::give_back(&access, &self.folder)).flatten()?;
            return Ok((given, if all { CommandExit::Good } else { CommandExit::Failed }));
        }
        let (server, lists) = block_on(read(&access))?.map_err(with_fix)?;
        let mut report = String::new();
        let mut objects = Vec::new();
        for (hook_type, list) in lists {
            let wanted = self.kind.contains(&hook_type);
            let list = match list {
                Ok(list) => list,
                // A kind that `--kind` does not select need not be readable.
                Err(_) if !wanted => continue,
                Err(error) => return Err(with_fix(error)),
            };
            let number = counted(list.items.len(), hook_type.kind());
            let _ = writeln!(report, "{server} has {number} at revision {}", list.revision);
            if !wanted {
                report.push_str(&unselected_line(hook_type, list.items));
                continue;
            }
            for item in list.items {
                match Object::new(hook_type, item) {
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

    /// Writes each object to its file, and checks the folder if it has objects that can be served.
    fn write(&self, objects: Vec<Object>, own: &[Object], mut report: String) -> Result<(String, CommandExit), String> {
        let judged: Vec<JudgedObject> = objects.into_iter().map(judge).collect::<Result<_, _>>()?;
        let files = judged.iter().map(|(object, reasons)| Ok((path(object, reasons.is_empty()), object.text()?)));
        let files = files.collect::<Result<Vec<_>, String>>()?;
        // Files of earlier imports, when the object could not be served and now can, or the reverse.
        let stale: Vec<_> = judged.iter().map(|(object, reasons)| path(object, !reasons.is_empty())).collect();
        let fates = write(&self.folder, &files, &stale, self.force)?;
        for ((file, _), fate) in files.iter().zip(fates) {
            let _ = writeln!(report, "  {fate:<9}  {}", self.folder.join(file).display());
        }
        for object in own {
            let _ = writeln!(report, "  {:<9}  {}, which is Gatepost's own registration", "left out", object.name);
        }
        if judged.is_empty() {
            report.push_str("there is nothing to import, and nothing was checked\n");
            return Ok((report, CommandExit::Good));
        }
        report.push_str(&not_served(&judged));
        let (served, kept): (Vec<_>, Vec<_>) = judged.into_iter().partition(|(_, reasons)| reasons.is_empty());
        let [served, kept] = [served, kept].map(|part| part.into_iter().map(|(object, _)| object).collect::<Vec<_>>());
        let exit = if served.is_empty() { CommandExit::Good } else { self.check(&mut report)? };
        report.push_str(&advice(&self.folder, &served, &kept, exit == CommandExit::Good));
        Ok((report, exit))
    }

    /// Checks the folder with all files in it, including those that were not imported.
    fn check(&self, report: &mut String) -> Result<CommandExit, String> {
        let own = OwnAddresses::new([Settings::LISTEN, Settings::ADMIN], None);
        let known = CandidateCache::listening_at(own).with_authorizer(true);
        let found = examine(&self.folder, OnHazard::Warn, known).map_err(|error| error.to_string())?;
        report.push_str(&found.report);
        Ok(found.exit)
    }
}

/// Returns a line about the objects of a kind that `--kind` does not select, without Gatepost's own registration.
fn unselected_line(hook_type: HookType, items: Vec<serde_json::Value>) -> String {
    let objects = items.into_iter().filter_map(|item| Object::new(hook_type, item).ok());
    let names: Vec<_> = objects.filter(|object| !object.is_our_own()).map(|object| object.name).collect();
    if names.is_empty() {
        return String::new();
    }
    let names = names.join(", ");
    format!(
        "  left out   {names}: of another kind than --kind names, and still called by the apiserver; see --kind all\n"
    )
}

/// Lists the objects of both kinds, because the report names objects of a kind that `--kind` does not select.
async fn read(access: &KubeAccess) -> Result<(String, Vec<(HookType, Result<List, KubeError>)>), KubeError> {
    let client = KubeClient::open(access).await?;
    let mut lists = Vec::new();
    for &hook_type in ALL {
        lists.push((hook_type, client.list(&Kind::Webhooks(hook_type).path()).await));
    }
    Ok((client.server().to_owned(), lists))
}

/// Word for a file that had the wanted contents already.
const UNCHANGED: &str = "unchanged";

/// Writes each file atomically into the folder, which is created if necessary, and removes the files in `stale`.
/// Without `force`, changes nothing if a file exists with other contents, or a file in `stale` exists. Returns what was
/// done with each file, in a word.
fn write(
    folder: &Path,
    files: &[(PathBuf, String)],
    stale: &[PathBuf],
    force: bool,
) -> Result<Vec<&'static str>, String> {
    let mut fates = Vec::with_capacity(files.len());
    let mut differing = Vec::new();
    for (name, text) in files {
        let path = folder.join(name);
        fates.push(match fs::read(&path) {
            Ok(there) if there == text.as_bytes() => UNCHANGED,
            Ok(_) => {
                differing.push(path);
                "replaced"
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => "written",
            Err(cause) => return Err(failed("read", &path, cause)),
        });
    }
    let stale: Vec<PathBuf> = stale.iter().map(|name| folder.join(name)).filter(|path| path.exists()).collect();
    differing.extend(stale.iter().cloned());
    if !differing.is_empty() && !force {
        let paths = differing.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(format!(
            "nothing was written, because these files differ from the cluster: {paths}; compare them (import into \
             another folder and diff), then use --force to replace them"
        ));
    }
    for ((name, text), _) in files.iter().zip(&fates).filter(|(_, fate)| **fate != UNCHANGED) {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|cause| failed("make the folder", parent, cause))?;
        }
        replace_file(&path, text.as_bytes(), 0o666, None).map_err(|cause| failed("write", &path, cause))?;
    }
    // Remove files last, so that each object is always in at least one file.
    for path in stale {
        fs::remove_file(&path).map_err(|cause| failed("remove", &path, cause))?;
    }
    Ok(fates)
}

fn failed(what: &str, path: &Path, cause: io::Error) -> String {
    format!("cannot {what} {}: {cause}", path.display())
}

/// Name of the folder, below the served one, for objects that are not served.
const NOT_SERVED: &str = "not-served";

/// An imported object, and the reasons why Gatepost cannot call its hooks; it is served if there are none.
type JudgedObject = (Object, Vec<String>);

/// Checks the object without the other objects.
///
/// # Errors
/// A message, if the object cannot be written as YAML.
fn judge(object: Object) -> Result<JudgedObject, String> {
    let file = SourceFile { name: object.file(), bytes: object.text()?.into() };
    // The object comes from a cluster, so its conditions can query an authorizer.
    let mut cache = CandidateCache::default().with_authorizer(true);
    let judged = cache.candidate(&Contents::new(vec![file], BTreeMap::new()), OnHazard::Off, None);
    let reasons = judged.map_or_else(|problems| problems.iter().map(ToString::to_string).collect(), |_| Vec::new());
    Ok((object, reasons))
}

/// Returns the path of the object's file, relative to the folder.
fn path(object: &Object, is_served: bool) -> PathBuf {
    if is_served { object.file().into() } else { PathBuf::from(NOT_SERVED).join(object.file()) }
}

/// Returns a text with the objects that are not served and the reasons; empty if all are served.
fn not_served(judged: &[JudgedObject]) -> String {
    let mut output = String::new();
    for (object, reasons) in judged.iter().filter(|(_, reasons)| !reasons.is_empty()) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            output,
            "\nnot served: {} {}; leave it in the cluster, where it stays in force",
            object.hook_type.kind(),
            object.name
        );
        for reason in reasons {
            let _ = writeln!(output, "  {reason}");
        }
    }
    if !output.is_empty() {
        output.push('\n');
    }
    output
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn files(all: &[(&str, &str)]) -> Vec<(PathBuf, String)> {
        all.iter().map(|&(name, text)| (name.into(), text.to_owned())).collect()
    }

    #[test]
    fn import_without_force_keeps_files_that_differ() {
        let there = tempfile::tempdir().unwrap();
        let folder = there.path().join("made/for/it");
        assert_eq!(write(&folder, &files(&[("b.yaml", "1")]), &[], false).unwrap(), ["written"]);
        let changed = files(&[("a.yaml", "1"), ("b.yaml", "2")]);
        let error = write(&folder, &changed, &[], false).unwrap_err();
        assert!(error.contains("b.yaml") && error.contains("--force"), "{error}");
        assert!(!folder.join("a.yaml").exists());
        assert_eq!(write(&folder, &changed, &[], true).unwrap(), ["written", "replaced"]);
        assert_eq!(write(&folder, &changed, &[], false).unwrap(), [UNCHANGED; 2]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no draft is left behind");
    }

    #[test]
    fn import_removes_stale_files_only_with_force() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("a.yaml"), folder.path().join("not-served/a.yaml"));
        fs::write(&here, "1").unwrap();
        let (moved, stale) = (files(&[("not-served/a.yaml", "2")]), [PathBuf::from("a.yaml")]);
        let error = write(folder.path(), &moved, &stale, false).unwrap_err();
        assert!(error.contains("a.yaml") && here.exists() && !there.exists(), "{error}");
        assert_eq!(write(folder.path(), &moved, &stale, true).unwrap(), ["written"]);
        assert!(!here.exists() && there.exists());
        assert_eq!(write(folder.path(), &moved, &stale, false).unwrap(), [UNCHANGED]);
    }

    #[test]
    fn import_leaves_no_draft_behind() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a.yaml")).unwrap();
        assert!(write(folder.path(), &files(&[("a.yaml", "1")]), &[], true).is_err());
        assert!(replace_file(&folder.path().join("a.yaml"), b"1", 0o666, None).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    fn object(hook_type: HookType, name: &str, webhook: Value) -> Object {
        let value = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": hook_type.kind(),
            "metadata": {"name": name}, "webhooks": [webhook]});
        Object::new(hook_type, value).unwrap()
    }

    fn webhook() -> Value {
        json!({"name": "a.example.com", "clientConfig": {"url": "https://h.example.com/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods"]}]})
    }

    #[test]
    fn import_judges_each_object_by_itself() {
        let good = object(HookType::Validating, "good", webhook());
        let mut conditional = webhook();
        conditional["matchConditions"] =
            json!([{"name": "c", "expression": "google.protobuf.Duration{} == duration('0s')"}]);
        let bad = object(HookType::Validating, "bad", conditional);
        let mut again = webhook();
        again["reinvocationPolicy"] = json!("IfNeeded");
        let mutating = object(HookType::Mutating, "m", again);
        let judged = [good, bad, mutating].map(|object| judge(object).unwrap());
        let served = judged.each_ref().map(|(_, reasons)| reasons.is_empty());
        assert_eq!(served, [true, false, true]);
        assert_eq!(path(&judged[1].0, false), PathBuf::from("not-served/validating-bad.yaml"));
        assert_eq!(path(&judged[1].0, true), PathBuf::from("validating-bad.yaml"));
        assert_eq!(path(&judged[2].0, true), PathBuf::from("mutating-m.yaml"));
        let output = not_served(&judged);
        assert!(output.contains("not served: ValidatingWebhookConfiguration bad; leave it"), "{output}");
        assert!(
            output.contains("messages cannot be constructed here: google.protobuf.Duration")
                && !output.contains("good"),
            "{output}"
        );
    }
}
