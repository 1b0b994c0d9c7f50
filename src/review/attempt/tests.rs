use bytes::Bytes;

use super::super::outcome::Outcome;
use super::*;
use crate::hooks::{
    HttpReply,
    ProcessingEvidence::{BeyondGoAway, Perhaps, Refused, Stale},
    Reuse::{Allowed, Forbidden},
};

const LEFT: Duration = Duration::from_secs(10);

/// The step after what came, with ten seconds left.
fn next(asks: Asks, (retry, idempotent): (bool, bool), came: &Came<'_>) -> Next {
    let now = Instant::now();
    asks.next(Terms { retry, idempotent, deadline: now + LEFT }, came, now)
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
fn what_the_hook_has_not_processed_goes_before_the_policy() {
    let (once, twice) = (Asks { resends: 1, ..Asks::default() }, Asks { resends: 2, ..Asks::default() });
    let (fail, retry, unsafe_retry) = ((false, true), (true, true), (true, false));
    for (asks, policy, evidence, expected) in [
        (Asks::default(), fail, Perhaps, Next::Settle),
        (Asks::default(), retry, Perhaps, Next::Retry),
        (Asks::default(), unsafe_retry, Perhaps, Next::Settle),
        (Asks::default(), fail, Refused, Next::Resend(Allowed)),
        (Asks::default(), retry, Refused, Next::Resend(Allowed)),
        (once, fail, Refused, Next::Settle),
        (once, retry, Refused, Next::Retry),
        (once, fail, BeyondGoAway, Next::Resend(Allowed)),
        (twice, fail, BeyondGoAway, Next::Settle),
        (twice, retry, BeyondGoAway, Next::Retry),
        (Asks::default(), unsafe_retry, Stale { sent: false }, Next::Resend(Forbidden)),
        (Asks::default(), unsafe_retry, Stale { sent: true }, Next::Settle),
        (Asks::default(), retry, Stale { sent: true }, Next::Resend(Forbidden)),
    ] {
        let failure = lost();
        assert_eq!(
            next(asks, policy, &Came::Failure(&failure, evidence)),
            expected,
            "{asks:?} {policy:?} {evidence:?}"
        );
    }
}

#[test]
fn a_failure_is_retried_once_and_only_where_the_hook_itself_did_not_answer() {
    let retried = Asks { retried: true, ..Asks::default() };
    let answered = CallFailure::Grpc { code: "INTERNAL", message: String::new() };
    let away = CallFailure::Grpc { code: "UNAVAILABLE", message: String::new() };
    for (asks, failure, expected) in [
        (Asks::default(), &away, Next::Retry),
        (Asks::default(), &answered, Next::Settle),
        (retried, &away, Next::Settle),
    ] {
        assert_eq!(next(asks, (true, true), &Came::Failure(failure, Perhaps)), expected, "{asks:?} {failure:?}");
    }
    let now = Instant::now();
    let late = Terms { retry: true, idempotent: true, deadline: now };
    assert_eq!(Asks::default().next(late, &Came::Failure(&away, Perhaps), now), Next::Settle, "its time is over");
}

#[test]
fn a_hook_that_asks_for_time_has_it_ten_times_within_the_deadline() {
    let tenth = Asks { rests: MOST_RESTS, ..Asks::default() };
    let rest = |seconds| Next::Rest(Duration::from_secs(seconds));
    for (asks, status, retry_after, expected) in [
        (Asks::default(), 429, Some(9), rest(9)),
        (Asks::default(), 503, Some(0), rest(0)),
        (Asks::default(), 429, Some(10), Next::Settle),
        (Asks::default(), 503, Some(u64::MAX), Next::Settle),
        (Asks::default(), 503, None, Next::Settle),
        (Asks::default(), 404, Some(0), Next::Settle),
        (Asks::default(), 200, Some(0), Next::Settle),
        (tenth, 503, Some(0), Next::Settle),
    ] {
        let reply = reply(status, retry_after);
        assert_eq!(next(asks, (true, true), &Came::Reply(&reply)), expected, "{status} {retry_after:?}");
    }
    assert_eq!(next(Asks::default(), (true, true), &Came::Reply(&Reply::Grpc(Bytes::new()))), Next::Settle);
}

/// Each step leads to the next kind of call: what is resent stays where it was, and a rest or a retry begins anew.
#[test]
fn every_step_is_counted() {
    let asks = Asks::default().after(Next::Retry);
    assert_eq!(asks, Asks { retried: true, elsewhere: true, ..Asks::default() });
    let resent = asks.after(Next::Resend(Forbidden));
    assert_eq!(resent, Asks { resends: 1, reuse: Forbidden, ..asks });
    let rested = resent.after(Next::Rest(LEFT));
    assert_eq!(rested, Asks { rests: 1, retried: true, ..Asks::default() });
    assert_eq!(rested.after(Next::Settle), rested);
}

/// However a hook behaves, it is asked so often about one review and no more.
#[test]
fn the_number_of_asks_is_bounded() {
    let away = reply(503, Some(0));
    for worst in [Refused, BeyondGoAway, Stale { sent: true }, Perhaps] {
        let (mut asks, mut asked) = (Asks::default(), 0);
        loop {
            asked += 1;
            // It is lost for as long as that makes us ask again; then it asks for time.
            let step = match next(asks, (true, true), &Came::Failure(&lost(), worst)) {
                Next::Settle => next(asks, (true, true), &Came::Reply(&away)),
                step => step,
            };
            if step == Next::Settle {
                break;
            }
            asks = asks.after(step);
        }
        assert!(asked <= 3 * (1 + 1 + usize::from(MOST_RESTS)), "{worst:?}: {asked}");
    }
}

/// A round has a list of each, and twenty hooks are usual: neither list is to need a page of its own.
#[test]
fn attempts_and_outcomes_of_twenty_hooks_take_less_than_a_page_each() {
    let (attempt, outcome) = (size_of::<Attempt<'_>>(), size_of::<Option<Outcome<'_>>>());
    assert!(20 * attempt < 4096 && 20 * outcome < 4096, "{attempt} {outcome}");
}
