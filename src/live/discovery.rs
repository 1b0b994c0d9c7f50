//! Discovery: resources that the followed cluster serves, in which versions; read by requests without a lock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::{ArcSwapOption, Guard};
use tokio::sync::{Notify, watch};

use gatepost_api::Served;
use gatepost_base::clock::{Moment, Slept, slept};

/// Age below which an unknown resource does not trigger a refresh: it belongs to another cluster.
const JUST_READ: Duration = Duration::from_secs(2);
/// Age above which discovery counts as not known.
const TOO_OLD_AFTER: Duration = Duration::from_secs(120);

/// Resources served by the followed cluster.
#[derive(Debug)]
pub struct Discovery {
    known: ArcSwapOption<CachedDiscovery>,
    slept: Slept,
    /// Somebody has met a resource that is not known.
    wanted: Notify,
    /// Counts readings, good or not.
    readings: watch::Sender<u64>,
}

#[derive(Debug)]
struct CachedDiscovery {
    served: Arc<Served>,
    /// Time at which the reading began.
    at: Moment,
}

/// One look at what is served. To be held for a moment only: it is lent, not counted.
pub struct DiscoveryView {
    /// `None` where it was never read, or too long ago to decide on.
    known: Option<Guard<Option<Arc<CachedDiscovery>>>>,
    age: Duration,
}

impl DiscoveryView {
    /// Resources and versions served; [`Served::UNREAD`] where they are not known.
    pub fn served(&self) -> &Served {
        self.known.as_ref().and_then(|known| known.as_ref()).map_or(Served::UNREAD, |known| &*known.served)
    }
}

impl Default for Discovery {
    fn default() -> Self {
        Self::by(slept)
    }
}

impl Discovery {
    /// Nothing is known yet; another clock gives the time that the machine has slept.
    pub fn by(slept: Slept) -> Self {
        Self { known: ArcSwapOption::empty(), slept, wanted: Notify::new(), readings: watch::Sender::new(0) }
    }

    /// One look at what is known and not too old to decide on.
    pub fn look(&self, now: Instant) -> DiscoveryView {
        let known = self.known.load();
        let age = known.as_ref().map(|known| Moment::awake_since(now, self.slept).since(known.at));
        let age = age.unwrap_or(Duration::MAX);
        DiscoveryView { known: (age < TOO_OLD_AFTER).then_some(known), age }
    }

    /// This is what is served since a reading that began then.
    pub fn set(&self, served: Served, at: Moment) {
        self.known.store(Some(Arc::new(CachedDiscovery { served: Arc::new(served), at })));
    }

    /// Confirms the known resources: they were still so when a reading began.
    pub fn stamp(&self, at: Moment) {
        if let Some(known) = &*self.known.load() {
            self.known.store(Some(Arc::new(CachedDiscovery { served: Arc::clone(&known.served), at })));
        }
    }

    /// Has it read anew, and waits for that, where it was not just read. The caller bounds the wait.
    pub async fn refresh(&self, now: Instant) {
        if self.look(now).age < JUST_READ {
            return;
        }
        let mut readings = self.readings.subscribe();
        self.wanted.notify_one();
        let _ = readings.changed().await;
    }

    /// A reading has ended, well or not: whoever waits for one goes on.
    pub fn reading_ended(&self) {
        self.readings.send_modify(|readings| *readings += 1);
    }

    /// Waits until somebody wants a new reading.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_read_too_long_ago_is_not_known() {
        fn awake() -> Duration {
            Duration::ZERO
        }
        let (discovery, began) = (Discovery::by(awake), Instant::now());
        assert_eq!(discovery.look(began).served(), Served::UNREAD, "never read");
        let mut served = Served::default();
        served.add("apps", "v1", "deployments");
        discovery.set(served, Moment::awake_since(began, awake));
        let knows = |after: Duration| discovery.look(began + after).served() != Served::UNREAD;
        assert!(knows(Duration::ZERO) && knows(TOO_OLD_AFTER - Duration::from_secs(1)));
        assert!(!knows(TOO_OLD_AFTER));
        discovery.stamp(Moment::awake_since(began + TOO_OLD_AFTER, awake));
        assert!(knows(TOO_OLD_AFTER), "still so");
    }
}
