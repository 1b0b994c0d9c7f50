//! Activity: the requests under way on one client's connection, and how long it has been taking nothing of their answers.
//!
//! A connection takes one of few places, and an answer that was made or inspected here takes memory. So a connection
//! without requests ends after a while, and so does one whose client does not take what is ready for it. A client that has
//! begun to read a stream may be slow, or pause: a log in a pager does. Taken is what was written to the connection; the
//! library that writes it asks for more before it has written what it has.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};

/// Time for the first request of a connection.
const FIRST_WITHIN: Duration = Duration::from_secs(30);
/// Time after which a connection without requests ends.
const IDLE: Duration = Duration::from_secs(90);
/// Time in which something has to be taken of an answer that is kept in memory.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Time in which something has to be taken of any of the answers.
const BEGUN_WITHIN: Duration = Duration::from_secs(60);
/// The same where something of each that is ready was taken before.
const PAUSED_WITHIN: Duration = Duration::from_secs(30 * 60);
/// Memory for inspected objects that one connection may have, in KiB.
const SHARE_KIB: usize = 32 << 10;

/// Requests under way on one connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
    retired: Notify,
    /// Unused part of the connection's share of the memory for inspected objects.
    pub(super) share: Arc<Semaphore>,
    /// The same for answers to writes: what was stored must not be lost for what is read.
    pub(super) share_of_writes: Arc<Semaphore>,
}

#[derive(Debug)]
struct State {
    answers: HashMap<u64, Taking>,
    begun: u64,
    idle_since: Instant,
}

/// How an answer stands.
#[derive(Clone, Copy, Debug)]
struct Taking {
    /// When there was something to take for the first time, or something was taken for the last.
    since: Instant,
    /// Parts that were given to the client's connection, and are not written yet.
    given: usize,
    /// The next part is asked for, and not there yet: the apiserver's turn, or ours.
    is_awaited: bool,
    /// Something was taken.
    is_begun: bool,
    /// It is kept in memory, whole.
    is_kept: bool,
}

/// One request under way, until its answer is dropped.
#[derive(Debug)]
pub(super) struct UnderWay {
    activity: Arc<Activity>,
    number: u64,
}

/// Result of a look at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It is used.
    Used,
    /// It has had no requests for long enough.
    Idle,
    /// Its client takes nothing.
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
    /// A request has come.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.answers.insert(number, Taking { is_awaited: true, ..Taking::new(false) });
        UnderWay { activity: Arc::clone(self), number }
    }

    /// No further requests are wanted on this connection.
    pub(super) fn retire(&self) {
        self.retired.notify_one();
    }

    /// Done once no further requests are wanted.
    pub(super) async fn retired(&self) {
        self.retired.notified().await;
    }

    /// How the connection stands. One that is told to end may not pause for as long.
    pub(super) fn look(&self, ends: bool) -> Look {
        let state = self.state();
        if state.answers.is_empty() {
            let limit = if state.begun == 0 { FIRST_WITHIN } else { IDLE };
            return if state.idle_since.elapsed() >= limit { Look::Idle } else { Look::Used };
        }
        let is_stuck = |taking: &Taking, limit| !taking.waits_for_us() && taking.since.elapsed() >= limit;
        let is_kept_unread = state.answers.values().any(|taking| taking.is_kept && is_stuck(taking, TAKEN_WITHIN));
        let limit = |taking: &Taking| if taking.is_begun && !ends { PAUSED_WITHIN } else { BEGUN_WITHIN };
        let is_unread = state.answers.values().all(|taking| is_stuck(taking, limit(taking)));
        if is_kept_unread || is_unread { Look::Stuck } else { Look::Used }
    }

    /// True where no request is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.state().answers.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taking {
    fn new(is_kept: bool) -> Self {
        Self { since: Instant::now(), given: 0, is_awaited: false, is_begun: false, is_kept }
    }

    /// Is it the apiserver's turn, or ours, and not the client's?
    fn waits_for_us(&self) -> bool {
        self.is_awaited && self.given == 0
    }
}

impl UnderWay {
    /// Its answer is ready for the client; with what follows kept in memory, or not.
    pub(super) fn answered(&self, is_kept: bool) {
        self.set(|taking| *taking = Taking::new(is_kept));
    }

    /// The next part is asked for.
    pub(super) fn awaited(&self) {
        self.set(|taking| taking.is_awaited = true);
    }

    /// A part was given to the client's connection.
    pub(super) fn given(&self) {
        self.set(|taking| {
            if taking.waits_for_us() {
                taking.since = Instant::now();
            }
            taking.is_awaited = false;
            taking.given += 1;
        });
    }

    /// A part was written, or given up.
    pub(super) fn taken(&self) {
        self.set(|taking| {
            taking.since = Instant::now();
            taking.is_begun = true;
            taking.given = taking.given.saturating_sub(1);
        });
    }

    fn set(&self, change: impl FnOnce(&mut Taking)) {
        if let Some(taking) = self.activity.state().answers.get_mut(&self.number) {
            change(taking);
        }
    }
}

impl Drop for UnderWay {
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
        advance(FIRST_WITHIN - Duration::from_millis(1)).await;
        assert_eq!(activity.look(false), Look::Used);
        advance(Duration::from_millis(1)).await;
        assert_eq!(activity.look(false), Look::Idle, "it has never had one");
        let request = activity.begin();
        advance(10 * IDLE).await;
        assert_eq!(activity.look(false), Look::Used, "the apiserver may take long");
        drop(request);
        advance(IDLE - Duration::from_millis(1)).await;
        assert_eq!(activity.look(false), Look::Used);
        advance(Duration::from_millis(1)).await;
        assert_eq!(activity.look(false), Look::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_found() {
        let activity = Arc::new(Activity::default());
        // One answer that was never begun, beside a watch that waits for events.
        let (unread, watch) = (activity.begin(), activity.begin());
        unread.answered(false);
        watch.answered(false);
        watch.awaited();
        advance(10 * BEGUN_WITHIN).await;
        assert_eq!(activity.look(false), Look::Used);
        drop(watch);
        assert_eq!(activity.look(false), Look::Stuck, "nothing else is under way");
        // Parts are asked for whether or not the client takes any.
        unread.awaited();
        unread.given();
        unread.awaited();
        unread.given();
        advance(BEGUN_WITHIN).await;
        assert_eq!(activity.look(false), Look::Stuck, "it was given two, and has taken none");
        // A reader that has begun may pause, but not for ever, nor once it was told to leave.
        unread.taken();
        advance(PAUSED_WITHIN - Duration::from_millis(1)).await;
        assert_eq!((activity.look(false), activity.look(true)), (Look::Used, Look::Stuck));
        advance(Duration::from_millis(1)).await;
        assert_eq!(activity.look(false), Look::Stuck);
        // It has taken all, and waits for the apiserver.
        unread.awaited();
        unread.taken();
        advance(10 * PAUSED_WITHIN).await;
        assert_eq!((activity.look(false), activity.look(true)), (Look::Used, Look::Used));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_slow_with_what_is_kept_goes_on() {
        let activity = Arc::new(Activity::default());
        let kept = activity.begin();
        kept.answered(true);
        // All of it is given at once, and written in a long time.
        for _ in 0..10 {
            kept.awaited();
            kept.given();
        }
        for _ in 0..10 {
            advance(TAKEN_WITHIN - Duration::from_millis(1)).await;
            assert_eq!(activity.look(false), Look::Used);
            kept.taken();
        }
        advance(TAKEN_WITHIN - Duration::from_millis(1)).await;
        assert_eq!(activity.look(false), Look::Used);
        advance(Duration::from_millis(1)).await;
        assert_eq!(activity.look(false), Look::Stuck, "the end was not asked for");
    }
}
