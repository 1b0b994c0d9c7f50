//! IdleArbiter: state that the clients of one endpoint share for HTTP/1.1: which idle connections give way to a waiting
//! call, and pauses after connections that carried no answer.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{Notify, futures::Notified},
    time::timeout,
};

use crate::hooks::connection_budget::CountGuard;
use gatepost_api::CallFailure;
use gatepost_base::clock::Backoff;

/// Time to wait for a new connection, TLS included, before an idle one may be closed for it. A connection that has been
/// idle for less stays, as simultaneous calls are answered at about the same time.
pub(super) const EVICTION_DELAY: Duration = Duration::from_millis(100);
/// Number of consecutive failures before the first pause: a hook that restarts breaks all its connections.
const MAX_FAILURES_IN_A_ROW: u32 = 16;
/// First and maximum pause between two connection attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// State that the clients of one endpoint share about their HTTP/1.1 connections.
///
/// Some hooks serve one connection at a time, so that an idle connection of ours blocks every new one. Only a call that
/// waits reveals such a hook. Idle connections of all clients therefore give way when a call has waited on a new
/// connection for [`EVICTION_DELAY`], unless the hook was seen to serve several connections concurrently.
#[derive(Debug, Default)]
pub(in super::super) struct IdleArbiter {
    /// Number of calls that have waited long enough for an idle connection to be closed.
    waiting: AtomicUsize,
    /// Number of idle connections.
    idle: AtomicUsize,
    /// True once the hook has answered on a new connection while another one was idle.
    serves_several: AtomicBool,
    changes: Notify,
    pub(super) breaker: ConnectBreaker,
}

/// Counts an idle connection until it is dropped.
#[derive(Debug)]
pub(super) struct IdleGuard(Arc<IdleArbiter>);

impl IdleArbiter {
    /// Runs `work`, which needs a new connection. Idle connections give way after [`EVICTION_DELAY`].
    pub(in super::super) async fn run_or_evict_idle<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Ok(done) = timeout(EVICTION_DELAY, &mut work).await {
            return done;
        }
        let _waiting = self.want_eviction();
        work.await
    }

    /// Makes idle connections give way until the guard is dropped.
    pub(super) fn want_eviction(&self) -> CountGuard<'_> {
        let waiting = CountGuard::new(&self.waiting);
        self.changes.notify_waiters();
        waiting
    }

    /// Counts a connection as idle until the guard is dropped.
    pub(super) fn idle_guard(self: &Arc<Self>) -> IdleGuard {
        self.idle.fetch_add(1, SeqCst);
        IdleGuard(self.clone())
    }

    /// Notifies the other clients that one waits for a slot. They then check their idle connections.
    pub(super) fn want_slot(&self) {
        self.changes.notify_waiters();
    }

    /// Records an answered call on a new connection.
    pub(super) fn record_answer(&self) {
        self.breaker.record_answer();
        if self.idle.load(SeqCst) > 0 {
            self.serves_several.store(true, SeqCst);
        }
    }

    /// Returns true if idle connections are to give way.
    pub(super) fn eviction_wanted(&self) -> bool {
        self.waiting.load(SeqCst) > 0 && !self.serves_several.load(SeqCst)
    }

    /// Ready when idle connections may have to give way.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changes.notified()
    }
}

impl Drop for IdleGuard {
    fn drop(&mut self) {
        self.0.idle.fetch_sub(1, SeqCst);
    }
}

/// Circuit breaker for connections that are established and carry no answer.
///
/// A hook that accepts connections and closes them costs both sides a handshake for each call. After several in a row,
/// calls fail immediately with the failure of the last one; after each pause one call tries again.
#[derive(Debug, Default)]
pub(super) struct ConnectBreaker(Mutex<FailureStreak>);

/// Consecutive connections without an answer, and the pauses after them.
#[derive(Debug)]
struct FailureStreak {
    length: u32,
    /// Number of pauses so far. A failed attempt starts another pause only if no pause began since the attempt.
    pause_count: u64,
    backoff: Backoff,
    pause: Duration,
    /// Time of the next try.
    next: Option<Instant>,
    last: Option<CallFailure>,
}

impl Default for FailureStreak {
    fn default() -> Self {
        let backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        Self { length: 0, pause_count: 0, backoff, pause: Duration::ZERO, next: None, last: None }
    }
}

/// A connection that is being dialled. The attempt knows in which pause it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionAttempt {
    pause_count: u64,
}

impl ConnectBreaker {
    fn streak(&self) -> MutexGuard<'_, FailureStreak> {
        // Nothing panics while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allows a new connection; during a pause, returns the failure of the last connection instead.
    pub(super) fn begin_attempt(&self, now: Instant) -> Result<ConnectionAttempt, CallFailure> {
        let mut streak = self.streak();
        let attempt = ConnectionAttempt { pause_count: streak.pause_count };
        if let (Some(next), Some(last)) = (streak.next, &streak.last)
            && now < next
        {
            return Err(last.clone());
        }
        streak.next = streak.next.map(|_| now + streak.pause);
        Ok(attempt)
    }

    /// Records a connection without an answer.
    pub(super) fn record_failure(&self, attempt: ConnectionAttempt, now: Instant, failure: &CallFailure) {
        let mut streak = self.streak();
        streak.length = streak.length.saturating_add(1);
        streak.last = Some(failure.clone());
        if streak.length >= MAX_FAILURES_IN_A_ROW && attempt.pause_count == streak.pause_count {
            streak.pause_count += 1;
            streak.pause = streak.backoff.pause();
            streak.next = Some(now + streak.pause);
        }
    }

    /// Records a connection with an answer.
    pub(super) fn record_answer(&self) {
        let mut streak = self.streak();
        if streak.length > 0 {
            *streak = FailureStreak { pause_count: streak.pause_count + 1, ..FailureStreak::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_give_way_while_a_call_waits() {
        let arbiter = Arc::new(IdleArbiter::default());
        assert!(!arbiter.eviction_wanted());
        let waiting = arbiter.want_eviction();
        assert!(arbiter.eviction_wanted());
        arbiter.record_answer();
        assert!(arbiter.eviction_wanted(), "nothing was idle: the hook may serve one after the other");
        drop(waiting);
        assert!(!arbiter.eviction_wanted());
    }

    #[test]
    fn concurrent_hook_keeps_its_idle_connections() {
        let arbiter = Arc::new(IdleArbiter::default());
        let guard = arbiter.idle_guard();
        arbiter.record_answer();
        drop(guard);
        let _waiting = arbiter.want_eviction();
        assert!(!arbiter.eviction_wanted());
    }

    fn lost() -> CallFailure {
        CallFailure::Connection("gone".into())
    }

    /// Counts connections that the breaker allows if one is attempted every millisecond and none gets an answer.
    fn connections_made(breaker: &ConnectBreaker, from: Instant, millis: u64) -> usize {
        let times = (0..millis).map(|after| from + Duration::from_millis(after));
        let made = times.filter(|now| match breaker.begin_attempt(*now) {
            Ok(attempt) => {
                breaker.record_failure(attempt, *now, &lost());
                true
            }
            Err(failure) => failure != lost(),
        });
        made.count()
    }

    #[test]
    fn a_hook_that_closes_every_connection_is_tried_once_a_second() {
        let (breaker, began) = (ConnectBreaker::default(), Instant::now());
        // 16 at once, then after 50, 100, 200, 400, 800 ms, and every second.
        assert_eq!(connections_made(&breaker, began, 2000), 16 + 5);
        assert_eq!(connections_made(&breaker, began + Duration::from_secs(2), 10_000), 10);
    }

    #[test]
    fn an_answer_ends_the_breaker_s_pauses() {
        let (breaker, now) = (ConnectBreaker::default(), Instant::now());
        assert_eq!(connections_made(&breaker, now, 100), 16 + 1);
        breaker.record_answer();
        assert_eq!(connections_made(&breaker, now, 16), 16);
    }

    #[test]
    fn connections_that_break_together_cause_one_pause() {
        let (breaker, now) = (ConnectBreaker::default(), Instant::now());
        let attempts: Vec<_> = (0..64).map(|_| breaker.begin_attempt(now).expect("may be made")).collect();
        attempts.into_iter().for_each(|attempt| breaker.record_failure(attempt, now, &lost()));
        assert!(breaker.begin_attempt(now).is_err());
        assert!(breaker.begin_attempt(now + FIRST_PAUSE).is_ok());
        assert!(breaker.begin_attempt(now + FIRST_PAUSE).is_err(), "one is enough to find out");
    }
}
