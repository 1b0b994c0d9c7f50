//! Drain: the end of serving, as connections see it.
//!
//! Over HTTP/1.1 only an answer can announce that the connection will be closed. Closing it while a request is on its
//! way refuses that request. So a drain begins with a *grace*, in which a connection still takes requests.

use std::time::Duration;

use tokio::{sync::watch, time::sleep};

/// A peer in the same cluster that sends a request now is heard within this.
const MAX_GRACE: Duration = Duration::from_secs(1);

/// Stage of a server.
///
/// ```text
/// Serving --shutdown signal--> Draining --all calls done, or the bound--> Over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Serving,
    Draining,
    Over,
}

/// Watches the stage for one connection. A dropped sender counts as a drain.
#[derive(Clone, Debug)]
pub(crate) struct DrainSignal {
    life: watch::Receiver<Life>,
    grace: Duration,
}

/// A server that serves, and whose calls may take `drain` once it no longer does.
pub(crate) fn channel(drain: Duration) -> (watch::Sender<Life>, DrainSignal) {
    let (sender, life) = watch::channel(Life::Serving);
    // Half the time for draining at most: requests that arrive at the end of the grace must be answered, too.
    (sender, DrainSignal { life, grace: MAX_GRACE.min(drain / 2) })
}

impl DrainSignal {
    /// True once the drain has begun.
    pub(crate) fn has_begun(&self) -> bool {
        *self.life.borrow() != Life::Serving
    }

    /// Done once the drain has begun.
    pub(crate) async fn begun(&self) {
        drop(self.life.clone().wait_for(|life| *life != Life::Serving).await);
    }

    /// Done once the drain has begun and the grace is over.
    pub(crate) async fn grace_over(&self) {
        if self.life.clone().wait_for(|life| *life != Life::Serving).await.is_ok() {
            sleep(self.grace).await;
        }
    }

    /// Done once connections must be closed, whatever is under way on them.
    pub(crate) async fn over(&self) {
        drop(self.life.clone().wait_for(|life| *life == Life::Over).await);
    }
}
