//! Startup of a replica. The replica accepts no reviews while an apiserver relies on it to call entries that it cannot
//! serve.

use std::{collections::BTreeMap, time::Duration};

use gatepost_kube_support::{KubeClient, KubeError};
use serde_json::Value;
use tokio::time::timeout;

use crate::{CallPlan, EntryKey, UnservedEntry, give_back_document, remove_mark, writes::send};

/// Maximum time for which a starting replica gives entries back before it serves.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of rejections in a row after which an entry no longer delays startup. One may be due to a concurrent change.
const MAX_REFUSALS: u32 = 2;
/// Maximum number of entries that an error names.
const MAX_NAMED_WEBHOOKS: usize = 3;

/// State of a starting replica.
#[derive(Debug, Default)]
pub struct Startup {
    /// Start of the first read.
    first: Option<Duration>,
    /// Startup is complete: no entry delays it any more.
    serves: bool,
    /// Number of rejections in a row to give each entry back.
    refusals: BTreeMap<EntryKey, u32>,
}

impl Startup {
    /// Returns the entries that delay startup, after a read that began at `now`: those to give back, and those that an
    /// apiserver might not call again yet. If there are none, the replica may serve.
    pub fn waits_for(&mut self, now: Duration, calls: &CallPlan) -> Vec<UnservedEntry> {
        let first = *self.first.get_or_insert(now);
        let mut waits = calls.unserved.clone();
        waits.retain(|it| !it.carries || self.refusals.get(&it.key).is_none_or(|times| *times < MAX_REFUSALS));
        self.serves |= waits.is_empty() || now.saturating_sub(first) >= STARTUP_TIMEOUT;
        if self.serves { Vec::new() } else { waits }
    }

    /// Gives back the entries that carry the mark, and returns those that were given back within the time. The
    /// next read returns the others. Any replica may do this: without the mark, the apiserver calls the entry.
    pub async fn give_back(
        &mut self,
        client: &KubeClient,
        webhooks: &[UnservedEntry],
        within: Duration,
    ) -> Vec<UnservedEntry> {
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
        let _ = timeout(within, giving_back).await;
        done
    }

    fn record(&mut self, webhook: &EntryKey, error: &KubeError) {
        match error {
            KubeError::WriteRefused { code: 400 | 403 | 422, .. } | KubeError::Refused { code: 403, .. } => {
                *self.refusals.entry(webhook.clone()).or_default() += 1;
            }
            _ => drop(self.refusals.remove(webhook)),
        }
    }
}

/// Gives one entry back, with an annotation for the leader. Returns false if it no longer carries the mark.
async fn give_back(client: &KubeClient, unserved: &UnservedEntry) -> Result<bool, KubeError> {
    let path = unserved.key.path();
    let object = match client.get(&path).await {
        Err(KubeError::Refused { code: 404, .. }) => return Ok(false),
        object => object?,
    };
    let Some((document, by_others)) = give_back_document(&object, unserved) else { return Ok(false) };
    match send(client, unserved.key.kind, &path, &document).await {
        Ok(_) if !by_others => return Ok(true),
        // Remove the mark by force, even if the rest of the document is rejected.
        Ok(_) | Err(KubeError::WriteRefused { code: 400 | 403 | 422, .. }) => {}
        Err(error) => return Err(error),
    }
    remove_mark(client, &[&unserved.key], &Value::Null).await.map(|()| true)
}

/// Returns the names of these entries, for display.
pub fn names(webhooks: &[UnservedEntry]) -> String {
    let names: Vec<_> = webhooks.iter().take(MAX_NAMED_WEBHOOKS).map(|it| it.key.to_string()).collect();
    match webhooks.len().saturating_sub(MAX_NAMED_WEBHOOKS) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatepost_api::HookType;

    use crate::{EntryKind, Reason};

    fn unserved(name: &str, carries: bool) -> UnservedEntry {
        let (configuration, name) = ("c".to_owned(), name.to_owned());
        let key = EntryKey { kind: EntryKind::Webhook(HookType::Validating), configuration, name };
        UnservedEntry { key, uid: "u".to_owned(), reason: Reason::TooMany, carries }
    }

    fn followed(unserved: Vec<UnservedEntry>) -> CallPlan {
        CallPlan { unserved, ..CallPlan::default() }
    }

    fn refusal(code: u16) -> KubeError {
        let text = String::new;
        KubeError::WriteRefused { server: text(), code, method: text(), path: text(), message: text() }
    }

    #[test]
    fn starting_replica_serves_once_unserved_webhooks_are_given_back_or_after_the_timeout() {
        let at = Duration::from_secs;
        let mut starting = Startup::default();
        assert_eq!(starting.waits_for(at(1), &followed(vec![unserved("w", true)])).len(), 1);
        assert_eq!(starting.waits_for(at(2), &followed(vec![unserved("w", false)])).len(), 1, "not heard of yet");
        assert_eq!(starting.waits_for(at(3), &followed(Vec::new())), []);
        assert_eq!(starting.waits_for(at(4), &followed(vec![unserved("w", true)])), [], "it serves");
        let mut starting = Startup::default();
        let mut waits = |second| !starting.waits_for(at(second), &followed(vec![unserved("w", true)])).is_empty();
        assert_eq!((waits(1), waits(10), waits(11)), (true, true, false));
        let all = ["a", "b", "c", "d"].map(|name| unserved(name, true));
        assert_eq!(names(&all), "validating/c/a, validating/c/b, validating/c/c and 1 more");
    }

    #[test]
    fn starting_replica_does_not_wait_for_webhooks_that_cannot_be_given_back() {
        let at = Duration::from_secs;
        let mut starting = Startup::default();
        let left = |carries| followed(vec![unserved("a", true), unserved("b", carries)]);
        let key = unserved("a", true).key;
        assert_eq!(starting.waits_for(at(1), &left(true)).len(), 2);
        starting.record(&key, &refusal(422));
        assert_eq!(starting.waits_for(at(2), &left(false)).len(), 2, "the object may have changed in between");
        starting.record(&key, &refusal(409));
        starting.record(&key, &refusal(403));
        assert_eq!(starting.waits_for(at(3), &left(false)).len(), 2, "once in a row");
        starting.record(&key, &refusal(403));
        assert_eq!(
            starting.waits_for(at(4), &left(false)),
            [unserved("b", false)],
            "apiservers may not have observed b yet"
        );
        assert_eq!(starting.waits_for(at(5), &followed(vec![unserved("a", true)])), [], "nothing else is left");
    }
}
