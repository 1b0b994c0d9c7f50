//! DialPace: the times at which a client may dial.

use std::time::{Duration, Instant};

use crate::clock::{Backoff, chance, jittered};

/// Pauses after connections that came to nothing, while nobody asks: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Factors between which they vary.
const JITTER: (f64, f64) = (0.75, 1.25);
/// The longest while somebody asks: a hook that has come back is to be found soon.
const LONGEST_ASKED: Duration = Duration::from_millis(250);
/// A client does not dial more often than this.
const BETWEEN_DIALS: Duration = Duration::from_millis(20);

/// Outcome of a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DialOutcome {
    /// A connection on which a call was answered, or that has lasted.
    Answers,
    /// A connection without an answer, or one that broke while it was being made.
    Nothing,
    /// The connection was refused, which costs neither side anything.
    Refused,
}

/// Times at which a worker's client may dial.
#[derive(Debug)]
pub(super) struct DialPace {
    /// Time of the last dial, and its outcome, once it is known.
    dialled: Option<Instant>,
    ended: Option<(Instant, DialOutcome)>,
    backoff: Backoff,
    /// From 0 to 1: replicas and workers should not dial in step.
    chance: fn() -> f64,
}

impl Default for DialPace {
    fn default() -> Self {
        Self { dialled: None, ended: None, backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), chance }
    }
}

impl DialPace {
    /// It dials.
    pub(super) fn dials(&mut self, now: Instant) {
        self.dialled = Some(now);
        self.ended = None;
    }

    /// Records the outcome of the last dial.
    pub(super) fn ended(&mut self, now: Instant, outcome: DialOutcome) {
        let lasted = self.dialled.is_some_and(|dialled| now.duration_since(dialled) >= LONGEST_PAUSE);
        if outcome == DialOutcome::Answers || outcome == DialOutcome::Nothing && lasted {
            self.backoff.reset();
            self.ended = Some((now, DialOutcome::Answers));
            return;
        }
        if self.ended.is_none() && self.dialled.is_some() {
            self.ended = Some((now + jittered(self.backoff.pause(), JITTER, (self.chance)()), outcome));
        }
    }

    /// Not before then, whether or not somebody asks.
    pub(super) fn next(&self, asked: bool) -> Option<Instant> {
        let dialled = self.dialled?;
        let soon = dialled + BETWEEN_DIALS;
        Some(match self.ended {
            None | Some((_, DialOutcome::Answers)) => soon,
            Some((_, DialOutcome::Refused)) if asked => soon,
            Some((then, _)) if asked => then.min(dialled + LONGEST_ASKED).max(soon),
            Some((then, _)) => then.max(soon),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> DialPace {
        DialPace { chance: || 0.5, ..DialPace::default() }
    }

    /// Dials in a minute, when every dial has this outcome at once.
    fn dials_a_minute(outcome: DialOutcome, asked: bool) -> usize {
        let (mut pace, began) = (pace(), Instant::now());
        let mut now = began;
        let mut dials = 0;
        while now < began + Duration::from_secs(60) {
            pace.dials(now);
            pace.ended(now, outcome);
            dials += 1;
            now = pace.next(asked).expect("it has dialled");
        }
        dials
    }

    #[test]
    fn a_hook_that_greets_and_leaves_is_dialled_less_and_less() {
        // 50 ms, 100 ms, … 3.2 s, then every 5 s.
        assert_eq!(dials_a_minute(DialOutcome::Nothing, false), 18);
        // 50 ms, 100 ms, 200 ms, then every 250 ms.
        assert_eq!(dials_a_minute(DialOutcome::Nothing, true), 242);
        assert_eq!(dials_a_minute(DialOutcome::Refused, false), 18);
    }

    #[test]
    fn a_hook_that_is_away_is_found_as_soon_as_a_call_asks_for_it() {
        let (mut pace, now) = (pace(), Instant::now());
        assert_eq!(pace.next(false), None, "the first dial waits for nothing");
        for _ in 0..20 {
            pace.dials(now);
            pace.ended(now, DialOutcome::Refused);
        }
        assert_eq!(pace.next(true), Some(now + BETWEEN_DIALS));
        assert_eq!(pace.next(false), Some(now + LONGEST_PAUSE));
    }

    #[test]
    fn answers_end_the_pauses_and_so_does_a_connection_that_has_lasted() {
        for (outcome, after) in [(DialOutcome::Answers, Duration::ZERO), (DialOutcome::Nothing, LONGEST_PAUSE)] {
            let (mut pace, now) = (pace(), Instant::now());
            for _ in 0..9 {
                pace.dials(now);
                pace.ended(now, DialOutcome::Nothing);
            }
            pace.dials(now);
            pace.ended(now + after, outcome);
            assert_eq!(pace.next(false), Some(now + BETWEEN_DIALS), "{outcome:?}");
            pace.dials(now);
            pace.ended(now, DialOutcome::Nothing);
            assert_eq!(pace.next(false), Some(now + FIRST_PAUSE), "{outcome:?}");
        }
    }

    #[test]
    fn pauses_differ_a_little() {
        let mut pauses: Vec<_> = (0..50)
            .map(|_| {
                let (mut pace, now) = (DialPace::default(), Instant::now());
                pace.dials(now);
                pace.ended(now, DialOutcome::Nothing);
                pace.next(false).expect("it has dialled").duration_since(now)
            })
            .collect();
        pauses.sort();
        pauses.dedup();
        assert!(pauses.len() > 10 && pauses[0] >= FIRST_PAUSE * 3 / 4);
        assert!(pauses[pauses.len() - 1] <= FIRST_PAUSE * 5 / 4);
    }
}
