//! `matchConditions`: in order, any that is false excludes the hook; an error goes by the failure policy.
//! Source: `docs/reference/webhook-semantics.md` §7.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{
    gate::{ask, ask_within, document, gate, hook},
    http_hook::{HttpHook, HttpScript},
    mutating::{self, add_label, entry, judging},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};
use bytes::Bytes;
use gatepost::{
    live::{
        Authorizer,
        authorizer::{AccessRequest, AccessResult},
    },
    review::{AdmissionDeps, Reasons},
};
use gatepost_api::Phase;
use gatepost_cel::{AccessDecision, Subject};
use gatepost_wire::pb::k8s::io::{
    api::{admission::v1::AdmissionRequest, authentication::v1::UserInfo},
    apimachinery::pkg::runtime::RawExtension,
};

/// Reviews for which the conditions of this hook were not met: excluded, and failed.
fn unmet(gate: &AdmissionDeps, name: &str, hook_type: &str) -> [u64; 2] {
    let metrics = gate.metrics.render().expect("metrics");
    ["exclusions", "errors"].map(|what| {
        let sample =
            format!("gatepost_hook_match_condition_{what}_total{{hook=\"{name}.example.com\",type=\"{hook_type}\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&sample));
        value.and_then(|value| value.parse().ok()).expect("counted")
    })
}

/// Evaluations of this hook's conditions that were timed; `None` where the metric has no such hook.
fn evaluated(gate: &AdmissionDeps, name: &str, hook_type: &str) -> Option<u64> {
    let metrics = gate.metrics.render().expect("metrics");
    let sample = format!(
        "gatepost_hook_match_condition_duration_seconds_count{{hook=\"{name}.example.com\",type=\"{hook_type}\"}} "
    );
    metrics.lines().find_map(|line| line.strip_prefix(&sample))?.parse().ok()
}

/// Whether they exclude the hook, let it be asked or fail; on the worker and beside it.
#[tokio::test]
async fn evaluations_of_conditions_are_timed() {
    let yes = ScriptedHook::start(Script::Allow).await;
    let named = |name: &str, expression: &str| {
        hook(&format!("{name}.example.com"), &yes.url(), &conditions("Ignore", &[expression]))
    };
    let gate = gate(
        &document(&[
            named("excluded", "object.metadata.name == 'api'"),
            named("asked", "object.metadata.name == 'web'"),
            named("skipped", "object.missing == 1"),
            hook("plain.example.com", &yes.url(), ""),
        ]),
        Reasons::First,
    );
    assert_eq!(evaluated(&gate, "excluded", "validating"), None, "not yet");
    let large = POD.replace(r#""kind":"Pod","#, &format!(r#""kind":"Pod","x":"{}","#, "x".repeat(300 << 10)));
    for (times, object) in [(1, POD), (2, large.as_str())] {
        assert!(ask(&gate, request(object)).await.allowed());
        for name in ["excluded", "asked", "skipped"] {
            assert_eq!(evaluated(&gate, name, "validating"), Some(times), "{name}");
        }
        assert_eq!(evaluated(&gate, "plain", "validating"), None, "it has no conditions");
    }
}

#[tokio::test]
async fn unmet_conditions_are_counted_once_per_review() {
    let yes = ScriptedHook::start(Script::Allow).await;
    for (more, hook_type) in [("", "validating"), ("type: Mutating\nsideEffects: None\n", "mutating")] {
        let named = |name: &str, policy: &str, expression: &str| {
            hook(&format!("{name}.example.com"), &yes.url(), &(more.to_owned() + &conditions(policy, &[expression])))
        };
        let gate = gate(
            &document(&[
                named("excluded", "Fail", "object.metadata.name == 'api'"),
                named("asked", "Fail", "object.metadata.name == 'web'"),
                named("skipped", "Ignore", "object.missing == 1"),
                named("rejects", "Fail", "object.missing == 1"),
            ]),
            Reasons::First,
        );
        for times in 1..=2 {
            assert!(!ask(&gate, request(POD)).await.allowed());
            let counted = ["excluded", "asked", "skipped", "rejects"].map(|name| unmet(&gate, name, hook_type));
            assert_eq!(counted, [[times, 0], [0, 0], [0, times], [0, times]], "{hook_type}");
        }
        let phases = gate.metrics.render().expect("metrics");
        let phases = phases.lines().find_map(|line| line.strip_prefix("gatepost_mutation_duration_seconds_count "));
        assert_eq!(phases, Some(if hook_type == "mutating" { "2" } else { "0" }));
    }
}

/// Conditions of a mutating hook look at what the hooks before it have made of the object.
#[tokio::test]
async fn conditions_see_the_object_as_patched_so_far() {
    let first = judging(|_| add_label("a", "1")).await;
    let (has, lacks) = (HttpHook::plain(HttpScript::Allow).await, HttpHook::plain(HttpScript::Allow).await);
    // One by one, so that every call counts.
    let more = |expression: &str| format!("sideEffects: None\ndispatch: Serial\n{}", conditions("Fail", &[expression]));
    let (a, no_a) = ("has(object.metadata.labels.a)", "!has(object.metadata.labels.a)");
    let first = || entry("first", "Mutating", &first, "sideEffects: None");
    let has_a = || entry("has", "Mutating", &has, &more(a));
    let lacks_a = || entry("lacks", "Mutating", &lacks, &more(no_a));
    // The larger one is evaluated beside the worker.
    for size in [0, 300 << 10] {
        for (entries, asked) in [
            ([first(), has_a(), lacks_a()], [1, 0]),
            ([has_a(), lacks_a(), first()], [0, 1]),
            ([lacks_a(), first(), has_a()], [1, 1]),
        ] {
            has.forget();
            lacks.forget();
            let verdict =
                mutating::ask(&gate(&document(&entries), Reasons::First), Phase::Mutate, create_pod("u", size)).await;
            assert_eq!((verdict.refusal, verdict.patch.is_some()), (None, true));
            assert_eq!([has.seen().len(), lacks.seen().len()], asked, "{size} {entries:?}");
        }
    }
}

fn conditions(policy: &str, expressions: &[&str]) -> String {
    let conditions = expressions
        .iter()
        .enumerate()
        .map(|(at, expression)| format!("- {{name: c{at}, expression: {expression:?}}}\n"));
    format!("failurePolicy: {policy}\nmatchConditions:\n{}", conditions.collect::<String>())
}

fn request(object: &str) -> AdmissionRequest {
    let user = UserInfo { username: Some("alice".to_owned()), groups: vec!["dev".to_owned()], ..UserInfo::default() };
    AdmissionRequest {
        object: Some(RawExtension { raw: Some(Bytes::copy_from_slice(object.as_bytes())) }),
        name: Some("web".to_owned()),
        user_info: Some(user),
        ..create_pod("u", 0)
    }
}

const POD: &str =
    r#"{"kind":"Pod","metadata":{"name":"web","labels":{"app":"web"}},"spec":{"containers":[{"image":"a:1"}]}}"#;

#[tokio::test]
async fn conditions_decide_after_rules_and_selectors() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let asked = "admission webhook \"h.example.com\" denied the request: seen";
    let forbidden = |why: &str| format!("pods \"web\" is forbidden: {why}");
    let missing = "expression 'object.missing == 1' resulted in error: no such key: missing";
    let large = format!(r#"{{"spec":{{"data":[{}"last"]}}}}"#, r#""0123456789abcdef","#.repeat(20_000));
    for (policy, expressions, object, wanted) in [
        ("Fail", &["object.metadata.labels.app == 'web'"][..], POD, Some(asked.to_owned())),
        ("Fail", &["object.metadata.labels.app == 'api'"], POD, None),
        (
            "Fail",
            &["request.userInfo.username == 'alice' && 'dev' in request.userInfo.groups"],
            POD,
            Some(asked.to_owned()),
        ),
        ("Fail", &["!('dev' in request.userInfo.groups)"], POD, None),
        ("Fail", &["true", "request.operation == 'DELETE'", "true"], POD, None),
        ("Fail", &["object.missing == 1"], POD, Some(forbidden(missing))),
        ("Fail", &["object.missing == 1", "false"], POD, None),
        ("Fail", &["true", "object.missing == 1"], POD, Some(forbidden(missing))),
        ("Ignore", &["true", "object.missing == 1"], POD, None),
        ("Ignore", &["true", "true"], POD, Some(asked.to_owned())),
        // Too large, or too long, for the worker.
        ("Fail", &["object.spec.data.all(x, x != '')"], &large, Some(asked.to_owned())),
        ("Fail", &["object.spec.data.exists(x, x == 'first')"], &large, None),
        ("Fail", &["lists.range(100).all(x, lists.range(100).all(y, x + y >= 0))"], POD, Some(asked.to_owned())),
    ] {
        let more = conditions(policy, expressions);
        let gate = gate(&document(&[hook("h.example.com", &no.url(), &more)]), Reasons::First);
        let verdict = ask(&gate, request(object)).await;
        let refusal = verdict.refusal.as_ref().map(|refusal| refusal.message.clone());
        assert_eq!(refusal, wanted, "{policy} {expressions:?}");
        let code = verdict.refusal.map(|refusal| (refusal.code, refusal.reason));
        if wanted.is_some_and(|wanted| wanted.contains("forbidden")) {
            assert_eq!(code, Some((403, "Forbidden".to_owned())));
        }
    }
}

#[tokio::test]
async fn condition_error_rejects_before_any_call() {
    let (first, second) = (ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Allow).await);
    let slow = conditions("Fail", &["lists.range(100).all(x, lists.range(100).all(y, x + y >= 0))"]);
    let failing = conditions("Fail", &["object.missing == 1"]);
    let hooks = [hook("a.example.com", &first.url(), &slow), hook("b.example.com", &second.url(), &failing)];
    let verdict = ask(&gate(&document(&hooks), Reasons::First), request(POD)).await;
    assert_eq!(verdict.refusal.map(|refusal| refusal.code), Some(403));
    assert!(first.seen().is_empty() && second.seen().is_empty());
}

#[tokio::test]
async fn expensive_conditions_follow_the_failure_policy() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    // As in the test below.
    let expressions = ["lists.range(8000).exists(i, double(object.digits) < 0.0)"];
    let object = format!(r#"{{"digits":"{}"}}"#, "1".repeat(300_000));
    for (policy, why) in [("Ignore", None), ("Fail", Some("more than 200 ms of processor time"))] {
        let hook = hook("h.example.com", &no.url(), &conditions(policy, &expressions));
        let gate = gate(&document(&[hook]), Reasons::First);
        let verdict = ask_within(&gate, request(&object), Duration::from_secs(60)).await;
        let message = verdict.refusal.map(|refusal| refusal.message);
        assert_eq!(message.is_some(), why.is_some(), "{policy} {message:?}");
        assert!(message.unwrap_or_default().contains(why.unwrap_or_default()), "{policy}");
        assert_eq!(unmet(&gate, "h", "validating"), [0, 1], "{policy}");
    }
}

#[tokio::test]
async fn a_condition_that_takes_longer_than_its_request_ends_with_it() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    // Cheap, as upstream counts it: each of 8,000 rounds reads a number of 300,000 digits.
    let expressions = ["lists.range(8000).exists(i, double(object.digits) < 0.0)"];
    let object = format!(r#"{{"digits":"{}"}}"#, "1".repeat(300_000));
    let gate =
        gate(&document(&[hook("h.example.com", &no.url(), &conditions("Ignore", &expressions))]), Reasons::First);
    let verdict = ask_within(&gate, request(&object), Duration::from_millis(20)).await;
    assert_eq!(verdict.refusal.map(|refusal| refusal.code), Some(504));
    let next = ask(&gate, request(r#"{"digits":"1"}"#)).await;
    assert!(next.allowed(), "the next one is decided: {:?}", next.refusal);
}

/// A gate whose authorizer allows `get`, or cannot be asked about it; and how often it was asked.
fn authorized(yaml: &str, decided: fn() -> AccessResult) -> (Arc<AdmissionDeps>, Arc<AtomicUsize>) {
    let (authorizer, mut requests) = Authorizer::new();
    let mut gate = gate(yaml, Reasons::First);
    Arc::get_mut(&mut gate).expect("nobody else has it").authorizer = Some(authorizer);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Some(AccessRequest { username, user, check, answer }) = requests.recv().await {
            assert_eq!((&*username, &user.groups[..]), ("alice", &["dev".to_owned()][..]));
            assert_eq!(check.subject, Subject::Requester);
            counted.fetch_add(1, Ordering::Relaxed);
            let allowed = &*check.verb == "get";
            let _ = answer.send(decided().map(|decision| AccessDecision { allowed, ..decision }));
        }
    });
    (gate, asked)
}

#[tokio::test]
async fn equal_access_checks_of_a_review_are_sent_once() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let allowed = "authorizer.group('').resource('pods').check('get').allowed()";
    let skip = "!authorizer.requestResource.check('skip').allowed()";
    let excluded = conditions("Fail", &[allowed, "!authorizer.path('/x').check('get').allowed()"]);
    let large = format!(r#"{{"spec":{{"data":[{}"last"]}}}}"#, r#""0123456789abcdef","#.repeat(20_000));
    let reads = format!("object.spec.data.exists(x, x == 'last') && {allowed}");
    for (last, object, denied, times) in [
        (conditions("Fail", &[skip, allowed]), POD, true, 3),
        (conditions("Fail", &["authorizer.group('').resource('pods').check('set').allowed()"]), POD, false, 3),
        // Evaluated beside the worker.
        (conditions("Fail", &[&reads]), &*large, true, 2),
    ] {
        let hooks = [hook("a.example.com", &no.url(), &excluded), hook("b.example.com", &no.url(), &last)];
        let (gate, asked) = authorized(&document(&hooks), || Ok(AccessDecision::default()));
        let verdict = ask(&gate, request(object)).await;
        assert_eq!((verdict.allowed(), asked.load(Ordering::Relaxed)), (!denied, times), "{last}");
    }
}

#[tokio::test]
async fn unavailable_authorizer_follows_the_failure_policy() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    for (policy, code) in [("Fail", Some(403)), ("Ignore", None)] {
        let expressions = ["authorizer.path('/x').check('get').allowed()"];
        let hooks = [hook("h.example.com", &no.url(), &conditions(policy, &expressions))];
        let (gate, asked) = authorized(&document(&hooks), || Err("no answer".to_owned()));
        let refusal = ask(&gate, request(POD)).await.refusal;
        assert!(refusal.as_ref().is_none_or(|it| it.message.ends_with("cannot be asked: no answer")), "{refusal:?}");
        assert_eq!((refusal.map(|refusal| refusal.code), asked.load(Ordering::Relaxed)), (code, 1), "{policy}");
    }
    assert!(no.seen().is_empty());
}

#[tokio::test]
async fn silent_authorizer_is_awaited_until_the_deadline() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let expressions = ["authorizer.path('/x').check('get').allowed()"];
    let yaml = document(&[hook("h.example.com", &no.url(), &conditions("Ignore", &expressions))]);
    let (authorizer, _questions) = Authorizer::new();
    let mut gate = gate(&yaml, Reasons::First);
    Arc::get_mut(&mut gate).expect("nobody else has it").authorizer = Some(authorizer);
    let verdict = ask_within(&gate, request(POD), Duration::from_millis(50)).await;
    assert_eq!(verdict.refusal.map(|refusal| refusal.code), Some(504));
}

#[tokio::test]
async fn one_review_makes_so_many_access_checks_and_no_more() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let hooks: Vec<_> = (0..65)
        .map(|at| {
            let expression = format!("!authorizer.path('/{at}').check('get').allowed()");
            hook(&format!("h{at}.example.com"), &no.url(), &conditions("Fail", &[&expression]))
        })
        .collect();
    let (gate, asked) = authorized(&document(&hooks), || Ok(AccessDecision::default()));
    let refusal = ask(&gate, request(POD)).await.refusal.expect("refused");
    assert!(refusal.message.ends_with("a request makes at most 64 access checks"), "{}", refusal.message);
    assert_eq!(asked.load(Ordering::Relaxed), 64);
    let (gate, _) = authorized(&document(&hooks[1..]), || Ok(AccessDecision::default()));
    assert!(ask(&gate, request(POD)).await.allowed());
}
