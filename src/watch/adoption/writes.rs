//! Writes: our condition and our finalizer, added to objects and removed.

use serde_json::json;

use crate::{
    adopt::{
        FinalizerChange, MANAGER, WebhookKey, Write, conditions_document, fence_document, finalizer_document, standings,
    },
    kube::{KubeClient, KubeError},
    source::kubernetes::adopting::{Due, remove},
};

/// Tries to give webhooks back of an object that changes all the time.
const TRIES: u32 = 4;

/// Outcome of a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    /// It is so now.
    Done,
    /// The object has changed since it was read, and the next read has that; webhooks that were to be given back are.
    Outdated,
    /// There is no such object any more.
    Gone,
    /// The apiserver rejects it, or leaves the condition out, for this reason; webhooks that were to be given back are.
    Refused(String),
}

/// Writes one configuration.
///
/// # Errors
/// [`KubeError`] of a request.
pub async fn write(client: &KubeClient, write: &Write) -> Result<Written, KubeError> {
    let carry: Vec<_> =
        write.carry.iter().map(|(webhook, expression)| (webhook.as_str(), expression.as_str())).collect();
    let (uid, version) = (&*write.read.0, &*write.read.1);
    let document = match write.fenced.is_empty() {
        true => conditions_document(write.hook_type, &write.configuration, uid, Some(version), &carry),
        false => fence_document(write.hook_type, &write.configuration, (uid, version), &carry),
    };
    let kind = WebhookKey::resource(write.hook_type);
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{}", write.configuration);
    let all: Vec<_> = write.given_back.iter().map(|(key, _)| key.webhook.as_str()).collect();
    let object = match client.apply_conditions(MANAGER, &path, &document).await {
        Ok(object) => object,
        Err(KubeError::Unwritten { code: 404, .. }) => return Ok(Written::Gone),
        Err(KubeError::Unwritten { code: 409, .. }) => return give_back(client, &path, &all, Written::Outdated).await,
        // Give webhooks back even where the rest of the document is rejected.
        Err(KubeError::Unwritten { code: 400 | 403 | 422, message, .. }) => {
            return give_back(client, &path, &all, Written::Refused(message)).await;
        }
        Err(error) => return Err(error),
    };
    let forced: Vec<_> = write.written_by_others.iter().map(String::as_str).collect();
    if !forced.is_empty() {
        remove(client, &path, &forced).await?;
    }
    let standings = standings(write.hook_type, &object);
    let carries = |key: &WebhookKey| standings.iter().any(|standing| standing.carries && standing.key == *key);
    Ok(match write.taken.iter().all(carries) {
        true => Written::Done,
        false => Written::Refused(
            "it accepts the write and leaves the condition out; before 1.30, match conditions need the feature gate \
             AdmissionWebhookMatchConditions"
                .to_owned(),
        ),
    })
}

/// Takes our condition off these webhooks of an object that may change meanwhile; nobody may call them until then.
async fn give_back(client: &KubeClient, path: &str, webhooks: &[&str], outcome: Written) -> Result<Written, KubeError> {
    if webhooks.is_empty() {
        return Ok(outcome);
    }
    for _ in 1..TRIES {
        match remove(client, path, webhooks).await {
            Ok(()) => return Ok(outcome),
            Err(KubeError::Refused { code: 404, .. } | KubeError::Unwritten { code: 404, .. }) => {
                return Ok(Written::Gone);
            }
            // The object has changed in between.
            Err(KubeError::Unwritten { code: 409 | 422, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    remove(client, path, webhooks).await.map(|()| outcome)
}

/// Adds our finalizer to a registration of ours, or removes it.
///
/// # Errors
/// [`KubeError`] of the write; a conflict, or a registration that is gone, is none.
pub async fn hold(
    client: &KubeClient,
    FinalizerChange { registration: registered, add }: &FinalizerChange,
) -> Result<(), KubeError> {
    let (hook_type, (uid, version)) = (registered.hook_type, &registered.read);
    let document = finalizer_document(hook_type, &registered.name, (uid, version), *add);
    let kind = WebhookKey::resource(hook_type);
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{}", registered.name);
    match client.apply_conditions(MANAGER, &path, &document).await {
        Err(KubeError::Unwritten { code: 404 | 409, .. }) => Ok(()),
        other => other.map(drop),
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
