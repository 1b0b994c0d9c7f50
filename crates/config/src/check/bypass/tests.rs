//! Contents of a bypass rule.

use crate::{Snapshot, SourceFile, load};
use gatepost_api::BypassEffect;

const RULE: &str = "operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']";

fn loaded(entries: &str) -> Result<Snapshot, Vec<String>> {
    let text = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: default}}\n\
         bypass:\n{entries}"
    );
    let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
    load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into()))
        .map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// This entry has exactly one problem, at this path under it, that says this and how to mend it.
#[track_caller]
fn one_problem(entry: &str, path: &str, says: &str) {
    let found = loaded(&format!("- {{{entry}}}\n")).expect_err(entry);
    assert_eq!(found.len(), 1, "{entry}: {found:#?}");
    assert!(found[0].starts_with(&format!("a.yaml: bypass[0]{path}: ")), "{} is not at {path}", found[0]);
    assert!(found[0].contains(says) && found[0].contains("; "), "{} does not say {says:?} and a fix", found[0]);
}

#[test]
fn a_rule_is_compiled() {
    let entry = format!(
        "- {{name: ci, reason: told so, namespaces: [a], users: [u], groups: [g], serviceAccounts: [ns/sa.x], \
         hooks: [h.example.com], effect: FailOpen, resources: [{{{RULE}}}]}}\n"
    );
    let snapshot = loaded(&entry).expect("good");
    let bypass = &snapshot.bypasses()[0];
    assert_eq!((&*bypass.name, &*bypass.reason, bypass.effect), ("ci", "told so", BypassEffect::FailOpen));
    assert_eq!(*bypass.who.users, ["u".into(), "system:serviceaccount:ns:sa.x".into()]);
    assert_eq!((bypass.applies_to_hook("h.example.com"), bypass.applies_to_hook("i.example.com")), (true, false));
    let note = &snapshot.notes()[0];
    assert!(note.to_string().contains("no hook, initializer or policy is called \"h.example.com\""), "{note}");
    assert_eq!(note.path, "bypass[0].hooks");
    let by_default = loaded("- {name: ci, reason: told so, users: [u]}\n").expect("good");
    assert_eq!(by_default.bypasses()[0].effect, BypassEffect::Skip);
    assert!(by_default.bypasses()[0].applies_to_all_hooks());
}

#[test]
fn a_rule_may_name_an_initializer() {
    let entry = "- {name: ci, reason: told so, users: [u], hooks: [i.example.com, j.example.com]}\n\
                 resourceInitializers: [{resource: pods, initializers: [i.example.com]}]\n";
    let notes: Vec<_> = loaded(entry).expect("good").notes().iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("no hook, initializer or policy is called \"j.example.com\""), "{notes:?}");
}

#[test]
fn what_is_wrong_is_said() {
    let good = "name: r, reason: told so";
    let user = "users: [u]";
    one_problem(&format!("reason: x, {user}"), ".name", "is missing");
    one_problem(&format!("name: A_b, reason: x, {user}"), ".name", "is not a name");
    one_problem(&format!("name: {}, reason: x, {user}", "a".repeat(64)), ".name", "is not a name");
    one_problem(&format!("name: own-configuration, reason: x, {user}"), ".name", "own-configuration is what");
    one_problem(&format!("name: r, {user}"), ".reason", "is missing");
    one_problem(&format!("name: r, reason: ' ', {user}"), ".reason", "is empty");
    one_problem(&format!("name: r, reason: \"a\\nb\", {user}"), ".reason", "line break");
    one_problem(&format!("name: r, reason: {}, {user}", "x".repeat(1025)), ".reason", "longer than");
    one_problem(&format!("{good}, {user}, effect: Open"), ".effect", "is not one of the allowed words");
    one_problem(&format!("{good}, {user}, user: u"), ".user", "is not a known key");
    one_problem(&format!("{good}, {user}, hooks: []"), ".hooks", "is empty");
    one_problem(&format!("{good}, users: []"), ".users", "is empty");
    for key in ["hooks", "namespaces", "groups", "serviceAccounts", "resources"] {
        one_problem(&format!("{good}, {user}, {key}: "), &format!(".{key}"), "is empty");
    }
    one_problem(&format!("{good}, users: ['']"), ".users[0]", "is empty");
    one_problem(&format!("{good}, users: ['system:*']"), ".users[0]", "is not the name of one user");
    one_problem(&format!("{good}, users: ['system:anonymous']"), ".users[0]", "is not the name of one user");
    one_problem(&format!("{good}, groups: ['system:authenticated']"), ".groups[0]", "is not a group of some users");
    one_problem(&format!("{good}, namespaces: ['kube-*']"), ".namespaces[0]", "is not a namespace");
    one_problem(&format!("{good}, serviceAccounts: [deployer]"), ".serviceAccounts[0]", "is not a service account");
    one_problem(&format!("{good}, resources: []"), ".resources", "is empty");
    one_problem(
        &format!("{good}, {user}, resources: [{{apiVersions: [v1], resources: [pods]}}]"),
        ".resources[0].apiGroups",
        "is missing",
    );
}

#[test]
fn no_rule_opens_everything() {
    one_problem("name: r, reason: told so", "", "would let every request past");
    one_problem("name: r, reason: told so, hooks: [h.example.com]", "", "would let every request past");
    one_problem(&format!("name: r, reason: told so, resources: [{{{RULE}}}]"), ".resources", "is every request");
    let narrower = RULE.replace("operations: ['*']", "operations: [DELETE]");
    assert!(loaded(&format!("- {{name: r, reason: told so, resources: [{{{narrower}}}]}}\n")).is_ok());
    assert!(loaded(&format!("- {{name: r, reason: told so, users: [u], resources: [{{{RULE}}}]}}\n")).is_ok());
}

#[test]
fn names_are_unique() {
    let found = loaded("- {name: r, reason: x, users: [u]}\n- {name: r, reason: y, users: [v]}\n").expect_err("twice");
    assert!(
        found[0].contains("bypass[1].name: the bypass \"r\" is already defined at a.yaml: bypass[0].name"),
        "{found:?}"
    );
}
