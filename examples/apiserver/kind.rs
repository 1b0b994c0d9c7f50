//! Kind: the few kinds that are served, and what clients are told of them.

use serde_json::{Value, json};

/// One kind of objects.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) resource: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) short: &'static str,
    pub(crate) namespaced: bool,
}

/// Of the core group, version v1.
static KINDS: [Kind; 4] = [
    Kind { resource: "namespaces", kind: "Namespace", short: "ns", namespaced: false },
    Kind { resource: "configmaps", kind: "ConfigMap", short: "cm", namespaced: true },
    Kind { resource: "pods", kind: "Pod", short: "po", namespaced: true },
    Kind { resource: "resourcequotas", kind: "ResourceQuota", short: "quota", namespaced: true },
];

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

impl Kind {
    pub(crate) fn of(resource: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.resource == resource)
    }
}

/// Discovery: what is at one of its paths.
pub(crate) fn discovery(path: &str) -> Option<Value> {
    Some(match path {
        "/api" => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        "/apis" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
        "/version" => json!({"major": "1", "minor": "32", "gitVersion": "v1.32.0-gatepost-example"}),
        "/api/v1" => {
            let resources = KINDS.iter().map(|kind| {
                json!({
                    "name": kind.resource, "singularName": kind.kind.to_lowercase(), "kind": kind.kind,
                    "namespaced": kind.namespaced, "shortNames": [kind.short], "verbs": VERBS,
                })
            });
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": resources.collect::<Vec<_>>()})
        }
        _ => return None,
    })
}
