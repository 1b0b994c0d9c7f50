//! One webhook of the cluster: its name, its entry without our condition, and whether Gatepost can serve it.

use std::{fmt, time::Duration};

use gatepost_api::{AdoptionCondition, HookType, exempt::exempt_resources, registration::SERVED};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{MANAGER, Reason};

/// Name of the match condition that keeps the apiserver from calling a webhook.
pub const CONDITION: &str = SERVED.0;
/// Usual expression of the condition. It differs if the apiserver must call the webhook for some requests: if the rules
/// match resources for which Gatepost calls no hooks, or if Gatepost's registration excludes namespaces.
pub const EXPRESSION: &str = SERVED.1;
/// Maximum number of match conditions that an apiserver accepts in one webhook.
pub const MAX_CONDITIONS: usize = 64;

/// Annotation of a configuration that was written only to change its resourceVersion.
pub const FENCE_ANNOTATION: &str = "gatepost.dev/fence";
/// Annotation of a configuration with the [ids](WebhookKey::id) of webhooks that a starting replica gave back. The
/// leader does not count these as dropped by their owner, and removes the annotation.
pub const GIVEN_BACK_ANNOTATION: &str = "gatepost.dev/given-back";

/// Name of one webhook, with the type and the name of its configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WebhookKey {
    /// Kind of its configuration.
    pub hook_type: HookType,
    /// Name of its configuration.
    pub configuration: String,
    /// Name of the webhook.
    pub webhook: String,
}

impl WebhookKey {
    /// Returns a short digest of the name, for lists that must be small.
    pub fn id(&self) -> String {
        short_digest(&self.to_string())
    }

    /// Returns the API path of the configuration.
    pub fn path(&self) -> String {
        configuration_path(self.hook_type, &self.configuration)
    }

    /// Returns the short name of a type, such as `validating`.
    pub const fn word(hook_type: HookType) -> &'static str {
        match hook_type {
            HookType::Validating => "validating",
            HookType::Mutating => "mutating",
        }
    }
}

impl fmt::Display for WebhookKey {
    /// `validating/CONFIGURATION/WEBHOOK`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", Self::word(self.hook_type), self.configuration, self.webhook)
    }
}

/// Returns the API path of the webhook configuration of that name.
pub fn configuration_path(hook_type: HookType, name: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{}/{name}", hook_type.resource())
}

/// Returns the first 8 bytes of the text's SHA-256, in hex.
pub(super) fn short_digest(text: &str) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// One webhook of a configuration, as it was read from the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterWebhook {
    /// Name of the webhook.
    pub key: WebhookKey,
    /// [Id](WebhookKey::id) of that name.
    pub id: String,
    /// uid of its configuration.
    pub uid: String,
    /// resourceVersion of its configuration.
    pub version: String,
    /// Labels of its configuration.
    pub labels: Vec<(String, String)>,
    /// It carries our condition, so the apiserver does not call it.
    pub carries: bool,
    /// Our condition as it was read; `None` if the webhook does not carry it.
    pub current_condition: Option<AdoptionCondition>,
    /// Our condition as it should be, whether the webhook carries it or not.
    pub condition: AdoptionCondition,
    /// It carries our condition with another expression, for example because its rules have changed.
    pub outdated: bool,
    /// It carries our condition, which only our field manager owns, according to `managedFields`.
    pub only_owned_by_us: bool,
    /// Its configuration has a [`FENCE_ANNOTATION`] or [`GIVEN_BACK_ANNOTATION`], which the leader removes.
    pub has_leader_annotation: bool,
    /// [`GIVEN_BACK_ANNOTATION`] names it: a starting replica has given it back.
    pub given_back: bool,
    /// It has a match condition of our name with an expression that is not ours.
    pub foreign: bool,
    /// Number of its match conditions, without ours.
    pub other_conditions: usize,
    /// Its entry without our condition.
    pub entry: Value,
}

/// Returns the webhooks of one configuration.
pub fn webhooks_of(hook_type: HookType, object: &Value) -> Vec<ClusterWebhook> {
    let metadata = &object["metadata"];
    let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
    let labels = metadata["labels"].as_object().into_iter().flatten();
    let labels: Vec<_> = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    let annotation = |key: &str| &metadata["annotations"][key];
    let has_leader_annotation = !annotation(FENCE_ANNOTATION).is_null() || !annotation(GIVEN_BACK_ANNOTATION).is_null();
    let given_back = annotation(GIVEN_BACK_ANNOTATION).as_str().unwrap_or_default();
    let entries = object["webhooks"].as_array().into_iter().flatten();
    let parse = |entry: &Value| {
        let webhook = entry["name"].as_str()?.to_owned();
        let (entry, current_condition) = without_our_condition(entry.clone());
        // The namespaces of the condition stay until those that our registration excludes are known.
        let condition = current_condition.clone().unwrap_or_default().of_exempt(matches_exempt_resources(&entry));
        let key = WebhookKey { hook_type, configuration: text("name"), webhook };
        let id = key.id();
        let conditions = entry["matchConditions"].as_array().map_or(&[][..], Vec::as_slice);
        Some(ClusterWebhook {
            uid: text("uid"),
            version: text("resourceVersion"),
            labels: labels.clone(),
            carries: current_condition.is_some(),
            outdated: current_condition.as_ref().is_some_and(|current| *current != condition),
            only_owned_by_us: current_condition.is_some() && is_only_owned_by_us(metadata, &key.webhook),
            has_leader_annotation,
            given_back: given_back.split_whitespace().any(|one| one == id),
            foreign: conditions.iter().any(|condition| condition["name"] == CONDITION),
            other_conditions: conditions.len(),
            key,
            id,
            current_condition,
            condition,
            entry,
        })
    };
    entries.filter_map(parse).collect()
}

impl ClusterWebhook {
    /// Makes our condition leave requests in exactly these namespaces to the apiserver, because our registration
    /// excludes them. Writes nothing to the cluster.
    pub fn leave(&mut self, namespaces: &[String]) {
        let names = namespaces.iter().map(String::as_str);
        self.condition = std::mem::take(&mut self.condition).in_namespaces(names);
        self.outdated = self.current_condition.as_ref().is_some_and(|current| *current != self.condition);
    }
}

/// Parses a match condition; returns `None` if it is not ours.
pub(super) fn our_condition(condition: &Value) -> Option<AdoptionCondition> {
    AdoptionCondition::of(condition["name"].as_str()?, condition["expression"].as_str()?)
}

/// Returns true if the rules of this entry match resources for which Gatepost calls no hooks. The apiserver must call
/// the webhook for these.
fn matches_exempt_resources(entry: &Value) -> bool {
    let has = |list: &Value, fits: &dyn Fn(&str) -> bool| {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).any(fits)
    };
    let matches = |rule: &Value| {
        exempt_resources().any(|(group, resource, _)| {
            // Subresources count too: an exception for them does no harm.
            let is = |written: &str| matches!(written.split('/').next(), Some(main) if main == "*" || main == resource);
            has(&rule["apiGroups"], &|written| written == "*" || written == group) && has(&rule["resources"], &is)
        })
    };
    entry["rules"].as_array().into_iter().flatten().any(matches)
}

/// Removes our condition from the entry, and returns the condition if the entry carried it. A condition of our name with
/// another expression belongs to the owner and stays: the apiserver calls the webhook if it is true.
pub fn without_our_condition(mut entry: Value) -> (Value, Option<AdoptionCondition>) {
    let Some(conditions) = entry.get_mut("matchConditions").and_then(Value::as_array_mut) else {
        return (entry, None);
    };
    let carried = conditions.iter().find_map(our_condition);
    conditions.retain(|condition| our_condition(condition).is_none());
    if carried.is_some()
        && conditions.is_empty()
        && let Some(entry) = entry.as_object_mut()
    {
        entry.remove("matchConditions");
    }
    (entry, carried)
}

/// Returns true if our field manager is the only owner of the condition of that webhook.
fn is_only_owned_by_us(metadata: &Value, webhook: &str) -> bool {
    let key = |name: &str| format!("k:{}", serde_json::json!({ "name": name }));
    let (at_webhook, at_condition) = (key(webhook), key(CONDITION));
    let owns = |entry: &&Value| {
        let conditions = &entry["fieldsV1"]["f:webhooks"][&at_webhook]["f:matchConditions"];
        conditions.get(&at_condition).is_some()
    };
    let mut owners = metadata["managedFields"].as_array().into_iter().flatten().filter(owns);
    owners.next().is_some_and(|entry| entry["manager"] == MANAGER && entry["operation"] == "Apply")
        && owners.next().is_none()
}

/// A webhook that was read, with the assessment of whether to adopt it.
#[derive(Clone, Debug, PartialEq)]
pub struct AssessedWebhook {
    /// The webhook as it was read.
    pub standing: ClusterWebhook,
    /// Reason why Gatepost cannot serve its newest entry; `None` if it can.
    pub unservable: Option<Reason>,
    /// Reason to leave it to the apiserver although Gatepost can serve it; `None` if there is none.
    pub reason_not_to_adopt: Option<Reason>,
    /// Our registration makes apiservers send only some of the requests that the webhook matches, or none. If the
    /// webhook carries the condition, it is not called for the other requests.
    pub unsent: bool,
    /// `Ok` if commands or `serve --adopt` select it, or the reason why not.
    pub wanted: Result<(), Reason>,
    /// Its conditions query the authorizer of the cluster.
    pub uses_authorizer: bool,
    /// Every registration of ours for webhooks of its type has our finalizer.
    pub guarded: bool,
    /// Maximum time from an apiserver's evaluation of its conditions to our review of the same request.
    pub in_flight: Duration,
}

impl AssessedWebhook {
    /// Returns the reason to leave it to the apiserver, or to give it back, if the webhook itself has one. Ignores
    /// which replicas call it.
    pub fn against(&self) -> Option<&Reason> {
        // A foreign condition comes first, because it might prevent every call of the webhook, selected or not.
        let foreign = self.unservable.as_ref().filter(|reason| **reason == Reason::ForeignCondition);
        let own = || self.unservable.as_ref().or(self.reason_not_to_adopt.as_ref());
        foreign.or_else(|| self.wanted.as_ref().err()).or_else(own)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use gatepost_api::registration::SERVED_BUT_EXEMPT;

    fn one(conditions: Value, managed: Value) -> ClusterWebhook {
        let object = json!({
            "metadata": {"name": "c", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}, "managedFields": managed},
            "webhooks": [{"name": "w.x.y", "matchConditions": conditions}],
        });
        webhooks_of(HookType::Validating, &object).remove(0)
    }

    #[test]
    fn webhook_carries_our_condition_by_name_and_expression() {
        let ours = json!({"name": CONDITION, "expression": EXPRESSION});
        let own = json!({"name": "a.b/c", "expression": "true"});
        let both = one(json!([own, ours]), json!([]));
        assert_eq!((both.carries, both.only_owned_by_us, both.other_conditions), (true, false, 1));
        assert_eq!(both.entry, json!({"name": "w.x.y", "matchConditions": [own]}));
        assert_eq!((both.key.to_string(), &*both.uid, &*both.version), ("validating/c/w.x.y".into(), "u", "7"));
        let alone = one(json!([ours]), json!([]));
        assert_eq!((alone.carries, alone.entry), (true, json!({"name": "w.x.y"})));
        let odd = one(json!([{"name": CONDITION, "expression": "true"}]), json!([]));
        assert_eq!((odd.carries, odd.foreign, odd.other_conditions), (false, true, 1), "somebody's own, of our name");
        assert!(!both.foreign && !alone.foreign);
        assert!(!one(Value::Null, json!([])).carries);
        assert!(webhooks_of(HookType::Mutating, &json!({"webhooks": [{}, 1]})).is_empty());
    }

    #[test]
    fn condition_excludes_exempt_resources_that_the_rules_match() {
        let standing = |expression: &str, group: &str, resource: &str| {
            let conditions = json!([{"name": CONDITION, "expression": expression}]);
            let rule = json!({"apiGroups": ["apps", group], "resources": [resource]});
            let object = json!({"metadata": {"name": "c"},
                "webhooks": [{"name": "w.x.y", "rules": [rule], "matchConditions": conditions}]});
            webhooks_of(HookType::Validating, &object).remove(0)
        };
        for (group, resource, exempt) in [
            ("*", "*", true),
            ("gatepost.dev", "*/*", true),
            ("*", "tokenreviews", true),
            ("authentication.k8s.io", "tokenreviews/x", true),
            ("", "*", false),
            ("*", "pods", false),
            ("gatepost.dev", "pods", false),
        ] {
            let (plain, but) = (standing(EXPRESSION, group, resource), standing(SERVED_BUT_EXEMPT, group, resource));
            assert!(plain.carries && but.carries && plain.entry == but.entry);
            assert_eq!((plain.outdated, but.outdated), (exempt, !exempt), "{group} {resource}");
            assert_eq!(plain.condition.to_string() == SERVED_BUT_EXEMPT, exempt, "{group} {resource}");
        }
    }

    #[test]
    fn condition_excludes_namespaces_that_our_registration_excludes() {
        let excluded = ["kube-system".to_owned(), "gatepost".to_owned()];
        let expression = |mut standing: ClusterWebhook| {
            standing.leave(&excluded);
            (standing.condition.to_string(), standing.outdated)
        };
        let with = |expression: &str| one(json!([{"name": CONDITION, "expression": expression}]), json!([]));
        let (written, outdated) = expression(with(EXPRESSION));
        assert!(outdated && written.ends_with(" in ['gatepost', 'kube-system']"), "{written}");
        let mut there = with(&written);
        assert!(there.carries && !there.outdated && there.other_conditions == 0, "until the registration is known");
        assert_eq!(expression(there.clone()), (written, false));
        there.leave(&excluded[..1]);
        assert!(there.outdated, "it follows the registration");
        there.leave(&[]);
        assert_eq!((there.condition.to_string(), there.outdated), (EXPRESSION.to_owned(), true));
    }

    #[test]
    fn condition_is_ours_if_only_our_field_manager_owns_it() {
        let ours = json!([{"name": CONDITION, "expression": EXPRESSION}]);
        let fields = json!({"f:webhooks": {"k:{\"name\":\"w.x.y\"}": {"f:matchConditions":
            {"k:{\"name\":\"gatepost.dev/served\"}": {"f:name": {}}}}}});
        let by = |manager: &str| json!({"manager": manager, "operation": "Apply", "fieldsV1": fields});
        assert!(one(ours.clone(), json!([by(MANAGER)])).only_owned_by_us);
        assert!(!one(ours.clone(), json!([by("kubectl")])).only_owned_by_us);
        assert!(
            !one(ours, json!([by(MANAGER), by("owner")])).only_owned_by_us,
            "it would stay if only we let go of it"
        );
    }
}
