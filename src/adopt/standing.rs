//! Standing: one webhook as it stands in its cluster, with our condition taken off.

use serde_json::Value;

use super::{MANAGER, WebhookKey};
use crate::model::{HookType, registration::SERVED};

/// Name of the match condition that keeps the apiserver from calling a webhook.
pub const CONDITION: &str = SERVED.0;
/// Its expression.
pub const EXPRESSION: &str = SERVED.1;
/// The most match conditions that an apiserver lets a webhook have.
pub const MOST_CONDITIONS: usize = 64;

/// Annotation of a configuration that was written only in order to change its resourceVersion.
pub const FENCE: &str = "gatepost.dev/fence";

/// One webhook as it stands in its cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
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
    /// Our field manager owns that condition, and nobody else does, as far as the apiserver says who owns what.
    pub by_us: bool,
    /// Its configuration has our [`FENCE`].
    pub fenced: bool,
    /// Match conditions of its own.
    pub conditions: usize,
    /// The entry without our condition.
    pub entry: Value,
}

/// Every webhook of one configuration; empty for what is no webhook configuration.
pub fn standings(hook_type: HookType, object: &Value) -> Vec<Standing> {
    let metadata = &object["metadata"];
    let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
    let labels = metadata["labels"].as_object().into_iter().flatten();
    let labels: Vec<_> = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    let (configuration, uid, version) = (text("name"), text("uid"), text("resourceVersion"));
    let fenced = !metadata["annotations"][FENCE].is_null();
    let entries = object["webhooks"].as_array().into_iter().flatten();
    let standing = |entry: &Value| {
        let webhook = entry["name"].as_str()?.to_owned();
        let (entry, carries) = stripped(entry.clone());
        let by_us = carries && is_ours(metadata, &webhook);
        let key = WebhookKey { hook_type, configuration: configuration.clone(), webhook };
        Some(Standing {
            id: key.id(),
            by_us,
            fenced,
            key,
            uid: uid.clone(),
            version: version.clone(),
            labels: labels.clone(),
            carries,
            conditions: entry["matchConditions"].as_array().map_or(0, Vec::len),
            entry,
        })
    };
    entries.filter_map(standing).collect()
}

/// The entry without our condition, and whether it had it. A condition of our name with another expression than `false`
/// belongs to the owner, and stays: the apiserver calls the webhook for requests that it lets through.
pub fn stripped(mut entry: Value) -> (Value, bool) {
    let Some(conditions) = entry.get_mut("matchConditions").and_then(Value::as_array_mut) else {
        return (entry, false);
    };
    let before = conditions.len();
    conditions.retain(|condition| {
        condition["name"] != CONDITION || condition["expression"].as_str().map(str::trim) != Some(EXPRESSION)
    });
    let carries = conditions.len() < before;
    if carries
        && conditions.is_empty()
        && let Some(entry) = entry.as_object_mut()
    {
        entry.remove("matchConditions");
    }
    (entry, carries)
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

    fn one(conditions: Value, managed: Value) -> Standing {
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
        assert_eq!((odd.carries, odd.conditions), (false, 1), "somebody's own, of our name");
        assert!(!one(Value::Null, json!([])).carries);
        assert!(standings(HookType::Mutating, &json!({"webhooks": [{}, 1]})).is_empty());
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
