//! View: hooks, and the requests for which they are called, as far as a configuration shows it.

use std::{collections::BTreeMap, fmt};

use bytestring::ByteString;

use super::{
    initializers::{InitializerAsHook, namespace_of},
    severity::Severity,
};
use crate::{Origin, Pause, Snapshot, check::namespace::NAME_LABEL};
use gatepost_api::{
    Bypass, FailurePolicy, Gvr, Hook, HookType, Labels, MatchPolicy, Operation, ResourceInitializers, Rule, RuleTarget,
    Selector, hook::Address, selector::Requirement,
};

/// Whether a hook is called. Later variants are more certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sees {
    No,
    /// Called, unless labels that the configuration does not show, or a bypass, exclude the request.
    Perhaps,
    Yes,
}

impl Sees {
    /// Returns `severity` if the hook is certainly called, otherwise [`Severity::Gap`].
    pub(super) fn worth(self, severity: Severity) -> Severity {
        if self == Self::Yes { severity } else { Severity::Gap }
    }

    /// Returns the end of a sentence about an uncertain finding.
    pub(super) fn unless(self) -> &'static str {
        match self {
            Self::Yes | Self::No => "",
            Self::Perhaps => {
                ", unless labels that the configuration does not show keep it away, or a bypass lets all who write it \
                 past: write the Namespace document into the configuration, or exclude the namespace by its name"
            }
        }
    }
}

/// All hooks of a snapshot, followed by its initializers.
pub(super) struct View<'a> {
    pub(super) hooks: Vec<HookView<'a>>,
    snapshot: &'a Snapshot,
}

/// One hook, or an initializer as a hook.
pub(super) struct HookView<'a> {
    pub(super) hook: &'a Hook,
    /// Resource of an initializer; `None` for a hook.
    pub(super) initializes: Option<&'a ResourceInitializers>,
    pub(super) origin: &'a Origin,
    /// Rules that may match any request of this analysis.
    rules: Vec<&'a Rule>,
    /// True if a failed call rejects the request, now or after the rollout.
    pub(super) fails_closed: bool,
    /// Namespace of its pods, if the name of a Service or of a service account shows it.
    pub(super) home: Option<Box<str>>,
}

impl fmt::Display for HookView<'_> {
    /// `hook "a.example.com"`, `initializer "a.example.com" of pods`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.initializes {
            None => write!(f, "hook {:?}", self.hook.name),
            Some(entry) => write!(f, "initializer {:?} of {}", self.hook.name, entry.noun()),
        }
    }
}

impl HookView<'_> {
    /// Returns the verb for its effect on a request that waits for it.
    pub(super) fn must(&self) -> &'static str {
        if self.initializes.is_some() { "must act on" } else { "must approve" }
    }

    /// Returns true if the hook decides about requests. A hook that changes new objects, such as an injector of
    /// sidecars, may have no use for other requests, and may fail on them.
    pub(super) fn validates(&self) -> bool {
        self.hook.hook_type == HookType::Validating
    }
}

impl<'a> View<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, initializers: &'a [InitializerAsHook<'a>], pause: Pause<'_>) -> Self {
        /// Number of hooks between two pauses.
        const HOOKS_PER_PAUSE: usize = 50;
        let analyzed = |rule: &&Rule| rule.api_groups.iter().any(|group| is_analyzed(group));
        let mut hooks = Vec::with_capacity(snapshot.hooks.len());
        for (number, (hook, origin)) in snapshot.hooks.iter().zip(&snapshot.origins).enumerate() {
            if number % HOOKS_PER_PAUSE == 0 {
                pause();
            }
            hooks.push(HookView {
                hook,
                initializes: None,
                origin,
                rules: hook.rules.iter().filter(analyzed).collect(),
                fails_closed: hook.fails_closed(origin.declared_policy),
                home: home(&hook.endpoint.address),
            });
        }
        hooks.extend(initializers.iter().map(|InitializerAsHook { entry, hook, origin, home }| HookView {
            hook,
            initializes: Some(entry),
            origin,
            rules: hook.rules.iter().filter(analyzed).collect(),
            fails_closed: origin.declared_policy != FailurePolicy::Ignore,
            home: home.clone(),
        }));
        Self { hooks, snapshot }
    }

    /// Returns every hook whose failures reject, with its number.
    pub(super) fn fail_closed_hooks(&self) -> impl Iterator<Item = (usize, &HookView<'a>)> {
        self.hooks.iter().enumerate().filter(|(_, seen)| seen.fails_closed)
    }

    /// Returns the hooks whose failures reject by the namespace of their pods.
    pub(super) fn homes(&self) -> BTreeMap<&str, Vec<usize>> {
        let mut homes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (number, seen) in self.fail_closed_hooks() {
            if let Some(home) = &seen.home {
                homes.entry(home).or_default().push(number);
            }
        }
        homes
    }

    /// Returns the hooks among these whose rules match any new pod.
    pub(super) fn over_pods(&self, hooks: &[usize]) -> Vec<&HookView<'a>> {
        hooks.iter().map(|number| &self.hooks[*number]).filter(|seen| by_rules(seen, POD, "default")).collect()
    }

    /// Returns the labels of a namespace, if the configuration has them.
    pub(super) fn labels(&self, namespace: &str) -> Option<&Labels> {
        self.snapshot.namespace_labels(namespace)
    }

    /// Returns the namespaces of the configuration, by name.
    pub(super) fn namespaces(&self) -> BTreeMap<&str, &Labels> {
        self.snapshot.namespaces().collect()
    }

    /// Returns whether the hook is called for the request in the namespace, which is "" for cluster-scoped objects.
    pub(super) fn sees(&self, seen: &HookView<'_>, request: Request, namespace: &str) -> Sees {
        if by_rules(seen, request, namespace) { self.selects(seen, request, namespace) } else { Sees::No }
    }

    /// Returns whether the hook is called for the request, if one of its rules matches the request.
    pub(super) fn selects(&self, seen: &HookView<'_>, request: Request, namespace: &str) -> Sees {
        let by_namespace = match namespace {
            "" => Sees::Yes,
            _ => self.by_namespace(&seen.hook.namespace_selector, namespace),
        };
        let selected = by_namespace.min(by_object(&seen.hook.object_selector));
        if selected == Sees::No { selected } else { selected.min(self.past_bypasses(seen.hook, request, namespace)) }
    }

    /// Returns whether a failed call rejects the request for any user: `Perhaps` if a bypass exempts some users.
    fn past_bypasses(&self, hook: &Hook, request: Request, namespace: &str) -> Sees {
        if self.snapshot.bypasses.is_empty() {
            return Sees::Yes;
        }
        let resource = request.gvr();
        let target = request.target(&resource, namespace);
        let applies = |bypass: &Bypass| {
            let here = bypass.namespaces.is_empty() || bypass.namespaces.iter().any(|named| **named == *namespace);
            let this = bypass.resources.is_empty() || bypass.resources.iter().any(|rule| rule.matches(&target));
            bypass.applies_to_hook(&hook.name) && here && this
        };
        let for_anybody = |bypass: &Bypass| bypass.who.users.is_empty() && bypass.who.groups.is_empty();
        let bypasses = self.snapshot.bypasses.iter().filter(|bypass| applies(bypass));
        bypasses.map(|it| if for_anybody(it) { Sees::No } else { Sees::Perhaps }).min().unwrap_or(Sees::Yes)
    }

    /// Returns the most certain result for any of these requests.
    pub(super) fn sees_any(&self, seen: &HookView<'_>, requests: &[Request], namespace: &str) -> Sees {
        requests.iter().map(|request| self.sees(seen, *request, namespace)).max().unwrap_or(Sees::No)
    }

    fn by_namespace(&self, selector: &Selector, namespace: &str) -> Sees {
        if let Some(known) = self.labels(namespace) {
            return if selector.matches(known) { Sees::Yes } else { Sees::No };
        }
        let assumed: Labels = [(NAME_LABEL, namespace)].into_iter().collect();
        let open = |requirement: &Requirement| {
            requirement.key() != NAME_LABEL
                && matches!(requirement, Requirement::NotIn(..) | Requirement::DoesNotExist(_))
        };
        match selector.matches(&assumed) {
            false => Sees::No,
            true if selector.0.iter().any(open) => Sees::Perhaps,
            true => Sees::Yes,
        }
    }
}

/// Returns true if a rule matches the request, even if only in another version: the call then fails.
pub(super) fn by_rules(seen: &HookView<'_>, request: Request, namespace: &str) -> bool {
    debug_assert!(is_analyzed(request.group), "{request:?} is not looked for");
    let resource = request.gvr();
    let target = request.target(&resource, namespace);
    let equivalent = seen.hook.match_policy == MatchPolicy::Equivalent;
    seen.rules.iter().any(|rule| rule.matches(&target) || equivalent && rule.matches_equivalent(&target, None))
}

/// Returns true if any request of this analysis can match a rule with this group: Kubernetes' own, or ours. Most rules
/// of many hooks have other groups.
fn is_analyzed(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io") || group == "gatepost.dev"
}

/// Returns whether the selector matches an object without labels. If it does, it may still allow objects to opt out.
fn by_object(selector: &Selector) -> Sees {
    match selector.matches(&Labels::default()) {
        false => Sees::No,
        true if selector.is_empty() => Sees::Yes,
        true => Sees::Perhaps,
    }
}

fn home(address: &Address) -> Option<Box<str>> {
    let Address::Tcp { host, .. } = address else { return None };
    namespace_of(host)
}

/// A request, as far as rules compare it, in the version that current apiservers store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) resource: &'static str,
    pub(super) sub_resource: &'static str,
}

/// Returns a request for a resource itself.
pub(super) const fn of(
    operation: Operation,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
) -> Request {
    Request { operation, group, version, resource, sub_resource: "" }
}

impl Request {
    /// Returns the request for a subresource.
    pub(super) const fn sub(self, sub_resource: &'static str) -> Self {
        Self { sub_resource, ..self }
    }

    /// Returns the request with another operation.
    pub(super) const fn with(self, operation: Operation) -> Self {
        Self { operation, ..self }
    }

    pub(super) fn gvr(&self) -> Gvr {
        let word = ByteString::from_static;
        Gvr { group: word(self.group), version: word(self.version), resource: word(self.resource) }
    }

    /// Returns the request as rules compare it; `resource` is its own [`Request::gvr`].
    pub(super) fn target<'a>(&self, resource: &'a Gvr, namespace: &'a str) -> RuleTarget<'a> {
        RuleTarget { operation: self.operation, resource, sub_resource: self.sub_resource, namespace }
    }

    /// Returns the resource as rules name it: `pods`, `pods/ephemeralcontainers`.
    pub(super) fn entry(&self) -> String {
        match self.sub_resource {
            "" => self.resource.to_owned(),
            sub_resource => format!("{}/{sub_resource}", self.resource),
        }
    }

    /// Returns a noun for messages: `pods`, `deployments.apps`, `pods/ephemeralcontainers`.
    pub(super) fn noun(&self) -> String {
        let Self { group, resource, sub_resource, .. } = self;
        let (dot, slash) = (if group.is_empty() { "" } else { "." }, if sub_resource.is_empty() { "" } else { "/" });
        format!("{resource}{dot}{group}{slash}{sub_resource}")
    }
}

/// Creation of a pod.
pub(super) const POD: Request = of(Operation::Create, "", "v1", "pods");

/// Requests that create pods, or change their templates.
pub(super) const WORKLOADS: [Request; 4] = [
    of(Operation::Update, "apps", "v1", "deployments"),
    of(Operation::Update, "apps", "v1", "daemonsets"),
    of(Operation::Update, "apps", "v1", "statefulsets"),
    of(Operation::Create, "apps", "v1", "replicasets"),
];

/// Joins words to `a, b and c`. Of many words, shows the first and the number of the others.
pub(super) fn listed(words: impl IntoIterator<Item = String>) -> String {
    const MAX_LISTED_WORDS: usize = 20;
    let mut words: Vec<String> = words.into_iter().collect();
    words.dedup();
    if words.len() > MAX_LISTED_WORDS {
        let others = words.len() - MAX_LISTED_WORDS;
        words.truncate(MAX_LISTED_WORDS);
        words.push(format!("{others} others"));
    }
    match words.pop() {
        None => String::new(),
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} and {last}", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_shows_its_namespace_however_it_is_named() {
        let home_of = |host: &str| home(&Address::Tcp { host: host.into(), port: 443 });
        for host in ["a.ns.svc", "a.ns.svc.cluster.local", "A.NS.SVC.example", "pod-0.a.ns.svc"] {
            assert_eq!(home_of(host).as_deref(), Some("ns"), "{host}");
        }
        for host in ["127.0.0.1", "hook.example.com", "ns.svc", "svc", "a.ns"] {
            assert_eq!(home_of(host), None, "{host}");
        }
        assert_eq!(home(&Address::Unix("/a.ns.svc".into())), None);
    }

    #[test]
    fn many_are_not_all_named() {
        let message = |many: usize| listed((0..many).map(|number| format!("n{number}")));
        assert_eq!([message(0), message(1), message(3)], ["", "n0", "n0, n1 and n2"]);
        assert!(message(20).ends_with(", n18 and n19"), "{}", message(20));
        assert!(message(1000).ends_with(", n19 and 980 others"), "{}", message(1000));
    }
}
