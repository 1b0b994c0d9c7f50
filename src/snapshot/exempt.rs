//! Exempt: requests about which hooks are not asked. Source: `docs/reference/webhook-semantics.md` §2; our own group:
//! S119, "certain special resource paths are always fail open".

use crate::model::{Review, Target};

/// Whether hooks may have a say in a request at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// Those that mean it.
    Matching,
    /// None, as upstream asks none: it is about the configuration of admission, which no hook may hold, or stores nothing.
    Nobody,
    /// None: it is about our own configuration. A broken one must never hold up the change that mends it.
    Ourselves,
}

/// The group of our own configuration's kinds.
const OURS: &str = "gatepost.dev";

/// The kinds that configure admission. A hook that could refuse their change could refuse its own removal.
const ADMISSION_CONFIG: [&str; 6] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
];

/// Resources that store nothing: asking the apiserver who one is, or what one may do.
const AUTHENTICATION: [&str; 2] = ["selfsubjectreviews", "tokenreviews"];
const AUTHORIZATION: [&str; 4] =
    ["localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"];

/// May hooks have a say in this? `static_hooks`: some are asked about the configuration of admission, too.
pub(super) fn say(review: &Review, static_hooks: bool) -> Say {
    let made = Target::as_made(review);
    if is_ours(&made) {
        Say::Ourselves
    } else if is_virtual(&made) || !static_hooks && is_admission_config(review) {
        Say::Nobody
    } else {
        Say::Matching
    }
}

/// Is this about our own configuration? By group, in any version.
pub(super) fn is_ours(target: &Target<'_>) -> bool {
    target.resource.group == OURS
}

/// Is this about the configuration of admission? By kind, in any version, as upstream.
pub(super) fn is_admission_config(review: &Review) -> bool {
    let kind = review.request_kind.as_ref().unwrap_or(&review.kind);
    kind.group == "admissionregistration.k8s.io" && ADMISSION_CONFIG.contains(&&*kind.kind)
}

/// Is this about a resource that stores nothing? By group and resource, in any version, as upstream.
pub(super) fn is_virtual(target: &Target<'_>) -> bool {
    let resource = &&*target.resource.resource;
    match &*target.resource.group {
        "authentication.k8s.io" => AUTHENTICATION.contains(resource),
        "authorization.k8s.io" => AUTHORIZATION.contains(resource),
        _ => false,
    }
}
