//! Offload: work that would keep a worker's thread from its other reviews for too long.
//!
//! Every parser of what callers and hooks send takes time that grows with its bytes, whatever they are, and some tens
//! of nanoseconds a byte at worst. So what is larger than [`LARGE`] is parsed on a thread beside the workers, a few at
//! a time for the whole process; the rest of the request waits, and its worker does not.

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

/// From so many bytes on work is offloaded: less takes a worker 6 ms at worst (`benches/worst_cases.rs`), and handing
/// it over costs some tens of microseconds.
pub const LARGE: usize = 256 << 10;

/// As many at once as there are cores. The others queue, each within its own deadline.
static TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(turns()));

/// Turns that expressions may take: all but one. They run for longest, and callers' objects decide how long.
static EXPRESSION_TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(turns() - 1));

fn turns() -> usize {
    available_parallelism().map_or(2, |cores| cores.get().max(2))
}

/// Does this work on `bytes` bytes: at once where they are few, else beside the worker. Dropping the future gives up
/// waiting; work that has begun is finished, and keeps its turn until then.
pub async fn run<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes < LARGE {
        return work();
    }
    // It is never closed.
    let turn = TURNS.acquire().await.ok();
    let done = spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    match done.await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => resume_unwind(panic),
        // Cancelled: the runtime is being shut down, and this task with it.
        Err(Err(_)) => std::future::pending().await,
    }
}

/// Evaluates expressions beside the worker. One turn is always left to other work.
pub async fn evaluate<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // Kept until the work is finished, as its turn is. It is never closed.
    let turn = EXPRESSION_TURNS.acquire().await.ok();
    run(LARGE, move || {
        let _turn = turn;
        work()
    })
    .await
}

/// As [`run`], for work that looks now and then whether anybody still waits for it: the flag is set once nobody does.
pub async fn run_unless_dropped<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce(&Arc<AtomicBool>) -> T + Send + 'static,
) -> T {
    let cancelled = Arc::new(AtomicBool::new(false));
    let _cancel = CancelOnDrop(Arc::clone(&cancelled));
    run(bytes, move || work(&cancelled)).await
}

/// Frees what holds about so many bytes: at once where they are few, else beside the worker.
pub fn discard<T: Send + 'static>(bytes: usize, value: T) {
    match Handle::try_current() {
        Ok(runtime) if bytes >= LARGE => drop(runtime.spawn_blocking(move || drop(value))),
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
        assert_eq!(run(LARGE - 1, || thread::current().id()).await, here);
        assert_ne!(run(LARGE, || thread::current().id()).await, here);
    }

    #[tokio::test]
    async fn other_work_has_a_turn_whatever_expressions_take() {
        let (go_on, goes_on) = mpsc::channel::<()>();
        let goes_on = Arc::new(std::sync::Mutex::new(goes_on));
        let expressions: Vec<_> = (0..2 * turns())
            .map(|_| {
                let goes_on = Arc::clone(&goes_on);
                tokio::spawn(evaluate(move || drop(goes_on.lock().map(|goes_on| goes_on.recv()))))
            })
            .collect();
        while EXPRESSION_TURNS.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(run(LARGE, || "done").await, "done");
        drop(go_on);
        for expression in expressions {
            expression.await.unwrap();
        }
    }

    #[tokio::test]
    async fn work_learns_that_nobody_waits_for_it() {
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (ended, has_ended) = tokio::sync::oneshot::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let waiting = tokio::spawn(run_unless_dropped(LARGE, move |cancelled| {
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
        for (bytes, elsewhere) in [(LARGE - 1, false), (LARGE, true)] {
            let (free, freed) = tokio::sync::oneshot::channel();
            discard(bytes, Freed(Some(free)));
            assert_eq!(freed.await.unwrap() != here, elsewhere);
        }
    }

    #[tokio::test]
    async fn a_panic_is_handed_back() {
        let ended = tokio::spawn(run(LARGE, || panic!("made up"))).await;
        assert!(ended.unwrap_err().is_panic());
    }
}
