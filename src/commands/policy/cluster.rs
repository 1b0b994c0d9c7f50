//! FixtureCluster: objects and access rules of a test, in place of a cluster.

use std::{collections::HashMap, sync::Arc};

use gatepost_api::{Labels, Selector, builtin::builtin, selector::Requirement};
use gatepost_cel::{AccessCheck, AccessDecision, AccessTarget, Subject};
use gatepost_config::NAME_LABEL;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::live::{
    authorizer::AccessRequest,
    cluster_objects::{ClusterRead, ObjectQuery, ObjectsError, ObjectsResult, ParamSelection},
};

/// Namespace of objects that name none, as kubectl has it.
pub(super) const DEFAULT_NAMESPACE: &str = "default";

/// An access rule. The first that fits a check decides it.
#[derive(Clone, Debug)]
pub(super) struct AccessRule {
    /// Attributes that the check must have.
    pub(super) attributes: Vec<(&'static str, String)>,
    /// Decision.
    pub(super) allow: bool,
    /// Reason of the decision; may be empty.
    pub(super) reason: String,
}

/// Keys of the attributes of an [`AccessRule`].
pub(super) const ACCESS_ATTRIBUTES: [&str; 8] =
    ["user", "verb", "apiGroup", "resource", "subResource", "namespace", "name", "path"];

/// Objects and access rules of a test.
#[derive(Clone, Debug, Default)]
pub(super) struct FixtureCluster {
    /// Objects, each with its namespace.
    pub(super) objects: Vec<Value>,
    /// Access rules. A check that none of them fits is denied.
    pub(super) rules: Vec<AccessRule>,
}

/// Returns the text at a JSON pointer; "" if there is none.
pub(super) fn text_at<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the group and the version of an `apiVersion`.
pub(super) fn group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Returns the resource of a kind as kubectl guesses it: lower case, in the plural.
pub(super) fn plural(kind: &str) -> String {
    let kind = kind.to_ascii_lowercase();
    let vowels = ["ay", "ey", "oy", "uy"];
    match kind.strip_suffix('y') {
        _ if kind.ends_with("endpoints") => kind,
        Some(stem) if !vowels.iter().any(|vowel| kind.ends_with(vowel)) => format!("{stem}ies"),
        _ if kind.ends_with(['s', 'x']) || kind.ends_with("ch") => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

/// Returns true if objects of that kind are in namespaces; `None` if the kind is not built in.
pub(super) fn is_namespaced(api_version: &str, kind: &str) -> Option<bool> {
    builtin(group_version(api_version).0, &plural(kind)).map(|resource| resource.namespaced)
}

/// Returns the labels of an object.
pub(super) fn labels_of(object: &Value) -> Labels {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    labels.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect()
}

/// Puts an object of a namespaced kind into this namespace if it names none.
pub(super) fn complete(object: &mut Value, namespace: &str) {
    let is_placed = !text_at(object, "/metadata/namespace").is_empty();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && !is_placed
        && !namespace.is_empty()
    {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
}

impl FixtureCluster {
    /// Returns a namespace. One that no fixture describes exists, with the label of its name only.
    pub(super) fn namespace(&self, name: &str) -> Value {
        let found = self.objects.iter().find(|object| {
            object["apiVersion"] == "v1" && object["kind"] == "Namespace" && text_at(object, "/metadata/name") == name
        });
        let mut metadata = found.and_then(|object| object["metadata"].as_object().cloned()).unwrap_or_default();
        // As in upstream, expressions do not see these.
        for hidden in ["managedFields", "ownerReferences", "selfLink"] {
            metadata.remove(hidden);
        }
        metadata.insert("name".to_owned(), name.into());
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(NAME_LABEL.to_owned(), name.into());
        }
        let part = |key: &str, other: Value| found.and_then(|object| object.get(key).cloned()).unwrap_or(other);
        let (spec, status) =
            (part("spec", json!({"finalizers": ["kubernetes"]})), part("status", json!({"phase": "Active"})));
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": spec, "status": status})
    }

    /// Returns the objects that a policy reads.
    pub(super) fn find(&self, query: &ObjectQuery) -> ObjectsResult {
        let (api_version, kind, namespace, is_namespace_given, which) = match query {
            ObjectQuery::Namespace(name) => return Ok([self.namespace(name).to_string().into()].into()),
            ObjectQuery::Params { api_version, kind, namespace, is_namespace_given, which } => {
                (api_version, kind, namespace, *is_namespace_given, which)
            }
        };
        let of_kind = |object: &&Value| object["apiVersion"] == **api_version && object["kind"] == **kind;
        let has_namespace = |object: &Value| !text_at(object, "/metadata/namespace").is_empty();
        let is_namespaced =
            is_namespaced(api_version, kind).unwrap_or_else(|| self.objects.iter().filter(of_kind).any(has_namespace));
        let is_given = is_namespace_given && self.objects.iter().any(|object| of_kind(&object));
        ObjectsError::check_namespace(is_namespaced, namespace, is_given)?;
        let selector = match which {
            ParamSelection::Selector(text) => selector(text),
            ParamSelection::Name(_) => Selector::default(),
        };
        let fits = |object: &&Value| {
            let is_named = match which {
                ParamSelection::Name(name) => text_at(object, "/metadata/name") == &**name,
                ParamSelection::Selector(_) => selector.matches(&labels_of(object)),
            };
            is_named && (!is_namespaced || text_at(object, "/metadata/namespace") == &**namespace)
        };
        let mut found: Vec<&Value> = self.objects.iter().filter(of_kind).filter(fits).collect();
        found.sort_by_key(|object| (text_at(object, "/metadata/namespace"), text_at(object, "/metadata/name")));
        Ok(found.into_iter().map(|object| object.to_string().into()).collect())
    }

    /// Decides an access check by the first rule that fits it.
    pub(super) fn decide(&self, username: &str, check: &AccessCheck) -> AccessDecision {
        let subject = match &check.subject {
            Subject::Requester => username.to_owned(),
            Subject::ServiceAccount { namespace, name } => format!("system:serviceaccount:{namespace}:{name}"),
        };
        let mut attributes: HashMap<&str, &str> = [("user", &*subject), ("verb", &*check.verb)].into();
        match &check.target {
            AccessTarget::Path(path) => attributes.extend([("path", &**path)]),
            AccessTarget::Resource(of) => attributes.extend([
                ("apiGroup", &*of.group),
                ("resource", &*of.resource),
                ("subResource", &*of.sub_resource),
                ("namespace", &*of.namespace),
                ("name", &*of.name),
            ]),
        }
        let fits =
            |rule: &&AccessRule| rule.attributes.iter().all(|(key, value)| attributes.get(key) == Some(&&**value));
        match self.rules.iter().find(fits) {
            Some(rule) => AccessDecision { allowed: rule.allow, reason: rule.reason.as_str().into(), error: None },
            None => AccessDecision::default(),
        }
    }

    /// Answers reads until all senders are dropped.
    pub(super) async fn serve_objects(self: Arc<Self>, mut reads: mpsc::Receiver<ClusterRead>) {
        while let Some(ClusterRead { query, answer }) = reads.recv().await {
            // A request that has ended reads no answer.
            answer.into_iter().for_each(|answer| _ = answer.send(self.find(&query)));
        }
    }

    /// Answers access checks until all senders are dropped.
    pub(super) async fn serve_access(self: Arc<Self>, mut requests: mpsc::Receiver<AccessRequest>) {
        while let Some(AccessRequest { username, check, answer, .. }) = requests.recv().await {
            let _ = answer.send(Ok(self.decide(&username, &check)));
        }
    }
}

/// Parses a selector in the syntax of kubectl, as [`Selector`] writes it.
fn selector(text: &str) -> Selector {
    let mut depth = 0_usize;
    let parts = text.split(|sign: char| {
        depth = match sign {
            '(' => depth + 1,
            ')' => depth.saturating_sub(1),
            _ => depth,
        };
        sign == ',' && depth == 0
    });
    let list = |list: &str| list.trim_matches(['(', ')']).split(',').map(Box::from).collect();
    let requirement = |part: &str| {
        if let Some((key, values)) = part.split_once(" notin ") {
            Requirement::NotIn(key.into(), list(values))
        } else if let Some((key, values)) = part.split_once(" in ") {
            Requirement::In(key.into(), list(values))
        } else if let Some((key, value)) = part.split_once('=') {
            Requirement::Is(key.into(), value.into())
        } else if let Some(key) = part.strip_prefix('!') {
            Requirement::DoesNotExist(key.into())
        } else {
            Requirement::Exists(part.into())
        }
    };
    Selector(parts.filter(|part| !part.is_empty()).map(requirement).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirements() -> Vec<Requirement> {
        let values = || vec!["x".into(), "y".into()];
        vec![
            Requirement::Is("a.example.com/k".into(), "v".into()),
            Requirement::In("b".into(), values()),
            Requirement::NotIn("c".into(), values()),
            Requirement::Exists("d".into()),
            Requirement::DoesNotExist("e".into()),
        ]
    }

    #[test]
    fn selector_is_read_as_it_is_written() {
        let all = Selector(requirements());
        assert_eq!(selector(&all.to_string()), all);
        for one in requirements() {
            let one = Selector(vec![one]);
            assert_eq!(selector(&one.to_string()), one);
        }
        assert_eq!(selector(""), Selector::default());
    }

    #[test]
    fn kinds_have_their_resources() {
        for (kind, resource) in [
            ("Pod", "pods"),
            ("Endpoints", "endpoints"),
            ("NetworkPolicy", "networkpolicies"),
            ("Ingress", "ingresses"),
            ("StorageClass", "storageclasses"),
            ("Gateway", "gateways"),
        ] {
            assert_eq!(plural(kind), resource);
        }
        assert_eq!(is_namespaced("apps/v1", "Deployment"), Some(true));
        assert_eq!(is_namespaced("v1", "Node"), Some(false));
        assert_eq!(is_namespaced("example.com/v1", "Widget"), None);
    }

    #[test]
    fn params_are_found_by_name_and_by_labels() {
        let map = |name: &str, namespace: &str, team: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": namespace, "labels": {"team": team}}})
        };
        let objects = vec![map("b", "shop", "x"), map("a", "shop", "x"), map("c", "shop", "y"), map("a", "other", "x")];
        let cluster = FixtureCluster { objects, rules: Vec::new() };
        let names = |namespace: &str, which| {
            let query = ObjectQuery::Params {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
                namespace: namespace.into(),
                is_namespace_given: true,
                which,
            };
            let found = cluster.find(&query).map_err(|why| why.to_string())?;
            let name = |object: &bytes::Bytes| {
                text_at(&serde_json::from_slice::<Value>(object).unwrap(), "/metadata/name").to_owned()
            };
            Ok::<_, String>(found.iter().map(name).collect::<Vec<_>>())
        };
        assert_eq!(names("shop", ParamSelection::Name("a".into())).unwrap(), ["a"]);
        assert_eq!(names("shop", ParamSelection::Selector("team=x".into())).unwrap(), ["a", "b"]);
        assert_eq!(names("shop", ParamSelection::Selector("".into())).unwrap(), ["a", "b", "c"]);
        assert_eq!(names("none", ParamSelection::Name("a".into())).unwrap(), [""; 0]);
        assert!(names("", ParamSelection::Name("a".into())).unwrap_err().contains("cluster-scoped"));
    }

    #[test]
    fn access_is_decided_by_the_first_rule_that_fits() {
        let rule = |attributes: &[(&'static str, &str)], allow| AccessRule {
            attributes: attributes.iter().map(|(key, value)| (*key, (*value).to_owned())).collect(),
            allow,
            reason: String::new(),
        };
        let rules = vec![
            rule(&[("user", "ann"), ("resource", "secrets")], false),
            rule(&[("user", "ann"), ("verb", "get")], true),
            rule(&[("path", "/healthz")], true),
        ];
        let cluster = FixtureCluster { objects: Vec::new(), rules };
        let resource = |resource: &str| {
            AccessTarget::Resource(gatepost_cel::ResourceAccess { resource: resource.into(), ..Default::default() })
        };
        let decide = |user: &str, target| {
            let check = AccessCheck { subject: Subject::Requester, verb: "get".into(), target };
            cluster.decide(user, &check).allowed
        };
        assert!(decide("ann", resource("pods")) && decide("bob", AccessTarget::Path("/healthz".into())));
        assert!(!decide("ann", resource("secrets")) && !decide("bob", resource("pods")));
    }
}
