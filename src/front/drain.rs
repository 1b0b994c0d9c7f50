//! Drain: the end of serving, as connections see it.
//!
//! Over HTTP/1.1 only an answer can announce that the connection will be closed, and closing it while a request is
//! being sent fails that request. So a drain begins with a *grace*, in which a connection still accepts requests.
//!
//! The order: `runtime::signals` receives the signal, `runtime::running` stops the acceptors (`accept`, `listener`),
//! and each connection then drains by its [`DrainSignal`].

use std::time::Duration;

use tokio::{sync::watch, time::sleep};

/// Maximum grace period. A request that a peer in the same cluster has sent arrives within this time.
const MAX_GRACE: Duration = Duration::from_secs(1);

/// Stage of a server.
///
/// ```text
/// Serving --shutdown signal--> Draining --all calls done, or the bound--> Over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerStage {
    Serving,
    Draining,
    Over,
}

/// Receiver of the server's stage, for one connection. A dropped sender counts as a drain.
#[derive(Clone, Debug)]
pub(crate) struct DrainSignal {
    stage: watch::Receiver<ServerStage>,
    grace: Duration,
}

/// Creates the stage of a server that serves. `drain` bounds the time of its calls after the shutdown signal.
pub(crate) fn channel(drain: Duration) -> (watch::Sender<ServerStage>, DrainSignal) {
    let (sender, stage) = watch::channel(ServerStage::Serving);
    // At most half the drain time: requests that arrive at the end of the grace must be answered, too.
    (sender, DrainSignal { stage, grace: MAX_GRACE.min(drain / 2) })
}

impl DrainSignal {
    /// Returns true once the drain has begun.
    pub(crate) fn has_begun(&self) -> bool {
        *self.stage.borrow() != ServerStage::Serving
    }

    /// Waits until the drain has begun.
    pub(crate) async fn begun(&self) {
        drop(self.stage.clone().wait_for(|stage| *stage != ServerStage::Serving).await);
    }

    /// Waits until the drain has begun and the grace is over.
    pub(crate) async fn grace_over(&self) {
        if self.stage.clone().wait_for(|stage| *stage != ServerStage::Serving).await.is_ok() {
            sleep(self.grace).await;
        }
    }

    /// Waits until connections must be closed, even with calls under way.
    pub(crate) async fn ended(&self) {
        drop(self.stage.clone().wait_for(|stage| *stage == ServerStage::Over).await);
    }
}
