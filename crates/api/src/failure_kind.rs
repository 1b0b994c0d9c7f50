//! FailureKind: the bounded label of a call failure; and FailureClass, the part of a failure that may be logged.

use std::fmt;

use super::CallFailure;

/// Declares the kinds once: the variants, the list of all of them, and their labels.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $name:ident = $label:literal,)*) => {
        /// Kind of a call failure: the label `kind` of `gatepost_hook_call_failures_total`, and `failure` in the audit
        /// log. `docs/when-things-fail.md` describes each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FailureKind {
            $($(#[doc = $doc])* $name,)*
        }

        impl FailureKind {
            /// Every kind, in the order of `kind as usize`.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the value of the label.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }
        }
    };
}

kinds! {
    /// A dry run must not reach a hook with side effects.
    DryRun = "dry_run",
    /// No answer within the hook's timeout or the review's remaining time.
    Timeout = "timeout",
    /// No connection could be made.
    Connect = "connect",
    /// The connection broke, or the hook reset or refused the call.
    Connection = "connection",
    /// A gRPC status other than OK.
    GrpcStatus = "grpc_status",
    /// Bytes that are not a gRPC answer.
    NotGrpc = "not_grpc",
    /// An answer above the size limit.
    TooLarge = "too_large",
    /// An answer that is not an AdmissionReview.
    Undecodable = "undecodable",
    /// An AdmissionReview without `response`.
    NoResponse = "no_response",
    /// An answer with the uid of another review.
    WrongUid = "wrong_uid",
    /// A validating hook's `patch` or `patchType`.
    PatchFromValidating = "patch_from_validating",
    /// A dry run and a hook that does not declare `sideEffects`.
    SideEffectsUndeclared = "side_effects_undeclared",
    /// An HTTP status that is not an answer.
    HttpStatus = "http_status",
    /// Bytes that are not an HTTP answer.
    NotHttp = "not_http",
    /// A review that cannot be encoded for the hook.
    Unwritable = "unwritable",
    /// A review whose object is in a version that the hook's rules do not name.
    OtherVersion = "other_version",
    /// A namespace that cannot be looked up, although the hook selects by its labels.
    NamespaceUnavailable = "namespace_unavailable",
    /// An admission policy, or selectors or conditions of a hook that does not enforce, that cannot be evaluated.
    Evaluation = "evaluation",
    /// An AdmissionReview that breaks a rule, such as one of another version or kind.
    Invalid = "invalid",
    /// An answer for which the memory budget has no room.
    Overloaded = "overloaded",
    /// A patch that cannot be parsed.
    UndecodablePatch = "undecodable_patch",
    /// A patch of an unsupported type.
    PatchType = "patch_type",
    /// A patch that adds too much data to the object.
    PatchOverLimit = "patch_over_limit",
}

/// Part of a call failure that may be logged: its class, in our words. The hook's own text may repeat the reviewed
/// object, so only its length is logged. The caller gets the whole text, as in upstream.
#[derive(Clone, Copy, Debug)]
pub struct FailureClass<'a>(pub(super) &'a CallFailure);

impl fmt::Display for FailureClass<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            CallFailure::Grpc { code, message } => {
                write!(f, "the hook answered with gRPC status {code} and {} bytes of text", message.len())
            }
            CallFailure::Http { status, message } => {
                write!(f, "the hook answered with HTTP status {status} and {} bytes of text", message.len())
            }
            CallFailure::Connection(what) => write!(f, "connection lost: {}", before_quote(what)),
            CallFailure::NotGrpc(what) => write!(f, "the hook does not speak gRPC: {}", before_quote(what)),
            CallFailure::NotHttp(what) => write!(f, "the hook does not speak HTTP: {}", before_quote(what)),
            CallFailure::Undecodable(what) => write!(f, "the answer cannot be decoded: {}", before_quote(what)),
            CallFailure::Unwritable(what) => {
                write!(f, "the review cannot be written for this hook: {}", before_quote(what))
            }
            CallFailure::WrongUid { got, .. } => write!(f, "the answer has another uid, of {} bytes", got.len()),
            CallFailure::UndecodablePatch(what) => write!(f, "the patch cannot be decoded: {}", before_quote(what)),
            CallFailure::PatchOverLimit(what) => write!(f, "the patch is beyond a limit: {}", before_quote(what)),
            CallFailure::PatchType(_) => f.write_str("the patch is of a type that is not supported"),
            CallFailure::Invalid(_) => f.write_str("the answer is of another version or kind, or breaks a rule"),
            CallFailure::Evaluation(_) => {
                f.write_str("the policy, or a selector or condition of the hook, cannot be evaluated")
            }
            // These texts are ours, or were written before the hook was sent anything.
            known @ (CallFailure::Timeout(_)
            | CallFailure::Connect(_)
            | CallFailure::OtherVersion { .. }
            | CallFailure::NamespaceUnavailable(_)
            | CallFailure::TooLarge { .. }
            | CallFailure::NoResponse
            | CallFailure::Overloaded
            | CallFailure::PatchFromValidating(_)
            | CallFailure::SideEffectsUndeclared) => known.fmt(f),
        }
    }
}

/// Returns the text before the first quotation mark: parsers quote the input that they cannot parse, and it comes from
/// the hook.
fn before_quote(what: &str) -> &str {
    what.find(['"', '`', '\'', '\u{201c}']).map_or(what, |at| what[..at].trim_end())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_kind_has_a_label_of_its_own() {
        let labels: BTreeSet<_> = FailureKind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(labels.len(), FailureKind::ALL.len());
        for (number, kind) in FailureKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, number);
        }
    }
}

#[cfg(test)]
mod failure_class_tests {
    use std::time::Duration;

    use super::*;
    use crate::{Step, Unreachable};

    #[test]
    fn nothing_that_a_hook_writes_is_in_the_class() {
        let said = || "hunter2".to_owned();
        let failures = [
            CallFailure::Grpc { code: "INTERNAL", message: said() },
            CallFailure::Http { status: 503, message: said() },
            CallFailure::WrongUid { expected: "u".into(), got: said() },
            CallFailure::Invalid("expected webhook response of v1, Kind=AdmissionReview, got hunter2, Kind=x".into()),
            CallFailure::Undecodable("invalid type: string \"hunter2\", expected a boolean at line 1".into()),
            CallFailure::Undecodable("unknown field `hunter2`".into()),
            CallFailure::Connection("the hook ended it with NO_ERROR: \"hunter2\"".into()),
            CallFailure::PatchOverLimit("operation 0 (copy \"/hunter2\") does not apply".into()),
        ];
        for failure in failures {
            let (whole, class) = (failure.to_string(), failure.class().to_string());
            assert!(whole.contains("hunter2") && !class.contains("hunter2"), "{whole}: {class}");
        }
    }

    #[test]
    fn our_own_words_stay() {
        for failure in [
            CallFailure::Timeout(Duration::from_secs(1)),
            CallFailure::Connect(Unreachable::at(Step::Connect, "127.0.0.1:1: Connection refused")),
            CallFailure::Connection("the hook reset the call: CANCEL".into()),
            CallFailure::NotGrpc("it answered with HTTP status 502".into()),
            CallFailure::TooLarge { limit: 8 },
        ] {
            assert_eq!(failure.class().to_string(), failure.to_string());
        }
        let http = CallFailure::Http { status: 503, message: "down".into() };
        assert_eq!(http.class().to_string(), "the hook answered with HTTP status 503 and 4 bytes of text");
    }
}
