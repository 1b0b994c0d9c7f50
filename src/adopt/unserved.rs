//! Unserved: webhooks that this replica cannot call while an apiserver may count on it for them.

use std::{collections::BTreeMap, time::Duration};

use super::{Reason, WebhookKey};

/// A webhook that no apiserver calls, or may not call yet, and that this replica cannot call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// Its name.
    pub key: WebhookKey,
    /// The uid of its configuration.
    pub uid: String,
    /// Reason why it cannot be served.
    pub reason: Reason,
    /// True while it carries the condition. Afterwards an apiserver may not have observed yet that it calls it again.
    pub carries: bool,
}

/// Unserved webhooks by name, and the time until which an apiserver may count on us for each.
#[derive(Debug, Default)]
pub(super) struct CountedOn(BTreeMap<WebhookKey, (Duration, Unserved)>);

impl CountedOn {
    /// Begins a read at `now`: until it finds the condition again, nothing carries it.
    pub(super) fn begin(&mut self, now: Duration) {
        self.0.retain(|_, (until, _)| now < *until);
        self.0.values_mut().for_each(|(_, unserved)| unserved.carries = false);
    }

    /// Records that an apiserver may count on us for this one until then.
    pub(super) fn record(&mut self, unserved: Unserved, until: Duration) {
        let before = self.0.get(&unserved.key).map_or(Duration::ZERO, |(before, _)| *before);
        self.0.insert(unserved.key.clone(), (before.max(until), unserved));
    }

    /// Records that this one is called from now on.
    pub(super) fn served(&mut self, key: &WebhookKey) {
        self.0.remove(key);
    }

    /// Webhooks that an apiserver may count on us for at `now`.
    pub(super) fn at(&self, now: Duration) -> Vec<Unserved> {
        self.0.values().filter(|(until, _)| now < *until).map(|(_, unserved)| unserved.clone()).collect()
    }
}
