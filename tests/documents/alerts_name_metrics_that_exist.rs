//! The alerts of `deploy/kubernetes/alerts.yaml` name metrics, labels and values that Gatepost exposes; the table of
//! `docs/operating.md` has the same alerts; and each has a case in which it fires, for
//! `deploy/kubernetes/test-alerts.sh`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::Arc,
    time::{Duration, SystemTime},
};

use gatepost::telemetry::{Attendance, HookOutcome, InitializerOutcome, Metrics, Reading, render_read_proxy};
use gatepost_api::{FailureKind, FailurePolicy, HookType};
use gatepost_read_proxy::metrics::ProxyLoad;
use serde_json::Value;

/// Words of expressions that are no metrics.
const WORDS: [&str; 8] = ["absent", "and", "by", "histogram_quantile", "on", "or", "rate", "sum"];
/// Labels that a scrape adds.
const OF_THE_TARGET: [&str; 2] = ["job", "instance"];

/// Values of each label, by the name of a series.
type Exposition = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// One alert, of the file or of the table.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alert {
    name: String,
    expression: String,
    lasts: String,
}

/// One selector of an expression: the metric and what its labels have to be.
#[derive(Debug, PartialEq)]
struct Selector {
    metric: String,
    labels: Vec<(String, Vec<String>)>,
}

fn yaml(path: &str) -> Value {
    let text = fs::read_to_string(path).expect("is there");
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn rules() -> Vec<Value> {
    let document = yaml("deploy/kubernetes/alerts.yaml");
    assert_eq!(
        (&document["apiVersion"], &document["kind"]),
        (&"monitoring.coreos.com/v1".into(), &"PrometheusRule".into())
    );
    assert!(document["metadata"]["name"].is_string(), "{document}");
    let groups = list(&document["spec"], "groups");
    assert!(groups.iter().all(|group| group["name"].is_string()), "{document}");
    groups.iter().flat_map(|group| list(group, "rules").to_vec()).collect()
}

fn alert(rule: &Value) -> Alert {
    Alert { name: text(rule, "alert"), expression: text(rule, "expr"), lasts: text(rule, "for") }
}

/// Everything that may be exposed.
fn exposition() -> Exposition {
    let metrics = Arc::new(Metrics::new(1));
    Reading::ALL.into_iter().for_each(|reading| metrics.observe(reading, || Some(1.0)));
    let hook = metrics.hook(HookType::Validating, &"h.example.com".into());
    hook.record(0, HookOutcome::FailedOpen(FailureKind::Timeout), Duration::ZERO);
    hook.set_timeout(Duration::from_secs(1));
    metrics.initializer(&"i.example.com".into()).record(0, InitializerOutcome::Shed, Duration::ZERO);
    metrics.observe_attendance(|| {
        let (name, failure_policy) = ("i.example.com".into(), FailurePolicy::Fail);
        vec![Attendance {
            name,
            failure_policy,
            instances: 1,
            holds: 1,
            oldest: None,
            unattended: None,
            proven: true,
            never_attached: false,
        }]
    });
    metrics.adoption().update(|figures| figures.taken = Some(Default::default()));
    metrics.set_ends(vec![("server".to_owned(), SystemTime::now())]);
    let of_the_proxy = render_read_proxy(&Arc::default(), ProxyLoad::default(), &metrics);
    let mut exposition = Exposition::new();
    let text = metrics.render().expect("text") + &of_the_proxy.expect("text");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let Selector { metric, labels } = selectors(series).0.remove(0);
        let known = exposition.entry(metric).or_default();
        for (label, values) in labels {
            known.entry(label).or_default().extend(values);
        }
    }
    exposition
}

/// The selectors of an expression, the labels that it groups by, and words that mean nothing.
fn selectors(expression: &str) -> (Vec<Selector>, Vec<String>, Vec<String>) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let (mut selectors, mut groups, mut strange) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = expression;
    while let Some(start) = rest.find(is_word) {
        rest = &rest[start..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        } else if word.starts_with("gatepost_") || word.starts_with("process_") {
            let (labels, behind) = match rest.strip_prefix('{') {
                Some(inside) => inside.split_once('}').expect("closed"),
                None => ("", rest),
            };
            rest = behind;
            selectors.push(Selector { metric: word.to_owned(), labels: matchers(labels) });
        } else if !WORDS.contains(&word) {
            strange.push(word.to_owned());
        } else if let (true, Some(inside)) = (["by", "on"].contains(&word), rest.trim_start().strip_prefix('(')) {
            let (labels, behind) = inside.split_once(')').expect("closed");
            groups.extend(labels.split(',').map(|label| label.trim().to_owned()));
            rest = behind;
        }
    }
    (selectors, groups, strange)
}

/// `a="x", b=~"y|z"`
fn matchers(text: &str) -> Vec<(String, Vec<String>)> {
    let one = |matcher: &str| {
        let (label, value) = matcher.split_once('=').expect("a matcher");
        let values = value.trim_start_matches('~').trim_matches('"').split('|').map(str::to_owned).collect();
        (label.trim().to_owned(), values)
    };
    text.split(',').filter(|matcher| !matcher.trim().is_empty()).map(one).collect()
}

/// Metrics, labels and values of an expression that are not exposed.
fn offences(expression: &str, exposed: &Exposition) -> Vec<String> {
    let (selectors, groups, strange) = selectors(expression);
    let mut offences: Vec<_> = strange.iter().map(|word| format!("{word} is unknown")).collect();
    let mut labels: BTreeSet<&str> = OF_THE_TARGET.into();
    for Selector { metric, labels: wanted } in &selectors {
        let Some(has) = exposed.get(metric) else {
            offences.push(format!("there is no metric {metric}"));
            continue;
        };
        labels.extend(has.keys().map(String::as_str));
        for (label, values) in wanted.iter().filter(|(label, _)| !OF_THE_TARGET.contains(&&**label)) {
            match has.get(label) {
                None => offences.push(format!("{metric} has no label {label}")),
                Some(known) => {
                    let missing = values.iter().filter(|value| !known.contains(*value));
                    offences.extend(missing.map(|value| format!("{label} of {metric} is never {value}")));
                }
            }
        }
    }
    if selectors.is_empty() {
        offences.push("it is about no metric".to_owned());
    }
    let foreign = groups.iter().filter(|label| !labels.contains(&***label));
    offences.extend(foreign.map(|label| format!("no metric of it has a label {label}")));
    offences
}

/// Labels that a text of an alert names, as `{{ $labels.hook }}`.
fn labels_named(text: &str) -> Vec<&str> {
    text.split("$labels.")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap())
        .collect()
}

#[test]
fn metrics_of_alerts_are_exposed() {
    let (exposed, rules) = (exposition(), rules());
    assert!(rules.len() > 20, "{} alerts", rules.len());
    let mut names = BTreeSet::new();
    for rule in &rules {
        let Alert { name, expression, lasts } = alert(rule);
        assert!(name.starts_with("Gatepost") && names.insert(name.clone()), "{name} is there twice, or not ours");
        assert_eq!(offences(&expression, &exposed), [""; 0], "{name}: {expression}");
        assert!(lasts.is_empty() || humantime::parse_duration(&lasts).is_ok(), "{name}: {lasts}");
        let severity = text(&rule["labels"], "severity");
        assert!(["critical", "warning", "info"].contains(&&*severity), "{name}: {severity}");
        let summary = text(&rule["annotations"], "summary");
        let (selectors, ..) = selectors(&expression);
        let has = |label: &str| selectors.iter().any(|selector| exposed[&selector.metric].contains_key(label));
        for label in labels_named(&summary) {
            assert!(OF_THE_TARGET.contains(&label) || has(label), "{name}: {label} of {summary}");
        }
        assert!(!summary.is_empty(), "{name} says nothing");
        let keys: Vec<_> = rule.as_object().unwrap().keys().filter(|key| *key != "for").collect();
        assert_eq!(keys, ["alert", "annotations", "expr", "labels"], "{name}");
    }
}

#[test]
fn made_up_offences_are_found() {
    let exposed = exposition();
    for (expression, offence) in [
        ("gatepost_hook > 0", "there is no metric gatepost_hook"),
        ("hooks_overdue > gatepost_hooks", "hooks_overdue is unknown"),
        (
            "rate(gatepost_requests_total{outcome=~\"stale|lost\"}[5m]) > 0",
            "outcome of gatepost_requests_total is never lost",
        ),
        ("gatepost_requests_total{reason=\"stale\"} > 0", "gatepost_requests_total has no label reason"),
        ("sum by (hook) (gatepost_hooks)", "no metric of it has a label hook"),
        ("absent(0) > 1", "it is about no metric"),
    ] {
        assert_eq!(offences(expression, &exposed), [offence], "{expression}");
    }
    let fine =
        "histogram_quantile(0.99, sum by (job, hook, le) (rate(gatepost_hook_duration_seconds_bucket[5m]))) > 1e3";
    assert_eq!(offences(fine, &exposed), [""; 0]);
    assert_eq!(labels_named("{{ $labels.hook }} and {{$labels.le}}"), ["hook", "le"]);
}

#[test]
fn the_documentation_has_the_same_alerts() {
    let page = fs::read_to_string("docs/operating.md").expect("is there");
    let item = |item: &str| {
        let item = item.split_whitespace().collect::<Vec<_>>().join(" ");
        let (name, rest) = item.split_once("`: `").unwrap_or_else(|| panic!("{item}"));
        let (expression, rest) = rest.split_once('`').expect("an expression");
        let (lasts, because) = rest.split_once(". ").expect("a reason");
        assert!(!because.is_empty(), "{name}");
        let lasts = lasts.trim().trim_start_matches("for ").to_owned();
        Alert { name: format!("Gatepost{name}"), expression: expression.to_owned(), lasts }
    };
    let list = page.split("\n- `Gatepost").skip(1).map(|rest| rest.split("\n\n").next().unwrap_or(rest));
    let documented: Vec<_> = list.map(item).collect();
    assert_eq!(documented, rules().iter().map(alert).collect::<Vec<_>>());
}

#[test]
fn each_alert_has_a_firing_and_a_silent_case() {
    let (document, exposed) = (yaml("deploy/kubernetes/alerts_test.yaml"), exposition());
    let (mut fires, mut rests) = (BTreeSet::new(), BTreeSet::new());
    for case in list(&document, "tests") {
        for series in list(case, "input_series") {
            let series = text(series, "series");
            // Build information and buckets are what they are.
            let labels: Vec<_> =
                offences(&series, &exposed).into_iter().filter(|offence| !offence.contains(" is never ")).collect();
            assert_eq!(labels, [""; 0], "{series}");
        }
        for expected in list(case, "alert_rule_test") {
            let of = if list(expected, "exp_alerts").is_empty() { &mut rests } else { &mut fires };
            of.insert(text(expected, "alertname"));
        }
    }
    let names: BTreeSet<_> = rules().iter().map(|rule| text(rule, "alert")).collect();
    assert_eq!((&fires, &rests), (&names, &names));
}
