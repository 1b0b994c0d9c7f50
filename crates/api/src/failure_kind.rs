//! FailureKind: the bounded label of a call failure.

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
            /// Every kind. A kind's place in this list is its number (`kind as usize`).
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Value of the label.
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
    /// A review that cannot be written in the hook's form.
    Unwritable = "unwritable",
    /// A review whose object is in a version that the hook's rules do not name.
    OtherVersion = "other_version",
    /// A namespace, by whose labels the hook selects, that cannot be looked up.
    NamespaceUnavailable = "namespace_unavailable",
    /// An AdmissionReview of another version or kind.
    Invalid = "invalid",
    /// An answer for which the memory budget has no room.
    Overloaded = "overloaded",
    /// A patch that cannot be read.
    UndecodablePatch = "undecodable_patch",
    /// A patch of an unsupported type.
    PatchType = "patch_type",
    /// A patch that adds too much of its own to the object.
    PatchOverLimit = "patch_over_limit",
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
