//! The reviews under `examples/reviews/` are what a kube-apiserver would send, and each says one thing throughout.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

/// Every example with its file's name.
fn examples() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/reviews");
    let mut examples = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => examples.push((name, serde_json::from_str(&text).unwrap())),
            Some("yaml") => examples.push((name, serde_saphyr::from_str(&text).unwrap())),
            _ => assert_eq!(name, "README.md", "a file of another kind"),
        }
    }
    examples
}

#[test]
fn each_is_a_review_of_its_own() {
    let examples = examples();
    assert_eq!(examples.len(), 12);
    let uids: BTreeSet<&str> = examples.iter().map(|(_, review)| review["request"]["uid"].as_str().unwrap()).collect();
    assert_eq!(uids.len(), examples.len(), "two reviews share a uid");
    for (name, review) in &examples {
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1", "{name}");
        assert_eq!(review["kind"], "AdmissionReview", "{name}");
        assert!(!review["request"]["userInfo"]["groups"].as_array().unwrap().is_empty(), "{name}");
    }
}

#[test]
fn the_operation_decides_which_objects_are_there() {
    for (name, review) in examples() {
        let request = &review["request"];
        let there = (request["object"].is_object(), request["oldObject"].is_object(), request["options"].is_object());
        let wanted = match request["operation"].as_str().unwrap() {
            "CREATE" => (true, false, true),
            "UPDATE" => (true, true, true),
            "DELETE" => (false, true, true),
            "CONNECT" => (true, false, false),
            other => panic!("{name}: {other}"),
        };
        assert_eq!(there, wanted, "{name}");
        assert_eq!(
            request["dryRun"].as_bool().unwrap(),
            request["options"]["dryRun"].is_array(),
            "{name}: the request and its options disagree about dry run"
        );
    }
}

#[test]
fn the_request_and_its_objects_agree() {
    for (name, review) in examples() {
        let request = &review["request"];
        let kind = &request["kind"];
        let group = kind["group"].as_str().unwrap();
        let version = kind["version"].as_str().unwrap();
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        for object in [&request["object"], &request["oldObject"]].into_iter().filter(|object| object.is_object()) {
            assert_eq!(object["kind"], kind["kind"], "{name}");
            assert_eq!(object["apiVersion"], api_version, "{name}");
            let metadata = &object["metadata"];
            if kind["kind"] == "PodExecOptions" {
                assert!(metadata.is_null(), "{name}");
                continue;
            }
            if metadata["generateName"].is_null() || request["operation"] != "CREATE" {
                assert_eq!(metadata["name"], request["name"], "{name}");
            } else {
                assert!(request["name"].is_null(), "{name}: the server makes the name");
            }
            if kind["kind"] == "Namespace" {
                assert_eq!(request["namespace"], metadata["name"], "{name}");
            } else {
                assert_eq!(request["namespace"], metadata["namespace"], "{name}");
            }
        }
        let (object, old) = (&request["object"]["metadata"], &request["oldObject"]["metadata"]);
        if object.is_object() && old.is_object() {
            assert_eq!(object["uid"], old["uid"], "{name}: an update keeps the uid");
        }
    }
}
