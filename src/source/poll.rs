//! The tick: when the source is read, and when each read began.

use std::time::Duration;

use tokio::time::{self, Interval, MissedTickBehavior};

use super::contents::{Contents, ReadError};
use gatepost_base::clock::{Moment, Slept};

/// Interval between reads of the source.
// source: dynamic-admission-control-configuration.md, "a consistent read each second".
pub const READ_EVERY: Duration = Duration::from_secs(1);

/// One read and when it began. Freshness counts from the beginning: what changed while we read may not be in it.
#[derive(Debug)]
pub struct TimedRead {
    /// Time at which the read began.
    pub started: Moment,
    /// Duration of the read.
    pub took: Duration,
    /// Result of the read.
    pub outcome: Result<Contents, ReadError>,
}

/// Times to read.
#[derive(Debug)]
pub struct Ticks {
    ticks: Interval,
    slept: Slept,
}

impl Ticks {
    /// Every so often, the first time after one period; with that clock for the time that the machine has slept.
    pub fn new(every: Duration, slept: Slept) -> Self {
        let mut ticks = time::interval_at(time::Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self { ticks, slept }
    }

    /// Makes this read at the next tick.
    pub async fn read(&mut self, read: impl Future<Output = Result<Contents, ReadError>>) -> TimedRead {
        self.ticks.tick().await;
        let started = Moment::now(self.slept);
        let outcome = read.await;
        let took = time::Instant::now().into_std().saturating_duration_since(started.instant);
        TimedRead { started, took, outcome }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::sync::mpsc;

    use super::*;
    use crate::source::{Source, poll};

    #[tokio::test(start_paused = true)]
    async fn each_second_a_reading_dated_from_its_start_good_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "kind: x").unwrap();
        let began = time::Instant::now().into_std();
        let (sender, mut readings) = mpsc::channel(1);
        tokio::spawn(poll(Source::file(&path), READ_EVERY, sender));
        let first = readings.recv().await.unwrap();
        assert_eq!(first.started.instant - began, READ_EVERY);
        let digest = first.outcome.unwrap().digest;
        fs::remove_file(&path).unwrap();
        // The next reading may have been made before the file went.
        let later = [readings.recv().await.unwrap(), readings.recv().await.unwrap()];
        assert!(matches!(later[1].outcome, Err(ReadError::Unreadable { .. })), "{later:?}");
        assert!(
            later[0].outcome.as_ref().is_err() || later[0].outcome.as_ref().is_ok_and(|read| read.digest == digest)
        );
        assert_eq!(later[1].started.instant - began, READ_EVERY * 3);
    }
}
