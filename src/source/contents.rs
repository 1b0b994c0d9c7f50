//! Contents: result of one consistent read.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
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

/// Timeout of one read. With one read a second, four can fail or hang before the configuration is stale.
// Leaves 200 ms of each second for everything else.
pub const READ_TIMEOUT: Duration = Duration::from_millis(800);

/// Failure of a read. The configuration in force stays in force, and its age grows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// A path cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// Path that cannot be read.
        path: PathBuf,
        /// Error of the operating system.
        cause: String,
    },
    /// A path is no regular file.
    #[error("{} is not a regular file; configuration is read from files only", .0.display())]
    NotAFile(PathBuf),
    /// The configuration is larger than any plausible one.
    #[error("{} holds more than {limit} bytes of configuration; is this the right folder?", path.display())]
    TooLarge {
        /// Path of the source.
        path: PathBuf,
        /// Maximum size in bytes.
        limit: u64,
    },
    /// Files changed during every attempt.
    #[error("{} kept changing while it was read; replace files by rename, or write less often", .0.display())]
    Unsettled(PathBuf),
    /// The file system did not answer within this time.
    #[error("no answer from the file system within {}; is a network mount down?", humantime::format_duration(*.0))]
    Hung(Duration),
    /// Nothing was read: too many earlier reads hang, or the read panicked.
    #[error("not read: {0}")]
    NotBegun(ReadFailure),
    /// A store answered, and its answer could not be processed in time.
    #[error(
        "what {store} holds could not be taken up within {}; it is too much for this machine, or the files below --files \
         are on a mount that is down",
        humantime::format_duration(*.within)
    )]
    Unfinished {
        /// Store, with its address.
        store: String,
        /// Timeout of the read.
        within: Duration,
    },
    /// The apiserver cannot be reached, or rejects the request.
    #[error("{0}; {fix}", fix = .0.fix())]
    Kube(#[from] KubeError),
    /// The etcd cluster cannot be reached, or rejects the request.
    #[error("{0}; {fix}", fix = .0.fix())]
    Etcd(#[from] EtcdError),
    /// The cluster does not know the kind of our configuration, so it cannot have any.
    #[error(
        "{store} does not know {resource}: the kind is not installed, and that is not taken for an empty configuration; \
         install it with `gatepost crd | kubectl apply -f -`"
    )]
    NotInstalled {
        /// Address of the apiserver.
        store: String,
        /// Resource, with its group.
        resource: String,
    },
    /// The revision of a store has decreased, as after a restore from a backup.
    #[error(
        "{store} is at revision {now} and has been at {before}: it was restored from a backup, or answers from the past; \
         restart gatepost if that is as it should be"
    )]
    WentBack {
        /// Store, with its address.
        store: String,
        /// Latest revision seen before.
        before: u64,
        /// Revision of this read.
        now: u64,
    },
    /// Another store answered than at the start.
    #[error(
        "{store} is another one than at the start ({found} instead of {known}); restart gatepost if that is as it should be"
    )]
    OtherStore {
        /// Address of the store.
        store: String,
        /// Identity of the store at the start.
        known: String,
        /// Identity of the store in this read.
        found: String,
    },
    /// A starting replica cannot serve webhooks that an apiserver relies on, and gives these back first.
    #[error(
        "{webhooks} cannot be served here and the apiserver may not call it yet: it is given back before a review is \
         accepted"
    )]
    GivesBack {
        /// Names of the webhooks.
        webhooks: String,
        /// Contents of the read. Their bypass rules and break-glass apply already.
        contents: Arc<Contents>,
    },
    /// The answer is incomplete or invalid.
    #[error("the answer of {store} cannot be used: {cause}")]
    Garbled {
        /// Store, with its address.
        store: String,
        /// Fault of the answer.
        cause: String,
    },
}

impl ReadError {
    /// Returns the kind of the error: the label of `gatepost_config_reads_total`, without its prefix `failed_`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "unreadable",
            Self::NotAFile(_) => "not_a_file",
            Self::TooLarge { .. } | Self::Kube(KubeError::TooLarge { .. }) => "too_large",
            Self::Unsettled(_) => "unsettled",
            Self::Hung(_) | Self::NotBegun(_) | Self::Unfinished { .. } | Self::Kube(KubeError::TimedOut { .. }) => {
                "hung"
            }
            Self::Kube(KubeError::Unreachable { .. }) => "unreachable",
            Self::Kube(KubeError::Access { .. } | KubeError::Refused { .. } | KubeError::WriteRefused { .. }) => {
                "refused"
            }
            Self::Kube(KubeError::InvalidResponse { .. }) | Self::Garbled { .. } => "garbled",
            Self::Etcd(error) => etcd_error_kind(error),
            Self::NotInstalled { .. } => "not_installed",
            Self::WentBack { .. } => "went_back",
            Self::OtherStore { .. } => "other_store",
            Self::GivesBack { .. } => "other",
        }
    }

    /// Returns contents that were read nevertheless: their bypass rules and break-glass apply, and nothing else.
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

fn etcd_error_kind(error: &EtcdError) -> &'static str {
    match error {
        EtcdError::TimedOut { .. } => "hung",
        EtcdError::Unreachable { .. } | EtcdError::NoLeader { .. } => "unreachable",
        EtcdError::TooLarge { .. } => "too_large",
        EtcdError::InvalidResponse { .. } => "garbled",
        EtcdError::All(errors) => errors.first().map_or("unreachable", etcd_error_kind),
        EtcdError::Access { .. }
        | EtcdError::Tls(_)
        | EtcdError::Login { .. }
        | EtcdError::UserRequired { .. }
        | EtcdError::Denied { .. }
        | EtcdError::NoLease { .. }
        | EtcdError::Refused { .. } => "refused",
    }
}

/// Content of a file that the configuration refers to, such as a certificate, or why it cannot be read.
pub type Reference = Result<Bytes, (io::ErrorKind, String)>;

/// Result of one consistent read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Files, by name.
    pub files: Vec<SourceFile>,
    /// Files that the documents refer to, by path as written. `check` reports unreadable ones; the read does not fail.
    pub references: BTreeMap<String, Reference>,
    /// Notes of the source: no problems, but operators should know of them.
    pub notes: Vec<Note>,
    /// SHA-256 (hex) of the fields above: equal digests are equal contents.
    pub digest: String,
    /// Store's revision in which these contents were first seen; the prefix of the digest if the source has no
    /// revisions.
    pub revision: Revision,
    /// Store's revision of the last read that found these contents; `None` if the source has no revisions.
    pub as_of: Option<u64>,
}

impl Contents {
    /// Creates contents from these files and references, with their digest.
    pub fn new(files: Vec<SourceFile>, references: BTreeMap<String, Reference>) -> Self {
        Self::with_pauses(files, references, NO_PAUSE)
    }

    /// Like [`Contents::new`], with a pause after each file.
    pub(super) fn with_pauses(
        files: Vec<SourceFile>,
        references: BTreeMap<String, Reference>,
        pause: Pause<'_>,
    ) -> Self {
        let digest = digest(&files, &references, &[], pause);
        Self { files, references, notes: Vec::new(), revision: Revision::of_digest(&digest), as_of: None, digest }
    }

    /// Adds notes, which change digest and revision.
    #[must_use]
    pub fn noted(mut self, notes: Vec<Note>) -> Self {
        self.digest = digest(&self.files, &self.references, &notes, NO_PAUSE);
        self.revision = Revision::of_digest(&self.digest);
        self.notes = notes;
        self
    }

    /// Sets the store's revision of the read.
    #[must_use]
    pub fn with_revision(mut self, revision: u64) -> Self {
        self.revision = Revision::Store(revision);
        self.as_of = Some(revision);
        self
    }

    /// Returns true if the source has transactions: missing documents were removed on purpose. Files may be half
    /// written.
    pub fn is_transactional(&self) -> bool {
        self.as_of.is_some()
    }

    /// Returns the content of a reference, as [`gatepost_config::load`] requests it.
    ///
    /// # Errors
    /// The error of reading the reference; `NotFound` if the contents did not refer to that path.
    pub fn reference(&self, written: &str) -> io::Result<Vec<u8>> {
        match self.references.get(written) {
            Some(Ok(bytes)) => Ok(bytes.to_vec()),
            Some(Err((kind, cause))) => Err(io::Error::new(*kind, cause.clone())),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "it was not there when the configuration was read")),
        }
    }
}

fn digest(files: &[SourceFile], references: &BTreeMap<String, Reference>, notes: &[Note], pause: Pause<'_>) -> String {
    let mut digest = PartsDigest::default();
    digest.part((files.len() as u64).to_be_bytes());
    for file in files {
        digest.part(&file.name);
        digest.part(&file.bytes);
        pause();
    }
    for (written, reference) in references {
        digest.part(written);
        match reference {
            Ok(bytes) => digest.part(bytes),
            Err((_, cause)) => {
                digest.part("unreadable");
                digest.part(cause);
            }
        }
    }
    notes.iter().for_each(|note| digest.part(note.to_string()));
    digest.hex()
}

/// SHA-256 of a sequence of parts. The length of each part comes first, so that different sequences have different
/// digests.
#[derive(Default)]
pub(crate) struct PartsDigest(pub(in crate::source) Sha256);

impl PartsDigest {
    pub(crate) fn part(&mut self, part: impl AsRef<[u8]>) {
        let bytes = part.as_ref();
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    pub(crate) fn hex(self) -> String {
        hex(&self.0.finalize())
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut hex, byte| {
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
