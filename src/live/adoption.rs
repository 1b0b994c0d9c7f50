//! Adoption's view of this sidecar: the webhooks and policies of others that are in force, the age of reads, metrics and audit.

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
use gatepost_adopt::{AdoptionMetrics, EntryInForce, EntryKey, EntryKind, MAX_READ_GAP, Sidecar};
use gatepost_base::clock::now;

// A read gap long enough to make the configuration stale must also restart the follower.
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
    fn entries_in_force(&self) -> Vec<EntryInForce> {
        // Read before the generation, which is then at least as new.
        let KnownGeneration { id, is_newest } = self.current.known_to_plugins(now());
        let generation = self.current.load();
        let mut webhooks = entries_in_force(&generation);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_newest || id.number != generation.number {
            // A plugin might not yet send the requests of a new webhook: the apiserver must still call it.
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

fn entries_in_force(generation: &Generation) -> Vec<EntryInForce> {
    let hooks = (0..).zip(&generation.hooks).filter(|(_, live)| live.rotation.is_called());
    let hooks = hooks.filter_map(|(index, live)| webhook_in_force(generation, index, live));
    hooks.chain(bindings_in_force(generation)).collect()
}

/// Returns the webhook that a hook is; `None` if the hook comes from our own configuration.
fn webhook_in_force(generation: &Generation, index: u32, live: &LiveHook) -> Option<EntryInForce> {
    let origin = generation.snapshot.origin(index)?;
    let hook_type = live.hook.hook_type;
    let configuration = origin.file.strip_prefix(hook_type.resource())?.strip_prefix('/')?;
    let (configuration, name) = (configuration.to_owned(), live.hook.name.to_string());
    let id = EntryKey { kind: EntryKind::Webhook(hook_type), configuration, name }.id();
    let state = origin.state.as_deref().map(str::to_owned);
    Some(EntryInForce { id, state, is_moving: live.replacing.is_some() })
}

/// Returns the bindings of policies of others. One whose params were never read is not evaluated yet.
fn bindings_in_force(generation: &Generation) -> impl Iterator<Item = EntryInForce> {
    let policies = generation.policies.iter().enumerate();
    let placed = policies.filter_map(|(index, live)| Some((live, generation.snapshot.policy_place(index)?)));
    // Policies of our own configuration have no states.
    placed.filter(|(_, place)| place.states.is_some()).flat_map(|(live, place)| {
        let policy = &live.policy;
        let (kind, states) = (EntryKind::Binding(policy.definition.hook_type), place.states());
        let evaluated = policy.bindings.iter().enumerate().filter(|(index, _)| !live.awaits_params_of(*index));
        evaluated.map(move |(_, binding)| {
            let (configuration, name) = (policy.definition.name.to_string(), binding.name.to_string());
            let state = states.get(&*name).map(|state| (*state).to_owned());
            EntryInForce { id: EntryKey { kind, configuration, name }.id(), state, is_moving: false }
        })
    })
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::SystemTime};

    use serde_json::json;
    use tokio::runtime::Handle;

    use super::*;
    use crate::{
        hooks::Channel,
        live::{CallTarget, Replacement, Rotation},
        telemetry::Metrics,
    };
    use gatepost_api::HookType;
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
        Generation { published: since, hooks: vec![live], ..Generation::of(Arc::new(snapshot), &Metrics::new(1)) }
    }

    #[tokio::test(start_paused = true)]
    async fn new_webhook_is_in_force_once_plugins_acknowledge() {
        let current = Arc::new(Current::new(now()));
        let sidecar = AdoptionSidecar::new(Arc::clone(&current), Arc::default(), Arc::new(Audit::off()));
        let mut follower = current.rule_index().follow();
        follower.version(true);
        current.publish(Arc::new(with_rule(1, "pods")));
        assert_eq!(sidecar.entries_in_force(), [], "the plugin does not send its requests yet");
        let version = follower.version(true).number;
        follower.acknowledge(version);
        assert_eq!(sidecar.entries_in_force().len(), 1);
        current.publish(Arc::new(with_rule(2, "services")));
        assert_eq!(sidecar.entries_in_force().len(), 1, "a webhook that changes stays");
    }

    #[tokio::test]
    async fn only_adopted_bindings_have_a_state() {
        let named = |states: Value| {
            let rule = json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
            let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]});
            let document = |kind: &str, name: &str, annotations: &Value, spec: Value| {
                json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                    "metadata": {"name": name, "annotations": annotations}, "spec": spec})
            };
            let binding = json!({"policyName": "p", "validationActions": ["Deny"]});
            let items = [
                document("ValidatingAdmissionPolicy", "p", &states, spec),
                document("ValidatingAdmissionPolicyBinding", "b", &json!({}), binding),
            ];
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            let file = SourceFile { name: "f".to_owned(), bytes: list.to_string().into() };
            let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
            entries_in_force(&Generation::of(Arc::new(snapshot), &Metrics::new(1)))
        };
        let (kind, configuration) = (EntryKind::Binding(HookType::Validating), "p".to_owned());
        let id = EntryKey { kind, configuration, name: "b".to_owned() }.id();
        let state = Some("s1".to_owned());
        assert_eq!(named(json!({ENTRY_STATES: "a=s0 b=s1"})), [EntryInForce { id, state, is_moving: false }]);
        assert_eq!(named(json!({})), []);
    }

    #[tokio::test]
    async fn webhook_in_force_reports_whether_it_moves() {
        let (kind, configuration) = (EntryKind::Webhook(HookType::Validating), "c".to_owned());
        let id = EntryKey { kind, configuration, name: "w.x.y".to_owned() }.id();
        let expected = |is_moving| vec![EntryInForce { id: id.clone(), state: Some("s1".to_owned()), is_moving }];
        assert_eq!(entries_in_force(&generation(false, false)), expected(false));
        assert_eq!(entries_in_force(&generation(true, false)), expected(true));
        assert_eq!(entries_in_force(&generation(false, true)), [], "it waits for its probe");
    }
}
