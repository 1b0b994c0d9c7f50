//! BlockingReads: reads that may hang, each on a thread of its own and under a deadline.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

/// Reads of one thing that may be under way at once: one, and those that hang.
pub const AT_ONCE: usize = 4;

/// Reasons why a read gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// It did not end in time, and is left behind.
    #[error("the file system did not answer within {0:?}")]
    Late(Duration),
    /// It was not begun: too many before it have not ended.
    #[error("{AT_ONCE} reads hang, and no other is begun before one of them ends; see what its file lies on")]
    AllHang,
    /// It panicked.
    #[error("reading failed; this is a bug in gatepost")]
    Panicked,
}

/// Reads of one thing, under a deadline. One that hangs is left behind, and the next one is begun beside it: what hangs
/// may hang for ever, and the next may be of a file that somebody has mended. The late result of one left behind is
/// thrown away, as it would have to be dated back to its own start.
#[derive(Clone, Debug)]
pub struct BlockingReads {
    threads: Arc<Semaphore>,
}

impl Default for BlockingReads {
    fn default() -> Self {
        Self { threads: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl BlockingReads {
    /// Runs `read` off this thread, on the runtime's threads for what blocks.
    ///
    /// # Errors
    /// [`Unread`]: every thread hangs, `read` has panicked, or the deadline has passed.
    pub async fn run<T: Send + 'static>(
        &self,
        deadline: Duration,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unread> {
        let Ok(thread) = Arc::clone(&self.threads).try_acquire_owned() else { return Err(Unread::AllHang) };
        let reading = spawn_blocking(move || {
            let read = read();
            drop(thread);
            read
        });
        match timeout(deadline, reading).await {
            Ok(read) => read.map_err(|_| Unread::Panicked),
            Err(_) => Err(Unread::Late(deadline)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const DEADLINE: Duration = Duration::from_millis(800);

    #[tokio::test(start_paused = true)]
    async fn reads_that_hang_are_left_behind_and_their_number_is_bounded() {
        let reads = BlockingReads::default();
        let (release, hung) = mpsc::channel::<()>();
        let hung = Arc::new(std::sync::Mutex::new(hung));
        for _ in 0..AT_ONCE {
            let hung = Arc::clone(&hung);
            let hang = move || hung.lock().unwrap().recv().unwrap_or_default();
            let (read, ()) = tokio::join!(reads.run(DEADLINE, hang), tokio::time::advance(DEADLINE));
            assert_eq!(read, Err(Unread::Late(DEADLINE)));
        }
        assert_eq!(reads.run(DEADLINE, || 1).await, Err(Unread::AllHang));
        drop(release);
        while reads.threads.available_permits() < AT_ONCE {
            tokio::task::yield_now().await;
        }
        assert_eq!(reads.run(DEADLINE, || 2).await, Ok(2), "what hung has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_beside_one_that_hangs_gives_what_it_found() {
        let reads = BlockingReads::default();
        let (release, hung) = mpsc::channel::<()>();
        let hang = move || hung.recv().unwrap_or_default();
        let (late, ()) = tokio::join!(reads.run(DEADLINE, hang), tokio::time::advance(DEADLINE));
        assert_eq!((late, reads.run(DEADLINE, || 1).await), (Err(Unread::Late(DEADLINE)), Ok(1)));
        drop(release);
    }

    #[tokio::test]
    async fn a_panic_is_no_read_and_takes_no_thread_away() {
        let reads = BlockingReads::default();
        for _ in 0..=AT_ONCE {
            // Printing where it came from takes its time.
            let read = reads.run(Duration::from_secs(60), || -> u8 { panic!("by intent") });
            assert_eq!(read.await, Err(Unread::Panicked));
        }
    }
}
