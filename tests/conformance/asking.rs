//! Asking: a whole decision over hooks that answer as a case says.

use std::{collections::BTreeMap, future::Future, time::Duration};

use gatepost::review::decide;
use gatepost_api::Verdict;
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionRequest;
use serde_json::{Value, json};

use super::{
    documents::{configuration, snapshot},
    reviews,
};
use crate::support::{
    gate::{caller, in_force},
    scripted_hook::{Script, ScriptedHook},
};

/// The longest one decision may take.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The labels of namespaces, by name.
pub(crate) type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

/// A rule for everything.
pub(crate) fn everything() -> Value {
    json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}])
}

/// Does this, on a runtime of its own.
pub(crate) fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// The Namespace objects.
pub(crate) fn namespaces(namespaces: &Namespaces) -> impl Iterator<Item = Value> {
    namespaces.iter().map(
        |(name, labels)| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}),
    )
}

/// Is a hook with these selectors asked about the request?
pub(crate) fn is_asked(selectors: &Value, known: &Namespaces, request: &AdmissionRequest) -> Result<bool, String> {
    on_runtime(async {
        let hook = ScriptedHook::start(Script::Allow).await;
        let mut entry = json!({"name": "hook", "clientConfig": {"url": hook.url()}, "rules": everything()});
        for (key, selector) in selectors.as_object().expect("a map of selectors") {
            entry[key] = selector.clone();
        }
        let mut documents: Vec<Value> = namespaces(known).collect();
        documents.push(configuration(json!([entry])));
        let snapshot = snapshot(&documents)?;
        let hooks = snapshot.hooks.clone();
        let gate = in_force(snapshot, &hooks, gatepost::review::Reasons::First);
        let verdict: Verdict = decide(&gate, &reviews::review(request.clone())?, &caller(LONG)).await;
        match verdict.refusal {
            None => Ok(!hook.seen().is_empty()),
            Some(refusal) => Err(format!("refused: {} {}", refusal.code, refusal.message)),
        }
    })
}
