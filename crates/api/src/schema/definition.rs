//! Definition: a kind of ours as a CustomResourceDefinition.
//!
//! Its schema is structural: that of schemars, without references and null, with the type of every value, and with
//! words as an `enum`. Source: "Specifying a structural schema" in Kubernetes' documentation of custom resources.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::configuration::{AdmissionControlConfiguration, BreakGlass};

/// The API group of our kinds.
pub const GROUP: &str = "gatepost.dev";
/// The version of our kinds.
pub const VERSION: &str = "v1alpha1";

/// Returns the definitions of our kinds for `kubectl apply`, `AdmissionControlConfiguration` first.
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

/// Builds a definition from the parts of a kind and the parts that all definitions have.
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

/// Keys that have no meaning in OpenAPI v3, or none in a cluster.
const UNSUPPORTED_KEYS: [&str; 4] = ["$schema", "title", "$defs", "definitions"];

/// Returns the structural schema of a type.
pub(super) fn schema_of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    make_structural(&mut schema);
    schema
}

/// Makes a schema and the schemas in it structural.
fn make_structural(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    UNSUPPORTED_KEYS.iter().for_each(|key| drop(map.remove(*key)));
    remove_null(map);
    merge_words(map);
    normalize_format(map);
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = join_lines(text);
    }
    if map.get("type") == Some(&json!("array")) {
        // A list without a merge key is atomic.
        map.entry("x-kubernetes-list-type").or_insert(json!("atomic"));
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(make_structural);
    }
    for inner in ["items", "additionalProperties"] {
        map.get_mut(inner).into_iter().for_each(make_structural);
    }
}

/// Removes null. A cluster drops null values before it checks the schema, so optional fields need not allow null.
fn remove_null(map: &mut Map<String, Value>) {
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
    // "X or null" becomes X. The keys beside `anyOf` belong to this field, and override the keys of X.
    if let Some(Value::Array(choices)) = map.get("anyOf")
        && let [Value::Object(one)] = choices.as_slice()
    {
        let one = one.clone();
        map.remove("anyOf");
        one.into_iter().for_each(|(key, value)| _ = map.entry(key).or_insert(value));
    }
}

/// Merges words that each have a description into one `enum`, and appends the descriptions to the schema's own.
fn merge_words(map: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = map.remove("oneOf") else { return };
    let (mut words, mut message) = (Vec::new(), Vec::new());
    for choice in &choices {
        if let Some(word) = choice.get("const") {
            let said = choice.get("description").and_then(Value::as_str).unwrap_or_default();
            message.push(format!("{}: {}", word.as_str().unwrap_or_default(), lower_first(&join_lines(said))));
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

/// Replaces a format by one that a cluster knows, or removes it.
fn normalize_format(map: &mut Map<String, Value>) {
    let known = match map.get("format").and_then(Value::as_str) {
        Some("uint8" | "uint16" | "int8" | "int16" | "int32") => "int32",
        Some("uint32" | "uint64" | "int64") => "int64",
        Some("double" | "float") => "double",
        Some("date-time") => "date-time",
        _ => return drop(map.remove("format")),
    };
    map.insert("format".into(), json!(known));
    // schemars writes the bounds of integers as fractions.
    for bound in ["minimum", "maximum"] {
        if known != "double"
            && let Some(number) = map.get(bound).and_then(Value::as_f64)
        {
            map.insert(bound.into(), json!(number as i64));
        }
    }
}

/// Joins the lines of each paragraph.
fn join_lines(text: &str) -> String {
    text.split("\n\n").map(|part| part.replace('\n', " ")).collect::<Vec<_>>().join("\n\n")
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}
