//! `gatepost runlevels`: the printed labels can be applied, one label a namespace, and only once.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{fs, path::Path, process::Stdio};

use crate::apiserver::{Apiserver, Asked};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

const LABEL: &str = "gatepost.dev/runlevel";

/// One hook in namespace `policy` over everybody's pods, and one in `limits` over those of `shop`.
const HOOKS: &str = "apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: default}
externalAdmissionHooks:
- name: images.example.com
  clientConfig: {service: {namespace: policy, name: hook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
- name: limits.example.com
  clientConfig: {service: {namespace: limits, name: hook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}
";

struct Stage {
    apiserver: Apiserver,
    folder: TempDir,
}

impl Stage {
    async fn with(namespaces: &[&str]) -> Self {
        let namespaces: Vec<_> = namespaces.iter().map(|name| (*name, "a")).collect();
        let stage =
            Self { apiserver: Apiserver::start(&namespaces).await, folder: tempfile::tempdir().expect("folder") };
        stage.apiserver.write_kubeconfig(&stage.path("kubeconfig"));
        fs::write(stage.path("hooks.yaml"), HOOKS).expect("written");
        stage
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Exit code, stdout, stderr.
    async fn runlevels(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let kubeconfig = self.path("kubeconfig");
        run(&[&["--config", &text(&self.path("hooks.yaml")), "--kubeconfig", &text(&kubeconfig)], arguments].concat())
            .await
    }

    fn level(&self, name: &str) -> Value {
        self.apiserver.written(name)[LABEL].clone()
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

async fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    let output = command.arg("runlevels").args(arguments).stdin(Stdio::null()).output().await.expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

const ALL: [&str; 7] = ["kube-system", "kube-public", "kube-node-lease", "kube-dns", "policy", "limits", "shop"];

#[tokio::test]
async fn every_namespace_that_others_rest_on_is_labelled_once() {
    let stage = Stage::with(&ALL).await;
    let (code, message, complaint) = stage.runlevels(&["--apply", "--add-on", "kube-dns"]).await;
    assert_eq!((code, &*complaint), (Some(0), ""), "{message}");
    let levels = ALL.map(|name| stage.level(name));
    assert_eq!(
        levels,
        [json!("0"), json!("0"), json!("0"), json!("1"), json!("2"), json!("3"), Value::Null],
        "{message}"
    );
    assert!(message.starts_with("labelled    kube-dns 1\n"), "{message}");
    assert!(
        message.contains("\nhook \"limits.example.com\" in namespace limits has runlevel 3; in its entry ("),
        "{message}"
    );
    assert_eq!(stage.apiserver.times(Asked::Patch), 6);
    assert!(stage.apiserver.last(Asked::Patch).ends_with("?fieldManager=gatepost-runlevels"));

    let (code, message, _) = stage.runlevels(&["--apply", "--add-on", "kube-dns"]).await;
    assert_eq!((code, message.matches("unchanged   ").count()), (Some(0), 6), "{message}");
    assert_eq!(stage.apiserver.times(Asked::Patch), 6, "nothing is written twice");
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let stage = Stage::with(&ALL).await;
    let (code, message, _) = stage.runlevels(&["--apply", "--dry-run"]).await;
    assert_eq!((code, stage.level("kube-system")), (Some(0), Value::Null), "{message}");
    assert!(message.starts_with("nothing is written; this would be done:\n"), "{message}");
    assert_eq!(stage.apiserver.times(Asked::Patch), 5, "the apiserver is asked all the same");
    assert!(stage.apiserver.last(Asked::Patch).ends_with("&dryRun=All"));
}

#[tokio::test]
async fn refusal_names_the_missing_right_and_completed_steps() {
    let stage = Stage::with(&ALL).await;
    stage.apiserver.refuses(Asked::Patch, 403);
    let (code, message, complaint) = stage.runlevels(&["--apply"]).await;
    assert_eq!((code, &*message), (Some(1), ""), "the first was refused");
    assert!(
        complaint.contains(
            "answers 403 to PATCH /api/v1/namespaces/kube-node-lease: not for you; let an administrator grant"
        ),
        "{complaint}"
    );
    stage.apiserver.refuses(Asked::List, 403);
    let (code, _, complaint) = stage.runlevels(&["--print"]).await;
    assert!(code == Some(1) && complaint.contains("answers 403 to GET /api/v1/namespaces: "), "{complaint}");
}

#[tokio::test]
async fn an_add_on_that_is_not_there_is_a_slip() {
    let stage = Stage::with(&ALL).await;
    let (code, message, complaint) = stage.runlevels(&["--apply", "--add-on", "dns"]).await;
    assert_eq!((code, &*message, stage.apiserver.times(Asked::Patch)), (Some(1), "", 0));
    assert!(complaint.contains("the cluster has no namespace dns, which --add-on names"), "{complaint}");
}

#[tokio::test]
async fn printed_runlevels_pass_check() {
    let stage = Stage::with(&ALL).await;
    let (code, printed, _) = stage.runlevels(&["--print", "--add-on", "kube-dns"]).await;
    assert_eq!((code, stage.apiserver.times(Asked::Patch)), (Some(0), 0), "{printed}");
    let documents: Vec<Value> =
        printed.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).expect("YAML")).collect();
    assert_eq!(documents.len(), 6, "{printed}");
    for document in &documents {
        assert_eq!(document["kind"], "Namespace");
        assert_eq!(document["metadata"]["labels"].as_object().expect("labels").len(), 1, "{document}");
    }
    // Hooks that carry what is printed for them, beside the namespaces as they are printed.
    let mut hooks: Value = serde_saphyr::from_str(HOOKS).expect("YAML");
    let entries = hooks["externalAdmissionHooks"].as_array_mut().expect("hooks");
    let comments: String = printed
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line)))
        .collect();
    let advice: Vec<&str> = comments.split("\nhook ").skip(1).collect();
    assert_eq!(advice.len(), 2, "{comments}");
    for (entry, advice) in entries.iter_mut().zip(advice) {
        let selector: Value = serde_saphyr::from_str(advice.split_once(":\n").expect("a head").1).expect("YAML");
        entry["namespaceSelector"] = selector["namespaceSelector"].clone();
    }
    let both = tempfile::tempdir().expect("folder");
    fs::write(both.path().join("hooks.json"), hooks.to_string()).expect("written");
    fs::write(both.path().join("namespaces.yaml"), &printed).expect("written");
    let check =
        Command::new(env!("CARGO_BIN_EXE_gatepost")).arg("check").arg(both.path()).output().await.expect("runs");
    let message = String::from_utf8(check.stdout).expect("UTF-8");
    assert!(check.status.success() && !message.contains("deadlock ") && !message.contains("danger "), "{message}");
}

#[tokio::test]
async fn runlevels_are_printed_without_a_kubeconfig() {
    let stage = Stage::with(&[]).await;
    let (code, printed, _) = run(&["--print", "--config", &text(&stage.path("hooks.yaml"))]).await;
    assert_eq!((code, stage.apiserver.times(Asked::List)), (Some(0), 0));
    assert_eq!(printed.matches("\nkind: Namespace\n").count(), 5, "{printed}");
    let (code, _, complaint) = run(&["--config", &text(&stage.path("hooks.yaml"))]).await;
    assert!(code == Some(2) && complaint.contains("--print"), "{complaint}");
}
