//! Fights: owners that remove our condition again and again.

use std::{collections::VecDeque, time::Duration};

/// Most drops within [`WINDOW`] that leave the webhook eligible to be taken again at once; one more starts a pause.
const MOST: usize = 3;
/// Time within which drops count as one fight; four times the time that both call the webhook after a drop, where that is
/// longer.
const WINDOW: Duration = Duration::from_secs(60);
/// Most drops within [`HOUR`], however far apart: after every one both call the webhook for some seconds.
const MOST_IN_AN_HOUR: usize = 12;
const HOUR: Duration = Duration::from_secs(3600);
/// First pause after a fight, in which the webhook is left to the apiserver; each further pause is twice as long.
const PAUSE: Duration = Duration::from_secs(5 * 60);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

/// Drops of our condition from one webhook, and the pauses that they cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fights {
    drops: VecDeque<Duration>,
    /// Fights lost in a row.
    lost: u32,
    /// Drops in them.
    lost_by: u32,
    until: Option<Duration>,
}

impl Fights {
    /// The owner has dropped our condition, and an apiserver may hold back a request that it has not called the webhook
    /// about for so long.
    pub fn dropped(&mut self, now: Duration, in_flight: Duration) {
        let window = WINDOW.max(in_flight.saturating_mul(4));
        self.drops.retain(|at| now.saturating_sub(*at) < HOUR);
        self.drops.push_back(now);
        let recent = self.drops.iter().filter(|at| now.saturating_sub(**at) < window).count();
        if recent > MOST || self.drops.len() > MOST_IN_AN_HOUR {
            // A pause that has long passed was not followed by another fight.
            if self.until.is_some_and(|until| now > until + LONGEST) {
                (self.lost, self.lost_by) = (0, 0);
            }
            self.lost_by = self.lost_by.saturating_add(u32::try_from(self.drops.len()).unwrap_or(u32::MAX));
            self.drops.clear();
            let pause = PAUSE.saturating_mul(1 << self.lost.min(10)).min(LONGEST);
            self.lost += 1;
            self.until = Some(now + pause);
        }
    }

    /// Number of drops that led to the current pause, over all fights lost in a row; `None` while the webhook may be
    /// taken.
    pub fn lost(&self, now: Duration) -> Option<u32> {
        let resting = self.until.is_some_and(|until| now < until);
        resting.then_some(self.lost_by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn dropped(fights: &mut Fights, second: u64) {
        fights.dropped(at(second), Duration::ZERO);
    }

    #[test]
    fn several_drops_in_a_row_end_it_for_longer_each_time() {
        let mut fights = Fights::default();
        for second in [0, 2, 4] {
            dropped(&mut fights, second);
            assert_eq!(fights.lost(at(second)), None);
        }
        dropped(&mut fights, 6);
        assert_eq!((fights.lost(at(6)), fights.lost(at(305)), fights.lost(at(306))), (Some(4), Some(4), None));
        [400, 401, 402, 403].into_iter().for_each(|second| dropped(&mut fights, second));
        assert_eq!((fights.lost(at(1002)), fights.lost(at(1003))), (Some(8), None), "ten minutes");
        for _ in 0..100 {
            [2000, 2001, 2002, 2003].into_iter().for_each(|second| dropped(&mut fights, second));
        }
        assert_eq!(fights.lost(at(2003) + LONGEST), None);
    }

    #[test]
    fn a_drop_now_and_then_is_no_fight() {
        let mut fights = Fights::default();
        for drop in 0..100 {
            dropped(&mut fights, drop * 300);
            assert_eq!(fights.lost(at(drop * 300)), None, "{drop}");
        }
    }

    #[test]
    fn a_drop_every_so_often_is_one_in_the_end() {
        for every in [21, 60, 250] {
            let mut fights = Fights::default();
            let until = (0..20).map(|drop| drop * every).find(|second| {
                dropped(&mut fights, *second);
                fights.lost(at(*second)).is_some()
            });
            assert_eq!(until, Some(12 * every), "every {every} s");
        }
    }

    #[test]
    fn where_requests_are_held_back_drops_belong_together_for_longer() {
        let mut fights = Fights::default();
        [0, 70, 140, 210].into_iter().for_each(|second| fights.dropped(at(second), at(60)));
        assert_eq!(fights.lost(at(210)), Some(4));
    }
}
