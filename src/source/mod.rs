//! Reads of files and clusters.
//!
//! A [`Source`] of configuration is read as one consistent whole, once a second. The function [`poll`] is the loop of
//! these reads. What becomes of a read, up to the snapshot that a review uses, is in the header of
//! [`rotate`](crate::rotate). The other loops here keep the rest of the state in force current: namespaces, served
//! resources, endpoints of Services, break-glass, access checks, registrations, stored objects with a label, and the
//! params and namespaces of policies.

pub mod access_reviews;
pub mod break_glass;
pub mod cluster_objects;
pub mod contents;
pub mod etcd;
pub mod file;
mod hints;
pub mod kubernetes;
pub mod labelled;
pub mod last_good;
pub mod namespaces;
mod references;
pub mod registration;
pub mod services;

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, mpsc},
    time::{self, Interval, MissedTickBehavior},
};

pub use access_reviews::AccessReviews;
pub use cluster_objects::ClusterReader;
pub use contents::{Contents, READ_TIMEOUT, ReadError, Reference};
pub use etcd::{EtcdLocation, EtcdSource};
pub use file::FileSource;
pub use kubernetes::{KubernetesLocation, KubernetesSource};
pub use labelled::LabelledObjects;
pub use last_good::{LastGood, LastGoodError, LastGoodFile};
pub use namespaces::NamespaceWatcher;
pub use registration::RegistrationWatch;
pub use services::ServiceWatcher;

use self::hints::Hints;
use gatepost_base::{
    clock::{Moment, SuspendedTime, now, suspended_time},
    files::BlockingReads,
};
use gatepost_config::SourceFile;

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

    /// Returns the contents with these documents added. A document replaces the one of its name. The files that any of
    /// them refer to are read anew.
    pub fn contents_with(&self, contents: &Contents, documents: &[SourceFile]) -> Contents {
        let files = contents.files.iter().chain(documents).map(|file| (file.name.clone(), file.clone()));
        let files: BTreeMap<_, _> = files.collect();
        let contents = Contents::new(files.into_values().collect(), BTreeMap::new());
        match self {
            Self::File(path) => FileSource::new(path).follow(contents),
            Self::Kubernetes(KubernetesLocation { files, .. }) | Self::Etcd(EtcdLocation { files, .. }) => {
                references::follow(contents, files.as_deref())
            }
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

    /// Returns what to watch for changes between reads.
    fn hints(&self) -> Hints {
        match self {
            Self::File { files, .. } => Hints::Files(files.path().to_owned()),
            Self::Kubernetes(source) => source.hints(),
            Self::Etcd(source) => source.hints(),
        }
    }

    /// Reads the configuration consistently, within [`READ_TIMEOUT`].
    ///
    /// # Errors
    /// [`ReadError`]; the caller decides on the effect of a failed read.
    pub async fn read(&mut self) -> Result<Contents, ReadError> {
        match self {
            Self::File { files, reads } => {
                let files = files.clone();
                let ended = reads.run(READ_TIMEOUT, move || files.read(READ_TIMEOUT)).await;
                ended.unwrap_or_else(|unread| Err(unread.into()))
            }
            Self::Kubernetes(source) => source.read().await,
            Self::Etcd(source) => source.read().await,
        }
    }
}

/// Reads `source` at the interval `every`, and when a change is noticed, and sends each read, until the receiver is
/// dropped. Without a change the first read is after one interval, since the caller has just made one. Calls `noticed`
/// for each change that is noticed.
pub async fn poll(
    mut source: Source,
    every: Duration,
    readings: mpsc::Sender<TimedRead>,
    noticed: impl Fn() + Send + Sync,
) {
    let hints = source.hints();
    let mut ticks = Ticks::new(every, suspended_time);
    (ticks.quiet, ticks.spacing) = (hints.quiet(), hints.spacing(every));
    let changed = Arc::clone(&ticks.changed);
    let changed = |is_change| {
        if is_change {
            noticed();
        }
        changed.notify_one();
    };
    let reads = async { while readings.send(ticks.read(source.read()).await).await.is_ok() {} };
    tokio::select! {
        () = reads => {}
        never = hints.watch(&changed) => match never {},
    }
}

/// Interval between reads of the source.
// source: dynamic-admission-control-configuration.md, "a consistent read each second".
pub const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest time between two reads.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(100);

/// Read, and when it began. Freshness counts from the beginning, since changes during the read may not be in it.
#[derive(Debug)]
pub struct TimedRead {
    /// Time at which the read began.
    pub started: Moment,
    /// Duration of the read.
    pub took: Duration,
    /// Result of the read.
    pub outcome: Result<Contents, ReadError>,
}

/// Timer of reads.
#[derive(Debug)]
pub struct Ticks {
    ticks: Interval,
    suspended_time: SuspendedTime,
    /// Notified when the source may have changed: the next read is then brought forward.
    changed: Arc<Notify>,
    /// Time without further changes after which such a read may begin.
    quiet: Duration,
    /// Shortest time from a read that found a change to such a read.
    spacing: Duration,
    /// Time of the last read, and of the last one that found a change.
    last: time::Instant,
    last_change: time::Instant,
    /// Digest of the last good read.
    digest: String,
}

impl Ticks {
    /// Creates a timer, first due after one interval. `suspended_time` is the clock of suspended time.
    pub fn new(every: Duration, suspended_time: SuspendedTime) -> Self {
        let mut ticks = time::interval_at(time::Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let last = time::Instant::now();
        let (quiet, digest) = (Duration::ZERO, String::new());
        Self { ticks, suspended_time, changed: Arc::default(), quiet, spacing: every, last, last_change: last, digest }
    }

    /// Waits for the next tick or change, and makes this read.
    pub async fn read(&mut self, read: impl Future<Output = Result<Contents, ReadError>>) -> TimedRead {
        let earliest = (self.last + MIN_READ_INTERVAL).max(self.last_change + self.spacing);
        let change = async {
            self.changed.notified().await;
            time::sleep_until(earliest).await;
            while time::timeout(self.quiet, self.changed.notified()).await.is_ok() {}
        };
        tokio::select! {
            _ = self.ticks.tick() => {}
            () = change => self.ticks.reset(),
        }
        self.last = time::Instant::now();
        let started = Moment::now(self.suspended_time);
        let outcome = read.await;
        if let Some(contents) = outcome.as_ref().ok().filter(|contents| contents.digest != self.digest) {
            self.digest.clone_from(&contents.digest);
            self.last_change = self.last;
        }
        let took = now().saturating_duration_since(started.instant);
        TimedRead { started, took, outcome }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn noticed_changes_are_read_at_most_once_a_second() {
        let began = time::Instant::now();
        let mut ticks = Ticks { quiet: Duration::from_millis(50), ..Ticks::new(READ_INTERVAL, suspended_time) };
        let changed = Arc::clone(&ticks.changed);
        tokio::spawn(async move {
            for millis in [1300, 1500, 2600] {
                time::sleep_until(began + Duration::from_millis(millis)).await;
                changed.notify_one();
            }
        });
        let contents = |text: &'static str| {
            let bytes = bytes::Bytes::from_static(text.as_bytes());
            Contents::new(vec![SourceFile { name: "a.yaml".into(), bytes }], Default::default())
        };
        // The first read is that of the first second; it differs from none.
        ticks.digest = contents("a").digest;
        let mut at = Vec::new();
        for text in ["a", "b", "c", "c"] {
            let read = ticks.read(async { Ok(contents(text)) }).await;
            at.push((read.started.instant - began.into_std()).as_millis());
        }
        // The change at 1.5 s waits for the second after the read that found one; that at 2.6 s, too.
        assert_eq!(at, [1000, 1350, 2350, 3350]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_second_a_reading_dated_from_its_start_good_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "kind: x").unwrap();
        let began = time::Instant::now().into_std();
        let (sender, mut readings) = mpsc::channel(1);
        tokio::spawn(poll(Source::file(&path), READ_INTERVAL, sender, || {}));
        let first = readings.recv().await.unwrap();
        assert_eq!(first.started.instant - began, READ_INTERVAL);
        let digest = first.outcome.unwrap().digest;
        fs::remove_file(&path).unwrap();
        // The next reading may have been made before the file went.
        let later = [readings.recv().await.unwrap(), readings.recv().await.unwrap()];
        assert!(matches!(later[1].outcome, Err(ReadError::Unreadable { .. })), "{later:?}");
        assert!(
            later[0].outcome.as_ref().is_err() || later[0].outcome.as_ref().is_ok_and(|read| read.digest == digest)
        );
        assert_eq!(later[1].started.instant - began, READ_INTERVAL * 3);
    }
}
