//! A hook that answers 429 or 5xx with Retry-After is asked again, ten times at most and within its deadline.
//! Source: `docs/reference/webhook-semantics.md` §9.

use std::time::Duration;

use crate::support::{
    gate::{ask, ask_within, document, gate, hook},
    http_hook::{HttpHook, HttpScript},
    reviews::create_pod,
};
use gatepost::review::Reasons;

/// Message for the caller after a hook with that answer, and the number of its calls.
async fn asked_of(script: HttpScript) -> (String, usize) {
    let scripted = HttpHook::plain(script).await;
    let more = "timeout: 20s\nsideEffects: None";
    let gate = gate(&document(&[hook("h.example.com", &scripted.url(), more)]), Reasons::First);
    let refusal = ask(&gate, create_pod("u", 10)).await.refusal.unwrap_or_else(|| panic!("allowed"));
    (refusal.message, scripted.seen().len())
}

#[tokio::test]
async fn it_is_asked_again_ten_times_at_most() {
    for status in [429, 503] {
        let (message, asked) = asked_of(HttpScript::Status(status, Some("0"))).await;
        assert!(message.ends_with(&format!("the hook answered with HTTP status {status}")), "{message}");
        assert_eq!(asked, 11, "{status}");
    }
}

#[tokio::test]
async fn without_retry_after_or_with_another_status_it_is_not_asked_again() {
    for script in [HttpScript::Status(503, None), HttpScript::Status(404, Some("0"))] {
        assert_eq!(asked_of(script).await.1, 1);
    }
}

/// Upstream sleeps until its deadline and fails then; there is nothing to wait for.
#[tokio::test]
async fn a_time_beyond_the_deadline_ends_the_call_at_once() {
    for pause in ["3600", "18446744073709551615"] {
        let (message, asked) = asked_of(HttpScript::Status(503, Some(pause))).await;
        assert!(message.ends_with("the hook answered with HTTP status 503"), "{pause}: {message}");
        assert_eq!(asked, 1);
    }
}

/// The other hook fails after its eleventh call; the resting one has long answered its first by then.
#[tokio::test]
async fn one_that_rests_when_the_review_is_decided_is_counted_as_cancelled() {
    let resting = HttpHook::plain(HttpScript::Status(503, Some("15"))).await;
    let failing = HttpHook::plain(HttpScript::Status(503, Some("0"))).await;
    let more = "timeout: 20s\nsideEffects: None";
    let hooks = [hook("rests.example.com", &resting.url(), more), hook("fails.example.com", &failing.url(), more)];
    let gate = gate(&document(&hooks), Reasons::First);
    assert!(!ask_within(&gate, create_pod("u", 10), Duration::from_secs(30)).await.allowed());
    let metrics = gate.metrics.render().expect("text");
    let line = r#"gatepost_hook_calls_total{hook="rests.example.com",type="validating",outcome="cancelled"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
}
