//! Counts come out as they went in, under the names of the table.

use super::*;
use crate::telemetry::{DroppedReport, HookOutcome, RejectionCause, UnmetConditions, table};
use gatepost_adopt::{Reason, TakenEntries};
use gatepost_api::{FailureKind, Operation};

fn value(text: &str, sample: &str) -> Option<String> {
    text.lines().find_map(|line| Some(line.strip_prefix(sample)?.strip_prefix(' ')?.to_owned()))
}

#[test]
fn recorded_metrics_are_exposed() {
    let metrics = Arc::new(Metrics::new(2));
    metrics.request(0, RequestOutcome::Allowed, Duration::from_micros(70));
    metrics.request(1, RequestOutcome::Allowed, Duration::from_micros(50));
    metrics.request(9, RequestOutcome::Stale, Duration::from_secs(40));
    metrics.record_refusal(RefusalReason::TooLarge);
    metrics.copied(17);
    metrics.record_access_review(AccessReviewOutcome::Denied, Duration::from_millis(2));
    metrics.record_access_review(AccessReviewOutcome::Abandoned, Duration::from_secs(9));
    metrics.config_read(ReadOutcome::Unchanged, Duration::from_millis(3));
    metrics.config_read(ReadOutcome::Failed("hung"), Duration::from_millis(800));
    metrics.config_read(ReadOutcome::Failed("never heard of"), Duration::ZERO);
    metrics.observe(Reading::HeldForReviews, || Some(5.0));
    let hook = metrics.hook(HookType::Validating, &"a\"b".into());
    hook.record(1, HookOutcome::FailedOpen(FailureKind::Timeout), Duration::from_millis(100));
    hook.record(1, HookOutcome::Cancelled, Duration::from_millis(900));
    metrics.hook(HookType::Validating, &"a\"b".into()).record(
        0,
        HookOutcome::FailedClosed(FailureKind::DryRun),
        Duration::ZERO,
    );
    hook.record_skipped_unproven();
    hook.record_rejection(Operation::Update, RejectionCause::FailedClosed, 400);
    let namesake = metrics.hook(HookType::Mutating, &"a\"b".into());
    namesake.record(0, HookOutcome::Allowed, Duration::ZERO);
    namesake.record_discard();
    hook.conditions_unmet(UnmetConditions::False);
    namesake.conditions_unmet(UnmetConditions::Error);
    namesake.conditions_evaluated(1, Duration::from_micros(3));
    namesake.conditions_evaluated(0, Duration::from_micros(60));
    metrics.mutation(1, Duration::from_millis(4));
    metrics.dropped_report(DroppedReport::Unknown);
    [3, 2, 4].into_iter().for_each(|seconds| hook.set_timeout(Duration::from_secs(seconds)));
    metrics.hook(HookType::Validating, &"gone".into()).set_timeout(Duration::from_secs(1));
    metrics.hook(HookType::Validating, &"gone".into()).forget_timeout();
    metrics.observe(Reading::HooksProbing, || Some(3.0));
    metrics.observe(Reading::ProcessCpu, || Some(0.25));
    let text = metrics.render().expect("text");
    let build = format!("gatepost_build_info{{version=\"{}\",", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&build), "{text}");
    for (sample, expected) in [
        ("gatepost_requests_total{outcome=\"allowed\"}", "2"),
        ("gatepost_requests_total{outcome=\"stale\"}", "1"),
        ("gatepost_requests_total{outcome=\"internal\"}", "0"),
        ("gatepost_request_duration_seconds_bucket{le=\"0.00005\"}", "1"),
        ("gatepost_request_duration_seconds_bucket{le=\"0.0001\"}", "2"),
        ("gatepost_request_duration_seconds_bucket{le=\"30.0\"}", "2"),
        ("gatepost_request_duration_seconds_bucket{le=\"+Inf\"}", "3"),
        ("gatepost_request_duration_seconds_count", "3"),
        ("gatepost_request_duration_seconds_sum", "40.00012"),
        ("gatepost_refused_total{reason=\"too_large\"}", "1"),
        ("gatepost_object_bytes_copied_total", "17"),
        ("gatepost_access_reviews_total{outcome=\"allowed\"}", "0"),
        ("gatepost_access_reviews_total{outcome=\"denied\"}", "1"),
        ("gatepost_access_reviews_total{outcome=\"abandoned\"}", "1"),
        ("gatepost_access_review_duration_seconds_count", "1"),
        ("gatepost_access_review_duration_seconds_bucket{le=\"0.0025\"}", "1"),
        ("gatepost_inflight_bytes{purpose=\"review\"}", "5.0"),
        ("gatepost_config_reads_total{outcome=\"unchanged\"}", "1"),
        ("gatepost_config_reads_total{outcome=\"failed_hung\"}", "1"),
        ("gatepost_config_reads_total{outcome=\"failed_other\"}", "1"),
        ("gatepost_config_read_duration_seconds_count", "1"),
        ("gatepost_config_read_duration_seconds_bucket{le=\"0.005\"}", "1"),
        ("gatepost_hook_calls_total{hook=\"a\\\"b\",type=\"validating\",outcome=\"cancelled\"}", "1"),
        ("gatepost_hook_calls_total{hook=\"a\\\"b\",type=\"validating\",outcome=\"failed_open\"}", "1"),
        (
            "gatepost_hook_call_failures_total{hook=\"a\\\"b\",type=\"validating\",kind=\"timeout\",policy=\"Ignore\"}",
            "1",
        ),
        (
            "gatepost_hook_call_failures_total{hook=\"a\\\"b\",type=\"validating\",kind=\"dry_run\",policy=\"Fail\"}",
            "1",
        ),
        (
            "gatepost_hook_rejections_total{hook=\"a\\\"b\",type=\"validating\",operation=\"UPDATE\",cause=\"failed_closed\",code=\"400\"}",
            "1",
        ),
        ("gatepost_hook_fail_open_total{hook=\"a\\\"b\",type=\"validating\"}", "1"),
        ("gatepost_hook_duration_seconds_count{hook=\"a\\\"b\",type=\"validating\"}", "2"),
        ("gatepost_hook_unasked_total{hook=\"a\\\"b\",type=\"validating\"}", "1"),
        ("gatepost_hook_calls_total{hook=\"a\\\"b\",type=\"mutating\",outcome=\"allowed\"}", "1"),
        ("gatepost_hook_calls_total{hook=\"a\\\"b\",type=\"mutating\",outcome=\"cancelled\"}", "0"),
        ("gatepost_hook_calls_in_vain_total{hook=\"a\\\"b\",type=\"mutating\"}", "1"),
        ("gatepost_hook_match_condition_exclusions_total{hook=\"a\\\"b\",type=\"validating\"}", "1"),
        ("gatepost_hook_match_condition_exclusions_total{hook=\"a\\\"b\",type=\"mutating\"}", "0"),
        ("gatepost_hook_match_condition_errors_total{hook=\"a\\\"b\",type=\"validating\"}", "0"),
        ("gatepost_hook_match_condition_errors_total{hook=\"a\\\"b\",type=\"mutating\"}", "1"),
        ("gatepost_hook_match_condition_duration_seconds_count{hook=\"a\\\"b\",type=\"mutating\"}", "2"),
        ("gatepost_hook_match_condition_duration_seconds_sum{hook=\"a\\\"b\",type=\"mutating\"}", "0.000063"),
        (
            "gatepost_hook_match_condition_duration_seconds_bucket{le=\"0.00005\",hook=\"a\\\"b\",type=\"mutating\"}",
            "1",
        ),
        ("gatepost_mutation_duration_seconds_count", "1"),
        ("gatepost_stored_reports_dropped_total{reason=\"message\"}", "0"),
        ("gatepost_stored_reports_dropped_total{reason=\"unknown_object\"}", "1"),
        ("gatepost_mutation_duration_seconds_bucket{le=\"0.0025\"}", "0"),
        ("gatepost_mutation_duration_seconds_bucket{le=\"0.005\"}", "1"),
        ("gatepost_hooks_by_state{state=\"probing\"}", "3.0"),
        ("gatepost_hook_timeout_seconds{hook=\"a\\\"b\",type=\"validating\"}", "2.0"),
        ("gatepost_audit_lost_total", "0"),
        ("process_cpu_seconds_total", "0.25"),
    ] {
        assert_eq!(value(&text, sample).as_deref(), Some(expected), "{sample} in\n{text}");
    }
    assert_eq!(value(&text, "gatepost_hook_timeout_seconds{hook=\"gone\",type=\"validating\"}"), None);
    let discarded = "gatepost_hook_calls_in_vain_total{hook=\"a\\\"b\",type=\"validating\"}";
    assert_eq!(value(&text, discarded), None, "only mutating hooks have a turn");
    let evaluated = "gatepost_hook_match_condition_duration_seconds_count{hook=\"a\\\"b\",type=\"validating\"}";
    assert_eq!(value(&text, evaluated), None, "it has no conditions");
    assert_eq!(value(&text, "gatepost_config_age_seconds"), None, "nobody knows it yet");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn every_family_of_the_table_is_exposed_and_no_other() {
    let metrics = Arc::new(Metrics::new(1));
    for reading in Reading::ALL {
        metrics.observe(reading, || Some(1.0));
    }
    metrics.adoption().update(|figures| {
        figures.taken = Some([TakenEntries { used: 2, unused: 1 }, TakenEntries { used: 3, unused: 0 }]);
        figures.left = Some([[1; Reason::WORDS.len()], [2; Reason::WORDS.len()]]);
        figures.longest_overlap = Duration::from_millis(2500);
    });
    let text = metrics.render().expect("text");
    assert_eq!(value(&text, "gatepost_webhooks_left{reason=\"no_access_reviews\"}").as_deref(), Some("1.0"));
    assert_eq!(value(&text, "gatepost_policies_left{reason=\"let_past\"}").as_deref(), Some("2.0"));
    assert_eq!(value(&text, "gatepost_adopted_policies").as_deref(), Some("3.0"));
    assert_eq!(value(&text, "gatepost_adoption_overlap_longest_seconds").as_deref(), Some("2.5"));
    let exposed: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.replace(" counter", "_total").replace(" gauge", "").replace(" histogram", ""))
        .collect();
    let table: Vec<&str> = table::ALL.iter().map(|family| family.name).collect();
    assert_eq!(exposed, table);
}

#[test]
fn unused_names_are_evicted_beyond_the_limit() {
    let named = ByName::default();
    let held = named.get(&"held".into(), || 0);
    for n in 0..NAMES_BEFORE_REMOVAL {
        named.get(&format!("{n}").into(), || n);
    }
    assert!(named.all().len() < 10, "{}", named.all().len());
    assert!(Arc::ptr_eq(&held, &named.get(&"held".into(), || 1)));
}
