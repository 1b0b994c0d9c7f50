//! Adoption's view of this sidecar: the webhooks in force, the age of reads, metrics and audit.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;

use crate::{
    live::{Current, Generation, LiveHook, STALE_AFTER, rule_index::KnownGeneration},
    telemetry::{Audit, Metrics},
};
use gatepost_adopt::{AdoptionMetrics, MAX_READ_GAP, Sidecar, WebhookInForce, WebhookKey};
use gatepost_base::clock::now;

// A replica whose last read is stale starts anew.
const _: () = assert!(MAX_READ_GAP.as_secs() <= STALE_AFTER.as_secs());

/// The sidecar as adoption uses it.
#[derive(Debug)]
pub struct AdoptionSidecar {
    /// State in force.
    pub current: Arc<Current>,
    /// Metrics of the sidecar.
    pub metrics: Arc<Metrics>,
    /// Audit log.
    pub audit: Arc<Audit>,
    /// Webhooks whose rules were known to all plugins at the last look.
    known: Mutex<BTreeSet<String>>,
}

impl AdoptionSidecar {
    /// Creates the view.
    pub fn new(current: Arc<Current>, metrics: Arc<Metrics>, audit: Arc<Audit>) -> Self {
        Self { current, metrics, audit, known: Mutex::default() }
    }
}

impl Sidecar for AdoptionSidecar {
    fn webhooks_in_force(&self) -> Vec<WebhookInForce> {
        // Read before the generation, which is then at least as new.
        let KnownGeneration { id, is_newest } = self.current.known_to_plugins(now());
        let generation = self.current.load();
        let mut webhooks = webhooks_in_force(&generation);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_newest || id.number != generation.number {
            // A plugin may not send the requests of a new webhook yet: the apiserver must still call it.
            webhooks.retain(|webhook| known.contains(&webhook.id));
        }
        *known = webhooks.iter().map(|webhook| webhook.id.clone()).collect();
        webhooks
    }

    fn limit_read_age(&self, age: Option<Duration>) {
        self.current.freshness().set_stale_after(age.unwrap_or(STALE_AFTER));
    }

    fn metrics(&self) -> &AdoptionMetrics {
        self.metrics.adoption()
    }

    fn audit(&self, line: Value) {
        if self.audit.enabled() {
            self.audit.push(line.to_string().into_bytes());
        }
    }
}

fn webhooks_in_force(generation: &Generation) -> Vec<WebhookInForce> {
    let hooks = (0..).zip(&generation.hooks).filter(|(_, live)| live.rotation.is_called());
    hooks.filter_map(|(index, live)| webhook_in_force(generation, index, live)).collect()
}

/// Returns the webhook that a hook is; `None` if the hook comes from our own configuration.
fn webhook_in_force(generation: &Generation, index: u32, live: &LiveHook) -> Option<WebhookInForce> {
    let origin = generation.snapshot.origin(index)?;
    let hook_type = live.hook.hook_type;
    let configuration = origin.file.strip_prefix(hook_type.resource())?.strip_prefix('/')?;
    let (configuration, webhook) = (configuration.to_owned(), live.hook.name.to_string());
    let id = WebhookKey { hook_type, configuration, webhook }.id();
    let state = origin.state.as_deref().map(str::to_owned);
    Some(WebhookInForce { id, state, is_moving: live.replacing.is_some() })
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, sync::Arc, time::SystemTime};

    use serde_json::json;
    use tokio::runtime::Handle;

    use super::*;
    use crate::{
        hooks::Channel,
        live::{CallTarget, Replacement, Rotation},
        telemetry::Metrics,
    };
    use gatepost_api::{HookType, Revision};
    use gatepost_config::{ENTRY_STATES, SourceFile, load};

    fn with_rule(number: u64, resource: &str) -> Generation {
        let rule = json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]});
        Generation { number, ..generation_of(json!([rule]), false, false) }
    }

    fn generation(moves: bool, probing: bool) -> Generation {
        generation_of(json!([]), moves, probing)
    }

    fn generation_of(rules: Value, moves: bool, probing: bool) -> Generation {
        let webhook = json!({"name": "w.x.y", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": rules});
        let metadata = json!({"name": "c", "uid": "u", "annotations": {ENTRY_STATES: "w.x.y=s1 v.x.y=s2"}});
        let document = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": metadata, "webhooks": [webhook]});
        let name = "validatingwebhookconfigurations/c".to_owned();
        let file = SourceFile { name, bytes: document.to_string().into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        let (hook, since) = (Arc::clone(&snapshot.hooks[0]), SystemTime::UNIX_EPOCH);
        let channel = Channel::open(hook.endpoint.clone(), None, &[Handle::current()]);
        let replacing = Replacement { channel: Arc::clone(&channel), since, last_failure: None };
        let rotation =
            if probing { Rotation::Probing { since, last_failure: None } } else { Rotation::Active { since } };
        let live = LiveHook {
            target: CallTarget::new(Arc::clone(&hook), channel),
            rotation,
            replacing: moves.then_some(replacing),
            overdue: None,
            metrics: Metrics::new(1).hook(hook.hook_type, &hook.name),
            hook,
        };
        Generation {
            number: 1,
            digest: String::new(),
            revision: Revision::Store(1),
            published: since,
            snapshot: Arc::new(snapshot),
            hooks: vec![live],
            bypassed: Vec::new(),
            policies: Vec::new(),
            initializers: HashMap::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn new_webhook_is_in_force_once_every_plugin_has_acknowledged_its_rules() {
        let current = Arc::new(Current::new(now()));
        let sidecar = AdoptionSidecar::new(Arc::clone(&current), Arc::default(), Arc::new(Audit::off()));
        let mut follower = current.rule_index().follow();
        follower.version(true);
        current.publish(Arc::new(with_rule(1, "pods")));
        assert_eq!(sidecar.webhooks_in_force(), [], "the plugin does not send its requests yet");
        let version = follower.version(true).number;
        follower.acknowledge(version);
        assert_eq!(sidecar.webhooks_in_force().len(), 1);
        current.publish(Arc::new(with_rule(2, "services")));
        assert_eq!(sidecar.webhooks_in_force().len(), 1, "a webhook that changes stays");
    }

    #[tokio::test]
    async fn webhook_in_force_has_its_state_and_tells_whether_it_moves() {
        let (hook_type, configuration) = (HookType::Validating, "c".to_owned());
        let id = WebhookKey { hook_type, configuration, webhook: "w.x.y".to_owned() }.id();
        let expected = |is_moving| vec![WebhookInForce { id: id.clone(), state: Some("s1".to_owned()), is_moving }];
        assert_eq!(webhooks_in_force(&generation(false, false)), expected(false));
        assert_eq!(webhooks_in_force(&generation(true, false)), expected(true));
        assert_eq!(webhooks_in_force(&generation(false, true)), [], "it waits for its probe");
    }
}
