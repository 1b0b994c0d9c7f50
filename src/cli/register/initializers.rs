//! Requests that the initializers of a configuration want: each resource's new objects, in every version.

use std::sync::Arc;

use super::plan::Wanted;
use crate::{
    model::{FailurePolicy, HookType},
    snapshot::{Snapshot, coverage},
};

/// One for each resource whose new objects must be sent, as if all of its initializers were one mutating hook. Such a hook
/// is never called: a plan only looks at its requests.
pub(super) fn wanted(snapshot: &Snapshot, hook_type: HookType) -> Vec<Wanted> {
    let needing = snapshot.initializers().iter().filter(|entry| entry.need_requests());
    let hooks = needing.filter_map(|entry| match hook_type {
        HookType::Mutating => Some(coverage::as_a_hook(entry)),
        HookType::Validating => coverage::as_a_guard(entry),
    });
    hooks.map(|hook| Wanted { closed: hook.failure_policy != FailurePolicy::Ignore, hook: Arc::new(hook) }).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::plan::plan, *};
    use crate::snapshot::{self, SourceFile};

    #[test]
    fn new_objects_of_each_resource_are_sent_once_under_the_policy_of_its_initializers() {
        let text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                    resourceInitializers:\n\
                    - resource: pods\n  \
                      initializers: [{name: a, builtIn: {labels: {a: b}}}, {name: b, failurePolicy: Fail, attach: {commonNames: [b]}}]\n\
                    - {apiGroup: apps, resource: deployments, initializers: [{name: c, failurePolicy: Fail}, {name: a, builtIn: {labels: {a: b}}}]}\n\
                    - {resource: configmaps, mayInitialize: {users: [ann]}, initializers: []}\n\
                    - {resource: secrets, initializers: [{name: c, failurePolicy: Fail}]}\n\
                    - {resource: services, initializers: []}\n";
        let files = [SourceFile { name: "a.yaml".into(), bytes: text.into() }];
        let snapshot = snapshot::load(&files, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        let plan = plan(&wanted(&snapshot, HookType::Mutating), &[]);
        let entries: Vec<_> =
            plan.entries.iter().map(|entry| (entry.closed, super::super::union::rules(&entry.atoms))).collect();
        let rules = |group: &str, resource: &str| {
            serde_json::json!({"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource],
                "scope": "*"})
        };
        assert!(wanted(&snapshot, HookType::Validating).is_empty());
        // Names that nobody acts for need nothing, and close nothing.
        let open = vec![rules("", "configmaps"), rules("apps", "deployments")];
        assert_eq!(entries, [(true, vec![rules("", "pods")]), (false, open)]);
        assert!(plan.twice.is_empty() && !plan.one_version);
    }
    #[test]
    fn objects_that_are_stored_by_label_are_sent_when_they_are_updated_too_and_to_be_validated() {
        let text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                    resourceInitializers:\n\
                    - {resource: configmaps, stored: Label, initializers: [{name: a, failurePolicy: Fail}]}\n";
        let files = [SourceFile { name: "a.yaml".into(), bytes: text.into() }];
        let snapshot = snapshot::load(&files, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        for hook_type in [HookType::Mutating, HookType::Validating] {
            let plan = plan(&wanted(&snapshot, hook_type), &[]);
            let entries: Vec<_> =
                plan.entries.iter().map(|entry| (entry.closed, super::super::union::rules(&entry.atoms))).collect();
            let sent = |operation: &str, resource: &str| {
                entries.iter().any(|(closed, rules)| {
                    let has = |list: &serde_json::Value, text: &str| {
                        list.as_array().is_some_and(|list| list.iter().any(|one| one == text))
                    };
                    let covers = |rule: &serde_json::Value| {
                        has(&rule["operations"], operation) && has(&rule["resources"], resource)
                    };
                    *closed && rules.iter().any(covers)
                })
            };
            assert!(sent("CREATE", "configmaps") && !sent("CREATE", "configmaps/*"), "{entries:?}");
            // It names the objects themselves as well.
            assert!(sent("UPDATE", "configmaps/*"), "{entries:?}");
        }
    }
}
