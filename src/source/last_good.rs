//! Last good file: the configuration in force, on disk, for a start that finds an invalid one or none. This module
//! reads and writes the file; `runtime::last_good` decides when to, and uses the configuration at the start.
//!
//! The file contains what is needed to check and compile the configuration again: documents, and the files that they
//! refer to. These include private keys, so only the owner may read the file.
//!
//! ```text
//! gatepost last good configuration 1              magic, and version of the format
//! <SHA-256 of the body> <its length>
//! <boot id> <CLOCK_BOOTTIME> <check>              start of the last read with this state; overwritten in place
//! {"written": …, "documents": […]}                body
//! ```

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::guarded::effective_user;
use gatepost_base::{clock::BootMoment, files};
use gatepost_config::{LastGoodDocuments, SourceFile};

const MAGIC: &str = "gatepost last good configuration ";
/// Version of the format that is written, and the latest that is read.
const VERSION: u64 = 1;
/// Maximum size in bytes: 64 MiB of documents, and as much of files that they refer to, in base64.
const LIMIT: u64 = 192 << 20;
/// Length of the third line in bytes.
const CONFIRMATION_LEN: usize = 36 + 1 + 20 + 1 + 16 + 1;

/// Reason why a file is not used or not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LastGoodError {
    /// The file cannot be read.
    #[error("{path} cannot be read: {cause}")]
    Unreadable {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        cause: String,
    },
    /// Other users can read the keys in the file, or might have written it.
    #[error("{path} has mode {mode:04o}, and may be read or written by others: it holds private keys; chmod 0600 it")]
    Open {
        /// Path of the file.
        path: String,
        /// Permission bits of the file.
        mode: u32,
    },
    /// Another user owns the file, and might have written it.
    #[error(
        "{path} belongs to user {owner}, who is neither root nor the user that gatepost runs as; chown or remove it"
    )]
    Owner {
        /// Path of the file.
        path: String,
        /// Uid of the owner.
        owner: u32,
    },
    /// The file has another format.
    #[error("{0} holds no last good configuration of gatepost; name another path, or remove it")]
    Foreign(String),
    /// A later version of Gatepost wrote the file.
    #[error(
        "{path} was written by a later gatepost (its form is {found}, this one reads {VERSION}); remove it, or upgrade"
    )]
    Newer {
        /// Path of the file.
        path: String,
        /// Version of the file's format.
        found: u64,
    },
    /// The file is truncated or damaged.
    #[error("{path} is truncated or damaged: {what}; remove it")]
    Damaged {
        /// Path of the file.
        path: String,
        /// Description of the damage.
        what: &'static str,
    },
    /// The configuration in the file is from another source.
    #[error("{path} is of {found}, and the configuration is read from {wanted}; name another path, or remove it")]
    OtherSource {
        /// Path of the file.
        path: String,
        /// Source of the configuration in the file.
        found: String,
        /// Source in the settings.
        wanted: String,
    },
    /// The file cannot be written.
    #[error("{path} cannot be written: {cause}")]
    Unwritable {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        cause: String,
    },
    /// The configuration is too large for the file.
    #[error("{path} is not written: the configuration takes {size} bytes there, and {LIMIT} are the most")]
    TooLarge {
        /// Path of the file.
        path: String,
        /// Size in bytes that the file would have.
        size: usize,
    },
}

/// Body of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    written: String,
    source: String,
    digest: String,
    revision: String,
    documents: Vec<StoredDocument>,
}

/// Document in the body; contents are in base64.
#[derive(Debug, Serialize, Deserialize)]
struct StoredDocument {
    name: String,
    bytes: String,
    #[serde(default)]
    references: BTreeMap<String, String>,
}

/// Document, and the files that it refers to, by path.
pub type SavedDocument = (SourceFile, BTreeMap<String, Bytes>);

/// Configuration that was read from the file.
#[derive(Debug)]
pub struct LastGood {
    /// Time at which the file was written.
    pub written: SystemTime,
    /// Digest of the configuration.
    pub digest: String,
    /// Revision of the configuration.
    pub revision: String,
    /// Time since the start of the last read that found the source in this state; `None` if unknown, as after a reboot.
    pub age: Option<Duration>,
    /// Documents of the configuration.
    pub documents: Vec<SavedDocument>,
}

/// File for the last good configuration of one source.
#[derive(Clone, Debug)]
pub struct LastGoodFile {
    path: PathBuf,
    source: String,
}

impl LastGoodFile {
    /// Creates the handle of the file at `path`, for the configuration of `source`. Writes nothing.
    pub fn new(path: PathBuf, source: String) -> Self {
        Self { path, source }
    }

    /// Returns the path for display.
    pub fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// Checks that the file's folder exists. Blocks.
    ///
    /// # Errors
    /// [`LastGoodError::Unwritable`].
    pub fn check_folder(&self) -> Result<(), LastGoodError> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let unwritable = |cause: String| LastGoodError::Unwritable { path: self.shown(), cause };
        match fs::metadata(folder) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(unwritable(format!("{} is not a folder", folder.display()))),
            Err(error) => Err(unwritable(format!("its folder {}: {error}", folder.display()))),
        }
    }

    /// Reads the file; `None` if it does not exist. Blocks.
    ///
    /// # Errors
    /// [`LastGoodError`]; the file is not used.
    pub fn read(&self) -> Result<Option<LastGood>, LastGoodError> {
        let path = self.shown();
        let unreadable = |error: io::Error| LastGoodError::Unreadable { path: path.clone(), cause: error.to_string() };
        let (file, opened) = match files::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(unreadable)?,
        };
        let (mode, owner) = (opened.mode() & 0o7777, opened.uid());
        if mode & 0o077 != 0 {
            return Err(LastGoodError::Open { path, mode });
        }
        if owner != 0 && owner != effective_user() {
            return Err(LastGoodError::Owner { path, owner });
        }
        let bytes = files::read_opened(file, opened.len(), LIMIT).map_err(unreadable)?;
        self.parsed(&bytes).map(Some)
    }

    fn parsed(&self, bytes: &[u8]) -> Result<LastGood, LastGoodError> {
        let path = self.shown();
        let damaged = |what| LastGoodError::Damaged { path: path.clone(), what };
        let Some(rest) = bytes.strip_prefix(MAGIC.as_bytes()) else { return Err(LastGoodError::Foreign(path)) };
        let (version, rest) = line(rest).ok_or_else(|| damaged("it ends too soon"))?;
        match version.parse() {
            Ok(VERSION) => {}
            Ok(found) if found > VERSION => return Err(LastGoodError::Newer { path, found }),
            _ => return Err(damaged("its version is not a number")),
        }
        let (check, rest) = line(rest).ok_or_else(|| damaged("it ends too soon"))?;
        let (confirmed, body) = rest.split_at_checked(CONFIRMATION_LEN).ok_or_else(|| damaged("it ends too soon"))?;
        let (digest, length) = check.split_once(' ').ok_or_else(|| damaged("its second line is not as written"))?;
        if length.parse() != Ok(body.len()) {
            return Err(damaged("it is not as long as it says"));
        }
        if digest != hex(&Sha256::digest(body)) {
            return Err(damaged("its digest is another one"));
        }
        let body: Body = serde_json::from_slice(body).map_err(|_| damaged("it is not as written"))?;
        if body.source != self.source {
            return Err(LastGoodError::OtherSource { path, found: body.source, wanted: self.source.clone() });
        }
        let document = |stored: StoredDocument| {
            let decoded = |text: String| STANDARD.decode(text).map(Bytes::from).ok();
            let references = stored.references.into_iter().map(|(path, text)| Some((path, decoded(text)?)));
            let file = SourceFile { name: stored.name, bytes: decoded(stored.bytes)? };
            Some((file, references.collect::<Option<_>>()?))
        };
        let documents: Option<Vec<_>> = body.documents.into_iter().map(document).collect();
        Ok(LastGood {
            written: humantime::parse_rfc3339(&body.written).map_err(|_| damaged("it is not dated"))?,
            digest: body.digest,
            revision: body.revision,
            age: parse_confirmation(confirmed).and_then(BootMoment::age),
            documents: documents.ok_or_else(|| damaged("a document is not as written"))?,
        })
    }

    /// Replaces the file atomically: a reader finds the old or the new one, whole, even after a power failure. Blocks.
    ///
    /// # Errors
    /// [`LastGoodError`]; the old file stays, unless only the last step, syncing the folder, has failed.
    pub fn write(
        &self,
        kept: &LastGoodDocuments,
        digest: &str,
        revision: &str,
        read: BootMoment,
    ) -> Result<(), LastGoodError> {
        let path = self.shown();
        let unwritable = |error: io::Error| LastGoodError::Unwritable { path: path.clone(), cause: error.to_string() };
        let encoded = |bytes: &Bytes| STANDARD.encode(bytes);
        let documents = kept.parts().map(|part| StoredDocument {
            name: part.file().name.clone(),
            bytes: encoded(&part.file().bytes),
            references: part.references().iter().map(|(path, bytes)| (path.clone(), encoded(bytes))).collect(),
        });
        let body = Body {
            written: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            source: self.source.clone(),
            digest: digest.to_owned(),
            revision: revision.to_owned(),
            documents: documents.collect(),
        };
        let body = serde_json::to_vec(&body).map_err(|error| unwritable(error.into()))?;
        let head = format!("{MAGIC}{VERSION}\n{} {}\n{}", hex(&Sha256::digest(&body)), body.len(), confirmation(read));
        let size = head.len() + body.len();
        if size as u64 > LIMIT {
            return Err(LastGoodError::TooLarge { path, size });
        }
        // In the same folder, or it could not be renamed. The fixed name leaves at most one file after crashes.
        let mut beside = self.path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let written = write_beside(&beside, &[head.as_bytes(), &body]).and_then(|()| {
            fs::rename(&beside, &self.path)?;
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        });
        written.map_err(|error| {
            let _ = fs::remove_file(&beside);
            unwritable(error)
        })
    }

    /// Records that a read with this start has found the source in the same state. Writes in place, without syncing:
    /// the record has no meaning after a reboot.
    ///
    /// # Errors
    /// [`LastGoodError::Unwritable`].
    pub fn confirm(&self, read: BootMoment) -> Result<(), LastGoodError> {
        let confirming = || {
            let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
            let mut head = [0; 256];
            let length = file.read_at(&mut head, 0)?;
            let mut lines = head[..length].iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            let (_, second) = (lines.next(), lines.next());
            let (at, _) = second.ok_or(io::ErrorKind::InvalidData)?;
            file.write_all_at(confirmation(read).as_bytes(), at as u64 + 1)
        };
        confirming()
            .map_err(|error: io::Error| LastGoodError::Unwritable { path: self.shown(), cause: error.to_string() })
    }
}

fn write_beside(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_all()
}

fn line(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().take(256).position(|byte| *byte == b'\n')?;
    Some((str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 1..]))
}

/// Returns the third line.
fn confirmation(read: BootMoment) -> String {
    let text = format!("{:<36.36} {:020}", read.boot, read.nanos);
    format!("{text} {:.16}\n", hex(&Sha256::digest(&text)))
}

/// Parses the third line; `None` if it is half written.
fn parse_confirmation(line: &[u8]) -> Option<BootMoment> {
    let line = str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (text, check) = line.rsplit_once(' ')?;
    let (boot, nanos) = text.rsplit_once(' ')?;
    let whole = hex(&Sha256::digest(text)).get(..16) == Some(check);
    whole.then_some(BootMoment { boot: boot.trim_end().to_owned(), nanos: nanos.parse().ok()? })
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests;
