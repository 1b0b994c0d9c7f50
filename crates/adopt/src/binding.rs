//! Bindings of policies. A binding is parked by another name in `spec.policyName`, that of no policy: kube-apiserver then
//! neither evaluates nor compiles the policy for it, and the name still says which policy it is.
//!
//! A parked binding has no `spec.paramRef`: kube-apiserver lets only those write one who may read the params, and beside
//! a policy that does not exist, who may read everything. An annotation has it meanwhile. So a binding whose policy has
//! been deleted stays parked until there is a policy of that name: until then there is nothing to evaluate.

use std::collections::HashMap;

use gatepost_api::{AdoptionCondition, HookType};
use serde_json::{Value, json};

use crate::{
    ClusterEntry, EntryKey, EntryKind, FENCE_ANNOTATION, GIVEN_BACK_ANNOTATION, MANAGER, entry::ObjectMetadata,
};

/// Suffix of the policy's name in a parked binding.
pub const PARKED_SUFFIX: &str = ".parked.gatepost.dev";
/// Annotation of a parked binding with its `policyName`, and its `paramRef` or null, as JSON. Params belong to one policy:
/// its owner may name another one meanwhile.
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
        let BindingSpec { policy, is_parked, annotation, spec } = BindingSpec::of(object)?;
        let name = metadata.0["name"].as_str().filter(|name| !name.is_empty())?.to_owned();
        let key = EntryKey { kind: EntryKind::Binding(hook_type), configuration: policy.to_owned(), name };
        let id = key.id();
        let of_policy = by_name.get(policy).copied().unwrap_or(&Value::Null);
        let mut labels = ObjectMetadata(&of_policy["metadata"]).labels();
        labels.extend(metadata.labels());
        let orphaned = is_parked && of_policy.is_null();
        Some(ClusterEntry {
            uid: metadata.text("uid"),
            version: metadata.text("resourceVersion"),
            labels,
            carries: is_parked && !orphaned,
            orphaned,
            current_condition: None,
            condition: AdoptionCondition::default(),
            outdated: false,
            only_owned_by_us: is_parked,
            has_leader_annotation: metadata.has_leader_annotation()
                || !is_parked && annotation.is_some() && !of_policy.is_null(),
            given_back: metadata.given_back().any(|one| one == id),
            foreign: is_parked && !is_of(annotation.as_ref(), policy),
            has_readable_params: annotation.is_some(),
            other_conditions: 0,
            key,
            id,
            content: Value::from_iter([("policy", of_policy["spec"].clone()), ("binding", spec)]),
        })
    };
    bindings.iter().filter_map(parse).collect()
}

/// Returns the policy of a parked binding, given its `policyName`; `None` if the binding is not parked.
fn parked_policy(named: &str) -> Option<&str> {
    named.strip_suffix(PARKED_SUFFIX).filter(|policy| !policy.is_empty())
}

/// Returns true if this annotation, or spec, of a binding is about the policy.
fn is_of(spec: Option<&Value>, policy: &str) -> bool {
    spec.is_some_and(|spec| spec["policyName"] == *policy)
}

/// What a binding says without our mark.
struct BindingSpec<'a> {
    policy: &'a str,
    is_parked: bool,
    /// Its annotation; `None` if it has none that can be read.
    annotation: Option<Value>,
    /// The spec as its owner has written it. Params of the annotation count also where somebody has named the policy
    /// again, and nothing else.
    spec: Value,
}

impl<'a> BindingSpec<'a> {
    fn of(object: &'a Value) -> Option<Self> {
        let named = object["spec"]["policyName"].as_str()?;
        let parked = parked_policy(named);
        let policy = parked.unwrap_or(named);
        let annotation = object["metadata"]["annotations"][PARAM_REF_ANNOTATION].as_str();
        let annotation = annotation.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let annotation = annotation.filter(|annotation| annotation["policyName"].is_string());
        let mut spec = object["spec"].clone();
        spec["policyName"] = policy.into();
        let params = annotation.as_ref().filter(|annotation| is_of(Some(annotation), policy)).map(|it| &it["paramRef"]);
        if let Some(params) = params.filter(|params| !params.is_null() && spec["paramRef"].is_null()) {
            spec["paramRef"] = params.clone();
        }
        Some(Self { policy, is_parked: parked.is_some(), annotation, spec })
    }
}

/// Change of a binding whose spec, as its owner has written it, is given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BindingChange<'a> {
    /// It is parked.
    Park(&'a Value),
    /// It is as its owner has written it, whether it was parked or not.
    Return {
        spec: &'a Value,
        /// False for an annotation that cannot be read: its owner may know what it says.
        removes_annotation: bool,
    },
    /// It stays parked, or named.
    Keep,
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
            let kept = json!({"policyName": policy, "paramRef": spec["paramRef"]});
            annotations[PARAM_REF_ANNOTATION] = kept.to_string().into();
            patch["spec"] = json!({"policyName": format!("{policy}{PARKED_SUFFIX}"), "paramRef": null});
        }
        BindingChange::Return { spec, removes_annotation } => {
            if removes_annotation {
                annotations[PARAM_REF_ANNOTATION] = Value::Null;
            }
            patch["spec"] = json!({"policyName": spec["policyName"], "paramRef": spec["paramRef"]});
        }
        BindingChange::Keep => {}
    }
    patch["metadata"]["annotations"] = annotations;
    patch
}

/// Returns the query of a write of a binding.
pub(crate) fn binding_query() -> String {
    format!("?timeout=2s&fieldManager={MANAGER}")
}

/// Returns a JSON patch that gives the binding back, whoever has parked it; `None` if it is not parked. `known` is its
/// spec as it was read before, of which the params count where its annotation is lost; null if unknown.
pub(crate) fn forced_return(object: &Value, known: &Value) -> Option<Value> {
    let BindingSpec { policy, annotation, spec, .. } = BindingSpec::of(object).filter(|binding| binding.is_parked)?;
    let path = "/spec/policyName";
    let test = json!({"op": "test", "path": path, "value": object["spec"]["policyName"]});
    let mut patch = vec![test, json!({"op": "replace", "path": path, "value": policy})];
    if annotation.is_some() {
        let path = format!("/metadata/annotations/{}", PARAM_REF_ANNOTATION.replace('/', "~1"));
        patch.push(json!({"op": "remove", "path": path}));
    }
    let is_lost = !is_of(annotation.as_ref(), policy) && is_of(Some(known), policy);
    let params = if is_lost { &known["paramRef"] } else { &spec["paramRef"] };
    if object["spec"]["paramRef"].is_null() && !params.is_null() {
        patch.push(json!({"op": "add", "path": "/spec/paramRef", "value": params}));
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

    /// Annotations of a binding that was parked with these params of the policy.
    fn kept(policy: &str, params: &Value) -> Value {
        json!({ PARAM_REF_ANNOTATION: json!({"policyName": policy, "paramRef": params}).to_string() })
    }

    #[test]
    fn parked_binding_names_its_policy_and_keeps_its_params() {
        let policy = json!({"metadata": {"name": "p.x", "labels": {"team": "a"}}, "spec": {"failurePolicy": "Fail"}});
        let read = |named: &str, annotations: Value| {
            let bindings = [binding(named, annotations)];
            bindings_of(HookType::Validating, std::slice::from_ref(&policy), &bindings).remove(0)
        };
        let (named, none) = (json!({"name": "n"}), Value::Null);
        let (parked, free) = (read("p.x.parked.gatepost.dev", kept("p.x", &none)), read("p.x", json!({})));
        assert_eq!((parked.carries, free.carries, parked.only_owned_by_us), (true, false, true));
        assert_eq!((&parked.key, &parked.id, &parked.content), (&free.key, &free.id, &free.content));
        assert_eq!(free.key.to_string(), "validating-policy/p.x/b");
        assert_eq!(free.key.path(), "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/b");
        assert_eq!(free.content["policy"], policy["spec"]);
        assert_eq!(free.content["binding"], json!({"policyName": "p.x", "validationActions": ["Deny"]}));
        assert_eq!(free.labels.len(), 2, "of both objects");
        let params = read("p.x.parked.gatepost.dev", kept("p.x", &named));
        assert_eq!((&params.content["binding"]["paramRef"], params.foreign), (&json!({"name": "n"}), false));
        assert!(read("p.x.parked.gatepost.dev", json!({})).foreign, "somebody else has parked it");
        assert!(read("p.x.parked.gatepost.dev", json!({PARAM_REF_ANNOTATION: "{\"name\":"})).foreign);
        assert!(!parked.foreign && !free.foreign && !read("p.x", kept("p.x", &none)).foreign);
        let named_again = read("p.x", kept("p.x", &named));
        assert_eq!((named_again.carries, named_again.has_leader_annotation), (false, true));
        assert_eq!(named_again.content, params.content, "only the policy was named again");
        let renamed = read("p.x", kept("q", &named));
        assert_eq!(
            (&renamed.content, renamed.has_leader_annotation),
            (&free.content, true),
            "params of another policy"
        );
        let of_another = read("p.x.parked.gatepost.dev", kept("q", &named));
        assert!(of_another.foreign && of_another.has_readable_params && !free.has_readable_params);
        let orphan = read("q.parked.gatepost.dev", kept("q", &named));
        assert_eq!((orphan.orphaned, orphan.carries, parked.orphaned), (true, false, false), "there is no policy q");
        assert!(read("q", json!({})).content["policy"].is_null() && !read("q", json!({})).orphaned);
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
        let known = |policy: &str| json!({"policyName": policy, "paramRef": {"name": "known"}});
        let patch_with = |annotations: Value, params: Value, known: &Value| {
            let mut binding = binding("p.parked.gatepost.dev", annotations);
            binding["spec"]["paramRef"] = params;
            let patch = forced_return(&binding, known).unwrap();
            let patch = patch.as_array().unwrap();
            assert_eq!(patch[..2], start);
            patch[2..].to_vec()
        };
        let patch = |annotations: Value, params: Value| patch_with(annotations, params, &Value::Null);
        assert_eq!(patch(json!({}), Value::Null), Vec::<Value>::new());
        let remove = json!({"op": "remove", "path": "/metadata/annotations/gatepost.dev~1parked-param-ref"});
        let add = |name: &str| json!({"op": "add", "path": "/spec/paramRef", "value": {"name": name}});
        let params = json!({"name": "n"});
        assert_eq!(patch(kept("p", &Value::Null), Value::Null), std::slice::from_ref(&remove));
        assert_eq!(patch(kept("p", &params), Value::Null), [remove.clone(), add("n")]);
        assert_eq!(
            patch(kept("p", &params), json!({"name": "m"})),
            std::slice::from_ref(&remove),
            "its owner has written another"
        );
        assert_eq!(patch(kept("q", &params), Value::Null), std::slice::from_ref(&remove), "of another policy");
        let unreadable = json!({PARAM_REF_ANNOTATION: "{\"name\":"});
        assert_eq!(patch(unreadable.clone(), Value::Null), Vec::<Value>::new(), "its owner may know what it says");
        for lost in [json!({}), unreadable] {
            assert_eq!(patch_with(lost.clone(), Value::Null, &known("p")), [add("known")]);
            assert_eq!(patch_with(lost, Value::Null, &known("q")), Vec::<Value>::new());
        }
        assert_eq!(patch_with(kept("p", &Value::Null), Value::Null, &known("p")), [remove], "it has none");
        assert_eq!(forced_return(&binding("p", json!({})), &known("p")), None);
    }

    #[test]
    fn patch_parks_gives_back_or_only_removes_annotations() {
        let (read, spec) = (("u", "7"), json!({"policyName": "p", "paramRef": {"name": "n"}}));
        let bare = json!({FENCE_ANNOTATION: null, GIVEN_BACK_ANNOTATION: null});
        let metadata = json!({"uid": "u", "resourceVersion": "7", "annotations": bare});
        assert_eq!(binding_patch(read, BindingChange::Keep, None), json!({ "metadata": metadata }));
        let parks = binding_patch(read, BindingChange::Park(&spec), None);
        assert_eq!(parks["spec"], json!({"policyName": "p.parked.gatepost.dev", "paramRef": null}));
        assert_eq!(parks["metadata"]["annotations"][PARAM_REF_ANNOTATION], spec.to_string());
        let returned = |removes_annotation| {
            let change = BindingChange::Return { spec: &spec, removes_annotation };
            binding_patch(read, change, Some((FENCE_ANNOTATION, "7")))
        };
        let returns = returned(true);
        let annotations = &returns["metadata"]["annotations"];
        assert_eq!(returns["spec"], spec);
        assert_eq!(
            (&annotations[FENCE_ANNOTATION], annotations.get(PARAM_REF_ANNOTATION)),
            (&"7".into(), Some(&Value::Null))
        );
        assert_eq!(returned(false)["metadata"]["annotations"].get(PARAM_REF_ANNOTATION), None, "it stays");
        let annotated = binding("p", json!({FENCE_ANNOTATION: "7"}));
        assert!(bindings_of(HookType::Validating, &[], &[annotated])[0].has_leader_annotation);
    }
}
