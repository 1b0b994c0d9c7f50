//! Stored result: the Status by which a stored object has failed, no longer than every part that handles it takes.
//!
//! The object's apiserver reports it in one message, and it is kept for as long as the object is there. A hook or an
//! initializer may have written far more.

use crate::model::{StatusCause, StatusInfo};

/// The longest message, in bytes.
pub const LONGEST_MESSAGE: usize = 16 << 10;
/// The longest of all other texts.
const LONGEST_TEXT: usize = 1 << 10;
/// The most causes.
pub const MOST_CAUSES: usize = 16;

/// The result that is stored for a failure; once more, the same. The last cause stays: it names the initializer.
pub fn stored_result(failure: StatusInfo) -> StatusInfo {
    let text = |text| cut(text, LONGEST_TEXT);
    let mut causes = failure.causes;
    if causes.len() > MOST_CAUSES {
        let last = causes.pop();
        causes.truncate(MOST_CAUSES - 1);
        causes.extend(last);
    }
    let cause = |StatusCause { reason, message, field }: StatusCause| StatusCause {
        reason: text(reason),
        message: text(message),
        field: text(field),
    };
    StatusInfo {
        code: failure.code,
        status: text(failure.status),
        reason: text(failure.reason),
        message: cut(failure.message, LONGEST_MESSAGE),
        metadata: None,
        has_details: failure.has_details,
        details_name: text(failure.details_name),
        details_group: text(failure.details_group),
        details_kind: text(failure.details_kind),
        details_uid: text(failure.details_uid),
        causes: causes.into_iter().map(cause).collect(),
        retry_after_seconds: failure.retry_after_seconds,
    }
}

/// Bytes that a result holds, about.
pub fn size(result: &StatusInfo) -> usize {
    let StatusInfo { status, reason, message, details_name, details_group, details_kind, details_uid, .. } = result;
    let texts = [status, reason, message, details_name, details_group, details_kind, details_uid];
    let texts: usize = texts.iter().map(|text| text.len()).sum();
    let cause =
        |cause: &StatusCause| size_of::<StatusCause>() + cause.reason.len() + cause.message.len() + cause.field.len();
    size_of::<StatusInfo>() + texts + result.causes.iter().map(cause).sum::<usize>()
}

/// A text of at most so many bytes. A text that was cut holds no more memory than it needs.
fn cut(text: String, longest: usize) -> String {
    const MORE: &str = "…";
    if text.len() <= longest {
        return text;
    }
    let end = (0..=longest - MORE.len()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}{MORE}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_cut_once_and_names_its_initializer() {
        let long = || "é".repeat(400 << 10);
        let cause = |field: &str| StatusCause { reason: long(), message: long(), field: field.to_owned() };
        let failure = StatusInfo {
            code: 403,
            status: "Failure".into(),
            reason: "Forbidden".into(),
            message: long(),
            details_name: long(),
            causes: (0..100).map(|n| cause(&n.to_string())).collect(),
            ..StatusInfo::default()
        };
        let stored = stored_result(failure.clone());
        assert!(stored.message.starts_with("éé") && stored.message.ends_with("é…"));
        assert_eq!((stored.causes.len(), &*stored.causes[MOST_CAUSES - 1].field), (MOST_CAUSES, "99"));
        assert!(size(&stored) < 80 << 10, "{}", size(&stored));
        assert!(size(&failure) > 100 << 20, "every text counts");
        assert_eq!(stored_result(stored.clone()), stored);
        let short = StatusInfo { message: "no".into(), causes: vec![StatusCause::default()], ..StatusInfo::default() };
        assert_eq!(stored_result(short.clone()), short);
    }
}
