//! `gatepost import`: unservable objects lie apart, their originals are not to be parked, and they stop no others.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{fs, path::Path};

use crate::cluster::{Cluster, MUTATING, VALIDATING};
use serde_json::{Value, json};
use tokio::process::Command;

fn webhooks(name: &str, more: &Value) -> Value {
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
    let mut webhook = json!({"name": format!("{name}.example.com"), "clientConfig": {"url": "https://127.0.0.1:1/v"},
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [rule], "failurePolicy": "Ignore"});
    if let (Some(webhook), Some(more)) = (webhook.as_object_mut(), more.as_object()) {
        webhook.extend(more.clone());
    }
    json!({"metadata": {"name": name}, "webhooks": [webhook]})
}

async fn import(kubeconfig: &Path, out: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    command.args(["import", "--kubeconfig"]).arg(kubeconfig).args(more).arg(out).env_remove("GATEPOST_LOG");
    let output = command.output().await.expect("runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn named(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry"));
    let files = files.filter(|entry| entry.file_type().expect("a type").is_file());
    let mut names: Vec<_> = files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// An expression that an apiserver takes, and Gatepost does not.
const NOT_SUPPORTED: &str = "google.protobuf.Duration{} == duration('0s')";
/// One that asks the cluster which the objects come from.
const ASKS: &str = "authorizer.path('/x').check('get').allowed()";

#[tokio::test]
async fn unservable_object_is_not_parked_and_stops_no_other() {
    let cluster = Cluster::start().await;
    let condition = |expression| json!({"matchConditions": [{"name": "c", "expression": expression}]});
    let conditions = condition(NOT_SUPPORTED);
    cluster.has(VALIDATING, webhooks("good", &json!({})));
    cluster.has(VALIDATING, webhooks("conditional", &conditions));
    cluster.has(MUTATING, webhooks("mutating", &condition(ASKS)));
    let folder = tempfile::tempdir().expect("folder");
    let kubeconfig = cluster.kubeconfig(folder.path(), json!({}), None);
    let out = folder.path().join("hooks");

    let (code, message, stderr) = import(&kubeconfig, &out, &["--kind", "all"]).await;
    assert_eq!(code, Some(0), "{message}{stderr}");
    assert_eq!(named(&out), ["mutating-mutating.yaml", "validating-good.yaml"]);
    assert_eq!(named(&out.join("not-served")), ["validating-conditional.yaml"]);
    assert!(message.contains("not served: ValidatingWebhookConfiguration conditional; leave it"), "{message}");
    assert!(message.contains("webhooks[0].matchConditions[0].expression: cannot be evaluated: messages"), "{message}");
    assert!(message.contains("no problem in 2 files") && message.contains("in force would be: 2 hooks"), "{message}");
    assert!(message.contains("park the originals (good): "), "{message}");
    assert!(
        message.contains("1. see that every hook answers") && message.contains("gatepost check --connect"),
        "{message}"
    );

    // It can be served now, and the other no longer.
    cluster.has(VALIDATING, webhooks("conditional", &json!({})));
    cluster.has(VALIDATING, webhooks("good", &conditions));
    let (code, _, stderr) = import(&kubeconfig, &out, &[]).await;
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("nothing was written") && named(&out) == ["mutating-mutating.yaml", "validating-good.yaml"],
        "{stderr}"
    );
    let (code, message, _) = import(&kubeconfig, &out, &["--force"]).await;
    assert_eq!(code, Some(0), "{message}");
    let left =
        "left out   mutating: of another kind than --kind names, and still called by the apiserver; see --kind all";
    assert!(message.contains("1 MutatingWebhookConfiguration at revision") && message.contains(left), "{message}");
    assert!(named(&out).contains(&"validating-conditional.yaml".to_owned()), "{message}");
    assert!(message.contains("park the originals (conditional): "), "{message}");
}

#[tokio::test]
async fn where_nothing_can_be_served_nothing_is_to_be_parked() {
    let cluster = Cluster::start().await;
    cluster.has(VALIDATING, webhooks("c", &json!({"matchConditions": [{"name": "c", "expression": NOT_SUPPORTED}]})));
    let folder = tempfile::tempdir().expect("folder");
    let kubeconfig = cluster.kubeconfig(folder.path(), json!({}), None);
    let (code, message, stderr) = import(&kubeconfig, &folder.path().join("hooks"), &[]).await;
    assert_eq!(code, Some(0), "{message}{stderr}");
    assert!(message.contains("Park nothing.") && !message.contains("--park"), "{message}");
}

/// An original whose sidecars do not answer, or which its file differs from, is not parked; a parked one is given back.
#[tokio::test]
async fn originals_are_parked_only_if_a_sidecar_calls_their_hooks() {
    let cluster = Cluster::start().await;
    let parked = || {
        let stored = cluster.stored(VALIDATING, "good").expect("stored");
        stored["webhooks"][0]["matchConditions"].as_array().is_some_and(|conditions| !conditions.is_empty())
    };
    let mut good = webhooks("good", &json!({}));
    good["metadata"]["uid"] = "u".into();
    cluster.has(VALIDATING, good.clone());
    let folder = tempfile::tempdir().expect("folder");
    let kubeconfig = cluster.kubeconfig(folder.path(), json!({}), None);
    let out = folder.path().join("hooks");
    assert_eq!(import(&kubeconfig, &out, &[]).await.0, Some(0));

    let (code, _, stderr) = import(&kubeconfig, &out, &["--park", "--admin", "127.0.0.1:1"]).await;
    assert!(code == Some(1) && stderr.contains("no registration of Gatepost for validating") && !parked(), "{stderr}");
    let (code, _, stderr) = import(&kubeconfig, &out, &["--park", "--unregistered", "--admin", "127.0.0.1:1"]).await;
    assert!(code == Some(1) && stderr.contains("no answer from") && !parked(), "{stderr}");
    let (code, message, _) = import(&kubeconfig, &out, &["--give-back"]).await;
    assert!(code == Some(0) && message.contains("nothing is parked: the apiserver calls every webhook"), "{message}");

    good["webhooks"][0]["matchConditions"] = json!([{"name": "gatepost.dev/served", "expression": "false"}]);
    cluster.has(VALIDATING, good.clone());
    assert!(parked());
    let (code, message, _) = import(&kubeconfig, &out, &[]).await;
    assert!(code == Some(0) && message.contains("unchanged"), "the copy is without the condition: {message}");
    let (code, message, stderr) = import(&kubeconfig, &out, &["--give-back"]).await;
    assert!(code == Some(0) && message.contains("given back good") && !parked(), "{message}{stderr}");

    good["webhooks"][0]["timeoutSeconds"] = 3.into();
    cluster.has(VALIDATING, good);
    let (_, _, stderr) = import(&kubeconfig, &out, &["--park"]).await;
    assert!(
        stderr.contains("good: its file differs; import again") && stderr.contains("nothing is parked"),
        "{stderr}"
    );
    let (code, message, _) = import(&kubeconfig, &folder.path().join("hoks"), &["--give-back"]).await;
    assert!(code == Some(1) && message.contains("PARKED     good") && parked(), "{message}");
    let (code, message, _) = import(&kubeconfig, &out, &["--give-back"]).await;
    assert!(code == Some(0) && message.contains("given back good") && !parked(), "{message}");
}
