//! Trace: the spans of a review and of each hook call in it, at debug level. While that level is off, a span is one
//! load of its callsite's state, and none of its fields is written.

use tracing::{Span, debug_span};

use crate::{
    live::{Generation, LiveHook},
    model::Review,
};

/// Span of one review, which ends with its verdict.
pub(super) fn review(review: &Review, generation: &Generation) -> Span {
    debug_span!(
        "review",
        uid = %review.uid,
        kind = %review.kind.kind,
        namespace = %review.namespace,
        operation = review.operation.as_str(),
        revision = %generation.revision,
    )
}

/// Span of one hook's call, inside that of its review.
pub(super) fn call(live: &LiveHook) -> Span {
    debug_span!("hook", name = %live.hook.name)
}
