//! Requests for which no hooks are called. Source: `docs/reference/webhook-semantics.md` §2; our own group:
//! S119, "certain special resource paths are always fail open".

use crate::{Gvk, Gvr, Review};

/// Eligibility of a request for hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// Hooks whose rules match are asked.
    Eligible,
    /// None, as upstream asks none: it is about the configuration of admission, which no hook may hold, or stores
    /// nothing.
    Exempt,
    /// None: it is about our own configuration. A broken one must never hold up the change that mends it.
    OwnConfig,
}

/// A resource, and the kind of its objects. A request is exempt only where it names both: one that names another kind,
/// or another resource, is about something else, whatever it says first.
type ResourceAndKind = (&'static str, &'static str);

/// Resources about which no hook is asked, whatever the apiserver does: group, resource, and kind of its objects.
pub fn exempt_resources() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let of = |group: &'static str, all: &'static [ResourceAndKind]| all.iter().map(move |(r, kind)| (group, *r, *kind));
    of(OURS, &OUR_CONFIG)
        .chain(of(AUTHENTICATION_GROUP, &AUTHENTICATION))
        .chain(of(AUTHORIZATION_GROUP, &AUTHORIZATION))
}

const OURS: &str = "gatepost.dev";
/// Our own configuration. Anything else in our group is somebody else's.
const OUR_CONFIG: [ResourceAndKind; 2] =
    [("admissioncontrolconfigurations", "AdmissionControlConfiguration"), ("breakglasses", "BreakGlass")];

const REGISTRATION: &str = "admissionregistration.k8s.io";
/// Resources that configure admission. A hook that could refuse its change could refuse its own removal.
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
/// Resources that store nothing: asking the apiserver who one is, or what one may do.
const AUTHENTICATION: [ResourceAndKind; 2] =
    [("selfsubjectreviews", "SelfSubjectReview"), ("tokenreviews", "TokenReview")];
const AUTHORIZATION: [ResourceAndKind; 4] = [
    ("localsubjectaccessreviews", "LocalSubjectAccessReview"),
    ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ("subjectaccessreviews", "SubjectAccessReview"),
];

/// May hooks have a say in this? `static_hooks`: some are asked about the configuration of admission, too.
pub fn eligibility(review: &Review, static_hooks: bool) -> Eligibility {
    if is_ours(review) {
        Eligibility::OwnConfig
    } else if is_virtual(review) || !static_hooks && is_admission_config(review) {
        Eligibility::Exempt
    } else {
        Eligibility::Eligible
    }
}

/// Is this about our own configuration? In any version.
pub fn is_ours(review: &Review) -> bool {
    is_of(review, OURS, &OUR_CONFIG)
}

/// Is this about the configuration of admission? In any version, as upstream.
pub fn is_admission_config(review: &Review) -> bool {
    is_of(review, REGISTRATION, &ADMISSION_CONFIG)
}

/// Is this about a resource that stores nothing? In any version, as upstream.
pub fn is_virtual(review: &Review) -> bool {
    is_of(review, AUTHENTICATION_GROUP, &AUTHENTICATION) || is_of(review, AUTHORIZATION_GROUP, &AUTHORIZATION)
}

/// Is this about one of these, as its client made it and as it was sent? Upstream looks at the kind alone, or at the
/// resource alone, of a request that it has made itself; here another has written both.
fn is_of(review: &Review, group: &str, all: &[ResourceAndKind]) -> bool {
    let Review { kind, resource, request_kind, request_resource, .. } = review;
    if *resource.group != *group {
        return false;
    }
    let made = (request_kind.as_ref().unwrap_or(kind), request_resource.as_ref().unwrap_or(resource));
    let is = |(kind, resource): (&Gvk, &Gvr), known: &ResourceAndKind| {
        *kind.group == *group && *resource.group == *group && (*resource.resource == *known.0 && *kind.kind == *known.1)
    };
    all.iter().any(|known| is(made, known) && is((kind, resource), known))
}

#[cfg(test)]
mod tests;
