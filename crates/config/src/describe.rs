//! The effective configuration as JSON, for `/configz`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Snapshot;
use gatepost_api::{Bypass, Endpoint, Hook, HttpForm, Initializer, Protocol, Rule, Selector};
use gatepost_policy::{Binding, Policy};

impl Snapshot {
    /// Returns the configuration in force, with defaults and rollouts applied, in the order of the hooks. It has no key
    /// material and no certificates.
    pub fn describe(&self) -> Value {
        let hooks: Vec<Value> =
            (0..).zip(&self.hooks).map(|(index, hook)| describe_hook(hook, self.origin(index))).collect();
        let initializers: Vec<Value> = self
            .initializers()
            .iter()
            .map(|entry| {
                let names: Vec<Value> = entry.initializers.iter().map(describe_initializer).collect();
                let may = entry.may_initialize.as_ref();
                let may = may.map(|who| json!({"users": who.users, "groups": who.groups}));
                json!({
                    "apiGroup": entry.api_group,
                    "resource": entry.resource,
                    "initializers": names,
                    "mayInitialize": may,
                    "stored": entry.by_label.then_some("Label"),
                })
            })
            .collect();
        let called_again = self.called_again();
        let notes = self.notes().iter().chain(&called_again).map(ToString::to_string);
        let notes: Vec<Value> = notes.map(Value::from).collect();
        json!({
            "hooks": hooks,
            "bypass": self.bypasses().iter().map(|bypass| describe_bypass(bypass)).collect::<Vec<_>>(),
            "policies": self.policies().iter().map(|policy| describe_policy(policy)).collect::<Vec<_>>(),
            "resourceInitializers": initializers,
            "namespaces": self.namespaces.len(),
            "notes": notes,
        })
    }
}

fn describe_hook(hook: &Hook, origin: Option<&super::Origin>) -> Value {
    let mut described = json!({
        "name": &*hook.name,
        "id": &*hook.id,
        "type": hook.hook_type.as_str(),
        "endpoint": hook.endpoint.to_string(),
        "tls": describe_tls(&hook.endpoint),
        "authorization": hook.endpoint.authorization.is_some(),
        "protocol": describe_protocol(&hook.protocol),
        "objectEncoding": hook.takes_protobuf.then_some("Protobuf"),
        "rules": hook.rules.iter().map(describe_rule).collect::<Vec<_>>(),
        "matchPolicy": hook.match_policy.as_str(),
        "seesAdmissionConfiguration": hook.sees_admission_config,
        "failurePolicy": hook.failure_policy.as_str(),
        "enforcement": hook.enforcement.as_str(),
        "canary": hook.canary.as_ref().map(ToString::to_string),
        "phase": hook.is_transactional.then_some("Transactional"),
        "after": hook.after,
        "timeoutMilliseconds": hook.timeout.as_secs_f64() * 1e3,
        "sideEffects": hook.side_effects.as_str(),
        "namespaceSelector": describe_selector(&hook.namespace_selector),
        "objectSelector": describe_selector(&hook.object_selector),
    });
    if let Some(origin) = origin {
        described["configuration"] = (*origin.configuration).into();
        described["rollout"] = json!({
            "probeWithin": humantime::format_duration(origin.rollout.probe_within).to_string(),
            "onProbeFailure": origin.rollout.on_probe_failure.as_str(),
        });
        if origin.rolling_out {
            described["rollout"]["createAs"] = "Ignore".into();
            described["rollout"]["then"] = origin.declared_policy.as_str().into();
        }
    }
    described
}

fn describe_policy(policy: &Policy) -> Value {
    let definition = &policy.definition;
    let constraints = &definition.constraints;
    let binding = |binding: &Arc<Binding>| {
        json!({
            "name": &*binding.name,
            "validationActions": binding.actions.names().collect::<Vec<_>>(),
            "params": binding.param_ref.is_some(),
        })
    };
    json!({
        "name": &*definition.name,
        "type": definition.hook_type.as_str(),
        "failurePolicy": definition.failure_policy.as_str(),
        "enforcement": policy.enforcement.as_str(),
        "canary": definition.canary.as_ref().map(ToString::to_string),
        "rules": constraints.rules.iter().map(|named| describe_rule(&named.rule)).collect::<Vec<_>>(),
        "matchPolicy": constraints.match_policy.as_str(),
        "namespaceSelector": describe_selector(&constraints.namespace_selector),
        "objectSelector": describe_selector(&constraints.object_selector),
        "paramKind": definition.param_kind.as_ref().map(|kind| json!({"apiVersion": kind.api_version, "kind": kind.kind})),
        "bindings": policy.bindings.iter().map(binding).collect::<Vec<_>>(),
    })
}

fn describe_initializer(one: &Initializer) -> Value {
    json!({
        "name": &*one.name,
        "failurePolicy": one.failure_policy.as_str(),
        "timeoutMilliseconds": one.timeout.as_secs_f64() * 1e3,
        "namespaceSelector": describe_selector(&one.namespace_selector),
        "objectSelector": describe_selector(&one.object_selector),
        "builtIn": one.built_in.is_some(),
        "attach": one.attach.is_some(),
        "owners": one.owners.as_ref().map(|who| json!({"users": who.users, "groups": who.groups})),
        "sideEffects": one.side_effects.as_str(),
        "parallel": one.parallel,
        "changes": one.metadata_only.then_some("Metadata"),
    })
}

/// Shows service accounts as users.
fn describe_bypass(bypass: &Bypass) -> Value {
    json!({
        "name": &*bypass.name,
        "reason": &*bypass.reason,
        "effect": bypass.effect.as_str(),
        "hooks": (!bypass.applies_to_all_hooks()).then_some(&bypass.hooks),
        "namespaces": bypass.namespaces,
        "users": bypass.who.users,
        "groups": bypass.who.groups,
        "resources": bypass.resources.iter().map(describe_rule).collect::<Vec<_>>(),
    })
}

fn describe_tls(endpoint: &Endpoint) -> Option<Value> {
    let tls = endpoint.tls.as_ref()?;
    Some(json!({
        "serverName": tls.server_name,
        "authorities": if tls.ca_pem.is_some() { "own" } else { "system" },
        "clientCertificate": tls.client_pem.is_some(),
    }))
}

/// Describes the protocol of a hook.
pub fn describe_protocol(protocol: &Protocol) -> Value {
    match protocol {
        Protocol::Grpc => "grpc".into(),
        Protocol::Http { path, form: HttpForm::Json(version) } => {
            json!({"http": "json", "path": **path, "admissionReviewVersion": version.as_str()})
        }
        Protocol::Http { path, form: HttpForm::Protobuf(version) } => {
            json!({"http": "protobuf", "path": **path, "admissionReviewVersion": version.as_str()})
        }
        Protocol::Http { path, form: HttpForm::Legacy } => json!({"http": "legacy", "path": **path}),
    }
}

fn describe_rule(rule: &Rule) -> Value {
    json!({
        "operations": rule.operations.iter().map(|operation| operation.as_str()).collect::<Vec<_>>(),
        "apiGroups": rule.api_groups,
        "apiVersions": rule.api_versions,
        "resources": rule.resources,
        "scope": rule.scope.as_str(),
    })
}

/// Shows a selector in the syntax of kubectl; "" matches everything.
fn describe_selector(selector: &Selector) -> Value {
    selector.to_string().into()
}
