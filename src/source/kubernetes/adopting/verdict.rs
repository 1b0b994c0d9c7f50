//! Verdict: whether a webhook of others can be served, judged by itself and by our registration.

use serde_json::{Value, json};

use super::own::Own;
use crate::{
    adopt::{Reason, WebhookKey, WebhookStanding},
    cel::Condition,
    model::{FailurePolicy, Hook, HookType, registration::is_our_webhook},
    snapshot::{
        SourceFile,
        coverage::{Atom, atoms_of},
        hazards::Severity,
        load,
    },
    tls::{self, SystemRoots},
};

/// Verdict on one webhook.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) unservable: Option<Reason>,
    pub(super) objection: Option<Reason>,
    pub(super) unsent: bool,
    pub(super) asks_authorizer: bool,
}

/// The webhook alone, as a document of ours.
fn document(standing: &WebhookStanding) -> Value {
    let WebhookKey { hook_type, configuration, .. } = &standing.key;
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": WebhookKey::kind(*hook_type),
        "metadata": {"name": configuration, "uid": standing.uid}, "webhooks": [standing.entry],
    })
}

pub(super) fn judge(standing: &WebhookStanding, (own, isolates): (&Own<'_>, bool), namespace: &str) -> Verdict {
    let not = |reason: Reason| Verdict { unservable: Some(reason), ..Verdict::default() };
    if standing.foreign {
        return not(Reason::ForeignCondition);
    }
    if is_our_webhook(&standing.key.webhook) {
        return not(Reason::NamedLikeOurs);
    }
    let unservable = |what: String| not(Reason::Unservable(what));
    let name = format!("{}/{}", WebhookKey::resource(standing.key.hook_type), standing.key.configuration);
    let file = SourceFile { name, bytes: document(standing).to_string().into() };
    let snapshot = match load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())) {
        Ok(snapshot) => snapshot,
        Err(problems) => return unservable(problems.first().map_or_else(String::new, ToString::to_string)),
    };
    let roots = SystemRoots::default();
    for hook in &snapshot.hooks {
        let Some(wanted) = &hook.endpoint.tls else { continue };
        if let Err(error) = tls::client_config(wanted, hook.endpoint.transport, &roots) {
            return unservable(format!("{error}; {}", error.fix()));
        }
    }
    let deadlock = || {
        let findings = snapshot.hazards();
        let found = findings.into_iter().find(|finding| finding.severity == Severity::Deadlock)?;
        Some(Reason::Hazard(format!("{}: {}", found.rule, found.sentence())))
    };
    let ties_our_hands = || {
        let guards = |hook: &Hook| {
            let matches = |atom: Atom| {
                ["*", "coordination.k8s.io"].contains(&&*atom.group)
                    && ["*", "*/*", "leases"].contains(&&*atom.resource)
            };
            let fails_closed = hook.failure_policy != FailurePolicy::Ignore;
            let here = snapshot.selects_namespace(&hook.namespace_selector, namespace) == Some(true);
            fails_closed && here && atoms_of(hook).into_iter().any(matches)
        };
        snapshot.hooks.iter().any(|hook| guards(hook)).then(|| {
            Reason::Hazard(format!(
                "it judges the leases by which replicas agree: while it is down, it could not be given back; leave the \
                 namespace {namespace} out of its namespaceSelector"
            ))
        })
    };
    let never_sent = own.never_sent.as_deref().unwrap_or_default();
    let uncovered = || {
        if let Some(why) = &own.ambiguous {
            return Some(Reason::Uncovered(why.clone()));
        }
        if own.registration.is_empty() {
            let none = || "there is none in this cluster".to_owned();
            return Some(Reason::Uncovered(own.conditional.clone().unwrap_or_else(none)));
        }
        // Every other gap counts, also one that is intended or fails open: until we take the webhook, the apiserver calls
        // it there. In namespaces that are never sent it goes on to.
        let gap = own.registration.gaps_but_in(&snapshot, never_sent).into_iter().next()?;
        let condition = own.conditional.as_ref().map(|what| format!("; {what}")).unwrap_or_default();
        Some(Reason::Uncovered(format!("{}{condition}", gap.what)))
    };
    // Its announcement would put our own hooks into other segments than they are registered for, or itself into one that is
    // not sent what it wants; and for some time after each such change, segments are refused.
    let renumbers = || {
        let mutating = standing.key.hook_type == HookType::Mutating;
        (mutating && (isolates || own.registration.has_segments())).then(|| {
            Reason::Hazard(
                "Gatepost's hooks are in segments, and another mutating webhook would change these; take \
                 `isolate: true` off the hooks and register Gatepost again, or leave this one to the apiserver"
                    .to_owned(),
            )
        })
    };
    let mut conditions = (0..).map_while(|index| snapshot.origin(index)).flat_map(|origin| origin.conditions.iter());
    let asks_authorizer = conditions.any(Condition::asks_authorizer);
    let unsent =
        own.ambiguous.is_none() && (own.sent.is_empty() || !own.sent.gaps_but_in(&snapshot, never_sent).is_empty());
    let objection = deadlock().or_else(ties_our_hands).or_else(renumbers).or_else(uncovered);
    Verdict { unservable: None, objection, unsent, asks_authorizer }
}
