//! Resend: which calls are sent anew that the hook says it has not looked at.

use super::{super::call::Call, CallExchange};
use crate::{
    http2::{Exchange, Failure, GoAway, Unprocessed},
    model::CallFailure,
};

/// So often a call is sent anew in all because of GOAWAY.
const MOST: u8 = 2;

/// The call, to be sent anew. One that was sent often enough has failed.
pub(super) fn resend(unprocessed: Unprocessed<CallExchange>, goaway: Option<GoAway>) -> Option<Call> {
    let (exchange, why) = match unprocessed {
        // Once more, as Go does: the hook may have had too many at that moment.
        Unprocessed::Refused(exchange) if exchange.call().resends == 0 => (exchange, None),
        Unprocessed::Refused(exchange) => (exchange, Some("the hook refused the call: it is overloaded".to_owned())),
        Unprocessed::BeyondGoAway(exchange) if exchange.call().resends < MOST => (exchange, None),
        Unprocessed::BeyondGoAway(exchange) => {
            let goaway = goaway.map_or(String::new(), |goaway| format!(": {goaway}"));
            let times = exchange.call().resends + 1;
            (exchange, Some(format!("the hook took the call on none of {times} connections{goaway}")))
        }
    };
    if let Some(why) = why {
        exchange.fail(Failure::Refused(CallFailure::Connection(why)));
        return None;
    }
    let call = exchange.into_call();
    Some(Call { resends: call.resends + 1, ..call })
}
