//! Structural: problems of an object's shape that a cluster finds by a CustomResourceDefinition's schema. Rules in CEL
//! are not looked at. Unknown keys are problems, as they are for `kubectl apply`.

use std::collections::HashSet;

use regex::Regex;
use serde_json::{Map, Value};

/// Everything that does not fit.
pub(crate) fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    visit(schema, value, "", &mut problems);
    problems
}

fn visit(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    let known = match (schema["type"].as_str(), value) {
        (Some("object"), Value::Object(map)) => return object(schema, map, path, problems),
        (Some("array"), Value::Array(items)) => return list(schema, items, path, problems),
        (Some("string"), Value::String(text)) => text_fits(schema, text),
        (Some("integer"), Value::Number(number)) => number.as_i64().is_some_and(|number| {
            schema["minimum"].as_i64().is_none_or(|least| number >= least)
                && schema["maximum"].as_i64().is_none_or(|most| number <= most)
        }),
        (Some("boolean"), Value::Bool(_)) | (Some("number"), Value::Number(_)) => true,
        _ => false,
    };
    if !known {
        problems.push(format!("{path}: {value} does not fit"));
    }
}

fn object(schema: &Value, map: &Map<String, Value>, path: &str, problems: &mut Vec<String>) {
    // A cluster drops a null where none is allowed.
    let written: Vec<_> = map.iter().filter(|(_, value)| !value.is_null()).collect();
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !written.iter().any(|(name, _)| *name == key) {
            problems.push(format!("{path}.{key} is missing"));
        }
    }
    let (free, counted) = (
        path == ".metadata" || schema["x-kubernetes-preserve-unknown-fields"] == true,
        schema["maxProperties"].as_u64(),
    );
    if counted.is_some_and(|most| map.len() as u64 > most) {
        problems.push(format!("{path}: holds too much"));
    }
    if schema["minProperties"].as_u64().is_some_and(|least| (written.len() as u64) < least) {
        problems.push(format!("{path}: holds too little"));
    }
    for (key, value) in written {
        let path = format!("{path}.{key}");
        match schema["properties"].get(key).or_else(|| schema.get("additionalProperties")) {
            Some(inner) => visit(inner, value, &path, problems),
            None if free => {}
            None => problems.push(format!("{path} is not known")),
        }
    }
    let choices = schema["anyOf"].as_array();
    if choices.is_some_and(|choices| !choices.iter().any(|choice| meets(choice, map))) {
        problems.push(format!("{path}: meets none of anyOf"));
    }
}

/// The two forms of a choice that we use.
fn meets(choice: &Value, map: &Map<String, Value>) -> bool {
    let absent = choice["not"]["required"].as_array();
    let absent = absent.is_some_and(|keys| !keys.iter().all(|key| map.contains_key(key.as_str().unwrap_or_default())));
    let texts = choice["properties"].as_object().is_some_and(|properties| {
        properties.iter().all(|(key, inner)| {
            let items = map.get(key).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).all(|text| text_fits(&inner["items"], text))
        })
    });
    absent || texts
}

fn list(schema: &Value, items: &[Value], path: &str, problems: &mut Vec<String>) {
    let count = items.len() as u64;
    let (least, most) = (schema["minItems"].as_u64(), schema["maxItems"].as_u64());
    if least.is_some_and(|least| count < least) || most.is_some_and(|most| count > most) {
        problems.push(format!("{path}: holds {count}"));
    }
    let (defaults, keys) = (&schema["items"]["properties"], schema["x-kubernetes-list-map-keys"].as_array());
    let mut seen = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        visit(&schema["items"], item, &format!("{path}[{index}]"), problems);
        let key = |key: &Value| {
            let key = key.as_str().unwrap_or_default();
            item.get(key).unwrap_or(&defaults[key]["default"]).to_string()
        };
        let identity = match schema["x-kubernetes-list-type"].as_str() {
            Some("map") => keys.into_iter().flatten().map(key).collect::<Vec<_>>(),
            Some("set") => vec![item.to_string()],
            _ => continue,
        };
        if !seen.insert(identity) {
            problems.push(format!("{path}[{index}] is there twice"));
        }
    }
}

fn text_fits(schema: &Value, text: &str) -> bool {
    let length = text.chars().count() as u64;
    let is_moment = || humantime::parse_rfc3339(text).is_ok();
    let pattern = schema["pattern"].as_str().map(|pattern| Regex::new(pattern).expect("a pattern"));
    schema["minLength"].as_u64().is_none_or(|least| length >= least)
        && schema["maxLength"].as_u64().is_none_or(|most| length <= most)
        && (schema["format"] != "date-time" || is_moment())
        && pattern.is_none_or(|pattern| pattern.is_match(text))
        && schema["enum"].as_array().is_none_or(|words| words.iter().any(|word| word == text))
}
