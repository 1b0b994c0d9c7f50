//! Definition: a kind of ours as a CustomResourceDefinition.

use serde_json::{Value, json};

use super::{break_glass::BreakGlass, configuration::AdmissionControlConfiguration, structural::schema_of};

/// The API group of our kinds.
pub const GROUP: &str = "gatepost.dev";
/// The version of our kinds.
pub const VERSION: &str = "v1alpha1";

/// The definitions of our kinds, `AdmissionControlConfiguration` first, as `kubectl apply` takes them.
pub fn definitions() -> [Value; 2] {
    let mut configuration = definition(
        &json!({
            "kind": "AdmissionControlConfiguration",
            "listKind": "AdmissionControlConfigurationList",
            "plural": "admissioncontrolconfigurations",
            "singular": "admissioncontrolconfiguration",
            "shortNames": ["acc"],
        }),
        schema_of::<AdmissionControlConfiguration>(),
        json!([
            column(
                "Accepted",
                ".status.conditions[?(@.type==\"Accepted\")].status",
                "Is it in force in every replica?",
                0
            ),
            column("Reason", ".status.conditions[?(@.type==\"Accepted\")].reason", "Why, in one word", 0),
            column(
                "Message",
                ".status.conditions[?(@.type==\"Accepted\")].message",
                "Why, and which object is to blame",
                0
            ),
        ]),
    );
    configuration["spec"]["versions"][0]["subresources"] = json!({ "status": {} });
    let break_glass = definition(
        &json!({
            "kind": "BreakGlass",
            "listKind": "BreakGlassList",
            "plural": "breakglasses",
            "singular": "breakglass",
        }),
        schema_of::<BreakGlass>(),
        json!([
            column("Until", ".until", "When it ends by itself", 0),
            column("By", ".by", "Who opened it", 0),
            column("Reason", ".reason", "Why", 0),
        ]),
    );
    [configuration, break_glass]
}

/// Parts common to all definitions.
fn definition(names: &Value, mut schema: Value, mut columns: Value) -> Value {
    let common = [
        ("apiVersion", json!({ "type": "string", "description": "The version of this kind of object." })),
        ("kind", json!({ "type": "string", "description": "The kind of this object." })),
        ("metadata", json!({ "type": "object" })),
    ];
    for (key, value) in common {
        schema["properties"][key] = value;
    }
    if let Some(columns) = columns.as_array_mut() {
        columns.push(json!({ "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" }));
    }
    let plural = names["plural"].as_str().unwrap_or_default();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Cluster",
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": columns,
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

fn column(name: &str, path: &str, description: &str, priority: u8) -> Value {
    let mut column = json!({ "name": name, "type": "string", "jsonPath": path, "description": description });
    if priority > 0 {
        column["priority"] = json!(priority);
    }
    column
}
