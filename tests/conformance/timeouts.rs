//! `timeouts.json`: timeout that a hook is sent.
//!
//! The mutating hooks really take their time, a second each: what they leave of the request's is what is looked at.

use std::{collections::BTreeMap, time::Duration};

use gatepost::review::decide;
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionRequest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    asking::{everything, on_runtime},
    documents::snapshot,
    reviews::{self, text},
    run::{Nothing, Outcome, Understood, decoded, equal},
    webhooks::{Instead, configuration, gate},
};
use crate::support::{
    gate::caller,
    http_hook::{HttpHook, HttpScript},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    request_timeout_s: u64,
    mutating: Vec<Entry>,
    validating: Vec<Entry>,
    expect_timeout_param: Vec<(String, u64)>,
    #[serde(default)]
    expect_error: bool,
}

/// Path, `timeoutSeconds` and failure policy (null is the default). The path ends with how long the hook takes.
#[derive(Deserialize)]
struct Entry(String, u64, Option<String>);

impl Entry {
    fn delay(&self) -> Result<Duration, String> {
        let last = self.0.rsplit('/').next().unwrap_or_default();
        humantime::parse_duration(last).map_err(|error| format!("not understood: {}: {error}", self.0))
    }
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    let known = |path: &String| case.mutating.iter().chain(&case.validating).any(|entry| entry.0 == *path);
    if let Some((path, _)) = case.expect_timeout_param.iter().find(|(path, _)| !known(path)) {
        return Err(format!("not understood: no hook has the path {path}"));
    }
    case.mutating.iter().chain(&case.validating).try_for_each(|entry| entry.delay().map(drop))?;
    Ok(Box::new(move || on_runtime(judge(case))))
}

async fn judge(case: Case) -> Outcome {
    let request = Duration::from_secs(case.request_timeout_s);
    let (mut documents, mut hooks, mut instead) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, entries) in [("Mutating", &case.mutating), ("Validating", &case.validating)] {
        let mut webhooks = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let Entry(path, seconds, policy) = entry;
            let delay = entry.delay()?;
            let script = match delay {
                Duration::ZERO => HttpScript::Allow,
                // Nothing comes after validating hooks, so that only a delay that is too long makes a difference.
                _ if kind == "Validating" && delay < request.min(Duration::from_secs(*seconds)) => HttpScript::Allow,
                _ if delay >= request.min(Duration::from_secs(*seconds)) => HttpScript::Hang,
                _ => HttpScript::Slow(delay),
            };
            let hook = HttpHook::plain(script).await;
            webhooks.push(json!({
                "name": format!("hook-{index}.vectors.example"),
                "clientConfig": {"url": format!("https://127.0.0.1{path}")},
                "rules": everything(),
                "failurePolicy": policy,
                "timeoutSeconds": seconds,
                // Each mutating hook in its own turn, as upstream asks them.
                "sideEffects": "NoneOnDryRun",
                "admissionReviewVersions": ["v1"],
            }));
            instead.push(Instead { endpoint: hook.endpoint(), change: Box::new(|_| {}) });
            hooks.push(hook);
        }
        let name = kind.to_lowercase();
        documents.push(configuration(&format!("{kind}WebhookConfiguration"), &name, json!(webhooks)));
    }
    let gate = gate(snapshot(&documents)?, instead);
    let review = reviews::review(AdmissionRequest {
        resource: reviews::resource(&["".into(), "v1".into(), "pods".into()]),
        namespace: text("ns"),
        operation: text("CREATE"),
        ..Default::default()
    })?;
    let verdict = decide(&gate, &review, &caller(request)).await;
    equal("error", !verdict.allowed(), case.expect_error)?;
    let sent: BTreeMap<String, String> = hooks
        .iter()
        .flat_map(HttpHook::seen)
        .map(|seen| seen.path.split_once('?').map(|(path, query)| (path.into(), query.into())))
        .collect::<Option<_>>()
        .ok_or("a hook was sent no timeout")?;
    let expected = case.expect_timeout_param.iter();
    let expected = expected.map(|(path, seconds)| (path.clone(), format!("timeout={seconds}s"))).collect();
    equal("sent timeouts", sent, expected)
}
