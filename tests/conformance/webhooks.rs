//! Webhooks: configurations as kube-apiserver takes them, with hooks that answer here in their place.

use std::sync::Arc;

use gatepost::review::{AdmissionDeps, Reasons};
use gatepost_api::{Endpoint, Hook};
use gatepost_config::Snapshot;
use serde_json::{Value, json};

use super::documents::snapshot;
use crate::support::gate::in_force;

/// Kubernetes' own configuration of these webhooks.
pub(crate) fn configuration(kind: &str, name: &str, webhooks: Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": webhooks,
    })
}

/// The validating webhooks, compiled, with these documents beside them.
pub(crate) fn validating(name: &str, webhooks: Value, beside: Vec<Value>) -> Result<Snapshot, String> {
    compiled("ValidatingWebhookConfiguration", name, webhooks, beside)
}

/// The mutating ones.
pub(crate) fn mutating(name: &str, webhooks: Value, beside: Vec<Value>) -> Result<Snapshot, String> {
    compiled("MutatingWebhookConfiguration", name, webhooks, beside)
}

fn compiled(kind: &str, name: &str, webhooks: Value, beside: Vec<Value>) -> Result<Snapshot, String> {
    let mut documents = beside;
    documents.push(configuration(kind, name, webhooks));
    snapshot(&documents)
}

/// Fields of a hook that no configuration can have, or that are otherwise here.
pub(crate) struct Instead {
    /// Endpoint of the hook: the loopback interface, in plaintext.
    pub(crate) endpoint: Endpoint,
    /// The rest.
    pub(crate) change: Box<dyn FnOnce(&mut Hook)>,
}

/// A gate over the snapshot's hooks, each with what stands in its place.
pub(crate) fn gate(snapshot: Snapshot, instead: Vec<Instead>) -> Arc<AdmissionDeps> {
    assert_eq!(snapshot.hooks.len(), instead.len(), "one for each hook");
    let change = |(hook, instead): (&Arc<Hook>, Instead)| {
        let mut hook = Hook { endpoint: instead.endpoint, ..(**hook).clone() };
        (instead.change)(&mut hook);
        Arc::new(hook)
    };
    let hooks: Vec<Arc<Hook>> = snapshot.hooks.iter().zip(instead).map(change).collect();
    in_force(snapshot, &hooks, Reasons::First)
}
