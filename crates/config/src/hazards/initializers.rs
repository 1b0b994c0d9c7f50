//! Initializers as hooks: each is one mutating hook for new objects of its resource.

use std::sync::Arc;

use crate::{Origin, Snapshot, coverage::as_a_hook};
use gatepost_api::{FailurePolicy, Hook, Initializer, Operation, ResourceInitializers, Rollout, Rule, Scope};

/// An initializer as a hook, so that it is analyzed as hooks are. The hook is never called.
pub(super) struct InitializerAsHook<'a> {
    pub(super) entry: &'a ResourceInitializers,
    pub(super) hook: Hook,
    pub(super) origin: Origin,
    /// Namespace of its pods, if a service account or certificate of it names one.
    pub(super) home: Option<Box<str>>,
}

/// Returns every initializer of the snapshot as a hook.
pub(super) fn as_hooks(snapshot: &Snapshot) -> Vec<InitializerAsHook<'_>> {
    let entries = snapshot.initializers.iter().zip(&snapshot.initializer_places);
    let placed = entries.flat_map(|(entry, places)| entry.initializers.iter().zip(places).map(move |it| (entry, it)));
    placed.map(|(entry, (one, place))| as_hook(entry, one, place)).collect()
}

fn as_hook<'a>(
    entry: &'a ResourceInitializers,
    one: &Initializer,
    (file, path): &(String, String),
) -> InitializerAsHook<'a> {
    // A built-in initializer needs no process, and objects wait for a client's update only if they are stored by label.
    let waits = one.built_in.is_none() && (one.attach.is_some() || entry.by_label);
    let declared_policy = if waits { one.failure_policy } else { FailurePolicy::Ignore };
    let hook = Hook {
        name: Arc::clone(&one.name),
        rules: vec![Rule {
            operations: vec![Operation::Create],
            api_groups: vec![entry.api_group.clone()],
            api_versions: vec!["*".into()],
            resources: vec![entry.resource.clone()],
            scope: Scope::Any,
        }],
        failure_policy: declared_policy,
        timeout: one.timeout,
        namespace_selector: one.namespace_selector.clone(),
        object_selector: one.object_selector.clone(),
        ..as_a_hook(entry)
    };
    let origin = Origin {
        configuration: "".into(),
        declared_policy,
        rolling_out: false,
        rollout: Rollout::default(),
        conditions: [].into(),
        state: None,
        file: file.clone(),
        path: path.clone(),
    };
    InitializerAsHook { entry, hook, origin, home: home(one) }
}

fn home(one: &Initializer) -> Option<Box<str>> {
    let users = one.owners.iter().flat_map(|owners| &owners.users);
    let names = one.attach.iter().flat_map(|attach| &attach.common_names).chain(users);
    names.into_iter().find_map(|name| match name.strip_prefix("system:serviceaccount:") {
        Some(account) => account.split_once(':').map(|(namespace, _)| namespace.into()),
        None => namespace_of(name),
    })
}

/// Returns the namespace in a Service's name: `name.namespace.svc`, with or without the cluster's domain after it.
pub(super) fn namespace_of(host: &str) -> Option<Box<str>> {
    let host = host.to_ascii_lowercase();
    let parts: Vec<&str> = host.split('.').collect();
    let svc = parts.iter().position(|part| *part == "svc").filter(|place| *place >= 2)?;
    Some(parts[svc - 1].into())
}
