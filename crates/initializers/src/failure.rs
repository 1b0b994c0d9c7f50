//! Failure: the result of an object on which an initializer does not act, by the initializer's failure policy
//! ([`TurnFailure::result`]).

use std::time::Duration;

use gatepost_api::{FailurePolicy, StatusCause, StatusInfo};

/// Maximum length of a stored message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// Maximum length of each other stored text, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 10;
/// Maximum number of causes of a stored result.
pub const MAX_CAUSES: usize = 16;

/// Reason of the cause that distinguishes a timeout from a rejection by an initializer.
pub const TIMED_OUT: &str = "InitializationTimedOut";

/// Reason why an initializer has not done its part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnFailure {
    /// It did not act within this time.
    Late(Duration),
    /// No process that has claimed its name is attached.
    Vacant,
    /// No process has claimed its name since it was configured.
    Unproven,
    /// It has side effects, and the request is a dry run.
    DryRun,
    /// Too many objects wait for initializers already.
    Full,
    /// The memory budget has no room for the object or for its result.
    NoRoom,
    /// It cannot act on this object, or its answer cannot be used, for this reason.
    Unable(String),
    /// It rejects the object.
    Rejected(Box<StatusInfo>),
}

impl TurnFailure {
    /// Returns true if Gatepost itself lacks room, whatever the status code. The failure is then no property of a
    /// stored object: its turn can be retried.
    pub fn is_no_room(&self) -> bool {
        matches!(self, Self::Full | Self::NoRoom)
    }

    /// Returns the result to store for the object; `None` if the object continues without the initializer.
    pub fn result(self, name: &str, policy: FailurePolicy) -> Option<StatusInfo> {
        let timed_out = |why: &str| {
            let causes = vec![cause(TIMED_OUT, "the object is deleted", name)];
            let message = format!("Timeout: {why}; the object is deleted");
            StatusInfo { causes, ..StatusInfo::failure(504, "Timeout", message) }
        };
        match self {
            Self::Rejected(refusal) => {
                let code = if (400..600).contains(&refusal.code) { refusal.code } else { 403 };
                let message = match &*refusal.message {
                    "" => format!("initializer \"{name}\" refused the object"),
                    message => message.to_owned(),
                };
                let mut causes = refusal.causes.clone();
                causes.push(cause("InitializationFailed", &refusal.message, name));
                Some(StatusInfo { code, message, causes, has_details: true, ..*refusal })
            }
            // A dry run stores no object.
            Self::Unproven | Self::DryRun => None,
            _ if policy.fails_open() => None,
            Self::Late(_) | Self::NoRoom | Self::Full => {
                Some(timed_out(&format!("initializer \"{name}\" did not act in time")))
            }
            Self::Vacant => Some(timed_out(&format!("no instance of initializer \"{name}\" is attached"))),
            Self::Unable(why) => {
                let message = format!("initializer \"{name}\" failed: {why}");
                let causes = vec![cause("InitializationFailed", &why, name)];
                Some(StatusInfo { causes, ..StatusInfo::failure(500, "InternalError", message) })
            }
        }
    }
}

pub(crate) fn cause(reason: &str, message: &str, field: &str) -> StatusCause {
    StatusCause { reason: reason.into(), message: message.into(), field: field.into() }
}

/// Returns the result to store for a failure, cut to a bounded size, as hooks and initializers may write far more than
/// the apiserver can report. The last cause stays: it names the initializer. The function is idempotent.
pub fn stored_result(failure: StatusInfo) -> StatusInfo {
    let text = |text| cut(text, MAX_TEXT_BYTES);
    let mut causes = failure.causes;
    if causes.len() > MAX_CAUSES {
        let last = causes.pop();
        causes.truncate(MAX_CAUSES - 1);
        causes.extend(last);
    }
    let cause = |StatusCause { reason, message, field }: StatusCause| StatusCause {
        reason: text(reason),
        message: text(message),
        field: text(field),
    };
    StatusInfo {
        status: text(failure.status),
        reason: text(failure.reason),
        message: cut(failure.message, MAX_MESSAGE_BYTES),
        metadata: None,
        details_name: text(failure.details_name),
        details_group: text(failure.details_group),
        details_kind: text(failure.details_kind),
        details_uid: text(failure.details_uid),
        causes: causes.into_iter().map(cause).collect(),
        ..failure
    }
}

/// Returns the approximate size of a result in memory, in bytes.
pub(crate) fn size_of_result(result: &StatusInfo) -> usize {
    let StatusInfo { status, reason, message, details_name, details_group, details_kind, details_uid, .. } = result;
    let texts = [status, reason, message, details_name, details_group, details_kind, details_uid];
    let texts: usize = texts.iter().map(|text| text.len()).sum();
    let cause =
        |cause: &StatusCause| size_of::<StatusCause>() + cause.reason.len() + cause.message.len() + cause.field.len();
    size_of::<StatusInfo>() + texts + result.causes.iter().map(cause).sum::<usize>()
}

/// Cuts a text to at most `max_bytes` bytes, and frees the memory of the rest.
fn cut(text: String, max_bytes: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() <= max_bytes {
        return text;
    }
    format!("{}{ELLIPSIS}", &text[..text.floor_char_boundary(max_bytes - ELLIPSIS.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timed_out_result_has_no_retry_and_unproven_initializer_fails_no_object() {
        for late in [TurnFailure::Late(Duration::ZERO), TurnFailure::Vacant] {
            let result = late.result("a.example.com", FailurePolicy::Fail).unwrap();
            assert_eq!((result.code, result.retry_after_seconds), (504, 0));
        }
        assert_eq!(TurnFailure::Unproven.result("a.example.com", FailurePolicy::Fail), None);
    }

    #[test]
    fn stored_result_is_cut_once_and_names_its_initializer() {
        let long = || "é".repeat(400 << 10);
        let cause = |field: &str| StatusCause { reason: long(), message: long(), field: field.to_owned() };
        let failure = StatusInfo {
            details_name: long(),
            causes: (0..100).map(|n| cause(&n.to_string())).collect(),
            ..StatusInfo::failure(403, "Forbidden", long())
        };
        let stored = stored_result(failure.clone());
        assert!(stored.message.starts_with("éé") && stored.message.ends_with("é…"));
        assert_eq!((stored.causes.len(), &*stored.causes[MAX_CAUSES - 1].field), (MAX_CAUSES, "99"));
        assert!(size_of_result(&stored) < 80 << 10, "{}", size_of_result(&stored));
        assert!(size_of_result(&failure) > 100 << 20, "every text counts");
        assert_eq!(stored_result(stored.clone()), stored);
        let short = StatusInfo { message: "no".into(), causes: vec![StatusCause::default()], ..StatusInfo::default() };
        assert_eq!(stored_result(short.clone()), short);
    }
}
