//! Timer of reads: when the source is read, and when each read began. The loop is the function
//! [`poll`](fn@super::poll).

use std::time::Duration;

use tokio::time::{self, Interval, MissedTickBehavior};

use super::contents::{Contents, ReadError};
use gatepost_base::clock::{Moment, Slept};

/// Interval between reads of the source.
// source: dynamic-admission-control-configuration.md, "a consistent read each second".
pub const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Read, and when it began. Freshness counts from the beginning, since changes during the read may not be in it.
#[derive(Debug)]
pub struct TimedRead {
    /// Time at which the read began.
    pub started: Moment,
    /// Duration of the read.
    pub took: Duration,
    /// Result of the read.
    pub outcome: Result<Contents, ReadError>,
}

/// Timer of reads.
#[derive(Debug)]
pub struct Ticks {
    ticks: Interval,
    slept: Slept,
}

impl Ticks {
    /// Creates a timer, first due after one interval. `slept` is the clock of the time that the machine has slept.
    pub fn new(every: Duration, slept: Slept) -> Self {
        let mut ticks = time::interval_at(time::Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self { ticks, slept }
    }

    /// Waits for the next tick, and makes this read.
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
        tokio::spawn(poll(Source::file(&path), READ_INTERVAL, sender));
        let first = readings.recv().await.unwrap();
        assert_eq!(first.started.instant - began, READ_INTERVAL);
        let digest = first.outcome.unwrap().digest;
        fs::remove_file(&path).unwrap();
        // The next reading may have been made before the file went.
        let later = [readings.recv().await.unwrap(), readings.recv().await.unwrap()];
        assert!(matches!(later[1].outcome, Err(ReadError::Unreadable { .. })), "{later:?}");
        assert!(
            later[0].outcome.as_ref().is_err() || later[0].outcome.as_ref().is_ok_and(|read| read.digest == digest)
        );
        assert_eq!(later[1].started.instant - began, READ_INTERVAL * 3);
    }
}
