//! Grace: the time after the beginning of a drain in which a connection may still ask what its peer has sent, or is
//! sending.
//!
//! Over HTTP/1.1 only an answer can announce that the connection will be closed. Closing it while a request is on its
//! way refuses that request.

use std::time::Duration;

use tokio::{sync::watch, time::sleep};

use crate::front::{FrontLimits, accept::life::Life};

/// A peer in the same cluster that sends a request now is heard by then.
const LONGEST: Duration = Duration::from_secs(1);

/// Half the time for draining at the most: what is asked at its end must be answered, too.
pub(crate) fn length(limits: &FrontLimits) -> Duration {
    LONGEST.min(limits.drain / 2)
}

/// Done once the drain has begun and the grace is over.
pub(crate) async fn over(mut life: watch::Receiver<Life>, length: Duration) {
    // Without a sender nobody serves any more.
    if life.wait_for(|life| *life != Life::Serving).await.is_ok() {
        sleep(length).await;
    }
}
