//! Documents to write, which add our condition to webhooks or remove it.

use std::collections::BTreeSet;

use gatepost_api::HookType;
use serde_json::{Value, json};

use crate::{
    CONDITION, FENCE_ANNOTATION, GIVEN_BACK_ANNOTATION, UnservedWebhook, WebhookKey, webhook::our_condition,
    webhooks_of,
};

/// Field manager of our conditions, annotations and finalizers.
pub const MANAGER: &str = "gatepost-adopt";
/// Finalizer of our registrations while webhooks are taken over: Gatepost must receive the requests for them, as the
/// apiserver does not call them.
pub const FINALIZER: &str = "gatepost.dev/adopt";

/// Name of a webhook, and the expression of our condition in it.
pub type WebhookExpression<'a> = (&'a str, &'a str);

/// Returns the server-side apply document for one configuration, in which exactly `webhooks` carry our condition. The
/// uid and any `version` make the write fail if the object was recreated or has changed.
pub fn conditions_document(
    hook_type: HookType,
    name: &str,
    uid: &str,
    version: Option<&str>,
    webhooks: &[WebhookExpression<'_>],
) -> Value {
    let condition = |expression: &str| json!({"name": CONDITION, "expression": expression});
    let entry =
        |(name, expression): &WebhookExpression<'_>| json!({"name": name, "matchConditions": [condition(expression)]});
    let entries: Vec<_> = webhooks.iter().map(entry).collect();
    let mut document = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": WebhookKey::kind(hook_type),
        "metadata": {"name": name, "uid": uid},
    });
    if let Some(version) = version {
        document["metadata"]["resourceVersion"] = version.into();
    }
    if !entries.is_empty() {
        document["webhooks"] = entries.into();
    }
    document
}

/// Returns a [`conditions_document`] with an annotation that always changes the resourceVersion, so that a write in
/// flight fails.
pub fn fence_document(
    hook_type: HookType,
    name: &str,
    (uid, version): (&str, &str),
    webhooks: &[WebhookExpression<'_>],
) -> Value {
    let mut document = conditions_document(hook_type, name, uid, Some(version), webhooks);
    document["metadata"]["annotations"] = json!({ FENCE_ANNOTATION: version });
    document
}

/// Returns a [`conditions_document`] that removes our condition from a webhook that a starting replica cannot call,
/// with an annotation that records this. `None` if the webhook does not carry the condition. The flag is true if others
/// may own the condition: it then stays until it is [removed by force](forced_removal).
pub fn give_back_document(object: &Value, unserved: &UnservedWebhook) -> Option<(Value, bool)> {
    let WebhookKey { hook_type, configuration, webhook } = &unserved.key;
    let webhooks = webhooks_of(*hook_type, object);
    let it = webhooks.iter().find(|one| one.carries && one.key.webhook == *webhook)?;
    let others = webhooks.iter().filter(|one| one.carries && one.key.webhook != *webhook);
    let others: Vec<_> = others.map(|it| (it.key.webhook.as_str(), it.condition.to_string())).collect();
    let carry: Vec<_> = others.iter().map(|(webhook, expression)| (*webhook, expression.as_str())).collect();
    let mut document = conditions_document(*hook_type, configuration, &it.uid, Some(&it.version), &carry);
    // One write gives back one webhook; the ids of earlier ones stay.
    let before = object["metadata"]["annotations"][GIVEN_BACK_ANNOTATION].as_str().unwrap_or_default();
    let ids: BTreeSet<_> = before.split_whitespace().chain([&*it.id]).collect();
    let ids: Vec<_> = ids.into_iter().collect();
    document["metadata"]["annotations"] = json!({ GIVEN_BACK_ANNOTATION: ids.join(" ") });
    Some((document, !it.only_owned_by_us))
}

/// Returns the server-side apply document for our registration, with our finalizer (`on`) or without it.
pub fn finalizer_document(hook_type: HookType, name: &str, (uid, version): (&str, &str), on: bool) -> Value {
    let mut document = conditions_document(hook_type, name, uid, Some(version), &[]);
    if on {
        document["metadata"]["finalizers"] = json!([FINALIZER]);
    }
    document
}

/// Returns a JSON patch that removes our condition from these webhooks, whoever owns it; `None` if none carries it.
pub fn forced_removal(object: &Value, webhooks: &[&str]) -> Option<Value> {
    let mut operations = Vec::new();
    for (index, entry) in object["webhooks"].as_array().into_iter().flatten().enumerate() {
        let Some(name) = entry["name"].as_str().filter(|name| webhooks.contains(name)) else { continue };
        let conditions = entry["matchConditions"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(at) = conditions.iter().position(|one| our_condition(one).is_some()) else { continue };
        let webhook = format!("/webhooks/{index}");
        operations.push(json!({"op": "test", "path": format!("{webhook}/name"), "value": name}));
        let path = format!("{webhook}/matchConditions/{at}");
        operations.push(json!({"op": "test", "path": format!("{path}/name"), "value": CONDITION}));
        operations.push(json!({"op": "remove", "path": path}));
    }
    (!operations.is_empty()).then(|| operations.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EXPRESSION, Reason};

    #[test]
    fn conditions_document_contains_only_our_conditions() {
        let condition = json!([{"name": "gatepost.dev/served", "expression": "false"}]);
        assert_eq!(
            conditions_document(HookType::Mutating, "c", "u", Some("7"), &[("a", EXPRESSION)]),
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "c", "uid": "u", "resourceVersion": "7"},
                "webhooks": [{"name": "a", "matchConditions": condition}]})
        );
        let none = conditions_document(HookType::Validating, "c", "u", None, &[]);
        assert_eq!(none["metadata"], json!({"name": "c", "uid": "u"}));
        assert!(none.get("webhooks").is_none());
        let fenced = fence_document(HookType::Mutating, "c", ("u", "7"), &[("a", EXPRESSION)]);
        let bare = conditions_document(HookType::Mutating, "c", "u", Some("7"), &[("a", EXPRESSION)]);
        assert_eq!(
            (&fenced["webhooks"], &fenced["metadata"]["annotations"][FENCE_ANNOTATION]),
            (&bare["webhooks"], &"7".into())
        );
        let held = finalizer_document(HookType::Validating, "gatepost", ("u", "7"), true);
        assert_eq!(held["metadata"]["finalizers"], json!([FINALIZER]));
        assert_eq!(
            finalizer_document(HookType::Validating, "gatepost", ("u", "7"), false)["metadata"],
            json!({"name": "gatepost", "uid": "u", "resourceVersion": "7"})
        );
    }

    #[test]
    fn forced_removal_tests_and_removes_only_our_condition() {
        let ours = json!({"name": "gatepost.dev/served", "expression": "false"});
        let object = json!({"webhooks": [
            {"name": "a", "matchConditions": [{"name": "own", "expression": "true"}, ours]},
            {"name": "b", "matchConditions": [ours]}, {"name": "c"},
        ]});
        let patch = forced_removal(&object, &["a", "c"]).unwrap();
        assert_eq!(patch.as_array().unwrap().len(), 3);
        assert_eq!(patch[2], json!({"op": "remove", "path": "/webhooks/0/matchConditions/1"}));
        assert_eq!(forced_removal(&object, &["c"]), None);
    }

    #[test]
    fn give_back_document_annotates_the_webhook_and_keeps_other_conditions() {
        let ours = json!({"name": "gatepost.dev/served", "expression": "false"});
        let key = |webhook: &str| {
            let (configuration, webhook) = ("c".to_owned(), webhook.to_owned());
            WebhookKey { hook_type: HookType::Validating, configuration, webhook }
        };
        let unserved = |webhook: &str| {
            let (uid, reason) = ("u".to_owned(), Reason::TooMany);
            UnservedWebhook { key: key(webhook), uid, reason, carries: true }
        };
        let metadata =
            json!({"name": "c", "uid": "u", "resourceVersion": "7", "annotations": {GIVEN_BACK_ANNOTATION: "f"}});
        let object = json!({"metadata": metadata, "webhooks": [
            {"name": "a", "matchConditions": [ours]}, {"name": "b", "matchConditions": [ours]}, {"name": "c"}]});
        let (document, by_others) = give_back_document(&object, &unserved("a")).unwrap();
        assert!(by_others, "nobody is known to own it");
        let mut ids = [key("a").id(), "f".to_owned()];
        ids.sort();
        let metadata = json!({"name": "c", "uid": "u", "resourceVersion": "7", "annotations": {GIVEN_BACK_ANNOTATION: ids.join(" ")}});
        assert_eq!(
            (&document["metadata"], &document["webhooks"]),
            (&metadata, &json!([{"name": "b", "matchConditions": [ours]}]))
        );
        assert_eq!(give_back_document(&object, &unserved("c")), None);
        // Another expression of ours stays as it is.
        let but = gatepost_api::AdoptionCondition::default().in_namespaces(["kube-system"]).to_string();
        let but = json!([{"name": "gatepost.dev/served", "expression": but}]);
        let mut partly = object.clone();
        partly["webhooks"][1]["matchConditions"] = but.clone();
        let (document, _) = give_back_document(&partly, &unserved("a")).unwrap();
        assert_eq!(document["webhooks"], json!([{"name": "b", "matchConditions": but}]));
        assert!(forced_removal(&partly, &["b"]).is_some());

        let read = json!({"metadata": document["metadata"], "webhooks": object["webhooks"]});
        let told = webhooks_of(HookType::Validating, &read);
        assert_eq!(
            told.iter().map(|it| (it.has_leader_annotation, it.given_back)).collect::<Vec<_>>(),
            [(true, true), (true, false), (true, false)]
        );
    }
}
