//! Against: served hooks that a registration does not cover, so that an apiserver never sends what they mean.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use serde_json::Value;

use super::{
    selectors::{implies, is_within, names_left_out},
    union::{Atom, atoms_of},
};
use crate::{
    model::{FailurePolicy, Hook, HookType, MatchPolicy, Protocol, Selector},
    snapshot::{Snapshot, checked_webhook_configuration},
};

/// Where Gatepost takes reviews that are not of one version.
const VALIDATE: &str = "/validate";
/// Where it takes those that are.
const ONE_VERSION: &str = "/validate/one-version";

/// One webhook of a registration that leads to Gatepost.
struct Entry {
    hook: Hook,
    one_version: bool,
    atoms: Vec<Atom>,
}

/// What there is to tell of the hooks beside a registration, and whether all are covered.
///
/// # Errors
/// The registration cannot be read, or is none.
pub(in crate::cli) fn told(snapshot: &Snapshot, registration: &Path) -> Result<(String, bool), String> {
    let shown = registration.display();
    let text = fs::read_to_string(registration).map_err(|error| format!("{shown}: cannot be read: {error}"))?;
    let entries = entries(&text).map_err(|what| format!("{shown}: {what}"))?;
    let mut told = format!("\nagainst {shown}:\n");
    let (mut covered, mut hooks) = (true, 0);
    for (index, hook) in (0..).zip(&snapshot.hooks) {
        if hook.hook_type != HookType::Validating || hook.rules.is_empty() {
            continue;
        }
        hooks += 1;
        let origin = snapshot.origin(index);
        let place = origin.map_or_else(String::new, |origin| format!("{}: {}: ", origin.file, origin.path));
        let closed = origin.map_or(hook.failure_policy, |origin| origin.declared_policy) != FailurePolicy::Ignore;
        for (missed, what) in gaps(hook, closed, &entries) {
            covered &= !missed;
            // Writing to a String cannot fail.
            let _ = writeln!(told, "{place}hook {:?}: {what}", hook.name);
        }
    }
    match covered {
        true => drop(writeln!(told, "what the rules of {hooks} hooks see is sent, by {} entries", entries.len())),
        false => told.push_str(
            "what is not sent is never asked about: print the registration anew (gatepost register --config PATH), and put \
             it in force\n",
        ),
    }
    Ok((told, covered))
}

/// The webhooks of the registration in this text.
fn entries(text: &str) -> Result<Vec<Entry>, String> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| format!("cannot be read as YAML: {error}"))?;
    let items = documents.into_iter().flat_map(|document| match document.get("items").and_then(Value::as_array) {
        Some(items) => items.clone(),
        None => vec![document],
    });
    let mut entries = Vec::new();
    for mut document in items.filter(|document| document["kind"] == "ValidatingWebhookConfiguration") {
        // They leave requests to other entries, or are not ours to judge.
        for webhook in document["webhooks"].as_array_mut().into_iter().flatten() {
            webhook.as_object_mut().map(|webhook| webhook.remove("matchConditions"));
        }
        let hooks = checked_webhook_configuration("registration", &document).map_err(|problems| {
            problems
                .first()
                .map_or_else(String::new, |problem| format!("{}: {}; {}", problem.path, problem.what, problem.fix))
        })?;
        entries.extend(hooks.into_iter().filter_map(|hook| {
            let Protocol::Http { path, .. } = &hook.protocol else { return None };
            let one_version = **path == *ONE_VERSION;
            let ours = one_version || **path == *VALIDATE;
            ours.then(|| Entry { atoms: atoms_of(&hook), one_version, hook })
        }));
    }
    match entries.is_empty() {
        true => Err(format!(
            "holds no ValidatingWebhookConfiguration with a webhook at {VALIDATE}; give what `gatepost register` has printed"
        )),
        false => Ok(entries),
    }
}

/// What is not as the hook means it, and whether something is not sent at all that should be.
fn gaps(hook: &Hook, closed: bool, entries: &[Entry]) -> BTreeSet<(bool, String)> {
    let mut gaps = BTreeSet::new();
    for atom in atoms_of(hook).iter().flat_map(Atom::by_operation) {
        let seen = || entries.iter().filter(|entry| entry.atoms.iter().any(|sent| atom.is_sent_by(sent)));
        let sent = || seen().filter(|entry| entry.atoms.iter().any(|sent| entry.sends(&atom, sent)));
        let selected = || sent().filter(|entry| entry.selects_all_of(hook));
        if let Some(entry) = selected().next() {
            let open = |entry: &Entry| entry.hook.failure_policy == FailurePolicy::Ignore;
            if closed && selected().all(open) {
                let what = "its failure policy is Fail, and the entry that sends what it sees is Ignore";
                let then = "while Gatepost itself does not answer, such writes pass unseen";
                gaps.insert((false, format!("{what} ({}): {then}", entry.hook.name)));
            }
            continue;
        }
        let by_name = sent().find_map(|entry| entry.left_out_by_name(hook));
        gaps.insert(match (seen().next(), sent().next(), by_name) {
            (.., Some(names)) => {
                (false, format!("{} in {} is left out by the registration", atom.noun(), names.join(", ")))
            }
            (_, Some(entry), None) => {
                let what = format!("{} is not sent where a selector of {} leaves it out", atom.noun(), entry.hook.name);
                (true, format!("{what}, and the hook does not"))
            }
            (Some(entry), None, _) => {
                (true, format!("{} is sent by {} in other versions than it takes", atom.noun(), entry.hook.name))
            }
            (None, None, None) => (true, format!("{} is sent by no entry", atom.noun())),
        });
    }
    gaps
}

impl Entry {
    /// Does it send what the atom means in a version that the atom's hook takes, whichever way a client has made it?
    fn sends(&self, wanted: &Atom, sent: &Atom) -> bool {
        if !wanted.is_sent_by(sent) {
            return false;
        }
        let equivalent = self.hook.match_policy == MatchPolicy::Equivalent;
        match (wanted.agrees_on_versions(sent), self.one_version) {
            (true, _) => equivalent || sent.takes("*"),
            // Elsewhere: a hook that is not sent its version there is asked by another entry, or not at all.
            (false, true) => false,
            (false, false) => sent.takes("*") || equivalent && sent.names_no_more_than(wanted),
        }
    }

    fn selects_all_of(&self, hook: &Hook) -> bool {
        let objects = &self.hook.object_selector;
        is_within(&hook.namespace_selector, &self.hook.namespace_selector)
            && (objects.is_empty() || *objects == hook.object_selector)
    }

    /// The namespaces that it leaves out and the hook does not, where that is all.
    fn left_out_by_name(&self, hook: &Hook) -> Option<Vec<String>> {
        let objects = &self.hook.object_selector;
        if !objects.is_empty() && *objects != hook.object_selector {
            return None;
        }
        let more = self.hook.namespace_selector.0.iter();
        let more = more.filter(|requirement| !implies(&hook.namespace_selector, requirement));
        let more = Selector(more.cloned().collect());
        let own = names_left_out(&hook.namespace_selector).unwrap_or_default();
        let names = names_left_out(&more)?;
        Some(names.into_iter().filter(|name| !own.contains(name)).map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{SourceFile, load};

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
        told(&snapshot(hook.0, hook.1), &path).unwrap()
    }

    #[test]
    fn a_hook_whose_rules_are_not_sent_is_found() {
        let things = |version: &str| {
            format!("{{operations: [CREATE], apiGroups: [x.io], apiVersions: [{version}], resources: [things]}}")
        };
        let creates = PODS.replace(", UPDATE", "");
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
            ((PODS, ""), (PODS, "/validate", LABEL), "a selector of g.validate.gatepost.dev leaves it out"),
        ] {
            let (told, covered) = of(hook, entry);
            assert_eq!(covered, words.is_empty(), "{hook:?} {entry:?}: {told}");
            assert!(told.contains(words), "{hook:?} {entry:?}: {told}");
            let place = "a.yaml: externalAdmissionHooks[0]: hook \"h.example.com\": ";
            assert_eq!(told.contains(place), !covered, "{told}");
        }
    }

    #[test]
    fn what_is_left_out_by_name_or_passes_unseen_is_told_and_is_no_failure() {
        let (told, covered) = of((PODS, ""), (PODS, "/validate", KS));
        assert!(covered && told.contains("CREATE of pods in kube-system is left out"), "{told}");
        let (told, covered) = of((PODS, ""), (PODS, "/validate", "failurePolicy: Ignore"));
        assert!(covered && told.contains("such writes pass unseen"), "{told}");
        let (told, _) = of((PODS, "failurePolicy: Ignore"), (PODS, "/validate", "failurePolicy: Ignore"));
        assert!(!told.contains("unseen"), "{told}");
    }

    #[test]
    fn what_is_no_registration_of_ours_is_refused() {
        assert!(entries("{}").err().unwrap().contains("gatepost register"));
        assert!(entries(&registration(PODS, "/other", "")).is_err());
        assert!(entries("a: [").is_err());
    }
}
