use crate::{
    model::builtin,
    snapshot::{self, SourceFile},
};

use super::*;

/// Hooks a, b, c … with these rules each: `operations | groups | versions | resources`.
fn hooks(rules: &[&[&str]]) -> Vec<Arc<Hook>> {
    let mut text = String::from(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: default}\nexternalAdmissionHooks:\n",
    );
    for (rules, name) in rules.iter().zip('a'..) {
        text += &format!("- name: {name}.example.com\n  clientConfig: {{url: 'grpc://127.0.0.1:1'}}\n  rules:\n");
        for rule in *rules {
            let parts: Vec<_> = rule.split('|').map(str::trim).collect();
            let [operations, groups, versions, resources] = parts[..] else { panic!("{rule}") };
            text += &format!(
                "  - {{operations: [{operations}], apiGroups: [{groups}], apiVersions: [{versions}], resources: [{resources}]}}\n"
            );
        }
    }
    let file = SourceFile { name: "x.yaml".into(), bytes: text.into() };
    snapshot::load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap().hooks
}

/// The entries, each rule in the form above.
fn union_of(rules: &[&[&str]]) -> (Vec<Vec<String>>, Vec<String>) {
    let union = union(&hooks(rules));
    let words = |value: &Value| -> String {
        value.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect::<Vec<_>>().join(",")
    };
    let rule =
        |rule: &Value| ["operations", "apiGroups", "apiVersions", "resources"].map(|key| words(&rule[key])).join("|");
    let entries = union.entries.iter().map(|entry| super::rules(entry).iter().map(rule).collect()).collect();
    (entries, union.twice.iter().map(|name| name.to_string()).collect())
}

fn one_entry(rules: &[&[&str]], wanted: &[&str]) {
    let (entries, twice) = union_of(rules);
    assert_eq!((entries, twice), (vec![wanted.iter().map(|&rule| rule.to_owned()).collect()], vec![]), "{rules:?}");
}

#[test]
fn equal_rules_are_one() {
    one_entry(
        &[&["CREATE, UPDATE | '' | v1 | pods"], &["CREATE, UPDATE | '' | v1 | pods"]],
        &["CREATE,UPDATE||v1|pods"],
    );
}

#[test]
fn resources_and_groups_are_put_together() {
    one_entry(
        &[&["CREATE | '' | v1 | pods"], &["CREATE | '' | v1 | services, pods/exec"]],
        &["CREATE||v1|pods,pods/exec,services"],
    );
    one_entry(&[&["CREATE | a.b | v1 | xs"], &["CREATE | c.d | v1 | xs"]], &["CREATE|a.b,c.d|v1|xs"]);
}

#[test]
fn what_another_rule_sees_is_left_out() {
    one_entry(
        &[&["'*' | '*' | '*' | '*/*'"], &["CREATE | '' | v1 | pods"], &["DELETE | apps | v1 | deployments/scale"]],
        &["CREATE,UPDATE,DELETE,CONNECT|*|*|*/*"],
    );
    one_entry(
        &[&["CREATE | '' | v1 | '*'"], &["CREATE | '' | v1 | pods"], &["CREATE | '' | v1 | pods/exec"]],
        &["CREATE||v1|*,pods/exec"],
    );
    one_entry(&[&["CREATE | '' | v1 | pods/*"], &["CREATE | '' | v1 | pods"]], &["CREATE||v1|pods/*"]);
}

#[test]
fn groups_with_one_version_never_disagree() {
    one_entry(
        &[&["CREATE | apps | '*' | deployments"], &["CREATE | apps | v1, v1beta1 | deployments"]],
        &["CREATE|apps|v1|deployments"],
    );
}

#[test]
fn different_versions_of_one_resource_are_different_entries() {
    let (entries, twice) = union_of(&[&["CREATE | x.io | v1 | things"], &["CREATE | x.io | v1beta1 | things"]]);
    assert_eq!(entries, [["CREATE|x.io|v1|things"], ["CREATE|x.io|v1beta1|things"]]);
    assert!(twice.is_empty(), "each sees its own version only: {twice:?}");
    one_entry(
        &[&["CREATE | x.io | v1 | things"], &["CREATE | x.io | v1beta1 | others"]],
        &["CREATE|x.io|v1beta1|others", "CREATE|x.io|v1|things"],
    );
    one_entry(
        &[&["CREATE | x.io | v1 | things"], &["DELETE | x.io | v1beta1 | things"]],
        &["CREATE|x.io|v1|things", "DELETE|x.io|v1beta1|things"],
    );
}

#[test]
fn versions_that_overlap_may_be_asked_about_twice_and_are_named() {
    let (entries, twice) = union_of(&[
        &["CREATE | x.io | v1 | things"],
        &["CREATE | x.io | v1, v1beta1 | things"],
        &["CREATE | y.io | v2 | things"],
    ]);
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert_eq!(twice, ["a.example.com", "b.example.com"]);
    // A request in v1 is left to the first entry, and in any other version the second hook is asked by its own alone.
    let (entries, twice) = union_of(&[&["CREATE | x.io | v1 | things"], &["CREATE | '*' | '*' | '*'"]]);
    assert_eq!((entries.len(), twice.len()), (2, 0), "{entries:?}");
}

#[test]
fn the_order_of_hooks_does_not_matter() {
    let rules: [&[&str]; 3] = [
        &["CREATE | x.io | v1 | things", "UPDATE | '' | v1 | pods"],
        &["CREATE | x.io | v2 | things"],
        &["CREATE | '*' | '*' | '*/scale'"],
    ];
    let all = hooks(&rules);
    let turned: Vec<_> = all.iter().rev().cloned().collect();
    assert_eq!(union(&all), union(&turned));
}

/// Sent by way of one group, a hook that takes the other alone would not be asked.
#[test]
fn events_are_sent_to_each_hook_in_the_group_that_it_takes() {
    let (entries, twice) = union_of(&[&["CREATE | '' | v1 | events"], &["CREATE | events.k8s.io | v1 | events"]]);
    assert_eq!(entries, [["CREATE||v1|events"], ["CREATE|events.k8s.io|v1|events"]]);
    assert!(twice.is_empty(), "{twice:?}");
    // A hook that takes both is asked once where it stands alone.
    one_entry(&[&["CREATE | '', events.k8s.io | v1 | events"]], &["CREATE|,events.k8s.io|v1|events"]);
    let (entries, twice) = union_of(&[&["CREATE | '', events.k8s.io | v1 | events"], &["CREATE | '' | v1 | events"]]);
    assert_eq!((entries.len(), twice.len()), (2, 0), "the one that takes both is asked as the client has made it");
    one_entry(
        &[&["CREATE | '' | v1 | pods"], &["CREATE | events.k8s.io | v1 | events"]],
        &["CREATE||v1|pods", "CREATE|events.k8s.io|v1|events"],
    );
}

/// Beside a hook for everything, which is sent them as they were made.
#[test]
fn what_another_group_shares_is_converted_beside_a_hook_for_every_group() {
    for (resource, groups) in builtin::SHARED {
        let served = !groups.contains(&builtin::UNSERVED_GROUP);
        for group in groups.iter().filter(|group| **group != builtin::UNSERVED_GROUP) {
            let version = builtin(group, resource).unwrap().versions[0];
            let own = format!("CREATE | '{group}' | {version} | {resource}");
            for all in
                ["'*' | '*' | '*' | '*/*'", "CREATE | '*' | '*' | '*'", &format!("CREATE | '*' | '*' | {resource}")]
            {
                let (entries, _) = union_of(&[&[all], &[&own]]);
                let converts = entries.iter().flatten().any(|rule| rule.contains(&format!("|{group}|{version}|")));
                // Where the versions differ there is an entry in any case.
                assert!(converts || !served, "{all} {own}: {entries:?}");
                let own = format!("CREATE | '{group}' | '*' | {resource}");
                let (entries, _) = union_of(&[&[all, &own]]);
                assert_eq!(entries.len(), 1, "{all} {own}: a hook that takes every group needs no conversion");
            }
        }
    }
}
