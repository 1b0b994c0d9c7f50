//! Webhooks: read from their configurations, without our condition.

use gatepost_api::{AdoptionCondition, HookType, exempt::exempt_resources, registration::SERVED};
use serde_json::Value;

use crate::{ClusterEntry, EntryKey, EntryKind, MANAGER, entry::ObjectMetadata};

/// Name of the match condition that keeps the apiserver from calling a webhook.
pub const CONDITION: &str = SERVED.0;
/// Usual expression of the condition. It differs if the apiserver must call the webhook for some requests: if the rules
/// match resources for which Gatepost calls no hooks, or if Gatepost's registration excludes namespaces.
pub const EXPRESSION: &str = SERVED.1;
/// Maximum number of match conditions that an apiserver accepts in one webhook.
pub const MAX_CONDITIONS: usize = 64;

/// Returns the webhooks of one configuration.
pub fn webhooks_of(hook_type: HookType, object: &Value) -> Vec<ClusterEntry> {
    let metadata = ObjectMetadata(&object["metadata"]);
    let entries = object["webhooks"].as_array().into_iter().flatten();
    let parse = |entry: &Value| {
        let name = entry["name"].as_str()?.to_owned();
        let (content, current_condition) = without_our_condition(entry.clone());
        // The namespaces of the condition stay until those that our registration excludes are known.
        let condition =
            current_condition.clone().unwrap_or_default().of_exempt(exempt_match(&content["rules"]).is_some());
        let key = EntryKey { kind: EntryKind::Webhook(hook_type), configuration: metadata.text("name"), name };
        let id = key.id();
        let conditions = content["matchConditions"].as_array().map_or(&[][..], Vec::as_slice);
        Some(ClusterEntry {
            uid: metadata.text("uid"),
            version: metadata.text("resourceVersion"),
            labels: metadata.labels(),
            carries: current_condition.is_some(),
            orphaned: false,
            has_readable_params: false,
            outdated: current_condition.as_ref().is_some_and(|current| *current != condition),
            only_owned_by_us: current_condition.is_some() && is_only_owned_by_us(metadata.0, &key.name),
            has_leader_annotation: metadata.has_leader_annotation(),
            given_back: metadata.given_back().any(|one| one == id),
            foreign: conditions.iter().any(|condition| condition["name"] == CONDITION),
            other_conditions: conditions.len(),
            key,
            id,
            current_condition,
            condition,
            content,
        })
    };
    entries.filter_map(parse).collect()
}

impl ClusterEntry {
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

/// Returns a resource for which Gatepost uses no webhooks, as group and resource, if these rules match it. The apiserver
/// must call the webhook for it.
pub fn exempt_match(rules: &Value) -> Option<(&'static str, &'static str)> {
    first_match(exempt_resources().map(|(group, resource, _)| (group, resource)), rules, &Value::Null)
}

/// Like [`exempt_match`], for the rules of a policy. `excluded` are its rules that exclude requests. Unlike webhooks,
/// policies also apply to webhook configurations, which an apiserver never sends to Gatepost.
pub fn exempt_policy_match(rules: &Value, excluded: &Value) -> Option<(&'static str, &'static str)> {
    const GROUP: &str = "admissionregistration.k8s.io";
    let resources = exempt_resources().map(|(group, resource, _)| (group, resource));
    let configurations = [HookType::Validating, HookType::Mutating].map(|hook_type| (GROUP, hook_type.resource()));
    first_match(resources.chain(configurations), rules, excluded)
}

/// Returns the first of the resources that the rules match.
fn first_match(
    resources: impl Iterator<Item = (&'static str, &'static str)>,
    rules: &Value,
    excluded: &Value,
) -> Option<(&'static str, &'static str)> {
    let has = |list: &Value, fits: &dyn Fn(&str) -> bool| {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).any(fits)
    };
    let has_wildcard = |list: &Value| has(list, &|written| written == "*");
    let any = |rules: &Value, fits: &dyn Fn(&Value) -> bool| rules.as_array().into_iter().flatten().any(fits);
    let mut matched = resources.filter(|(group, resource)| {
        let in_group = |rule: &Value| has(&rule["apiGroups"], &|written| written == "*" || written == *group);
        // Subresources count too: an exception for them does no harm.
        let matches_resource =
            |written: &str| matches!(written.split('/').next(), Some(main) if main == "*" || main == *resource);
        let excludes = |rule: &Value| {
            let whole = |written: &str| matches!(written, "*" | "*/*") || written == *resource;
            let everywhere = ["apiVersions", "operations"].iter().all(|key| has_wildcard(&rule[*key]));
            let narrowed = rule["resourceNames"].as_array().is_some_and(|names| !names.is_empty());
            let scoped = rule["scope"].as_str().is_some_and(|scope| scope != "*");
            in_group(rule) && has(&rule["resources"], &whole) && everywhere && !narrowed && !scoped
        };
        any(rules, &|rule| in_group(rule) && has(&rule["resources"], &matches_resource)) && !any(excluded, &excludes)
    });
    matched.next()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use gatepost_api::registration::SERVED_BUT_EXEMPT;

    fn one(conditions: Value, managed: Value) -> ClusterEntry {
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
        assert_eq!(both.content, json!({"name": "w.x.y", "matchConditions": [own]}));
        assert_eq!((both.key.to_string(), &*both.uid, &*both.version), ("validating/c/w.x.y".into(), "u", "7"));
        let alone = one(json!([ours]), json!([]));
        assert_eq!((alone.carries, alone.content), (true, json!({"name": "w.x.y"})));
        let odd = one(json!([{"name": CONDITION, "expression": "true"}]), json!([]));
        assert_eq!((odd.carries, odd.foreign, odd.other_conditions), (false, true, 1), "somebody's own, of our name");
        assert!(!both.foreign && !alone.foreign);
        assert!(!one(Value::Null, json!([])).carries);
        assert!(webhooks_of(HookType::Mutating, &json!({"webhooks": [{}, 1]})).is_empty());
    }

    #[test]
    fn policy_that_sees_webhook_configurations_is_exempt() {
        let rules = |resources: &str| json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [resources]}]);
        let found = exempt_policy_match(&rules("validatingwebhookconfigurations"), &Value::Null);
        assert_eq!(found, Some(("admissionregistration.k8s.io", "validatingwebhookconfigurations")));
        assert_eq!(exempt_match(&rules("validatingwebhookconfigurations")), None, "no webhook sees it in any place");
        assert_eq!(exempt_policy_match(&rules("validatingadmissionpolicies"), &Value::Null), None, "nor does a policy");
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
            assert!(plain.carries && but.carries && plain.content == but.content);
            assert_eq!((plain.outdated, but.outdated), (exempt, !exempt), "{group} {resource}");
            assert_eq!(plain.condition.to_string() == SERVED_BUT_EXEMPT, exempt, "{group} {resource}");
        }
    }

    #[test]
    fn condition_excludes_namespaces_that_our_registration_excludes() {
        let excluded = ["kube-system".to_owned(), "gatepost".to_owned()];
        let expression = |mut standing: ClusterEntry| {
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
