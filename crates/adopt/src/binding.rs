//! Bindings of policies. A binding is parked by another name in `spec.policyName`, that of no policy: kube-apiserver then
//! neither evaluates nor compiles the policy for it, and the name still says which policy it is.
//!
//! A parked binding has no `spec.paramRef`: kube-apiserver lets only those write one who may read the params, and beside
//! a policy that does not exist, who may read everything. An annotation has it meanwhile.

use std::collections::HashMap;

use gatepost_api::{AdoptionCondition, HookType};
use serde_json::{Value, json};

use crate::{
    ClusterEntry, EntryKey, EntryKind, FENCE_ANNOTATION, GIVEN_BACK_ANNOTATION, MANAGER, entry::ObjectMetadata,
};

/// Suffix of the policy's name in a parked binding.
pub const PARKED_SUFFIX: &str = ".parked.gatepost.dev";
/// Annotation of a parked binding with its `paramRef` as JSON, null if it has none.
const PARAM_REF_ANNOTATION: &str = "gatepost.dev/parked-param-ref";
/// Maximum length of the name of an object.
const MAX_NAME_BYTES: usize = 253;

/// Returns true if the name of the policy has room for the suffix.
pub const fn can_be_parked(policy: &str) -> bool {
    policy.len() + PARKED_SUFFIX.len() <= MAX_NAME_BYTES
}

/// Returns the bindings of these lists, each with its policy. The policy is null if it is not among `policies`.
pub fn bindings_of(hook_type: HookType, policies: &[Value], bindings: &[Value]) -> Vec<ClusterEntry> {
    let by_name = policies.iter().filter_map(|policy| Some((policy["metadata"]["name"].as_str()?, policy)));
    let by_name: HashMap<_, _> = by_name.collect();
    let parse = |object: &Value| {
        let metadata = ObjectMetadata(&object["metadata"]);
        let named = object["spec"]["policyName"].as_str()?;
        let parked = parked_policy(named);
        let policy = parked.unwrap_or(named);
        let name = metadata.0["name"].as_str().filter(|name| !name.is_empty())?.to_owned();
        let key = EntryKey { kind: EntryKind::Binding(hook_type), configuration: policy.to_owned(), name };
        let id = key.id();
        let of_policy = by_name.get(policy).copied().unwrap_or(&Value::Null);
        let mut labels = ObjectMetadata(&of_policy["metadata"]).labels();
        labels.extend(metadata.labels());
        let mut spec = object["spec"].clone();
        spec["policyName"] = policy.into();
        let kept = kept_param_ref(object);
        // Also where somebody has named the policy again, and nothing else.
        if let Some(params) = kept.as_ref().filter(|params| !params.is_null() && spec["paramRef"].is_null()) {
            spec["paramRef"] = params.clone();
        }
        Some(ClusterEntry {
            uid: metadata.text("uid"),
            version: metadata.text("resourceVersion"),
            labels,
            carries: parked.is_some(),
            current_condition: None,
            condition: AdoptionCondition::default(),
            outdated: false,
            only_owned_by_us: parked.is_some(),
            has_leader_annotation: metadata.has_leader_annotation()
                || parked.is_none() && kept.is_some() && !of_policy.is_null(),
            given_back: metadata.given_back().any(|one| one == id),
            foreign: parked.is_some() && kept.is_none(),
            other_conditions: 0,
            key,
            id,
            content: json!({"policy": of_policy["spec"], "binding": spec}),
        })
    };
    bindings.iter().filter_map(parse).collect()
}

/// Returns the policy of a parked binding, given its `policyName`; `None` if the binding is not parked.
fn parked_policy(named: &str) -> Option<&str> {
    named.strip_suffix(PARKED_SUFFIX).filter(|policy| !policy.is_empty())
}

/// Returns the `paramRef` that a binding has in its annotation, perhaps null; `None` if there is no such annotation, so
/// that Gatepost has not parked it.
fn kept_param_ref(object: &Value) -> Option<Value> {
    serde_json::from_str(object["metadata"]["annotations"][PARAM_REF_ANNOTATION].as_str()?).ok()
}

/// Change of a binding whose spec, as its owner has written it, is given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BindingChange<'a> {
    /// It is parked.
    Park(&'a Value),
    /// It is as its owner has written it, whether it was parked or not.
    Return(&'a Value),
    /// It names its policy, which does not exist, and has no params, which only one may write then who may read
    /// everything. They stay in the annotation until there is a policy.
    Name(&'a Value),
    /// It stays parked.
    Keep,
}

impl<'a> BindingChange<'a> {
    /// Returns the change that gives a binding back.
    pub(crate) const fn give_back(spec: &'a Value, has_policy: bool) -> Self {
        if has_policy { Self::Return(spec) } else { Self::Name(spec) }
    }
}

/// Returns the merge patch of a binding that was read with this uid and resourceVersion. It removes our annotations about
/// earlier writes but the given one.
pub(crate) fn binding_patch(
    (uid, version): (&str, &str),
    change: BindingChange<'_>,
    annotation: Option<(&str, &str)>,
) -> Value {
    let mut annotations = json!({FENCE_ANNOTATION: null, GIVEN_BACK_ANNOTATION: null});
    if let Some((key, value)) = annotation {
        annotations[key] = value.into();
    }
    let mut patch = json!({"metadata": {"uid": uid, "resourceVersion": version}});
    match change {
        BindingChange::Park(spec) => {
            let policy = spec["policyName"].as_str().unwrap_or_default();
            annotations[PARAM_REF_ANNOTATION] = spec["paramRef"].to_string().into();
            patch["spec"] = json!({"policyName": format!("{policy}{PARKED_SUFFIX}"), "paramRef": null});
        }
        BindingChange::Return(spec) => {
            annotations[PARAM_REF_ANNOTATION] = Value::Null;
            patch["spec"] = json!({"policyName": spec["policyName"], "paramRef": spec["paramRef"]});
        }
        BindingChange::Name(spec) => patch["spec"] = json!({"policyName": spec["policyName"]}),
        BindingChange::Keep => {}
    }
    patch["metadata"]["annotations"] = annotations;
    patch
}

/// Returns the query of a write of a binding.
pub(crate) fn binding_query() -> String {
    format!("?timeout=2s&fieldManager={MANAGER}")
}

/// Returns a JSON patch that gives the binding back, whoever has parked it; `None` if it is not parked.
pub(crate) fn forced_return(object: &Value) -> Option<Value> {
    let named = object["spec"]["policyName"].as_str()?;
    let path = "/spec/policyName";
    let (test, replace) = (json!({"op": "test", "path": path, "value": named}), parked_policy(named)?);
    let mut patch = vec![test, json!({"op": "replace", "path": path, "value": replace})];
    if let Some(kept) = kept_param_ref(object) {
        let path = format!("/metadata/annotations/{}", PARAM_REF_ANNOTATION.replace('/', "~1"));
        patch.push(json!({"op": "remove", "path": path}));
        if !kept.is_null() && object["spec"]["paramRef"].is_null() {
            patch.push(json!({"op": "add", "path": "/spec/paramRef", "value": kept}));
        }
    }
    Some(patch.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(policy: &str, annotations: Value) -> Value {
        let metadata = json!({"name": "b", "uid": "u", "resourceVersion": "7", "labels": {"tier": "x"},
            "annotations": annotations});
        json!({"metadata": metadata, "spec": {"policyName": policy, "validationActions": ["Deny"]}})
    }

    fn kept(params: &str) -> Value {
        json!({ PARAM_REF_ANNOTATION: params })
    }

    #[test]
    fn parked_binding_names_its_policy_and_keeps_its_params() {
        let policy = json!({"metadata": {"name": "p.x", "labels": {"team": "a"}}, "spec": {"failurePolicy": "Fail"}});
        let read = |named: &str, annotations: Value| {
            let bindings = [binding(named, annotations)];
            bindings_of(HookType::Validating, std::slice::from_ref(&policy), &bindings).remove(0)
        };
        let (parked, free) = (read("p.x.parked.gatepost.dev", kept("null")), read("p.x", json!({})));
        assert_eq!((parked.carries, free.carries, parked.only_owned_by_us), (true, false, true));
        assert_eq!((&parked.key, &parked.id, &parked.content), (&free.key, &free.id, &free.content));
        assert_eq!(free.key.to_string(), "validating-policy/p.x/b");
        assert_eq!(free.key.path(), "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/b");
        assert_eq!(free.content["policy"], policy["spec"]);
        assert_eq!(free.content["binding"], json!({"policyName": "p.x", "validationActions": ["Deny"]}));
        assert_eq!(free.labels.len(), 2, "of both objects");
        let params = read("p.x.parked.gatepost.dev", kept("{\"name\":\"n\"}"));
        assert_eq!((&params.content["binding"]["paramRef"], params.foreign), (&json!({"name": "n"}), false));
        assert!(read("p.x.parked.gatepost.dev", json!({})).foreign, "somebody else has parked it");
        assert!(!parked.foreign && !free.foreign && !read("p.x", kept("{}")).foreign);
        let named_again = read("p.x", kept("{\"name\":\"n\"}"));
        assert_eq!((named_again.carries, named_again.has_leader_annotation), (false, true));
        assert_eq!(named_again.content, params.content, "only the policy was named again");
        assert!(read("q", json!({})).content["policy"].is_null(), "it is not in the cluster");
        assert!(!read(".parked.gatepost.dev", json!({})).carries);
        assert_eq!(bindings_of(HookType::Mutating, &[], &[json!({}), json!({"spec": {"policyName": "p"}})]), []);
        assert!(can_be_parked(&"p".repeat(233)) && !can_be_parked(&"p".repeat(234)));
    }

    #[test]
    fn binding_is_given_back_as_its_name_and_annotation_say() {
        let start = [
            json!({"op": "test", "path": "/spec/policyName", "value": "p.parked.gatepost.dev"}),
            json!({"op": "replace", "path": "/spec/policyName", "value": "p"}),
        ];
        let patch = |annotations: Value, params: Value| {
            let mut binding = binding("p.parked.gatepost.dev", annotations);
            binding["spec"]["paramRef"] = params;
            let patch = forced_return(&binding).unwrap();
            let patch = patch.as_array().unwrap();
            assert_eq!(patch[..2], start);
            patch[2..].to_vec()
        };
        assert_eq!(patch(json!({}), Value::Null), Vec::<Value>::new());
        let remove = json!({"op": "remove", "path": "/metadata/annotations/gatepost.dev~1parked-param-ref"});
        assert_eq!(patch(kept("null"), Value::Null), std::slice::from_ref(&remove));
        let add = json!({"op": "add", "path": "/spec/paramRef", "value": {"name": "n"}});
        assert_eq!(patch(kept("{\"name\":\"n\"}"), Value::Null), [remove.clone(), add]);
        assert_eq!(patch(kept("{\"name\":\"n\"}"), json!({"name": "m"})), [remove], "its owner has written another");
        assert_eq!(forced_return(&binding("p", json!({}))), None);
    }

    #[test]
    fn patch_parks_gives_back_or_only_removes_annotations() {
        let (read, spec) = (("u", "7"), json!({"policyName": "p", "paramRef": {"name": "n"}}));
        let bare = json!({FENCE_ANNOTATION: null, GIVEN_BACK_ANNOTATION: null});
        let metadata = json!({"uid": "u", "resourceVersion": "7", "annotations": bare});
        assert_eq!(binding_patch(read, BindingChange::Keep, None), json!({ "metadata": metadata }));
        let parks = binding_patch(read, BindingChange::Park(&spec), None);
        assert_eq!(parks["spec"], json!({"policyName": "p.parked.gatepost.dev", "paramRef": null}));
        assert_eq!(parks["metadata"]["annotations"][PARAM_REF_ANNOTATION], "{\"name\":\"n\"}");
        let returns = binding_patch(read, BindingChange::Return(&spec), Some((FENCE_ANNOTATION, "7")));
        let annotations = &returns["metadata"]["annotations"];
        assert_eq!(returns["spec"], spec);
        assert_eq!(
            (&annotations[FENCE_ANNOTATION], annotations.get(PARAM_REF_ANNOTATION)),
            (&"7".into(), Some(&Value::Null))
        );
        let names = binding_patch(read, BindingChange::Name(&spec), None);
        assert_eq!((&names["spec"], &names["metadata"]), (&json!({"policyName": "p"}), &metadata));
        let annotated = binding("p", json!({FENCE_ANNOTATION: "7"}));
        assert!(bindings_of(HookType::Validating, &[], &[annotated])[0].has_leader_annotation);
    }
}
