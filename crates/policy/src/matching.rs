//! Match resources: the rules and selectors by which a policy or a binding selects requests. Source:
//! `k8s.io/apiserver/pkg/admission/plugin/policy/matching/matching.go`.

use gatepost_api::{
    Gvk, Gvr, MatchPolicy, Review, Rule, RuleTarget, Selector, Served, other_group,
    served::{self, Versions},
};

/// Kind of a policy's params.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamKind {
    /// Group and version, or the version of the core group.
    pub api_version: Box<str>,
    /// Kind.
    pub kind: Box<str>,
}

/// A rule that may be limited to objects of some names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRule {
    /// Rule.
    pub rule: Rule,
    /// Names of the objects; an empty list allows any.
    pub resource_names: Vec<Box<str>>,
}

/// Rules and selectors. Upstream: `MatchResources`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchResources {
    /// Rules of which one must match. An empty list matches everything.
    pub rules: Vec<NamedRule>,
    /// Rules of which none may match.
    pub excluded: Vec<NamedRule>,
    /// Selects objects by the labels of their namespaces.
    pub namespace_selector: Selector,
    /// Selects objects by their labels.
    pub object_selector: Selector,
    /// Whether rules match requests in other versions of their resources.
    pub match_policy: MatchPolicy,
}

impl Default for MatchResources {
    /// Matches every request.
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            excluded: Vec::new(),
            namespace_selector: Selector::default(),
            object_selector: Selector::default(),
            match_policy: MatchPolicy::Equivalent,
        }
    }
}

impl MatchResources {
    /// Returns true if a rule matches and none excludes the request, and it is not about policies themselves, which no
    /// policy could then repair. Selectors are not compared, because they need labels.
    ///
    /// Under `matchPolicy: Equivalent` a resource of unknown versions might be served in any version. A rule in another
    /// version then matches, but does not exclude: a policy is rather evaluated than skipped.
    pub fn matches_rules(&self, review: &Review, served: Option<&Served>) -> bool {
        !is_about_policies(review)
            && !self.any_matches(&self.excluded, review, served, true)
            && (self.rules.is_empty() || self.any_matches(&self.rules, review, served, false))
    }

    /// As [`MatchResources::matches_rules`], for a request that one of the rules is known to match, whatever the names of
    /// objects are.
    pub fn matches_names(&self, review: &Review, served: Option<&Served>) -> bool {
        match self.rules.iter().all(|named| named.resource_names.is_empty()) {
            true => !is_about_policies(review) && !self.any_matches(&self.excluded, review, served, true),
            false => self.matches_rules(review, served),
        }
    }

    fn any_matches(&self, rules: &[NamedRule], review: &Review, served: Option<&Served>, excludes: bool) -> bool {
        let made = RuleTarget::as_made(review);
        let as_made = |rule: &Rule| rule.matches(&made);
        let is_equivalent = self.match_policy == MatchPolicy::Equivalent;
        let elsewhere = |rule: &Rule| {
            let sent = RuleTarget::as_sent(review);
            let near = |target: &RuleTarget<'_>| {
                (!excludes || is_known(target.resource, served)) && rule.matches_equivalent(target, served)
            };
            rule.matches(&sent) || near(&made) || sent != made && near(&sent)
        };
        rules
            .iter()
            .filter(|named| named.names(&review.name))
            .any(|NamedRule { rule, .. }| as_made(rule) || is_equivalent && elsewhere(rule))
    }
}

impl NamedRule {
    /// Returns true if the rule is about objects of this name. An object whose name the server generates has the empty
    /// name.
    pub fn names(&self, name: &str) -> bool {
        self.resource_names.is_empty() || self.resource_names.iter().any(|known| **known == *name)
    }
}

/// Resources of policies, and the kinds of their objects.
const POLICIES: [(&str, &str); 4] = [
    ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    ("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
    ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
];

/// Returns true if the request is about a policy or a binding, in any version. Upstream compares only the resource,
/// because it fills in the kind itself; here both come from a caller. Policies do see the configurations of webhooks.
fn is_about_policies(review: &Review) -> bool {
    const GROUP: &str = "admissionregistration.k8s.io";
    let Review { kind, resource, request_kind, request_resource, .. } = review;
    let is = |kind: &Gvk, resource: &Gvr| {
        let known = |(name, of): &(&str, &str)| *resource.resource == **name && *kind.kind == **of;
        *resource.group == *GROUP && *kind.group == *GROUP && POLICIES.iter().any(known)
    };
    is(kind, resource) && is(request_kind.as_ref().unwrap_or(kind), request_resource.as_ref().unwrap_or(resource))
}

/// Returns true if the versions of the resource are known, also in the other group that shares its objects.
fn is_known(resource: &Gvr, served: Option<&Served>) -> bool {
    let known = |group: &str| served::versions(served, group, &resource.resource) != Versions::Unknown;
    known(&resource.group) && other_group(&resource.group, &resource.resource).is_none_or(known)
}
