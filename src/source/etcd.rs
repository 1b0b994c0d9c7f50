//! Source: the keys below a prefix of an etcd cluster; each of them is a document.

use std::{fmt, path::PathBuf, time::Duration};

use tokio::time::Instant;

use super::{
    contents::{Contents, READ_TIMEOUT, ReadError},
    hints::Hints,
    references,
};
use gatepost_base::files::BlockingReads;
use gatepost_config::{Note, SourceFile};
use gatepost_etcd_client::{EtcdAccess, EtcdClient, EtcdError, PrefixContents, PrefixSummary};

/// Location of the configuration in an etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdLocation {
    /// Endpoints of the cluster, and credentials.
    pub access: EtcdAccess,
    /// Prefix of the keys.
    pub prefix: String,
    /// Folder on this machine for the files that hooks refer to.
    pub files: Option<PathBuf>,
}

impl fmt::Display for EtcdLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of etcd at {}", self.prefix, self.access.endpoints.join(", "))
    }
}

/// Source of the keys below a prefix. A key's name without the prefix is its document's name.
///
/// One read is one state of the store. It begins with a summary request (one linearizable request; a few hundred
/// bytes). It reads everything, at one revision, only if the summary has changed. Every read sends a request, and fails
/// if the cluster does not answer: the cache saves bytes, not requests.
#[derive(Debug)]
pub struct EtcdSource {
    place: EtcdLocation,
    client: EtcdClient,
    /// Id of the cluster that answered first, and the latest revision seen.
    known: Option<(u64, u64)>,
    last: Option<LastRead>,
    /// Reads of the files that the configuration refers to.
    file_reads: BlockingReads,
}

/// Last read of everything, with its summary.
#[derive(Debug)]
struct LastRead {
    summary: PrefixSummary,
    contents: Contents,
}

impl EtcdSource {
    /// Reads certificates and password; connects to nothing yet.
    ///
    /// # Errors
    /// Returns an error if the settings are unusable.
    pub async fn new(place: EtcdLocation) -> Result<Self, ReadError> {
        references::check(place.files.as_deref())?;
        let client = EtcdClient::open(&place.access).await?;
        Ok(Self { place, client, known: None, last: None, file_reads: BlockingReads::default() })
    }

    /// Returns the keys to watch for changes between reads.
    pub(super) fn hints(&self) -> Hints {
        Hints::Etcd(self.client.clone(), self.place.prefix.clone())
    }

    /// Reads the keys consistently, within [`READ_TIMEOUT`].
    ///
    /// # Errors
    /// [`ReadError`]; the last good read stays cached.
    pub async fn read(&mut self) -> Result<Contents, ReadError> {
        let deadline = Instant::now() + READ_TIMEOUT;
        let summary = self.client.within(READ_TIMEOUT).summary(&self.place.prefix).await;
        let summary = summary.map_err(failed)?;
        self.check_identity(summary.cluster_id, summary.revision)?;
        let read = match &self.last {
            Some(last) if last.summary.has_same_content_as(&summary) => {
                let contents = Contents { as_of: Some(summary.revision), ..last.contents.clone() };
                LastRead { summary: last.summary, contents: self.reread_files(contents, deadline).await? }
            }
            _ => self.read_all(deadline).await?,
        };
        let contents = read.contents.clone();
        self.last = Some(read);
        Ok(contents)
    }

    /// Returns the contents of the last read, which the store still has. Reads the files they refer to again if any has
    /// changed on this machine.
    async fn reread_files(&mut self, contents: Contents, deadline: Instant) -> Result<Contents, ReadError> {
        if contents.references.is_empty() {
            return Ok(contents);
        }
        let files = self.place.files.clone();
        let follow = move || match references::unchanged(&contents, files.as_deref()) {
            true => contents,
            false => references::follow(contents, files.as_deref()),
        };
        self.file_reads.run(left(deadline), follow).await.map_err(|_| self.unfinished())
    }

    /// Reads everything below the prefix.
    async fn read_all(&mut self, deadline: Instant) -> Result<LastRead, ReadError> {
        let ranged = self.client.within(left(deadline)).get_prefix(&self.place.prefix).await;
        let ranged = ranged.map_err(failed)?;
        self.check_identity(ranged.cluster_id, ranged.revision)?;
        let (summary, files) = (ranged.summary(), self.place.files.clone());
        let contents = self.documents(ranged);
        let follow = move || references::follow(contents, files.as_deref());
        let contents = self.file_reads.run(left(deadline), follow).await.map_err(|_| self.unfinished())?;
        // If nothing was put or deleted, as after a change of leader, the revision stays.
        let still = self.last.as_ref().filter(|last| {
            let same = (last.summary.newest_mod, last.summary.count) == (summary.newest_mod, summary.count);
            same && last.contents.digest == contents.digest
        });
        let contents = match still {
            Some(last) => Contents { revision: last.contents.revision.clone(), ..contents },
            None => contents,
        };
        Ok(LastRead { summary, contents })
    }

    fn unfinished(&self) -> ReadError {
        ReadError::Unfinished { store: format!("etcd at {}", self.client), within: READ_TIMEOUT }
    }

    /// Checks that the cluster is the known one, and that its revision has not decreased.
    fn check_identity(&mut self, cluster: u64, now: u64) -> Result<(), ReadError> {
        let store = || format!("etcd at {}", self.client);
        match self.known {
            Some((known, _)) if known != cluster => Err(ReadError::OtherStore {
                store: store(),
                known: format!("{known:x}"),
                found: format!("{cluster:x}"),
            }),
            Some((_, before)) if now < before => Err(ReadError::WentBack { store: store(), before, now }),
            _ => {
                self.known = Some((cluster, now));
                Ok(())
            }
        }
    }

    /// Converts the keys to documents, by name. Adds a note if there are none, since a wrong prefix looks the same.
    fn documents(&self, ranged: PrefixContents) -> Contents {
        let prefix = self.place.prefix.as_bytes();
        let files = ranged.pairs.into_iter().map(|pair| {
            let name = pair.key.strip_prefix(prefix).filter(|name| !name.is_empty()).unwrap_or(&pair.key);
            SourceFile { name: String::from_utf8_lossy(name).into_owned(), bytes: pair.value }
        });
        let contents = Contents::new(files.collect(), Default::default());
        if !contents.files.is_empty() {
            return contents.with_revision(ranged.revision);
        }
        let note = Note {
            file: "etcd".to_owned(),
            path: self.place.prefix.clone(),
            what: "there is no key with this prefix".to_owned(),
            why: "so there are no hooks, and every write is allowed".to_owned(),
            fix: "write the configuration below it, or correct --etcd-prefix".to_owned(),
        };
        tracing::warn!(endpoints = %self.client, "{note}");
        contents.noted(vec![note]).with_revision(ranged.revision)
    }
}

fn failed(error: EtcdError) -> ReadError {
    match error {
        // The second request has only the rest of the time. Reporting the whole timeout keeps equal failures equal.
        EtcdError::TimedOut { asked, .. } => EtcdError::TimedOut { timeout: READ_TIMEOUT, asked }.into(),
        EtcdError::InvalidResponse { endpoint, cause } => {
            ReadError::Garbled { store: format!("etcd at {endpoint}"), cause }
        }
        error => error.into(),
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
