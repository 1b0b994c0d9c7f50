//! The keys below a prefix of an etcd cluster; each of them is a document.

use std::{fmt, path::PathBuf, time::Duration};

use tokio::time::Instant;

use super::{
    contents::{Contents, READ_DEADLINE, ReadError},
    references,
};
use gatepost_base::files::BlockingReads;
use gatepost_config::{Note, SourceFile};
use gatepost_etcd_client::{EtcdAccess, EtcdClient, EtcdError, Glance, Ranged};

/// Which cluster, and what is read there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdLocation {
    /// The cluster, and as whom it is asked.
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

/// The keys below a prefix. A key's name without the prefix is its document's name.
///
/// One read is one state of the store. First a glance: one linearizable question for the newest key below the prefix,
/// answered in some hundred bytes. Only where that shows a change, everything is read, at one revision. Every read
/// asks the cluster, and a cluster that cannot be asked is a failed read: what is remembered saves bytes, never
/// questions.
#[derive(Debug)]
pub struct EtcdSource {
    place: EtcdLocation,
    client: EtcdClient,
    /// The cluster that answered first, and the latest revision it has shown.
    known: Option<(u64, u64)>,
    last: Option<Last>,
    following: BlockingReads,
}

/// Last read, and a glance of the same moment.
#[derive(Debug)]
struct Last {
    glance: Glance,
    contents: Contents,
}

impl EtcdSource {
    /// Reads certificates and password; asks nobody yet.
    ///
    /// # Errors
    /// Unusable settings.
    pub async fn new(place: EtcdLocation) -> Result<Self, ReadError> {
        references::check(place.files.as_deref())?;
        let client = EtcdClient::open(&place.access).await?;
        Ok(Self { place, client, known: None, last: None, following: BlockingReads::default() })
    }

    /// One full consistent read, within [`READ_DEADLINE`].
    ///
    /// # Errors
    /// [`ReadError`]; nothing of what was read is remembered then.
    pub async fn read(&mut self) -> Result<Contents, ReadError> {
        let by = Instant::now() + READ_DEADLINE;
        let glance = self.client.within(READ_DEADLINE).glance(&self.place.prefix).await;
        let glance = glance.map_err(failed)?;
        self.recognise(glance.cluster_id, glance.revision)?;
        let read = match &self.last {
            Some(last) if last.glance.holds_the_same_as(&glance) => {
                let contents = Contents { as_of: Some(glance.revision), ..last.contents.clone() };
                Last { glance: last.glance, contents: self.again(contents, by).await? }
            }
            _ => self.anew(by).await?,
        };
        let contents = read.contents.clone();
        self.last = Some(read);
        Ok(contents)
    }

    /// Contents of the last read, as the store still holds them; with its certificates, if those have changed on this
    /// machine.
    async fn again(&mut self, contents: Contents, by: Instant) -> Result<Contents, ReadError> {
        if contents.references.is_empty() {
            return Ok(contents);
        }
        let files = self.place.files.clone();
        let follow = move || match references::unchanged(&contents, files.as_deref()) {
            true => contents,
            false => references::follow(contents, files.as_deref()),
        };
        self.following.run(left(by), follow).await.map_err(|_| self.unfinished())
    }

    /// Everything below the prefix.
    async fn anew(&mut self, by: Instant) -> Result<Last, ReadError> {
        let ranged = self.client.within(left(by)).get_prefix(&self.place.prefix).await;
        let ranged = ranged.map_err(failed)?;
        self.recognise(ranged.cluster_id, ranged.revision)?;
        let (glance, files) = (ranged.glance(), self.place.files.clone());
        let contents = self.documents(ranged);
        let follow = move || references::follow(contents, files.as_deref());
        let contents = self.following.run(left(by), follow).await.map_err(|_| self.unfinished())?;
        // Where nothing was put or deleted, as after a change of leader, it is still the state that it was.
        let still = self.last.as_ref().filter(|last| {
            let same = (last.glance.newest_mod, last.glance.count) == (glance.newest_mod, glance.count);
            same && last.contents.digest == contents.digest
        });
        let contents = match still {
            Some(last) => Contents { revision: last.contents.revision.clone(), ..contents },
            None => contents,
        };
        Ok(Last { glance, contents })
    }

    fn unfinished(&self) -> ReadError {
        ReadError::Unfinished { store: format!("etcd at {}", self.client), within: READ_DEADLINE }
    }

    /// Is it the store we know, and not its past?
    fn recognise(&mut self, cluster: u64, now: u64) -> Result<(), ReadError> {
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

    /// The keys as documents, by name. An empty prefix is said aloud: a wrong one looks the same.
    fn documents(&self, ranged: Ranged) -> Contents {
        let prefix = self.place.prefix.as_bytes();
        let files = ranged.pairs.into_iter().map(|pair| {
            let name = pair.key.strip_prefix(prefix).filter(|name| !name.is_empty()).unwrap_or(&pair.key);
            SourceFile { name: String::from_utf8_lossy(name).into_owned(), bytes: pair.value }
        });
        let contents = Contents::new(files.collect(), Default::default());
        if !contents.files.is_empty() {
            return contents.at(ranged.revision);
        }
        let note = Note {
            file: "etcd".to_owned(),
            path: self.place.prefix.clone(),
            what: "there is no key with this prefix".to_owned(),
            why: "so there are no hooks, and every write is allowed".to_owned(),
            fix: "write the configuration below it, or correct --etcd-prefix".to_owned(),
        };
        tracing::warn!(endpoints = %self.client, "{note}");
        contents.noted(vec![note]).at(ranged.revision)
    }
}

fn failed(error: EtcdError) -> ReadError {
    match error {
        // The second question has what the first one left; that differs each time, and is no other cause.
        EtcdError::Late { asked, .. } => EtcdError::Late { patience: READ_DEADLINE, asked }.into(),
        EtcdError::Nonsense { endpoint, cause } => ReadError::Garbled { store: format!("etcd at {endpoint}"), cause },
        error => error.into(),
    }
}

fn left(by: Instant) -> Duration {
    by.saturating_duration_since(Instant::now())
}
