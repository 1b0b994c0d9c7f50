//! Object: one webhook configuration of a cluster, as a file of our configuration.

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use gatepost_operator::command::yaml;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use gatepost_adopt::without_our_condition;
use gatepost_api::HookType;
use gatepost_cel::Condition;
use gatepost_config::{NOT_STATIC, STATIC};
use gatepost_kube_support::is_our_own;

/// Fields of the metadata that only an apiserver sets.
const BOOKKEEPING: [&str; 6] =
    ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Maximum length of an object's name in a file name, in bytes. File names are limited to 255, temporary ones included.
const MAX_NAME_BYTES: usize = 200;

/// One webhook configuration, ready to be written.
#[derive(Debug, PartialEq)]
pub(super) struct Object {
    pub(super) hook_type: HookType,
    /// Name in the cluster.
    pub(super) name: String,
    /// Names of the hooks that a Gatepost calls in place of the apiserver.
    pub(super) adopted: Vec<String>,
    value: Value,
}

impl Object {
    /// Creates an object from an item of a list, without the fields that only the cluster needs.
    ///
    /// # Errors
    /// A message, if the item is invalid. An apiserver stores no such object.
    pub(super) fn new(hook_type: HookType, mut value: Value) -> Result<Self, String> {
        let metadata = value.get_mut("metadata").and_then(Value::as_object_mut).ok_or("an object has no metadata")?;
        let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if name.is_empty() || !name.chars().all(named) {
            return Err(format!("an object is named {name:?}, which is not a valid name"));
        }
        metadata.retain(|key, _| !BOOKKEEPING.contains(&&**key));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        // Objects in the store are never static.
        if name.ends_with(STATIC)
            && let Value::Object(annotations) = metadata.entry("annotations").or_insert_with(|| json!({}))
        {
            annotations.insert(NOT_STATIC.0.to_owned(), NOT_STATIC.1.into());
        }
        let mut adopted = Vec::new();
        let webhooks = value.get_mut("webhooks").and_then(Value::as_array_mut);
        for entry in webhooks.into_iter().flatten() {
            let (bare, condition) = without_our_condition(entry.take());
            adopted.extend(condition.map(|_| bare["name"].as_str().unwrap_or_default().to_owned()));
            *entry = bare;
        }
        Ok(Self { hook_type, name, adopted, value: sorted(value) })
    }

    /// Returns true if the object is a registration of Gatepost.
    pub(super) fn is_our_own(&self) -> bool {
        is_our_own(&self.value)
    }

    /// Returns the name of its file. A name that is too long is cut and ends with a digest.
    pub(super) fn file(&self) -> String {
        let (prefix, name) = (self.hook_type.as_str().to_lowercase(), &self.name);
        match name.get(..MAX_NAME_BYTES) {
            Some(start) if name.len() > MAX_NAME_BYTES => {
                let digest: String = Sha256::digest(name).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
                format!("{prefix}-{start}-{digest}.yaml")
            }
            _ => format!("{prefix}-{name}.yaml"),
        }
    }

    /// Returns the text of its file.
    pub(super) fn text(&self) -> Result<String, String> {
        yaml(&self.value).map_err(|error| format!("{} cannot be written as YAML: {error}", self.name))
    }

    /// Returns the names of its hooks with a Service, each with the host name of the Service.
    pub(super) fn services(&self) -> impl Iterator<Item = (&str, String)> {
        self.hooks().filter_map(|hook| {
            let service = hook["clientConfig"]["service"].as_object()?;
            let part = |key| service.get(key).and_then(Value::as_str).unwrap_or_default();
            Some((hook["name"].as_str()?, format!("{}.{}.svc", part("name"), part("namespace"))))
        })
    }

    /// Returns the names of its hooks with a `namespaceSelector` that is not empty.
    pub(super) fn namespace_selectors(&self) -> impl Iterator<Item = &str> {
        let selects =
            |hook: &&Value| hook["namespaceSelector"].as_object().is_some_and(|selector| !selector.is_empty());
        self.hooks().filter(selects).filter_map(|hook| hook["name"].as_str())
    }

    /// Returns the names of its hooks whose conditions query the authorizer.
    pub(super) fn authorizer_hooks(&self) -> impl Iterator<Item = &str> {
        let uses = |hook: &&Value| {
            let mut conditions = hook["matchConditions"].as_array().into_iter().flatten();
            conditions.any(|condition| condition["expression"].as_str().is_some_and(uses_authorizer))
        };
        self.hooks().filter(uses).filter_map(|hook| hook["name"].as_str())
    }

    fn hooks(&self) -> impl Iterator<Item = &Value> {
        self.value["webhooks"].as_array().into_iter().flatten()
    }
}

/// Returns true if the condition queries the authorizer. Returns false if it cannot be compiled and so is not served.
fn uses_authorizer(expression: &str) -> bool {
    Condition::compile("", expression).is_ok_and(|condition| condition.uses_authorizer())
}

/// Returns the value with the keys of every map sorted, even if the JSON library keeps their order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// Maximum number of names in a list. Further names are only counted.
const MAX_LISTED_NAMES: usize = 5;

/// Returns the steps by which Gatepost replaces the originals of these objects, without a moment in which nobody calls
/// their hooks, and the requirements of the hooks. `kept` are objects that stay in the cluster because they cannot be
/// served. `sound` is true if the files have no problems.
pub(super) fn advice(folder: &Path, objects: &[Object], kept: &[Object], sound: bool) -> String {
    if objects.is_empty() {
        return String::from("\nThere is nothing to move behind Gatepost. Park nothing.\n");
    }
    let mut out = String::from(
        "\nNext, to serve these files in the originals' place (where `gatepost adopt` takes the originals over instead, \
         park nothing and skip these steps):\n",
    );
    let mut step = 0;
    let mut next = |text: &str| {
        step += 1;
        let _ = writeln!(out, "  {step}. {text}");
    };
    let folder = folder.display();
    if !sound {
        next(&format!("solve the problems above, until `gatepost check {folder}` finds none"));
    }
    let selecting: Vec<_> = objects.iter().flat_map(Object::namespace_selectors).collect();
    let with_authorizer: Vec<_> = objects.iter().flat_map(Object::authorizer_hooks).collect();
    let authorizer = if with_authorizer.is_empty() { "" } else { " --authorizer" };
    next(&format!(
        "see that every hook answers, on each machine that Gatepost will run on: gatepost check --connect{authorizer} \
         {folder}"
    ));
    let from = if selecting.is_empty() && with_authorizer.is_empty() { "" } else { " --namespaces-from KUBECONFIG" };
    next(&format!("serve them: gatepost serve --config {folder} --tls-cert FILE --tls-key FILE{from}"));
    next("register Gatepost with the apiserver: gatepost register --help");
    next("see in /metrics that reviews arrive; until the next step every hook is called twice");
    for hook_type in [HookType::Mutating, HookType::Validating] {
        let names: Vec<_> = of_type(objects, hook_type).map(|object| object.name.as_str()).collect();
        if !names.is_empty() {
            let (kind, originals) = (hook_type.as_str().to_lowercase(), names.join(", "));
            next(&format!("park the originals ({originals}): gatepost import --park --kind {kind} {folder}"));
        }
    }
    let mut notes = Vec::new();
    if of_type(objects, HookType::Mutating).next().is_some() {
        notes.push(
            "mutating hooks are registered apart (gatepost register --kind mutating), and count in the order of their \
             configurations' names; between two of them the apiserver sets no defaults"
                .to_owned(),
        );
    }
    let kept: Vec<_> = kept.iter().map(|object| object.name.as_str()).collect();
    if !kept.is_empty() {
        notes.push(format!("{} stay in the cluster, too: Gatepost cannot serve them (above)", kept.join(", ")));
    }
    notes.push(
        "hooks with side effects of their own (quotas, ledgers) should not be registered twice: in a quiet hour, \
         park their originals first, and register Gatepost right after"
            .to_owned(),
    );
    let services: Vec<_> = objects.iter().flat_map(Object::services).collect();
    if !services.is_empty() {
        let hosts: BTreeSet<_> = services.iter().map(|(_, host)| host.as_str()).collect();
        notes.push(format!(
            "hooks that name a Service: {}; Gatepost asks for {}, and beside the apiserver such names may not resolve: \
             write the Service's cluster IP and this name into the hosts file there (keep the name, since the \
             hook's certificate has it), or let that host ask the cluster's DNS",
            services.len(),
            list_names(hosts.into_iter()),
        ));
    }
    let adopted: Vec<_> = objects.iter().flat_map(|object| &object.adopted).map(String::as_str).collect();
    for (hooks, what, need) in [
        (
            selecting,
            "with a namespaceSelector",
            "reviews do not carry the labels of namespaces: let --namespaces-from name a kubeconfig (or in-cluster) \
             whose user may get, list and watch namespaces; without it a review that such a hook may want is rejected",
        ),
        (
            with_authorizer,
            "with matchConditions that ask the authorizer",
            "let --namespaces-from name a kubeconfig (or in-cluster) whose user may create subjectaccessreviews; \
             without it the configuration is refused",
        ),
        (
            adopted,
            "that a Gatepost with --adopt calls already",
            "the files are without its condition: give them back first (gatepost release), or leave them out here",
        ),
    ] {
        if !hooks.is_empty() {
            let names = list_names(hooks.iter().copied());
            notes.push(format!("hooks {what}: {} ({names}); {need}", hooks.len()));
        }
    }
    notes.push(
        "the certificate authorities in the files are copies: when an issuer renews them in the cluster, import again"
            .to_owned(),
    );
    notes.push("an operator or Helm release that owns an original may bring it back: end that there".to_owned());
    out.push_str("Mind:\n");
    for note in notes {
        let _ = writeln!(out, "  - {note}");
    }
    out
}

fn of_type(objects: &[Object], hook_type: HookType) -> impl Iterator<Item = &Object> {
    objects.iter().filter(move |object| object.hook_type == hook_type)
}

fn list_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(MAX_LISTED_NAMES);
    let first = names.take(MAX_LISTED_NAMES).collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use gatepost_kube_support::MANAGED_BY;

    fn object(metadata: Value) -> Value {
        json!({"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": metadata,
        "webhooks": [
            {"name": "a.example.com", "clientConfig": {"service": {"name": "s", "namespace": "n"}, "caBundle": "aGk="},
             "namespaceSelector": {}, "timeoutSeconds": 5},
            {"name": "b.example.com", "clientConfig": {"url": "https://b"}, "namespaceSelector": {"matchLabels": {"x": "on"}}},
        ]})
    }

    #[test]
    fn import_drops_bookkeeping_fields() {
        let full = json!({"name": "x.y", "uid": "1", "resourceVersion": "2", "generation": 3, "selfLink": "/x",
            "creationTimestamp": "2026-11-21T00:00:00Z", "managedFields": [{}], "labels": {"keep": "me"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}});
        let bare = Object::new(HookType::Validating, object(json!({"name": "x.y", "labels": {"keep": "me"}}))).unwrap();
        let stripped = Object::new(HookType::Validating, object(full)).unwrap();
        assert_eq!(stripped, bare);
        assert_eq!(stripped.text().unwrap(), bare.text().unwrap());
        assert!(stripped.text().unwrap().starts_with("apiVersion: admissionregistration.k8s.io/v1\nkind: Val"));
    }

    #[test]
    fn import_drops_the_condition_of_adopted_webhooks() {
        let mut marked = object(json!({"name": "x"}));
        let condition = json!([{"name": "gatepost.dev/served", "expression": "false"}]);
        marked["webhooks"][1]["matchConditions"] = condition;
        let bare = Object::new(HookType::Validating, object(json!({"name": "x"}))).unwrap();
        let copied = Object::new(HookType::Validating, marked).unwrap();
        assert_eq!(
            (copied.text().unwrap(), &*copied.adopted),
            (bare.text().unwrap(), &["b.example.com".to_owned()][..])
        );
        assert!(bare.adopted.is_empty());
    }

    #[test]
    fn import_keeps_other_annotations() {
        let annotations =
            json!({"name": "x", "annotations": {LAST_APPLIED: "{}", "cert-manager.io/inject-ca-from": "n/c"}});
        let text = Object::new(HookType::Mutating, object(annotations)).unwrap().text().unwrap();
        assert!(text.contains("cert-manager.io/inject-ca-from") && !text.contains("last-applied"), "{text}");
    }

    #[test]
    fn import_marks_stored_objects_as_not_static() {
        let text = |name| Object::new(HookType::Validating, object(json!({"name": name}))).unwrap().text().unwrap();
        assert!(text("x.static.k8s.io").contains("gatepost.dev/static: \"false\""), "{}", text("x.static.k8s.io"));
        assert!(!text("x.k8s.io").contains("annotations"));
    }

    #[test]
    fn import_names_files_after_type_and_object() {
        let named = |hook_type, name: &str| Object::new(hook_type, object(json!({"name": name})));
        assert_eq!(named(HookType::Validating, "a.b-c").unwrap().file(), "validating-a.b-c.yaml");
        assert_eq!(named(HookType::Mutating, "a").unwrap().file(), "mutating-a.yaml");
        let (one, other) = ("a".repeat(252) + "b", "a".repeat(253));
        let [one, other] = [one, other].map(|name| named(HookType::Validating, &name).unwrap().file());
        assert!(one != other && one.len() < 240, "{one}");
        for wrong in ["", "../x", "a/b", "A", "a b"] {
            assert!(named(HookType::Validating, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn import_knows_our_registration_by_its_label() {
        let labelled = |value| {
            let metadata = json!({"name": "g", "labels": {MANAGED_BY.0: value}});
            Object::new(HookType::Validating, object(metadata))
        };
        assert!(labelled("gatepost").unwrap().is_our_own());
        assert!(!labelled("Helm").unwrap().is_our_own());
    }

    #[test]
    fn import_finds_hooks_with_services_and_namespace_selectors() {
        let object = Object::new(HookType::Validating, object(json!({"name": "x"}))).unwrap();
        assert_eq!(object.services().collect::<Vec<_>>(), [("a.example.com", "s.n.svc".to_owned())]);
        assert_eq!(object.namespace_selectors().collect::<Vec<_>>(), ["b.example.com"]);
    }

    fn with_webhooks(hook_type: HookType, webhooks: Value) -> Object {
        Object::new(hook_type, json!({"metadata": {"name": "x"}, "webhooks": webhooks})).unwrap()
    }

    #[test]
    fn import_advice_parks_originals_last() {
        let objects = [with_webhooks(HookType::Validating, json!([])), with_webhooks(HookType::Mutating, json!([]))];
        let printed = advice(Path::new("f"), &objects, &[], true);
        assert!(
            printed.contains("1. see that every hook answers") && printed.contains("check --connect f\n"),
            "{printed}"
        );
        assert!(
            printed.contains("5. park the originals (x): gatepost import --park --kind mutating f\n")
                && printed.contains("6. park the originals (x): gatepost import --park --kind validating f\n"),
            "{printed}"
        );
        assert!(printed.contains("--kind mutating") && !printed.contains("hosts file"), "{printed}");
        assert!(printed.contains("serve --config f --tls-cert FILE --tls-key FILE\n"), "{printed}");
        assert!(
            printed.contains("should not be registered twice") && !printed.contains("--namespaces-from"),
            "{printed}"
        );
        assert!(advice(Path::new("f"), &objects, &[], false).contains("1. solve the problems"));
        let validating = advice(Path::new("f"), &objects[..1], &[], true);
        assert!(!validating.contains("mutating") && validating.contains("--park --kind val"), "{validating}");
        assert!(advice(Path::new("f"), &[], &objects, true).contains("nothing to move"));
    }

    #[test]
    fn import_advice_keeps_originals_that_are_not_served() {
        let named = |name: &str| Object::new(HookType::Validating, json!({"metadata": {"name": name}})).unwrap();
        let printed = advice(Path::new("f"), &[named("served")], &[named("kept")], true);
        assert!(printed.contains("park the originals (served): "), "{printed}");
        assert!(printed.contains("kept stay in the cluster, too"), "{printed}");
    }

    #[test]
    fn import_advice_names_hooks_with_needs() {
        let service = |n: usize| json!({"name": format!("h{n}.a.b"), "clientConfig": {"service": {"name": format!("s{n}"), "namespace": "n"}}, "namespaceSelector": {"matchLabels": {"a": "b"}}});
        let objects = [with_webhooks(HookType::Validating, (0..7).map(service).collect())];
        let printed = advice(Path::new("f"), &objects, &[], true);
        assert!(printed.contains("hooks that name a Service: 7; Gatepost asks for s0.n.svc"), "{printed}");
        assert!(printed.contains("--tls-key FILE --namespaces-from KUBECONFIG\n"), "{printed}");
        assert!(printed.contains("and 2 more") && printed.contains("namespaceSelector: 7 (h0.a.b,"), "{printed}");
        let condition = json!([{"name": "c", "expression": "authorizer.path('/x').check('get').allowed()"}]);
        let objects = [with_webhooks(HookType::Validating, json!([{"name": "a.b.c", "matchConditions": condition}]))];
        let printed = advice(Path::new("f"), &objects, &[], true);
        assert!(printed.contains("check --connect --authorizer f\n") && printed.contains("(a.b.c)"), "{printed}");
        assert!(printed.contains("--tls-key FILE --namespaces-from KUBECONFIG\n"), "{printed}");
        let condition = json!([{"name": "c", "expression": "!('authorizer' in object.metadata.labels)"}]);
        let objects = [with_webhooks(HookType::Validating, json!([{"name": "a.b.c", "matchConditions": condition}]))];
        let printed = advice(Path::new("f"), &objects, &[], true);
        assert!(printed.contains("check --connect f\n") && !printed.contains("the authorizer"), "{printed}");
    }
}
