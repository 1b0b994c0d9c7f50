//! Giving back: our condition taken off webhooks, whoever put it there; and a replica that starts and does so first.

use std::time::Duration;

use tokio::time::timeout;

use crate::{
    adopt::{Followed, WebhookKey, forced_removal},
    kube::{Client, KubeError},
};

/// Longest time for which a replica that starts gives back what it cannot call, before it serves.
const WITHIN: Duration = Duration::from_secs(10);
/// Webhooks that an error names.
const NAMED: usize = 3;

/// A replica that starts: it accepts no review while an apiserver counts on it for what it cannot call.
#[derive(Debug, Default)]
pub(in crate::source::kubernetes) struct Starting {
    /// Time at which the first read began.
    first: Option<Duration>,
    /// True once it serves.
    over: bool,
}

impl Starting {
    /// Webhooks that are to be given back before anything is served, after a read that began at `now`; none of them may be
    /// left, while an apiserver has not heard of it. `None` where it may serve.
    pub(in crate::source::kubernetes) fn waits_for<'a>(
        &mut self,
        now: Duration,
        followed: &'a Followed,
    ) -> Option<&'a [WebhookKey]> {
        let first = *self.first.get_or_insert(now);
        self.over |= followed.unserved.is_none() || now.saturating_sub(first) >= WITHIN;
        followed.unserved.as_deref().filter(|_| !self.over)
    }
}

/// Gives these back as far as that goes within so long; another read will find what is left. Anybody may: removing the
/// condition has the apiserver call the webhook again, whoever leads.
pub(in crate::source::kubernetes) async fn give_back(client: &Client, webhooks: &[WebhookKey], within: Duration) {
    let giving_back = async {
        for key in webhooks {
            match remove(client, &key.path(), &[&key.webhook]).await {
                Ok(()) => tracing::warn!(webhook = %key, "given back: this replica starts, and cannot serve it"),
                Err(error) => tracing::warn!(webhook = %key, %error, fix = error.fix(), "cannot give a webhook back"),
            }
        }
    };
    // What was not done in time is done after the next read.
    let _ = timeout(within, giving_back).await;
}

/// Takes our condition off these webhooks, whoever put it there.
///
/// # Errors
/// [`KubeError`] of the read or the write.
pub async fn remove(client: &Client, path: &str, webhooks: &[&str]) -> Result<(), KubeError> {
    let object = client.get(path).await?;
    match forced_removal(&object, webhooks) {
        Some(patch) => client.patch(&format!("{path}?timeout=2s"), "application/json-patch+json", &patch).await,
        None => Ok(()),
    }
}

/// Names of these, for people.
pub(in crate::source::kubernetes) fn names(webhooks: &[WebhookKey]) -> String {
    let names: Vec<_> = webhooks.iter().take(NAMED).map(ToString::to_string).collect();
    match webhooks.len().saturating_sub(NAMED) {
        _ if webhooks.is_empty() => "what it has given back".to_owned(),
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::HookType;

    #[test]
    fn a_replica_serves_once_every_apiserver_calls_what_it_cannot_or_after_a_while() {
        let key = |name: &str| WebhookKey {
            hook_type: HookType::Validating,
            configuration: "c".to_owned(),
            webhook: name.to_owned(),
        };
        let unserved = |keys: Option<&[&str]>| Followed {
            unserved: keys.map(|keys| keys.iter().map(|name| key(name)).collect()),
            ..Followed::default()
        };
        let at = Duration::from_secs;
        let mut starting = Starting::default();
        assert_eq!(starting.waits_for(at(1), &unserved(Some(&["w"]))).map(<[_]>::len), Some(1));
        assert_eq!(starting.waits_for(at(2), &unserved(Some(&[]))).map(<[_]>::len), Some(0));
        assert_eq!(starting.waits_for(at(3), &unserved(None)), None);
        assert_eq!(starting.waits_for(at(4), &unserved(Some(&["w"]))), None, "it serves");
        let mut starting = Starting::default();
        assert!(starting.waits_for(at(1), &unserved(Some(&["w"]))).is_some());
        assert!(starting.waits_for(at(10), &unserved(Some(&["w"]))).is_some());
        assert!(starting.waits_for(at(11), &unserved(Some(&["w"]))).is_none());
        assert_eq!(names(&["a", "b", "c", "d"].map(key)), "validating/c/a, validating/c/b, validating/c/c and 1 more");
    }
}
