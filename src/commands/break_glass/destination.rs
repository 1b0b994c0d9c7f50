//! Destination: where the document is written, and the names of hooks, initializers and policies that are known there.

use std::{collections::BTreeSet, fmt, fs, io, path::PathBuf, time::Duration};

use gatepost_operator::command::{replace_file, yaml};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    commands::source::SourceArgs,
    rotate::{OnHazard, candidate::CandidateCache},
    source::{KubernetesLocation, SourceLocation, kubernetes::ObjectSelection},
};
use gatepost_config::{LastGoodDocuments, nearest_words};
use gatepost_etcd_client::{EtcdAccess, EtcdClient, EtcdError};
use gatepost_kube_support::{KubeAccess, KubeClient, KubeError};
use gatepost_replicas::{AdminUrl, HookStanding};

/// API path of BreakGlass objects in a cluster.
const OBJECTS: &str = "/apis/gatepost.dev/v1alpha1/breakglasses";
/// Default name of the document.
pub(super) const DEFAULT_NAME: &str = "break-glass";

/// Flags for the destination of the document: the source, or a local file.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DestinationArgs {
    /// The local file that `serve --break-glass-file` reads, even if the source cannot be read
    #[arg(long, value_name = "PATH", conflicts_with_all = ["source", "config"])]
    file: Option<PathBuf>,

    /// With --file: the sidecar that knows the hooks, by its admin address [default: 127.0.0.1:9441]
    #[arg(long, value_name = "URL", requires = "file")]
    admin: Option<AdminUrl>,

    #[command(flatten)]
    source: SourceArgs,
}

/// Error of writing or removing the document.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("{0}; or write a local file with --file PATH")]
    Source(String),
    #[error(
        "{} is not a folder; give the folder that `serve --config` reads, or --file PATH where \
         `serve --break-glass-file PATH` reads it",
        .0.display()
    )]
    NoFolder(PathBuf),
    #[error("--name {0:?} cannot be the name of a file; use letters, digits, dots and dashes")]
    Name(String),
    #[error("{} cannot be written: {cause}; {fix}", path.display(), fix = writable(.cause))]
    Write { path: PathBuf, cause: io::Error },
    #[error("the document cannot be written as YAML: {0}; this is a bug in gatepost")]
    Unwritable(String),
    #[error("nothing by that name is open: there is no {0}")]
    Absent(String),
    #[error("{0}; {fix}", fix = .0.fix())]
    Etcd(#[from] EtcdError),
    #[error("{0}; {fix}", fix = .0.fix())]
    Kube(#[from] KubeError),
}

fn writable(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound => "its folder has to be there",
        io::ErrorKind::IsADirectory => "give a file, and not a folder",
        _ => "run this as a user who may write there",
    }
}

/// Location of the document: a file, a key of etcd, or an object in a cluster.
#[derive(Debug)]
pub(super) enum Destination {
    File(PathBuf),
    Etcd { access: EtcdAccess, key: String },
    Kubernetes { access: KubeAccess, path: String },
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Etcd { access, key } => write!(f, "{key} of etcd at {}", access.endpoints.join(", ")),
            Self::Kubernetes { access, path } => {
                let name = path.rsplit('/').next().unwrap_or_default();
                write!(f, "breakglasses.gatepost.dev {name} in the cluster of {access}")
            }
        }
    }
}

impl DestinationArgs {
    /// Reads the names of hooks, initializers and policies: from the source that sidecars read, or with `--file` from a sidecar.
    pub(super) async fn names(self) -> Result<Names, WriteError> {
        Ok(match self.file {
            Some(_) => names_in_sidecar(&self.admin.unwrap_or_else(AdminUrl::local)).await,
            None => names_in_source(self.source.place().map_err(WriteError::Source)?).await,
        })
    }

    /// Returns the destination of the document with this name.
    pub(super) fn open(self, name: &str) -> Result<Destination, WriteError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(WriteError::Name(name.to_owned()));
        }
        if let Some(file) = self.file {
            return Ok(Destination::File(file));
        }
        Ok(match self.source.place().map_err(WriteError::Source)? {
            SourceLocation::File(folder) if !folder.is_dir() => return Err(WriteError::NoFolder(folder)),
            SourceLocation::File(folder) => Destination::File(folder.join(file_name(name))),
            SourceLocation::Etcd(place) => {
                Destination::Etcd { access: place.access, key: format!("{}break-glass/{name}.yaml", place.prefix) }
            }
            SourceLocation::Kubernetes(place) => {
                Destination::Kubernetes { access: place.access, path: format!("{OBJECTS}/{name}") }
            }
        })
    }
}

fn file_name(name: &str) -> String {
    if name == DEFAULT_NAME { format!("{DEFAULT_NAME}.yaml") } else { format!("{DEFAULT_NAME}-{name}.yaml") }
}

impl Destination {
    /// Writes the document atomically.
    pub(super) async fn write(&self, document: &Value) -> Result<(), WriteError> {
        let text = || yaml(document).map_err(WriteError::Unwritable);
        match self {
            Self::File(path) => {
                // Only its owner may write the file, and everybody may read it.
                let written = replace_file(path, text()?.as_bytes(), 0o600, Some(0o644));
                written.map_err(|cause| WriteError::Write { path: path.clone(), cause })
            }
            Self::Etcd { access, key } => {
                EtcdClient::open(access).await?.put(key, text()?, None).await?;
                Ok(())
            }
            Self::Kubernetes { access, path } => Ok(KubeClient::open(access).await?.apply(path, document).await?),
        }
    }

    /// Removes the document. Fails if there is none.
    pub(super) async fn remove(&self) -> Result<(), WriteError> {
        let there = match self {
            Self::File(path) => match fs::remove_file(path) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    return Err(WriteError::Write { path: path.clone(), cause });
                }
                removed => removed.is_ok(),
            },
            Self::Etcd { access, key } => {
                let client = EtcdClient::open(access).await?;
                let below = client.get_prefix(key).await?;
                let there = below.pairs.iter().any(|pair| pair.key == key.as_bytes());
                client.delete(key).await?;
                there
            }
            Self::Kubernetes { access, path } => KubeClient::open(access).await?.delete(path).await?,
        };
        there.then_some(()).ok_or_else(|| WriteError::Absent(self.to_string()))
    }
}

/// Timeout of reading the names. It is short, as the command is for emergencies.
const NAMES_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of names listed in an error if no name is similar.
const MAX_LISTED_NAMES: usize = 8;

/// Names of hooks, initializers and policies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    known: BTreeSet<String>,
    /// Reason why there may be more names; `None` if all are known.
    gap: Option<String>,
}

/// Message about a name that no known hook, initializer or policy has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MissingName {
    /// All names are known, and this is none of them. The message contains a fix.
    Unknown(String),
    /// Not all names are known. The message contains the reason.
    Doubtful(String),
}

impl Names {
    fn unknown(gap: String) -> Self {
        Self { known: BTreeSet::new(), gap: Some(gap) }
    }

    /// Returns the message about the first wanted name that is not known; `None` if all are known.
    pub(super) fn missing(&self, wanted: &[String]) -> Option<MissingName> {
        let missing = wanted.iter().find(|name| !self.known.contains(*name))?;
        if let Some(gap) = &self.gap {
            return Some(MissingName::Doubtful(format!(
                "cannot find out whether there is a hook, initializer or policy named {missing:?}: {gap}"
            )));
        }
        let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
        let near = nearest_words(missing, &known);
        let fix = match (near.is_empty(), known.len()) {
            (false, _) => format!("did you mean {}?", near.join(" or ")),
            (true, 0) => "there is no hook, initializer or policy at all".to_owned(),
            (true, count) => {
                let (some, more) = (
                    known.get(..MAX_LISTED_NAMES).unwrap_or(&known).join(", "),
                    count.saturating_sub(MAX_LISTED_NAMES),
                );
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("there are {some}{more}")
            }
        };
        Some(MissingName::Unknown(format!(
            "there is no hook, initializer or policy named {missing:?}, so nothing is opened; {fix}"
        )))
    }
}

async fn names_in_source(place: SourceLocation) -> Names {
    let SourceLocation::Kubernetes(cluster) = &place else { return read(&place).await };
    // Sidecars may read either kind of object, or both, and the flags of this command may not match theirs.
    let both = cluster.objects.configurations && cluster.objects.webhooks;
    let all = ObjectSelection { configurations: true, webhooks: true };
    let names = read(&SourceLocation::Kubernetes(KubernetesLocation { objects: all, ..cluster.clone() })).await;
    match &names.gap {
        Some(gap) if names.known.is_empty() && !both => {
            let gap = gap.clone();
            Names { gap: Some(gap), ..read(&place).await }
        }
        _ => names,
    }
}

async fn read(place: &SourceLocation) -> Names {
    let reading = async {
        let mut source = place.open().await?;
        source.read().await
    };
    let contents = match timeout(NAMES_TIMEOUT, reading).await {
        Ok(Ok(contents)) => contents,
        Ok(Err(error)) => return Names::unknown(error.to_string()),
        Err(_) => return Names::unknown(format!("{place} gives no answer")),
    };
    match CandidateCache::default().with_authorizer(true).candidate(
        &contents,
        OnHazard::Off,
        Some(&LastGoodDocuments::default()),
    ) {
        Ok(candidate) => Names {
            known: {
                let snapshot = &candidate.snapshot;
                let initializers = snapshot.initializers().iter().flat_map(|entry| &entry.initializers);
                let hooks = snapshot.hooks.iter().map(|hook| &hook.name);
                let policies = snapshot.policies().iter().map(|policy| &policy.definition.name);
                hooks.chain(initializers.map(|one| &one.name)).chain(policies).map(ToString::to_string).collect()
            },
            gap: candidate.quarantined.first().map(|held| format!("{} cannot be served, and may hold one", held.file)),
        },
        Err(_) => Names::unknown(format!("the configuration of {place} has problems")),
    }
}

async fn names_in_sidecar(admin: &AdminUrl) -> Names {
    match admin.report_and_names(None, NAMES_TIMEOUT).await {
        Ok((report, others)) if report.generation > 0 => Names {
            known: {
                let hooks = report.hooks.into_iter().filter(|hook| hook.state != HookStanding::Gone);
                hooks.map(|hook| hook.name).chain(others).collect()
            },
            gap: (report.hooks_left_out > 0).then(|| format!("{admin} does not name all hooks")),
        },
        Ok(_) => Names::unknown(format!("the sidecar at {admin} has no configuration")),
        Err(why) => Names::unknown(format!("no answer from {admin}: {why}; is it another address? give --admin URL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(known: &[&str], gap: Option<&str>) -> Names {
        Names { known: known.iter().map(|name| (*name).to_owned()).collect(), gap: gap.map(str::to_owned) }
    }

    fn missing(names: &Names, wanted: &[&str]) -> Option<MissingName> {
        names.missing(&wanted.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn break_glass_refuses_a_misspelt_name_and_suggests_near_ones() {
        let all = names(&["no-latest.example.com", "no-latest2.example.com", "quota.example.com"], None);
        assert_eq!(missing(&all, &["quota.example.com", "no-latest.example.com"]), None);
        let Some(MissingName::Unknown(message)) = missing(&all, &["quota.example.com", "no-latst.example.com"]) else {
            panic!("it passed")
        };
        let near = "did you mean no-latest.example.com or no-latest2.example.com?";
        assert!(
            message.contains("there is no hook, initializer or policy named \"no-latst.example.com\"")
                && message.ends_with(near),
            "{message}"
        );
        let Some(MissingName::Unknown(message)) = missing(&all, &["x"]) else { panic!("it passed") };
        assert!(
            message.ends_with("there are no-latest.example.com, no-latest2.example.com, quota.example.com"),
            "{message}"
        );
        let Some(MissingName::Unknown(message)) = missing(&names(&[], None), &["x"]) else { panic!("it passed") };
        assert!(message.ends_with("there is no hook, initializer or policy at all"), "{message}");
    }

    #[test]
    fn break_glass_accepts_any_name_while_not_all_hooks_are_known() {
        let some = names(&["a"], Some("b.yaml cannot be served, and may hold one"));
        assert_eq!(missing(&some, &["a"]), None);
        let Some(MissingName::Doubtful(message)) = missing(&some, &["b"]) else { panic!("it was judged") };
        assert!(message.contains("b.yaml cannot be served"), "{message}");
    }

    #[tokio::test]
    async fn break_glass_reads_entry_names_from_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                    externalAdmissionHooks: [{name: one.x, rules: [], clientConfig: {url: 'grpc://127.0.0.1:1'}}]\n\
                    resourceInitializers: [{resource: pods, initializers: [{name: two.x, builtIn: {labels: {a: b}}}]}]\n\
                    ---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n\
                    metadata: {name: three}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [''], \
                    apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n  validations: [{expression: 'true'}]\n\
                    ---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
                    metadata: {name: three}\nspec: {policyName: three, validationActions: [Deny]}\n";
        fs::write(folder.path().join("a.yaml"), text).unwrap();
        let read = || names_in_source(SourceLocation::File(folder.path().to_owned()));
        assert_eq!(read().await, names(&["one.x", "three", "two.x"], None));
        fs::write(folder.path().join("b.yaml"), "kind: Nonsense\n").unwrap();
        let gap = Some("b.yaml cannot be served, and may hold one");
        assert_eq!(read().await, names(&["one.x", "three", "two.x"], gap));
        fs::remove_file(folder.path().join("a.yaml")).unwrap();
        assert!(read().await.gap.is_some());
    }
}
