//! Waiting for a state, not for a time.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Nothing here takes so long, even on a busy machine.
pub(super) const LONG: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until it holds.
///
/// # Errors
/// The reason that `holds` gives, or that it never held.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let waiting = async {
        while !holds()? {
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    };
    timeout(LONG, waiting).await.unwrap_or_else(|_| Err(format!("waited {LONG:?} in vain for {what}")))
}
