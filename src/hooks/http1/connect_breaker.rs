//! ConnectBreaker: pauses after connections that were made and carried no answer.
//!
//! A hook that accepts, and hangs up, costs both sides a handshake for each call. After some in a row calls fail at
//! once with what the last one came to, and one in a while tries again.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{clock::Backoff, model::CallFailure};

/// Failures in a row that are no reason to wait: a hook that restarts breaks all its connections.
const MOST_IN_A_ROW: u32 = 16;
/// Between two tries: the first pause, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The connections to one hook that carried no answer.
#[derive(Debug, Default)]
pub(super) struct ConnectBreaker(Mutex<Row>);

#[derive(Debug)]
struct Row {
    length: u32,
    /// Counts the failures that made the pause longer; those that were begun before are of an earlier one.
    pauses: u64,
    backoff: Backoff,
    pause: Duration,
    /// The next try.
    next: Option<Instant>,
    last: Option<CallFailure>,
}

impl Default for Row {
    fn default() -> Self {
        let backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        Self { length: 0, pauses: 0, backoff, pause: Duration::ZERO, next: None, last: None }
    }
}

/// A connection that is being made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pauses: u64,
}

impl ConnectBreaker {
    fn row(&self) -> MutexGuard<'_, Row> {
        // Nothing panics while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection may be made, or this is what the last one came to.
    pub(super) fn try_one(&self, now: Instant) -> Result<Trial, CallFailure> {
        let mut row = self.row();
        let attempt = Trial { pauses: row.pauses };
        match (row.next, &row.last) {
            (Some(next), Some(last)) if now < next => Err(last.clone()),
            (Some(_), _) => {
                row.next = Some(now + row.pause);
                Ok(attempt)
            }
            (None, _) => Ok(attempt),
        }
    }

    /// This one carried no answer.
    pub(super) fn failed(&self, attempt: Trial, now: Instant, failure: &CallFailure) {
        let mut row = self.row();
        row.length = row.length.saturating_add(1);
        row.last = Some(failure.clone());
        if row.length >= MOST_IN_A_ROW && attempt.pauses == row.pauses {
            row.pauses += 1;
            row.pause = row.backoff.pause();
            row.next = Some(now + row.pause);
        }
    }

    /// A connection has carried an answer.
    pub(super) fn answered(&self) {
        let mut row = self.row();
        if row.length > 0 {
            *row = Row { pauses: row.pauses + 1, ..Row::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> CallFailure {
        CallFailure::Connection("gone".into())
    }

    /// Connections to a hook in that time, were one wanted every millisecond; none carries an answer.
    fn made(breaker: &ConnectBreaker, from: Instant, millis: u64) -> usize {
        let times = (0..millis).map(|after| from + Duration::from_millis(after));
        let made = times.filter(|now| match breaker.try_one(*now) {
            Ok(attempt) => {
                breaker.failed(attempt, *now, &lost());
                true
            }
            Err(failure) => failure != lost(),
        });
        made.count()
    }

    #[test]
    fn a_hook_that_hangs_up_on_everybody_is_tried_once_a_second() {
        let (breaker, began) = (ConnectBreaker::default(), Instant::now());
        // 16 at once, then after 50, 100, 200, 400, 800 ms, and every second.
        assert_eq!(made(&breaker, began, 2000), 16 + 5);
        assert_eq!(made(&breaker, began + Duration::from_secs(2), 10_000), 10);
    }

    #[test]
    fn an_answer_ends_the_pauses() {
        let (breaker, now) = (ConnectBreaker::default(), Instant::now());
        assert_eq!(made(&breaker, now, 100), 16 + 1);
        breaker.answered();
        assert_eq!(made(&breaker, now, 16), 16);
    }

    #[test]
    fn connections_that_break_together_cost_one_pause() {
        let (breaker, now) = (ConnectBreaker::default(), Instant::now());
        let attempts: Vec<_> = (0..64).map(|_| breaker.try_one(now).expect("may be made")).collect();
        attempts.into_iter().for_each(|attempt| breaker.failed(attempt, now, &lost()));
        assert!(breaker.try_one(now).is_err());
        assert!(breaker.try_one(now + FIRST_PAUSE).is_ok());
        assert!(breaker.try_one(now + FIRST_PAUSE).is_err(), "one is enough to find out");
    }
}
