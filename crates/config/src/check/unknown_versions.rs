//! Unknown versions: notes on hooks whose resources are served in versions that a configuration does not show,
//! and on those that name versions in which none is.

use std::sync::Arc;

use super::never_matches::dead;
use crate::{Note, Origin, document::problem::quoted};
use gatepost_api::{Hook, MatchPolicy, Rule, builtin, served};

/// Remark on a hook, what comes of it, and advice.
type Remark = (String, &'static str, &'static str);

/// Notes on hooks whose versions are unknown, in the order of the hooks.
pub(crate) fn notes(hooks: &[Arc<Hook>], origins: &[Arc<Origin>]) -> Vec<Note> {
    let mut notes = Vec::new();
    for (hook, origin) in hooks.iter().zip(origins) {
        let equivalent = (hook.match_policy == MatchPolicy::Equivalent).then_some(hook);
        let (unknown, shared) = (equivalent.and_then(|hook| unknown(hook)), equivalent.and_then(|hook| shared(hook)));
        for (what, why, fix) in [unknown, shared, never_served(hook)].into_iter().flatten() {
            let (what, why, fix) = (format!("hook {:?} {what}", hook.name), why.to_owned(), fix.to_owned());
            notes.push(Note { file: origin.file.clone(), path: origin.path.clone(), what, why, fix });
        }
    }
    notes
}

/// Every resource of a group that is not Kubernetes' own, or of any group, in some versions: whether a resource that is
/// written in another one is served in these, only its apiserver knows.
fn unknown(hook: &Hook) -> Option<Remark> {
    let is_open = |rule: &&Rule| !any(&rule.api_versions) && rule.resources.iter().any(|entry| entry.starts_with('*'));
    let groups = hook.rules.iter().filter(is_open).flat_map(|rule| &rule.api_groups);
    let mut groups: Vec<&str> = groups.map(AsRef::as_ref).filter(|group| !builtin::is_group(group)).collect();
    groups.sort_unstable();
    groups.dedup();
    let of = match groups[..] {
        [] => return None,
        ["*", ..] => "every group".to_owned(),
        [one] => one.to_owned(),
        [one, ..] => format!("{one} and {} more", groups.len() - 1),
    };
    let fix = "write apiVersions [\"*\"] for every version, or matchPolicy Exact for those named alone";
    Some((
        format!("names versions of all resources of {of}"),
        "and in which versions these are served cannot be told from here: what is written in another one is a failed \
         call (other_version), unless serve knows the cluster (--namespaces-from)",
        fix,
    ))
}

/// Events are stored as one, whether they are written by way of the core group or of events.k8s.io.
fn shared(hook: &Hook) -> Option<Remark> {
    let sees = |group: &str| {
        hook.rules.iter().any(|rule| {
            let in_group = any(&rule.api_groups) || rule.api_groups.iter().any(|named| **named == *group);
            let means = |entry: &str| ["*", "events"].contains(&entry.split('/').next().unwrap_or(entry));
            in_group && rule.resources.iter().any(|entry| means(entry))
        })
    };
    let (named, other) = match ["", "events.k8s.io"].map(sees) {
        [true, false] => ("the core group", "events.k8s.io"),
        [false, true] => ("events.k8s.io", "the core group"),
        _ => return None,
    };
    Some((
        format!("sees events of {named} and means those of {other}, too"),
        "which are the same: written there, they are failed calls (other_version) where kube-apiserver does not \
         convert them",
        "name both groups, or write matchPolicy Exact",
    ))
}

/// A rule that names no version in which Kubernetes serves one of its own resources: as with kube-apiserver, the hook
/// is not asked about it. An entry that matches nothing for any reason is a finding already.
fn never_served(hook: &Hook) -> Option<Remark> {
    let rules = hook.rules.iter().filter(|rule| !any(&rule.api_versions));
    rules.into_iter().find_map(|rule| {
        let found: Vec<_> = dead(rule).iter().filter(|dead| dead.key == "resources").map(|dead| dead.entry).collect();
        let written = || rule.resources.iter().enumerate().filter(|(entry, _)| !found.contains(entry));
        let resources = || written().map(|(_, entry)| entry.split('/').next().unwrap_or(entry));
        let mut pairs = rule.api_groups.iter().flat_map(|group| resources().map(move |resource| (&**group, resource)));
        let is_never = |(group, resource): &(&str, &str)| {
            let versions = served::versions(None, group, resource);
            !versions.may(|known| rule.api_versions.iter().any(|version| **version == *known))
        };
        let (group, resource) = pairs.find(is_never)?;
        let shown = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let versions = quoted(&rule.api_versions.join(", "));
        Some((
            format!("names {shown} in versions in which Kubernetes does not serve them ({versions})"),
            "so it is not asked about them",
            "name one that is served, or write apiVersions [\"*\"] for every version",
        ))
    })
}

fn any(list: &[Box<str>]) -> bool {
    list.iter().any(|entry| **entry == *"*")
}

#[cfg(test)]
mod tests {
    use crate::{SourceFile, load};

    /// Notes on a hook with this rule.
    fn noted(rule: &str) -> Vec<String> {
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: a}}\n\
             externalAdmissionHooks:\n- name: h.example.com\n  clientConfig: {{url: 'grpc://127.0.0.1:1'}}\n  sideEffects: None\n  {rule}\n"
        );
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).expect("good");
        snapshot.notes().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_a_configuration_does_not_show_is_noted_for_each_hook() {
        let rules = |groups: &str, versions: &str, resources: &str| {
            format!("rules: [{{apiGroups: [{groups}], apiVersions: [{versions}], resources: [{resources}]}}]")
        };
        for (rule, says) in [
            (rules("example.com", "v1", "'*'"), Some("all resources of example.com")),
            (rules("'*'", "v1", "'*/*'"), Some("all resources of every group")),
            (rules("a.example.com, apps, b.example.com", "v1, v2", "'*/scale'"), Some("of a.example.com and 1 more")),
            (rules("example.com", "v1", "widgets"), None),
            (rules("example.com", "'*'", "'*'"), None),
            (rules("apps", "v1", "'*'"), None),
            (rules("''", "v1", "'*'"), Some("sees events of the core group and means those of events.k8s.io")),
            (
                rules("events.k8s.io", "v1", "events"),
                Some("sees events of events.k8s.io and means those of the core group"),
            ),
            (rules("'', events.k8s.io", "v1", "events"), None),
            (rules("''", "v1", "pods"), None),
            (rules("apps", "v1, v1beta9", "deployments"), None),
            (rules("apps", "v2", "deployments"), None),
        ] {
            let message = noted(&rule);
            assert_eq!(message.len(), usize::from(says.is_some()), "{rule}: {message:?}");
            if let Some(says) = says {
                assert!(
                    message[0].starts_with("a.yaml: externalAdmissionHooks[0]: hook \"h.example.com\""),
                    "{message:?}"
                );
                assert!(message[0].contains(says), "{message:?}");
            }
            assert!(noted(&format!("matchPolicy: Exact\n  {rule}")).is_empty(), "{rule}");
        }
        let found = rules("apps", "v1beta9, v1alpha9", "deployments/scale");
        assert!(noted(&found).is_empty(), "it is a finding, and not reported twice: {:?}", noted(&found));
        let both = |version: &str| rules("example.com, apps", version, "deployments");
        for (rule, says) in [
            (
                rules("example.com, ''", "v1beta1", "pods"),
                "names pods in versions in which Kubernetes does not serve them",
            ),
            (both("v2"), "names deployments.apps in versions in which Kubernetes does not serve them (\"v2\")"),
            (both("v1beta9, v9"), "does not serve them (\"v1beta9, v9\")"),
        ] {
            for policy in ["Equivalent", "Exact"] {
                let message = noted(&format!("matchPolicy: {policy}\n  {rule}"));
                assert!(message.len() == 1 && message[0].contains(says), "{rule}: {message:?}");
            }
        }
    }
}
