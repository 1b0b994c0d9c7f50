//! Reads of regular files that neither block without end nor fill the memory.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustix::fs::OFlags;
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

/// Maximum number of concurrent reads of one source: the current read, and earlier ones that hang.
pub const MAX_CONCURRENT_READS: usize = 4;

/// The reason why a blocking read returned no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    /// The read did not end in time. It continues in the background, and its result is dropped.
    #[error("the file system did not answer within {0:?}")]
    Late(Duration),
    /// The read was not started, because [`MAX_CONCURRENT_READS`] earlier reads have not ended.
    #[error(
        "{MAX_CONCURRENT_READS} reads hang, and no other is begun before one of them ends; see what its file lies on"
    )]
    TooManyHangingReads,
    /// The read panicked.
    #[error("reading failed; this is a bug in gatepost")]
    Panicked,
}

/// Blocking reads of one source, each on its own thread and under a deadline.
///
/// A read that hangs is abandoned, and the next one runs beside it: the file system may hang forever, and the next read
/// may be of a file that was repaired. The late result of an abandoned read is dropped, because it would have to be
/// dated back to its start.
#[derive(Clone, Debug)]
pub struct BlockingReads {
    threads: Arc<Semaphore>,
}

impl Default for BlockingReads {
    fn default() -> Self {
        Self { threads: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)) }
    }
}

impl BlockingReads {
    /// Runs `read` on the runtime's blocking threads.
    ///
    /// # Errors
    /// [`ReadFailure`] if every thread hangs, `read` panicked, or the deadline passed.
    pub async fn run<T: Send + 'static>(
        &self,
        deadline: Duration,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ReadFailure> {
        let Ok(thread) = Arc::clone(&self.threads).try_acquire_owned() else {
            return Err(ReadFailure::TooManyHangingReads);
        };
        let reading = spawn_blocking(move || {
            let read = read();
            drop(thread);
            read
        });
        match timeout(deadline, reading).await {
            Ok(read) => read.map_err(|_| ReadFailure::Panicked),
            Err(_) => Err(ReadFailure::Late(deadline)),
        }
    }
}

/// With these flags, opening a pipe does not wait for a writer, and a terminal does not become the controlling one.
const NO_WAIT: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);
/// Maximum capacity to reserve for the reported length before anything was read, in bytes.
const MAX_INITIAL_CAPACITY: u64 = 1 << 20;

/// Opens the regular file at `path` and returns it with the metadata of its descriptor.
///
/// The path is checked first, because opening some devices has side effects. Another file may take its place meanwhile,
/// so the descriptor is checked as well.
///
/// # Errors
/// The system's error; `InvalidInput` if it is not a regular file, `IsADirectory` if it is a folder.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    check(&fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(NO_WAIT.bits() as i32).open(path)?;
    let opened = file.metadata()?;
    check(&opened)?;
    Ok((file, opened))
}

/// Reads the file at `path`, of at most `limit` bytes.
///
/// # Errors
/// As [`open`]; `FileTooLarge` beyond the limit; `WouldBlock` if reading a special file, such as one under `/proc`,
/// would block.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let (file, opened) = open(path)?;
    read_opened(file, opened.len(), limit)
}

/// Reads an open file whose reported length is `length`, of at most `limit` bytes. The file may have grown, and files
/// under `/proc` contain more than they report.
///
/// # Errors
/// As [`read`].
pub fn read_opened(file: File, length: u64, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {limit} bytes"));
    if length > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(length.min(MAX_INITIAL_CAPACITY) as usize);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}

fn check(what: &Metadata) -> io::Result<()> {
    match what {
        file if file.is_file() => Ok(()),
        folder if folder.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file but a pipe or a device; name a file, which is read again",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::symlink,
        process::Command,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
            mpsc,
        },
        thread,
    };

    use super::*;

    const DEADLINE: Duration = Duration::from_millis(800);

    #[tokio::test(start_paused = true)]
    async fn hanging_reads_are_abandoned_and_bounded() {
        let reads = BlockingReads::default();
        let (release, hung) = mpsc::channel::<()>();
        let hung = Arc::new(std::sync::Mutex::new(hung));
        for _ in 0..MAX_CONCURRENT_READS {
            let hung = Arc::clone(&hung);
            let hang = move || hung.lock().unwrap().recv().unwrap_or_default();
            let (read, ()) = tokio::join!(reads.run(DEADLINE, hang), tokio::time::advance(DEADLINE));
            assert_eq!(read, Err(ReadFailure::Late(DEADLINE)));
        }
        assert_eq!(reads.run(DEADLINE, || 1).await, Err(ReadFailure::TooManyHangingReads));
        drop(release);
        while reads.threads.available_permits() < MAX_CONCURRENT_READS {
            tokio::task::yield_now().await;
        }
        assert_eq!(reads.run(DEADLINE, || 2).await, Ok(2), "what hung has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn read_beside_a_hanging_one_returns() {
        let reads = BlockingReads::default();
        let (release, hung) = mpsc::channel::<()>();
        let hang = move || hung.recv().unwrap_or_default();
        let (late, ()) = tokio::join!(reads.run(DEADLINE, hang), tokio::time::advance(DEADLINE));
        assert_eq!((late, reads.run(DEADLINE, || 1).await), (Err(ReadFailure::Late(DEADLINE)), Ok(1)));
        drop(release);
    }

    #[tokio::test]
    async fn panicking_read_fails_and_frees_its_thread() {
        let reads = BlockingReads::default();
        for _ in 0..=MAX_CONCURRENT_READS {
            // Printing where it came from takes its time.
            let read = reads.run(Duration::from_secs(60), || -> u8 { panic!("by intent") });
            assert_eq!(read.await, Err(ReadFailure::Panicked));
        }
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "held").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"held");
        assert_eq!(read(&path, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read(folder.path(), 4).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read(&folder.path().join("absent"), 4).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(Path::new("/dev/null"), 4).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn file_of_unknown_length_is_read_up_to_the_limit() {
        let content = read(Path::new("/proc/self/status"), 1 << 20).unwrap();
        assert!(content.starts_with(b"Name:"), "its length is said to be 0");
        assert_eq!(read(Path::new("/proc/self/status"), 16).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    /// The check by name sees the file, the opening meets the pipe: without the check by descriptor and the flag,
    /// sooner or later one read waits for a writer who never comes.
    #[test]
    fn pipe_swapped_in_while_opening_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let [path, file, pipe] = ["path", "file", "pipe"].map(|name| folder.path().join(name));
        fs::write(&file, "held").unwrap();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        symlink(&file, &path).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let (stop, link) = (Arc::clone(&done), path.clone());
        let swapping = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for target in [&pipe, &file] {
                    let new = link.with_extension("new");
                    symlink(target, &new).unwrap();
                    fs::rename(&new, &link).unwrap();
                }
            }
        });
        let (mut held, mut refused) = (0, 0);
        while held < 200 || refused < 200 {
            match read(&path, 4) {
                Ok(bytes) => {
                    assert_eq!(bytes, b"held");
                    held += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
                    refused += 1;
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        swapping.join().unwrap();
    }
}
