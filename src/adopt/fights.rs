//! Fights: owners that remove our condition again and again.

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};

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

/// Fights, announcements in vain and writes in vain as one leader hands them to the next, whose clock is another: times
/// are seconds from then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptFights {
    /// Fights lost in a row.
    #[serde(rename = "l")]
    pub(super) lost: u32,
    /// Drops in them.
    #[serde(rename = "b")]
    pub(super) lost_by: u32,
    /// Rest of the pause.
    #[serde(rename = "r")]
    pub(super) rest: u64,
    /// Age of each drop since.
    #[serde(rename = "d")]
    pub(super) drops: Vec<u64>,
    /// Announcements in vain in a row.
    #[serde(rename = "v")]
    pub(super) vain: u32,
    /// Rest of the pause after the last of them.
    #[serde(rename = "p")]
    pub(super) pause: u64,
    /// Writes of the condition in a row that nobody saw happen.
    #[serde(rename = "t")]
    pub(super) tries: u32,
    /// The pause is one after writes of the condition that were refused, or came too late.
    #[serde(rename = "u")]
    pub(super) refused: bool,
}

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

impl KeptFights {
    /// Drops that are forgotten without them, and then announcements and writes in vain: those hardly annoy an owner.
    pub fn weight(&self) -> (usize, u32, u32) {
        let earlier = usize::try_from(self.lost_by).unwrap_or(usize::MAX);
        (self.drops.len().saturating_add(earlier), self.vain, self.tries)
    }
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
            self.lost = self.lost.saturating_add(1);
            self.until = Some(now + pause);
        }
    }

    /// These fights for the next leader; `None` where there is nothing to remember.
    pub fn kept(&self, now: Duration) -> Option<KeptFights> {
        let ages = self.drops.iter().map(|at| now.saturating_sub(*at));
        let drops: Vec<_> = ages.filter(|age| *age < HOUR).map(|age| age.as_secs()).collect();
        let remembered = self.until.filter(|until| now <= *until + LONGEST);
        let (lost, lost_by) = if remembered.is_some() { (self.lost, self.lost_by) } else { (0, 0) };
        let rest = remembered.map_or(0, |until| until.saturating_sub(now).as_millis().div_ceil(1000));
        let rest = u64::try_from(rest).unwrap_or(u64::MAX);
        let kept = || KeptFights { lost, lost_by, rest, drops: drops.clone(), ..KeptFights::default() };
        (lost > 0 || !drops.is_empty()).then(kept)
    }

    /// The fights that another leader has handed over.
    pub fn from_kept(kept: &KeptFights, now: Duration) -> Self {
        let KeptFights { lost, lost_by, rest, drops, .. } = kept;
        // Any number may be written there by somebody who may write the lease.
        let until = (*lost > 0).then(|| now + Duration::from_secs(*rest).min(LONGEST));
        let drops = drops.iter().take(MOST_IN_AN_HOUR).map(|age| now.saturating_sub(Duration::from_secs(*age)));
        Self { drops: drops.collect(), lost: *lost, lost_by: *lost_by, until }
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
    fn the_next_leader_goes_on_where_the_former_one_ended() {
        let mut fights = Fights::default();
        assert_eq!(fights.kept(at(0)), None);
        (0..8).for_each(|second| dropped(&mut fights, second));
        dropped(&mut fights, 8);
        let kept = fights.kept(at(10)).unwrap();
        assert_eq!(kept, KeptFights { lost: 2, lost_by: 8, rest: 597, drops: vec![2], ..KeptFights::default() });
        let mut next = Fights::from_kept(&kept, at(5000));
        assert_eq!((next.lost(at(5596)), next.lost(at(5597))), (Some(8), None));
        [5600, 5601, 5602, 5603].into_iter().for_each(|second| dropped(&mut next, second));
        assert_eq!((next.lost(at(6799)), next.lost(at(6803))), (Some(13), None), "twenty minutes");
        let odd = KeptFights {
            lost: u32::MAX,
            lost_by: u32::MAX,
            rest: u64::MAX,
            drops: vec![u64::MAX; 99],
            ..KeptFights::default()
        };
        let mut next = Fights::from_kept(&odd, at(1));
        (1..9).for_each(|second| dropped(&mut next, second));
        assert_eq!(next.lost(at(9) + LONGEST), None, "four hours at most");
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
