//! The calling thread's CPU time, user and kernel.

use std::{fs, thread, time::Duration};

/// CPU time of this thread for the work.
pub(crate) fn of(work: impl FnOnce()) -> Duration {
    let began = spent();
    work();
    spent().saturating_sub(began)
}

fn spent() -> Duration {
    // The kernel brings the figure up to date when it schedules.
    thread::yield_now();
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel that counts CPU time by thread");
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("nanoseconds");
    Duration::from_nanos(nanos)
}
