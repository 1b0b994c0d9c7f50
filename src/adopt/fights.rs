//! Fights: owners that remove our condition again and again.

use std::{collections::VecDeque, time::Duration};

/// Most drops within [`WINDOW`] that leave the webhook eligible to be taken again at once; one more starts a pause.
const MOST: usize = 3;
/// Time within which drops count as one fight.
const WINDOW: Duration = Duration::from_secs(60);
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
    until: Option<Duration>,
}

impl Fights {
    /// The owner has dropped our condition.
    pub fn dropped(&mut self, now: Duration) {
        self.drops.retain(|at| now.saturating_sub(*at) < WINDOW);
        self.drops.push_back(now);
        if self.drops.len() > MOST {
            self.drops.clear();
            // A pause that has long passed was not followed by another fight.
            if self.until.is_some_and(|until| now > until + LONGEST) {
                self.lost = 0;
            }
            let pause = PAUSE.saturating_mul(1 << self.lost.min(10)).min(LONGEST);
            self.lost += 1;
            self.until = Some(now + pause);
        }
    }

    /// Number of drops that led to the current pause, over all fights lost in a row; `None` while the webhook may be
    /// taken.
    pub fn lost(&self, now: Duration) -> Option<u32> {
        let resting = self.until.is_some_and(|until| now < until);
        resting.then(|| self.lost.saturating_mul(u32::try_from(MOST + 1).unwrap_or(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn several_drops_in_a_row_end_it_for_longer_each_time() {
        let mut fights = Fights::default();
        for second in [0, 2, 4] {
            fights.dropped(at(second));
            assert_eq!(fights.lost(at(second)), None);
        }
        fights.dropped(at(6));
        assert_eq!((fights.lost(at(6)), fights.lost(at(305)), fights.lost(at(306))), (Some(4), Some(4), None));
        [400, 401, 402, 403].into_iter().for_each(|second| fights.dropped(at(second)));
        assert_eq!((fights.lost(at(1002)), fights.lost(at(1003))), (Some(8), None), "ten minutes");
        for _ in 0..100 {
            [2000, 2001, 2002, 2003].into_iter().for_each(|second| fights.dropped(at(second)));
        }
        assert_eq!(fights.lost(at(2003) + LONGEST), None);
    }

    #[test]
    fn a_drop_now_and_then_is_no_fight() {
        let mut fights = Fights::default();
        for drop in 0..100 {
            fights.dropped(at(drop * 30));
            assert_eq!(fights.lost(at(drop * 30)), None, "{drop}");
        }
    }
}
