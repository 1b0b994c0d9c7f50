//! Fights with owners that remove our mark repeatedly.

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};

/// Maximum number of drops within the window after which the entry is taken again immediately. One more starts a
/// pause.
const MAX_DROPS_IN_WINDOW: usize = 3;
/// Minimum window within which drops count as one fight. The window is at least four times the period in
/// which both sides call the entry after a drop.
const FIGHT_WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of drops within an hour. After each drop, both sides call the entry for some seconds.
const MAX_DROPS_IN_AN_HOUR: usize = 12;
const HOUR: Duration = Duration::from_secs(3600);
/// First pause after a fight, in which the entry is left to the apiserver. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(5 * 60);
const MAX_PAUSE: Duration = Duration::from_secs(4 * 3600);

/// Fights, failed announcements and failed writes, recorded for the next leader. Times are relative to the time of
/// recording, because the next leader has another clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FightRecord {
    /// Number of fights lost in a row.
    #[serde(rename = "l")]
    pub(crate) fights_lost: u32,
    /// Number of drops in these fights.
    #[serde(rename = "b")]
    pub(crate) drops_before_pause: u32,
    /// Rest of the pause after the last fight, in seconds.
    #[serde(rename = "r")]
    pub(crate) fight_pause_left_secs: u64,
    /// Ages of the drops after that fight, in seconds.
    #[serde(rename = "d")]
    pub(crate) drop_ages_secs: Vec<u64>,
    /// Number of failed announcements and rejected writes in a row.
    #[serde(rename = "v")]
    pub(crate) failures: u32,
    /// Rest of the pause after the last failure, in seconds.
    #[serde(rename = "p")]
    pub(crate) failure_pause_left_secs: u64,
    /// Number of writes of the mark in a row without a visible effect.
    #[serde(rename = "t")]
    pub(crate) attempts: u32,
    /// The last failure was a rejected write, not a failed announcement.
    #[serde(rename = "u")]
    pub(crate) after_rejected_write: bool,
}

/// Drops of our mark from one entry, and the pauses that they cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fights {
    drops: VecDeque<Duration>,
    /// Number of fights lost in a row.
    fights_lost: u32,
    /// Number of drops in these fights.
    drops_before_pause: u32,
    /// End of the pause.
    pause_until: Option<Duration>,
}

impl FightRecord {
    /// Returns the sort key by which records are kept if there are too many: the number of drops, then of failures and
    /// attempts, which hardly disturb an owner.
    pub fn weight(&self) -> (usize, u32, u32) {
        let earlier = usize::try_from(self.drops_before_pause).unwrap_or(usize::MAX);
        (self.drop_ages_secs.len().saturating_add(earlier), self.failures, self.attempts)
    }
}

impl Fights {
    /// Records that the owner has dropped our mark. `in_flight` is the maximum time from an apiserver's decision
    /// not to call the entry to our review of the same request.
    pub fn record_drop(&mut self, now: Duration, in_flight: Duration) {
        let window = FIGHT_WINDOW.max(in_flight.saturating_mul(4));
        self.drops.retain(|at| now.saturating_sub(*at) < HOUR);
        self.drops.push_back(now);
        let recent = self.drops.iter().filter(|at| now.saturating_sub(**at) < window).count();
        if recent > MAX_DROPS_IN_WINDOW || self.drops.len() > MAX_DROPS_IN_AN_HOUR {
            // Earlier fights do not count if no fight followed within a long time after the pause.
            if self.pause_until.is_some_and(|until| now > until + MAX_PAUSE) {
                (self.fights_lost, self.drops_before_pause) = (0, 0);
            }
            self.drops_before_pause =
                self.drops_before_pause.saturating_add(u32::try_from(self.drops.len()).unwrap_or(u32::MAX));
            self.drops.clear();
            let pause = FIRST_PAUSE.saturating_mul(1 << self.fights_lost.min(10)).min(MAX_PAUSE);
            self.fights_lost = self.fights_lost.saturating_add(1);
            self.pause_until = Some(now + pause);
        }
    }

    /// Returns the record of these fights for the next leader; `None` if there is nothing to record.
    pub fn record(&self, now: Duration) -> Option<FightRecord> {
        let ages = self.drops.iter().map(|at| now.saturating_sub(*at));
        let drop_ages_secs: Vec<_> = ages.filter(|age| *age < HOUR).map(|age| age.as_secs()).collect();
        let remembered = self.pause_until.filter(|until| now <= *until + MAX_PAUSE);
        let (fights_lost, drops_before_pause) =
            if remembered.is_some() { (self.fights_lost, self.drops_before_pause) } else { (0, 0) };
        let fight_pause_left_secs = remembered.map_or(0, |until| whole_seconds(until.saturating_sub(now)));
        (fights_lost > 0 || !drop_ages_secs.is_empty()).then(|| FightRecord {
            fights_lost,
            drops_before_pause,
            fight_pause_left_secs,
            drop_ages_secs,
            ..FightRecord::default()
        })
    }

    /// Continues the fights that another leader has recorded.
    pub fn from_record(record: &FightRecord, now: Duration) -> Self {
        let FightRecord { fights_lost, drops_before_pause, fight_pause_left_secs, drop_ages_secs, .. } = record;
        // Anybody who may write the lease may write any number, so bound it.
        let pause_until = (*fights_lost > 0).then(|| now + Duration::from_secs(*fight_pause_left_secs).min(MAX_PAUSE));
        let drops =
            drop_ages_secs.iter().take(MAX_DROPS_IN_AN_HOUR).map(|age| now.saturating_sub(Duration::from_secs(*age)));
        Self { drops: drops.collect(), fights_lost: *fights_lost, drops_before_pause: *drops_before_pause, pause_until }
    }

    /// Returns the number of drops that led to the current pause, over all fights lost in a row; `None` if there is no
    /// pause now.
    pub fn drops_before_pause(&self, now: Duration) -> Option<u32> {
        let paused = self.pause_until.is_some_and(|until| now < until);
        paused.then_some(self.drops_before_pause)
    }
}

/// Returns the number of seconds, rounded up.
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
        fights.record_drop(at(second), Duration::ZERO);
    }

    #[test]
    fn repeated_fights_double_the_pause() {
        let mut fights = Fights::default();
        for second in [0, 2, 4] {
            dropped(&mut fights, second);
            assert_eq!(fights.drops_before_pause(at(second)), None);
        }
        dropped(&mut fights, 6);
        assert_eq!(
            (fights.drops_before_pause(at(6)), fights.drops_before_pause(at(305)), fights.drops_before_pause(at(306))),
            (Some(4), Some(4), None)
        );
        [400, 401, 402, 403].into_iter().for_each(|second| dropped(&mut fights, second));
        assert_eq!(
            (fights.drops_before_pause(at(1002)), fights.drops_before_pause(at(1003))),
            (Some(8), None),
            "ten minutes"
        );
        for _ in 0..100 {
            [2000, 2001, 2002, 2003].into_iter().for_each(|second| dropped(&mut fights, second));
        }
        assert_eq!(fights.drops_before_pause(at(2003) + MAX_PAUSE), None);
    }

    #[test]
    fn fight_record_continues_drops_and_pause() {
        let mut fights = Fights::default();
        assert_eq!(fights.record(at(0)), None);
        (0..8).for_each(|second| dropped(&mut fights, second));
        dropped(&mut fights, 8);
        let record = fights.record(at(10)).unwrap();
        assert_eq!(
            record,
            FightRecord {
                fights_lost: 2,
                drops_before_pause: 8,
                fight_pause_left_secs: 597,
                drop_ages_secs: vec![2],
                ..FightRecord::default()
            }
        );
        let mut next = Fights::from_record(&record, at(5000));
        assert_eq!((next.drops_before_pause(at(5596)), next.drops_before_pause(at(5597))), (Some(8), None));
        [5600, 5601, 5602, 5603].into_iter().for_each(|second| dropped(&mut next, second));
        assert_eq!(
            (next.drops_before_pause(at(6799)), next.drops_before_pause(at(6803))),
            (Some(13), None),
            "twenty minutes"
        );
        let odd = FightRecord {
            fights_lost: u32::MAX,
            drops_before_pause: u32::MAX,
            fight_pause_left_secs: u64::MAX,
            drop_ages_secs: vec![u64::MAX; 99],
            ..FightRecord::default()
        };
        let mut next = Fights::from_record(&odd, at(1));
        (1..9).for_each(|second| dropped(&mut next, second));
        assert_eq!(next.drops_before_pause(at(9) + MAX_PAUSE), None, "four hours at most");
    }

    #[test]
    fn rare_drops_are_not_a_fight() {
        let mut fights = Fights::default();
        for drop in 0..100 {
            dropped(&mut fights, drop * 300);
            assert_eq!(fights.drops_before_pause(at(drop * 300)), None, "{drop}");
        }
    }

    #[test]
    fn regular_drops_within_an_hour_are_a_fight() {
        for every in [21, 60, 250] {
            let mut fights = Fights::default();
            let until = (0..20).map(|drop| drop * every).find(|second| {
                dropped(&mut fights, *second);
                fights.drops_before_pause(at(*second)).is_some()
            });
            assert_eq!(until, Some(12 * every), "every {every} s");
        }
    }

    #[test]
    fn fight_window_grows_with_the_in_flight_time() {
        let mut fights = Fights::default();
        [0, 70, 140, 210].into_iter().for_each(|second| fights.record_drop(at(second), at(60)));
        assert_eq!(fights.drops_before_pause(at(210)), Some(4));
    }
}
