//! AuditFile: the file or the pipe at the end of the audit log, opened anew when it has been rotated.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};

/// The end of the audit log, as the thread that writes has it.
#[derive(Debug)]
pub(super) struct AuditFile {
    /// `None` for a pipe that nobody reads yet. Opening it waits for a reader, on the thread that writes.
    file: Option<File>,
    /// The last write was a whole line, or nothing could be written at all.
    may_change: bool,
    reopen: Reopen,
}

/// The same, as others have it: puts another file in the place of the one that is written.
#[derive(Clone, Debug)]
pub(super) struct Reopen {
    path: Arc<Path>,
    /// File from the next line on.
    next: Arc<Mutex<Option<File>>>,
}

impl AuditFile {
    /// Appends to what is at `path`, which is made readable by its owner only.
    ///
    /// # Errors
    /// It cannot be opened. A pipe that nobody reads yet is none.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Reopen)> {
        let reopen = Reopen { path: path.into(), next: Arc::default() };
        let file = match opened_at_once(path) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => None,
            opened => Some(opened?),
        };
        Ok((Self { file, may_change: true, reopen: reopen.clone() }, reopen))
    }
}

impl Reopen {
    /// Opens the file by its name, now: whoever has moved the former away finds a new one in its place. Of a pipe that
    /// nobody reads the former end is kept.
    ///
    /// # Errors
    /// It cannot be opened; the former is kept.
    pub(super) fn reopen(&self) -> io::Result<()> {
        let file = opened_at_once(&self.path)?;
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }
}

impl Write for AuditFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.may_change
            && let Some(next) = self.reopen.next.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            self.file = Some(next);
        }
        if self.file.is_none() {
            self.file = Some(opened(&self.reopen.path, OFlags::empty())?);
        }
        let written = self.file.as_mut().map_or(Ok(0), |file| file.write(bytes));
        self.may_change = match &written {
            Ok(written) => bytes.get(..*written).unwrap_or_default().ends_with(b"\n"),
            Err(_) => true,
        };
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Without waiting for a pipe's reader. From then on the thread that writes may wait: a reader that is slow for a
/// moment shall miss nothing.
fn opened_at_once(path: &Path) -> io::Result<File> {
    let file = opened(path, OFlags::NONBLOCK)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn opened(path: &Path, flags: OFlags) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags.bits() as i32).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_written_after_a_rotation_goes_into_the_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let [path, rotated] = ["audit.log", "audit.log.1"].map(|name| folder.path().join(name));
        let (mut file, reopen) = AuditFile::open(&path).unwrap();
        file.write_all(b"one\n").unwrap();
        fs::rename(&path, &rotated).unwrap();
        file.write_all(b"two\n").unwrap();
        reopen.reopen().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "", "it is there before anything is written");
        file.write_all(b"three\n").unwrap();
        let read = [&rotated, &path].map(|path| fs::read_to_string(path).unwrap());
        assert_eq!(read, ["one\ntwo\n", "three\n"]);
    }

    #[test]
    fn a_file_that_cannot_be_opened_anew_leaves_the_former() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("logs");
        fs::create_dir(&inner).unwrap();
        let (mut file, reopen) = AuditFile::open(&inner.join("audit.log")).unwrap();
        let moved = folder.path().join("moved");
        fs::rename(&inner, &moved).unwrap();
        assert!(reopen.reopen().is_err());
        file.write_all(b"one\n").unwrap();
        assert_eq!(fs::read_to_string(moved.join("audit.log")).unwrap(), "one\n");
    }
}
