//! Writes of our condition, our finalizer and our registrations.

use gatepost_kube_support::{KubeClient, KubeError};
use serde_json::{Value, json};

use crate::{
    FinalizerChange, MANAGER, OwnRegistration, WebhookKey, Write, conditions_document, configuration_path,
    fence_document, finalizer_document, forced_removal, webhooks_of,
};

/// Maximum number of attempts to give webhooks back in an object that changes meanwhile.
const GIVE_BACK_ATTEMPTS: u32 = 4;
/// First minor version of Kubernetes 1 with match conditions of webhooks.
const FIRST_MINOR_WITH_CONDITIONS: u64 = 28;

/// Outcome of a write. Webhooks to give back have been given back, unless the configuration is gone.
#[derive(Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The configuration has been written as planned.
    Done,
    /// The configuration has changed since it was read. The next read returns the change.
    Outdated,
    /// The configuration no longer exists.
    Gone,
    /// The apiserver rejected the write, or dropped the condition, for this reason.
    Refused(String),
}

/// Update of the webhooks of a registration.
#[derive(Clone, Debug, PartialEq)]
pub struct RegistrationUpdate {
    /// The registration as it was read.
    pub registration: OwnRegistration,
    /// The new webhooks.
    pub webhooks: Vec<Value>,
    /// One of its entries has a match condition of others, which may exclude any request.
    pub conditional: bool,
}

/// Writes one configuration.
///
/// # Errors
/// [`KubeError`] of a request.
pub async fn write(client: &KubeClient, write: &Write) -> Result<WriteOutcome, KubeError> {
    let carry: Vec<_> =
        write.carry.iter().map(|(webhook, expression)| (webhook.as_str(), expression.as_str())).collect();
    let (uid, version) = (&*write.read.0, &*write.read.1);
    let document = match write.fenced.is_empty() {
        true => conditions_document(write.hook_type, &write.configuration, uid, Some(version), &carry),
        false => fence_document(write.hook_type, &write.configuration, (uid, version), &carry),
    };
    let path = configuration_path(write.hook_type, &write.configuration);
    let all: Vec<_> = write.given_back.iter().map(|(key, _)| key.webhook.as_str()).collect();
    let object = match client.apply_conditions(MANAGER, &path, &document).await {
        Ok(object) => object,
        Err(KubeError::WriteRefused { code: 404, .. }) => return Ok(WriteOutcome::Gone),
        Err(KubeError::WriteRefused { code: 409, .. }) => {
            return give_back(client, &path, &all, WriteOutcome::Outdated).await;
        }
        // Give webhooks back even if the rest of the document is rejected.
        Err(KubeError::WriteRefused { code: 400 | 403 | 422, message, .. }) => {
            return give_back(client, &path, &all, WriteOutcome::Refused(message)).await;
        }
        Err(error) => return Err(error),
    };
    let forced: Vec<_> = write.written_by_others.iter().map(String::as_str).collect();
    if !forced.is_empty() {
        remove_condition(client, &path, &forced).await?;
    }
    let webhooks = webhooks_of(write.hook_type, &object);
    let carries = |key: &WebhookKey| webhooks.iter().any(|webhook| webhook.carries && webhook.key == *key);
    Ok(match write.taken.iter().all(carries) {
        true => WriteOutcome::Done,
        false => WriteOutcome::Refused(
            "it accepts the write and leaves the condition out; before 1.30, match conditions need the feature gate \
             AdmissionWebhookMatchConditions"
                .to_owned(),
        ),
    })
}

/// Removes our condition from these webhooks, and retries if the object changes. Until the condition is removed,
/// possibly neither the apiserver nor Gatepost calls them.
async fn give_back(
    client: &KubeClient,
    path: &str,
    webhooks: &[&str],
    outcome: WriteOutcome,
) -> Result<WriteOutcome, KubeError> {
    if webhooks.is_empty() {
        return Ok(outcome);
    }
    for attempt in 1.. {
        match remove_condition(client, path, webhooks).await {
            Ok(()) => break,
            Err(error) if attempt == GIVE_BACK_ATTEMPTS => return Err(error),
            Err(KubeError::Refused { code: 404, .. } | KubeError::WriteRefused { code: 404, .. }) => {
                return Ok(WriteOutcome::Gone);
            }
            // The object has changed in between.
            Err(KubeError::WriteRefused { code: 409 | 422, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(outcome)
}

/// Removes our condition from these webhooks, whoever owns it.
///
/// # Errors
/// [`KubeError`] of the read or the write.
pub async fn remove_condition(client: &KubeClient, path: &str, webhooks: &[&str]) -> Result<(), KubeError> {
    let object = client.get(path).await?;
    match forced_removal(&object, webhooks) {
        Some(patch) => client.patch(&format!("{path}?timeout=2s"), "application/json-patch+json", &patch).await,
        None => Ok(()),
    }
}

/// Adds our finalizer to a registration of ours, or removes it. Does nothing if the registration has changed since it
/// was read, or is gone.
///
/// # Errors
/// [`KubeError`] of the write.
pub async fn change_finalizer(client: &KubeClient, change: &FinalizerChange) -> Result<(), KubeError> {
    let FinalizerChange { registration: OwnRegistration { hook_type, name, read: (uid, version), .. }, add } = change;
    let document = finalizer_document(*hook_type, name, (uid, version), *add);
    match client.apply_conditions(MANAGER, &configuration_path(*hook_type, name), &document).await {
        Err(KubeError::WriteRefused { code: 404 | 409, .. }) => Ok(()),
        other => other.map(drop),
    }
}

/// Replaces the webhooks of a registration of ours, unless it has changed since it was read.
pub(crate) async fn update_registration(client: &KubeClient, update: &RegistrationUpdate) -> Result<(), KubeError> {
    let OwnRegistration { hook_type, name, read: (uid, version), .. } = &update.registration;
    let patch = json!({"metadata": {"uid": uid, "resourceVersion": version}, "webhooks": update.webhooks});
    let path = configuration_path(*hook_type, name);
    let path = format!("{path}?timeout=2s&fieldManager=gatepost-registration");
    match client.patch(&path, "application/merge-patch+json", &patch).await {
        Err(KubeError::WriteRefused { code: 404 | 409, .. }) => Ok(()),
        other => other,
    }
}

/// Returns the version of an apiserver, given its `/version`, if its webhooks have no match conditions.
pub fn version_without_conditions(version: &Value) -> Option<String> {
    let number = |key: &str| {
        let digits: String = version[key].as_str()?.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    };
    let old = number("major")? == 1 && number("minor")? < FIRST_MINOR_WITH_CONDITIONS;
    old.then(|| version["gitVersion"].as_str().unwrap_or("unknown").chars().take(40).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn version_before_1_28_has_no_match_conditions() {
        let version = |minor: &str| json!({"major": "1", "minor": minor, "gitVersion": format!("v1.{minor}.3")});
        assert_eq!(version_without_conditions(&version("27+")).as_deref(), Some("v1.27+.3"));
        assert_eq!(
            [
                version_without_conditions(&version("28")),
                version_without_conditions(&version("36+")),
                version_without_conditions(&json!({}))
            ],
            [None, None, None]
        );
    }
}
