//! Translation of Kyverno's CEL policies (`policies.kyverno.io`) into admission policies of Kubernetes with bindings.
//! Source: the types of `policies.kyverno.io/v1`, and its generation of rules for pod controllers.

use gatepost_config::{NAME_LABEL, SourceFile};
use serde_json::{Map, Value, json};

use super::{cluster::text_at, document::Field};

/// `apiVersion` of the translated documents.
const ADMISSION: &str = "admissionregistration.k8s.io/v1";

const VALIDATING_KEYS: [&str; 10] = [
    "matchConstraints",
    "matchConditions",
    "variables",
    "validations",
    "failurePolicy",
    "auditAnnotations",
    "validationActions",
    "autogen",
    "webhookConfiguration",
    "evaluation",
];
const MUTATING_KEYS: [&str; 9] = [
    "matchConstraints",
    "matchConditions",
    "variables",
    "mutations",
    "failurePolicy",
    "reinvocationPolicy",
    "autogen",
    "webhookConfiguration",
    "evaluation",
];
/// Keys that an admission policy does not have.
const OWN_KEYS: [&str; 4] = ["validationActions", "autogen", "webhookConfiguration", "evaluation"];

/// Names that only Kyverno declares in expressions.
const LIBRARIES: [&str; 19] = [
    "resource",
    "http",
    "image",
    "images",
    "globalContext",
    "globalcontext",
    "exceptions",
    "generator",
    "parseImageReference",
    "parseServiceAccount",
    "json",
    "yaml",
    "x509",
    "time",
    "math",
    "sha256",
    "random",
    "listObjToMap",
    "verifyImageSignatures",
];

/// Consequence of a field without a counterpart.
const UNTRANSLATED: &str = "which an admission policy has nothing for, so it would decide otherwise";
const KEEP: &str = "keep this policy in Kyverno, or write its rule without this";

/// Controllers of Pods: group, version, resource, and the path to the Pod's template.
const CONTROLLERS: [(&str, &str, &str); 6] = [
    ("apps", "daemonsets", "spec.template"),
    ("apps", "deployments", "spec.template"),
    ("apps", "replicasets", "spec.template"),
    ("apps", "statefulsets", "spec.template"),
    ("batch", "jobs", "spec.template"),
    ("batch", "cronjobs", "spec.jobTemplate.spec.template"),
];

/// Admission policies in place of one policy of Kyverno.
#[derive(Debug)]
pub(super) struct Translation {
    /// Name of the policy in Kyverno.
    pub(super) name: String,
    /// Policies, each with its binding behind it.
    pub(super) documents: Vec<Value>,
    /// Features of Kyverno that are dropped without a change of the verdict.
    pub(super) notes: Vec<String>,
}

/// Returns true if a document is of `policies.kyverno.io`.
pub(super) fn is_kyverno_policy(document: &Value) -> bool {
    text_at(document, "/apiVersion").starts_with("policies.kyverno.io/")
}

/// Translates a policy of `policies.kyverno.io`. Reports what cannot be translated; then it returns `None`.
pub(super) fn translation(field: &Field<'_>) -> Option<Translation> {
    let before = field.problem_count();
    if !["v1", "v1beta1", "v1alpha1"]
        .iter()
        .any(|known| text_at(field.value, "/apiVersion").ends_with(&format!("/{known}")))
    {
        let fix = "write policies.kyverno.io/v1, v1beta1 or v1alpha1";
        field.required("apiVersion", UNTRANSLATED, fix)?.problem("is not a known version", UNTRANSLATED, fix);
    }
    let written = text_at(field.value, "/kind");
    let kind = written.strip_prefix("Namespaced").unwrap_or(written);
    let (is_validating, keys) = match kind {
        "ValidatingPolicy" => (true, VALIDATING_KEYS.as_slice()),
        "MutatingPolicy" => (false, MUTATING_KEYS.as_slice()),
        _ => {
            field.required("kind", UNTRANSLATED, KEEP)?.problem(
                "is neither a ValidatingPolicy nor a MutatingPolicy",
                UNTRANSLATED,
                "keep it in Kyverno",
            );
            return None;
        }
    };
    let metadata = field.required("metadata", UNTRANSLATED, "write metadata.name")?;
    let own_name = metadata.required("name", "so no binding finds it", "write a name")?.text()?;
    let spec = field.required("spec", UNTRANSLATED, "write the policy")?;
    let Some(map) = spec.value.as_object() else {
        spec.problem("is not a map", UNTRANSLATED, "write the policy");
        return None;
    };
    for key in map.keys().filter(|key| !keys.contains(&key.as_str())) {
        if let Some(unknown) = spec.get(key) {
            unread(&unknown);
        }
    }
    let mut notes = Vec::new();
    let namespace = match written != kind {
        true => Some(metadata.required("namespace", "which says where it decides", "write its namespace")?.text()?),
        false => None,
    };
    let name = namespace.map_or_else(|| own_name.to_owned(), |namespace| format!("{namespace}.{own_name}"));
    if let Some(evaluation) = spec.get("evaluation") {
        notes.extend(evaluated(&evaluation));
    }
    if spec.get("webhookConfiguration").is_some() {
        notes.push("webhookConfiguration is left out: policies have no timeout of their own".to_owned());
    }
    let binding = binding(is_validating, namespace, spec.get("validationActions").map(|actions| actions.value));
    let mut admission: Map<String, Value> = map
        .iter()
        .filter(|(key, _)| !OWN_KEYS.contains(&key.as_str()))
        .map(|(key, own)| (key.clone(), own.clone()))
        .collect();
    if !is_validating {
        admission.entry("reinvocationPolicy").or_insert_with(|| json!("Never"));
        admission.entry("failurePolicy").or_insert_with(|| json!("Fail"));
    }
    let mut specs = vec![(name.clone(), Value::Object(admission.clone()))];
    let controllers = controllers(&spec, &mut notes);
    if is_pod_rule(&admission) && !controllers.is_empty() {
        if is_validating {
            specs.extend(for_controllers(&name, &admission, &controllers));
            notes.push(
                "the policies with -autogen- in their names are the rules that Kyverno generates for pod controllers"
                    .to_owned(),
            );
        } else {
            notes.push("autogen: Pods are mutated, and the templates of their controllers are not".to_owned());
        }
    }
    let admission_kind = if is_validating { "ValidatingAdmissionPolicy" } else { "MutatingAdmissionPolicy" };
    let mut described = json!({});
    for key in ["labels", "annotations"] {
        if let Some(own) = metadata.get(key) {
            described[key] = own.value.clone();
        }
    }
    let mut documents = Vec::new();
    for (name, spec) in specs {
        if field.problem_count() > before {
            return None;
        }
        let mut metadata = described.clone();
        metadata["name"] = name.as_str().into();
        let mut binding = binding.clone();
        binding["policyName"] = name.as_str().into();
        let policy = json!({"apiVersion": ADMISSION, "kind": admission_kind, "metadata": metadata, "spec": spec});
        compiled(field, &policy);
        documents.push(policy);
        documents.push(json!({
            "apiVersion": ADMISSION,
            "kind": format!("{admission_kind}Binding"),
            "metadata": {"name": name},
            "spec": binding,
        }));
    }
    (field.problem_count() == before).then_some(Translation { name: own_name.to_owned(), documents, notes })
}

fn unread(field: &Field<'_>) {
    field.problem("is a key of Kyverno", UNTRANSLATED, KEEP);
}

/// Reads `evaluation`. Returns notes about omitted fields.
fn evaluated(evaluation: &Field<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    for (key, value) in evaluation.pairs() {
        let enabled = value.value.get("enabled");
        match (key.as_str(), value.value.as_str()) {
            ("mode", Some("Kubernetes")) => {}
            ("background", _) => {
                notes.push("evaluation.background is left out: objects that are stored are not scanned".to_owned());
            }
            ("admission", _) if enabled != Some(&json!(false)) => {}
            ("mutateExisting", _) if enabled != Some(&json!(true)) => {}
            _ => unread(&value),
        }
    }
    notes
}

/// Returns the spec of a binding, without the name of its policy.
fn binding(is_validating: bool, namespace: Option<&str>, actions: Option<&Value>) -> Value {
    let mut binding = json!({});
    if is_validating {
        let actions = actions.filter(|actions| actions.as_array().is_none_or(|actions| !actions.is_empty()));
        binding["validationActions"] = actions.cloned().unwrap_or_else(|| json!(["Deny"]));
    }
    if let Some(namespace) = namespace {
        // A namespaceSelector alone would let through everything outside of namespaces.
        binding["matchResources"] = json!({
            "namespaceSelector": {"matchLabels": {NAME_LABEL: namespace}},
            "resourceRules": [{
                "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"], "scope": "Namespaced",
            }],
        });
    }
    binding
}

/// Returns the controllers for which Kyverno generates rules: all, unless `autogen` names some.
fn controllers(spec: &Field<'_>, notes: &mut Vec<String>) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut named = None;
    for (key, value) in spec.get("autogen").map_or_else(Vec::new, |autogen| autogen.pairs()) {
        match key.as_str() {
            "podControllers" => named = value.get("controllers").map(|controllers| controllers.texts()),
            "validatingAdmissionPolicy" | "mutatingAdmissionPolicy" => {
                notes.push(format!("autogen.{key} is left out: delete the policies that Kyverno has generated of it"));
            }
            _ => unread(&value),
        }
    }
    CONTROLLERS
        .into_iter()
        .filter(|(_, resource, _)| named.as_ref().is_none_or(|named| named.iter().any(|name| name == resource)))
        .collect()
}

/// Returns true if Kyverno would generate rules for controllers: the policy is about Pods, and about all of them.
fn is_pod_rule(spec: &Map<String, Value>) -> bool {
    let Some(constraints) = spec.get("matchConstraints") else { return false };
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map
            .values()
            .all(|value| value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    let Some([rule]) = constraints["resourceRules"].as_array().map(Vec::as_slice) else { return false };
    let resources: Vec<&str> = rule["resources"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    is_empty(&constraints["objectSelector"])
        && is_empty(&constraints["excludeResourceRules"])
        && is_empty(&rule["resourceNames"])
        && rule["apiGroups"] == json!([""])
        && rule["apiVersions"] == json!(["v1"])
        && resources.contains(&"pods")
        && resources.iter().all(|resource| ["pods", "pods/ephemeralcontainers"].contains(resource))
}

/// Returns the specs of the rules for controllers, with their names. As Kyverno does, it puts the path of the Pod's
/// template into the texts.
fn for_controllers(
    name: &str,
    spec: &Map<String, Value>,
    controllers: &[(&'static str, &'static str, &'static str)],
) -> Vec<(String, Value)> {
    let mut specs = Vec::new();
    for (suffix, template) in [("defaults", "spec.template"), ("cronjobs", "spec.jobTemplate.spec.template")] {
        let mut rules = Vec::new();
        let operations = &spec["matchConstraints"]["resourceRules"][0]["operations"];
        for group in ["apps", "batch"] {
            let own = controllers.iter().filter(|(of, _, path)| *of == group && *path == template);
            let resources: Vec<&str> = own.map(|(_, resource, _)| *resource).collect();
            if !resources.is_empty() {
                rules.push(json!({
                    "apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": resources,
                }));
            }
        }
        if rules.is_empty() {
            continue;
        }
        let mut own = Value::Object(spec.clone());
        let constraints = own["matchConstraints"].take();
        rewrite(&mut own, template);
        own["matchConstraints"] = constraints;
        own["matchConstraints"]["resourceRules"] = rules.into();
        specs.push((format!("{name}-autogen-{suffix}"), own));
    }
    specs
}

fn rewrite(value: &mut Value, template: &str) {
    match value {
        Value::String(text) => {
            for object in ["object", "oldObject"] {
                for part in ["spec", "metadata"] {
                    *text = replaced(text, &format!("{object}.{part}"), &format!("{object}.{template}.{part}"));
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| rewrite(value, template)),
        Value::Object(map) => map.values_mut().for_each(|value| rewrite(value, template)),
        _ => {}
    }
}

/// Replaces a path, except where the name or the namespace follows: those of a controller are its own.
fn replaced(text: &str, from: &str, to: &str) -> String {
    let is_own = |rest: &str| {
        [".namespace", ".name"].iter().any(|own| {
            let next = rest.strip_prefix(own).map(|rest| rest.chars().next());
            next.is_some_and(|next| next.is_none_or(|sign| sign != '_' && !sign.is_ascii_alphanumeric()))
        })
    };
    let mut parts = text.split(from);
    let mut output = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        output.push_str(if is_own(part) { from } else { to });
        output.push_str(part);
    }
    output
}

/// Reports the obstacles to serving a translated policy, at the place in the policy it comes from.
fn compiled(field: &Field<'_>, policy: &Value) {
    let source = SourceFile { name: "policy.json".to_owned(), bytes: policy.to_string().into() };
    let Err(problems) = gatepost_config::load(&[source], &|_| Err(std::io::ErrorKind::NotFound.into())) else { return };
    for mut problem in problems {
        let library = LIBRARIES
            .iter()
            .find(|name| problem.what.contains(&format!("'{name}'")) || problem.what.contains(&format!("`{name}`")));
        if let Some(name) = library {
            problem.fix = format!("{name} is of Kyverno's own library: {KEEP}");
        }
        field.problem_at(problem);
    }
}
