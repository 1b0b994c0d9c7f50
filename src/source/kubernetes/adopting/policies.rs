//! Policies of others: the verdict on one binding of a policy, and the documents of those that this replica evaluates.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::judge::{OwnRegistrations, Verdict};
use crate::source::kubernetes::objects::Kind;
use gatepost_adopt::{ClusterEntry, EntryKey, ObjectAccess, PARKED_SUFFIX, Reason, can_be_parked, exempt_policy_match};
use gatepost_api::{HookType, builtin::SHARED, other_group};
use gatepost_config::{ENTRY_STATES, SourceFile, load};
use gatepost_policy::{ParamSelector, Policy, has_schema};

/// Returns the verdict on one binding. `bypasses` are the bypass rules of our own configuration.
pub(super) fn judge(
    standing: &ClusterEntry,
    (own, isolates): (&OwnRegistrations<'_>, bool),
    bypasses: &[&Value],
) -> Verdict {
    let (key, content) = (&standing.key, &standing.content);
    let policy = &content["policy"];
    if policy.is_null() {
        let parked = if standing.orphaned { "; it stays parked until there is one" } else { "" };
        return Verdict::unservable(format!(
            "no policy {} is in the cluster (a static policy, *.static.k8s.io, is no object of it){parked}",
            key.configuration
        ));
    }
    if standing.foreign {
        return Verdict::unservable(
            "it is parked, but Gatepost has not done that, or the annotation that keeps its paramRef is lost; see \
             whether spec.paramRef is as it should be"
                .to_owned(),
        );
    }
    if !can_be_parked(&key.configuration) {
        return Verdict::unservable(format!(
            "its name has no room for {PARKED_SUFFIX}, by which a binding is parked; give the policy a shorter name"
        ));
    }
    let mut mutations = policy["mutations"].as_array().into_iter().flatten();
    if mutations.any(|mutation| mutation["patchType"] == "ApplyConfiguration")
        && let Some(resource) = without_schema(&policy["matchConstraints"]["resourceRules"])
    {
        return Verdict::unservable(format!(
            "it has an ApplyConfiguration, which only a schema can merge into a list, and it may match {resource}, for \
             which Gatepost has no schema; let it match nothing but built-in resources, each by its name, group and \
             version, or write a JSONPatch"
        ));
    }
    let problem = |what: Option<String>| Verdict::unservable(what.unwrap_or_else(|| "it decides nothing".to_owned()));
    let snapshot = match load(&files([(key, content, None)].into_iter()), &|_| Err(std::io::ErrorKind::NotFound.into()))
    {
        Ok(snapshot) => snapshot,
        Err(problems) => return problem(problems.first().map(ToString::to_string)),
    };
    let [compiled] = snapshot.policies() else { return problem(snapshot.notes().first().map(ToString::to_string)) };
    let let_past = || exempt(content).or_else(|| bypassed(key, policy, bypasses)).map(Reason::LetPast);
    // If parked, it is evaluated until it is given back.
    let reason_not_to_adopt = shared_params(policy)
        .map(Reason::Unservable)
        .or_else(let_past)
        .or_else(|| own.segmented(key.kind.hook_type(), isolates))
        .or_else(|| own.uncovered(&snapshot, &[]));
    Verdict {
        unservable: None,
        reason_not_to_adopt,
        unsent: own.leaves_unsent(&snapshot, &[]),
        uses_authorizer: compiled.definition.uses_authorizer(),
        reads: reads(compiled),
    }
}

/// Returns a text if kube-apiserver may watch the policy's params by a shared informer. It stops that informer when the
/// last binding with such params is parked, and never starts it again. Custom resources have informers of their own.
fn shared_params(policy: &Value) -> Option<String> {
    let api_version = policy["paramKind"]["apiVersion"].as_str()?;
    let (group, _) = api_version.split_once('/').unwrap_or_default();
    let is_shared = !group.contains('.') || group.ends_with(".k8s.io");
    is_shared.then(|| {
        format!(
            "its paramKind is of {api_version}, which may be a group of kube-apiserver itself: once kube-apiserver has \
             its bindings back, it could evaluate it with outdated params until it is restarted; move the params to a \
             custom resource of a group that has a dot and does not end in .k8s.io, or the policy into Gatepost's \
             configuration"
        )
    })
}

/// Returns a resource that these rules match, and whose schema is not known here.
fn without_schema(rules: &Value) -> Option<String> {
    rules.as_array().into_iter().flatten().find_map(|rule| {
        let versions = |group| texts(&rule["apiVersions"]).map(move |version| (group, version));
        let resources = |of| texts(&rule["resources"]).map(move |resource| (of, resource));
        let mut all = texts(&rule["apiGroups"]).flat_map(versions).flat_map(resources);
        let ((group, version), resource) =
            all.find(|((group, version), resource)| !has_schema(group, version, resource))?;
        Some(format!("{resource} of \"{group}\" in version {version}"))
    })
}

/// Returns the texts of a list.
fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns a text if the binding matches requests for which no policy is evaluated here.
fn exempt(content: &Value) -> Option<String> {
    let (policy, binding) = (&content["policy"]["matchConstraints"], &content["binding"]["matchResources"]);
    let is_narrow = |rules: &Value| rules.as_array().is_some_and(|rules| !rules.is_empty());
    let (group, resource) = exempt_policy_match(&policy["resourceRules"], &policy["excludeResourceRules"])?;
    let narrowed = match is_narrow(&binding["resourceRules"]) {
        true => exempt_policy_match(&binding["resourceRules"], &binding["excludeResourceRules"]).is_none(),
        false => false,
    };
    (!narrowed).then(|| format!("it matches {resource} of {group}, for which Gatepost evaluates nothing"))
}

/// Returns a text if a bypass rule of ours may let requests past the policy. Compares names, groups and resources only.
fn bypassed(key: &EntryKey, policy: &Value, bypasses: &[&Value]) -> Option<String> {
    let names = |list: &Value| {
        texts(list).map(|text| text.split('/').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let overlap = |a: &[String], b: &[String]| {
        a.iter().any(|one| one == "*" || b.iter().any(|other| other == "*" || other == one))
    };
    // One side may name the other group in which the same objects are served.
    let with_equivalents = |rule: &Value| {
        let (groups, resources) = (names(&rule["apiGroups"]), names(&rule["resources"]));
        let shared = SHARED.iter().filter(|(shared, _)| resources.iter().any(|one| one == "*" || one == shared));
        let equivalents = shared.flat_map(|(shared, _)| groups.iter().filter_map(|group| other_group(group, shared)));
        (groups.iter().cloned().chain(equivalents.map(str::to_owned)).collect::<Vec<_>>(), resources)
    };
    let rules = policy["matchConstraints"]["resourceRules"].as_array();
    let is_about = |rule: &&&Value| {
        let named = rule["hooks"].as_array().is_none_or(|hooks| hooks.iter().any(|hook| *hook == *key.configuration));
        let meets = |resource: &Value| {
            let (groups, resources) = with_equivalents(resource);
            let fits = |own: &Value| {
                let (own_groups, own_resources) = with_equivalents(own);
                overlap(&own_groups, &groups) && overlap(&own_resources, &resources)
            };
            rules.into_iter().flatten().any(fits)
        };
        named && rule["resources"].as_array().is_none_or(|resources| resources.iter().any(meets))
    };
    let rule = bypasses.iter().find(is_about)?;
    let name = rule["name"].as_str().unwrap_or_default();
    Some(format!("the bypass rule {name} may be about it"))
}

/// Returns the reads of the cluster that the policy needs.
fn reads(policy: &Policy) -> Vec<ObjectAccess> {
    let definition = &policy.definition;
    let bindings = policy.bindings.iter().filter_map(|binding| binding.param_ref.as_ref());
    let params = bindings.zip(&definition.param_kind).map(|(params, kind)| ObjectAccess {
        api_version: kind.api_version.to_string(),
        kind: kind.kind.to_string(),
        namespace: params.namespace.as_deref().unwrap_or_default().to_owned(),
        verb: if matches!(params.which, ParamSelector::Name(_)) { "get" } else { "list" },
    });
    let namespace = definition.uses_namespace().then(|| ObjectAccess {
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        namespace: String::new(),
        verb: "get",
    });
    params.chain(namespace).collect()
}

/// Name and content of a binding and, if it is known, its state.
type CalledBinding<'a> = (&'a EntryKey, &'a Value, Option<&'a str>);

/// Returns a file for each policy, with these bindings of it. Bindings of one policy may have read different states of it; the first one counts.
pub(super) fn files<'a>(bindings: impl Iterator<Item = (&'a EntryKey, &'a Value, Option<&'a str>)>) -> Vec<SourceFile> {
    let mut by_policy = BTreeMap::<(HookType, &str), Vec<_>>::new();
    for (key, content, state) in bindings {
        by_policy.entry((key.kind.hook_type(), &*key.configuration)).or_default().push((key, content, state));
    }
    let file = |((hook_type, policy), bindings): ((HookType, &str), Vec<CalledBinding<'_>>)| {
        let document = |kind: &str, metadata: Value, spec: &Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec});
        let states = bindings.iter().filter_map(|(key, _, state)| Some(format!("{}={}", key.name, (*state)?)));
        let states = states.collect::<Vec<_>>().join(" ");
        let metadata = json!({"name": policy, "annotations": {ENTRY_STATES: states}});
        let policy_kind = match hook_type {
            HookType::Validating => "ValidatingAdmissionPolicy",
            HookType::Mutating => "MutatingAdmissionPolicy",
        };
        let spec = bindings.first().map_or(&Value::Null, |(_, content, _)| &content["policy"]);
        let mut items = vec![document(policy_kind, metadata, spec)];
        items.extend(
            bindings.iter().map(|(key, content, _)| {
                document(key.kind.object_kind(), json!({"name": key.name}), &content["binding"])
            }),
        );
        let bytes = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string().into();
        SourceFile { name: format!("{}/{policy}", Kind::Policies(hook_type).resource()), bytes }
    };
    by_policy.into_iter().map(file).collect()
}
