//! Discovery: resources and versions that the watched cluster serves; read by requests without a lock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::{ArcSwapOption, Guard};
use tokio::sync::{Notify, watch};

use gatepost_api::Served;
use gatepost_base::clock::{Moment, SuspendedTime, suspended_time};

/// Age of the last read from which an unknown resource triggers another one. If the last read is younger, the resource
/// presumably belongs to another cluster.
const MIN_REFRESH_AGE: Duration = Duration::from_secs(2);
/// Age above which discovery counts as unknown.
const TOO_OLD_AFTER: Duration = Duration::from_secs(120);

/// Resources served by the watched cluster.
#[derive(Debug)]
pub struct Discovery {
    known: ArcSwapOption<CachedDiscovery>,
    suspended_time: SuspendedTime,
    /// Notified when a request finds an unknown resource.
    refresh_requests: Notify,
    /// Number of reads, successful or not.
    readings: watch::Sender<u64>,
}

#[derive(Debug)]
struct CachedDiscovery {
    served: Arc<Served>,
    /// Time at which the read began.
    at: Moment,
}

/// View of the served resources. Must be held only briefly, since it borrows without counting a reference.
pub struct DiscoveryView {
    /// `None` if discovery was never read, or is too old.
    known: Option<Guard<Option<Arc<CachedDiscovery>>>>,
    age: Duration,
}

impl DiscoveryView {
    /// Returns the resources and versions served; [`Served::UNKNOWN`] if unknown.
    pub fn served(&self) -> &Served {
        self.known.as_ref().and_then(|known| known.as_ref()).map_or(Served::UNKNOWN, |known| &*known.served)
    }
}

impl Default for Discovery {
    fn default() -> Self {
        Self::with_clock(suspended_time)
    }
}

impl Discovery {
    /// Creates an empty discovery with another clock of suspended time.
    pub fn with_clock(suspended_time: SuspendedTime) -> Self {
        Self {
            known: ArcSwapOption::empty(),
            suspended_time,
            refresh_requests: Notify::new(),
            readings: watch::Sender::new(0),
        }
    }

    /// Returns a view of the discovery, if it is not too old.
    pub fn look(&self, now: Instant) -> DiscoveryView {
        let known = self.known.load();
        let age = known.as_ref().map(|known| Moment::awake_since(now, self.suspended_time).since(known.at));
        let age = age.unwrap_or(Duration::MAX);
        DiscoveryView { known: (age < TOO_OLD_AFTER).then_some(known), age }
    }

    /// Replaces the resources. The read of them began at `at`.
    pub fn set(&self, served: Served, at: Moment) {
        self.known.store(Some(Arc::new(CachedDiscovery { served: Arc::new(served), at })));
    }

    /// Confirms the known resources: they were unchanged when a read began at `at`.
    pub fn stamp(&self, at: Moment) {
        if let Some(known) = &*self.known.load() {
            self.known.store(Some(Arc::new(CachedDiscovery { served: Arc::clone(&known.served), at })));
        }
    }

    /// Requests a new read and waits for it, unless the last one is recent. The caller bounds the wait.
    pub async fn refresh(&self, now: Instant) {
        if self.look(now).age < MIN_REFRESH_AGE {
            return;
        }
        let mut readings = self.readings.subscribe();
        self.refresh_requests.notify_one();
        let _ = readings.changed().await;
    }

    /// Records that a read has ended, successful or not, and wakes those who wait for it.
    pub fn reading_ended(&self) {
        self.readings.send_modify(|readings| *readings += 1);
    }

    /// Waits until a new read is requested.
    pub async fn refresh_requested(&self) {
        self.refresh_requests.notified().await;
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
        let (discovery, began) = (Discovery::with_clock(awake), Instant::now());
        assert_eq!(discovery.look(began).served(), Served::UNKNOWN, "never read");
        let mut served = Served::default();
        served.add("apps", "v1", "deployments");
        discovery.set(served, Moment::awake_since(began, awake));
        let knows = |after: Duration| discovery.look(began + after).served() != Served::UNKNOWN;
        assert!(knows(Duration::ZERO) && knows(TOO_OLD_AFTER - Duration::from_secs(1)));
        assert!(!knows(TOO_OLD_AFTER));
        discovery.stamp(Moment::awake_since(began + TOO_OLD_AFTER, awake));
        assert!(knows(TOO_OLD_AFTER), "still so");
    }
}
