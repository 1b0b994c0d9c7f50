//! Requests in progress on one client's connection, and the time since the client last read their responses.
//!
//! The number of connections is limited, and a response that was created or inspected here occupies memory. A
//! connection is therefore closed if it has no requests for a while, or if its client does not read a ready response. A
//! client that has begun to read a stream may be slow or pause, such as a log in a pager. A part counts as read once it
//! was written to the connection; hyper polls for the next part before it has written the last one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};

/// Timeout of the first request on a connection.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a connection without requests.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Timeout without write progress of a response that is kept in memory.
const BUFFERED_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout without write progress of a response not yet begun. The connection ends if all responses time out.
const FIRST_WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout without write progress of a response of which a part was written before.
const WRITE_PAUSE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Maximum memory of one connection for inspected objects, in KiB.
const SHARE_KIB: usize = 32 << 10;

/// Requests in progress on one connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
    retired: Notify,
    /// Unused part of the connection's share in the memory for inspected objects.
    pub(super) share: Arc<Semaphore>,
    /// Unused share for responses to writes, so that reads cannot block responses about stored objects.
    pub(super) share_of_writes: Arc<Semaphore>,
}

#[derive(Debug)]
struct State {
    answers: HashMap<u64, ResponseProgress>,
    begun: u64,
    idle_since: Instant,
}

/// Progress of a response.
#[derive(Clone, Copy, Debug)]
struct ResponseProgress {
    /// Time at which the first part was ready, or the last part was written.
    since: Instant,
    /// Number of parts passed to the client's connection that are not written yet.
    unwritten_parts: usize,
    /// Whether the next part is requested and not ready: the apiserver or the proxy delays it.
    is_awaited: bool,
    /// Whether a part was written.
    is_begun: bool,
    /// Whether the response is kept in memory as a whole.
    is_buffered: bool,
}

/// One request in progress, until its response is dropped.
#[derive(Debug)]
pub(super) struct RequestInProgress {
    activity: Arc<Activity>,
    number: u64,
}

/// Result of a check of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActivityCheck {
    /// The connection is in use.
    Used,
    /// The connection has timed out without requests.
    Idle,
    /// The client does not read its responses.
    Stuck,
}

impl Default for Activity {
    fn default() -> Self {
        let state = State { answers: HashMap::new(), begun: 0, idle_since: Instant::now() };
        let share = || Arc::new(Semaphore::new(SHARE_KIB));
        Self { state: Mutex::new(state), retired: Notify::new(), share: share(), share_of_writes: share() }
    }
}

impl Activity {
    /// Registers a new request.
    pub(super) fn begin(self: &Arc<Self>) -> RequestInProgress {
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.answers.insert(number, ResponseProgress { is_awaited: true, ..ResponseProgress::new(false) });
        RequestInProgress { activity: Arc::clone(self), number }
    }

    /// Ends the connection after the requests in progress.
    pub(super) fn retire(&self) {
        self.retired.notify_one();
    }

    /// Completes once the connection is retired.
    pub(super) async fn retired(&self) {
        self.retired.notified().await;
    }

    /// Checks the connection. The client of a connection that is shutting down (`ends`)
    /// may pause for less time than others.
    pub(super) fn check(&self, ends: bool) -> ActivityCheck {
        let state = self.state();
        if state.answers.is_empty() {
            let limit = if state.begun == 0 { FIRST_REQUEST_TIMEOUT } else { IDLE_TIMEOUT };
            return if state.idle_since.elapsed() >= limit { ActivityCheck::Idle } else { ActivityCheck::Used };
        }
        let is_stuck =
            |progress: &ResponseProgress, limit| !progress.waits_for_us() && progress.since.elapsed() >= limit;
        let is_buffered_unread = state
            .answers
            .values()
            .any(|progress| progress.is_buffered && is_stuck(progress, BUFFERED_RESPONSE_TIMEOUT));
        let limit = |progress: &ResponseProgress| {
            if progress.is_begun && !ends { WRITE_PAUSE_TIMEOUT } else { FIRST_WRITE_TIMEOUT }
        };
        let is_unread = state.answers.values().all(|progress| is_stuck(progress, limit(progress)));
        if is_buffered_unread || is_unread { ActivityCheck::Stuck } else { ActivityCheck::Used }
    }

    /// Returns true if no request is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.state().answers.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResponseProgress {
    fn new(is_buffered: bool) -> Self {
        Self { since: Instant::now(), unwritten_parts: 0, is_awaited: false, is_begun: false, is_buffered }
    }

    /// Returns true if the apiserver or the proxy delays the next part, and not the client.
    fn waits_for_us(&self) -> bool {
        self.is_awaited && self.unwritten_parts == 0
    }
}

impl RequestInProgress {
    /// Records that the response is ready for the client, and whether its body is kept in memory.
    pub(super) fn on_response_ready(&self, is_buffered: bool) {
        self.set(|progress| *progress = ResponseProgress::new(is_buffered));
    }

    /// Records that the next part is requested.
    pub(super) fn on_part_requested(&self) {
        self.set(|progress| progress.is_awaited = true);
    }

    /// Records that a part was passed to the client's connection.
    pub(super) fn on_part_passed(&self) {
        self.set(|progress| {
            if progress.waits_for_us() {
                progress.since = Instant::now();
            }
            progress.is_awaited = false;
            progress.unwritten_parts += 1;
        });
    }

    /// Records that a part was written or dropped.
    pub(super) fn on_part_written(&self) {
        self.set(|progress| {
            progress.since = Instant::now();
            progress.is_begun = true;
            progress.unwritten_parts = progress.unwritten_parts.saturating_sub(1);
        });
    }

    fn set(&self, change: impl FnOnce(&mut ResponseProgress)) {
        if let Some(progress) = self.activity.state().answers.get_mut(&self.number) {
            change(progress);
        }
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        state.answers.remove(&self.number);
        if state.answers.is_empty() {
            state.idle_since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_requests_is_idle() {
        let activity = Arc::new(Activity::default());
        advance(FIRST_REQUEST_TIMEOUT - Duration::from_millis(1)).await;
        assert_eq!(activity.check(false), ActivityCheck::Used);
        advance(Duration::from_millis(1)).await;
        assert_eq!(activity.check(false), ActivityCheck::Idle, "it has never had one");
        let request = activity.begin();
        advance(10 * IDLE_TIMEOUT).await;
        assert_eq!(activity.check(false), ActivityCheck::Used, "the apiserver may take long");
        drop(request);
        advance(IDLE_TIMEOUT - Duration::from_millis(1)).await;
        assert_eq!(activity.check(false), ActivityCheck::Used);
        advance(Duration::from_millis(1)).await;
        assert_eq!(activity.check(false), ActivityCheck::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_found() {
        let activity = Arc::new(Activity::default());
        // One answer that was never begun, beside a watch that waits for events.
        let (unread, watch) = (activity.begin(), activity.begin());
        unread.on_response_ready(false);
        watch.on_response_ready(false);
        watch.on_part_requested();
        advance(10 * FIRST_WRITE_TIMEOUT).await;
        assert_eq!(activity.check(false), ActivityCheck::Used);
        drop(watch);
        assert_eq!(activity.check(false), ActivityCheck::Stuck, "nothing else is under way");
        // Parts are asked for whether or not the client takes any.
        unread.on_part_requested();
        unread.on_part_passed();
        unread.on_part_requested();
        unread.on_part_passed();
        advance(FIRST_WRITE_TIMEOUT).await;
        assert_eq!(activity.check(false), ActivityCheck::Stuck, "it was given two, and has taken none");
        // A reader that has begun may pause, but not for ever, nor once it was told to leave.
        unread.on_part_written();
        advance(WRITE_PAUSE_TIMEOUT - Duration::from_millis(1)).await;
        assert_eq!((activity.check(false), activity.check(true)), (ActivityCheck::Used, ActivityCheck::Stuck));
        advance(Duration::from_millis(1)).await;
        assert_eq!(activity.check(false), ActivityCheck::Stuck);
        // It has taken all, and waits for the apiserver.
        unread.on_part_requested();
        unread.on_part_written();
        advance(10 * WRITE_PAUSE_TIMEOUT).await;
        assert_eq!((activity.check(false), activity.check(true)), (ActivityCheck::Used, ActivityCheck::Used));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_slow_with_what_is_kept_goes_on() {
        let activity = Arc::new(Activity::default());
        let kept = activity.begin();
        kept.on_response_ready(true);
        // All of it is given at once, and written in a long time.
        for _ in 0..10 {
            kept.on_part_requested();
            kept.on_part_passed();
        }
        for _ in 0..10 {
            advance(BUFFERED_RESPONSE_TIMEOUT - Duration::from_millis(1)).await;
            assert_eq!(activity.check(false), ActivityCheck::Used);
            kept.on_part_written();
        }
        advance(BUFFERED_RESPONSE_TIMEOUT - Duration::from_millis(1)).await;
        assert_eq!(activity.check(false), ActivityCheck::Used);
        advance(Duration::from_millis(1)).await;
        assert_eq!(activity.check(false), ActivityCheck::Stuck, "the end was not asked for");
    }
}
