//! The tick: reads the source once a second and sends each reading onward. Judges nothing.

use std::time::{Duration, Instant};

use tokio::{
    sync::mpsc,
    time::{self, MissedTickBehavior},
};

use super::{Contents, ReadError, Source};

/// How often the source is read.
// source: dynamic-admission-control-configuration.md, "a consistent read each second".
pub const READ_EVERY: Duration = Duration::from_secs(1);

/// One read and when it began. Freshness counts from the beginning: what changed while we read may not be in it.
#[derive(Debug)]
pub struct Reading {
    /// When the read began.
    pub started: Instant,
    /// What it found.
    pub outcome: Result<Contents, ReadError>,
}

/// Reads `source` every `every` until nobody takes the readings any more. The first read is one period away: whoever
/// starts this has just made one.
pub async fn poll(mut source: Source, every: Duration, readings: mpsc::Sender<Reading>) {
    let mut ticks = time::interval_at(time::Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        // tokio's clock, so that a test with paused time sees the same clock everywhere.
        let started = time::Instant::now().into_std();
        let outcome = source.read().await;
        if readings.send(Reading { started, outcome }).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_second_a_reading_dated_from_its_start_good_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "kind: x").unwrap();
        let began = time::Instant::now().into_std();
        let (sender, mut readings) = mpsc::channel(1);
        tokio::spawn(poll(Source::file(&path), READ_EVERY, sender));
        let first = readings.recv().await.unwrap();
        assert_eq!(first.started - began, READ_EVERY);
        let digest = first.outcome.unwrap().digest;
        fs::remove_file(&path).unwrap();
        // The next reading may have been made before the file went.
        let later = [readings.recv().await.unwrap(), readings.recv().await.unwrap()];
        assert!(matches!(later[1].outcome, Err(ReadError::Unreadable { .. })), "{later:?}");
        assert!(
            later[0].outcome.as_ref().is_err() || later[0].outcome.as_ref().is_ok_and(|read| read.digest == digest)
        );
        assert_eq!(later[1].started - began, READ_EVERY * 3);
    }
}
