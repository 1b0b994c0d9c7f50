//! Patch: documents that add our condition to webhooks, and remove it.

use serde_json::{Value, json};

use super::{CONDITION, FENCE, WebhookKey, standing::our_expression};
use crate::model::HookType;

/// The field manager of our conditions: it owns them, and nothing else.
pub const MANAGER: &str = "gatepost-adopt";

/// A webhook, and the expression of our condition there.
pub type Carrier<'a> = (&'a str, &'a str);

/// Server-side apply document for one configuration: exactly these of its webhooks carry our condition. Because of the
/// uid, and of the version where it is given, the write fails where the object was recreated or has changed.
pub fn applied(hook_type: HookType, name: &str, uid: &str, version: Option<&str>, webhooks: &[Carrier<'_>]) -> Value {
    let condition = |expression: &str| json!({"name": CONDITION, "expression": expression});
    let entry = |(name, expression): &Carrier<'_>| json!({"name": name, "matchConditions": [condition(expression)]});
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

/// As [`applied`], with an annotation that changes the resourceVersion in any case: a write that is still in flight
/// then fails.
pub fn fenced(hook_type: HookType, name: &str, (uid, version): (&str, &str), webhooks: &[Carrier<'_>]) -> Value {
    let mut document = applied(hook_type, name, uid, Some(version), webhooks);
    document["metadata"]["annotations"] = json!({ FENCE: version });
    document
}

/// Finalizer of our registration while something is taken over: Gatepost has to receive the requests for webhooks that
/// the apiserver does not call.
pub const GUARD: &str = "gatepost.dev/adopt";

/// Server-side apply document for our own registration: with our finalizer (`on`), so that it is not removed before
/// everything is given back, or without it.
pub fn guard(hook_type: HookType, name: &str, (uid, version): (&str, &str), on: bool) -> Value {
    let mut document = applied(hook_type, name, uid, Some(version), &[]);
    if on {
        document["metadata"]["finalizers"] = json!([GUARD]);
    }
    document
}

/// A JSON patch that takes our condition off these webhooks of the object, whoever has put it there; `None` where none
/// carries it.
pub fn forced_removal(object: &Value, webhooks: &[&str]) -> Option<Value> {
    let mut operations = Vec::new();
    for (place, entry) in object["webhooks"].as_array().into_iter().flatten().enumerate() {
        let Some(name) = entry["name"].as_str().filter(|name| webhooks.contains(name)) else { continue };
        let conditions = entry["matchConditions"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(at) = conditions.iter().position(|one| our_expression(one).is_some()) else { continue };
        let at_webhook = format!("/webhooks/{place}");
        operations.push(json!({"op": "test", "path": format!("{at_webhook}/name"), "value": name}));
        let path = format!("{at_webhook}/matchConditions/{at}");
        operations.push(json!({"op": "test", "path": format!("{path}/name"), "value": CONDITION}));
        operations.push(json!({"op": "remove", "path": path}));
    }
    (!operations.is_empty()).then(|| operations.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adopt::EXPRESSION;

    #[test]
    fn one_configuration_is_applied_as_a_whole_and_says_nothing_else() {
        let condition = json!([{"name": "gatepost.dev/served", "expression": "false"}]);
        assert_eq!(
            applied(HookType::Mutating, "c", "u", Some("7"), &[("a", EXPRESSION)]),
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "c", "uid": "u", "resourceVersion": "7"},
                "webhooks": [{"name": "a", "matchConditions": condition}]})
        );
        let none = applied(HookType::Validating, "c", "u", None, &[]);
        assert_eq!(none["metadata"], json!({"name": "c", "uid": "u"}));
        assert!(none.get("webhooks").is_none());
        let fenced = fenced(HookType::Mutating, "c", ("u", "7"), &[("a", EXPRESSION)]);
        let bare = applied(HookType::Mutating, "c", "u", Some("7"), &[("a", EXPRESSION)]);
        assert_eq!((&fenced["webhooks"], &fenced["metadata"]["annotations"][FENCE]), (&bare["webhooks"], &"7".into()));
        let held = guard(HookType::Validating, "gatepost", ("u", "7"), true);
        assert_eq!(held["metadata"]["finalizers"], json!([GUARD]));
        assert_eq!(
            guard(HookType::Validating, "gatepost", ("u", "7"), false)["metadata"],
            json!({"name": "gatepost", "uid": "u", "resourceVersion": "7"})
        );
    }

    #[test]
    fn a_condition_of_others_is_removed_where_it_stands_and_nowhere_else() {
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
}
