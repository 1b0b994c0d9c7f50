//! Offload: runs long work on other threads, so that a worker's other reviews need not wait.
//!
//! Every parser of input from callers and hooks takes time proportional to its bytes: some tens of nanoseconds a byte
//! at worst. So input of [`OFFLOAD_THRESHOLD`] bytes or more is parsed on a thread beside the workers, a few inputs at
//! a time for the whole process. The request waits meanwhile, but its worker does not.

use std::{
    panic::resume_unwind,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::available_parallelism,
};

use tokio::{
    runtime::Handle,
    sync::Semaphore,
    task::{JoinError, spawn_blocking},
};

/// Size in bytes from which work is offloaded. Smaller work takes a worker 6 ms at worst (`benches/worst_cases.rs`),
/// and offloading costs some tens of microseconds.
pub const OFFLOAD_THRESHOLD: usize = 256 << 10;

/// Permits for offloaded work, one for each core. Further work waits, within its own deadline.
static PERMITS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(*CORES));

/// Permits for expressions, one fewer: expressions run longest, and callers' objects decide how long.
static EXPRESSION_PERMITS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(*CORES - 1));

/// Permit for spare work.
static SPARE_PERMIT: Semaphore = Semaphore::const_new(1);

/// Number of cores, two at least. It is asked for once, as that reads files.
static CORES: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(2, |cores| cores.get().max(2)));

/// Runs work on `bytes` bytes: on this thread if they are few, otherwise on another. If the future is dropped, work
/// that has begun still finishes, and keeps its permit until then.
pub async fn run<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes < OFFLOAD_THRESHOLD {
        return work();
    }
    // The semaphore is never closed.
    let permit = PERMITS.acquire().await.ok();
    run_with(permit, work).await
}

/// Runs work on another thread, with permits that it keeps until it is finished.
async fn run_with<T: Send + 'static>(permits: impl Send + 'static, work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = spawn_blocking(move || {
        let _permits = permits;
        work()
    });
    match done.await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => resume_unwind(panic),
        // Cancelled: the runtime is being shut down, and this task with it.
        Err(Err(_)) => std::future::pending().await,
    }
}

/// Evaluates expressions on another thread. One permit is always left to other work.
pub async fn evaluate<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // Kept until the work is finished. The semaphore is never closed.
    let permit = EXPRESSION_PERMITS.acquire().await.ok();
    run(OFFLOAD_THRESHOLD, move || {
        let _permit = permit;
        work()
    })
    .await
}

/// Runs spare work, which waits for other spare work: `None` if any other work is running when the turn comes. It takes
/// none of the permits of other work, which so never waits for it.
pub async fn run_spare<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let spare = SPARE_PERMIT.acquire().await.ok()?;
    let is_idle = PERMITS.available_permits() == *CORES && EXPRESSION_PERMITS.available_permits() == *CORES - 1;
    match is_idle {
        true => Some(run_with(spare, work).await),
        false => None,
    }
}

/// Like [`run`], for work that can be cancelled: if the future is dropped, the flag becomes true, and the work should
/// end early.
pub async fn run_unless_dropped<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce(&Arc<AtomicBool>) -> T + Send + 'static,
) -> T {
    let cancelled = Arc::new(AtomicBool::new(false));
    let _cancel = CancelOnDrop(Arc::clone(&cancelled));
    run(bytes, move || work(&cancelled)).await
}

/// Drops a value of about this many bytes: on this thread if they are few, otherwise on another.
pub fn discard<T: Send + 'static>(bytes: usize, value: T) {
    match Handle::try_current() {
        Ok(runtime) if bytes >= OFFLOAD_THRESHOLD => drop(runtime.spawn_blocking(move || drop(value))),
        _ => drop(value),
    }
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[tokio::test]
    async fn large_work_leaves_the_thread_and_small_work_does_not() {
        let here = thread::current().id();
        assert_eq!(run(OFFLOAD_THRESHOLD - 1, || thread::current().id()).await, here);
        assert_ne!(run(OFFLOAD_THRESHOLD, || thread::current().id()).await, here);
    }

    #[tokio::test]
    async fn other_work_has_a_turn_and_spare_work_has_none_whatever_expressions_take() {
        let (go_on, goes_on) = mpsc::channel::<()>();
        let goes_on = Arc::new(std::sync::Mutex::new(goes_on));
        let expressions: Vec<_> = (0..2 * *CORES)
            .map(|_| {
                let goes_on = Arc::clone(&goes_on);
                tokio::spawn(evaluate(move || drop(goes_on.lock().map(|goes_on| goes_on.recv()))))
            })
            .collect();
        while EXPRESSION_PERMITS.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(run(OFFLOAD_THRESHOLD, || "done").await, "done");
        assert_eq!(run_spare(|| "done").await, None, "spare work does not wait for its turn among them");
        drop(go_on);
        for expression in expressions {
            expression.await.unwrap();
        }
        assert_eq!(run_spare(|| "done").await, Some("done"));
    }

    #[tokio::test]
    async fn work_learns_that_nobody_waits_for_it() {
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (ended, has_ended) = tokio::sync::oneshot::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let waiting = tokio::spawn(run_unless_dropped(OFFLOAD_THRESHOLD, move |cancelled| {
            begun.send(cancelled.load(Ordering::Relaxed)).unwrap();
            let _ = goes_on.recv();
            ended.send(cancelled.load(Ordering::Relaxed)).unwrap();
        }));
        assert!(!has_begun.await.unwrap(), "somebody waits");
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        drop(go_on);
        assert!(has_ended.await.unwrap(), "nobody does any more");
    }

    #[tokio::test]
    async fn much_is_freed_beside_the_thread() {
        struct Freed(Option<tokio::sync::oneshot::Sender<thread::ThreadId>>);
        impl Drop for Freed {
            fn drop(&mut self) {
                let _ = self.0.take().map(|freed| freed.send(thread::current().id()));
            }
        }
        let here = thread::current().id();
        for (bytes, elsewhere) in [(OFFLOAD_THRESHOLD - 1, false), (OFFLOAD_THRESHOLD, true)] {
            let (free, freed) = tokio::sync::oneshot::channel();
            discard(bytes, Freed(Some(free)));
            assert_eq!(freed.await.unwrap() != here, elsewhere);
        }
    }

    #[tokio::test]
    async fn a_panic_is_handed_back() {
        let ended = tokio::spawn(run(OFFLOAD_THRESHOLD, || panic!("made up"))).await;
        assert!(ended.unwrap_err().is_panic());
    }
}
