//! What a rejected client reads: the `Status` of each rejection. What a failed call says of itself is
//! `gatepost_api::CallFailure`. Source: `docs/reference/webhook-semantics.md` §4.3, §6, §9.2, §10.

use std::time::Duration;

use crate::live::Rejection;
use gatepost_api::{CallFailure, Denial, Gvr, Review, RuleTarget, StatusCause, StatusInfo};

/// A rejection on its way up; boxed because it is large and rare.
pub(super) type StatusError = Box<StatusInfo>;

/// What is said of each hook whose turn did not come.
pub(super) const NOT_CALLED_IN_TIME: &str = "not called: the request's time was over";

fn failure(code: i32, reason: &str, message: String) -> StatusInfo {
    StatusInfo { code, status: "Failure".into(), reason: reason.into(), message, ..StatusInfo::default() }
}

/// The same failure, after which a client should try again in a second.
fn try_again(code: i32, reason: &str, message: String) -> StatusInfo {
    StatusInfo { retry_after_seconds: 1, ..failure(code, reason, message) }
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
        code: denial_code(denial),
        status: match &*said.status {
            "" | "Success" => "Failure".into(),
            other => other.into(),
        },
        message: format!("admission webhook \"{hook}\" denied the request{why}"),
        ..(**said).clone()
    }
}

/// Code of a hook's no.
pub(super) fn denial_code(Denial(said): &Denial) -> i32 {
    if said.code < 400 { 400 } else { said.code }
}

/// No usable answer under Fail. Upstream: `apierrors.NewInternalError` around `ErrCallingWebhook`.
pub(super) fn failed(hook: &str, cause: &CallFailure) -> StatusInfo {
    let step = match cause.step() {
        "" => String::new(),
        step => format!("{step}: "),
    };
    internal(&format!("failed calling webhook \"{hook}\": {step}{cause}"))
}

/// A dry run met a hook that has side effects. Upstream: `webhookerrors.NewDryRunUnsupportedErr`.
pub(super) fn dry_run_refused(hook: &str) -> StatusInfo {
    failure(400, "BadRequest", format!("admission webhook \"{hook}\" does not support dry run"))
}

/// A patch that is read and cannot be applied. Upstream: `apierrors.NewInternalError`, without the hook's name.
pub(super) fn patch_refused(hook: &str, why: &str) -> StatusInfo {
    internal(&format!("admission webhook \"{hook}\" sent a patch that cannot be applied: {why}"))
}

/// There is no memory to hold the patched object in.
pub(super) fn no_room(hook: &str) -> StatusInfo {
    let why = format!("no memory free for the patched object; try again (patch of admission webhook \"{hook}\")");
    try_again(503, "ServiceUnavailable", format!("gatepost has {why}"))
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

/// A hook's conditions cannot be evaluated, under Fail. Upstream: `apierrors.NewForbidden` around what went wrong.
pub(super) fn conditions_failed(review: &Review, why: &str) -> StatusInfo {
    let Gvr { group, resource, .. } = RuleTarget::as_made(review).resource;
    let shown = if group.is_empty() { resource.to_string() } else { format!("{resource}.{group}") };
    let named = if review.name.is_empty() { shown } else { format!("{shown} {:?}", &*review.name) };
    StatusInfo {
        details_name: review.name.to_string(),
        details_group: group.to_string(),
        details_kind: resource.to_string(),
        ..failure(403, "Forbidden", format!("{named} is forbidden: {why}"))
    }
}

/// The request's time is over. Upstream: `apierrors.NewTimeoutError`.
pub(super) fn out_of_time() -> StatusInfo {
    failure(504, "Timeout", "Timeout: request did not complete within requested timeout".into())
}

/// The refusal with its cause, unless it is one of time: which initializer has not acted, and why.
fn not_initialized(name: &str, why: &str, refusal: StatusInfo) -> StatusInfo {
    let cause = StatusCause { reason: "InitializationFailed".into(), message: why.to_owned(), field: name.to_owned() };
    StatusInfo { causes: vec![cause], ..refusal }
}

/// An initializer that must act cannot: the object is not created.
pub(super) fn initializer_failed(name: &str, why: &str) -> StatusInfo {
    not_initialized(name, why, internal(&format!("initializer \"{name}\" failed: {why}")))
}

/// An initializer that must act did not in time. The outcome is definite: nothing was stored.
/// `slower`: the initializer before it that has used up the request's time, and how long that took: it is at fault.
///
/// It does not say when to try again: client-go would do so at once, eleven times, and each is a new task.
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
    StatusInfo { causes: vec![cause], ..failure(504, "Timeout", format!("{late}{left}; {stored}")) }
}

/// Rejection because no process has claimed the name of an initializer that must act. The outcome is definite: nothing
/// was stored.
pub(super) fn initializer_vacant(name: &str) -> StatusInfo {
    let late = initializer_late(name, Duration::ZERO, None);
    let message = format!("Timeout: no instance of initializer \"{name}\" is attached; the object was not created");
    StatusInfo { message, ..late }
}

/// A dry run met an initializer that has side effects and must act.
pub(super) fn initializer_on_dry_run(name: &str) -> StatusInfo {
    let why = "it does not support dry run";
    let message = format!("initializer \"{name}\" does not support dry run");
    not_initialized(name, why, failure(400, "BadRequest", message))
}

/// No more objects can be held for an initializer.
pub(super) fn too_many_holds(name: &str) -> StatusInfo {
    let waits = format!("too many new objects wait for initializer \"{name}\"; the object was not created, try again");
    not_initialized(name, "too many new objects wait for it", try_again(429, "TooManyRequests", waits))
}

/// There is no memory to initialize the object in.
pub(super) fn no_room_to_initialize(name: &str) -> StatusInfo {
    let message =
        format!("gatepost has no memory free for initializer \"{name}\"; the object was not created, try again");
    not_initialized(name, "there is no memory free for it", try_again(503, "ServiceUnavailable", message))
}

/// There is no memory to write the list of an object in.
pub(super) fn no_room_for_object() -> StatusInfo {
    try_again(503, "ServiceUnavailable", "gatepost has no memory free for the object; try again".to_owned())
}

/// An initializer's own no, with its name as a cause.
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

/// The configuration is too old to be trusted, or there is none: it has never been read, or was rejected.
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

/// Another segment of the request may be decided as if hooks were still in other segments.
pub(super) fn segments_moved() -> StatusInfo {
    let message = "hooks have just been put into other segments of the chain, and another part of the request may be decided as \
         before; try again";
    try_again(503, "ServiceUnavailable", format!("gatepost's {message}"))
}

/// Problem of a configuration without the values quoted in it, since any user with write access may read it: where and
/// how, never what stands there. It may be a password in the wrong place.
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
    fn a_rejected_configuration_is_named_by_its_place_and_never_by_its_content() {
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
