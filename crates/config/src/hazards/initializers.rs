//! Initializers as hooks: each as if it were one mutating hook, asked about new objects of its resource.

use std::{sync::Arc, time::Duration};

use gatepost_api::{FailurePolicy, Hook, Initializer, Operation, ResourceInitializers, Rollout, Rule, Scope};

use super::{
    finding::{FindingDraft, Severity},
    mend::Mend,
    view::{HookView, View, listed},
};
use crate::{Origin, Snapshot, coverage::as_a_hook};

/// An initializer as a hook, so that requests are held against it as against hooks. It is never called.
pub(super) struct InitializerAsHook<'a> {
    pub(super) entry: &'a ResourceInitializers,
    pub(super) hook: Hook,
    pub(super) origin: Origin,
    /// The namespace its pods are in, where a service account or a certificate of it says so.
    pub(super) home: Option<Box<str>>,
}

/// Every initializer of the snapshot.
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
    // A built-in one needs no process; and objects wait for who updates them only where they are stored unfinished.
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

/// The namespace in a Service's name: `name.namespace.svc`, with or without the cluster's domain after it.
pub(super) fn namespace_of(host: &str) -> Option<Box<str>> {
    let host = host.to_ascii_lowercase();
    let parts: Vec<&str> = host.split('.').collect();
    let svc = parts.iter().position(|part| *part == "svc").filter(|place| *place >= 2)?;
    Some(parts[svc - 1].into())
}

/// Wait of an apiserver for a webhook whose registration does not say how long.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Only processes take time; what is built in acts whatever is left.
pub(super) fn turns_too_long(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    let all: Vec<(usize, &HookView<'_>)> =
        view.hooks.iter().enumerate().filter(|(_, seen)| seen.initializes.is_some()).collect();
    for seen in all.chunk_by(|(_, one), (_, other)| one.initializes == other.initializes) {
        let Some(entry) = seen.first().and_then(|(_, seen)| seen.initializes).filter(|entry| !entry.by_label) else {
            continue;
        };
        let turns = entry.initializers.iter().zip(seen).filter(|(one, _)| one.attach.is_some());
        let turns: Vec<(&Initializer, &(usize, &HookView<'_>))> = turns.collect();
        let (mut before, mut sum) = (Vec::new(), Duration::ZERO);
        for together in turns.chunk_by(|(one, _), (other, _)| one.parallel && other.parallel) {
            if sum >= REQUEST_TIMEOUT {
                found.extend(together.first().map(|(one, seen)| without_time(one, seen, &before, sum)));
                break;
            }
            let passed_over = together.iter().filter(|(one, _)| one.failure_policy == FailurePolicy::Ignore);
            sum += passed_over.clone().map(|(one, _)| one.timeout).max().unwrap_or_default();
            before.extend(passed_over.map(|(_, seen)| *seen));
        }
    }
}

fn without_time(
    one: &Initializer,
    (number, seen): &(usize, &HookView<'_>),
    before: &[&(usize, &HookView<'_>)],
    sum: Duration,
) -> FindingDraft {
    let effect = match one.failure_policy {
        FailurePolicy::Ignore => "objects are created without it",
        FailurePolicy::Fail | FailurePolicy::Retry => "new objects are refused",
    };
    let numbers = before.iter().map(|(number, _)| *number).chain([*number]);
    FindingDraft {
        rule: "initializers-without-time",
        severity: Severity::Gap,
        what: format!(
            "{seen} acts behind {}, which may take {} before the object goes on without them",
            listed(before.iter().map(|(_, seen)| format!("{:?}", seen.hook.name))),
            humantime::format_duration(sum),
        ),
        why: format!(
            "so while they hang, too little is left for it of the {} that an apiserver waits where its registration says \
             nothing else, and {effect}",
            humantime::format_duration(REQUEST_TIMEOUT),
        ),
        fix: Some(
            "give those before it timeouts that sum to less, such as 1s each; or say parallel: true where neighbours change \
             parts of their own; or let it act before them, by their `after`"
                .to_owned(),
        ),
        outages: &[],
        mends: numbers.map(|number| (number, Mend::default())).collect(),
    }
}
