//! Alone: webhooks given back by the command itself, where no replica does it.

use std::time::{Duration, SystemTime};

use crate::{
    adopt::{
        EVENTS_PATH, Lease, MANAGER, Reason, SeenWebhook, WebhookStanding, conditions_document, event, remove_condition,
    },
    kube::{KubeClient, KubeError},
};

/// Component that Events name in place of a replica.
const COMMAND: &str = "gatepost release";

/// Age of a lease, by our clock, from which its replica counts as dead; the clocks may differ by some of that.
pub(super) const SILENT: Duration = Duration::from_secs(60);

/// Was the lease renewed lately, by our clock?
pub(super) fn lives(lease: &Lease, now: SystemTime) -> bool {
    let renewed = humantime::parse_rfc3339_weak(&lease.renewed).ok();
    renewed.is_none_or(|renewed| now.duration_since(renewed).unwrap_or_default() < SILENT)
}

/// Takes the conditions off these, whoever has put them there, and writes an Event for each.
///
/// # Errors
/// [`KubeError`] of a write.
pub(super) async fn give_back(client: &KubeClient, seen: &[SeenWebhook]) -> Result<(), KubeError> {
    for seen in seen {
        let WebhookStanding { key, uid, .. } = &seen.standing;
        let path = key.path();
        // Ours first: what was conditions_document would come back with the next apply.
        let nothing = conditions_document(key.hook_type, &key.configuration, uid, None, &[]);
        match client.apply_conditions(MANAGER, &path, &nothing).await {
            Ok(_) | Err(KubeError::Unwritten { code: 404 | 409, .. }) => {}
            Err(error) => return Err(error),
        }
        match remove_condition(client, &path, &[&key.webhook]).await {
            Ok(()) => {}
            Err(KubeError::Refused { code: 404, .. }) => continue,
            Err(error) => return Err(error),
        }
        let event = event(key, Some(&Reason::Released.to_string()), COMMAND, uid);
        // The person who runs the command need not have the right to write Events.
        let _ = client.create(EVENTS_PATH, &event).await;
    }
    Ok(())
}
