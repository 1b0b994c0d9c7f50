//! Rule: requests that a hook wants; and Target: resource and operation of a request, as rules see them.

use super::{Gvr, Operation, Review, Served, builtin, served};

/// Which objects a rule sees. Upstream: `rules[].scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Both.
    Any,
    /// Objects in a namespace.
    Namespaced,
    /// Objects outside any namespace, and namespaces themselves.
    Cluster,
}

impl Scope {
    /// As written in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Any => "*",
            Self::Namespaced => "Namespaced",
            Self::Cluster => "Cluster",
        }
    }
}

/// One thing a hook cares about. All five parts must match; any rule of a hook suffices.
/// Source: `docs/reference/webhook-semantics.md` §4.1 (upstream `predicates/rules/rules.go`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Operations; all four stand for `*`.
    pub operations: Vec<Operation>,
    /// API groups; `*` is all.
    pub api_groups: Vec<Box<str>>,
    /// API versions; `*` is all.
    pub api_versions: Vec<Box<str>>,
    /// Resources: `r`, `r/sub`, `*`, `r/*`, `*/sub`, `*/*`.
    pub resources: Vec<Box<str>>,
    /// Scope.
    pub scope: Scope,
}

impl Rule {
    /// Does this rule see that? Compares exactly as upstream does; allocates nothing.
    pub fn matches(&self, target: &RuleTarget<'_>) -> bool {
        names(&self.api_versions, &target.resource.version) && self.matches_in_any_version(target)
    }

    /// Would this rule see that, if it did not name versions?
    fn matches_in_any_version(&self, target: &RuleTarget<'_>) -> bool {
        self.scope_matches(target)
            && self.operations.contains(&target.operation)
            && names(&self.api_groups, &target.resource.group)
            && self.resources.iter().any(|entry| entry_matches(entry, target))
    }

    /// Does this rule see the same objects in another version, or in another group that shares them? That is what it
    /// means under `matchPolicy: Equivalent`, and kube-apiserver then converts. A rule means the versions in which the
    /// resource is served, and where nobody knows which these are, any. A version that is not served means nothing, as
    /// with kube-apiserver: a rule that names one must not fail every write. Allocates nothing.
    pub fn sees_elsewhere(&self, target: &RuleTarget<'_>, served: Option<&Served>) -> bool {
        let Gvr { group, version, resource } = target.resource;
        let may_see = self.scope_matches(target)
            && self.operations.contains(&target.operation)
            && self.resources.iter().any(|entry| entry_matches(entry, target));
        if !may_see {
            return false;
        }
        let named = |version: &str| names(&self.api_versions, version);
        if names(&self.api_groups, group) && !named(version) && served::versions(served, group, resource).may(named) {
            return true;
        }
        builtin::other_group(group, resource).is_some_and(|other| {
            names(&self.api_groups, other) && served::versions_if_any(served, other, resource).may(named)
        })
    }

    /// The version, and the group, in which this rule sees what it sees elsewhere.
    pub fn elsewhere(&self, resource: &Gvr, served: Option<&Served>) -> Gvr {
        let named = |version: &str| names(&self.api_versions, version);
        let first = self.api_versions.first().map_or("", |version| version);
        let (group, name) = (&*resource.group, &*resource.resource);
        let other = builtin::other_group(group, name).filter(|other| names(&self.api_groups, other));
        match other {
            Some(other) if !names(&self.api_groups, group) || named(&resource.version) => {
                let versions = served::versions_if_any(served, other, name);
                let version = served::likely(versions, (other, name), named);
                served::in_version(resource, other, version.unwrap_or(first))
            }
            _ => {
                let versions = served::versions(served, group, name);
                let version = served::likely(versions, (group, name), named);
                served::in_version(resource, group, version.unwrap_or(first))
            }
        }
    }

    fn scope_matches(&self, target: &RuleTarget<'_>) -> bool {
        match self.scope {
            Scope::Any => true,
            Scope::Namespaced => target.is_namespaced(),
            Scope::Cluster => !target.is_namespaced(),
        }
    }
}

/// `r`, `r/sub`, `*`, `r/*`, `*/sub`, `*/*`.
fn entry_matches(entry: &str, target: &RuleTarget<'_>) -> bool {
    let (resource, sub) = entry.split_once('/').unwrap_or((entry, ""));
    (resource == "*" || *resource == *target.resource.resource) && (sub == "*" || *sub == *target.sub_resource)
}

fn names(list: &[Box<str>], wanted: &str) -> bool {
    list.iter().any(|entry| &**entry == "*" || &**entry == wanted)
}

/// Operation, resource and version of a request, as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleTarget<'a> {
    /// Operation of the request.
    pub operation: Operation,
    /// To which resource, in which version.
    pub resource: &'a Gvr,
    /// To which subresource, or "".
    pub sub_resource: &'a str,
    /// In which namespace, or "".
    pub namespace: &'a str,
}

impl<'a> RuleTarget<'a> {
    /// The request as its client made it. Where the caller does not say how that was, it is as it was sent.
    pub fn as_made(review: &'a Review) -> Self {
        match &review.request_resource {
            Some(resource) => Self { resource, sub_resource: &review.request_sub_resource, ..Self::as_sent(review) },
            None => Self::as_sent(review),
        }
    }

    /// The request as the caller sent it here: the object is in this version.
    pub fn as_sent(review: &'a Review) -> Self {
        Self {
            operation: review.operation,
            resource: &review.resource,
            sub_resource: &review.sub_resource,
            namespace: &review.namespace,
        }
    }

    /// Upstream's idea of "namespaced": the request has a namespace and is not about a Namespace object itself.
    /// Subresources of namespaces count as cluster-scoped, as upstream compares the resource alone.
    pub fn is_namespaced(&self) -> bool {
        let Gvr { group, version, resource } = self.resource;
        let about_namespaces = group.is_empty() && version == "v1" && resource == "namespaces";
        !self.namespace.is_empty() && !about_namespaces
    }
}
