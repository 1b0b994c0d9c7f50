//! What the initializers of a configuration want to be asked about: each resource's new objects, in every version.

use std::sync::Arc;

use super::plan::Wanted;
use crate::{
    model::{
        Endpoint, FailurePolicy, Hook, HookType, MatchPolicy, Operation, Protocol, Reinvocation, ResourceInitializers,
        Rule, Scope, Selector, SideEffects, Transport, hook::Address,
    },
    snapshot::Snapshot,
};

/// The beginning of their names.
const PREFIX: &str = "initializers of ";

/// One for each resource that has some, as if all of its initializers were one mutating hook. Nobody calls that hook: a
/// plan looks at what it is asked about.
pub(super) fn wanted(snapshot: &Snapshot) -> Vec<Wanted> {
    snapshot.initializers().iter().filter(|entry| !entry.initializers.is_empty()).map(as_a_hook).collect()
}

/// Is this what such a hook is called? No other may be: names have no blanks.
pub(super) fn is_its_name(name: &str) -> bool {
    name.starts_with(PREFIX)
}

fn as_a_hook(entry: &ResourceInitializers) -> Wanted {
    let ResourceInitializers { api_group, resource, initializers, .. } = entry;
    let rule = Rule {
        operations: vec![Operation::Create],
        api_groups: vec![api_group.clone()],
        api_versions: vec!["*".into()],
        resources: vec![resource.clone()],
        scope: Scope::Any,
    };
    let closed = initializers.iter().any(|one| one.failure_policy != FailurePolicy::Ignore);
    let hook = Hook {
        name: format!("{PREFIX}{resource}").into(),
        hook_type: HookType::Mutating,
        id: "".into(),
        rules: vec![rule],
        match_policy: MatchPolicy::Exact,
        sees_admission_config: false,
        endpoint: Endpoint { address: Address::Unix("".into()), tls: None, transport: Transport::Grpc },
        protocol: Protocol::Grpc,
        failure_policy: if closed { FailurePolicy::Fail } else { FailurePolicy::Ignore },
        timeout: initializers.iter().map(|one| one.timeout).max().unwrap_or_default(),
        side_effects: SideEffects::None,
        reinvocation: Reinvocation::Never,
        dispatch: None,
        isolated: false,
        // A list that a client writes counts whatever the selectors are.
        namespace_selector: Selector::default(),
        object_selector: Selector::default(),
    };
    Wanted { hook: Arc::new(hook), closed }
}

#[cfg(test)]
mod tests {
    use super::{super::plan::plan, *};
    use crate::snapshot::{self, SourceFile};

    #[test]
    fn new_objects_of_each_resource_are_sent_once_under_the_policy_of_its_initializers() {
        let text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                    resourceInitializers:\n\
                    - {resource: pods, initializers: [{name: a}, {name: b, failurePolicy: Fail}]}\n\
                    - {apiGroup: apps, resource: deployments, initializers: [{name: a}]}\n\
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
        assert_eq!(entries, [(true, vec![rules("", "pods")]), (false, vec![rules("apps", "deployments")])]);
        assert!(plan.twice.is_empty() && !plan.one_version);
    }
}
