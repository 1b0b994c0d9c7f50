//! Audit: one line a review, pushed without waiting.
//!
//! The queue is bounded and lock-free. One thread empties it ten times a second; it is not woken by a push, because a
//! wake-up costs more than the push itself. A full queue loses the line and counts the loss: the audit log never makes
//! a request wait.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crossbeam::queue::ArrayQueue;

/// Lines that may wait: a tenth of a second at 160,000 reviews a second.
const WAITING: usize = 16_384;
/// How often the queue is emptied.
const EVERY: Duration = Duration::from_millis(100);
/// Bytes gathered for one write.
const BATCH: usize = 256 * 1024;

/// The bounded queue to the audit writer.
#[derive(Debug, Default)]
pub struct Audit {
    writer: Option<Writer>,
}

#[derive(Debug)]
struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    queue: ArrayQueue<Vec<u8>>,
    lost: AtomicU64,
    closing: AtomicBool,
}

impl Audit {
    /// Nothing is recorded.
    pub fn off() -> Self {
        Self::default()
    }

    /// Appends to the file at `path`, readable by its owner only; `-` is standard output.
    pub fn to_path(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Self::to_sink(io::stdout());
        }
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Self::to_sink(options.open(path)?)
    }

    /// Writes to any sink, from a thread of its own.
    pub fn to_sink(sink: impl Write + Send + 'static) -> io::Result<Self> {
        Self::with_room(sink, WAITING)
    }

    fn with_room(sink: impl Write + Send + 'static, room: usize) -> io::Result<Self> {
        let shared =
            Arc::new(Shared { queue: ArrayQueue::new(room), lost: AtomicU64::new(0), closing: AtomicBool::new(false) });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("audit".into()).spawn(move || theirs.run(sink))?;
        Ok(Self { writer: Some(Writer { shared, thread: Mutex::new(Some(thread)) }) })
    }

    /// True when records are written anywhere, so that building one is worth it.
    pub fn enabled(&self) -> bool {
        self.writer.is_some()
    }

    /// Hands one JSON line (without its newline) to the writer, or counts it as lost when the queue is full.
    pub fn push(&self, line: Vec<u8>) {
        let Some(writer) = &self.writer else { return };
        let shared = &writer.shared;
        if shared.closing.load(Ordering::Relaxed) || shared.queue.push(line).is_err() {
            shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that were not written.
    pub fn lost(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.shared.lost.load(Ordering::Relaxed))
    }

    /// Writes what waits and ends the thread. Blocks until that is done; later lines are lost. Dropping does the same.
    pub fn close(&self) {
        let Some(writer) = &self.writer else { return };
        writer.shared.closing.store(true, Ordering::Release);
        let thread = writer.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            // A writer that panicked has nothing more to tell us.
            let _ = thread.join();
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn run(&self, sink: impl Write) {
        let mut sink = Sink { sink, failing: false, torn: false };
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            // Read before emptying: what was pushed before `close` is then surely seen by this round.
            let closing = self.closing.load(Ordering::Acquire);
            self.empty(&mut sink, &mut batch);
            if closing {
                return;
            }
            thread::park_timeout(EVERY);
        }
    }

    fn empty(&self, sink: &mut Sink<impl Write>, batch: &mut Vec<u8>) {
        loop {
            let mut lines = 0_u64;
            while batch.len() < BATCH {
                let Some(line) = self.queue.pop() else { break };
                batch.extend_from_slice(&line);
                batch.push(b'\n');
                lines += 1;
            }
            if lines == 0 {
                return;
            }
            let written = sink.write(batch);
            self.lost.fetch_add(lines.saturating_sub(written), Ordering::Relaxed);
            batch.clear();
        }
    }
}

/// Where lines go. A full disk may take the beginning of one, and is told of once.
struct Sink<W> {
    sink: W,
    failing: bool,
    /// What was written last is not a whole line.
    torn: bool,
}

impl<W: Write> Sink<W> {
    /// Writes whole lines; how many of them were.
    fn write(&mut self, lines: &[u8]) -> u64 {
        let (written, ended) = self.write_out(lines);
        match &ended {
            Ok(()) if self.failing => tracing::info!("the audit log can be written again"),
            Err(error) if !self.failing => {
                tracing::warn!(%error, "the audit log cannot be written; lines are lost, and counted as gatepost_audit_lost_total");
            }
            _ => {}
        }
        self.failing = ended.is_err();
        let written = lines.get(..written).unwrap_or_default();
        self.torn = written.last().map_or(self.torn, |last| *last != b'\n');
        written.iter().filter(|byte| **byte == b'\n').count() as u64
    }

    /// As `write_all`, but tells how far it came. Half a line from before is ended first, so that it spoils no other.
    fn write_out(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        if self.torn {
            if let Err(error) = self.sink.write_all(b"\n") {
                return (0, Err(error));
            }
            self.torn = false;
        }
        let mut written = 0;
        while written < lines.len() {
            match self.sink.write(&lines[written..]) {
                Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (written, Err(error)),
            }
        }
        (written, self.sink.flush())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn every_line_is_written_in_order_by_the_time_it_is_closed() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("audit.log");
        let audit = Audit::to_path(&path).expect("opens");
        assert!(audit.enabled());
        let lines: Vec<String> = (0..1000).map(|n| format!("{{\"n\":{n}}}")).collect();
        lines.iter().for_each(|line| audit.push(line.clone().into_bytes()));
        audit.close();
        assert_eq!(std::fs::read_to_string(&path).expect("reads"), lines.join("\n") + "\n");
        audit.push(b"late".to_vec());
        assert_eq!(audit.lost(), 1, "closed");
    }

    /// A sink that says when it is asked to write, and waits for leave.
    struct Stuck(mpsc::Sender<()>, mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(());
            let _ = self.1.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_queue_loses_lines_and_counts_them_without_waiting() {
        let ((asked, entered), (leave, wait)) = (mpsc::channel(), mpsc::channel());
        let audit = Audit::with_room(Stuck(asked, wait), 4).expect("starts");
        audit.push(b"first".to_vec());
        entered.recv().expect("the writer is stuck with the first line");
        (0..20).for_each(|_| audit.push(b"line".to_vec()));
        assert_eq!(audit.lost(), 16);
        drop(leave);
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
    fn a_disk_that_was_full_spoils_one_line_and_no_other() {
        /// Takes so many bytes, then none, until it has room again.
        struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);
        impl Write for Disk {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let (kept, room) = &mut *self.0.lock().unwrap();
                if *room == 0 {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                let taken = bytes.len().min(*room);
                kept.extend_from_slice(&bytes[..taken]);
                *room -= taken;
                Ok(taken)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let disk = Arc::new(Mutex::new((Vec::new(), 8)));
        let mut sink = Sink { sink: Disk(Arc::clone(&disk)), failing: false, torn: false };
        assert_eq!(sink.write(b"one\ntwo two\nthree\n"), 1);
        assert!(sink.failing);
        assert_eq!(sink.write(b"four\n"), 0);
        disk.lock().unwrap().1 = 100;
        assert_eq!(sink.write(b"five\n"), 1);
        assert!(!sink.failing);
        assert_eq!(String::from_utf8(disk.lock().unwrap().0.clone()).unwrap(), "one\ntwo \nfive\n");
    }

    #[test]
    fn off_costs_nothing_and_loses_nothing() {
        let audit = Audit::off();
        audit.push(b"line".to_vec());
        assert!(!audit.enabled());
        assert_eq!(audit.lost(), 0);
    }
}
