//! Source of configuration: one full consistent read, once a second. The function [`poll`](fn@poll) is the loop of
//! these reads, and the module [`poll`](mod@poll) has its timer.

pub mod contents;
pub mod etcd;
pub mod file;
pub mod guarded;
pub mod kubernetes;
pub mod last_good;
pub mod poll;
mod references;

use std::{fmt, path::PathBuf, time::Duration};

use tokio::sync::mpsc;

pub use contents::{Contents, READ_DEADLINE, ReadError, Reference};
pub use etcd::{EtcdLocation, EtcdSource};
pub use file::FileSource;
pub use kubernetes::{KubernetesLocation, KubernetesSource};
pub use last_good::{LastGood, LastGoodError, LastGoodFile};
pub use poll::{Ticks, TimedRead};

use gatepost_base::{clock::slept, files::BlockingReads};

/// Location of the configuration, from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceLocation {
    /// A file, or the files of a folder.
    File(PathBuf),
    /// The objects of a cluster.
    Kubernetes(KubernetesLocation),
    /// The keys below a prefix of an etcd cluster.
    Etcd(EtcdLocation),
}

impl SourceLocation {
    /// Creates the source; connects to nothing yet.
    ///
    /// # Errors
    /// Returns an error if the settings are unusable.
    pub async fn open(&self) -> Result<Source, ReadError> {
        match self {
            Self::File(path) => Ok(Source::file(path)),
            Self::Kubernetes(place) => Ok(Source::Kubernetes(KubernetesSource::new(place.clone()).await?)),
            Self::Etcd(place) => Ok(Source::Etcd(EtcdSource::new(place.clone()).await?)),
        }
    }

    /// Returns true if the sidecar starts even if the first read fails, and rejects requests until a good read. A
    /// remote store can become available later; a faulty file is reported at the start.
    pub fn can_start_without_configuration(&self) -> bool {
        match self {
            Self::File(_) => false,
            Self::Kubernetes(_) | Self::Etcd(_) => true,
        }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Kubernetes(place) => place.fmt(f),
            Self::Etcd(place) => place.fmt(f),
        }
    }
}

/// Source of configuration.
#[derive(Debug)]
pub enum Source {
    /// A file, or the files of a folder.
    File {
        /// Reader of the files.
        files: FileSource,
        /// Reads in flight, including those that hang.
        reads: BlockingReads,
    },
    /// The objects of a cluster.
    Kubernetes(KubernetesSource),
    /// The keys below a prefix of an etcd cluster.
    Etcd(EtcdSource),
}

impl Source {
    /// Creates the source of the file or folder at `path`; reads nothing yet.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File { files: FileSource::new(path), reads: BlockingReads::default() }
    }

    /// Returns the input of the adoption loop, once; `None` if nothing is adopted.
    pub fn adoption(&mut self) -> Option<gatepost_adopt::AdoptionReads> {
        match self {
            Self::Kubernetes(source) => source.adoption(),
            Self::File { .. } | Self::Etcd(_) => None,
        }
    }

    /// Reads the configuration consistently, within [`READ_DEADLINE`].
    ///
    /// # Errors
    /// [`ReadError`]; the caller decides on the effect of a failed read.
    pub async fn read(&mut self) -> Result<Contents, ReadError> {
        match self {
            Self::File { files, reads } => {
                let files = files.clone();
                let ended = reads.run(READ_DEADLINE, move || files.read(READ_DEADLINE)).await;
                ended.unwrap_or_else(|unread| Err(unread.into()))
            }
            Self::Kubernetes(source) => source.read().await,
            Self::Etcd(source) => source.read().await,
        }
    }
}

/// Reads `source` at the interval `every`, and sends each read, until the receiver is dropped. The first read is after
/// one interval, since the caller has just made one.
pub async fn poll(mut source: Source, every: Duration, readings: mpsc::Sender<TimedRead>) {
    let mut ticks = Ticks::new(every, slept);
    while readings.send(ticks.read(source.read()).await).await.is_ok() {}
}
