//! Translation of Gatekeeper's templates and constraints in CEL into admission policies of Kubernetes with bindings.
//! Source: `pkg/drivers/k8scel` and `pkg/mutation/match` of `github.com/open-policy-agent/gatekeeper/v3`.
//!
//! Gatekeeper binds one policy of the template to each constraint as its params, so that the CRD of the constraint must
//! be in the cluster. Here a constraint becomes a policy of its own, with its parameters written into it. What it
//! matches is decided as Gatekeeper's webhook does, and not as its generated policies do, which know less.

use std::collections::BTreeMap;

use gatepost_api::builtin::builtin;
use gatepost_config::SourceFile;
use serde_json::{Value, json};

use super::{
    cluster::{plural, text_at},
    document::Field,
};

/// Engine of templates in CEL.
const ENGINE: &str = "K8sNativeValidation";
const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const TARGET: &str = "admission.k8s.gatekeeper.sh";

const SOURCE_KEYS: [&str; 5] = ["validations", "failurePolicy", "matchCondition", "variables", "generateVAP"];
const MATCH_KEYS: [&str; 8] =
    ["kinds", "scope", "namespaces", "excludedNamespaces", "labelSelector", "namespaceSelector", "name", "source"];

/// Consequence of a field without a counterpart.
const UNTRANSLATED: &str = "so this would decide otherwise than Gatekeeper";
/// Consequence of a template or constraint that cannot be read.
const UNTESTED: &str = "so it is not known what it decides";

/// Returns true if a document is a ConstraintTemplate.
pub(super) fn is_template(document: &Value) -> bool {
    document["kind"] == "ConstraintTemplate" && text_at(document, "/apiVersion").starts_with("templates.gatekeeper.sh/")
}

/// Returns true if a document is a constraint.
pub(super) fn is_constraint(document: &Value) -> bool {
    text_at(document, "/apiVersion").starts_with("constraints.gatekeeper.sh/")
}

/// A ConstraintTemplate in CEL.
#[derive(Debug)]
pub(super) struct Template<'a> {
    source: Field<'a>,
    operations: Option<Field<'a>>,
    /// Schema of the parameters.
    schema: &'a Value,
    /// Kind of its constraints.
    pub(super) kind: &'a str,
}

/// Reads a template. Reports one that is not in CEL; then it returns `None`.
pub(super) fn template<'a>(field: &Field<'a>) -> Option<Template<'a>> {
    let spec = field.required("spec", UNTESTED, "write the template")?;
    let schema = spec.value.pointer("/crd/spec/validation/openAPIV3Schema").unwrap_or(&Value::Null);
    let kind = ["crd", "spec", "names"].into_iter().try_fold(spec.clone(), |at, key| at.get(key));
    let kind = kind.and_then(|names| names.get("kind")?.text());
    let Some(kind) = kind else {
        spec.problem("has no crd.spec.names.kind", UNTESTED, "write the kind of its constraints");
        return None;
    };
    let targets = spec.required("targets", UNTESTED, "write one target")?;
    let items = targets.items();
    let [target] = items.as_slice() else {
        targets.problem("is not one target", "which is all that Gatekeeper accepts", "write one target");
        return None;
    };
    if target.value["target"] != TARGET {
        target.problem(format!("is not for {TARGET}"), UNTRANSLATED, "keep it in Gatekeeper");
        return None;
    }
    let engines = target.get("code").map_or_else(Vec::new, |code| code.items());
    let Some(own) = engines.iter().find(|code| code.value["engine"] == ENGINE) else {
        target.problem(
            format!("has no code of the engine {ENGINE}: it is in Rego"),
            "which is neither translated nor run",
            "keep it in Gatekeeper, and its tests with gator; or write the rule in CEL",
        );
        return None;
    };
    let source = own.required("source", UNTESTED, "write validations")?;
    let operations = target.get("operations").filter(|operations| operations.value != &json!([]));
    is_source(&source).then_some(Template { source, operations, schema, kind })
}

/// Checks the source of a template: Gatekeeper ignores keys that it does not know.
fn is_source(source: &Field<'_>) -> bool {
    let before = source.problem_count();
    source.is_map_of(&SOURCE_KEYS);
    for (key, reserved) in [("variables", ["params", "anyObject"].as_slice()), ("matchCondition", &[])] {
        for item in source.get(key).map_or_else(Vec::new, |items| items.items()) {
            let Some(name) = item.get("name") else { continue };
            if name.text().is_some_and(|text| text.starts_with("gatekeeper_internal_") || reserved.contains(&text)) {
                name.problem("is a name that Gatekeeper keeps for itself", UNTRANSLATED, "rename it");
            }
        }
    }
    source.problem_count() == before
}

/// Purpose for which a constraint is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A policy to serve.
    Serve,
    /// A suite of `gator verify`, which reviews any operation. A violation is a denial, for any action.
    Test,
}

impl Purpose {
    /// Returns the enforcement points whose actions count.
    fn points(self) -> &'static [&'static str] {
        match self {
            Self::Serve => &["*", "validation.gatekeeper.sh", "vap.k8s.io"],
            Self::Test => &["*", "gator.gatekeeper.sh"],
        }
    }
}

/// A constraint as an admission policy.
#[derive(Debug)]
pub(super) struct TranslatedConstraint {
    /// The policy, and its binding.
    pub(super) documents: [Value; 2],
    /// Whether the constraint matches objects of requests.
    pub(super) matches_original: bool,
    /// Whether it matches objects that ExpansionTemplates generate.
    pub(super) matches_generated: bool,
    /// Whether an action of it counts here.
    pub(super) is_enforced: bool,
}

/// Translates a constraint of this template. Reports what cannot be translated; then it returns `None`.
pub(super) fn translation(
    template: &Template<'_>,
    constraint: &Field<'_>,
    purpose: Purpose,
) -> Option<TranslatedConstraint> {
    let before = constraint.problem_count();
    let kind = constraint.required("kind", UNTESTED, "write the kind of its template")?;
    if kind.value != template.kind {
        kind.problem(format!("is not {}, the kind of its template", template.kind), UNTESTED, "correct it");
        return None;
    }
    let metadata = constraint.required("metadata", UNTESTED, "write metadata.name")?;
    let name = metadata.required("name", UNTESTED, "write a name")?.text()?;
    let name = format!("gatekeeper-{}-{name}", template.kind.to_ascii_lowercase());
    let spec = constraint.get("spec");
    let matching = spec.as_ref().and_then(|spec| spec.get("match"));
    if let Some(matching) = &matching {
        matching.is_map_of(&MATCH_KEYS);
    }
    let part = |key: &str| matching.as_ref().and_then(|matching| matching.get(key));
    let actions = actions(spec.as_ref(), purpose);
    let source = part("source").map_or("All", |source| match source.text() {
        Some(known @ ("All" | "Original" | "Generated")) => known,
        Some("") | None => "All",
        Some(_) => {
            source.problem("is not a source", UNTRANSLATED, "write All, Original or Generated");
            "All"
        }
    });
    let rules = Rules::of(part("kinds").as_ref(), purpose);
    let mut conditions: Vec<Value> = template
        .source
        .get("matchCondition")
        .map_or_else(Vec::new, |own| own.items().iter().map(|one| one.value.clone()).collect());
    let own = [
        ("kinds", rules.condition.clone()),
        ("scope", part("scope").and_then(|scope| scope_condition(&scope))),
        ("namespaces", part("namespaces").and_then(|list| namespace_condition(&list, true))),
        ("excluded-namespaces", part("excludedNamespaces").and_then(|list| namespace_condition(&list, false))),
        ("name", part("name").and_then(|name| name_condition(&name))),
    ];
    let own = own.into_iter().filter_map(|(name, expression)| Some((name, expression?)));
    conditions.extend(
        own.map(|(name, expression)| json!({"name": format!("gatekeeper_internal_{name}"), "expression": expression})),
    );
    let mut parameters = spec.and_then(|spec| spec.get("parameters")).map_or(Value::Null, |own| own.value.clone());
    if fill_defaults(&mut parameters, template.schema, &mut { MAX_PARAMETERS }).is_none() {
        let fix = "write fewer defaults within defaults into the template's schema";
        constraint.problem("has parameters of more than 1 MiB, with their defaults", UNTRANSLATED, fix);
        return None;
    }
    let mut variables = vec![
        json!({"name": "anyObject", "expression": "request.operation == 'DELETE' && object == null ? oldObject : object"}),
        json!({"name": "params", "expression": literal(&parameters)}),
    ];
    let items = |key: &str| template.source.value[key].as_array().cloned().unwrap_or_default();
    variables.extend(items("variables"));
    let operations = match (purpose, &template.operations) {
        (Purpose::Test, _) => json!(["*"]),
        (_, Some(own)) => own.value.clone(),
        (_, None) => json!(["CREATE", "UPDATE"]),
    };
    let mut policy = json!({
        "apiVersion": ADMISSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": template.source.value.get("failurePolicy").unwrap_or(&json!("Fail")),
            "matchConstraints": {"resourceRules": rules.written(&operations)},
            "variables": variables,
            "validations": items("validations"),
        },
    });
    if !conditions.is_empty() {
        policy["spec"]["matchConditions"] = conditions.into();
    }
    let mut binding = json!({
        "apiVersion": ADMISSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": match purpose {
            Purpose::Serve => actions.clone(),
            Purpose::Test => vec!["Deny"],
        }},
    });
    for (own, key) in [("labelSelector", "objectSelector"), ("namespaceSelector", "namespaceSelector")] {
        if let Some(selector) = part(own) {
            binding["spec"]["matchResources"][key] = selector.value.clone();
        }
    }
    if constraint.problem_count() > before {
        return None;
    }
    // A binding without actions is not valid, and one that is not enforced is left out by the caller.
    if !actions.is_empty() {
        compiled(template, constraint, [&policy, &binding]);
    }
    (constraint.problem_count() == before).then_some(TranslatedConstraint {
        documents: [policy, binding],
        matches_original: source != "Generated",
        matches_generated: source != "Original",
        is_enforced: !actions.is_empty(),
    })
}

/// Returns the actions of a constraint that count, as validation actions.
fn actions(spec: Option<&Field<'_>>, purpose: Purpose) -> Vec<&'static str> {
    let action = |field: &Field<'_>| match field.text()? {
        "deny" => Some("Deny"),
        "warn" => Some("Warn"),
        "dryrun" => Some("Audit"),
        _ => {
            field.problem("is not an action", UNTRANSLATED, "write deny, warn, dryrun or scoped");
            None
        }
    };
    let Some(written) = spec.and_then(|spec| spec.get("enforcementAction")) else { return vec!["Deny"] };
    if written.value != "scoped" {
        return action(&written).into_iter().collect();
    }
    let scoped = spec.and_then(|spec| spec.get("scopedEnforcementActions")).map_or_else(Vec::new, |all| all.items());
    let counts = |one: &&Field<'_>| {
        let points = one.value["enforcementPoints"].as_array();
        points.into_iter().flatten().any(|point| purpose.points().iter().any(|known| point["name"] == *known))
    };
    let mut actions: Vec<_> = scoped.iter().filter(counts).filter_map(|one| action(&one.get("action")?)).collect();
    actions.sort_unstable();
    actions.dedup();
    // Kubernetes accepts no warning beside a denial, which says the same.
    actions.retain({
        let denies = actions.contains(&"Deny");
        move |action| !denies || *action != "Warn"
    });
    actions
}

/// Subresources that Gatekeeper's webhook is called for, besides all resources. Source: `config/webhook/manifests.yaml` of
/// Gatekeeper 3.23.
const SUBRESOURCES: [&str; 16] = [
    "pods/ephemeralcontainers",
    "pods/exec",
    "pods/log",
    "pods/eviction",
    "pods/portforward",
    "pods/proxy",
    "pods/attach",
    "pods/binding",
    "pods/resize",
    "deployments/scale",
    "replicasets/scale",
    "statefulsets/scale",
    "replicationcontrollers/scale",
    "services/proxy",
    "nodes/proxy",
    "services/status",
];

/// Those of them whose requests are of the kind of their resource, with its group and name.
const SUBRESOURCES_OF_SAME_KIND: [(&str, &str, &str); 3] =
    [("", "pods", "pods/ephemeralcontainers"), ("", "pods", "pods/resize"), ("", "services", "services/status")];

/// Rules of a policy in place of `kinds`.
#[derive(Debug)]
struct Rules {
    /// Resources by group; any if there are none.
    resources: BTreeMap<String, Vec<String>>,
    /// Condition that the rules do not express.
    condition: Option<String>,
    subresources: bool,
}

impl Rules {
    /// Returns rules for kinds: those of their resources if they are all built in, and a condition otherwise.
    fn of(kinds: Option<&Field<'_>>, purpose: Purpose) -> Self {
        let subresources = purpose == Purpose::Test;
        let mut rules = Self { resources: BTreeMap::new(), condition: None, subresources };
        let (mut terms, mut all_known) = (Vec::new(), true);
        for one in kinds.map_or_else(Vec::new, |kinds| kinds.items()) {
            one.is_map_of(&["apiGroups", "kinds"]);
            let list = |key: &str| {
                let all = one.get(key).map_or_else(Vec::new, |list| list.texts());
                if all.iter().any(|text| text == "*") { Vec::new() } else { all }
            };
            let (groups, kinds) = (list("apiGroups"), list("kinds"));
            all_known &= !groups.is_empty() && !kinds.is_empty();
            for group in &groups {
                let resources: Vec<_> = kinds.iter().map(|kind| plural(kind)).collect();
                all_known &= resources.iter().all(|resource| builtin(group, resource).is_some());
                rules.resources.entry(group.clone()).or_default().extend(resources);
            }
            let is_in = |what: &str, all: &[String]| {
                (!all.is_empty()).then(|| format!("request.kind.{what} in {}", texts(all)))
            };
            let parts: Vec<_> = [is_in("group", &groups), is_in("kind", &kinds)].into_iter().flatten().collect();
            terms.push(if parts.is_empty() { "true".to_owned() } else { parts.join(" && ") });
        }
        // In a test every subresource may come.
        if terms.is_empty() || !all_known || subresources {
            rules.resources.clear();
            rules.condition = (!terms.is_empty()).then(|| terms.join(" || "));
        }
        rules
    }

    fn written(&self, operations: &Value) -> Value {
        let rule = |groups: Value, resources: Value| json!({"apiGroups": groups, "apiVersions": ["*"], "operations": operations, "resources": resources});
        if self.resources.is_empty() {
            let mut resources = vec!["*"];
            resources.extend(SUBRESOURCES);
            let resources = if self.subresources { vec!["*/*"] } else { resources };
            return json!([rule(json!(["*"]), json!(resources))]);
        }
        let of_group = |(group, resources): (&String, &Vec<String>)| {
            let of_same_kind = SUBRESOURCES_OF_SAME_KIND
                .iter()
                .filter(|(of_group, resource, _)| of_group == group && resources.iter().any(|own| own == resource));
            let all = resources.iter().map(String::as_str).chain(of_same_kind.map(|(_, _, subresource)| *subresource));
            rule(json!([group]), all.collect())
        };
        self.resources.iter().map(of_group).collect()
    }
}

/// True in CEL for a Namespace.
const IS_NAMESPACE: &str = "(request.kind.group == '' && request.kind.kind == 'Namespace')";
/// Namespace of a request in CEL; that of a Namespace is its own name.
const NAMESPACE: &str = "(has(request.namespace) ? request.namespace : '')";

fn scope_condition(scope: &Field<'_>) -> Option<String> {
    match scope.text()? {
        "Cluster" => Some(format!("{IS_NAMESPACE} || {NAMESPACE} == ''")),
        "Namespaced" => Some(format!("!{IS_NAMESPACE} && {NAMESPACE} != ''")),
        _ => None,
    }
}

/// Returns the condition that the namespace is in a list, or that it is not. Objects outside of namespaces match both.
fn namespace_condition(list: &Field<'_>, is_in: bool) -> Option<String> {
    let terms: Vec<_> = list.texts().iter().map(|wildcard| wildcard_matches(wildcard, NAMESPACE)).collect();
    let terms = if terms.is_empty() { return None } else { terms.join(" || ") };
    Some(format!("{NAMESPACE} == '' || {}({terms})", if is_in { "" } else { "!" }))
}

fn name_condition(name: &Field<'_>) -> Option<String> {
    let wildcard = name.text()?;
    if wildcard.is_empty() {
        return None;
    }
    let part = |key: &str| format!("(has(o.metadata.{key}) ? string(o.metadata.{key}) : '')");
    let mut terms = vec![wildcard_matches(wildcard, &part("name"))];
    // If the name is to be generated, only its prefix is known.
    if wildcard.ends_with('*') {
        terms.push(wildcard_matches(wildcard, &part("generateName")));
    }
    Some(format!("[object, oldObject].exists(o, o != null && ({}))", terms.join(" || ")))
}

/// Returns an expression that is true if a text matches a wildcard of Gatekeeper, which begins or ends with an asterisk.
fn wildcard_matches(wildcard: &str, text: &str) -> String {
    let (begins, ends) = (wildcard.starts_with('*'), wildcard.ends_with('*'));
    let inner = wildcard.strip_prefix('*').unwrap_or(wildcard);
    let inner = Value::from(inner.strip_suffix('*').unwrap_or(inner));
    match (begins, ends) {
        (true, true) => format!("{text}.contains({inner})"),
        (true, false) => format!("{text}.endsWith({inner})"),
        (false, true) => format!("{text}.startsWith({inner})"),
        (false, false) => format!("{text} == {inner}"),
    }
}

fn texts(all: &[String]) -> String {
    Value::from(all).to_string()
}

/// Maximum size of parameters with the defaults of their schema: of each value one, and the length of its text.
const MAX_PARAMETERS: usize = 1 << 20;

/// Adds the defaults of a schema, as an apiserver does for custom resources. Takes their size from `left`, and returns
/// `None` if that is too little: defaults with defaults multiply.
fn fill_defaults(value: &mut Value, schema: &Value, left: &mut usize) -> Option<()> {
    *left = left.checked_sub(1 + value.as_str().map_or(0, str::len))?;
    match value {
        Value::Object(map) => {
            let properties = schema["properties"].as_object();
            for (key, schema) in properties.into_iter().flatten() {
                let is_missing =
                    |own: Option<&Value>| own.is_none_or(|own| own.is_null() && schema["nullable"] != true);
                if let Some(default) = schema.get("default").filter(|_| is_missing(map.get(key))) {
                    map.insert(key.clone(), default.clone());
                }
            }
            for (key, value) in map {
                let own = properties.and_then(|properties| properties.get(key));
                fill_defaults(value, own.unwrap_or(&schema["additionalProperties"]), left)?;
            }
        }
        Value::Array(list) => {
            for value in list {
                fill_defaults(value, &schema["items"], left)?;
            }
        }
        _ => {}
    }
    Some(())
}

/// Returns a value as an expression. Its parts are of any type, as those of a param are.
fn literal(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("dyn([{}])", list.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let pair = |(key, value): (&String, &Value)| format!("{}: {}", Value::from(key.as_str()), literal(value));
            format!("dyn({{{}}})", map.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        // A JSON text is one in CEL, and so is a number.
        one => format!("dyn({one})"),
    }
}

/// Number of variables that come before those of a template.
const OWN_VARIABLES: usize = 2;

/// Reports the obstacles to serving the policy, at the place in the template or the constraint it comes from.
fn compiled(template: &Template<'_>, constraint: &Field<'_>, documents: [&Value; 2]) {
    let bytes = documents.map(|document| format!("{document}\n")).concat();
    let source = SourceFile { name: "policy.json".to_owned(), bytes: bytes.into() };
    let Err(problems) = gatepost_config::load(&[source], &|_| Err(std::io::ErrorKind::NotFound.into())) else { return };
    for mut problem in problems {
        let path = problem.path.split_once("spec.").map_or("", |(_, path)| path);
        match template_path(template, path) {
            Some(path) => {
                problem.path = path;
                template.source.problem_at(problem);
            }
            None => {
                let part = path.strip_prefix("matchResources.").map(|part| part.replacen("objectS", "labelS", 1));
                problem.path = part.map_or_else(String::new, |part| format!("spec.match.{part}"));
                constraint.problem_at(problem);
            }
        }
    }
}

/// Returns the path in the source of a template for one in the spec of its policy; `None` if it is of the constraint.
fn template_path(template: &Template<'_>, path: &str) -> Option<String> {
    if path == "failurePolicy" || path == "validations" {
        return Some(path.to_owned());
    }
    let (key, rest) = path.split_once('[')?;
    let (index, rest) = rest.split_once(']')?;
    let (key, before) = match key {
        "validations" => (key, 0),
        "variables" => (key, OWN_VARIABLES),
        "matchConditions" => ("matchCondition", 0),
        _ => return None,
    };
    let index = index.parse::<usize>().ok()?.checked_sub(before)?;
    let count = template.source.value[key].as_array().map_or(0, Vec::len);
    (index < count).then(|| format!("{key}[{index}]{rest}"))
}
