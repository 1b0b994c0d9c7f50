//! Audit: one line a review, pushed without waiting.
//!
//! The queue is bounded and lock-free. One thread empties it ten times a second; it is not woken by a push, because a
//! wake-up costs more than the push itself. A full queue loses the line and counts the loss: the audit log never makes
//! a request wait.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};

use super::{
    Throttle,
    line_writer::{BatchResult, Bounds, LineWriter},
};

/// A tenth of a second at 160,000 reviews a second; each may carry names as long as its caller likes.
const BOUNDS: Bounds = Bounds { lines: 16_384, bytes: 32 << 20, wakes: false };

/// Longest wait of [`Audit::close`] for a sink that takes nothing.
const CLOSES_WITHIN: Duration = Duration::from_secs(30);

/// The bounded queue to the audit writer.
#[derive(Debug, Default)]
pub struct Audit {
    writer: Option<LineWriter>,
    lost: Throttle,
    hook_messages: bool,
    reopen: Option<Reopen>,
}

impl Audit {
    /// Nothing is recorded.
    pub fn off() -> Self {
        Self::default()
    }

    /// Appends to the file or the pipe at `path`, which is made readable by its owner only; `-` is standard output. The
    /// writing thread calls `begin` first.
    ///
    /// # Errors
    /// It cannot be opened. A pipe that nobody reads yet is none: lines are kept, and then lost, until somebody does.
    pub fn to_path(path: &Path, begin: fn()) -> io::Result<Self> {
        if path == Path::new("-") {
            return Self::start(io::stdout(), BOUNDS, begin);
        }
        let (file, reopen) = AuditFile::open(path)?;
        let mut audit = Self::start(file, BOUNDS, begin)?;
        audit.reopen = Some(reopen);
        Ok(audit)
    }

    /// Opens the file anew, by its name: what is written from now on goes there. False where there is no file. Blocks.
    ///
    /// # Errors
    /// It cannot be opened; the former one is kept.
    pub fn reopen(&self) -> io::Result<bool> {
        self.reopen.as_ref().map_or(Ok(false), |reopen| reopen.reopen().map(|()| true))
    }

    /// Writes to any sink, from a thread of its own.
    pub fn to_sink(sink: impl Write + Send + 'static) -> io::Result<Self> {
        Self::start(sink, BOUNDS, || {})
    }

    fn start(sink: impl Write + Send + 'static, bounds: Bounds, begin: fn()) -> io::Result<Self> {
        let mut failing = Failing::default();
        let writer = LineWriter::start("audit", sink, bounds, begin, move |written| {
            failing.observe(written);
            None
        })?;
        Ok(Self { writer: Some(writer), lost: Throttle::new(), hook_messages: false, reopen: None })
    }

    /// The same, with the beginning of what hooks say when they reject something.
    #[must_use]
    pub fn with_hook_messages(mut self, wanted: bool) -> Self {
        self.hook_messages = wanted;
        self
    }

    /// Does a record hold what a hook has said?
    pub fn has_hook_messages(&self) -> bool {
        self.hook_messages
    }

    /// True when records are written anywhere, so that building one is worth it.
    pub fn enabled(&self) -> bool {
        self.writer.is_some()
    }

    /// Hands one JSON line (without its newline) to the writer, or counts it as lost when the queue is full.
    pub fn push(&self, line: Vec<u8>) {
        let Some(writer) = &self.writer else { return };
        if !writer.push(line)
            && let Some(held_back) = self.lost.pass()
        {
            let lost = writer.lost();
            tracing::warn!(
                lost,
                held_back,
                "the queue of the audit log is full; lines are lost, and counted as {COUNTED}"
            );
        }
    }

    /// Lines that were not written.
    pub fn lost(&self) -> u64 {
        self.writer.as_ref().map_or(0, LineWriter::lost)
    }

    /// Begins to write out what waits; later lines are lost. Does not wait.
    pub fn begin_to_close(&self) {
        if let Some(writer) = &self.writer {
            writer.begin_to_close();
        }
    }

    /// Writes what waits and ends the thread; later lines are lost. Blocks until that is done, or for half a minute.
    pub fn close(&self) {
        self.close_within(CLOSES_WITHIN);
    }

    /// The same, for so long at most; false when lines still waited then.
    pub fn close_within(&self, within: Duration) -> bool {
        self.writer.as_ref().is_none_or(|writer| writer.close(within))
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.begin_to_close();
    }
}

const COUNTED: &str = "gatepost_audit_lost_total";

/// Does writing fail? Logged once, and once when it is over; for a disk that flaps, once a second.
#[derive(Default)]
struct Failing {
    now: bool,
    logged: bool,
    lines: Throttle,
}

impl Failing {
    fn observe(&mut self, written: &BatchResult) {
        match &written.ended {
            Ok(()) if self.now && std::mem::take(&mut self.logged) => {
                tracing::info!("writing the audit log again");
            }
            Err(error) if !self.now && self.lines.pass().is_some() => {
                self.logged = true;
                tracing::warn!(%error, "cannot write the audit log; lines are lost, and counted as {COUNTED}");
            }
            _ => {}
        }
        self.now = written.ended.is_err();
    }
}

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
    use std::{fs, process::Command};

    use super::*;

    #[test]
    fn every_line_is_written_in_order_by_the_time_it_is_closed() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("audit.log");
        let audit = Audit::to_path(&path, || {}).expect("opens");
        assert!(audit.enabled());
        let lines: Vec<String> = (0..1000).map(|n| format!("{{\"n\":{n}}}")).collect();
        lines.iter().for_each(|line| audit.push(line.clone().into_bytes()));
        audit.close();
        assert_eq!(fs::read_to_string(&path).expect("reads"), lines.join("\n") + "\n");
        audit.push(b"late".to_vec());
        assert_eq!(audit.lost(), 1, "closed");
    }

    #[test]
    fn a_pipe_that_nobody_reads_yet_keeps_nobody_waiting_and_is_written_once_somebody_does() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("audit.pipe");
        assert!(Command::new("mkfifo").arg(&path).status().expect("runs").success());
        let audit = Audit::to_path(&path, || {}).expect("opens");
        audit.push(b"line".to_vec());
        let reading = std::thread::spawn(move || fs::read_to_string(path));
        audit.close();
        drop(audit);
        assert_eq!(reading.join().expect("ends").expect("reads"), "line\n");
    }

    #[test]
    fn a_sink_that_fails_loses_and_counts() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::other("disk full"))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let audit = Audit::to_sink(Broken).expect("starts");
        (0..3).for_each(|_| audit.push(b"line".to_vec()));
        audit.close();
        assert_eq!(audit.lost(), 3);
    }

    #[test]
    fn off_costs_nothing_and_loses_nothing() {
        let audit = Audit::off();
        audit.push(b"line".to_vec());
        assert!(!audit.enabled() && audit.close_within(Duration::ZERO));
        assert_eq!(audit.lost(), 0);
    }

    #[test]
    fn audit_lines_after_a_rotation_go_into_the_new_file() {
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
