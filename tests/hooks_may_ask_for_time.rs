//! A hook that answers 429 or 5xx with Retry-After is asked again, ten times at most and within its deadline.
//! Source: `docs/reference/webhook-semantics.md` §9.

mod support;

use gatepost::admit::Reasons;
use support::{
    gate::{ask, document, gate, hook},
    http_hook::{HttpHook, HttpScript},
    reviews::create_pod,
};

/// What the caller reads after a hook with that answer, and how often the hook was asked.
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
    let (message, asked) = asked_of(HttpScript::Status(503, Some("3600"))).await;
    assert!(message.ends_with("the hook answered with HTTP status 503"), "{message}");
    assert_eq!(asked, 1);
}
