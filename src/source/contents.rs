//! Contents: result of one consistent read.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use gatepost_api::Revision;
use gatepost_base::files::ReadFailure;
use gatepost_config::{NO_PAUSE, Note, Pause, SourceFile};
use gatepost_etcd_client::EtcdError;
use gatepost_kube_support::KubeError;

/// Timeout of one read. With one read a second, four may fail or hang before the configuration is stale.
// Leaves a fifth of the second between two reads for everything else.
pub const READ_DEADLINE: Duration = Duration::from_millis(800);

/// Failure of a read. The configuration in force stays in force, and its age grows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// A path cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The path at fault.
        path: PathBuf,
        /// The operating system's words.
        cause: String,
    },
    /// Something other than a file bears the name of one.
    #[error("{} is not a regular file; configuration is read from files only", path.display())]
    NotAFile {
        /// The path at fault.
        path: PathBuf,
    },
    /// More than is plausible for a configuration.
    #[error("{} holds more than {limit} bytes of configuration; is this the right folder?", path.display())]
    TooLarge {
        /// The source.
        path: PathBuf,
        /// The limit in force.
        limit: u64,
    },
    /// Files changed under every attempt.
    #[error("{} kept changing while it was read; replace files by rename, or write less often", path.display())]
    Unsettled {
        /// The source.
        path: PathBuf,
    },
    /// The file system did not answer.
    #[error("no answer from the file system within {}; is a network mount down?", humantime::format_duration(*.0))]
    Hung(Duration),
    /// It was not read at all: reads before it hang, too many of them.
    #[error("not read: {0}")]
    NotBegun(ReadFailure),
    /// A store has answered, and there was no time left to take up what it holds.
    #[error(
        "what {store} holds could not be taken up within {}; it is too much for this machine, or the files below --files \
         are on a mount that is down",
        humantime::format_duration(*.within)
    )]
    Unfinished {
        /// The store.
        store: String,
        /// The time that a read has.
        within: Duration,
    },
    /// An apiserver cannot be asked, or says no.
    #[error("{0}; {fix}", fix = .0.fix())]
    Kube(#[from] KubeError),
    /// An etcd cluster cannot be asked, or says no.
    #[error("{0}; {fix}", fix = .0.fix())]
    Etcd(#[from] EtcdError),
    /// The kind of our configuration is not known there: nobody could have written one.
    #[error(
        "{store} does not know {resource}: the kind is not installed, and that is not taken for an empty configuration; \
         install it with `gatepost crd | kubectl apply -f -`"
    )]
    NotInstalled {
        /// The store.
        store: String,
        /// The resource, with its group.
        resource: String,
    },
    /// A store has gone back in time, as one does that was restored from a backup.
    #[error(
        "{store} is at revision {now} and has been at {before}: it was restored from a backup, or answers from the past; \
         restart gatepost if that is as it should be"
    )]
    WentBack {
        /// The store.
        store: String,
        /// The latest revision it has shown.
        before: u64,
        /// Revision it shows now.
        now: u64,
    },
    /// Another store answers than at the start.
    #[error(
        "{store} is another one than at the start ({found} instead of {known}); restart gatepost if that is as it should be"
    )]
    OtherStore {
        /// The store's address.
        store: String,
        /// Its identity at the start.
        known: String,
        /// Its identity now.
        found: String,
    },
    /// A replica that starts cannot serve what an apiserver counts on it for, and gives that back first.
    #[error(
        "{webhooks} cannot be served here and the apiserver may not call it yet: it is given back before a review is \
         accepted"
    )]
    GivesBack {
        /// Names of the webhooks.
        webhooks: String,
        /// Contents that were read: what they let past unasked is let past meanwhile.
        contents: Arc<Contents>,
    },
    /// Half an answer, or what no such store would say.
    #[error("the answer of {store} cannot be used: {cause}")]
    Garbled {
        /// The store.
        store: String,
        /// Fault that was found.
        cause: String,
    },
}

impl ReadError {
    /// One word for its kind: the bounded label of `gatepost_config_reads_total`, there with `failed_` before it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "unreadable",
            Self::NotAFile { .. } => "not_a_file",
            Self::TooLarge { .. } | Self::Kube(KubeError::TooLarge { .. }) => "too_large",
            Self::Unsettled { .. } => "unsettled",
            Self::Hung(_) | Self::NotBegun(_) | Self::Unfinished { .. } | Self::Kube(KubeError::Late { .. }) => "hung",
            Self::Kube(KubeError::Unreachable { .. }) => "unreachable",
            Self::Kube(KubeError::Access { .. } | KubeError::Refused { .. } | KubeError::Unwritten { .. }) => "refused",
            Self::Kube(KubeError::Nonsense { .. }) | Self::Garbled { .. } => "garbled",
            Self::Etcd(error) => of_etcd(error),
            Self::NotInstalled { .. } => "not_installed",
            Self::WentBack { .. } => "went_back",
            Self::OtherStore { .. } => "other_store",
            Self::GivesBack { .. } => "other",
        }
    }

    /// Contents that were read all the same. They may open what they say, and must decide nothing.
    pub fn contents(&self) -> Option<&Contents> {
        match self {
            Self::GivesBack { contents, .. } => Some(contents),
            _ => None,
        }
    }

    pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), cause: error.to_string() }
    }
}

impl From<ReadFailure> for ReadError {
    fn from(unread: ReadFailure) -> Self {
        match unread {
            ReadFailure::Late(within) => Self::Hung(within),
            unread => Self::NotBegun(unread),
        }
    }
}

fn of_etcd(error: &EtcdError) -> &'static str {
    match error {
        EtcdError::Late { .. } => "hung",
        EtcdError::Unreachable { .. } | EtcdError::NoLeader { .. } => "unreachable",
        EtcdError::TooLarge { .. } => "too_large",
        EtcdError::Nonsense { .. } => "garbled",
        EtcdError::All(errors) => errors.first().map_or("unreachable", of_etcd),
        EtcdError::Access { .. }
        | EtcdError::Tls(_)
        | EtcdError::Login { .. }
        | EtcdError::Unknown { .. }
        | EtcdError::Denied { .. }
        | EtcdError::NoLease { .. }
        | EtcdError::Refused { .. } => "refused",
    }
}

/// A file the configuration refers to, a certificate for instance: its content, or why there is none.
pub type Reference = Result<Bytes, (io::ErrorKind, String)>;

/// Result of one consistent read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The files, by name.
    pub files: Vec<SourceFile>,
    /// The files they refer to, by the path as written. An unreadable one is no failed read: `check` reports it.
    pub references: BTreeMap<String, Reference>,
    /// Notes of the source that are no problems, and should be known.
    pub notes: Vec<Note>,
    /// SHA-256 (hex) of all of the above: equal digests mean nothing changed.
    pub digest: String,
    /// Revision by the source's count in which these were first seen; the beginning of the digest where it counts
    /// nothing.
    pub revision: Revision,
    /// The store's revision when it was last seen to hold exactly this, where it has one.
    pub as_of: Option<u64>,
}

impl Contents {
    /// Contents of these files and references, with their digest.
    pub fn new(files: Vec<SourceFile>, references: BTreeMap<String, Reference>) -> Self {
        Self::with_pauses(files, references, NO_PAUSE)
    }

    /// The same, with a pause after each file.
    pub(super) fn with_pauses(
        files: Vec<SourceFile>,
        references: BTreeMap<String, Reference>,
        pause: Pause<'_>,
    ) -> Self {
        let digest = digest(&files, &references, &[], pause);
        Self { files, references, notes: Vec::new(), revision: Revision::of_digest(&digest), as_of: None, digest }
    }

    /// The same, with something to be known of them.
    #[must_use]
    pub fn noted(mut self, notes: Vec<Note>) -> Self {
        self.digest = digest(&self.files, &self.references, &notes, NO_PAUSE);
        self.revision = Revision::of_digest(&self.digest);
        self.notes = notes;
        self
    }

    /// The same, from a store that was at that revision.
    #[must_use]
    pub fn at(mut self, revision: u64) -> Self {
        self.revision = Revision::Store(revision);
        self.as_of = Some(revision);
        self
    }

    /// Does the source read states that somebody has stored as a whole? Then what it does not hold was removed on
    /// purpose; a file may just be half written.
    pub fn is_transactional(&self) -> bool {
        self.as_of.is_some()
    }

    /// A reference's content, in the form [`gatepost_config::load`] asks for it.
    ///
    /// # Errors
    /// The error met when the reference was read; `NotFound` for a path nobody referred to then.
    pub fn reference(&self, written: &str) -> io::Result<Vec<u8>> {
        match self.references.get(written) {
            Some(Ok(bytes)) => Ok(bytes.to_vec()),
            Some(Err((kind, cause))) => Err(io::Error::new(*kind, cause.clone())),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "it was not there when the configuration was read")),
        }
    }
}

fn digest(files: &[SourceFile], references: &BTreeMap<String, Reference>, notes: &[Note], pause: Pause<'_>) -> String {
    let mut sha = Sha256::new();
    // Every part goes in with its length before it, so that no two different contents read the same.
    let mut part = |bytes: &[u8]| {
        sha.update((bytes.len() as u64).to_be_bytes());
        sha.update(bytes);
    };
    part(&(files.len() as u64).to_be_bytes());
    for file in files {
        part(file.name.as_bytes());
        part(&file.bytes);
        pause();
    }
    for (written, reference) in references {
        part(written.as_bytes());
        match reference {
            Ok(bytes) => part(bytes),
            Err((_, cause)) => {
                part(b"unreadable");
                part(cause.as_bytes());
            }
        }
    }
    for note in notes {
        part(note.to_string().as_bytes());
    }
    use std::fmt::Write;
    sha.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(files: &[(&str, &str)], references: &[(&str, &str)]) -> Contents {
        let file = |(name, text): &(&str, &str)| SourceFile {
            name: (*name).to_owned(),
            bytes: Bytes::copy_from_slice(text.as_bytes()),
        };
        let reference = |(name, text): &(&str, &str)| {
            let read: Reference = match *text {
                "" => Err((io::ErrorKind::NotFound, "no such file".to_owned())),
                text => Ok(Bytes::copy_from_slice(text.as_bytes())),
            };
            ((*name).to_owned(), read)
        };
        Contents::new(files.iter().map(file).collect(), references.iter().map(reference).collect())
    }

    #[test]
    fn the_digest_differs_with_every_difference() {
        let all = [
            contents(&[], &[]),
            contents(&[("a", "bc")], &[]),
            contents(&[("ab", "c")], &[]),
            contents(&[("a", "b"), ("c", "")], &[]),
            contents(&[("a", "bc")], &[("ca.pem", "x")]),
            contents(&[("a", "bc")], &[("ca.pem", "y")]),
            contents(&[("a", "bc")], &[("ca.pem", "")]),
        ];
        for (i, one) in all.iter().enumerate() {
            for other in &all[i + 1..] {
                assert_ne!(one.digest, other.digest, "{one:?} and {other:?}");
            }
        }
        assert_eq!(all[1].digest, contents(&[("a", "bc")], &[]).digest);
        assert_eq!(all[0].digest.len(), 64);
    }
}
