//! The tick: reads the source once a second and sends each reading onward. Judges nothing.

use std::time::{Duration, Instant};

use tokio::{
    sync::mpsc,
    time::{self, MissedTickBehavior},
};

use super::{Contents, Outstanding, READ_DEADLINE, ReadError, Source};

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
pub async fn poll(source: Source, every: Duration, readings: mpsc::Sender<Reading>) {
    let mut ticks = time::interval_at(time::Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut outstanding = Outstanding::none();
    loop {
        ticks.tick().await;
        // tokio's clock, so that a test with paused time sees the same clock everywhere.
        let started = time::Instant::now().into_std();
        let source = source.clone();
        let ended = outstanding.run(READ_DEADLINE, move || source.read()).await;
        let outcome = ended.unwrap_or(Err(ReadError::Hung(READ_DEADLINE)));
        if readings.send(Reading { started, outcome }).await.is_err() {
            return;
        }
    }
}
