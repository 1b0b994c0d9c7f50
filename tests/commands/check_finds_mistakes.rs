//! `gatepost check` on the mistakes in `tests/mistakes/table.yaml`: each is found, with its place, what is wrong and
//! why that matters, and what to do.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{Value, json};

/// A good hook of our own kind, which a row changes.
fn hook() -> Value {
    json!({"name": "a.example.com", "clientConfig": {"url": "https://hook.example.com/validate"}, "failurePolicy": "Ignore",
        "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]})
}

/// A good webhook of Kubernetes' kind, which a row changes.
fn webhook() -> Value {
    let mut webhook = hook();
    webhook["sideEffects"] = json!("None");
    webhook["admissionReviewVersions"] = json!(["v1"]);
    webhook
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *target = patch.clone() };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().expect("an object");
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            value => merge(target.entry(key).or_insert(Value::Null), value),
        }
    }
}

fn document(row: &Value) -> String {
    let changed = |mut base: Value, change: &Value| {
        merge(&mut base, change);
        base
    };
    let metadata = json!({"name": "a"});
    if let Some(change) = row.get("hook") {
        let hooks = [changed(hook(), change)];
        return json!({"apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration", "metadata": metadata,
            "externalAdmissionHooks": hooks})
        .to_string();
    }
    if let Some(change) = row.get("webhook") {
        let webhooks = [changed(webhook(), change)];
        return json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": metadata, "webhooks": webhooks})
        .to_string();
    }
    row["text"].as_str().expect("hook, webhook or text").to_owned()
}

/// An authority that ends so many days from now.
fn authority(days: i64) -> String {
    let day = Duration::from_secs(24 * 3600);
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let end = match u32::try_from(days) {
        Ok(days) => SystemTime::now() + day * days,
        Err(_) => SystemTime::now() - day * u32::try_from(-days).expect("a few"),
    };
    params.not_before = (end - day * 365).into();
    params.not_after = end.into();
    let key = KeyPair::generate().expect("a key");
    STANDARD.encode(params.self_signed(&key).expect("signed").pem())
}

fn check(folder: &Path) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    command.arg("check").arg(folder.join("a.yaml")).stdin(Stdio::null()).env_remove("GATEPOST_LOG");
    let output = command.output().expect("runs");
    (String::from_utf8(output.stdout).expect("UTF-8"), output.status.code())
}

#[test]
fn check_reports_each_mistake_with_its_place_and_fix() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes/table.yaml");
    let rows: Vec<Value> = serde_saphyr::from_str(&fs::read_to_string(table).expect("the table")).expect("YAML");
    assert!(rows.len() >= 60, "{}", rows.len());
    let [ended, ending] = [authority(-30), authority(7)];
    let (mut named, mut wrong) = (BTreeSet::new(), Vec::new());
    for row in &rows {
        let text = |key: &str| row[key].as_str().unwrap_or_else(|| panic!("{key} of {row}"));
        assert!(named.insert(text("mistake")), "twice: {row}");
        let folder = tempfile::tempdir().expect("folder");
        let written = document(row).replace("{ENDED}", &ended).replace("{ENDING}", &ending);
        fs::write(folder.path().join("a.yaml"), written).expect("written");
        let (message, code) = check(folder.path());
        let reason = text("why").split(' ').next().unwrap_or_default();
        assert!(["so", "since", "which", "and"].contains(&reason), "no reason: {row}");
        // A problem is one line; a finding is a paragraph, and its patch stands below.
        let problem = row["problem"] == true;
        let parts: Vec<&str> = if problem { message.lines().collect() } else { message.split("\n\n").collect() };
        let whole = |part: &&&str| {
            let fix = if problem { **part } else { &message };
            part.contains(text("where"))
                && part.contains(text("what"))
                && part.contains(&format!(", {}", text("why")))
                && fix.contains(text("fix"))
        };
        let alone = !problem || message.ends_with("\n1 problem\n");
        if parts.iter().filter(whole).count() != 1 || code != Some(i32::from(problem)) || !alone {
            wrong.push(format!("{row}\n-> {code:?}\n{message}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n\n{}", wrong.len(), rows.len(), wrong.join("\n\n"));
}
