//! Log: the lines for people, on stderr, pushed without waiting.
//!
//! There is one for the whole process, as there is one stderr. Workers' lines are queued, and written by a thread of
//! its own: a reader of stderr that stands still holds up that thread and nothing else.

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

/// Much more than is said at a change of a large configuration, and little memory.
const BOUNDS: Bounds = Bounds { lines: 4096, bytes: 4 << 20, wakes: true };
/// The most of one line that is kept.
const MAX_LINE_BYTES: usize = 64 << 10;

static LOG: OnceLock<LineWriter> = OnceLock::new();
/// Lines whose loss the log itself has reported.
static REPORTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// On the thread that writes: what it says itself, while it does.
    static OWN: Cell<Option<Vec<u8>>> = const { Cell::new(None) };
}

/// Starts the thread that writes to stderr; it calls `begin` first. A second start changes nothing.
///
/// # Errors
/// The operating system gives us no thread.
pub fn start(begin: fn()) -> io::Result<()> {
    if LOG.get().is_none() {
        let writer = LineWriter::start("log", io::stderr(), BOUNDS, begin, |written| {
            // Failures to write are not logged here: stderr is the place that takes nothing.
            written.ended.as_ref().ok().and_then(|()| missing())
        })?;
        // A caller that was faster has set the same.
        let _ = LOG.set(writer);
    }
    Ok(())
}

/// Writes a line that is no event: of a panic, or of the process's end. Where no log was started, at once.
pub fn line(line: &str) {
    match LOG.get() {
        Some(log) => drop(log.push(cut(line.as_bytes()))),
        // Where stderr is closed there is no reader.
        None => drop(writeln!(io::stderr(), "{line}")),
    }
}

/// Lines that were not written.
pub fn lost() -> u64 {
    LOG.get().map_or(0, LineWriter::lost)
}

/// Writes what waits, for so long at most. Later lines are lost.
pub fn close(within: Duration) {
    if let Some(log) = LOG.get() {
        log.close(within);
    }
}

/// Once stderr takes lines again, the line that says how many are missing. Not by way of the queue: it may be full.
fn missing() -> Option<Vec<u8>> {
    let lost = lost();
    let reported = REPORTED.swap(lost, Relaxed);
    if lost == reported {
        return None;
    }
    OWN.set(Some(Vec::new()));
    let more = lost - reported;
    tracing::warn!(lost = more, "log lines were lost, since stderr was not read; counted as gatepost_log_lost_total");
    OWN.take().filter(|line| !line.is_empty())
}

fn cut(line: &[u8]) -> Vec<u8> {
    line.get(..MAX_LINE_BYTES).unwrap_or(line).to_vec()
}

/// Takes one event a write, as `tracing-subscriber` makes them.
#[derive(Clone, Copy, Debug)]
pub struct LogLines;

impl Write for LogLines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = cut(event.strip_suffix(b"\n").unwrap_or(event));
        if OWN.take().is_some() {
            OWN.set(Some(line));
        } else if let Some(log) = LOG.get() {
            log.push(line);
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
