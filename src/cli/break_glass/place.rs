//! Destination: place that the document is written to.

use std::{
    fmt,
    fs::{self, File, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::roster::Roster;
use crate::{
    cli::{source::SourceArgs, yaml::yaml},
    etcd::{EtcdAccess, EtcdClient as Etcd, EtcdError},
    kube::{KubeAccess as ClusterAccess, KubeClient as Cluster, KubeError},
    replicas::AdminUrl,
    source,
};

/// API path of our own kind, in a cluster.
const OBJECTS: &str = "/apis/gatepost.dev/v1alpha1/breakglasses";
/// Default name of the document.
pub(super) const NAME: &str = "break-glass";

/// Destination of the document: the source, or a local file.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct PlaceArgs {
    /// The local file that `serve --break-glass-file` reads, which works whatever the source does
    #[arg(long, value_name = "PATH", conflicts_with_all = ["source", "config"])]
    file: Option<PathBuf>,

    /// With --file: the sidecar that knows the hooks, by its admin address [default: 127.0.0.1:9441]
    #[arg(long, value_name = "URL", requires = "file")]
    admin: Option<AdminUrl>,

    #[command(flatten)]
    source: SourceArgs,
}

/// Reason why it could not be written.
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

/// One file, key or object.
#[derive(Debug)]
pub(super) enum Destination {
    File(PathBuf),
    Etcd { access: EtcdAccess, key: String },
    Kubernetes { access: ClusterAccess, path: String },
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

impl PlaceArgs {
    /// Source of hooks' names, for a document in that place.
    pub(super) fn roster(self) -> Result<Roster, WriteError> {
        Ok(match self.file {
            Some(_) => Roster::Sidecar(self.admin.unwrap_or_else(AdminUrl::local)),
            None => Roster::Source(self.source.place().map_err(WriteError::Source)?),
        })
    }

    /// The place for the document of that name.
    pub(super) fn open(self, name: &str) -> Result<Destination, WriteError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(WriteError::Name(name.to_owned()));
        }
        if let Some(file) = self.file {
            return Ok(Destination::File(file));
        }
        Ok(match self.source.place().map_err(WriteError::Source)? {
            source::SourceLocation::File(folder) if !folder.is_dir() => return Err(WriteError::NoFolder(folder)),
            source::SourceLocation::File(folder) => Destination::File(folder.join(file_name(name))),
            source::SourceLocation::Etcd(place) => {
                Destination::Etcd { access: place.access, key: format!("{}break-glass/{name}.yaml", place.prefix) }
            }
            source::SourceLocation::Kubernetes(place) => {
                Destination::Kubernetes { access: place.access, path: format!("{OBJECTS}/{name}") }
            }
        })
    }
}

fn file_name(name: &str) -> String {
    if name == NAME { format!("{NAME}.yaml") } else { format!("{NAME}-{name}.yaml") }
}

impl Destination {
    /// Writes the document as a whole or not at all.
    pub(super) async fn write(&self, document: &Value) -> Result<(), WriteError> {
        match self {
            Self::File(path) => write_file(path, text(document)?.as_bytes()),
            Self::Etcd { access, key } => {
                Etcd::open(access).await?.put(key, text(document)?, None).await?;
                Ok(())
            }
            Self::Kubernetes { access, path } => Ok(Cluster::open(access).await?.apply(path, document).await?),
        }
    }

    /// Takes the document away.
    pub(super) async fn remove(&self) -> Result<(), WriteError> {
        let there = match self {
            Self::File(path) => match fs::remove_file(path) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    return Err(WriteError::Write { path: path.clone(), cause });
                }
                removed => removed.is_ok(),
            },
            Self::Etcd { access, key } => {
                let client = Etcd::open(access).await?;
                let below = client.get_prefix(key).await?;
                let there = below.pairs.iter().any(|pair| pair.key == key.as_bytes());
                client.delete(key).await?;
                there
            }
            Self::Kubernetes { access, path } => Cluster::open(access).await?.delete(path).await?,
        };
        there.then_some(()).ok_or_else(|| WriteError::Absent(self.to_string()))
    }
}

fn text(document: &Value) -> Result<String, WriteError> {
    yaml(document).map_err(WriteError::Unwritable)
}

/// Only we may write the file, and everybody may read it.
fn write_file(path: &Path, text: &[u8]) -> Result<(), WriteError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Hidden: a source passes over names that begin with a dot.
    let beside = folder.join(format!(".{name}.{}", std::process::id()));
    let written = || {
        let mut file = File::options().write(true).create_new(true).open(&beside)?;
        file.write_all(text)?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    written().map_err(|cause| {
        // Where it cannot be removed either, there is a hidden file more; the cause is what matters.
        let _ = fs::remove_file(&beside);
        WriteError::Write { path: path.to_owned(), cause }
    })
}
