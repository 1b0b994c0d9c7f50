//! `apply`: writes documents into the source of the configuration, and waits until every replica has them in force.

use std::{
    collections::{BTreeMap, BTreeSet},
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
    rotate::{OnHazard, candidate::candidate},
    source::{Contents, FileSource, SourceLocation},
};
use gatepost_api::Revision;
use gatepost_config::SourceFile;
use gatepost_etcd_client::EtcdClient;
use gatepost_kube_support::KubeClient;
use gatepost_replicas::wait;

const EXAMPLES: &str = "\
Examples:
  gatepost apply -f images.yaml --source etcd --etcd-endpoint https://etcd.example:2379 --etcd-ca ca.crt --wait --expect 3
      Ends when all live replicas, three at least, have it in force.
  gatepost apply -f policies/ --source kubernetes --kubeconfig kubeconfig --wait
  gatepost apply -f images.yaml --config /etc/gatepost --wait --admin 127.0.0.1:9441

What it does:
  Checks what the configuration would be with these documents, as serve does. Writes them if they bring no new problem;
  otherwise writes nothing. In etcd the key of a document is the prefix and the name of its file, in a folder it is a
  file of that name, and in a cluster it is an object of our own kinds. Each write is a state of its own: what must change
  together belongs into one document.

Exit codes:
  0  written; with --wait: every live replica has it in force
  1  not written, or with --wait: written, and a replica has rejected it, or time is up; see stderr
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
        let (revision, written) = match block_on(write(&place, &self.filename)).flatten() {
            Ok(written) => written,
            Err(why) => return complain(&why),
        };
        let exit = print(format!("written at revision {revision}: {}\n", written.join(", ")));
        if !self.wait {
            return exit;
        }
        let expect = self.replicas.expect.max(1);
        replicas::wait(self.replicas, self.timeout, |seen| wait::all_have_in_force(seen, &revision, expect))
    }
}

/// Writes the documents of these files. Returns the revision that has all of them, and their names in the source.
///
/// # Errors
/// A message, if a file cannot be read, the documents bring a problem, or the source does not take them.
async fn write(place: &SourceLocation, paths: &[PathBuf]) -> Result<(Revision, Vec<String>), String> {
    if let SourceLocation::File(folder) = place
        && !folder.is_dir()
    {
        return Err(format!("{} is not a folder; give the folder that `serve --config` reads", folder.display()));
    }
    let documents = documents(place, paths)?;
    let mut source = place.open().await.map_err(|error| error.to_string())?;
    let before = source.read().await.map_err(|error| format!("{error}; nothing is written"))?;
    let after = place.contents_with(&before, &documents);
    let problems = new_problems(&before, &after);
    if !problems.is_empty() {
        return Err(format!("{}\nnothing is written", problems.join("\n")));
    }
    let names = documents.iter().map(|document| document.name.clone()).collect();
    let mut at = None;
    match place {
        SourceLocation::File(folder) => {
            for document in &documents {
                let path = folder.join(&document.name);
                replace_file(&path, &document.bytes, 0o644, None)
                    .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
            }
        }
        SourceLocation::Etcd(etcd) => {
            let failed = |error: gatepost_etcd_client::EtcdError| format!("{error}; {}", error.fix());
            let client = EtcdClient::open(&etcd.access).await.map_err(failed)?;
            for SourceFile { name, bytes } in &documents {
                let put = client.put(format!("{}{name}", etcd.prefix), bytes.clone(), None).await;
                at = Some(put.map_err(failed)?);
            }
        }
        SourceLocation::Kubernetes(cluster) => {
            let client = KubeClient::open(&cluster.access).await.map_err(with_fix)?;
            for SourceFile { name, bytes } in &documents {
                let path = format!("/apis/gatepost.dev/v1alpha1/{name}");
                let object: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                client.apply_as("gatepost-apply", &path, &object).await.map_err(with_fix)?;
                let stored = client.get(&path).await.map_err(with_fix)?;
                let version = stored["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
                at = at.max(version);
            }
        }
    }
    let revision = match at {
        Some(at) => Revision::Store(at),
        None => source.read().await.map_err(|error| format!("written, but it cannot be read again: {error}"))?.revision,
    };
    Ok((revision, names))
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
        let resource = match (object["apiVersion"].as_str(), kind.as_str()) {
            (Some("gatepost.dev/v1alpha1"), Some("AdmissionControlConfiguration")) => "admissioncontrolconfigurations",
            (Some("gatepost.dev/v1alpha1"), Some("BreakGlass")) => "breakglasses",
            _ => {
                let why = "is no object of gatepost.dev/v1alpha1, and a cluster's other objects are no configuration";
                return Err(format!("{}: {kind} {why}; nothing is written", file.name));
            }
        };
        if name.is_empty() || name.contains('/') {
            return Err(format!("{}: {kind} has no metadata.name; nothing is written", file.name));
        }
        Ok(SourceFile { name: format!("{resource}/{name}"), bytes: object.to_string().into() })
    };
    objects.into_iter().filter(|object| !object.is_null()).map(convert).collect()
}

/// Returns problems of the later contents that the earlier ones do not have.
fn new_problems(before: &Contents, after: &Contents) -> Vec<String> {
    let problems = |contents| match candidate(contents, OnHazard::Off) {
        Ok(_) => BTreeSet::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    };
    let known: BTreeSet<String> = problems(before);
    problems(after).difference(&known).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

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
            (GOOD, "kind: Nonsense\n".to_owned(), Err("new.yaml: apiVersion: is missing")),
        ] {
            let (documents, folder) = folders(configured);
            fs::write(documents.path().join("new.yaml"), &text).unwrap();
            let place = SourceLocation::File(folder.path().to_owned());
            let outcome = write(&place, &[documents.path().join("new.yaml")]).await;
            let there = fs::read_to_string(folder.path().join("new.yaml"));
            match (outcome, expected) {
                (Ok((revision, names)), Ok(expected)) => {
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
        let refused = async |place: &SourceLocation, paths: &[PathBuf]| write(place, paths).await.unwrap_err();
        assert!(refused(&place, &[documents.path().to_owned()]).await.contains("nothing is written"));
        let new = documents.path().join("new.yaml");
        fs::write(&new, GOOD).unwrap();
        assert_eq!(refused(&place, &[new.clone(), new.clone()]).await, "new.yaml is given twice; nothing is written");
        let file = SourceLocation::File(new.clone());
        assert!(refused(&file, &[new]).await.contains("is not a folder; give the folder"));
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
