//! Every hook gets the same bytes at the same time; the first no ends the request and cancels the rest.

use std::time::{Duration, Instant};

use crate::support::{
    gate::{ask, ask_within, caller, document, gate, hook},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::review::Reasons;
use gatepost_api::Verdict;
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionResponse;

#[tokio::test]
async fn the_bytes_that_came_are_the_bytes_that_go() {
    let hooks = [ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Allow).await];
    let yaml = document(&[hook("a.example.com", &hooks[0].url(), ""), hook("b.example.com", &hooks[1].url(), "")]);
    let gate = gate(&yaml, Reasons::First);
    for size in [0, 2 << 10, 100 << 10, 1 << 20] {
        let want = message(create_pod("u", size));
        assert!(ask(&gate, create_pod("u", size)).await.allowed());
        for hook in &hooks {
            let seen = hook.seen().pop().expect("asked");
            assert_eq!(seen.path, "/gatepost.v1.Admission/Validate");
            assert!(seen.body == want, "{size}");
        }
    }
    assert_eq!(hooks[0].connections(), 1, "one warm connection for all");
}

#[tokio::test]
async fn a_message_in_many_pieces_goes_out_whole() {
    let scripted = ScriptedHook::start(Script::Allow).await;
    let gate = gate(&document(&[hook("a.example.com", &scripted.url(), "")]), Reasons::First);
    let whole = message(create_pod("u", 300 << 10));
    let pieces: Vec<_> = (0..whole.len()).step_by(977).map(|at| whole.slice(at..whole.len().min(at + 977))).collect();
    let review = gatepost_wire::inbound::view(gatepost_api::Rope::new(pieces)).expect("a review");
    assert!(gatepost::review::decide(&gate, &review, &caller(Duration::from_secs(5))).await.allowed());
    assert!(scripted.seen().pop().expect("asked").body == whole);
}

#[tokio::test]
async fn many_requests_share_a_connection_without_mixing() {
    let scripted = ScriptedHook::start(Script::Allow).await;
    let gate = gate(&document(&[hook("a.example.com", &scripted.url(), "")]), Reasons::First);
    let asks = (0..200).map(|n| {
        let gate = gate.clone();
        tokio::spawn(
            async move { ask_within(&gate, create_pod(&format!("u-{n}"), n * 997), Duration::from_secs(20)).await },
        )
    });
    for verdict in futures_util::future::join_all(asks).await {
        assert!(verdict.expect("no panic").allowed());
    }
    assert_eq!((scripted.seen().len(), scripted.connections()), (200, 1));
}

#[tokio::test]
async fn the_first_no_answers_at_once_and_cancels_the_rest() {
    let (no, hung) = (ScriptedHook::start(Script::Deny("not today")).await, ScriptedHook::start(Script::Hang).await);
    let yaml = document(&[hook("hung.example.com", &hung.url(), ""), hook("no.example.com", &no.url(), "")]);
    let gate = gate(&yaml, Reasons::First);
    let began = Instant::now();
    let verdict = ask_within(&gate, create_pod("u", 4096), Duration::from_secs(20)).await;
    assert!(began.elapsed() < Duration::from_secs(10), "did not wait for the hung hook's own timeout");
    let refusal = verdict.refusal.expect("denied");
    assert_eq!(refusal.message, "admission webhook \"no.example.com\" denied the request: not today");
    assert_eq!(refusal.code, 400);
    // Either it was reset while it hung, or before it had even been begun.
    let cancelled = tokio::time::timeout(Duration::from_secs(10), hung.cancelled.notified()).await;
    assert!(cancelled.is_ok() || hung.seen().is_empty(), "the hung call is reset");
}

#[tokio::test]
async fn all_reasons_waits_and_gives_every_one_by_name() {
    let (no, also) =
        (ScriptedHook::start(Script::Deny("first")).await, ScriptedHook::start(Script::Deny("second")).await);
    let slow = ScriptedHook::start(Script::Slow(Duration::from_millis(30))).await;
    let yaml = document(&[
        hook("z.example.com", &no.url(), ""),
        hook("slow.example.com", &slow.url(), ""),
        hook("a.example.com", &also.url(), ""),
    ]);
    let refusal = ask(&gate(&yaml, Reasons::All), create_pod("u", 10)).await.refusal.expect("denied");
    assert_eq!(
        refusal.message,
        "admission webhook \"a.example.com\" denied the request: second; \
         admission webhook \"z.example.com\" denied the request: first"
    );
    let fields: Vec<_> = refusal.causes.iter().map(|cause| &*cause.field).collect();
    assert_eq!(fields, ["a.example.com", "z.example.com"]);
    assert_eq!(slow.seen().len(), 1);
}

/// Denies at once beside a hook that warns later and one that never answers.
async fn denied_beside_a_slow_warning(reasons: Reasons, budget: Duration) -> (Verdict, Duration) {
    let no = ScriptedHook::start(Script::Deny("not today")).await;
    let warning =
        AdmissionResponse { allowed: Some(true), warnings: vec!["mind the gap".into()], ..Default::default() };
    let slow = ScriptedHook::start(Script::RespondAfter(Duration::from_millis(50), warning)).await;
    let hung = ScriptedHook::start(Script::Hang).await;
    let yaml = document(&[
        hook("hung.example.com", &hung.url(), "timeout: 20s"),
        hook("no.example.com", &no.url(), ""),
        hook("slow.example.com", &slow.url(), "timeout: 20s"),
    ]);
    let began = Instant::now();
    let verdict = ask_within(&gate(&yaml, reasons), create_pod("u", 10), budget).await;
    (verdict, began.elapsed())
}

#[tokio::test]
async fn slower_hooks_may_warn_within_the_grace_period() {
    let grace = Duration::from_secs(2);
    let (verdict, took) = denied_beside_a_slow_warning(Reasons::Within(grace), Duration::from_secs(20)).await;
    assert_eq!(verdict.warnings, ["mind the gap"]);
    let message = verdict.refusal.expect("denied").message;
    assert_eq!(message, "admission webhook \"no.example.com\" denied the request: not today");
    assert!((grace..Duration::from_secs(15)).contains(&took), "the hung hook is not waited for: {took:?}");
}

#[tokio::test]
async fn without_a_grace_period_warnings_of_slower_hooks_are_lost() {
    let (verdict, _) = denied_beside_a_slow_warning(Reasons::First, Duration::from_secs(20)).await;
    assert!(verdict.warnings.is_empty() && !verdict.allowed());
}

#[tokio::test]
async fn the_grace_period_ends_with_the_callers_time() {
    let (verdict, took) =
        denied_beside_a_slow_warning(Reasons::Within(Duration::from_secs(19)), Duration::from_secs(1)).await;
    assert!(!verdict.allowed() && took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test]
async fn hung_hooks_cost_the_longest_timeout_not_the_sum() {
    const HOOKS: usize = 40;
    let (shortest, longest) = (Duration::from_millis(400), Duration::from_millis(500));
    let hung = ScriptedHook::start(Script::Hang).await;
    let entry = |n: usize| {
        let timeout = if n == 0 { longest } else { shortest }.as_millis();
        let fields = format!("timeout: {timeout}ms\nfailurePolicy: Ignore");
        hook(&format!("h{n}.example.com"), &hung.url(), &fields)
    };
    let gate = gate(&document(&(0..HOOKS).map(entry).collect::<Vec<_>>()), Reasons::First);
    let began = Instant::now();
    let verdict = ask_within(&gate, create_pod("u", 10), Duration::from_secs(30)).await;
    let took = began.elapsed();
    assert!(verdict.allowed());
    assert_eq!(verdict.audit_annotations.len(), HOOKS + 1, "each fail-open is named, and the revision");
    assert!(took >= longest, "{took:?}");
    assert!(took < longest + shortest * 20, "half of the sum: {took:?}");
    tokio::time::timeout(Duration::from_secs(10), hung.cancelled.notified()).await.expect("reset after its timeout");
}

#[tokio::test]
async fn the_caller_s_deadline_bounds_every_hook() {
    let scripted = ScriptedHook::start(Script::Hang).await;
    let gate = gate(&document(&[hook("a.example.com", &scripted.url(), "timeout: 20s")]), Reasons::First);
    let refusal = ask_within(&gate, create_pod("u", 10), Duration::from_millis(80)).await.refusal.expect("closed");
    assert!(refusal.message.ends_with("no answer within 80ms"), "{}", refusal.message);
    let timeout = scripted.seen().first().map(|seen| seen.headers["grpc-timeout"].to_str().expect("text").to_owned());
    let micros: u64 =
        timeout.as_deref().and_then(|text| text.strip_suffix('u')).and_then(|n| n.parse().ok()).expect("µs");
    assert!((1..=80_000).contains(&micros), "{micros}");
}

#[tokio::test]
async fn expired_request_times_out_without_calls() {
    let scripted = ScriptedHook::start(Script::Allow).await;
    let gate = gate(&document(&[hook("a.example.com", &scripted.url(), "")]), Reasons::First);
    let refusal = ask_within(&gate, create_pod("u", 10), Duration::ZERO).await.refusal.expect("refused");
    assert_eq!((refusal.code, &*refusal.message), (504, "Timeout: request did not complete within requested timeout"));
    assert!(scripted.seen().is_empty());
}

#[tokio::test]
async fn a_caller_that_hangs_up_cancels_the_hooks() {
    let scripted = ScriptedHook::start(Script::Hang).await;
    let gate = gate(&document(&[hook("a.example.com", &scripted.url(), "")]), Reasons::First);
    let request = tokio::spawn(async move { ask_within(&gate, create_pod("u", 10), Duration::from_secs(30)).await });
    tokio::time::timeout(Duration::from_secs(10), scripted.asked.notified()).await.expect("asked");
    request.abort();
    tokio::time::timeout(Duration::from_secs(10), scripted.cancelled.notified()).await.expect("reset");
}

/// The first call of a connection spells its headers out, later ones refer back to them: a hook must see no difference.
#[tokio::test]
async fn every_call_carries_the_same_headers() {
    let scripted = ScriptedHook::start(Script::Allow).await;
    let gate = gate(&document(&[hook("a.example.com", &scripted.url(), "timeout: 3s")]), Reasons::First);
    for n in 0..3 {
        assert!(ask_within(&gate, create_pod(&format!("u-{n}"), 10), Duration::from_secs(9)).await.allowed());
    }
    for seen in scripted.seen() {
        let header = |name: &str| seen.headers[name].to_str().expect("text").to_owned();
        assert_eq!((header("te"), header("content-type")), ("trailers".into(), "application/grpc".into()));
        assert!(header("user-agent").starts_with("gatepost/"));
        let micros: u64 = header("grpc-timeout").trim_end_matches('u').parse().expect("microseconds");
        assert!((2_000_000..=3_000_000).contains(&micros), "{micros}");
    }
}
