//! `apply`: writes documents into the source of the configuration, and waits until every replica has them in force.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use gatepost_operator::command::{CommandExit, block_on, complain, duration, misused, print, replace_file, with_fix};
use serde_json::Value;

use super::{
    load::READ_TIMEOUT,
    replicas::{self, ReplicaArgs},
};
use crate::{
    rotate::{OnHazard, candidate::CandidateCache},
    source::{Contents, EtcdLocation, FileSource, SourceLocation, file},
};
use gatepost_api::{Revision, exempt::exempt_resources};
use gatepost_config::SourceFile;
use gatepost_etcd_client::{EtcdClient, EtcdError};
use gatepost_kube_support::{KubeClient, KubeError};
use gatepost_replicas::wait;

const EXAMPLES: &str = "\
Examples:
  gatepost apply -f images.yaml --source etcd --etcd-endpoint https://etcd.example:2379 --etcd-ca ca.crt --wait --expect 3
      Ends when all live replicas, three at least, have it in force.
  gatepost apply -f hooks/ --source kubernetes --kubeconfig kubeconfig --wait
  gatepost apply -f images.yaml --config /etc/gatepost --wait --admin 127.0.0.1:9441

What it does:
  Checks what the configuration would be with these documents, as serve does. Writes those that it does not have yet, if
  they bring no new problem; otherwise writes nothing. A document replaces the one of its name, even if someone else wrote that.
  In etcd the key of a document is the prefix and the name of its file. In a folder it is a file of that name. In a
  cluster it is an object of our own kinds: policies and webhook configurations are refused. Each write is a state of its
  own: what must change together belongs in one document.

Exit codes:
  0  written; with --wait: every live replica has it in force
  1  not written, or not all, as stderr says; with --wait: written, and a replica has rejected it, or time is up
  2  the command line is not understood";

/// Write documents into the configuration, and wait until every replica has them in force
///
/// Nothing is deleted: take documents away in the source itself.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Apply {
    /// A YAML or JSON file, or a folder of them; repeat for more
    #[arg(short, long, value_name = "PATH", required = true)]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    replicas: ReplicaArgs,

    /// End when every live replica has them in force
    #[arg(long)]
    wait: bool,

    /// Time to wait for that
    #[arg(long, value_name = "DURATION", default_value = "30s", requires = "wait", value_parser = duration)]
    timeout: Duration,
}

impl Apply {
    /// Writes the documents, and prints the result.
    pub(super) fn run(self) -> CommandExit {
        let place = match (self.replicas.misuse(), self.replicas.place()) {
            (Some(why), _) | (None, Err(why)) => return misused("apply", &why),
            (None, Ok(place)) => place,
        };
        let written = match block_on(apply(&place, &self.filename)).flatten() {
            Ok(written) => written,
            Err(why) => return complain(&why),
        };
        let AppliedDocuments { revision, names } = written;
        let exit = print(match &*names {
            [] => format!("unchanged at revision {revision}\n"),
            names => format!("written at revision {revision}: {}\n", names.join(", ")),
        });
        if !self.wait {
            return exit;
        }
        let (expect, must_change) = (self.replicas.expect.max(1), !names.is_empty());
        replicas::wait(self.replicas, self.timeout, |seen| {
            wait::all_have_in_force(seen, &revision, expect, must_change)
        })
    }
}

/// Result of applying documents.
#[derive(Debug, PartialEq)]
struct AppliedDocuments {
    /// Revision of the source that has all of them.
    revision: Revision,
    /// Names of those that were written; the source had the others already.
    names: Vec<String>,
}

/// Checks the documents of these files, and writes those that the source does not have.
///
/// # Errors
/// A message, if a file cannot be read, the documents bring a problem, or the source does not take them. It says what is
/// written nevertheless.
async fn apply(place: &SourceLocation, paths: &[PathBuf]) -> Result<AppliedDocuments, String> {
    if let SourceLocation::File(folder) = place
        && !folder.is_dir()
    {
        return Err(format!("{} is not a folder; give the folder that `serve --config` reads", folder.display()));
    }
    let mut documents = documents(place, paths)?;
    let mut source = place.open().await.map_err(|error| error.to_string())?;
    let before = source.read().await.map_err(|error| format!("{error}; nothing is written"))?;
    let problems = new_problems(place, &before, &documents);
    if !problems.is_empty() {
        return Err(format!("{}\nnothing is written", problems.join("\n")));
    }
    documents.retain(|document| !before.files.contains(document));
    if documents.is_empty() {
        return Ok(AppliedDocuments { revision: before.revision, names: Vec::new() });
    }
    let store = Store::open(place).await?;
    let mut names = Vec::new();
    let mut at = None;
    for document in &documents {
        match store.write(document).await {
            Ok(written_at) => at = at.max(written_at),
            Err(why) if names.is_empty() => return Err(format!("{why}; nothing is written")),
            Err(why) => return Err(format!("{why}; written before: {}", names.join(", "))),
        }
        names.push(document.name.clone());
    }
    let written = names.join(", ");
    let after = source.read().await;
    let after = after.map_err(|error| format!("{written} written, but the source cannot be read again: {error}"))?;
    if let Some(lost) = documents.iter().find(|document| !after.files.iter().any(|file| file.name == document.name)) {
        return Err(format!("{written} written, but {} is not part of the configuration", lost.name));
    }
    Ok(AppliedDocuments { revision: at.map_or(after.revision, Revision::Store), names })
}

/// Destination of documents.
enum Store {
    Folder(PathBuf),
    Etcd { client: EtcdClient, prefix: String },
    Kubernetes(KubeClient),
}

impl Store {
    async fn open(place: &SourceLocation) -> Result<Self, String> {
        Ok(match place {
            SourceLocation::File(folder) => Self::Folder(folder.clone()),
            SourceLocation::Etcd(EtcdLocation { access, prefix, .. }) => {
                let client = EtcdClient::open(access).await.map_err(etcd_failed)?;
                Self::Etcd { client, prefix: prefix.clone() }
            }
            SourceLocation::Kubernetes(place) => {
                Self::Kubernetes(KubeClient::open(&place.access).await.map_err(with_fix)?)
            }
        })
    }

    /// Writes one document. Returns the revision that has it, if the store has revisions.
    async fn write(&self, SourceFile { name, bytes }: &SourceFile) -> Result<Option<u64>, String> {
        match self {
            Self::Folder(folder) => write_file(&folder.join(name), bytes).map(|()| None),
            Self::Etcd { client, prefix } => {
                client.put(format!("{prefix}{name}"), bytes.clone(), None).await.map(Some).map_err(etcd_failed)
            }
            Self::Kubernetes(client) => {
                let object = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                let stored = replace_object(client, name, object).await?;
                Ok(stored["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()))
            }
        }
    }
}

fn etcd_failed(error: EtcdError) -> String {
    format!("{error}; {}", error.fix())
}

/// Replaces a file, which keeps its mode.
fn write_file(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let failed = |why: &dyn Display| format!("{} cannot be written: {why}", path.display());
    let mode = match fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => return Err(failed(&"it is a link or a folder; write what it leads to")),
        Ok(there) => Some(there.permissions().mode() & 0o777),
        Err(_) => None,
    };
    replace_file(path, bytes, 0o644, mode).map_err(|error| failed(&error))
}

/// Creates an object of our kinds, or replaces the one of this name. Returns it as stored.
async fn replace_object(client: &KubeClient, name: &str, object: Value) -> Result<Value, String> {
    let path = format!("/apis/gatepost.dev/v1alpha1/{name}");
    let query = "?fieldManager=gatepost-apply&fieldValidation=Strict";
    let stored = match client.get(&path).await {
        Err(KubeError::Refused { code: 404, .. }) => {
            let collection = path.rsplit_once('/').map_or(&*path, |(collection, _)| collection);
            return client.create(&format!("{collection}{query}"), &object).await.map_err(with_fix);
        }
        stored => stored.map_err(with_fix)?,
    };
    if !stored["metadata"]["deletionTimestamp"].is_null() {
        return Err(format!("{name} is being deleted; wait until it is gone"));
    }
    let patch = replacement(&stored, object);
    client.patch(&format!("{path}{query}"), "application/merge-patch+json", &patch).await.map_err(with_fix)?;
    client.get(&path).await.map_err(with_fix)
}

/// Returns the merge patch that leaves nothing of the stored object's fields but its metadata and status. It is refused
/// if the object has changed since. All fields of our kinds are lists or plain, and so replaced whole.
fn replacement(stored: &Value, mut object: Value) -> Value {
    if let (Some(fields), Some(new)) = (stored.as_object(), object.as_object_mut()) {
        for name in fields.keys().filter(|name| !matches!(&***name, "metadata" | "status")) {
            new.entry(name.clone()).or_insert(Value::Null);
        }
        new.remove("status");
    }
    object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    object
}

/// Reads the documents, each under the name that it has in the source.
fn documents(place: &SourceLocation, paths: &[PathBuf]) -> Result<Vec<SourceFile>, String> {
    let mut documents = BTreeMap::new();
    for path in paths {
        for file in FileSource::new(path).read(READ_TIMEOUT).map_err(|error| error.to_string())?.files {
            let files = match place {
                SourceLocation::Kubernetes(_) => objects(&file)?,
                SourceLocation::File(_) | SourceLocation::Etcd(_) => vec![file],
            };
            for SourceFile { name, bytes } in files {
                // The name of a single file may be its whole path.
                let name = match place {
                    SourceLocation::Kubernetes(_) => name,
                    _ => Path::new(&name).file_name().map_or_else(|| name.clone(), |it| it.to_string_lossy().into()),
                };
                if matches!(place, SourceLocation::File(_)) && !file::is_listed(Path::new(&name)) {
                    return Err(format!(
                        "{name} would not be read in a folder; let its name end in .yaml, .yml or .json, and begin \
                         without a dot"
                    ));
                }
                if name.contains(char::is_control) {
                    return Err(format!("{name:?} is no name for a document; nothing is written"));
                }
                if documents.insert(name.clone(), bytes).is_some() {
                    return Err(format!("{name} is given twice; nothing is written"));
                }
            }
        }
    }
    if documents.is_empty() {
        return Err("there is no .yaml, .yml or .json file; nothing is written".to_owned());
    }
    Ok(documents.into_iter().map(|(name, bytes)| SourceFile { name, bytes }).collect())
}

/// Returns the objects of a file as the source names them.
fn objects(file: &SourceFile) -> Result<Vec<SourceFile>, String> {
    let text = String::from_utf8_lossy(&file.bytes);
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&text).map_err(|error| format!("{}: no YAML: {error}", file.name))?;
    let convert = |object: Value| {
        let (kind, name) = (&object["kind"], object["metadata"]["name"].as_str().unwrap_or_default());
        let is_ours = object["apiVersion"] == "gatepost.dev/v1alpha1";
        let mut resources = exempt_resources().filter(|(group, ..)| is_ours && *group == "gatepost.dev");
        let Some((_, resource, _)) = resources.find(|(.., of)| *kind == **of) else {
            let why = "is no object of gatepost.dev/v1alpha1, and a cluster's other objects are no configuration";
            return Err(format!("{}: {kind} {why}; nothing is written", file.name));
        };
        if name.is_empty() || name.contains('/') {
            return Err(format!("{}: {kind} has no metadata.name; nothing is written", file.name));
        }
        Ok(SourceFile { name: format!("{resource}/{name}"), bytes: object.to_string().into() })
    };
    objects.into_iter().filter(|object| !object.is_null()).map(convert).collect()
}

/// Returns problems that the documents bring. If the configuration has some already, these might hide others, so that the
/// documents are also judged by themselves.
fn new_problems(place: &SourceLocation, before: &Contents, documents: &[SourceFile]) -> Vec<String> {
    // A sidecar may be connected to a cluster.
    let problems = |contents: &Contents| match CandidateCache::default().with_authorizer(true).candidate(
        contents,
        OnHazard::Off,
        None,
    ) {
        Ok(_) => BTreeSet::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    };
    let known: BTreeSet<String> = problems(before);
    let mut all = problems(&place.contents_with(before, documents));
    if !known.is_empty() {
        let none = Contents::new(Vec::new(), BTreeMap::new());
        all.extend(problems(&place.contents_with(&none, documents)));
    }
    all.difference(&known).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GOOD: &str = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                        externalAdmissionHooks: [{name: one.x, rules: [], clientConfig: {url: 'grpc://127.0.0.1:1'}}]\n";

    /// A folder of documents to apply, and one of configuration with this document.
    fn folders(configured: &str) -> (tempfile::TempDir, tempfile::TempDir) {
        let folders = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(folders.1.path().join("other.yaml"), configured).unwrap();
        folders
    }

    #[tokio::test]
    async fn document_is_written_unless_it_brings_a_problem() {
        for (configured, text, expected) in [
            (GOOD, GOOD.replace("one.x", "two.x").replace("name: a", "name: b"), Ok(vec!["new.yaml".to_owned()])),
            (GOOD, GOOD.to_owned(), Err("one.x")),
            ("kind: Nonsense\n", GOOD.to_owned(), Ok(vec!["new.yaml".to_owned()])),
            ("kind: Nonsense\n", GOOD.replace("rules: []", "rules: [], caFile: x"), Err("caFile")),
            (GOOD, "kind: Nonsense\n".to_owned(), Err("new.yaml: apiVersion: is missing")),
        ] {
            let (documents, folder) = folders(configured);
            fs::write(documents.path().join("new.yaml"), &text).unwrap();
            let place = SourceLocation::File(folder.path().to_owned());
            let outcome = apply(&place, &[documents.path().join("new.yaml")]).await;
            let there = fs::read_to_string(folder.path().join("new.yaml"));
            match (outcome, expected) {
                (Ok(AppliedDocuments { revision, names }), Ok(expected)) => {
                    assert_eq!((names, there.unwrap()), (expected, text));
                    assert_eq!(revision, FileSource::new(folder.path()).read(READ_TIMEOUT).unwrap().revision);
                }
                (Err(why), Err(part)) => {
                    assert!(why.contains(part) && why.ends_with("\nnothing is written"), "{why}");
                    assert!(there.is_err());
                }
                (outcome, expected) => panic!("{outcome:?}, and not {expected:?}"),
            }
        }
    }

    #[tokio::test]
    async fn documents_that_cannot_be_named_are_refused() {
        let (documents, folder) = folders(GOOD);
        let place = SourceLocation::File(folder.path().to_owned());
        let refused = async |place: &SourceLocation, paths: &[PathBuf]| apply(place, paths).await.unwrap_err();
        assert!(refused(&place, &[documents.path().to_owned()]).await.contains("nothing is written"));
        let new = documents.path().join("new.yaml");
        fs::write(&new, GOOD).unwrap();
        assert_eq!(refused(&place, &[new.clone(), new.clone()]).await, "new.yaml is given twice; nothing is written");
        for unread in [".new.yaml", "new", "new.conf"] {
            fs::copy(&new, documents.path().join(unread)).unwrap();
            assert!(refused(&place, &[documents.path().join(unread)]).await.contains("would not be read in a folder"));
        }
        let linked = documents.path().join("linked");
        fs::write(&linked, "").unwrap();
        std::os::unix::fs::symlink(&linked, folder.path().join("new.yaml")).unwrap();
        fs::write(&new, GOOD.replace("one.x", "two.x").replace("name: a", "name: b")).unwrap();
        assert!(refused(&place, std::slice::from_ref(&new)).await.contains("it is a link or a folder"));
        let file = SourceLocation::File(new.clone());
        assert!(refused(&file, &[new]).await.contains("is not a folder; give the folder"));
    }

    #[test]
    fn object_of_a_cluster_is_replaced_whole() {
        let stored = json!({"apiVersion": "v", "kind": "K", "metadata": {"name": "n", "resourceVersion": "7"},
            "externalAdmissionHooks": [{"name": "a"}], "bypass": [], "status": {"x": 1}});
        let object = json!({"apiVersion": "v", "kind": "K", "metadata": {"name": "n"}, "externalAdmissionHooks": []});
        let expected = json!({"apiVersion": "v", "kind": "K", "metadata": {"name": "n", "resourceVersion": "7"},
            "externalAdmissionHooks": [], "bypass": null});
        assert_eq!(replacement(&stored, object), expected);
    }

    #[tokio::test]
    async fn documents_that_are_there_are_not_written_again() {
        let (documents, folder) = folders(GOOD);
        let place = SourceLocation::File(folder.path().to_owned());
        fs::write(documents.path().join("other.yaml"), GOOD).unwrap();
        let AppliedDocuments { names, .. } = apply(&place, &[documents.path().to_owned()]).await.unwrap();
        assert_eq!(names, Vec::<String>::new());
    }

    #[test]
    fn objects_of_our_kinds_are_named_as_the_cluster_names_them() {
        let file = |text: &str| SourceFile { name: "f.yaml".to_owned(), bytes: text.to_owned().into() };
        let two = "apiVersion: gatepost.dev/v1alpha1\nkind: BreakGlass\nmetadata: {name: b}\n";
        let named = objects(&file(&format!("---\n{GOOD}---\n{two}"))).unwrap();
        let names: Vec<_> = named.iter().map(|object| &*object.name).collect();
        assert_eq!(names, ["admissioncontrolconfigurations/a", "breakglasses/b"]);
        let refused = |text: &str| objects(&file(text)).unwrap_err();
        assert!(refused("apiVersion: v1\nkind: ConfigMap\n").starts_with("f.yaml: \"ConfigMap\" is no object of"));
        assert!(refused(&GOOD.replace("{name: a}", "{}")).contains("has no metadata.name"));
        assert!(refused("a: [").starts_with("f.yaml: no YAML"));
    }
}
