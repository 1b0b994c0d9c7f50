//! Fights: owners that remove our condition again and again.

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};

/// Maximum number of drops within [`FIGHT_WINDOW`] after which the webhook is taken again at once. One more starts a pause.
const MAX_DROPS_IN_WINDOW: usize = 3;
/// Time within which drops count as one fight, or four times the time for which both call the webhook after a drop, if
/// that is longer.
const FIGHT_WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of drops within an hour, however far apart: after each drop both call the webhook for some seconds.
const MAX_DROPS_IN_AN_HOUR: usize = 12;
const HOUR: Duration = Duration::from_secs(3600);
/// First pause after a fight, in which the webhook is left to the apiserver. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(5 * 60);
const MAX_PAUSE: Duration = Duration::from_secs(4 * 3600);

/// Fights, failed announcements and failed writes as one leader hands them to the next. Times are seconds from then,
/// because the next leader has another clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FightRecord {
    /// Fights lost in a row.
    #[serde(rename = "l")]
    pub(crate) lost: u32,
    /// Drops in these fights.
    #[serde(rename = "b")]
    pub(crate) lost_drops: u32,
    /// Rest of the pause.
    #[serde(rename = "r")]
    pub(crate) rest: u64,
    /// Age of each drop since.
    #[serde(rename = "d")]
    pub(crate) drops: Vec<u64>,
    /// Failed announcements and rejected writes in a row.
    #[serde(rename = "v")]
    pub(crate) failures: u32,
    /// Rest of the pause after the last of them.
    #[serde(rename = "p")]
    pub(crate) pause: u64,
    /// Writes of the condition in a row of which none was seen to take effect.
    #[serde(rename = "t")]
    pub(crate) attempts: u32,
    /// The pause follows writes of the condition that were rejected or came too late.
    #[serde(rename = "u")]
    pub(crate) refused: bool,
}

/// Drops of our condition from one webhook, and the pauses that they cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fights {
    drops: VecDeque<Duration>,
    /// Fights lost in a row.
    lost: u32,
    /// Drops in these fights.
    lost_drops: u32,
    /// End of the pause.
    until: Option<Duration>,
}

impl FightRecord {
    /// Order in which records are kept if there are too many: number of drops, then of failures and attempts, which hardly
    /// annoy an owner.
    pub fn weight(&self) -> (usize, u32, u32) {
        let earlier = usize::try_from(self.lost_drops).unwrap_or(usize::MAX);
        (self.drops.len().saturating_add(earlier), self.failures, self.attempts)
    }
}

impl Fights {
    /// Records that the owner has dropped our condition. `in_flight` is the time for which an apiserver may hold back a
    /// request about which it has not called the webhook.
    pub fn dropped(&mut self, now: Duration, in_flight: Duration) {
        let window = FIGHT_WINDOW.max(in_flight.saturating_mul(4));
        self.drops.retain(|at| now.saturating_sub(*at) < HOUR);
        self.drops.push_back(now);
        let recent = self.drops.iter().filter(|at| now.saturating_sub(**at) < window).count();
        if recent > MAX_DROPS_IN_WINDOW || self.drops.len() > MAX_DROPS_IN_AN_HOUR {
            // The earlier fights do not count if none followed within a long time after the pause.
            if self.until.is_some_and(|until| now > until + MAX_PAUSE) {
                (self.lost, self.lost_drops) = (0, 0);
            }
            self.lost_drops = self.lost_drops.saturating_add(u32::try_from(self.drops.len()).unwrap_or(u32::MAX));
            self.drops.clear();
            let pause = FIRST_PAUSE.saturating_mul(1 << self.lost.min(10)).min(MAX_PAUSE);
            self.lost = self.lost.saturating_add(1);
            self.until = Some(now + pause);
        }
    }

    /// Record of these fights for the next leader; `None` if there is nothing to remember.
    pub fn record(&self, now: Duration) -> Option<FightRecord> {
        let ages = self.drops.iter().map(|at| now.saturating_sub(*at));
        let drops: Vec<_> = ages.filter(|age| *age < HOUR).map(|age| age.as_secs()).collect();
        let remembered = self.until.filter(|until| now <= *until + MAX_PAUSE);
        let (lost, lost_drops) = if remembered.is_some() { (self.lost, self.lost_drops) } else { (0, 0) };
        let rest = remembered.map_or(0, |until| whole_seconds(until.saturating_sub(now)));
        (lost > 0 || !drops.is_empty()).then(|| FightRecord { lost, lost_drops, rest, drops, ..FightRecord::default() })
    }

    /// Continues the fights that another leader has recorded.
    pub fn from_record(record: &FightRecord, now: Duration) -> Self {
        let FightRecord { lost, lost_drops, rest, drops, .. } = record;
        // Whoever may write the lease may write any number there.
        let until = (*lost > 0).then(|| now + Duration::from_secs(*rest).min(MAX_PAUSE));
        let drops = drops.iter().take(MAX_DROPS_IN_AN_HOUR).map(|age| now.saturating_sub(Duration::from_secs(*age)));
        Self { drops: drops.collect(), lost: *lost, lost_drops: *lost_drops, until }
    }

    /// Number of drops that led to the current pause, over all fights lost in a row; `None` while the webhook may be
    /// taken.
    pub fn lost(&self, now: Duration) -> Option<u32> {
        let paused = self.until.is_some_and(|until| now < until);
        paused.then_some(self.lost_drops)
    }
}

/// Seconds, rounded up.
pub(crate) fn whole_seconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(u64::MAX)
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
        assert_eq!(fights.lost(at(2003) + MAX_PAUSE), None);
    }

    #[test]
    fn fight_record_continues_drops_and_pause() {
        let mut fights = Fights::default();
        assert_eq!(fights.record(at(0)), None);
        (0..8).for_each(|second| dropped(&mut fights, second));
        dropped(&mut fights, 8);
        let record = fights.record(at(10)).unwrap();
        assert_eq!(record, FightRecord { lost: 2, lost_drops: 8, rest: 597, drops: vec![2], ..FightRecord::default() });
        let mut next = Fights::from_record(&record, at(5000));
        assert_eq!((next.lost(at(5596)), next.lost(at(5597))), (Some(8), None));
        [5600, 5601, 5602, 5603].into_iter().for_each(|second| dropped(&mut next, second));
        assert_eq!((next.lost(at(6799)), next.lost(at(6803))), (Some(13), None), "twenty minutes");
        let odd = FightRecord {
            lost: u32::MAX,
            lost_drops: u32::MAX,
            rest: u64::MAX,
            drops: vec![u64::MAX; 99],
            ..FightRecord::default()
        };
        let mut next = Fights::from_record(&odd, at(1));
        (1..9).for_each(|second| dropped(&mut next, second));
        assert_eq!(next.lost(at(9) + MAX_PAUSE), None, "four hours at most");
    }

    #[test]
    fn rare_drops_are_not_a_fight() {
        let mut fights = Fights::default();
        for drop in 0..100 {
            dropped(&mut fights, drop * 300);
            assert_eq!(fights.lost(at(drop * 300)), None, "{drop}");
        }
    }

    #[test]
    fn regular_drops_within_an_hour_are_a_fight() {
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
    fn fight_window_grows_with_the_in_flight_time() {
        let mut fights = Fights::default();
        [0, 70, 140, 210].into_iter().for_each(|second| fights.dropped(at(second), at(60)));
        assert_eq!(fights.lost(at(210)), Some(4));
    }
}
