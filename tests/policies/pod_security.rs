//! The policies `examples/policies/pod-security-*` decide every pod with which Pod Security Admission is tested as it
//! does, and for the same reasons.

#![allow(clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::collections::BTreeSet;

use gatepost_api::Verdict;
use gatepost_config::{Snapshot, SourceFile};
use serde_json::{Value, json};

use super::decided;

const LEVELS: [&str; 2] = ["baseline", "restricted"];

/// Kinds of objects that have a template of pods: `apiVersion`, kind, resource, and the path to the template.
const TEMPLATED: [(&str, &str, &str, &str); 8] = [
    ("v1", "PodTemplate", "podtemplates", "/template"),
    ("v1", "ReplicationController", "replicationcontrollers", "/spec/template"),
    ("apps/v1", "ReplicaSet", "replicasets", "/spec/template"),
    ("apps/v1", "Deployment", "deployments", "/spec/template"),
    ("apps/v1", "StatefulSet", "statefulsets", "/spec/template"),
    ("apps/v1", "DaemonSet", "daemonsets", "/spec/template"),
    ("batch/v1", "Job", "jobs", "/spec/template"),
    ("batch/v1", "CronJob", "cronjobs", "/spec/jobTemplate/spec/template"),
];

/// A pod, and how Pod Security Admission decides it.
struct Decision {
    name: String,
    pod: Value,
    allowed: bool,
    reasons: BTreeSet<String>,
}

fn decisions(level: &str) -> Vec<Decision> {
    let path = super::folder().join("pod-security").join(format!("{level}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    let decision = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let reason = line["reason"].as_str().unwrap_or_default();
        Decision {
            name: line["name"].as_str().unwrap().to_owned(),
            allowed: line["allowed"].as_bool().unwrap(),
            reasons: reason.split(", ").filter(|reason| !reason.is_empty()).map(str::to_owned).collect(),
            pod: line["pod"].take(),
        }
    };
    text.lines().map(decision).collect()
}

fn policy(level: &str) -> Snapshot {
    let name = format!("examples/policies/pod-security-{level}/policy.yaml");
    let bytes = std::fs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&name)).unwrap();
    let file = SourceFile { name, bytes: bytes.into() };
    gatepost_config::load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap_or_else(|problems| {
        panic!("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    })
}

/// Decides the creation of an object in a namespace with this label.
async fn verdict(level: &str, label: &str, resource: &str, mut object: Value) -> Verdict {
    let (api_version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = json!({"group": group, "version": version, "resource": resource});
    let kind = json!({"group": group, "version": version, "kind": kind});
    object["metadata"]["namespace"] = json!("shop");
    let label = format!("pod-security.kubernetes.io/{label}");
    let namespace = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "shop", "labels": {"kubernetes.io/metadata.name": "shop", label: level}},
    });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": object["metadata"]["name"],
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
            "object": object,
            "oldObject": null,
            "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    });
    decided(policy(level), &json!({"review": review, "namespaces": [namespace]})).await
}

/// Returns the reasons that a message of the policy has: `REASON (who: what to do); REASON (...)`.
fn reasons(level: &str, message: &str) -> BTreeSet<String> {
    let start = format!("violates Pod Security \"{level}:v1.37\": ");
    let Some((_, violations)) = message.split_once(&start) else { return BTreeSet::new() };
    let reason = |violation: &str| violation.split_once(" (").map_or(violation, |(reason, _)| reason).to_owned();
    violations.split("; ").map(reason).collect()
}

/// Returns an object whose template is the pod.
fn templated((api_version, kind, _, path): (&str, &str, &str, &str), pod: &Value) -> Value {
    let template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
    let nest = |inner: Value, key: &str| json!({key: inner});
    let mut object = path.rsplit('/').filter(|key| !key.is_empty()).fold(template, nest);
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object["metadata"] = json!({"name": "web"});
    object
}

#[tokio::test]
async fn pods_are_decided_as_by_pod_security_admission() {
    let mut differences = Vec::new();
    for level in LEVELS {
        let decisions = decisions(level);
        let count = |allowed: bool| decisions.iter().filter(|decision| decision.allowed == allowed).count();
        assert!(count(true) > 10 && count(false) > 50, "{level}: the pods of upstream are missing");
        println!("{level}: {} pods allowed, {} denied", count(true), count(false));
        for Decision { name, pod, allowed, reasons: wanted } in decisions {
            let verdict = verdict(level, "enforce", "pods", pod).await;
            let message = verdict.refusal.as_ref().map_or("", |refusal| &refusal.message);
            if verdict.allowed() != allowed || reasons(level, message) != wanted {
                differences.push(format!("{level} {name}: wanted {wanted:?}, got {message:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[tokio::test]
async fn templates_of_pods_are_allowed_with_the_warning_for_the_pod() {
    let mut differences = Vec::new();
    for level in LEVELS {
        let mut enforced = BTreeSet::new();
        for (at, Decision { name, pod, allowed, reasons: wanted }) in decisions(level).into_iter().enumerate() {
            let kind = TEMPLATED[at % TEMPLATED.len()];
            let object = templated(kind, &pod);
            let verdict = verdict(level, "warn", kind.2, object.clone()).await;
            let got: BTreeSet<_> = verdict.warnings.iter().flat_map(|warning| reasons(level, warning)).collect();
            if !verdict.allowed() || got != wanted {
                differences
                    .push(format!("{level} {name} in {}: wanted {wanted:?}, got {:?}", kind.1, verdict.warnings));
            }
            // Pods are denied when they are created themselves.
            let is_next = !allowed && enforced.insert(kind);
            if is_next && !self::verdict(level, "enforce", kind.2, object).await.allowed() {
                differences.push(format!("{level} {name} in {} is denied", kind.1));
            }
        }
        assert_eq!(enforced.len(), TEMPLATED.len());
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
