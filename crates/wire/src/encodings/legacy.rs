//! A review as the seeds' contract has it: `spec` instead of `request`, and plain names.
//! Source: `docs/writing-a-hook.md`.

use super::json::object;
use crate::{pieces::Pieces, user};
use gatepost_api::{CallFailure, Operation, Review, Rope};

/// Writes the review; its objects must have been checked.
pub(super) fn written(review: &Review) -> Result<Rope, CallFailure> {
    let user = super::user_of(review)?;
    let mut out = Pieces::default();
    out.own("{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"spec\":{\"resource\":");
    out.string(&review.resource.resource);
    for (key, text) in [
        (",\"subresource\":", &*review.sub_resource),
        (",\"operation\":", operation(review.operation)),
        (",\"name\":", &review.name),
        (",\"namespace\":", &review.namespace),
        (",\"group\":", &review.resource.group),
        (",\"version\":", &review.resource.version),
    ] {
        out.own(key);
        out.string(text);
    }
    object(&mut out, ",\"object\":", review, &review.object);
    object(&mut out, ",\"oldObject\":", review, &review.old_object);
    out.own(",\"userInfo\":{\"name\":");
    out.string(user.username());
    out.own(",\"uid\":");
    out.string(user.uid());
    out.own(",\"groups\":");
    user::list(&user.groups, &mut out);
    out.own(if review.dry_run { "},\"dryRun\":true}}" } else { "},\"dryRun\":false}}" });
    Ok(out.rope())
}

/// As the seeds write it.
const fn operation(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "Create",
        Operation::Update => "Update",
        Operation::Delete => "Delete",
        Operation::Connect => "Connect",
    }
}
