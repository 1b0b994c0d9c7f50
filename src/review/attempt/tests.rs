use bytes::Bytes;

use super::super::record::CallRecord;
use super::*;
use crate::hooks::{
    HttpReply,
    ProcessingEvidence::{BeyondGoAway, Refused, ReusedConnectionEnded, Unknown},
    Reuse::{Allowed, Forbidden},
};

const LEFT: Duration = Duration::from_secs(10);

/// The step after what came, with ten seconds left.
fn next(asks: RetryState, (retry, idempotent): (bool, bool), came: &CallResult<'_>) -> NextStep {
    let now = Instant::now();
    asks.next_step(RetryTerms { retry_policy: retry, idempotent, deadline: now + LEFT }, came, now)
}

fn reply(status: u16, retry_after: Option<u64>) -> Reply {
    let mut reply = HttpReply::new(status, Bytes::new());
    reply.retry_after = retry_after.map(Duration::from_secs);
    Reply::Http(reply)
}

fn lost() -> CallFailure {
    CallFailure::Connection("gone".into())
}

#[test]
fn unprocessed_call_is_resent_before_the_retry_policy_applies() {
    let (once, twice) =
        (RetryState { resends: 1, ..RetryState::default() }, RetryState { resends: 2, ..RetryState::default() });
    let (fail, retry, unsafe_retry) = ((false, true), (true, true), (true, false));
    for (asks, policy, evidence, expected) in [
        (RetryState::default(), fail, Unknown, NextStep::Settle),
        (RetryState::default(), retry, Unknown, NextStep::Retry),
        (RetryState::default(), unsafe_retry, Unknown, NextStep::Settle),
        (RetryState::default(), fail, Refused, NextStep::Resend(Allowed)),
        (RetryState::default(), retry, Refused, NextStep::Resend(Allowed)),
        (once, fail, Refused, NextStep::Settle),
        (once, retry, Refused, NextStep::Retry),
        (once, fail, BeyondGoAway, NextStep::Resend(Allowed)),
        (twice, fail, BeyondGoAway, NextStep::Settle),
        (twice, retry, BeyondGoAway, NextStep::Retry),
        (
            RetryState::default(),
            unsafe_retry,
            ReusedConnectionEnded { may_have_arrived: false },
            NextStep::Resend(Forbidden),
        ),
        (RetryState::default(), unsafe_retry, ReusedConnectionEnded { may_have_arrived: true }, NextStep::Settle),
        (RetryState::default(), retry, ReusedConnectionEnded { may_have_arrived: true }, NextStep::Resend(Forbidden)),
    ] {
        let failure = lost();
        assert_eq!(
            next(asks, policy, &CallResult::Failure(&failure, evidence)),
            expected,
            "{asks:?} {policy:?} {evidence:?}"
        );
    }
}

#[test]
fn failure_without_an_answer_is_retried_once() {
    let retried = RetryState { retried_by_policy: true, ..RetryState::default() };
    let answered = CallFailure::Grpc { code: "INTERNAL", message: String::new() };
    let away = CallFailure::Grpc { code: "UNAVAILABLE", message: String::new() };
    for (asks, failure, expected) in [
        (RetryState::default(), &away, NextStep::Retry),
        (RetryState::default(), &answered, NextStep::Settle),
        (retried, &away, NextStep::Settle),
    ] {
        assert_eq!(next(asks, (true, true), &CallResult::Failure(failure, Unknown)), expected, "{asks:?} {failure:?}");
    }
    let now = Instant::now();
    let late = RetryTerms { retry_policy: true, idempotent: true, deadline: now };
    assert_eq!(
        RetryState::default().next_step(late, &CallResult::Failure(&away, Unknown), now),
        NextStep::Settle,
        "its time is over"
    );
}

#[test]
fn retry_after_is_honoured_ten_times_within_the_deadline() {
    let tenth = RetryState { pauses: MAX_PAUSES, ..RetryState::default() };
    let rest = |seconds| NextStep::Pause(Duration::from_secs(seconds));
    for (asks, status, retry_after, expected) in [
        (RetryState::default(), 429, Some(9), rest(9)),
        (RetryState::default(), 503, Some(0), rest(0)),
        (RetryState::default(), 429, Some(10), NextStep::Settle),
        (RetryState::default(), 503, Some(u64::MAX), NextStep::Settle),
        (RetryState::default(), 503, None, NextStep::Settle),
        (RetryState::default(), 404, Some(0), NextStep::Settle),
        (RetryState::default(), 200, Some(0), NextStep::Settle),
        (tenth, 503, Some(0), NextStep::Settle),
    ] {
        let reply = reply(status, retry_after);
        assert_eq!(next(asks, (true, true), &CallResult::Reply(&reply)), expected, "{status} {retry_after:?}");
    }
    assert_eq!(
        next(RetryState::default(), (true, true), &CallResult::Reply(&Reply::Grpc(Bytes::new()))),
        NextStep::Settle
    );
}

/// Each step leads to the next kind of call: what is resent stays where it was, and a rest or a retry begins anew.
#[test]
fn every_step_is_counted() {
    let asks = RetryState::default().after(NextStep::Retry);
    assert_eq!(asks, RetryState { retried_by_policy: true, over_spare_client: true, ..RetryState::default() });
    let resent = asks.after(NextStep::Resend(Forbidden));
    assert_eq!(resent, RetryState { resends: 1, reuse: Forbidden, ..asks });
    let rested = resent.after(NextStep::Pause(LEFT));
    assert_eq!(rested, RetryState { pauses: 1, retried_by_policy: true, ..RetryState::default() });
    assert_eq!(rested.after(NextStep::Settle), rested);
}

/// The number of calls about one review is bounded, however a hook behaves.
#[test]
fn number_of_attempts_is_bounded() {
    let away = reply(503, Some(0));
    for worst in [Refused, BeyondGoAway, ReusedConnectionEnded { may_have_arrived: true }, Unknown] {
        let (mut asks, mut asked) = (RetryState::default(), 0);
        loop {
            asked += 1;
            // It is lost for as long as that makes us ask again; then it asks for time.
            let step = match next(asks, (true, true), &CallResult::Failure(&lost(), worst)) {
                NextStep::Settle => next(asks, (true, true), &CallResult::Reply(&away)),
                step => step,
            };
            if step == NextStep::Settle {
                break;
            }
            asks = asks.after(step);
        }
        assert!(asked <= 3 * (1 + 1 + usize::from(MAX_PAUSES)), "{worst:?}: {asked}");
    }
}

/// A round has a list of each, and twenty hooks are usual: neither list is to need a page of its own.
#[test]
fn attempt_and_record_fit_a_page_for_twenty_hooks() {
    let (attempt, outcome) = (size_of::<Attempt<'_>>(), size_of::<CallRecord<'_>>());
    assert!(20 * attempt < 4096 && 20 * outcome < 4096, "{attempt} {outcome}");
}
