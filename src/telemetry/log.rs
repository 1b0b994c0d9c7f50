//! Log: lines for people, on stderr, pushed without waiting.
//!
//! There is one log for the whole process, since there is one stderr. Lines are queued, and a separate thread writes
//! them: a blocked reader of stderr blocks only that thread.

use std::{
    cell::Cell,
    io::{self, Write},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::line_writer::{Bounds, LineWriter};

/// More lines than a change of a large configuration logs, in little memory.
const BOUNDS: Bounds = Bounds { lines: 4096, bytes: 4 << 20, wakes: true };
/// Maximum length of a line in bytes; the rest is cut off.
const MAX_LINE_BYTES: usize = 64 << 10;

static LOG: OnceLock<LineWriter> = OnceLock::new();
/// Number of lost lines that the log has reported.
static REPORTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Line that the writing thread logs itself, while [`loss_report`] captures it.
    static CAPTURED_LINE: Cell<Option<Vec<u8>>> = const { Cell::new(None) };
}

/// Starts the thread that writes to stderr; it calls `begin` first. A second start has no effect.
///
/// # Errors
/// Returns an error if the operating system cannot start a thread.
pub fn start(begin: fn()) -> io::Result<()> {
    if LOG.get().is_none() {
        let writer = LineWriter::start("log", io::stderr(), BOUNDS, begin, |written| {
            // Failed writes are not logged, since stderr is what fails.
            written.ended.as_ref().ok().and_then(|()| loss_report())
        })?;
        // A concurrent caller may have set the same log.
        let _ = LOG.set(writer);
    }
    Ok(())
}

/// Writes a line that is no event: of a panic, or of the end of the process. Writes at once if no log was started.
pub fn line(line: &str) {
    match LOG.get() {
        Some(log) => drop(log.push(cut(line.as_bytes()))),
        // An error means that stderr is closed.
        None => drop(writeln!(io::stderr(), "{line}")),
    }
}

/// Returns the number of lines that were not written.
pub fn lost() -> u64 {
    LOG.get().map_or(0, LineWriter::lost)
}

/// Writes the queued lines, within the time `within`. Later lines are lost.
pub fn close(within: Duration) {
    if let Some(log) = LOG.get() {
        log.close(within);
    }
}

/// Returns a line with the number of newly lost lines, if any. Not queued, since the queue may be full.
fn loss_report() -> Option<Vec<u8>> {
    let lost = lost();
    let reported = REPORTED.swap(lost, Relaxed);
    if lost == reported {
        return None;
    }
    CAPTURED_LINE.set(Some(Vec::new()));
    let more = lost - reported;
    tracing::warn!(lost = more, "log lines were lost, since stderr was not read; counted as gatepost_log_lost_total");
    CAPTURED_LINE.take().filter(|line| !line.is_empty())
}

fn cut(line: &[u8]) -> Vec<u8> {
    line.get(..MAX_LINE_BYTES).unwrap_or(line).to_vec()
}

/// Writer for `tracing-subscriber`, which makes one write for each event.
#[derive(Clone, Copy, Debug)]
pub struct LogLines;

impl Write for LogLines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = cut(event.strip_suffix(b"\n").unwrap_or(event));
        if CAPTURED_LINE.take().is_some() {
            CAPTURED_LINE.set(Some(line));
        } else if let Some(log) = LOG.get() {
            log.push(line);
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
