//! Checks Kubernetes' admission policies and their bindings, and hands them to `gatepost_policy`, which compiles them.
//! Source: `pkg/apis/admissionregistration/validation/validation.go` of kubernetes.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    CheckedContent,
    hook::{annotated_canary, annotated_enforcement, match_policy, unenforced},
    names,
    namespace::metadata_name,
    rules, selector,
    webhooks::ENTRY_STATES,
};
use crate::{
    Note, Placed,
    document::{
        Dialect,
        node::{Node, given},
        problem::quoted,
    },
};
use gatepost_api::{FailurePolicy, HookType, MatchPolicy};
use gatepost_cel::{Effect, KubernetesVersion};
use gatepost_policy::{
    Actions, Binding, CustomSchemas, Definition, Fault, MatchResources, NamedRule, ParamKind, ParamRef, ParamSelector,
    Policy,
    document::{
        AuditAnnotationDocument, BindingDocument, MutationDocument, NamedExpression, PolicyDocument, Reinvocation,
        ValidationDocument,
    },
    is_custom_group,
};

/// Keys of the two documents. A cluster's `status` is accepted, but has no meaning here.
const KEYS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

const VALIDATING_KEYS: [&str; 7] = [
    "paramKind",
    "matchConstraints",
    "validations",
    "failurePolicy",
    "auditAnnotations",
    "matchConditions",
    "variables",
];
const MUTATING_KEYS: [&str; 7] = [
    "paramKind",
    "matchConstraints",
    "variables",
    "mutations",
    "failurePolicy",
    "matchConditions",
    "reinvocationPolicy",
];
const BINDING_KEYS: [&str; 4] = ["policyName", "paramRef", "matchResources", "validationActions"];
const MATCH_KEYS: [&str; 5] =
    ["namespaceSelector", "objectSelector", "resourceRules", "excludeResourceRules", "matchPolicy"];

const FAILURE_POLICIES: [(&str, FailurePolicy); 2] = [("Fail", FailurePolicy::Fail), ("Ignore", FailurePolicy::Ignore)];
const REINVOCATIONS: [(&str, Reinvocation); 2] = [("Never", Reinvocation::Never), ("IfNeeded", Reinvocation::IfNeeded)];
const PATCH_TYPES: [(&str, bool); 2] = [("JSONPatch", false), ("ApplyConfiguration", true)];
const NOT_FOUND_ACTIONS: [(&str, bool); 2] = [("Allow", false), ("Deny", true)];

/// Consequence of a missing expression or name.
const UNDECIDED: &str = "so the policy could decide nothing";

/// Checks a policy and reports its problems.
pub(crate) fn policy(at: &Node<'_>, hook_type: HookType) -> Option<Placed<Definition>> {
    at.is_map_of(&KEYS);
    let metadata = at.key("metadata");
    let name = metadata_name(&metadata, names::is_dns_subdomain, names::SUBDOMAIN);
    let spec = at.key("spec");
    if !spec.required(UNDECIDED, "write the spec of the policy") {
        return None;
    }
    let keys = if hook_type == HookType::Validating { &VALIDATING_KEYS } else { &MUTATING_KEYS };
    if !spec.is_map_of(keys) {
        return None;
    }
    let before = at.problems();
    let enforcement = annotated_enforcement(&metadata);
    let canary = annotated_canary(&metadata, enforcement);
    let version = given(metadata.key("annotations").key(KubernetesVersion::ANNOTATION))
        .and_then(|at| at.choice(&KubernetesVersion::ALL))
        .unwrap_or_default();
    let constraints = spec.key("matchConstraints");
    let rules = constraints.key("resourceRules");
    let is_constrained = constraints.required("so it would match no request", "name the resources it is about")
        && rules.required("so it would match no request", "name the resources it is about");
    let document = PolicyDocument {
        name: name.unwrap_or_default().into(),
        hook_type,
        failure_policy: given(spec.key("failurePolicy"))
            .and_then(|at| at.choice(&FAILURE_POLICIES))
            .unwrap_or(FailurePolicy::Fail),
        match_constraints: if is_constrained { match_resources(&constraints) } else { MatchResources::default() },
        match_conditions: named_expressions(&spec.key("matchConditions")),
        param_kind: given(spec.key("paramKind")).and_then(|at| param_kind(&at)),
        variables: named_expressions(&spec.key("variables")),
        validations: list(&spec.key("validations"), validation),
        audit_annotations: list(&spec.key("auditAnnotations"), audit_annotation),
        mutations: list(&spec.key("mutations"), mutation),
        reinvocation: Some(spec.key("reinvocationPolicy"))
            .filter(|at| {
                hook_type == HookType::Mutating
                    && at.required("so whether it decides again would be a guess", "write Never or IfNeeded")
            })
            .and_then(|at| at.choice(&REINVOCATIONS))
            .unwrap_or(Reinvocation::Never),
    };
    if at.problems() != before {
        return None;
    }
    let mut definition = Definition::compile_for(document, version).map_err(|faults| report(&spec, &faults)).ok()?;
    (definition.enforcement, definition.canary) = (enforcement, canary);
    let (file, path) = at.place();
    let states = metadata.value.get("annotations").and_then(|annotations| annotations.text_of(ENTRY_STATES));
    name.map(|_| Placed { item: Arc::new(definition), file, path, states: states.map(Box::from) })
}

/// Checks a binding and reports its problems.
pub(crate) fn binding(at: &Node<'_>, hook_type: HookType) -> Option<Placed<Binding>> {
    at.is_map_of(&KEYS);
    let metadata = at.key("metadata");
    let name = metadata_name(&metadata, names::is_dns_subdomain, names::SUBDOMAIN);
    let spec = at.key("spec");
    if !spec.required("so it binds nothing", "write the spec of the binding") || !spec.is_map_of(&BINDING_KEYS) {
        return None;
    }
    let before = at.problems();
    let enforcement = annotated_enforcement(&metadata);
    if let Some(version) = given(metadata.key("annotations").key(KubernetesVersion::ANNOTATION)) {
        version.problem("is not for a binding", "so its policy decides by another version", "write it in the policy");
    }
    let policy_name = spec.key("policyName");
    let policy_name = policy_name.required("so it binds nothing", "name a policy").then(|| policy_name.text());
    let document = BindingDocument {
        name: name.unwrap_or_default().into(),
        hook_type,
        policy_name: policy_name.flatten().unwrap_or_default().into(),
        param_ref: given(spec.key("paramRef")).and_then(|at| param_ref(&at)),
        match_resources: given(spec.key("matchResources")).map(|at| match_resources(&at)),
        actions: actions(&spec.key("validationActions"), hook_type),
    };
    if at.problems() != before {
        return None;
    }
    let mut binding = Binding::checked(document).map_err(|faults| report(&spec, &faults)).ok()?;
    binding.enforcement = enforcement;
    let (file, path) = at.place();
    name.map(|_| Placed { item: Arc::new(binding), file, path, states: None })
}

/// Reports faults, whose paths are relative to `spec`.
fn report(spec: &Node<'_>, faults: &[Fault]) {
    for Fault { path, what, why, fix } in faults {
        spec.problem_below(path, what, why, fix);
    }
}

/// Returns the checked items of a list, if it is present.
fn list<T>(at: &Node<'_>, item: impl Fn(&Node<'_>) -> Option<T>) -> Vec<T> {
    if !at.present() || !at.is_list() {
        return Vec::new();
    }
    at.items().filter_map(|entry| item(&entry)).collect()
}

fn match_resources(at: &Node<'_>) -> MatchResources {
    if !at.is_map_of(&MATCH_KEYS) {
        return MatchResources::default();
    }
    MatchResources {
        rules: list(&at.key("resourceRules"), named_rule),
        excluded: list(&at.key("excludeResourceRules"), named_rule),
        namespace_selector: selector::check(&at.key("namespaceSelector"), Dialect::Kubernetes),
        object_selector: selector::check(&at.key("objectSelector"), Dialect::Kubernetes),
        match_policy: match_policy(&at.key("matchPolicy")).unwrap_or(MatchPolicy::Equivalent),
    }
}

fn named_rule(at: &Node<'_>) -> Option<NamedRule> {
    let names = at.key("resourceNames");
    let resource_names = if names.present() { names.texts()? } else { Vec::new() };
    let rule = rules::of_policy(at)?;
    Some(NamedRule { rule, resource_names: resource_names.into_iter().map(Box::from).collect() })
}

/// Reads a text that is required. Only its kind is checked here.
fn text(at: &Node<'_>, fix: &str) -> Option<Box<str>> {
    if at.required(UNDECIDED, fix) { at.text().map(Box::from) } else { None }
}

fn optional_text(at: Node<'_>) -> Option<Box<str>> {
    given(at).and_then(|at| at.text().map(Box::from))
}

fn named_expressions(at: &Node<'_>) -> Vec<NamedExpression> {
    list(at, |item| {
        if !item.is_map_of(&["name", "expression"]) {
            return None;
        }
        let name = text(&item.key("name"), "name the expression");
        let expression = text(&item.key("expression"), "write an expression in CEL");
        Some(NamedExpression { name: name?, expression: expression? })
    })
}

fn validation(at: &Node<'_>) -> Option<ValidationDocument> {
    if !at.is_map_of(&["expression", "message", "reason", "messageExpression"]) {
        return None;
    }
    Some(ValidationDocument {
        expression: text(&at.key("expression"), "write an expression in CEL that is true for what is allowed")?,
        message: optional_text(at.key("message")).unwrap_or_default(),
        message_expression: optional_text(at.key("messageExpression")).unwrap_or_default(),
        reason: optional_text(at.key("reason")),
    })
}

fn audit_annotation(at: &Node<'_>) -> Option<AuditAnnotationDocument> {
    if !at.is_map_of(&["key", "valueExpression"]) {
        return None;
    }
    let key = text(&at.key("key"), "name the annotation");
    let value_expression = text(&at.key("valueExpression"), "write an expression in CEL");
    Some(AuditAnnotationDocument { key: key?, value_expression: value_expression? })
}

fn mutation(at: &Node<'_>) -> Option<MutationDocument> {
    if !at.is_map_of(&["patchType", "jsonPatch", "applyConfiguration"]) {
        return None;
    }
    let patch_type = at.key("patchType");
    if !patch_type.required(UNDECIDED, "write JSONPatch or ApplyConfiguration") {
        return None;
    }
    let is_apply = patch_type.choice(&PATCH_TYPES)?;
    let body = at.key(if is_apply { "applyConfiguration" } else { "jsonPatch" });
    if !body.required(UNDECIDED, "write its expression") || !body.is_map_of(&["expression"]) {
        return None;
    }
    let expression = text(&body.key("expression"), "write an expression in CEL")?;
    Some(match is_apply {
        true => MutationDocument::ApplyConfiguration(expression),
        false => MutationDocument::JsonPatch(expression),
    })
}

fn param_kind(at: &Node<'_>) -> Option<ParamKind> {
    if !at.is_map_of(&["apiVersion", "kind"]) {
        return None;
    }
    let api_version = text(&at.key("apiVersion"), "write the group and version of the params, such as v1");
    let kind = text(&at.key("kind"), "write the kind of the params, such as ConfigMap");
    Some(ParamKind { api_version: api_version?, kind: kind? })
}

fn param_ref(at: &Node<'_>) -> Option<ParamRef> {
    if !at.is_map_of(&["name", "namespace", "selector", "parameterNotFoundAction"]) {
        return None;
    }
    let (name, selected) = (optional_text(at.key("name")), at.key("selector"));
    let which = match (name, selected.present()) {
        (Some(_), true) => {
            selected.problem(
                "name and selector are both set",
                "and only one of them can select params",
                "keep one of the two",
            );
            return None;
        }
        (Some(name), false) => ParamSelector::Name(name),
        (None, true) => ParamSelector::Labels(selector::check(&selected, Dialect::Kubernetes)),
        (None, false) => {
            at.problem("names no param", UNDECIDED, "write name, or selector: {} for all params");
            return None;
        }
    };
    let action = at.key("parameterNotFoundAction");
    if !action.required("so what a missing param means would be a guess", "write Allow or Deny") {
        return None;
    }
    Some(ParamRef {
        which,
        namespace: optional_text(at.key("namespace")),
        deny_if_not_found: action.choice(&NOT_FOUND_ACTIONS)?,
    })
}

fn actions(at: &Node<'_>, hook_type: HookType) -> Actions {
    let mut actions = Actions::default();
    if hook_type == HookType::Mutating {
        if at.present() {
            at.problem("is not a known key", "since mutating policies only mutate", "remove it");
        }
        return actions;
    }
    if !at.required("so a failed validation would have no effect", "write [Deny], [Warn], [Audit] or [Warn, Audit]")
        || !at.is_list()
    {
        return actions;
    }
    for item in at.items() {
        let Some(action) = item.choice(&[("Deny", 0), ("Warn", 1), ("Audit", 2)]) else { continue };
        let flag = [&mut actions.deny, &mut actions.warn, &mut actions.audit].into_iter().nth(action);
        if let Some(flag) = flag {
            if *flag {
                item.problem("is written more than once", "which no apiserver accepts", "remove it");
            }
            *flag = true;
        }
        actions.audit_first = actions.audit && !actions.deny && !actions.warn || actions.audit_first;
    }
    if actions.deny && actions.warn {
        at.problem(
            "holds Deny and Warn",
            "which would repeat the same text in the warning and in the rejection; no apiserver accepts it",
            "keep one of the two",
        );
    }
    if at.items().next().is_none() {
        at.problem("is empty", "so a failed validation would have no effect", "write [Deny], [Warn] or [Audit]");
    }
    actions
}

/// Returns a note for each expression that another version of Kubernetes refuses or answers otherwise. Differences in
/// cost alone, which nearly every policy has, are told of policies that name their version.
fn version_notes(placed: &Placed<Definition>) -> impl Iterator<Item = Note> {
    let definition = &placed.item;
    let is_pinned = definition.version != KubernetesVersion::default();
    let changes = definition.changes().into_iter();
    changes.filter(move |(_, change)| is_pinned || change.effect.is_on_decisions()).map(move |(path, change)| {
        let why = match change.effect {
            Effect::Added | Effect::Removed => "so not every kube-apiserver accepts this policy",
            Effect::Answer(_) => "so this policy may decide differently in kube-apiservers of two versions",
            Effect::Cost(_) => "so limits on cost are reached by other objects",
        };
        let fix = match is_pinned {
            true => format!("here it is as in {}, as the annotation says", definition.version),
            false => {
                format!("write it otherwise, or name one version in the annotation {}", KubernetesVersion::ANNOTATION)
            }
        };
        let document = if placed.path.is_empty() { String::new() } else { format!("{}.", placed.path) };
        let path = format!("{document}spec.{path}");
        Note { file: placed.file.clone(), path, what: change.to_string(), why: why.to_owned(), fix }
    })
}

/// Returns a note on a policy that merges configurations into objects of a custom resource whose schema is missing.
fn schema_note(placed: &Placed<Definition>, schemas: &CustomSchemas) -> Option<Note> {
    let definition = &placed.item;
    if !definition.applies_configurations() {
        return None;
    }
    let rules = definition.constraints.rules.iter().map(|named| &named.rule);
    let named = rules.flat_map(|rule| {
        let groups = rule.api_groups.iter().filter(|group| ***group != *"*" && is_custom_group(group));
        let versions = groups.flat_map(|group| rule.api_versions.iter().map(move |version| (group, version)));
        versions.flat_map(|of| rule.resources.iter().map(move |resource| (of, resource)))
    });
    let ((group, version), resource) = named
        .map(|(of, resource)| (of, resource.split('/').next().unwrap_or_default()))
        .find(|((group, version), resource)| *resource != "*" && !schemas.has(group, version, resource))?;
    let document = if placed.path.is_empty() { String::new() } else { format!("{}.", placed.path) };
    Some(Note {
        file: placed.file.clone(),
        path: format!("{document}spec.mutations"),
        what: format!("the schema of {resource} of {group} in version {version} is missing"),
        why: "so a configuration that holds a list fails where the object has one, and unknown fields are not refused"
            .to_owned(),
        fix: format!("add its definition to the configuration: kubectl get crd {resource}.{group} -o yaml"),
    })
}

/// Joins policies and bindings. Returns every policy that is bound, in order, with its place: once for each enforcement
/// of its bindings. Adds notes on policies without bindings, which decide nothing, and on bindings of policies that do
/// not exist.
pub(crate) fn bound(checked: &CheckedContent, notes: &mut Vec<Note>) -> (Vec<Arc<Policy>>, Vec<Placed<Definition>>) {
    let CheckedContent { policies: definitions, bindings, schemas, .. } = checked;
    let schemas = Arc::new(CustomSchemas::new(schemas));
    let mut by_policy: BTreeMap<(HookType, &str), Vec<&Placed<Binding>>> = BTreeMap::new();
    for binding in bindings {
        by_policy.entry((binding.item.hook_type, &*binding.item.policy_name)).or_default().push(binding);
    }
    let mut definitions: Vec<_> = definitions.iter().collect();
    let validates = |hook_type| hook_type == HookType::Validating;
    definitions.sort_by_key(|Placed { item, .. }| (validates(item.hook_type), Arc::clone(&item.name)));
    let note = |(file, path): (&str, &str), what: String, why: &str, fix: &str| Note {
        file: file.to_owned(),
        path: path.to_owned(),
        what,
        why: why.to_owned(),
        fix: fix.to_owned(),
    };
    let (mut policies, mut places) = (Vec::new(), Vec::new());
    for placed in definitions {
        let Placed { item: definition, file, path, .. } = placed;
        notes.extend(version_notes(placed));
        notes.extend(schema_note(placed, &schemas));
        match by_policy.remove(&(definition.hook_type, &*definition.name)) {
            Some(own) => {
                let enforcement =
                    |binding: &Binding| binding.enforcement.or(definition.enforcement).unwrap_or_default();
                let mut own: Vec<_> = own.iter().map(|placed| (enforcement(&placed.item), &placed.item)).collect();
                own.sort_by_key(|(enforcement, binding)| (*enforcement, Arc::clone(&binding.name)));
                for alike in own.chunk_by(|(one, _), (other, _)| one == other) {
                    let what = format!("policy {:?}", definition.name);
                    notes.extend(unenforced(&what, alike[0].0, (file, path)));
                    policies.push(Arc::new(Policy {
                        definition: Arc::clone(definition),
                        bindings: alike.iter().map(|(_, binding)| Arc::clone(binding)).collect(),
                        fails_open: false,
                        enforcement: alike[0].0,
                        schemas: Arc::clone(&schemas),
                    }));
                    places.push(placed.clone());
                }
            }
            None => notes.push(note(
                (file, path),
                format!("policy {} has no binding", quoted(&definition.name)),
                "so it decides nothing",
                "add a binding with its name in spec.policyName, or remove it",
            )),
        }
    }
    for binding in by_policy.into_values().flatten() {
        notes.push(note(
            (&binding.file, &binding.path),
            format!("no policy is called {}", quoted(&binding.item.policy_name)),
            "so the binding has no effect",
            "correct spec.policyName, or remove the binding where the policy is not to come",
        ));
    }
    (policies, places)
}
