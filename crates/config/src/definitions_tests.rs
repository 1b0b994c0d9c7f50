use std::collections::BTreeSet;

use serde_json::Value;

use super::check::{break_glass, bypass, client_config, configuration, hook, initializers, rules, selector};
use gatepost_api::schema::definitions;

/// The schema of one of our kinds.
fn schema(index: usize) -> Value {
    definitions()[index]["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

/// Schema at this path of properties; `[]` steps into a list.
#[track_caller]
fn at<'a>(schema: &'a Value, path: &str) -> &'a Value {
    path.split('.').filter(|step| !step.is_empty()).fold(schema, |schema, step| {
        let inner = &schema["properties"][step.trim_end_matches("[]")];
        let found = if step.ends_with("[]") { &inner["items"] } else { inner };
        assert!(found.is_object(), "the schema has nothing at {step} of {path}");
        found
    })
}

fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    texts.into_iter().map(ToOwned::to_owned).collect()
}

fn words<T>(table: &[(&str, T)]) -> BTreeSet<String> {
    texts(table.iter().map(|(word, _)| *word))
}

/// Every schema below this one, with its path.
fn each(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        each(inner, &format!("{path}.{name}"), visit);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(key) {
            each(inner, &format!("{path}[]"), visit);
        }
    }
}

#[test]
fn the_schema_has_the_keys_that_the_check_knows() {
    let schema = schema(0);
    let selector_paths = ["namespaceSelector", "objectSelector"].map(|key| format!("externalAdmissionHooks[].{key}"));
    let mut known: Vec<(&str, &[&str])> = vec![
        ("", &configuration::KEYS),
        ("externalAdmissionHooks[]", &hook::KEYS),
        ("externalAdmissionHooks[].rollout", &hook::ROLLOUT_KEYS),
        ("externalAdmissionHooks[].clientConfig", &client_config::KEYS),
        ("externalAdmissionHooks[].clientConfig.service", &client_config::SERVICE_KEYS),
        ("externalAdmissionHooks[].rules[]", &rules::KEYS),
        ("bypass[]", &bypass::KEYS),
        ("bypass[].resources[]", &rules::KEYS),
        ("resourceInitializers[]", &initializers::KEYS),
        ("resourceInitializers[].initializers[]", &initializers::ONE_KEYS),
        ("resourceInitializers[].initializers[].builtIn", &initializers::BUILT_IN_KEYS),
        ("resourceInitializers[].initializers[].builtIn.resources", &initializers::RESOURCE_KEYS),
        ("resourceInitializers[].mayInitialize", &initializers::WHO_KEYS),
        ("resourceInitializers[].initializers[].attach", &initializers::ATTACH_KEYS),
        ("resourceInitializers[].initializers[].owners", &initializers::WHO_KEYS),
    ];
    let requirement_paths = selector_paths.clone().map(|path| format!("{path}.matchExpressions[]"));
    known.extend(selector_paths.iter().map(|path| (&**path, &selector::KEYS[..])));
    known.extend(requirement_paths.iter().map(|path| (&**path, &selector::REQUIREMENT_KEYS[..])));
    for (path, keys) in known {
        let in_schema = texts(at(&schema, path)["properties"].as_object().unwrap().keys().map(String::as_str));
        assert_eq!(in_schema, texts(keys.iter().copied()), "at {path:?}");
    }
}

#[test]
fn the_schema_of_a_break_glass_has_the_keys_that_the_check_knows() {
    let schema = schema(1);
    let in_schema = texts(schema["properties"].as_object().unwrap().keys().map(String::as_str));
    assert_eq!(in_schema, texts(break_glass::KEYS));
    let required = schema["required"].as_array().unwrap().iter().filter_map(Value::as_str);
    assert_eq!(texts(required), texts(["opened", "for", "until", "reason"]));
}

#[test]
fn the_schema_has_the_words_that_the_check_knows() {
    let schema = schema(0);
    for (path, in_check) in [
        ("externalAdmissionHooks[].type", words(&hook::TYPES)),
        ("externalAdmissionHooks[].failurePolicy", words(&hook::POLICIES)),
        ("externalAdmissionHooks[].enforcement", words(&hook::ENFORCEMENTS)),
        ("externalAdmissionHooks[].matchPolicy", words(&hook::MATCH_POLICIES)),
        ("externalAdmissionHooks[].sideEffects", words(&hook::SIDE_EFFECTS)),
        ("externalAdmissionHooks[].dispatch", words(&hook::DISPATCHES)),
        ("externalAdmissionHooks[].reinvocationPolicy", words(&hook::REINVOCATIONS)),
        ("externalAdmissionHooks[].protocol", words(&hook::PROTOCOL_NAMES)),
        ("externalAdmissionHooks[].rollout.onProbeFailure", words(&hook::ON_PROBE_FAILURE)),
        ("bypass[].effect", words(&bypass::EFFECTS)),
        ("externalAdmissionHooks[].rules[].operations[]", words(&rules::OPERATIONS)),
        ("externalAdmissionHooks[].rules[].verbs[]", words(&rules::OPERATIONS)),
        ("externalAdmissionHooks[].rules[].scope", words(&rules::SCOPES)),
        ("externalAdmissionHooks[].namespaceSelector.matchExpressions[].operator", words(&selector::OPERATORS)),
        ("resourceInitializers[].initializers[].failurePolicy", words(&initializers::POLICIES)),
        ("resourceInitializers[].initializers[].changes", words(&initializers::CHANGES)),
        ("resourceInitializers[].stored", words(&initializers::STORED)),
        ("resourceInitializers[].initializers[].builtIn.imagePullPolicy", words(&initializers::PULL_POLICIES)),
    ] {
        let in_schema = at(&schema, path)["enum"].as_array().unwrap();
        assert_eq!(texts(in_schema.iter().filter_map(Value::as_str)), in_check, "at {path}");
    }
}

#[test]
fn lists_are_merged_by_the_keys_by_which_their_entries_are_unique() {
    let schema = schema(0);
    let merged = [
        ("bypass", &["name"][..]),
        ("externalAdmissionHooks", &["name"]),
        ("externalAdmissionHooks[].matchConditions", &["name"]),
        ("resourceInitializers", &["apiGroup", "resource"]),
        ("resourceInitializers[].initializers", &["name"]),
        ("status.conditions", &["type"]),
        ("status.replicas", &["name"]),
    ];
    let (mut maps, mut sets) = (BTreeSet::new(), BTreeSet::new());
    each(&schema, "", &mut |path, schema| {
        let path = path.trim_start_matches('.').to_owned();
        match schema["x-kubernetes-list-type"].as_str() {
            Some("map") => _ = maps.insert(path),
            Some("set") => _ = sets.insert(path),
            _ => {}
        }
    });
    assert_eq!(maps, texts(merged.map(|(path, _)| path)), "docs/configuration.md names each");
    assert_eq!(sets, texts(["externalAdmissionHooks[].admissionReviewVersions"]));
    for (path, keys) in merged {
        let list = at(&schema, path);
        assert_eq!(list["x-kubernetes-list-type"], "map", "{path}");
        let listed = list["x-kubernetes-list-map-keys"].as_array().unwrap();
        assert_eq!(listed.iter().filter_map(Value::as_str).collect::<Vec<_>>(), keys, "{path}");
        let (required, properties) = (list["items"]["required"].as_array().unwrap(), &list["items"]["properties"]);
        for key in keys {
            let is_there = required.contains(&Value::from(*key)) || properties[key].get("default").is_some();
            assert!(is_there, "{path}: a cluster wants {key} to be required or to have a default");
        }
    }
}

#[test]
fn every_schema_is_structural() {
    const KNOWN: [&str; 24] = [
        "additionalProperties",
        "anyOf",
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "pattern",
        "properties",
        "required",
        "type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    ];
    for schema in [schema(0), schema(1)] {
        let mut seen = 0;
        each(&schema, "", &mut |path, schema| {
            seen += 1;
            let map = schema.as_object().unwrap_or_else(|| panic!("{path} is no schema"));
            for key in map.keys() {
                assert!(KNOWN.contains(&&**key), "{path} holds {key}");
            }
            assert!(schema["type"].is_string(), "{path} has no type");
            let both = map.contains_key("additionalProperties") && map.contains_key("properties");
            assert!(!both, "{path} has properties and additionalProperties");
            let format = schema["format"].as_str().unwrap_or("date-time");
            assert!(["date-time", "double", "int32", "int64"].contains(&format), "{path} has the format {format}");
        });
        assert!(seen > 8, "only {seen} schemas");
    }
}

#[test]
fn everything_that_people_write_is_described() {
    for schema in [schema(0), schema(1)] {
        each(&schema, "", &mut |path, schema| {
            let described = schema["description"].as_str().is_some_and(|text| text.len() > 3);
            assert!(described || path.ends_with("[]") || path == ".metadata", "{path} is not described");
        });
    }
}
