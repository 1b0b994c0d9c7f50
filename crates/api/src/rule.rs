//! Rule: selects requests for a hook; and RuleTarget: the parts of a request that rules match.

use super::{Gvr, Operation, Review, Served, builtin, served};

/// Objects that a rule matches. Upstream: `rules[].scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Objects in a namespace, and outside of any.
    Any,
    /// Objects in a namespace.
    Namespaced,
    /// Objects outside any namespace, and namespaces themselves.
    Cluster,
}

impl Scope {
    /// Returns the name used in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Any => "*",
            Self::Namespaced => "Namespaced",
            Self::Cluster => "Cluster",
        }
    }
}

/// A rule of a hook. All five fields must match; one matching rule of a hook is enough. Source:
/// `docs/reference/webhook-semantics.md` §4.1 (upstream `predicates/rules/rules.go`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Operations; `*` is expanded to all four.
    pub operations: Vec<Operation>,
    /// API groups; `*` matches all.
    pub api_groups: Vec<Box<str>>,
    /// API versions; `*` matches all.
    pub api_versions: Vec<Box<str>>,
    /// Resources: `r`, `r/sub`, `*`, `r/*`, `*/sub`, `*/*`.
    pub resources: Vec<Box<str>>,
    /// Scope of the objects.
    pub scope: Scope,
}

impl Rule {
    /// Returns true if the rule matches the target. Compares exactly as upstream does. Does not allocate.
    pub fn matches(&self, target: &RuleTarget<'_>) -> bool {
        names(&self.api_versions, &target.resource.version) && self.matches_in_any_version(target)
    }

    /// Returns true if the rule matches the target in any version.
    fn matches_in_any_version(&self, target: &RuleTarget<'_>) -> bool {
        self.scope_matches(target)
            && self.operations.contains(&target.operation)
            && names(&self.api_groups, &target.resource.group)
            && self.resources.iter().any(|entry| entry_matches(entry, target))
    }

    /// Returns true if the rule names the same objects in another version, or in another group that shares them. Such a
    /// rule matches under `matchPolicy: Equivalent`, and kube-apiserver then converts the object. Versions count only
    /// if the resource is served in them, or if the served versions are unknown. As in kube-apiserver, a rule that
    /// names a version that is not served must not fail every write. Does not allocate.
    pub fn matches_equivalent(&self, target: &RuleTarget<'_>, served: Option<&Served>) -> bool {
        let Gvr { group, version, resource } = target.resource;
        let may_see = self.scope_matches(target)
            && self.operations.contains(&target.operation)
            && self.resources.iter().any(|entry| entry_matches(entry, target));
        if !may_see {
            return false;
        }
        let named = |version: &str| names(&self.api_versions, version);
        if names(&self.api_groups, group)
            && !named(version)
            && served::versions(served, group, resource).may_match(named)
        {
            return true;
        }
        builtin::other_group(group, resource).is_some_and(|other| {
            names(&self.api_groups, other) && served::versions_if_served(served, other, resource).may_match(named)
        })
    }

    /// Returns the resource in a group and version that this rule names. The caller must know that
    /// [`Rule::matches_equivalent`] returns true for the resource; otherwise the result has no meaning.
    pub fn elsewhere(&self, resource: &Gvr, served: Option<&Served>) -> Gvr {
        let named = |version: &str| names(&self.api_versions, version);
        let first = self.api_versions.first().map_or("", |version| version);
        let (group, name) = (&*resource.group, &*resource.resource);
        let other = builtin::other_group(group, name).filter(|other| names(&self.api_groups, other));
        match other {
            Some(other) if !names(&self.api_groups, group) || named(&resource.version) => {
                let versions = served::versions_if_served(served, other, name);
                let version = served::preferred_version(versions, (other, name), named);
                served::in_version(resource, other, version.unwrap_or(first))
            }
            _ => {
                let versions = served::versions(served, group, name);
                let version = served::preferred_version(versions, (group, name), named);
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

/// Returns true if the entry (`r`, `r/sub`, `*`, `r/*`, `*/sub` or `*/*`) matches the target.
fn entry_matches(entry: &str, target: &RuleTarget<'_>) -> bool {
    let (resource, sub) = entry.split_once('/').unwrap_or((entry, ""));
    (resource == "*" || *resource == *target.resource.resource) && (sub == "*" || *sub == *target.sub_resource)
}

fn names(list: &[Box<str>], wanted: &str) -> bool {
    list.iter().any(|entry| &**entry == "*" || &**entry == wanted)
}

/// The parts of a request that rules match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleTarget<'a> {
    /// Operation of the request.
    pub operation: Operation,
    /// Resource, in the version that rules are compared with.
    pub resource: &'a Gvr,
    /// Subresource, or "".
    pub sub_resource: &'a str,
    /// Namespace, or "".
    pub namespace: &'a str,
}

impl<'a> RuleTarget<'a> {
    /// Returns the target with `requestResource`, the version that the client requested. Without a `requestResource` in
    /// the review, returns that with `resource`.
    pub fn as_made(review: &'a Review) -> Self {
        match &review.request_resource {
            Some(resource) => Self { resource, sub_resource: &review.request_sub_resource, ..Self::as_sent(review) },
            None => Self::as_sent(review),
        }
    }

    /// Returns the target with `resource`, the version of the object in the review.
    pub fn as_sent(review: &'a Review) -> Self {
        Self {
            operation: review.operation,
            resource: &review.resource,
            sub_resource: &review.sub_resource,
            namespace: &review.namespace,
        }
    }

    /// Returns true if the request is namespaced as upstream defines it: it has a namespace and is not about a
    /// Namespace object. Subresources of namespaces are cluster-scoped, because upstream compares only the resource.
    pub fn is_namespaced(&self) -> bool {
        let Gvr { group, version, resource } = self.resource;
        let about_namespaces = group.is_empty() && version == "v1" && resource == "namespaces";
        !self.namespace.is_empty() && !about_namespaces
    }
}
