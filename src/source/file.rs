//! Source: a file, or the files of a folder, and the files that they refer to.

use std::{
    collections::{BTreeSet, HashMap},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime},
};

use super::{
    contents::{Contents, ReadError, Reference},
    references::{self, MAX_BYTES},
};
use gatepost_base::{clock::Pauses, files};
use gatepost_config::{Pause, SourceFile};

/// Time without writes after which a file counts as completely written. Until then the read is retried.
const SETTLE: Duration = Duration::from_millis(25);
/// Pause between two attempts at a consistent read.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Time for which one read yields to reviews between its steps; a fraction of its deadline.
const MAX_YIELD_TIME: Duration = Duration::from_millis(100);
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Source of a file, or of the `.yaml`, `.yml` and `.json` files directly in a folder, in the order of their names.
///
/// Folders and names that begin with a dot are skipped, so that a mounted ConfigMap (files that are links through
/// `..data`) reads as the files it shows. Paths in the configuration are relative to the folder.
#[derive(Clone, Debug)]
pub struct FileSource {
    path: PathBuf,
    last: Arc<Mutex<ReadState>>,
}

/// State kept between reads. A read takes `last` and puts it back, unless another read has begun since. So the read
/// after one that hangs begins without state, and the late result of that read is dropped.
#[derive(Debug, Default)]
struct ReadState {
    last: LastRead,
    /// Number of reads begun.
    begun: u64,
}

/// References that contents with this digest make, so that the next read can stamp and read them with the files.
#[derive(Debug, Default)]
struct LastRead {
    digest: String,
    references: BTreeSet<String>,
    /// Stamps of the files and references in the last consistent read.
    stamps: Vec<Stamp>,
    known: gatepost_config::LoadCache,
}

/// Identity of a file's version, from its metadata.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    /// Length, modification time (s, ns), inode, device; `None` if there is no such file.
    seen: Option<(u64, i64, i64, u64, u64)>,
}

impl FileSource {
    /// Creates the source of the file or folder at `path`; reads nothing yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), last: Arc::default() }
    }

    /// Returns the path of the file or folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads files and references consistently: listing and stamps must be the same before and after. Retries until the
    /// time `deadline` is used up.
    ///
    /// # Errors
    /// [`ReadError`] with the path. An absent source fails the read. An empty folder does not; it is a problem of the
    /// contents.
    pub fn read(&self, deadline: Duration) -> Result<Contents, ReadError> {
        let began = Instant::now();
        loop {
            if let Some(contents) = self.attempt()? {
                return Ok(contents);
            }
            if began.elapsed() + RETRY_PAUSE >= deadline {
                return Err(ReadError::Unsettled(self.path.clone()));
            }
            thread::sleep(RETRY_PAUSE);
        }
    }

    /// Makes one attempt; `None` if another is needed.
    fn attempt(&self) -> Result<Option<Contents>, ReadError> {
        let (turn, mut last) = {
            let mut turns = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            turns.begun += 1;
            (turns.begun, std::mem::take(&mut turns.last))
        };
        let attempted = self.attempt_after(&mut last);
        let mut turns = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.begun == turn {
            turns.last = last;
        }
        attempted
    }

    fn attempt_after(&self, last: &mut LastRead) -> Result<Option<Contents>, ReadError> {
        let paths = self.listing()?;
        let before = self.stamps(&paths, &last.references);
        let now = SystemTime::now();
        if !before.iter().all(|stamp| stamp.has_settled(now)) {
            return Ok(None);
        }
        let pauses = Pauses::of(MAX_YIELD_TIME);
        let pause: Pause<'_> = &|| pauses.pause();
        let files = read_files(&self.path, &paths, pause)?;
        let references = last.references.iter().map(|written| (written.clone(), self.read_reference(written)));
        let mut contents = Contents::with_pauses(files, references.collect(), pause);
        if contents.digest != last.digest {
            let known = contents.references.clone();
            let read = |written: &str| self.read_reference(written);
            contents = references::with_references(contents, &known, &read, &mut last.known, pause);
            last.digest.clone_from(&contents.digest);
            if !contents.references.keys().eq(&last.references) {
                // The next attempt stamps these before it reads.
                last.references = contents.references.into_keys().collect();
                return Ok(None);
            }
        }
        // A truncated file is empty before its modification time changes (ext4), so its age does not show if it is
        // complete.
        if before != last.stamps && resized_silently(&last.stamps, &before) {
            thread::sleep(SETTLE);
        }
        let undisturbed = self.listing()? == paths && self.stamps(&paths, &last.references) == before;
        if undisturbed {
            last.stamps = before;
        }
        Ok(undisturbed.then_some(contents))
    }

    /// Returns the paths of the files, in the order of their names.
    fn listing(&self) -> Result<Vec<PathBuf>, ReadError> {
        let unreadable = |error: io::Error| ReadError::unreadable(&self.path, &error);
        if !fs::metadata(&self.path).map_err(unreadable)?.is_dir() {
            return Ok(vec![self.path.clone()]);
        }
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if is_listed(&path) && !path.is_dir() {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    }

    fn stamps(&self, paths: &[PathBuf], references: &BTreeSet<String>) -> Vec<Stamp> {
        let referred = references.iter().map(|written| self.resolve(written));
        paths.iter().cloned().chain(referred).map(Stamp::of).collect()
    }

    /// Resolves a relative path against the folder of the configuration.
    fn resolve(&self, written: &str) -> PathBuf {
        let folder = if self.path.is_dir() { Some(&*self.path) } else { self.path.parent() };
        folder.unwrap_or(Path::new("")).join(written)
    }

    /// Returns the contents with the files that they refer to.
    pub(super) fn follow(&self, contents: Contents) -> Contents {
        references::read_all(contents, &|written| self.read_reference(written))
    }

    fn read_reference(&self, written: &str) -> Reference {
        references::read(&self.resolve(written))
    }
}

/// Returns true if a folder's file of this name is read.
pub fn is_listed(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    is_configuration(path) && !hidden
}

/// Returns true if a file of a folder with this name is configuration.
pub(super) fn is_configuration(path: &Path) -> bool {
    path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|ours| extension == *ours))
}

/// Returns true if a file has another length than in `before`, and the same modification time.
fn resized_silently(before: &[Stamp], now: &[Stamp]) -> bool {
    let before: HashMap<&Path, _> = before.iter().map(|stamp| (&*stamp.path, stamp.seen)).collect();
    let is_silent = |stamp: &Stamp| {
        let (len, seconds, nanos, inode, device) = stamp.seen?;
        let &(old_len, ..) = before.get(&*stamp.path)?.as_ref()?;
        Some(old_len != len && before[&*stamp.path] == Some((old_len, seconds, nanos, inode, device)))
    };
    now.iter().any(|stamp| is_silent(stamp).unwrap_or(false))
}

fn read_files(source: &Path, paths: &[PathBuf], pause: Pause<'_>) -> Result<Vec<SourceFile>, ReadError> {
    let mut left = MAX_BYTES;
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => ReadError::NotAFile(path.clone()),
            io::ErrorKind::FileTooLarge => ReadError::TooLarge { path: source.to_owned(), limit: MAX_BYTES },
            _ => ReadError::unreadable(path, &error),
        };
        let bytes = files::read(path, left).map_err(failed)?;
        left -= bytes.len() as u64;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        files.push(SourceFile { name, bytes: bytes.into() });
        pause();
    }
    Ok(files)
}

impl Stamp {
    fn of(path: PathBuf) -> Self {
        let seen =
            fs::metadata(&path).ok().map(|file| (file.len(), file.mtime(), file.mtime_nsec(), file.ino(), file.dev()));
        Self { path, seen }
    }

    /// Returns false if the last write is so recent that another may follow. A time in the future (skewed clock) counts
    /// as settled.
    fn has_settled(&self, now: SystemTime) -> bool {
        let Some((_, seconds, nanos, ..)) = self.seen else { return true };
        let written = Duration::new(seconds.max(0) as u64, nanos.max(0) as u32);
        now.duration_since(SystemTime::UNIX_EPOCH + written).map_or(true, |age| age >= SETTLE)
    }
}

#[cfg(test)]
mod tests;
