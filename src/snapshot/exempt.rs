//! Exempt: requests about which hooks are not asked. Source: `docs/reference/webhook-semantics.md` §2.

use crate::model::{Review, Target};

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
