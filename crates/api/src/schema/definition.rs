//! Definition: a kind of ours as a CustomResourceDefinition.
//!
//! Its schema is structural: the one that schemars writes, without references and null, with the type of everything and
//! words as an `enum`. Source: "Specifying a structural schema" in Kubernetes' documentation of custom resources.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::configuration::{AdmissionControlConfiguration, BreakGlass};

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

/// Means nothing in OpenAPI v3, or nothing to a cluster.
const FOREIGN: [&str; 4] = ["$schema", "title", "$defs", "definitions"];

/// The structural schema of a type.
pub(super) fn schema_of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    mend(&mut schema);
    schema
}

/// Mends a schema and those within it.
fn mend(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    FOREIGN.iter().for_each(|key| drop(map.remove(*key)));
    without_null(map);
    join_words(map);
    one_format(map);
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = unwrapped(text);
    }
    if map.get("type") == Some(&json!("array")) {
        // A list without a merge key is one value.
        map.entry("x-kubernetes-list-type").or_insert(json!("atomic"));
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(mend);
    }
    for inner in ["items", "additionalProperties"] {
        map.get_mut(inner).into_iter().for_each(mend);
    }
}

/// A cluster drops a null before it looks at the schema: what may be left out need not be allowed to be null too.
fn without_null(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|name| name != "null");
        if let [one] = types.as_slice() {
            map["type"] = one.clone();
        }
    }
    for key in ["enum", "anyOf", "oneOf"] {
        if let Some(Value::Array(choices)) = map.get_mut(key) {
            choices.retain(|choice| !choice.is_null() && choice.get("type") != Some(&json!("null")));
        }
    }
    // "This or null" is this; what is said beside it is said of this place, and goes before.
    if let Some(Value::Array(choices)) = map.get("anyOf")
        && let [Value::Object(one)] = choices.as_slice()
    {
        let one = one.clone();
        map.remove("anyOf");
        one.into_iter().for_each(|(key, value)| _ = map.entry(key).or_insert(value));
    }
}

/// Words that each have a description become one `enum`, and the descriptions a part of its own.
fn join_words(map: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = map.remove("oneOf") else { return };
    let (mut words, mut message) = (Vec::new(), Vec::new());
    for choice in &choices {
        if let Some(word) = choice.get("const") {
            let said = choice.get("description").and_then(Value::as_str).unwrap_or_default();
            message.push(format!("{}: {}", word.as_str().unwrap_or_default(), lower_first(&unwrapped(said))));
            words.push(word.clone());
        }
        words.extend(choice.get("enum").and_then(Value::as_array).into_iter().flatten().cloned());
    }
    let said = map.get("description").and_then(Value::as_str).unwrap_or_default();
    let description = format!("{said}\n\n{}", message.join(" "));
    map.insert("description".into(), description.into());
    map.insert("type".into(), json!("string"));
    map.insert("enum".into(), words.into());
}

/// The formats that a cluster knows.
fn one_format(map: &mut Map<String, Value>) {
    let known = match map.get("format").and_then(Value::as_str) {
        Some("uint8" | "uint16" | "int8" | "int16" | "int32") => "int32",
        Some("uint32" | "uint64" | "int64") => "int64",
        Some("double" | "float") => "double",
        Some("date-time") => "date-time",
        _ => return drop(map.remove("format")),
    };
    map.insert("format".into(), json!(known));
    // Written as a fraction by schemars; it is a whole number.
    for bound in ["minimum", "maximum"] {
        if known != "double"
            && let Some(number) = map.get(bound).and_then(Value::as_f64)
        {
            map.insert(bound.into(), json!(number as i64));
        }
    }
}

/// Lines of one paragraph on one line.
fn unwrapped(text: &str) -> String {
    text.split("\n\n").map(|part| part.replace('\n', " ")).collect::<Vec<_>>().join("\n\n")
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}
