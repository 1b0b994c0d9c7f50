//! Last good file: the configuration in force, on disk, for a start that finds an invalid one or none. This module
//! reads and writes the file; `runtime::last_good` decides when to, and uses the configuration at the start.
//!
//! The file contains everything required to check and compile the configuration again: documents, and the files that
//! they refer to. These include private keys, so only the owner may read the file.
//!
//! ```text
//! gatepost last good configuration 1              magic, and version of the format
//! <SHA-256 of the body> <its length>
//! <boot id> <CLOCK_BOOTTIME> <check>              start of the last read with this state; overwritten in place
//! {"written": …, "documents": […]}                body
//! ```

use std::{
    collections::BTreeMap,
    fmt,
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

use super::{break_glass::effective_user, contents::hex};
use gatepost_base::{clock::BootMoment, files};
use gatepost_config::{LastGoodDocuments, SourceFile};

const MAGIC: &str = "gatepost last good configuration ";
/// Version of the format that is written, and the latest that is read.
const VERSION: u64 = 1;
/// Maximum size in bytes: 64 MiB of documents, and as much of files that they refer to, in base64.
const LIMIT: u64 = 192 << 20;
/// Length of the third line in bytes.
const CONFIRMATION_LEN: usize = 36 + 1 + 20 + 1 + 16 + 1;

/// Reason why a file is not used or not written: its path, the problem, and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} {what}")]
pub struct LastGoodError {
    path: String,
    what: String,
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
    /// Returns [`LastGoodError`].
    pub fn check_folder(&self) -> Result<(), LastGoodError> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match fs::metadata(folder) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(self.unwritable(format_args!("{} is not a folder", folder.display()))),
            Err(error) => Err(self.unwritable(format_args!("its folder {}: {error}", folder.display()))),
        }
    }

    fn error(&self, what: impl Into<String>) -> LastGoodError {
        LastGoodError { path: self.shown(), what: what.into() }
    }

    fn unwritable(&self, cause: impl fmt::Display) -> LastGoodError {
        self.error(format!("cannot be written: {cause}"))
    }

    /// Reads the file; `None` if it does not exist. Blocks.
    ///
    /// # Errors
    /// [`LastGoodError`]; the file is not used.
    pub fn read(&self) -> Result<Option<LastGood>, LastGoodError> {
        let unreadable = |error: io::Error| self.error(format!("cannot be read: {error}"));
        let (file, opened) = match files::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(unreadable)?,
        };
        let (mode, owner) = (opened.mode() & 0o7777, opened.uid());
        if mode & 0o077 != 0 {
            return Err(self.error(format!(
                "has mode {mode:04o}, and may be read or written by others: it holds private keys; chmod 0600 it"
            )));
        }
        if owner != 0 && owner != effective_user() {
            return Err(self.error(format!(
                "belongs to user {owner}, who is neither root nor the user that gatepost runs as; chown or remove it"
            )));
        }
        let bytes = files::read_opened(file, opened.len(), LIMIT).map_err(unreadable)?;
        self.parsed(&bytes).map(Some)
    }

    fn parsed(&self, bytes: &[u8]) -> Result<LastGood, LastGoodError> {
        let damaged = |what| self.error(format!("is truncated or damaged: {what}; remove it"));
        let foreign = || self.error("holds no last good configuration of gatepost; name another path, or remove it");
        let rest = bytes.strip_prefix(MAGIC.as_bytes()).ok_or_else(foreign)?;
        let (version, rest) = line(rest).ok_or_else(|| damaged("it ends too soon"))?;
        match version.parse() {
            Ok(VERSION) => {}
            Ok(found) if found > VERSION => {
                return Err(self.error(format!(
                    "was written by a later gatepost (its form is {found}, this one reads {VERSION}); remove it, or upgrade"
                )));
            }
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
            let (found, wanted) = (&body.source, &self.source);
            return Err(self.error(format!(
                "is of {found}, and the configuration is read from {wanted}; name another path, or remove it"
            )));
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
        let body = serde_json::to_vec(&body).map_err(|error| self.unwritable(error))?;
        let head = format!("{MAGIC}{VERSION}\n{} {}\n{}", hex(&Sha256::digest(&body)), body.len(), confirmation(read));
        let size = head.len() + body.len();
        if size as u64 > LIMIT {
            let what = format!("is not written: the configuration takes {size} bytes there, and {LIMIT} are the most");
            return Err(self.error(what));
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
            self.unwritable(error)
        })
    }

    /// Records that a read with this start has found the source in the same state. Writes in place, without syncing:
    /// the record has no meaning after a reboot.
    ///
    /// # Errors
    /// Returns [`LastGoodError`].
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
        confirming().map_err(|error: io::Error| self.unwritable(error))
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

#[cfg(test)]
mod tests;
