//! Rules and selectors decide as kube-apiserver's do: its own test tables, from `tests/vectors/`.
//!
//! A case that has no meaning here is listed by its id with the reason; any other that is not understood fails.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{collections::BTreeMap, fs};

use bytes::Bytes;
use gatepost::{
    model::{Gvk, Gvr, Labels, Operation, Review, Rope, Target},
    snapshot::{HookSet, How, SourceFile, checked_selector, load},
};
use serde_json::{Value, json};

const GT_LT: &str = "Gt and Lt exist in selector strings only, not in the LabelSelector of the API";

/// Cases with no meaning here, and why.
const LEFT_OUT: [(&str, &str); 10] = [
    ("string-match-15", GT_LT),
    ("string-match-16", GT_LT),
    ("requirement-match-7", GT_LT),
    ("ctor-x11", GT_LT),
    ("ctor-x12", GT_LT),
    ("ctor-x13", GT_LT),
    ("ctor-x15", GT_LT),
    ("requirement-match-0", "a requirement without key and operator cannot be made here"),
    ("ctor-x5", "= with several values has no form in the API"),
    ("nil", "null is the empty selector, as upstream's API defaulting makes it before its code sees it"),
];

/// Runs every case of a table; prints `file: passed/total` and fails with all that differ.
fn run(file: &str, mut case: impl FnMut(&Value) -> Result<(), String>) {
    let text = fs::read_to_string(format!("tests/vectors/{file}")).expect("table");
    let table: Value = serde_json::from_str(&text).expect("JSON");
    let cases = table["cases"].as_array().expect("cases");
    assert_eq!(table["count"], cases.len());
    let left_out: BTreeMap<&str, &str> = LEFT_OUT.into_iter().collect();
    let (mut passed, mut failures) = (0, Vec::new());
    for one in cases {
        let id = one["id"].as_str().expect("id");
        match left_out.get(id) {
            Some(reason) => println!("{file}: {id} left out: {reason}"),
            None => match case(one) {
                Ok(()) => passed += 1,
                Err(failure) => failures.push(format!("{id}: {failure}")),
            },
        }
    }
    println!("{file}: {passed}/{}", cases.len());
    assert!(failures.is_empty(), "{failures:#?}");
}

fn equal<T: PartialEq + std::fmt::Debug>(ours: T, upstream: T) -> Result<(), String> {
    if ours == upstream { Ok(()) } else { Err(format!("ours {ours:?}, upstream {upstream:?}")) }
}

fn labels(json: &Value) -> Labels {
    let pairs = json.as_object().expect("labels");
    pairs.iter().map(|(key, value)| (key.as_str(), value.as_str().expect("label"))).collect()
}

/// The case's selector: as the API writes it, or as a list of requirements.
fn selector_of(case: &Value) -> Result<Value, String> {
    match (case.get("label_selector"), case.get("requirements")) {
        (Some(selector), None) if !selector.is_null() => Ok(selector.clone()),
        (None, Some(requirements)) => Ok(json!({"matchExpressions": requirements})),
        _ => Err("not understood".into()),
    }
}

#[test]
fn rules() {
    run("rules.json", |case| {
        let attributes = &case["attributes"];
        let text = |key: &str| attributes[key].as_str().expect("attribute").to_owned();
        let configuration = json!({
            "apiVersion": "gatepost.dev/v1alpha1",
            "kind": "AdmissionControlConfiguration",
            "metadata": {"name": "vectors"},
            "externalAdmissionHooks": [{
                "name": "hook",
                "clientConfig": {"url": "grpc://127.0.0.1:1"},
                "rules": [case["rule_full"]],
            }],
        });
        let file = SourceFile { name: "vectors.json".into(), bytes: Bytes::from(configuration.to_string()) };
        let snapshot =
            load(&[file], &|_: &str| Err(std::io::ErrorKind::NotFound.into())).map_err(|p| format!("{p:?}"))?;
        let review = Review {
            uid: "u".into(),
            kind: Gvk::default(),
            resource: Gvr {
                group: text("group").into(),
                version: text("version").into(),
                resource: text("resource").into(),
            },
            sub_resource: text("subresource").into(),
            request_kind: None,
            request_resource: None,
            request_sub_resource: "".into(),
            name: text("name").into(),
            namespace: text("namespace").into(),
            operation: Operation::from_name(&text("operation")).ok_or("unknown operation")?,
            username: "".into(),
            dry_run: false,
            user: None,
            object: None,
            old_object: None,
            options: None,
            encoding: gatepost::model::Encoding::Grpc,
            message: 0..0,
            bytes: Rope::new(Vec::new()),
        };
        let upstream = case["expect_match"].as_bool().ok_or("not understood")?;
        equal(snapshot.hooks[0].rules[0].matches(&Target::as_made(&review)), upstream)?;
        let mut matched = HookSet::new();
        snapshot.matching(&review, &mut matched);
        equal(matched.iter().any(|matched| matched.how == How::AsMade), upstream)
    });
}

#[test]
fn selectors_match() {
    run("label_selector_match.json", |case| {
        let selector = checked_selector("case", &selector_of(case)?).map_err(|problems| format!("{problems:?}"))?;
        equal(selector.matches(&labels(&case["labels"])), case["expect_match"].as_bool().ok_or("not understood")?)
    });
}

#[test]
fn selectors_convert() {
    run("label_selector_convert.json", |case| {
        if let Some(valid) = case.get("valid") {
            return requirement_is_valid(case, valid.as_bool().ok_or("not understood")?);
        }
        let selector = checked_selector("case", &case["label_selector"]).map_err(|problems| format!("{problems:?}"))?;
        match case["expect"].as_str().ok_or("not understood")? {
            "everything" => equal(selector.is_empty(), true),
            canonical => equal(selector.to_string().as_str(), canonical),
        }
    });
}

/// A requirement is accepted or refused as upstream does, and refused for the same part of it.
fn requirement_is_valid(case: &Value, valid: bool) -> Result<(), String> {
    let (key, values) = (case["key"].as_str().ok_or("no key")?, &case["values"]);
    let selector = match (case["operator"].as_str().ok_or("no operator")?, values.as_array().map(Vec::as_slice)) {
        ("=", Some([value])) => json!({"matchLabels": {key: value}}),
        (operator, Some(_)) => {
            json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
        }
        _ => return Err("not understood".into()),
    };
    let problems = checked_selector("case", &selector).err().unwrap_or_default();
    equal(problems.is_empty(), valid)?;
    if !valid && selector.get("matchExpressions").is_some() {
        let field = case["error_field"].as_str().ok_or("no field")?;
        equal(problems[0].path.as_str(), format!("matchExpressions[0].{field}").as_str())?;
    }
    Ok(())
}
