//! LastGood: the configuration in force on this machine's disk, for a start that finds a worse one or none.
//!
//! It holds what is needed to check and compile it again: the documents, and what the files hold that they refer to.
//! Private keys are among these, so that only its owner may read it.
//!
//! ```text
//! gatepost last good configuration 1              what it is, and the version of this form
//! <SHA-256 of the body> <its length>
//! <boot id> <CLOCK_BOOTTIME> <check>              when the source was last read and found to say so; written in place
//! {"written": …, "documents": […]}                the body
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

use super::guarded::our_user;
use gatepost_base::{clock::BootMoment, files};
use gatepost_config::{LastGoodDocuments, SourceFile};

const MAGIC: &str = "gatepost last good configuration ";
/// The version of the form that is written, and the latest that is read.
const VERSION: u64 = 1;
/// A source holds 64 MiB of documents at most, and as much again of files that they refer to; in base64.
const LIMIT: u64 = 192 << 20;
/// Bytes of the third line.
const CONFIRMED: usize = 36 + 1 + 20 + 1 + 16 + 1;

/// Reason why a file is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LastGoodError {
    /// It cannot be read.
    #[error("{path} cannot be read: {cause}")]
    Unreadable {
        /// The file.
        path: String,
        /// The operating system's words.
        cause: String,
    },
    /// Others can read the keys in it, or have written it.
    #[error("{path} has mode {mode:04o}, and may be read or written by others: it holds private keys; chmod 0600 it")]
    Open {
        /// The file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// Somebody else may have written it.
    #[error(
        "{path} belongs to user {owner}, who is neither root nor the user that gatepost runs as; chown or remove it"
    )]
    Owner {
        /// The file.
        path: String,
        /// The owner's number.
        owner: u32,
    },
    /// It is something else.
    #[error("{0} holds no last good configuration of gatepost; name another path, or remove it")]
    Foreign(String),
    /// A later version wrote it.
    #[error(
        "{path} was written by a later gatepost (its form is {found}, this one reads {VERSION}); remove it, or upgrade"
    )]
    Newer {
        /// The file.
        path: String,
        /// The version of its form.
        found: u64,
    },
    /// It was cut, or changed.
    #[error("{path} is truncated or damaged: {what}; remove it")]
    Damaged {
        /// The file.
        path: String,
        /// Field that does not fit.
        what: &'static str,
    },
    /// It is of another configuration.
    #[error("{path} is of {found}, and the configuration is read from {wanted}; name another path, or remove it")]
    OtherSource {
        /// The file.
        path: String,
        /// Source it was read from.
        found: String,
        /// Source in the settings.
        wanted: String,
    },
    /// It cannot be written.
    #[error("{path} cannot be written: {cause}")]
    Unwritable {
        /// The file.
        path: String,
        /// The operating system's words.
        cause: String,
    },
    /// There is more than is kept.
    #[error("{path} is not written: the configuration takes {size} bytes there, and {LIMIT} are the most")]
    TooLarge {
        /// The file.
        path: String,
        /// Bytes that it would take.
        size: usize,
    },
}

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    written: String,
    source: String,
    digest: String,
    revision: String,
    documents: Vec<StoredDocument>,
}

/// One document.
#[derive(Debug, Serialize, Deserialize)]
struct StoredDocument {
    name: String,
    bytes: String,
    #[serde(default)]
    references: BTreeMap<String, String>,
}

/// A document and the files that it refers to.
pub type SavedDocument = (SourceFile, BTreeMap<String, Bytes>);

/// A configuration that was found on disk.
#[derive(Debug)]
pub struct LastGood {
    /// Time at which it was put in force.
    pub written: SystemTime,
    /// Digest of what was in force.
    pub digest: String,
    /// The name of that state.
    pub revision: String,
    /// Time since the source was last read and found in that state; `None` where it is unknown, as the machine was
    /// started anew.
    pub age: Option<Duration>,
    /// Its documents.
    pub documents: Vec<SavedDocument>,
}

/// The file.
#[derive(Clone, Debug)]
pub struct LastGoodFile {
    path: PathBuf,
    source: String,
}

impl LastGoodFile {
    /// At that path, of what is read from that source.
    pub fn new(path: PathBuf, source: String) -> Self {
        Self { path, source }
    }

    /// Its name.
    pub fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// Is its folder there, to be written into? Blocks.
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn check_folder(&self) -> Result<(), LastGoodError> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let unwritable = |cause: String| LastGoodError::Unwritable { path: self.shown(), cause };
        match fs::metadata(folder) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(unwritable(format!("{} is not a folder", folder.display()))),
            Err(error) => Err(unwritable(format!("its folder {}: {error}", folder.display()))),
        }
    }

    /// Content of the file; `None` where there is none. Blocks.
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
        if owner != 0 && owner != our_user() {
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
        let (confirmed, body) = rest.split_at_checked(CONFIRMED).ok_or_else(|| damaged("it ends too soon"))?;
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
            age: confirmed_at(confirmed).and_then(BootMoment::age),
            documents: documents.ok_or_else(|| damaged("a document is not as written"))?,
        })
    }

    /// Puts it in the place of the former one, at once: whoever reads finds the one or the other, whole, also after the
    /// power has failed. Blocks.
    ///
    /// # Errors
    /// [`LastGoodError`]; the former file stays, unless only the last step, syncing the folder, has failed.
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
        let head = format!("{MAGIC}{VERSION}\n{} {}\n{}", hex(&Sha256::digest(&body)), body.len(), confirmed(read));
        let size = head.len() + body.len();
        if size as u64 > LIMIT {
            return Err(LastGoodError::TooLarge { path, size });
        }
        // In the same folder, or it could not be renamed; by one name, so that none is left behind for each crash.
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

    /// The source still says so, as of that moment. In place and without waiting for the disk: it counts only until the
    /// machine ends.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn confirm(&self, read: BootMoment) -> Result<(), LastGoodError> {
        let confirming = || {
            let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
            let mut head = [0; 256];
            let length = file.read_at(&mut head, 0)?;
            let mut lines = head[..length].iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            let (_, second) = (lines.next(), lines.next());
            let (at, _) = second.ok_or(io::ErrorKind::InvalidData)?;
            file.write_all_at(confirmed(read).as_bytes(), at as u64 + 1)
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

/// The third line.
fn confirmed(read: BootMoment) -> String {
    let text = format!("{:<36.36} {:020}", read.boot, read.nanos);
    format!("{text} {:.16}\n", hex(&Sha256::digest(&text)))
}

/// `None` where it was half written.
fn confirmed_at(line: &[u8]) -> Option<BootMoment> {
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
