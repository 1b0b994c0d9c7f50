//! Rejections: the `Status` that the client of a rejected request receives. `gatepost_api::CallFailure` has the texts
//! of failed calls. Source: `docs/reference/webhook-semantics.md` §4.3, §6, §9.2, §10.

use std::{borrow::Cow, time::Duration};

use crate::live::Rejection;
use gatepost_api::{CallFailure, Denial, Gvr, Review, RuleTarget, StatusCause, StatusInfo};
use gatepost_base::offload::OFFLOAD_THRESHOLD;
use gatepost_wire::metadata;

/// Rejection as an error; boxed, as it is large and rare.
pub(super) type StatusError = Box<StatusInfo>;

/// Text about a hook that was not called before the request's deadline.
pub(super) const NOT_CALLED_IN_TIME: &str = "not called: the request's time was over";

/// Returns a failure after which the client should retry in a second.
fn try_again(code: i32, reason: &str, message: String) -> StatusInfo {
    StatusInfo { retry_after_seconds: 1, ..StatusInfo::failure(code, reason, message) }
}

/// Denial by a hook. Upstream: `W/errors/statuserror.go` ToStatusErr.
pub(super) fn denied(hook: &str, denial: &Denial) -> StatusInfo {
    let said = &denial.0;
    let why = match (&*said.message, &*said.reason) {
        ("", "") => " without explanation".to_owned(),
        ("", reason) => format!(": {reason}"),
        (message, _) => format!(": {message}"),
    };
    StatusInfo {
        code: denial_code(denial),
        status: match &*said.status {
            "" | "Success" => "Failure".into(),
            other => other.into(),
        },
        message: format!("admission webhook \"{hook}\" denied the request{why}"),
        ..(**said).clone()
    }
}

/// Returns the code of a denial by a hook.
pub(super) fn denial_code(Denial(said): &Denial) -> i32 {
    if said.code < 400 { 400 } else { said.code }
}

/// No usable answer of a hook that fails closed. Upstream: `apierrors.NewInternalError` around `ErrCallingWebhook`.
pub(super) fn failed(hook: &str, cause: &CallFailure) -> StatusInfo {
    if let CallFailure::Evaluation(status) = cause {
        return (**status).clone();
    }
    let prefix = match cause.upstream_prefix() {
        "" => String::new(),
        prefix => format!("{prefix}: "),
    };
    internal(&format!("failed calling webhook \"{hook}\": {prefix}{cause}"))
}

/// A dry run that would reach a hook with side effects. Upstream: `webhookerrors.NewDryRunUnsupportedErr`.
pub(super) fn dry_run_refused(hook: &str) -> StatusInfo {
    StatusInfo::failure(400, "BadRequest", format!("admission webhook \"{hook}\" does not support dry run"))
}

/// A decoded patch that cannot be applied. Upstream: `apierrors.NewInternalError`, without the hook's name.
pub(super) fn patch_refused(hook: &str, why: &str) -> StatusInfo {
    internal(&format!("admission webhook \"{hook}\" sent a patch that cannot be applied: {why}"))
}

/// No memory for the patched object. `patch` says whose patch it is.
pub(super) fn no_room(patch: &str) -> StatusInfo {
    let message = format!("gatepost has no memory free for the patched object; try again ({patch})");
    try_again(503, "ServiceUnavailable", message)
}

/// Reason of [`shadow_dropped`].
const SHADOW_DROPPED: &str = "ShadowDropped";

/// The end of a decision in shadow for which there is no memory or thread to spare. No client gets it.
pub(super) fn shadow_dropped() -> StatusInfo {
    StatusInfo::failure(503, SHADOW_DROPPED, "gatepost has no memory or thread to spare for decisions in shadow")
}

/// Returns true for [`shadow_dropped`].
pub(super) fn is_shadow_dropped(status: &StatusInfo) -> bool {
    status.reason == SHADOW_DROPPED
}

/// Internal error. Upstream: `apierrors.NewInternalError`.
pub(super) fn internal(what: &str) -> StatusInfo {
    StatusInfo {
        causes: vec![StatusCause { message: what.to_owned(), ..StatusCause::default() }],
        ..StatusInfo::failure(500, "InternalError", format!("Internal error occurred: {what}"))
    }
}

/// Missing namespace. Upstream: `apierrors.NewNotFound`.
pub(super) fn namespace_not_found(namespace: &str) -> StatusInfo {
    StatusInfo {
        details_name: namespace.into(),
        details_kind: "namespaces".into(),
        ..StatusInfo::failure(404, "NotFound", format!("namespaces \"{namespace}\" not found"))
    }
}

/// Review without the object whose labels a hook's selector needs.
pub(super) fn no_object(field: &str, selector: &str) -> StatusInfo {
    StatusInfo::failure(
        400,
        "BadRequest",
        format!("the review has no {field}, by whose labels a hook's {selector} decides"),
    )
}

/// An object in protobuf that cannot be read. Only the caller writes these bytes.
pub(super) fn unreadable_object(why: &str) -> StatusInfo {
    StatusInfo::failure(400, "BadRequest", format!("the review has an unreadable object: {why}"))
}

/// Objects in protobuf that something reads in JSON.
pub(super) fn wants_json(reader: &str) -> StatusInfo {
    StatusInfo::failure(
        415,
        "UnsupportedMediaType",
        format!(
            "the review's objects are in protobuf, and {reader} in JSON; send the review again with objects in JSON"
        ),
    )
}

/// Conditions of a hook that fails closed cannot be evaluated. Upstream: `apierrors.NewForbidden` around the error.
pub(super) fn conditions_failed(review: &Review, why: &str) -> StatusInfo {
    let Gvr { group, resource, .. } = RuleTarget::as_made(review).resource;
    let shown = if group.is_empty() { resource.to_string() } else { format!("{resource}.{group}") };
    let name = shown_name(review);
    StatusInfo {
        details_name: name.to_string(),
        details_group: group.to_string(),
        details_kind: resource.to_string(),
        ..StatusInfo::failure(403, "Forbidden", format!("{shown} {name:?} is forbidden: {why}"))
    }
}

/// Returns the name of the object for a rejection. Upstream: `extractResourceName` in `k8s.io/apiserver/pkg/admission`.
fn shown_name(review: &Review) -> Cow<'_, str> {
    if !review.name.is_empty() {
        return Cow::Borrowed(&*review.name);
    }
    // A large object is not read on the worker's thread for a name.
    let place = review.object.clone().filter(|place| place.len() < OFFLOAD_THRESHOLD);
    let name = place.and_then(|place| metadata::name(&review.bytes, place).ok().flatten());
    Cow::Owned(name.unwrap_or_else(|| "Unknown".to_owned()))
}

/// The request's deadline has passed. Upstream: `apierrors.NewTimeoutError`.
pub(super) fn out_of_time() -> StatusInfo {
    StatusInfo::failure(504, "Timeout", "Timeout: request did not complete within requested timeout")
}

/// Adds to `refusal` as its cause that this initializer has not acted, and why.
fn not_initialized(name: &str, why: &str, refusal: StatusInfo) -> StatusInfo {
    let cause = StatusCause { reason: "InitializationFailed".into(), message: why.to_owned(), field: name.to_owned() };
    StatusInfo { causes: vec![cause], ..refusal }
}

/// An initializer that must act cannot act: the object is not created.
pub(super) fn initializer_failed(name: &str, why: &str) -> StatusInfo {
    not_initialized(name, why, internal(&format!("initializer \"{name}\" failed: {why}")))
}

/// An initializer that must act did not act in time. The outcome is definite: nothing was stored. `slower` is an
/// earlier initializer that used up the request's time, and its duration; it is then named as the cause.
///
/// There is no `retryAfterSeconds`: client-go would retry immediately, eleven times, and each retry is a new task.
pub(super) fn initializer_late(name: &str, after: Duration, slower: Option<(&str, Duration)>) -> StatusInfo {
    let (after, stored) = (after.as_millis(), "the object was not created");
    let late = format!("Timeout: initializer \"{name}\" did not act within {after} ms");
    let left = slower.map_or_else(String::new, |(slower, took)| {
        let took = took.as_millis();
        format!(", which initializer \"{slower}\" has left it of the request's time: that took {took} ms")
    });
    let cause = StatusCause {
        reason: "InitializationTimedOut".into(),
        message: stored.to_owned(),
        field: slower.map_or(name, |(slower, _)| slower).to_owned(),
    };
    StatusInfo { causes: vec![cause], ..StatusInfo::failure(504, "Timeout", format!("{late}{left}; {stored}")) }
}

/// No process has claimed the name of an initializer that must act. The outcome is definite: nothing was stored.
pub(super) fn initializer_vacant(name: &str) -> StatusInfo {
    let late = initializer_late(name, Duration::ZERO, None);
    let message = format!("Timeout: no instance of initializer \"{name}\" is attached; the object was not created");
    StatusInfo { message, ..late }
}

/// A dry run that would reach an initializer with side effects that must act.
pub(super) fn initializer_on_dry_run(name: &str) -> StatusInfo {
    let why = "it does not support dry run";
    let message = format!("initializer \"{name}\" does not support dry run");
    not_initialized(name, why, StatusInfo::failure(400, "BadRequest", message))
}

/// Too many objects wait for an initializer.
pub(super) fn too_many_holds(name: &str) -> StatusInfo {
    let waits = format!("too many new objects wait for initializer \"{name}\"; the object was not created, try again");
    not_initialized(name, "too many new objects wait for it", try_again(429, "TooManyRequests", waits))
}

/// No memory to initialize the object.
pub(super) fn no_room_to_initialize(name: &str) -> StatusInfo {
    let message =
        format!("gatepost has no memory free for initializer \"{name}\"; the object was not created, try again");
    not_initialized(name, "there is no memory free for it", try_again(503, "ServiceUnavailable", message))
}

/// No memory to write the list of an object.
pub(super) fn no_room_for_object() -> StatusInfo {
    try_again(503, "ServiceUnavailable", "gatepost has no memory free for the object; try again".to_owned())
}

/// Rejection by an initializer, with its name as a cause.
pub(super) fn initializer_rejected(name: &str, said: StatusInfo) -> StatusInfo {
    let message = match &*said.message {
        "" => format!("initializer \"{name}\" refused the object"),
        message => format!("initializer \"{name}\" refused the object: {message}"),
    };
    let code = if (400..600).contains(&said.code) { said.code } else { 403 };
    let mut causes = said.causes.clone();
    causes.extend(not_initialized(name, &said.message, StatusInfo::default()).causes);
    StatusInfo { code, status: "Failure".into(), message, causes, has_details: true, ..said }
}

/// The configuration is too old, or there is none: it was never read, or it was rejected.
pub(super) fn stale(age: Option<Duration>, trusted: Duration, rejected: Option<&Rejection>) -> StatusInfo {
    let how = match (age, rejected.map(|rejected| &*rejected.problems)) {
        (Some(age), _) => {
            // Shows tenths of a second below the default bound.
            let seconds = |time: Duration| match trusted.subsec_millis() {
                0 => time.as_secs().to_string(),
                _ => format!("{:.1}", time.as_secs_f64()),
            };
            format!("was last read {} s ago, more than the {} s allowed", seconds(age), seconds(trusted))
        }
        (None, Some([first, others @ ..])) => {
            let more =
                if others.is_empty() { String::new() } else { format!(" ({} problems in all)", others.len() + 1) };
            format!(
                "was rejected: {}{more}",
                without_quotes(&format!("{}: {}: {}", first.file, first.path, first.what))
            )
        }
        (None, _) => "has not been read yet".to_owned(),
    };
    let message = format!("gatepost's configuration {how}; every request is refused until a valid one can be read");
    try_again(503, "LoadingConfiguration", message)
}

/// Hooks moved between segments, and another segment of the request may be decided by the former ones.
pub(super) fn segments_moved() -> StatusInfo {
    let message = "hooks have just been put into other segments of the chain, and another part of the request may be decided as \
         before; try again";
    try_again(503, "ServiceUnavailable", format!("gatepost's {message}"))
}

/// Returns a configuration's problem without the values quoted in it: any user with write access may read the
/// rejection, and a value may be a password in the wrong place.
fn without_quotes(problem: &str) -> String {
    const MAX_CHARACTERS: usize = 240;
    let (mut shown, mut quoted, mut escaped) = (String::new(), false, false);
    for (count, c) in problem.chars().enumerate() {
        if count == MAX_CHARACTERS {
            shown.push('…');
            break;
        }
        match c {
            '"' if !escaped => {
                if !quoted {
                    shown.push('…');
                }
                quoted = !quoted;
            }
            c if !quoted && !c.is_control() => shown.push(c),
            _ => {}
        }
        escaped = quoted && c == '\\' && !escaped;
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::live::STALE_AFTER;
    use gatepost_api::Revision;
    use gatepost_config::Problem;

    #[test]
    fn configuration_rejection_names_place_and_no_content() {
        let problem = |what: &str| Problem {
            file: "a.yaml".into(),
            path: "externalAdmissionHooks[0].clientConfig.url".into(),
            what: what.into(),
            why: "so the hook could not be called".into(),
            fix: "write it".into(),
        };
        let text = |problems| {
            let rejected = Rejection {
                problems,
                revision: Revision::Store(1),
                since: SystemTime::UNIX_EPOCH,
                quarantined: Vec::new(),
            };
            stale(None, STALE_AFTER, Some(&rejected)).message
        };
        assert_eq!(
            text(vec![problem(r#""https://me:se\"cret@h" is not a URL"#)]),
            "gatepost's configuration was rejected: a.yaml: externalAdmissionHooks[0].clientConfig.url: … is not a URL; \
             every request is refused until a valid one can be read"
        );
        let long = text(vec![problem(&"x".repeat(9999)), problem("y")]);
        assert!(long.contains("x… (2 problems in all)") && long.chars().count() < 400, "{long}");
        assert!(stale(None, STALE_AFTER, None).message.contains("has not been read yet"));
        let message = |age, trusted| stale(Some(Duration::from_millis(age)), trusted, None).message;
        assert!(message(9000, STALE_AFTER).contains("last read 9 s ago, more than the 5 s allowed"));
        assert!(
            message(1500, Duration::from_millis(1400)).contains("last read 1.5 s ago, more than the 1.4 s allowed")
        );
    }

    #[test]
    fn every_refusal_of_an_initializer_names_it_in_a_cause() {
        for refusal in [
            initializer_failed("a.x", "why"),
            initializer_late("a.x", Duration::from_secs(1), None),
            initializer_vacant("a.x"),
            initializer_on_dry_run("a.x"),
            too_many_holds("a.x"),
            no_room_to_initialize("a.x"),
            initializer_rejected("a.x", StatusInfo::default()),
            initializer_rejected("a.x", StatusInfo { message: "no".into(), ..StatusInfo::default() }),
        ] {
            let named: Vec<_> = refusal.causes.iter().filter(|cause| cause.field == "a.x").collect();
            assert!(matches!(&*named, [cause] if cause.reason.starts_with("Initialization")), "{refusal:?}");
            assert!(refusal.message.contains("initializer \"a.x\""), "{}", refusal.message);
        }
    }
}
