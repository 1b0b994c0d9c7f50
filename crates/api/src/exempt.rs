//! Requests for which no hooks are called. Source: `docs/reference/webhook-semantics.md` §2; for our own group, the
//! proposal *Extension of admission control via initializers and external admission enforcement*: "certain special
//! resource paths are always fail open".

use crate::{Gvk, Gvr, Review};

/// Eligibility of a request for hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// Hooks whose rules match are called.
    Eligible,
    /// No hooks are called, as in upstream: the request is about the configuration of admission, which no configured
    /// hook asks to see, or it stores nothing.
    Exempt,
    /// No hooks are called: a broken configuration of ours must not block the request that repairs it.
    OwnConfig,
}

/// A resource, and the kind of its objects. A request is exempt only if it names both.
type ResourceAndKind = (&'static str, &'static str);

/// Returns the resources for which hooks are never called: group, resource, and kind of the objects.
pub fn exempt_resources() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let of = |group: &'static str, all: &'static [ResourceAndKind]| all.iter().map(move |(r, kind)| (group, *r, *kind));
    of(OUR_GROUP, &OUR_CONFIG)
        .chain(of(AUTHENTICATION_GROUP, &AUTHENTICATION))
        .chain(of(AUTHORIZATION_GROUP, &AUTHORIZATION))
}

/// Returns the resources of our own configuration: group and resource.
pub fn own_resources() -> impl Iterator<Item = (&'static str, &'static str)> {
    OUR_CONFIG.iter().map(|(resource, _)| (OUR_GROUP, *resource))
}

const OUR_GROUP: &str = "gatepost.dev";
/// Our own configuration. Other resources in our group are not ours.
const OUR_CONFIG: [ResourceAndKind; 2] =
    [("admissioncontrolconfigurations", "AdmissionControlConfiguration"), ("breakglasses", "BreakGlass")];

const REGISTRATION: &str = "admissionregistration.k8s.io";
/// Resources that configure admission. A hook that could deny their changes could deny its own removal.
const ADMISSION_CONFIG: [ResourceAndKind; 6] = [
    ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    ("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
    ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
];

const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
const AUTHORIZATION_GROUP: &str = "authorization.k8s.io";
/// Resources that store nothing: queries for a user's identity or permissions.
const AUTHENTICATION: [ResourceAndKind; 2] =
    [("selfsubjectreviews", "SelfSubjectReview"), ("tokenreviews", "TokenReview")];
const AUTHORIZATION: [ResourceAndKind; 4] = [
    ("localsubjectaccessreviews", "LocalSubjectAccessReview"),
    ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ("subjectaccessreviews", "SubjectAccessReview"),
];

/// Returns whether hooks are called for the request. `any_hook_sees_admission_config` is true if a hook has
/// [`sees_admission_config`](crate::Hook::sees_admission_config): the configuration of admission is then eligible.
pub fn eligibility(review: &Review, any_hook_sees_admission_config: bool) -> Eligibility {
    if is_ours(review) {
        Eligibility::OwnConfig
    } else if is_virtual(review) || !any_hook_sees_admission_config && is_admission_config(review) {
        Eligibility::Exempt
    } else {
        Eligibility::Eligible
    }
}

/// Returns true if the request is about our own configuration, in any version.
pub fn is_ours(review: &Review) -> bool {
    is_about(review, OUR_GROUP, &OUR_CONFIG)
}

/// Returns true if the request is about the configuration of admission, in any version, as in upstream.
pub fn is_admission_config(review: &Review) -> bool {
    is_about(review, REGISTRATION, &ADMISSION_CONFIG)
}

/// Returns true if the request is about a resource that stores nothing, in any version, as in upstream.
pub fn is_virtual(review: &Review) -> bool {
    is_about(review, AUTHENTICATION_GROUP, &AUTHENTICATION) || is_about(review, AUTHORIZATION_GROUP, &AUTHORIZATION)
}

/// Returns true if the request names one of these resources and the kind of its objects twice: in `resource` and
/// `kind`, and in `requestResource` and `requestKind` if the review has these. Upstream checks only the kind or the
/// resource, because it fills in all of them itself; here they come from a caller.
fn is_about(review: &Review, group: &str, all: &[ResourceAndKind]) -> bool {
    let Review { kind, resource, request_kind, request_resource, .. } = review;
    if *resource.group != *group {
        return false;
    }
    let requested = (request_kind.as_ref().unwrap_or(kind), request_resource.as_ref().unwrap_or(resource));
    let is = |(kind, resource): (&Gvk, &Gvr), known: &ResourceAndKind| {
        *kind.group == *group && *resource.group == *group && (*resource.resource == *known.0 && *kind.kind == *known.1)
    };
    all.iter().any(|known| is(requested, known) && is((kind, resource), known))
}

#[cfg(test)]
mod tests;
