//! Hazards of a sound configuration are found, and the patch that is printed for each mends it.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::front::until;
use crate::support::{gate::document, sidecar::Configured};
use gatepost::{
    rotate::OnHazard,
    runtime::{Settings, Sidecar},
};
use serde_json::Value;

/// Every configuration in `tests/hazards/`, in order.
fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hazards");
    let files = fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path());
    let mut cases: Vec<_> = files.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    cases.sort();
    cases
}

/// Output of `gatepost check`, and its exit code.
fn check(path: &Path, arguments: &[&str]) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    command.arg("check").args(arguments).arg(path).stdin(Stdio::null()).env_remove("GATEPOST_LOG");
    let output = command.output().expect("runs");
    (String::from_utf8(output.stdout).expect("UTF-8"), output.status.code())
}

fn name(case: &Path) -> String {
    case.file_stem().expect("name").to_string_lossy().into_owned()
}

/// The ids of what was found, and the words for how bad it is.
fn found(report: &str) -> Vec<(&str, &str)> {
    let heads = report.lines().filter_map(|line| line.split_once(' '));
    heads.filter(|(severity, _)| ["deadlock", "danger", "gap"].contains(severity)).collect()
}

#[test]
fn hazards_are_reported_with_effect_place_and_patch() {
    let cases = cases();
    assert!(cases.len() > 20, "{cases:?}");
    for case in &cases {
        let (report, code) = check(case, &[]);
        let expected = case.with_extension("txt");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&expected, &report).expect("written");
        }
        assert_eq!(report, fs::read_to_string(&expected).unwrap_or_default(), "{}: see UPDATE=1", case.display());
        assert_eq!(code, Some(0), "{}", case.display());
    }
}

#[test]
fn every_hazard_has_a_case_of_its_name() {
    let reports: Vec<_> = cases().iter().map(|case| (name(case), check(case, &[]).0)).collect();
    let all: BTreeSet<&str> = reports.iter().flat_map(|(_, report)| found(report)).map(|(_, rule)| rule).collect();
    for rule in &all {
        let of_its_own =
            reports.iter().any(|(case, report)| case == rule && found(report).iter().all(|(_, it)| it == rule));
        assert!(of_its_own, "{rule} has no case of its own");
    }
    assert_eq!(all.len(), 18, "{all:?}");
}

#[test]
fn hazards_are_reported_with_reason_and_fix() {
    for case in cases() {
        let (report, _) = check(&case, &[]);
        for finding in report.split("\n\n").filter(|part| !found(part).is_empty()) {
            let begins = |line: &&str| line.starts_with("  hook") || line.starts_with("  initializer \"");
            let sentence = finding.lines().find(begins).expect("a sentence");
            let gives = [", so ", ", which ", ", since ", ", and "].into_iter().any(|word| sentence.contains(word));
            assert!(gives, "{}: no reason: {finding}", case.display());
            let advises = sentence.contains("; ") || report.contains("\nto repair ");
            assert!(advises, "{}: no advice: {finding}", case.display());
        }
    }
}

#[test]
fn hazards_deny_fails_the_check_except_for_gaps() {
    for case in cases() {
        let (report, code) = check(&case, &["--hazards", "deny"]);
        assert_eq!(report, check(&case, &[]).0, "the same is reported");
        let bad = found(&report).iter().any(|(severity, _)| *severity != "gap");
        assert_eq!(code, Some(i32::from(bad)), "{}", case.display());
        let (report, code) = check(&case, &["--hazards", "off"]);
        assert!(found(&report).is_empty() && code == Some(0), "{report}");
    }
}

#[test]
fn hazard_patches_repair_the_configuration() {
    let folder = tempfile::tempdir().expect("folder");
    let mut patched = 0;
    for case in cases() {
        let mut documents = documents(&fs::read_to_string(&case).expect("case"));
        for (place, patch) in patches(&check(&case, &[]).0) {
            merge(entry(&mut documents, &place), &patch);
            patched += 1;
        }
        let mended = folder.path().join(case.file_name().expect("name"));
        let written: Vec<_> = documents.iter().map(ToString::to_string).collect();
        fs::write(&mended, written.join("\n---\n")).expect("written");
        let (report, code) = check(&mended, &["--hazards", "deny"]);
        assert!(
            code == Some(0) && found(&report).is_empty(),
            "{}: {report}\n{}",
            case.display(),
            written.join("\n---\n")
        );
    }
    assert!(patched > 20, "{patched}");
}

fn documents(text: &str) -> Vec<Value> {
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).expect("YAML")).collect()
}

/// Place and patch of each hook to be mended, as they are printed.
fn patches(report: &str) -> Vec<(String, Value)> {
    let of_hook = |part: &str| {
        let (head, patch) = part.split_once(":\n").expect("a patch");
        let place = head.rsplit_once(".yaml: ").expect("a place").1.trim_end_matches(')');
        let patch = patch.split("\n\n").next().expect("lines");
        (place.to_owned(), serde_saphyr::from_str(patch).expect("YAML"))
    };
    report.split("\nto repair ").skip(1).map(of_hook).collect()
}

/// `[1].externalAdmissionHooks[0]`, `webhooks[0]` and `resourceInitializers[0].initializers[1]`.
fn entry<'a>(documents: &'a mut [Value], place: &str) -> &'a mut Value {
    let (document, place) = match place.strip_prefix('[') {
        Some(rest) => rest.split_once("].").expect("a document"),
        None => ("0", place),
    };
    let document = &mut documents[document.parse::<usize>().expect("a number")];
    place.split('.').fold(document, |at, step| {
        let (list, index) = step.trim_end_matches(']').split_once('[').expect("a list");
        &mut at[list][index.parse::<usize>().expect("a number")]
    })
}

/// A JSON merge patch: RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let target = target.as_object_mut().expect("an object");
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            value => merge(target.entry(key).or_insert(Value::Null), value),
        }
    }
}

#[test]
fn examples_have_no_hazards() {
    for folder in ["minimal", "namespaces", "webhooks"] {
        let (report, code) =
            check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/config").join(folder), &["--hazards", "deny"]);
        assert!(code == Some(0) && !report.contains("hazards:"), "{folder}: {report}");
    }
}

fn over_kube_system(name: &str) -> String {
    format!(
        "- name: {name}\n  clientConfig: {{url: 'grpc://127.0.0.1:1'}}\n  sideEffects: None\n  rules:\n  - {{operations: \
         [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods, pods/ephemeralcontainers]}}\n"
    )
}

#[test]
fn hazards_deny_refuses_to_start_with_a_hazard() {
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join("gatepost.yaml"), document(&[over_kube_system("a.example.com")])).expect("written");
    let settings = Settings { on_hazard: OnHazard::Deny, ..Settings::local(folder.path()) };
    let error = Sidecar::start(settings.clone()).expect_err("denied").to_string();
    assert!(error.contains("externalAdmissionHooks[0]: danger guards-kube-system: "), "{error}");
    assert!(error.contains(r#"merge into the entry: {"namespaceSelector":{"matchExpressions""#), "{error}");
    drop(Sidecar::start(Settings { on_hazard: OnHazard::Warn, ..settings }).expect("only logged"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hazards_deny_keeps_the_last_good_configuration() {
    let deny = |settings| Settings { on_hazard: OnHazard::Deny, ..settings };
    let configured = Configured::start_with(&[], deny);
    configured.write(&document(&[over_kube_system("a.example.com")]));
    let current = &configured.running.current;
    until("it is rejected", || current.status().rejected.get().is_some()).await;
    let rejected = current.status().rejected.get().expect("rejected");
    assert!(rejected.problems[0].what.starts_with("danger guards-kube-system: "), "{:?}", rejected.problems);
    assert!(configured.hook("a.example.com").is_none());
}

#[test]
fn hazards_warn_shows_them_on_configz() {
    let configured = Configured::start(&[over_kube_system("a.example.com")]);
    let generation = configured.running.current.load();
    let found: Vec<_> = generation.snapshot.findings().iter().map(|finding| finding.describe()).collect();
    assert_eq!((found.len(), &found[0]["rule"]), (1, &"guards-kube-system".into()), "{found:?}");
    assert_eq!(found[0]["hooks"][0]["path"], "externalAdmissionHooks[0]");
    let of = |key: &str| found[0][key].as_str().unwrap_or_default().to_owned();
    assert!(of("why").starts_with("so while it does not answer") && of("fix").contains("merge the patch"), "{found:?}");
}
