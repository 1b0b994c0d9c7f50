//! Publishing: reports of this replica whenever something has changed, and now and then in any case.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{Publisher, Replica};
use crate::live::{Current, Rejection, RetiredEntry};

/// Interval between two looks for a change.
const LOOK: Duration = Duration::from_millis(200);
/// Between two signs of life.
const ALIVE: Duration = Duration::from_secs(5);
/// Time for the farewell: the process wants to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// Reports of this replica, to wherever its publisher puts them.
#[derive(Debug)]
pub struct Publishing {
    current: Arc<Current>,
    replica: Arc<Replica>,
    publisher: Publisher,
}

impl Publishing {
    /// Publishes nothing yet.
    pub fn new(current: Arc<Current>, replica: Arc<Replica>, publisher: Publisher) -> Self {
        if let Some(place) = publisher.place() {
            replica.set_place(&place);
        }
        Self { current, replica, publisher }
    }

    /// For as long as this is polled.
    pub async fn run(&mut self) {
        if matches!(self.publisher, Publisher::Nowhere) {
            return std::future::pending().await;
        }
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut published: Option<(Mark, Instant)> = None;
        let (mut alive, mut failed) = (Instant::now(), None::<Instant>);
        loop {
            ticks.tick().await;
            if failed.is_some_and(|at| at.elapsed() < self.publisher.again()) {
                continue;
            }
            let mark = Mark::of(&self.current);
            let known =
                published.as_ref().is_some_and(|(last, at)| *last == mark && at.elapsed() < self.publisher.heartbeat());
            let outcome = match (known, alive.elapsed() < ALIVE) {
                (true, true) => continue,
                (true, false) => self.publisher.keep_alive().await,
                (false, _) => {
                    let report = self.replica.report(&self.current, self.publisher.most_hooks());
                    self.publisher.publish(&report).await
                }
            };
            match &outcome {
                Ok(()) => (failed, alive) = (None, Instant::now()),
                Err(_) => failed = Some(Instant::now()),
            }
            match (known, outcome.is_ok()) {
                (_, false) => published = None,
                (false, true) => published = Some((mark, Instant::now())),
                (true, true) => {}
            }
            self.report(outcome);
        }
    }

    /// The replica ends: whoever looks need not wait until it is taken to be dead.
    pub async fn leave(&mut self) {
        match timeout(FAREWELL, self.publisher.leave()).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::warn!(why, "this replica will seem alive for up to 30 s"),
            Err(_) => {
                tracing::warn!("withdrawing this replica's status took too long; it will be listed for up to 30 s")
            }
        }
    }

    fn report(&self, outcome: Result<(), String>) {
        let (place, why) = (self.publisher.place().unwrap_or_default(), outcome.clone().err());
        if self.replica.record(outcome, SystemTime::now()) {
            match why {
                Some(why) => tracing::warn!(place, why, "cannot publish the status of this replica; reviews go on"),
                None => tracing::info!(place, "publishing the status of this replica again"),
            }
        }
    }
}

/// State of a report, to see whether the next differs. Holds no generation: that would keep it from draining.
#[derive(Debug)]
struct Mark {
    generation: u64,
    rejected: Option<Arc<Rejection>>,
    cannot_read: Option<String>,
    retired: Arc<Vec<RetiredEntry>>,
    stale: bool,
    stopping: bool,
    /// Documents that are open.
    open: Vec<Arc<str>>,
}

impl Mark {
    fn of(current: &Current) -> Self {
        let now = Instant::now().into_std();
        Self {
            generation: current.load().number,
            rejected: current.status().rejected.get(),
            cannot_read: current.status().failed_read.get().map(|failed| failed.error.clone()),
            retired: current.status().retired(),
            stale: !current.is_fresh(now),
            stopping: current.is_draining(),
            open: current.break_glass().open(now).iter().map(|open| Arc::clone(&open.document.name)).collect(),
        }
    }
}

impl PartialEq for Mark {
    fn eq(&self, other: &Self) -> bool {
        let rest = |mark: &Self| (mark.generation, mark.stale, mark.stopping);
        rest(self) == rest(other)
            && self.cannot_read == other.cannot_read
            && same(self.rejected.as_ref(), other.rejected.as_ref())
            && Arc::ptr_eq(&self.retired, &other.retired)
            && self.open == other.open
    }
}

fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}
