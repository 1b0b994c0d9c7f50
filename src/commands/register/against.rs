//! Against: finds requests that hooks match and a registration does not send.

use std::{fmt::Write as _, fs, path::PathBuf};

use gatepost_operator::command::counted;
use serde_json::Value;

use gatepost_config::{
    Snapshot,
    coverage::{CoverageSubject, Registration, compared},
};

/// Compares the hooks with a registration. Returns a report, and true if the registration covers all hooks.
///
/// # Errors
/// A message, if a file cannot be read or has no registration of Gatepost.
pub(in crate::commands) fn report(snapshot: &Snapshot, files: &[PathBuf]) -> Result<(String, bool), String> {
    let mut registration = Registration::default();
    for file in files {
        let shown = file.display();
        let text = fs::read_to_string(file).map_err(|error| format!("{shown}: cannot be read: {error}"))?;
        registration.join(read(&text).map_err(|what| format!("{shown}: {what}"))?);
    }
    let shown = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    let mut output = format!("\nagainst {shown}:\n");
    let gaps = registration.gaps(snapshot);
    for gap in &gaps {
        let origin = match gap.subject {
            CoverageSubject::Hook(index) => snapshot.origin(index),
            CoverageSubject::Initializers | CoverageSubject::Policy => None,
        };
        let place = origin.map_or_else(String::new, |origin| format!("{}: {}: ", origin.file, origin.path));
        // Writing to a String cannot fail.
        let _ = writeln!(output, "{place}{gap}");
    }
    let covered = gaps.iter().all(|gap| !gap.missed);
    let (mut hooks, mut policies, mut resources) = (0, 0, 0);
    for one in compared(snapshot) {
        match one.subject {
            CoverageSubject::Hook(_) => hooks += 1,
            CoverageSubject::Policy => policies += 1,
            CoverageSubject::Initializers => resources += 1,
        }
    }
    let entries = registration.len();
    let mut also = match policies {
        0 => String::new(),
        1 => ", 1 policy".to_owned(),
        many => format!(", {many} policies"),
    };
    if resources > 0 {
        also.push_str(&format!(" and the initializers of {}", counted(resources, "resource")));
    }
    match covered {
        true => {
            let hooks = counted(hooks, "hook");
            let _ =
                writeln!(output, "what the rules of {hooks}{also} see is sent; entries of the registration: {entries}");
        }
        false => output.push_str(
            "hooks never see what is not sent: run gatepost register --config PATH and apply what it prints\n",
        ),
    }
    Ok((output, covered))
}

/// Parses a registration.
fn read(text: &str) -> Result<Registration, String> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| format!("cannot be read as YAML: {error}"))?;
    let items = documents.into_iter().flat_map(|document| match document.get("items").and_then(Value::as_array) {
        Some(items) => items.clone(),
        None => vec![document],
    });
    let registration = Registration::read(items)?;
    match registration.is_empty() {
        true => Err(
            "holds no webhook configuration with a webhook at /validate or /mutate; give what `gatepost register` has \
                      printed"
                .to_owned(),
        ),
        false => Ok(registration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatepost_config::{SourceFile, load};

    fn snapshot(rules: &str, more: &str) -> Snapshot {
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: a}}\n\
             externalAdmissionHooks:\n- name: h.example.com\n  clientConfig: {{url: 'grpc://127.0.0.1:1'}}\n  \
             rules: [{rules}]\n  {more}\n"
        );
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap_or_else(|problems| panic!("{problems:#?}"))
    }

    fn registration(rules: &str, path: &str, more: &str) -> String {
        format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{name: g}}\n\
             webhooks:\n- name: g.validate.gatepost.dev\n  clientConfig: {{url: 'https://127.0.0.1:9440{path}'}}\n  \
             sideEffects: NoneOnDryRun\n  admissionReviewVersions: [v1]\n  rules: [{rules}]\n  matchConditions: [{{name: \
             sent-already-1, expression: 'true'}}]\n  {more}\n"
        )
    }

    const PODS: &str = "{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}";
    const ALL: &str = "{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}";
    const KS: &str = "namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: \
                      [kube-system]}]}";
    const LABEL: &str = "namespaceSelector: {matchLabels: {a: b}}";

    fn of(hook: (&str, &str), entry: (&str, &str, &str)) -> (String, bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("register.yaml");
        fs::write(&path, registration(entry.0, entry.1, entry.2)).unwrap();
        report(&snapshot(hook.0, hook.1), &[path]).unwrap()
    }

    #[test]
    fn check_against_finds_hooks_whose_rules_are_not_sent() {
        let things = |version: &str| {
            format!("{{operations: [CREATE], apiGroups: [x.io], apiVersions: [{version}], resources: [things]}}")
        };
        let creates = PODS.replace(", UPDATE", "");
        let events = |groups: &str| {
            format!("{{operations: [CREATE], apiGroups: [{groups}], apiVersions: [v1], resources: [events]}}")
        };
        let (core, both) = (events("''"), events("'', events.k8s.io"));
        let converting = format!("{ALL}, {core}");
        for (hook, entry, words) in [
            ((PODS, ""), (PODS, "/validate", ""), ""),
            ((PODS, ""), (ALL, "/validate", ""), ""),
            ((PODS, KS), (PODS, "/validate", KS), ""),
            ((PODS, ""), (&*creates, "/validate", ""), "UPDATE of pods is sent by no entry"),
            ((ALL, ""), (PODS, "/validate", ""), "is sent by no entry"),
            ((&*things("v1"), ""), (&things("v2"), "/validate", ""), "in other versions than it takes"),
            ((&*things("v1"), ""), (&things("v1"), "/validate/one-version", ""), ""),
            ((&*things("v1"), ""), (ALL, "/validate/one-version", ""), "in other versions than it takes"),
            ((&*things("'*'"), ""), (&things("v2"), "/validate", ""), ""),
            ((&*core, ""), (ALL, "/validate/one-version", ""), "CREATE of events is sent by"),
            ((&*core, ""), (&*converting, "/validate/one-version", ""), ""),
            ((&*core, "matchPolicy: Exact"), (ALL, "/validate/one-version", ""), ""),
            ((&*both, ""), (&*both, "/validate/one-version", ""), ""),
            ((PODS, ""), (PODS, "/validate", LABEL), "a selector of g.validate.gatepost.dev leaves it out"),
        ] {
            let (output, covered) = of(hook, entry);
            assert_eq!(covered, words.is_empty(), "{hook:?} {entry:?}: {output}");
            assert!(output.contains(words), "{hook:?} {entry:?}: {output}");
            let place = "a.yaml: externalAdmissionHooks[0]: hook \"h.example.com\": ";
            assert_eq!(output.contains(place), !covered, "{output}");
        }
    }

    #[test]
    fn check_against_counts_foreign_conditions_as_gaps() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("register.yaml");
        let with = |name: &str, more: &str| {
            let text = registration(PODS, "/validate", "").replace("sent-already-1", name);
            fs::write(&path, format!("{text}---\n{more}")).unwrap();
            report(&snapshot(PODS, ""), std::slice::from_ref(&path)).unwrap()
        };
        let (output, covered) = with("mine", "");
        let words = "sent by g.validate.gatepost.dev only where its match condition mine is true";
        assert!(!covered && output.contains(words), "{output}");
        assert!(with("sent-already-2", "").1);
        let another = registration(ALL, "/validate", "").replace("g.validate", "other.validate");
        let (output, covered) = with("mine", &another);
        assert!(covered, "another entry sends it: {output}");
    }

    #[test]
    fn check_against_reports_excluded_namespaces_without_failing() {
        let (output, covered) = of((PODS, ""), (PODS, "/validate", KS));
        assert!(covered && output.contains("CREATE of pods in kube-system is left out"), "{output}");
        let (output, covered) = of((PODS, ""), (PODS, "/validate", "failurePolicy: Ignore"));
        assert!(covered && output.contains("such writes pass unseen"), "{output}");
        let (output, _) = of((PODS, "failurePolicy: Ignore"), (PODS, "/validate", "failurePolicy: Ignore"));
        assert!(!output.contains("unseen"), "{output}");
    }

    #[test]
    fn check_against_compares_mutating_hooks() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let validating = write("v.yaml", registration(PODS, "/validate", ""));
        let mutating = |path: &str| registration(PODS, path, "").replace("ValidatingWebhook", "MutatingWebhook");
        let hook = snapshot(PODS, "type: Mutating");
        let (text, covered) = report(&hook, std::slice::from_ref(&validating)).unwrap();
        assert!(!covered && text.contains("is sent by no entry"), "{text}");
        for (path, is_covered) in
            [("/mutate", true), ("/mutate/segment/1/of/1", true), ("/mutate/segment/2/of/3", false)]
        {
            let (text, covered) = report(&hook, &[validating.clone(), write("m.yaml", mutating(path))]).unwrap();
            assert_eq!(covered, is_covered, "{path}: {text}");
        }
        assert!(read(&mutating("/validate")).is_err(), "a webhook of the other kind");
        // Called in a segment of its own, and called with others.
        let two = snapshot(
            PODS,
            "type: Mutating\n- name: alone.example.com\n  clientConfig: {url: 'grpc://127.0.0.1:2'}\n  type: Mutating\n  isolate: true\n  rules: []",
        );
        assert_eq!(two.segment(1).map(|segment| segment.of), Some(2));
        let alone = format!(
            "type: Mutating\n  isolate: true\n- name: other.example.com\n  clientConfig: {{url: 'grpc://127.0.0.1:2'}}\n  type: Mutating\n  rules: [{PODS}]"
        );
        let alone = snapshot(PODS, &alone);
        let (text, covered) = report(&alone, &[write("m.yaml", mutating("/mutate"))]).unwrap();
        assert!(covered && text.contains("is to be registered apart"), "{text}");
        let (text, covered) = report(&alone, &[write("m.yaml", mutating("/mutate/segment/1/of/2"))]).unwrap();
        assert!(!covered && text.contains("other.example.com") && !text.contains("apart"), "{text}");
    }

    #[test]
    fn check_against_compares_initializers() {
        let text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                    resourceInitializers:\n\
                    - {resource: pods, initializers: [{name: a, builtIn: {labels: {a: b}}}]}\n\
                    - {resource: services, initializers: []}\n\
                    - {resource: secrets, initializers: [names-alone]}\n";
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let creates = PODS.replace(", UPDATE", "");
        for (rules, path, words) in [
            (&*creates, "/mutate", ""),
            (&*creates, "/mutate/segment/2/of/2", ""),
            (&*creates, "/mutate/segment/1/of/2", "CREATE of pods is sent by no entry"),
            (&*creates, "/validate", "CREATE of pods is sent by no entry"),
            (&PODS.replace("CREATE, ", ""), "/mutate", "CREATE of pods is sent by no entry"),
        ] {
            let file = folder.path().join("m.yaml");
            let text = registration(rules, path, "");
            let kind = if path == "/validate" { "ValidatingWebhook" } else { "MutatingWebhook" };
            fs::write(&file, text.replace("ValidatingWebhook", kind)).unwrap();
            let (text, covered) = report(&snapshot, &[file]).unwrap();
            assert_eq!(covered, words.is_empty(), "{rules} {path}: {text}");
            assert!(text.contains(words), "{rules} {path}: {text}");
            let named = if covered { "0 hooks and the initializers of 1 resource" } else { "\ninitializers of pods: " };
            assert!(text.contains(named), "{text}");
        }
    }

    #[test]
    fn check_against_refuses_a_foreign_registration() {
        assert!(read("{}").err().unwrap().contains("gatepost register"));
        assert!(read(&registration(PODS, "/other", "")).is_err());
        assert!(read("a: [").is_err());
    }
}
