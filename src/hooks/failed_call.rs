//! FailedCall: a call without an answer, and the evidence on whether its hook has processed it.

use crate::model::CallFailure;

/// Maximum number of resends of a call that its hook has not processed.
const MAX_RESENDS: u8 = 2;

/// Call without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// Reason why there is no answer.
    pub failure: CallFailure,
    /// May the hook have processed it?
    pub evidence: ProcessingEvidence,
}

impl From<CallFailure> for FailedCall {
    /// The hook may have processed it, as far as anybody knows.
    fn from(failure: CallFailure) -> Self {
        Self { failure, evidence: ProcessingEvidence::Perhaps }
    }
}

/// Evidence on whether a hook has processed a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessingEvidence {
    /// None: it may have, in part or as a whole.
    Perhaps,
    /// It has not: it reset the stream with REFUSED_STREAM. RFC 9113 §8.7.
    Refused,
    /// It has not: its GOAWAY names an earlier stream as the last one. RFC 9113 §6.8.
    BeyondGoAway,
    /// Hardly: an HTTP/1.1 connection kept from earlier calls ended before a byte of the answer.
    Stale {
        /// Some of the call may have reached the hook.
        sent: bool,
    },
}

/// Connection that may carry a call over HTTP/1.1. Over HTTP/2 there is one for all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// An idle one, or else a new one.
    #[default]
    Allowed,
    /// A new one.
    Forbidden,
}

impl ProcessingEvidence {
    /// Connection for one more send of a call that was resent so often before; `None` where the call has failed.
    ///
    /// It is decided by who asked: the transport reports the evidence and sends nothing twice of its own accord.
    pub fn resend(self, resends: u8, idempotent: bool) -> Option<Reuse> {
        match self {
            Self::Perhaps => None,
            // Once, as Go does: the hook may have had too many at that moment.
            Self::Refused => (resends == 0).then_some(Reuse::Allowed),
            Self::BeyondGoAway => (resends < MAX_RESENDS).then_some(Reuse::Allowed),
            Self::Stale { sent } => (resends < MAX_RESENDS && (idempotent || !sent)).then_some(Reuse::Forbidden),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_hook_has_not_processed_is_sent_again_twice_at_most() {
        use Reuse::{Allowed, Forbidden};
        let (unsent, silent) = (ProcessingEvidence::Stale { sent: false }, ProcessingEvidence::Stale { sent: true });
        for (evidence, idempotent, connections) in [
            (ProcessingEvidence::Perhaps, true, [None, None, None]),
            (ProcessingEvidence::Refused, false, [Some(Allowed), None, None]),
            (ProcessingEvidence::BeyondGoAway, false, [Some(Allowed), Some(Allowed), None]),
            (unsent, false, [Some(Forbidden), Some(Forbidden), None]),
            (silent, false, [None, None, None]),
            (silent, true, [Some(Forbidden), Some(Forbidden), None]),
        ] {
            let chosen = [0, 1, 2].map(|resends| evidence.resend(resends, idempotent));
            assert_eq!(chosen, connections, "{evidence:?}, idempotent: {idempotent}");
        }
    }
}
