//! Giving back: our condition taken off webhooks, whoever put it there; and a replica that starts and does so first.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::timeout;

use crate::{
    adopt::{CallPlan, MANAGER, UnservedWebhook, WebhookKey, forced_removal, give_back_document},
    kube::{KubeClient, KubeError},
};

/// Longest time for which a replica that starts gives back what it cannot call, before it serves.
const WITHIN: Duration = Duration::from_secs(10);
/// Refusals in a row after which a webhook is not waited for any longer: the next try would be refused, too. (An object that
/// has changed in between may cause one of them.)
const REFUSALS: u32 = 2;
/// Webhooks that an error names.
const NAMED: usize = 3;

/// A replica that starts: it accepts no review while an apiserver counts on it for what it cannot call.
#[derive(Debug, Default)]
pub(in crate::source::kubernetes) struct Starting {
    /// Time at which the first read began.
    first: Option<Duration>,
    /// True once it serves.
    over: bool,
    /// Refusals in a row by the apiserver to give one back.
    refused: BTreeMap<WebhookKey, u32>,
}

impl Starting {
    /// Webhooks to wait for before anything is served, after a read that began at `now`: those to be given back, and those of
    /// which an apiserver has not heard yet. Where there are none, it may serve.
    pub(in crate::source::kubernetes) fn waits_for(
        &mut self,
        now: Duration,
        followed: &CallPlan,
    ) -> Vec<UnservedWebhook> {
        let first = *self.first.get_or_insert(now);
        let mut waits = followed.unserved.clone();
        waits.retain(|it| !it.carries || self.refused.get(&it.key).is_none_or(|times| *times < REFUSALS));
        self.over |= waits.is_empty() || now.saturating_sub(first) >= WITHIN;
        if self.over { Vec::new() } else { waits }
    }

    /// Gives back what carries the condition, as far as that goes within so long, and returns what was; another read will find
    /// what is left. Anybody may: removing the condition has the apiserver call the webhook again, whoever leads.
    pub(in crate::source::kubernetes) async fn give_back(
        &mut self,
        client: &KubeClient,
        webhooks: &[UnservedWebhook],
        within: Duration,
    ) -> Vec<UnservedWebhook> {
        let mut done = Vec::new();
        let giving_back = async {
            for it in webhooks.iter().filter(|it| it.carries) {
                match give_back(client, it).await {
                    Ok(true) => done.push(it.clone()),
                    Ok(false) => {}
                    Err(error) => {
                        let webhook = &it.key;
                        tracing::warn!(%webhook, %error, fix = error.fix(), "cannot give a webhook back");
                        self.record(webhook, &error);
                    }
                }
            }
        };
        // A webhook that was not given back in time is given back after the next read.
        let _ = timeout(within, giving_back).await;
        done
    }

    fn record(&mut self, webhook: &WebhookKey, error: &KubeError) {
        match error {
            KubeError::Unwritten { code: 400 | 403 | 422, .. } | KubeError::Refused { code: 403, .. } => {
                *self.refused.entry(webhook.clone()).or_default() += 1;
            }
            _ => drop(self.refused.remove(webhook)),
        }
    }
}

/// Gives one back, and leaves a mark for the replica that writes. False where it does not carry the condition any more.
async fn give_back(client: &KubeClient, unserved: &UnservedWebhook) -> Result<bool, KubeError> {
    let path = unserved.key.path();
    let object = match client.get(&path).await {
        Err(KubeError::Refused { code: 404, .. }) => return Ok(false),
        object => object?,
    };
    let Some((document, by_others)) = give_back_document(&object, unserved) else { return Ok(false) };
    match client.apply_conditions(MANAGER, &path, &document).await {
        Ok(_) if !by_others => return Ok(true),
        // By force, also where the rest of the document is rejected.
        Ok(_) | Err(KubeError::Unwritten { code: 400 | 403 | 422, .. }) => {}
        Err(error) => return Err(error),
    }
    remove(client, &path, &[&unserved.key.webhook]).await.map(|()| true)
}

/// Takes our condition off these webhooks, whoever put it there.
///
/// # Errors
/// [`KubeError`] of the read or the write.
pub async fn remove(client: &KubeClient, path: &str, webhooks: &[&str]) -> Result<(), KubeError> {
    let object = client.get(path).await?;
    match forced_removal(&object, webhooks) {
        Some(patch) => client.patch(&format!("{path}?timeout=2s"), "application/json-patch+json", &patch).await,
        None => Ok(()),
    }
}

/// Names of these, for people.
pub(in crate::source::kubernetes) fn names(webhooks: &[UnservedWebhook]) -> String {
    let names: Vec<_> = webhooks.iter().take(NAMED).map(|it| it.key.to_string()).collect();
    match webhooks.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{adopt::Reason, model::HookType};

    fn unserved(name: &str, carries: bool) -> UnservedWebhook {
        let (configuration, webhook) = ("c".to_owned(), name.to_owned());
        let key = WebhookKey { hook_type: HookType::Validating, configuration, webhook };
        UnservedWebhook { key, uid: "u".to_owned(), reason: Reason::TooMany, carries }
    }

    fn followed(unserved: Vec<UnservedWebhook>) -> CallPlan {
        CallPlan { unserved, ..CallPlan::default() }
    }

    fn refusal(code: u16) -> KubeError {
        let text = String::new;
        KubeError::Unwritten { server: text(), code, method: text(), path: text(), message: text() }
    }

    #[test]
    fn a_replica_serves_once_every_apiserver_calls_what_it_cannot_or_after_a_while() {
        let at = Duration::from_secs;
        let mut starting = Starting::default();
        assert_eq!(starting.waits_for(at(1), &followed(vec![unserved("w", true)])).len(), 1);
        assert_eq!(starting.waits_for(at(2), &followed(vec![unserved("w", false)])).len(), 1, "not heard of yet");
        assert_eq!(starting.waits_for(at(3), &followed(Vec::new())), []);
        assert_eq!(starting.waits_for(at(4), &followed(vec![unserved("w", true)])), [], "it serves");
        let mut starting = Starting::default();
        let mut waits = |second| !starting.waits_for(at(second), &followed(vec![unserved("w", true)])).is_empty();
        assert_eq!((waits(1), waits(10), waits(11)), (true, true, false));
        let all = ["a", "b", "c", "d"].map(|name| unserved(name, true));
        assert_eq!(names(&all), "validating/c/a, validating/c/b, validating/c/c and 1 more");
    }

    #[test]
    fn what_the_apiserver_refuses_to_give_back_is_not_waited_for() {
        let at = Duration::from_secs;
        let mut starting = Starting::default();
        let left = |carries| followed(vec![unserved("a", true), unserved("b", carries)]);
        let key = unserved("a", true).key;
        assert_eq!(starting.waits_for(at(1), &left(true)).len(), 2);
        starting.record(&key, &refusal(422));
        assert_eq!(starting.waits_for(at(2), &left(false)).len(), 2, "the object may have changed in between");
        starting.record(&key, &refusal(409));
        starting.record(&key, &refusal(403));
        assert_eq!(starting.waits_for(at(3), &left(false)).len(), 2, "once in a row");
        starting.record(&key, &refusal(403));
        assert_eq!(starting.waits_for(at(4), &left(false)), [unserved("b", false)], "of the other not all have heard");
        assert_eq!(starting.waits_for(at(5), &followed(vec![unserved("a", true)])), [], "nothing else is left");
    }
}
