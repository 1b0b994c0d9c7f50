//! The words of every rejection. Source: `docs/reference/webhook-semantics.md` §4.3, §6, §9.2, §10.

use std::time::Duration;

use crate::{
    live::current::STALE_AFTER,
    model::{CallFailure, Denial, StatusCause, StatusInfo},
};

/// A rejection on its way up; boxed because it is large and rare.
pub(super) type Refusal = Box<StatusInfo>;

fn failure(code: i32, reason: &str, message: String) -> StatusInfo {
    StatusInfo { code, status: "Failure".into(), reason: reason.into(), message, ..StatusInfo::default() }
}

/// A hook's no. Upstream: `W/errors/statuserror.go` ToStatusErr.
pub(super) fn denied(hook: &str, denial: &Denial) -> StatusInfo {
    let said = &denial.0;
    let why = match (&*said.message, &*said.reason) {
        ("", "") => " without explanation".to_owned(),
        ("", reason) => format!(": {reason}"),
        (message, _) => format!(": {message}"),
    };
    StatusInfo {
        code: if said.code < 400 { 400 } else { said.code },
        status: match &*said.status {
            "" | "Success" => "Failure".into(),
            other => other.into(),
        },
        message: format!("admission webhook \"{hook}\" denied the request{why}"),
        ..(**said).clone()
    }
}

/// No usable answer under Fail. Upstream: `apierrors.NewInternalError` around `ErrCallingWebhook`.
pub(super) fn failed(hook: &str, cause: &CallFailure) -> StatusInfo {
    internal(&format!("failed calling webhook \"{hook}\": {}: {cause}", cause.step()))
}

/// A dry run met a hook that has side effects. Upstream: `webhookerrors.NewDryRunUnsupportedErr`.
pub(super) fn dry_run_refused(hook: &str) -> StatusInfo {
    failure(400, "BadRequest", format!("admission webhook \"{hook}\" does not support dry run"))
}

/// Upstream: `apierrors.NewInternalError`.
pub(super) fn internal(what: &str) -> StatusInfo {
    StatusInfo {
        causes: vec![StatusCause { message: what.to_owned(), ..StatusCause::default() }],
        ..failure(500, "InternalError", format!("Internal error occurred: {what}"))
    }
}

/// Upstream: `apierrors.NewNotFound` for a namespace.
pub(super) fn namespace_not_found(namespace: &str) -> StatusInfo {
    StatusInfo {
        details_name: namespace.into(),
        details_kind: "namespaces".into(),
        ..failure(404, "NotFound", format!("namespaces \"{namespace}\" not found"))
    }
}

/// The caller has left out the object whose labels a hook selects by.
pub(super) fn no_object(field: &str, selector: &str) -> StatusInfo {
    failure(400, "BadRequest", format!("the review has no {field}, by whose labels a hook's {selector} decides"))
}

/// Nobody knows whether the labels we hold are still those of the cluster. Upstream: any error but NotFound is a 500.
pub(super) fn namespaces_too_old(age: Duration) -> StatusInfo {
    internal(&format!("the namespaces were last known to be current {} s ago", age.as_secs()))
}

/// The budget was spent before any hook could be asked. Upstream: `apierrors.NewTimeoutError`.
pub(super) fn out_of_time() -> StatusInfo {
    failure(504, "Timeout", "Timeout: request did not complete within requested timeout".into())
}

/// The configuration is too old to be trusted.
pub(super) fn stale(age: Option<Duration>) -> StatusInfo {
    let how = match age {
        Some(age) => {
            format!("was last read {} s ago, more than the {} s allowed", age.as_secs(), STALE_AFTER.as_secs())
        }
        None => "has not been read yet".to_owned(),
    };
    StatusInfo {
        retry_after_seconds: 1,
        ..failure(503, "LoadingConfiguration", format!("gatepost's configuration {how}; no request is decided on it"))
    }
}
