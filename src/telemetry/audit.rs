//! Audit log: one line for each review, pushed without waiting.
//!
//! The queue is bounded and lock-free. One thread empties it ten times a second; a push does not wake it, since a
//! wake-up costs more than the push. If the queue is full, the line is lost and counted: the audit log never makes a
//! request wait.

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

/// Enough lines for 100 ms at 160,000 reviews a second. A caller chooses the length of names in a line.
const BOUNDS: Bounds = Bounds { lines: 16_384, bytes: 32 << 20, wakes: false };

/// Maximum wait of [`Audit::close`] for a sink that blocks.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Audit log: the bounded queue to its writer.
#[derive(Debug, Default)]
pub struct Audit {
    writer: Option<LineWriter>,
    lost: Throttle,
    hook_messages: bool,
    reopen: Option<ReopenHandle>,
}

impl Audit {
    /// Returns an audit log that drops all lines.
    pub fn off() -> Self {
        Self::default()
    }

    /// Appends to the file or pipe at `path`, which is created readable by its owner only; `-` is standard output. The
    /// writing thread calls `begin` first.
    ///
    /// # Errors
    /// The file cannot be opened. A pipe without a reader is no error: lines are queued, or lost, until there is one.
    pub fn to_path(path: &Path, begin: fn()) -> io::Result<Self> {
        if path == Path::new("-") {
            return Self::start(io::stdout(), BOUNDS, begin);
        }
        let (file, reopen) = AuditFile::open(path)?;
        let mut audit = Self::start(file, BOUNDS, begin)?;
        audit.reopen = Some(reopen);
        Ok(audit)
    }

    /// Opens the file again, by its name, for later lines. Returns false if there is no file. Blocks.
    ///
    /// # Errors
    /// The file cannot be opened; the old one is kept.
    pub fn reopen(&self) -> io::Result<bool> {
        self.reopen.as_ref().map_or(Ok(false), |reopen| reopen.reopen().map(|()| true))
    }

    /// Writes to any sink, on a separate thread.
    pub fn to_sink(sink: impl Write + Send + 'static) -> io::Result<Self> {
        Self::start(sink, BOUNDS, || {})
    }

    fn start(sink: impl Write + Send + 'static, bounds: Bounds, begin: fn()) -> io::Result<Self> {
        let mut failing = WriteFailureLog::default();
        let writer = LineWriter::start("audit", sink, bounds, begin, move |written| {
            failing.observe(written);
            None
        })?;
        Ok(Self { writer: Some(writer), lost: Throttle::new(), hook_messages: false, reopen: None })
    }

    /// Sets if records contain the beginning of a hook's message about a rejection.
    #[must_use]
    pub fn with_hook_messages(mut self, wanted: bool) -> Self {
        self.hook_messages = wanted;
        self
    }

    /// Returns true if records contain messages of hooks.
    pub fn has_hook_messages(&self) -> bool {
        self.hook_messages
    }

    /// Returns true if lines are written, so that records must be built.
    pub fn enabled(&self) -> bool {
        self.writer.is_some()
    }

    /// Queues one JSON line, without its newline; if the queue is full, counts it as lost.
    pub fn push(&self, line: Vec<u8>) {
        let Some(writer) = &self.writer else { return };
        if !writer.push(line)
            && let Some(suppressed) = self.lost.pass()
        {
            let lost = writer.lost();
            tracing::warn!(
                lost,
                suppressed,
                "the queue of the audit log is full; lines are lost, and counted as {COUNTED}"
            );
        }
    }

    /// Returns the number of lines that were not written.
    pub fn lost(&self) -> u64 {
        self.writer.as_ref().map_or(0, LineWriter::lost)
    }

    /// Starts to write the queued lines; later lines are lost. Does not wait.
    pub fn begin_to_close(&self) {
        if let Some(writer) = &self.writer {
            writer.begin_to_close();
        }
    }

    /// Writes the queued lines and ends the thread; later lines are lost. Blocks for at most 30 s.
    pub fn close(&self) {
        self.close_within(CLOSE_TIMEOUT);
    }

    /// Like [`Audit::close`], within the time `within`. Returns false if lines are still queued then.
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

/// Logs the first failed write and the next success; at most one failure a second.
#[derive(Default)]
struct WriteFailureLog {
    last_failed: bool,
    logged: bool,
    lines: Throttle,
}

impl WriteFailureLog {
    fn observe(&mut self, written: &BatchResult) {
        match &written.ended {
            Ok(()) if self.last_failed && std::mem::take(&mut self.logged) => {
                tracing::info!("writing the audit log again");
            }
            Err(error) if !self.last_failed && self.lines.pass().is_some() => {
                self.logged = true;
                tracing::warn!(%error, "cannot write the audit log; lines are lost, and counted as {COUNTED}");
            }
            _ => {}
        }
        self.last_failed = written.ended.is_err();
    }
}

/// File of the audit log, used by the writing thread.
#[derive(Debug)]
pub(super) struct AuditFile {
    /// `None` for a pipe without a reader. The writing thread opens the pipe, which waits for a reader.
    file: Option<File>,
    /// True if the last write ended with a whole line or failed, so that the file may be replaced.
    may_be_replaced: bool,
    reopen: ReopenHandle,
}

/// Handle that replaces the file of an [`AuditFile`].
#[derive(Clone, Debug)]
pub(super) struct ReopenHandle {
    path: Arc<Path>,
    /// File for the lines after the current one.
    next: Arc<Mutex<Option<File>>>,
}

impl AuditFile {
    /// Opens the file at `path` for appending; it is created readable by its owner only.
    ///
    /// # Errors
    /// The file cannot be opened. A pipe without a reader is no error.
    pub(super) fn open(path: &Path) -> io::Result<(Self, ReopenHandle)> {
        let reopen = ReopenHandle { path: path.into(), next: Arc::default() };
        let file = match open_without_waiting(path) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => None,
            opened => Some(opened?),
        };
        Ok((Self { file, may_be_replaced: true, reopen: reopen.clone() }, reopen))
    }
}

impl ReopenHandle {
    /// Opens the file by its name at once, so that it exists when a log rotation goes on. Keeps the old end of a pipe
    /// without a reader.
    ///
    /// # Errors
    /// The file cannot be opened; the old one is kept.
    pub(super) fn reopen(&self) -> io::Result<()> {
        let file = open_without_waiting(&self.path)?;
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }
}

impl Write for AuditFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.may_be_replaced
            && let Some(next) = self.reopen.next.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            self.file = Some(next);
        }
        if self.file.is_none() {
            self.file = Some(open_for_append(&self.reopen.path, OFlags::empty())?);
        }
        let written = self.file.as_mut().map_or(Ok(0), |file| file.write(bytes));
        self.may_be_replaced = match &written {
            Ok(written) => bytes.get(..*written).unwrap_or_default().ends_with(b"\n"),
            Err(_) => true,
        };
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the file without waiting for a pipe's reader. Writes may wait, so that a slow reader misses nothing.
fn open_without_waiting(path: &Path) -> io::Result<File> {
    let file = open_for_append(path, OFlags::NONBLOCK)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn open_for_append(path: &Path, flags: OFlags) -> io::Result<File> {
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
    fn unread_pipe_blocks_no_caller_and_is_written_once_read() {
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
