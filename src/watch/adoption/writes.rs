//! Writes: our condition and our finalizer, added to objects and removed.

use serde_json::json;

use crate::{
    adopt::{Guard, WebhookKey, Write, applied, fenced, guard},
    kube::{KubeClient, KubeError},
    source::kubernetes::adopting::{Due, remove},
};

/// Outcome of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It is so now.
    Done,
    /// The object has changed since it was read: the next read has that.
    Outdated,
    /// The apiserver rejects it, for this reason; webhooks that were to be given back are.
    Refused(String),
}

/// Writes one configuration.
pub(super) async fn write(client: &KubeClient, write: &Write) -> Result<Written, KubeError> {
    let carry: Vec<_> =
        write.carry.iter().map(|(webhook, expression)| (webhook.as_str(), expression.as_str())).collect();
    let (uid, version) = (&*write.read.0, &*write.read.1);
    let document = match write.fenced.is_empty() {
        true => applied(write.hook_type, &write.configuration, uid, Some(version), &carry),
        false => fenced(write.hook_type, &write.configuration, (uid, version), &carry),
    };
    let kind = WebhookKey::resource(write.hook_type);
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{}", write.configuration);
    match client.apply_conditions(&path, &document).await {
        Ok(()) => {}
        Err(KubeError::Unwritten { code: 404 | 409, .. }) => return Ok(Written::Outdated),
        Err(KubeError::Unwritten { code: 400 | 403 | 422, message, .. }) => {
            // Give webhooks back even where the rest of the document is rejected.
            let all: Vec<_> = write.given_back.iter().map(|(key, _)| key.webhook.as_str()).collect();
            if !all.is_empty() {
                remove(client, &path, &all).await?;
            }
            return Ok(Written::Refused(message));
        }
        Err(error) => return Err(error),
    }
    let forced: Vec<_> = write.written_by_others.iter().map(String::as_str).collect();
    if !forced.is_empty() {
        remove(client, &path, &forced).await?;
    }
    Ok(Written::Done)
}

/// Adds our finalizer to a registration of ours, or removes it.
///
/// # Errors
/// [`KubeError`] of the write; a conflict, or a registration that is gone, is none.
pub async fn hold(client: &KubeClient, Guard { registered, on }: &Guard) -> Result<(), KubeError> {
    let (hook_type, (uid, version)) = (registered.hook_type, &registered.read);
    let document = guard(hook_type, &registered.name, (uid, version), *on);
    let kind = WebhookKey::resource(hook_type);
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{}", registered.name);
    match client.apply_conditions(&path, &document).await {
        Err(KubeError::Unwritten { code: 404 | 409, .. }) => Ok(()),
        other => other,
    }
}

/// Gives a registration of ours other webhooks, where nobody has changed it since it was read.
pub(super) async fn bring_up_to_date(
    client: &KubeClient,
    Due { registered, webhooks, .. }: &Due,
) -> Result<(), KubeError> {
    let (uid, version) = &registered.read;
    let patch = json!({"metadata": {"uid": uid, "resourceVersion": version}, "webhooks": webhooks});
    let kind = WebhookKey::resource(registered.hook_type);
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{}?timeout=2s", registered.name);
    match client
        .patch(&format!("{path}&fieldManager=gatepost-registration"), "application/merge-patch+json", &patch)
        .await
    {
        Err(KubeError::Unwritten { code: 404 | 409, .. }) => Ok(()),
        other => other,
    }
}
