//! Registration that the initializers of a configuration need: each resource's new objects, in every version.

use crate::model::{
    Endpoint, FailurePolicy, Hook, HookType, MatchPolicy, Operation, Protocol, Reinvocation, ResourceInitializers,
    Rule, Scope, Selector, SideEffects, Transport, hook::Address,
};

/// The beginning of the names of such hooks.
const PREFIX: &str = "initializers of ";

/// Is this the name of such a hook? No other may be called so: names have no blanks.
pub fn is_of_initializers(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// All initializers of a resource as if they were one mutating hook, so that it is compared with registrations as a
/// hook is. It is never called.
pub fn as_a_hook(entry: &ResourceInitializers) -> Hook {
    let ResourceInitializers { api_group, resource, initializers, .. } = entry;
    let rule = Rule {
        operations: vec![Operation::Create],
        api_groups: vec![api_group.clone()],
        api_versions: vec!["*".into()],
        resources: vec![resource.clone()],
        scope: Scope::Any,
    };
    let closed = initializers.iter().any(|one| one.acts_in_flight() && one.failure_policy != FailurePolicy::Ignore);
    // Resources of two groups may have one name.
    let shown = if api_group.is_empty() { resource.to_string() } else { format!("{resource}.{api_group}") };
    Hook {
        name: format!("{PREFIX}{shown}").into(),
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
    }
}
