//! Priority: threads that give way to reviews.

/// Lower priority of the calling thread than that of the workers.
pub(crate) fn give_way() {
    /// A quarter of a core's time while a worker wants all of it: enough for a read to keep its deadline.
    const NICENESS: i32 = 5;
    // On Linux this is about the calling thread. Best effort: without it, reviews wait a little longer. Where all of us
    // is nicer already, root would be let put these threads before the reviews.
    if rustix::process::getpriority_process(None).is_ok_and(|now| now < NICENESS) {
        let _ = rustix::process::setpriority_process(None, NICENESS);
    }
}
