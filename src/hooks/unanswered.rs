//! Unanswered: a call that came back without an answer, and whether its hook may have processed it.

use crate::model::CallFailure;

/// Most resends of one call that its hook has not processed.
const MOST_RESENDS: u8 = 2;

/// Call without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Reason why there is no answer.
    pub failure: CallFailure,
    /// May the hook have processed it?
    pub processed: Processed,
}

impl From<CallFailure> for Unanswered {
    /// The hook may have processed it, as far as anybody knows.
    fn from(failure: CallFailure) -> Self {
        Self { failure, processed: Processed::Perhaps }
    }
}

/// Evidence on whether a hook has processed a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processed {
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

impl Processed {
    /// Connection for one more send of a call that was resent so often before; `None` where the call has failed.
    ///
    /// It is decided by who asked: the transport reports the evidence and sends nothing twice of its own accord.
    pub fn resend(self, resends: u8, idempotent: bool) -> Option<Reuse> {
        match self {
            Self::Perhaps => None,
            // Once, as Go does: the hook may have had too many at that moment.
            Self::Refused => (resends == 0).then_some(Reuse::Allowed),
            Self::BeyondGoAway => (resends < MOST_RESENDS).then_some(Reuse::Allowed),
            Self::Stale { sent } => (resends < MOST_RESENDS && (idempotent || !sent)).then_some(Reuse::Forbidden),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_hook_has_not_processed_is_sent_again_twice_at_most() {
        use Reuse::{Allowed, Forbidden};
        let (unsent, silent) = (Processed::Stale { sent: false }, Processed::Stale { sent: true });
        for (processed, idempotent, connections) in [
            (Processed::Perhaps, true, [None, None, None]),
            (Processed::Refused, false, [Some(Allowed), None, None]),
            (Processed::BeyondGoAway, false, [Some(Allowed), Some(Allowed), None]),
            (unsent, false, [Some(Forbidden), Some(Forbidden), None]),
            (silent, false, [None, None, None]),
            (silent, true, [Some(Forbidden), Some(Forbidden), None]),
        ] {
            let chosen = [0, 1, 2].map(|resends| processed.resend(resends, idempotent));
            assert_eq!(chosen, connections, "{processed:?}, idempotent: {idempotent}");
        }
    }
}
