//! Registration that the initializers of a configuration need: each resource's new objects, in every version.

use std::time::Duration;

use crate::model::{
    Endpoint, FailurePolicy, Hook, HookType, MatchPolicy, Operation, Protocol, Reinvocation, ResourceInitializers,
    Rule, Scope, Selector, SideEffects, Transport, hook::Address,
};

/// The longest time that an apiserver waits for a webhook.
const LONGEST: Duration = Duration::from_secs(30);
/// The beginning of the names of such hooks.
const PREFIX: &str = "initializers of ";

/// Is this the name of such a hook? No other may be called so: names have no blanks.
pub fn is_of_initializers(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// All initializers of a resource as if they were one mutating hook, so that it is compared with registrations as a
/// hook is. It is never called.
pub fn as_a_hook(entry: &ResourceInitializers) -> Hook {
    let mut rules = vec![rule(entry, Operation::Create, &[""])];
    if entry.by_label {
        rules.push(rule(entry, Operation::Update, &["", "/*"]));
    }
    hook(entry, HookType::Mutating, rules)
}

/// The check of what others write of objects that are stored by label, as if it were one validating hook: it comes after
/// all that may change the object. `None` where they are not.
pub fn as_a_guard(entry: &ResourceInitializers) -> Option<Hook> {
    let rules = || vec![rule(entry, Operation::Create, &[""]), rule(entry, Operation::Update, &["", "/*"])];
    entry.by_label.then(|| hook(entry, HookType::Validating, rules()))
}

/// A rule for that operation on these of its subresources, in every version.
fn rule(entry: &ResourceInitializers, operation: Operation, subresources: &[&str]) -> Rule {
    Rule {
        operations: vec![operation],
        api_groups: vec![entry.api_group.clone()],
        api_versions: vec!["*".into()],
        resources: subresources.iter().map(|sub| format!("{}{sub}", entry.resource).into()).collect(),
        scope: Scope::Any,
    }
}

fn hook(entry: &ResourceInitializers, hook_type: HookType, rules: Vec<Rule>) -> Hook {
    let initializers = &entry.initializers;
    let acts = |one: &&crate::model::Initializer| entry.by_label || one.acts_in_flight();
    let closed = initializers.iter().filter(acts).any(|one| one.failure_policy != FailurePolicy::Ignore);
    Hook {
        name: format!("{PREFIX}{}", entry.noun()).into(),
        hook_type,
        id: "".into(),
        rules,
        match_policy: MatchPolicy::Exact,
        sees_admission_config: false,
        endpoint: Endpoint { address: Address::Unix("".into()), tls: None, transport: Transport::Grpc },
        protocol: Protocol::Grpc,
        failure_policy: if closed { FailurePolicy::Fail } else { FailurePolicy::Ignore },
        // An initializer that has more time does not act while the request waits.
        timeout: initializers.iter().map(|one| one.timeout.min(LONGEST)).max().unwrap_or_default(),
        side_effects: SideEffects::None,
        reinvocation: Reinvocation::Never,
        dispatch: None,
        isolated: false,
        // A list that a client writes counts whatever the selectors are.
        namespace_selector: Selector::default(),
        object_selector: Selector::default(),
    }
}
