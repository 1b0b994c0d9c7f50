//! LineWriter: a bounded queue of lines, and the thread that writes them.
//!
//! Pushing a line never waits: if the queue is full, the line is lost and counted. Only the thread waits for the sink,
//! such as a full disk, a mount that hangs or a pipe that nobody reads.

use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, Thread},
    time::Duration,
};

use crossbeam::queue::ArrayQueue;

/// Interval at which a thread that pushes do not wake empties its queue.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// Size in bytes from which a batch is written.
const BATCH_BYTES: usize = 256 * 1024;

/// Bounds of a queue, and whether pushes wake the thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum number of queued lines.
    pub(super) lines: usize,
    /// Maximum number of queued bytes.
    pub(super) bytes: usize,
    /// If true, each push wakes the thread. Otherwise it runs ten times a second: a wake-up costs more than a push.
    pub(super) wakes: bool,
}

/// Result of writing a batch of lines.
pub(super) struct BatchResult {
    /// Number of lines that were written completely.
    pub(super) lines: u64,
    /// Error because of which the others were not written.
    pub(super) ended: io::Result<()>,
}

/// Queue of lines, and the thread that writes them.
#[derive(Debug)]
pub(super) struct LineWriter {
    shared: Arc<Shared>,
    thread: Thread,
    /// Receives nothing; disconnected when the thread ends.
    ended: Mutex<Receiver<()>>,
}

#[derive(Debug)]
struct Shared {
    queue: ArrayQueue<Vec<u8>>,
    bounds: Bounds,
    bytes: AtomicUsize,
    lost: AtomicU64,
    closing: AtomicBool,
}

impl LineWriter {
    /// Starts the thread. It calls `begin` first, and `observe` after every write; a line that `observe` returns is
    /// written next.
    pub(super) fn start(
        name: &str,
        sink: impl Write + Send + 'static,
        bounds: Bounds,
        begin: fn(),
        observe: impl FnMut(&BatchResult) -> Option<Vec<u8>> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: ArrayQueue::new(bounds.lines),
            bounds,
            bytes: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        let (end_signal, ended) = mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            begin();
            theirs.run(sink, observe, end_signal);
        })?;
        Ok(Self { shared, thread: thread.thread().clone(), ended: Mutex::new(ended) })
    }

    /// Queues one line, without its newline. Returns false if the line is lost, and counts it.
    pub(super) fn push(&self, line: Vec<u8>) -> bool {
        let taken = self.shared.push(line);
        if taken && self.shared.bounds.wakes {
            self.thread.unpark();
        }
        taken
    }

    /// Returns the number of lines that were not written.
    pub(super) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Starts to write the queued lines; later lines are lost. Does not wait.
    pub(super) fn begin_to_close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Closes the queue and waits at most `within`. Returns true if all queued lines were handed to the sink.
    pub(super) fn close(&self, within: Duration) -> bool {
        self.begin_to_close();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(within) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Shared {
    fn push(&self, line: Vec<u8>) -> bool {
        let size = line.len();
        // Counted first, so that concurrent pushes cannot exceed the bound together.
        let fits = self.bytes.fetch_add(size, Ordering::Relaxed) + size <= self.bounds.bytes;
        if fits && !self.closing.load(Ordering::Relaxed) && self.queue.push(line).is_ok() {
            return true;
        }
        self.bytes.fetch_sub(size, Ordering::Relaxed);
        self.lost.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn run(&self, sink: impl Write, mut observe: impl FnMut(&BatchResult) -> Option<Vec<u8>>, _end_signal: Sender<()>) {
        let mut sink = Sink { sink, ends_within_line: false };
        let mut batch = Vec::with_capacity(BATCH_BYTES);
        loop {
            // Loaded before emptying, so that this round writes everything that was pushed before the close.
            let closing = self.closing.load(Ordering::Acquire);
            self.empty(&mut sink, &mut batch, &mut observe);
            if closing {
                return;
            }
            // The sink may have consumed a wake-up that arrived meanwhile.
            if self.closing.load(Ordering::Acquire) || self.bounds.wakes && !self.queue.is_empty() {
                continue;
            }
            if self.bounds.wakes { thread::park() } else { thread::park_timeout(FLUSH_INTERVAL) }
        }
    }

    fn empty(
        &self,
        sink: &mut Sink<impl Write>,
        batch: &mut Vec<u8>,
        observe: &mut impl FnMut(&BatchResult) -> Option<Vec<u8>>,
    ) {
        let mut lines = 0_u64;
        loop {
            while batch.len() < BATCH_BYTES {
                let Some(line) = self.queue.pop() else { break };
                self.bytes.fetch_sub(line.len(), Ordering::Relaxed);
                batch.extend_from_slice(&line);
                batch.push(b'\n');
                lines += 1;
            }
            if lines == 0 {
                return;
            }
            let written = sink.write(batch);
            self.lost.fetch_add(lines.saturating_sub(written.lines), Ordering::Relaxed);
            batch.clear();
            lines = 0;
            if let Some(line) = observe(&written) {
                batch.extend_from_slice(&line);
                batch.push(b'\n');
                lines = 1;
            }
        }
    }
}

/// Destination of lines. A full disk may accept only part of a line.
struct Sink<W> {
    sink: W,
    /// True if the last write ended within a line.
    ends_within_line: bool,
}

impl<W: Write> Sink<W> {
    fn write(&mut self, lines: &[u8]) -> BatchResult {
        let (written, ended) = self.write_out(lines);
        let written = lines.get(..written).unwrap_or_default();
        self.ends_within_line = written.last().map_or(self.ends_within_line, |last| *last != b'\n');
        BatchResult { lines: written.iter().filter(|byte| **byte == b'\n').count() as u64, ended }
    }

    /// Like `write_all`, but returns the number of bytes written. Ends an incomplete earlier line first.
    fn write_out(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        if self.ends_within_line {
            if let Err(error) = self.sink.write_all(b"\n") {
                return (0, Err(error));
            }
            self.ends_within_line = false;
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
    use super::*;

    const LONG: Duration = Duration::from_secs(30);
    const BOUNDS: Bounds = Bounds { lines: 4, bytes: 100, wakes: true };

    /// A sink that reports the start of each write, and waits for permission.
    struct Stuck(Sender<()>, Receiver<()>);

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

    /// A writer whose thread is stuck with its first line.
    fn stuck() -> (LineWriter, Sender<()>) {
        let ((started, entered), (leave, wait)) = (mpsc::channel(), mpsc::channel());
        let writer = LineWriter::start("lines", Stuck(started, wait), BOUNDS, || {}, |_| None).expect("starts");
        assert!(writer.push(b"first".to_vec()));
        entered.recv().expect("it is stuck");
        (writer, leave)
    }

    #[test]
    fn a_full_queue_loses_lines_and_counts_them_without_waiting() {
        let (writer, leave) = stuck();
        let taken = (0..20).filter(|_| writer.push(b"line".to_vec())).count();
        assert_eq!((taken, writer.lost()), (4, 16));
        drop(leave);
    }

    #[test]
    fn a_queue_is_full_of_bytes_too() {
        let (writer, leave) = stuck();
        assert!(writer.push(vec![b'x'; 60]) && !writer.push(vec![b'x'; 60]) && writer.push(vec![b'x'; 40]));
        assert!(!writer.push(vec![b'x'; 1]));
        assert_eq!(writer.lost(), 2);
        drop(leave);
        assert!(writer.close(LONG));
        assert_eq!(writer.shared.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_sink_that_blocks_holds_up_the_end_for_a_bounded_time() {
        let (writer, leave) = stuck();
        assert!(!writer.close(Duration::from_millis(1)));
        drop(leave);
        assert!(writer.close(LONG), "it was taken after all");
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
        let mut sink = Sink { sink: Disk(Arc::clone(&disk)), ends_within_line: false };
        let mut write = |lines: &[u8]| {
            let written = sink.write(lines);
            (written.lines, written.ended.is_ok())
        };
        assert_eq!(write(b"one\ntwo two\nthree\n"), (1, false));
        assert_eq!(write(b"four\n"), (0, false));
        disk.lock().unwrap().1 = 100;
        assert_eq!(write(b"five\n"), (1, true));
        assert_eq!(String::from_utf8(disk.lock().unwrap().0.clone()).unwrap(), "one\ntwo \nfive\n");
    }
}
