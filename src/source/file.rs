//! A file, or the files of a folder, and the files they refer to.

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
    references::{self, LIMIT},
};
use gatepost_base::{clock::Pauses, files};
use gatepost_config::{Pause, SourceFile};

/// Files written to less than this ago may be half written: they are read again once they have come to rest.
const SETTLE: Duration = Duration::from_millis(25);
/// Pause between two attempts at one consistent read.
const PAUSE: Duration = Duration::from_millis(10);
/// For so long, all in all, a read lets reviews go first between its steps; its deadline is some times as far away.
const GIVES_WAY: Duration = Duration::from_millis(100);
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// A file, or the `.yaml`, `.yml` and `.json` files directly in a folder, in the order of their names.
///
/// Names that begin with a dot and folders are passed over, so that a mounted ConfigMap (files that are links through
/// `..data`) reads as the files it shows. Paths inside the configuration are relative to the folder.
#[derive(Clone, Debug)]
pub struct FileSource {
    path: PathBuf,
    last: Arc<Mutex<Turns>>,
}

/// State kept from read to read. A read that hangs takes it along, and the next one begins with nothing; when it ends
/// after all, its state is too old to be used.
#[derive(Debug, Default)]
struct Turns {
    last: Last,
    /// Reads begun so far.
    begun: u64,
}

/// The references that contents of this digest make, so that the next read can stamp and read them with the files.
#[derive(Debug, Default)]
struct Last {
    digest: String,
    references: BTreeSet<String>,
    /// Versions of the files and references of the last consistent read.
    stamps: Vec<Stamp>,
    known: gatepost_config::LoadCache,
}

/// Identity of a file's version, without reading it.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    /// Length, modification time (s, ns), inode, device; `None` where there is no such file.
    seen: Option<(u64, i64, i64, u64, u64)>,
}

impl FileSource {
    /// The file or folder at `path`; nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), last: Arc::default() }
    }

    /// One full consistent read: listing and stamps are the same before and after, or it is made again until
    /// `deadline` is used up.
    ///
    /// # Errors
    /// [`ReadError`], naming the path. An absent source is a failed read; an empty folder can be read, and is a problem
    /// to whoever checks it.
    pub fn read(&self, deadline: Duration) -> Result<Contents, ReadError> {
        let began = Instant::now();
        loop {
            if let Some(contents) = self.attempt()? {
                return Ok(contents);
            }
            if began.elapsed() + PAUSE >= deadline {
                return Err(ReadError::Unsettled { path: self.path.clone() });
            }
            thread::sleep(PAUSE);
        }
    }

    /// `None` when another attempt is needed.
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

    fn attempt_after(&self, last: &mut Last) -> Result<Option<Contents>, ReadError> {
        let paths = self.listing()?;
        let before = self.stamps(&paths, &last.references);
        let now = SystemTime::now();
        if !before.iter().all(|stamp| stamp.has_settled(now)) {
            return Ok(None);
        }
        let pauses = Pauses::of(GIVES_WAY);
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
                // Now we know what to stamp before reading.
                last.references = contents.references.into_keys().collect();
                return Ok(None);
            }
        }
        // A file that is truncated is empty before its modification time changes (ext4): its age does not tell that it has
        // come to rest.
        if before != last.stamps && resized_silently(&last.stamps, &before) {
            thread::sleep(SETTLE);
        }
        let undisturbed = self.listing()? == paths && self.stamps(&paths, &last.references) == before;
        if undisturbed {
            last.stamps = before;
        }
        Ok(undisturbed.then_some(contents))
    }

    /// The paths of the files, in the order of their names.
    fn listing(&self) -> Result<Vec<PathBuf>, ReadError> {
        let unreadable = |error: io::Error| ReadError::unreadable(&self.path, &error);
        if !fs::metadata(&self.path).map_err(unreadable)?.is_dir() {
            return Ok(vec![self.path.clone()]);
        }
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            let ours = path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|ours| extension == *ours));
            if ours && !hidden && !path.is_dir() {
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

    /// Relative paths in the configuration start at the folder the configuration is in.
    fn resolve(&self, written: &str) -> PathBuf {
        let folder = if self.path.is_dir() { Some(&*self.path) } else { self.path.parent() };
        folder.unwrap_or(Path::new("")).join(written)
    }

    fn read_reference(&self, written: &str) -> Reference {
        references::read(&self.resolve(written))
    }
}

/// Whether a file has another length than before, and the modification time that it had.
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
    let mut left = LIMIT;
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => ReadError::NotAFile { path: path.clone() },
            io::ErrorKind::FileTooLarge => ReadError::TooLarge { path: source.to_owned(), limit: LIMIT },
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

    /// False while the last write is so recent that another may follow. Times to come (a skewed clock) are no reason
    /// to wait.
    fn has_settled(&self, now: SystemTime) -> bool {
        let Some((_, seconds, nanos, ..)) = self.seen else { return true };
        let written = Duration::new(seconds.max(0) as u64, nanos.max(0) as u32);
        now.duration_since(SystemTime::UNIX_EPOCH + written).map_or(true, |age| age >= SETTLE)
    }
}

#[cfg(test)]
mod tests;
