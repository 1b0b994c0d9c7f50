//! Requests that the initializers of a configuration want: each resource's new objects, in every version.

use std::sync::Arc;

use super::plan::Wanted;
use crate::{
    model::FailurePolicy,
    snapshot::{Snapshot, coverage},
};

/// One for each resource whose new objects must be sent, as if all of its initializers were one mutating hook. Such a hook
/// is never called: a plan only looks at its requests.
pub(super) fn wanted(snapshot: &Snapshot) -> Vec<Wanted> {
    let needing = snapshot.initializers().iter().filter(|entry| entry.need_requests());
    let hooks = needing.map(coverage::as_a_hook);
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
        let plan = plan(&wanted(&snapshot), &[]);
        let entries: Vec<_> =
            plan.entries.iter().map(|entry| (entry.closed, super::super::union::rules(&entry.atoms))).collect();
        let rules = |group: &str, resource: &str| {
            serde_json::json!({"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource],
                "scope": "*"})
        };
        // Names that nobody acts for need nothing, and close nothing.
        let open = vec![rules("", "configmaps"), rules("apps", "deployments")];
        assert_eq!(entries, [(true, vec![rules("", "pods")]), (false, open)]);
        assert!(plan.twice.is_empty() && !plan.one_version);
    }
}
