//! Standing: one webhook as it stands in its cluster, with our condition taken off.

use serde_json::Value;

use super::{MANAGER, WebhookKey};
use crate::{
    model::{HookType, ServedCondition, registration::SERVED},
    snapshot::exempt_resources,
};

/// Name of the match condition that keeps the apiserver from calling a webhook.
pub const CONDITION: &str = SERVED.0;
/// Its expression, but for a webhook about which the apiserver is to go on calling it for some requests: where its rules
/// match resources about which Gatepost asks no hook, or where Gatepost's registration leaves namespaces out.
pub const EXPRESSION: &str = SERVED.1;
/// The most match conditions that an apiserver lets a webhook have.
pub const MOST_CONDITIONS: usize = 64;

/// Annotation of a configuration that was written only in order to change its resourceVersion.
pub const FENCE: &str = "gatepost.dev/fence";
/// Annotation of a configuration some of whose webhooks were given back by a replica that started: their
/// [ids](WebhookKey::id). The replica that writes takes no such webhook for one that its owner has dropped the condition
/// from, and removes the annotation.
pub const GIVEN_BACK: &str = "gatepost.dev/given-back";

/// One webhook as it stands in its cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookStanding {
    /// Its name.
    pub key: WebhookKey,
    /// The [id](WebhookKey::id) of that.
    pub id: String,
    /// The uid of its configuration.
    pub uid: String,
    /// The resourceVersion of its configuration.
    pub version: String,
    /// The configuration's labels.
    pub labels: Vec<(String, String)>,
    /// It carries our condition: the apiserver does not call it.
    pub carries: bool,
    /// Our condition as it stands there.
    pub carried: Option<ServedCondition>,
    /// Our condition as it is to be there.
    pub condition: ServedCondition,
    /// True where our condition has another expression there, as of rules that have changed.
    pub outdated: bool,
    /// Our field manager owns that condition, and nobody else does, as far as the apiserver says who owns what.
    pub by_us: bool,
    /// Its configuration has our [`FENCE`], or [`GIVEN_BACK`], which is to be removed.
    pub marked: bool,
    /// A replica that started has given it back, as [`GIVEN_BACK`] says.
    pub given_back: bool,
    /// A condition of our name is somebody else's: it has another expression than ours.
    pub foreign: bool,
    /// Match conditions of its own.
    pub conditions: usize,
    /// The entry without our condition.
    pub entry: Value,
}

/// Every webhook of one configuration; empty for what is no webhook configuration.
pub fn standings(hook_type: HookType, object: &Value) -> Vec<WebhookStanding> {
    let metadata = &object["metadata"];
    let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
    let labels = metadata["labels"].as_object().into_iter().flatten();
    let labels: Vec<_> = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    let (configuration, uid, version) = (text("name"), text("uid"), text("resourceVersion"));
    let annotation = |key: &str| &metadata["annotations"][key];
    let marked = !annotation(FENCE).is_null() || !annotation(GIVEN_BACK).is_null();
    let given_back = annotation(GIVEN_BACK).as_str().unwrap_or_default();
    let entries = object["webhooks"].as_array().into_iter().flatten();
    let standing = |entry: &Value| {
        let webhook = entry["name"].as_str()?.to_owned();
        let (entry, carried) = taken_off(entry.clone());
        let carries = carried.is_some();
        // Until our registration is known to leave out others, its namespaces stay.
        let condition = carried.clone().unwrap_or_default().of_exempt(is_exempt(&entry));
        let by_us = carries && is_ours(metadata, &webhook);
        let key = WebhookKey { hook_type, configuration: configuration.clone(), webhook };
        let id = key.id();
        Some(WebhookStanding {
            given_back: given_back.split_whitespace().any(|one| one == id),
            id,
            by_us,
            marked,
            key,
            uid: uid.clone(),
            version: version.clone(),
            labels: labels.clone(),
            carries,
            outdated: carried.as_ref().is_some_and(|carried| *carried != condition),
            carried,
            condition,
            foreign: has_our_name(&entry),
            conditions: entry["matchConditions"].as_array().map_or(0, Vec::len),
            entry,
        })
    };
    entries.filter_map(standing).collect()
}

impl WebhookStanding {
    /// Leaves requests in these namespaces to the apiserver, and in no others: our registration does not send them.
    pub fn leave(&mut self, namespaces: &[String]) {
        let names = namespaces.iter().map(String::as_str);
        self.condition = std::mem::take(&mut self.condition).in_namespaces(names);
        self.outdated = self.carried.as_ref().is_some_and(|carried| *carried != self.condition);
    }
}

/// The entry without our condition, and whether it had it. A condition of our name with another expression than ours
/// belongs to the owner, and stays: the apiserver calls the webhook for requests that it lets through.
pub fn stripped(entry: Value) -> (Value, bool) {
    let (entry, carried) = taken_off(entry);
    (entry, carried.is_some())
}

/// Has the entry a condition of our name? Ours has been taken off.
fn has_our_name(entry: &Value) -> bool {
    entry["matchConditions"].as_array().into_iter().flatten().any(|condition| condition["name"] == CONDITION)
}

/// This match condition, where it is ours.
pub(super) fn our_condition(condition: &Value) -> Option<ServedCondition> {
    ServedCondition::of(condition["name"].as_str()?, condition["expression"].as_str()?)
}

/// Do the rules of this entry match resources about which Gatepost asks no hook? The apiserver goes on calling the
/// webhook about these.
fn is_exempt(entry: &Value) -> bool {
    let has = |list: &Value, fits: &dyn Fn(&str) -> bool| {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).any(fits)
    };
    let matches = |rule: &Value| {
        exempt_resources().any(|(group, resource, _)| {
            // Subresources, too: it does no harm.
            let is = |written: &str| matches!(written.split('/').next(), Some(main) if main == "*" || main == resource);
            has(&rule["apiGroups"], &|written| written == "*" || written == group) && has(&rule["resources"], &is)
        })
    };
    entry["rules"].as_array().into_iter().flatten().any(matches)
}

fn taken_off(mut entry: Value) -> (Value, Option<ServedCondition>) {
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

/// Is our field manager the only one that owns the condition of that webhook?
fn is_ours(metadata: &Value, webhook: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::registration::SERVED_BUT_EXEMPT;

    fn one(conditions: Value, managed: Value) -> WebhookStanding {
        let object = json!({
            "metadata": {"name": "c", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}, "managedFields": managed},
            "webhooks": [{"name": "w.x.y", "matchConditions": conditions}],
        });
        standings(HookType::Validating, &object).remove(0)
    }

    #[test]
    fn a_webhook_carries_our_condition_by_name_and_expression() {
        let ours = json!({"name": CONDITION, "expression": EXPRESSION});
        let own = json!({"name": "a.b/c", "expression": "true"});
        let both = one(json!([own, ours]), json!([]));
        assert_eq!((both.carries, both.by_us, both.conditions), (true, false, 1));
        assert_eq!(both.entry, json!({"name": "w.x.y", "matchConditions": [own]}));
        assert_eq!((both.key.to_string(), &*both.uid, &*both.version), ("validating/c/w.x.y".into(), "u", "7"));
        let alone = one(json!([ours]), json!([]));
        assert_eq!((alone.carries, alone.entry), (true, json!({"name": "w.x.y"})));
        let odd = one(json!([{"name": CONDITION, "expression": "true"}]), json!([]));
        assert_eq!((odd.carries, odd.foreign, odd.conditions), (false, true, 1), "somebody's own, of our name");
        assert!(!both.foreign && !alone.foreign);
        assert!(!one(Value::Null, json!([])).carries);
        assert!(standings(HookType::Mutating, &json!({"webhooks": [{}, 1]})).is_empty());
    }

    #[test]
    fn what_gatepost_asks_nobody_about_stays_with_the_apiserver() {
        let standing = |expression: &str, group: &str, resource: &str| {
            let conditions = json!([{"name": CONDITION, "expression": expression}]);
            let rule = json!({"apiGroups": ["apps", group], "resources": [resource]});
            let object = json!({"metadata": {"name": "c"},
                "webhooks": [{"name": "w.x.y", "rules": [rule], "matchConditions": conditions}]});
            standings(HookType::Validating, &object).remove(0)
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
    fn namespaces_that_our_registration_leaves_out_stay_with_the_apiserver() {
        let excluded = ["kube-system".to_owned(), "gatepost".to_owned()];
        let expression = |mut standing: WebhookStanding| {
            standing.leave(&excluded);
            (standing.condition.to_string(), standing.outdated)
        };
        let with = |expression: &str| one(json!([{"name": CONDITION, "expression": expression}]), json!([]));
        let (written, outdated) = expression(with(EXPRESSION));
        assert!(outdated && written.ends_with(" in ['gatepost', 'kube-system']"), "{written}");
        let mut there = with(&written);
        assert!(there.carries && !there.outdated && there.conditions == 0, "until the registration is known");
        assert_eq!(expression(there.clone()), (written, false));
        there.leave(&excluded[..1]);
        assert!(there.outdated, "it follows the registration");
        there.leave(&[]);
        assert_eq!((there.condition.to_string(), there.outdated), (EXPRESSION.to_owned(), true));
    }

    #[test]
    fn the_apiserver_says_whose_it_is() {
        let ours = json!([{"name": CONDITION, "expression": EXPRESSION}]);
        let fields = json!({"f:webhooks": {"k:{\"name\":\"w.x.y\"}": {"f:matchConditions":
            {"k:{\"name\":\"gatepost.dev/served\"}": {"f:name": {}}}}}});
        let by = |manager: &str| json!({"manager": manager, "operation": "Apply", "fieldsV1": fields});
        assert!(one(ours.clone(), json!([by(MANAGER)])).by_us);
        assert!(!one(ours.clone(), json!([by("kubectl")])).by_us);
        assert!(!one(ours, json!([by(MANAGER), by("owner")])).by_us, "it would stay if only we let go of it");
    }
}
