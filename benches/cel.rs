//! Match conditions: the cost of one to a request, and of compiling them to a change.
//!
//! An object of a review in JSON is known to be JSON ("checked"), and where its large parts end was noted when the
//! review was read; one that came over gRPC is looked at anew.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark stops where its own setup is wrong")]

#[path = "common/allocator.rs"]
mod allocator;

use std::{cell::Cell, hint::black_box};

use criterion::{Criterion, criterion_group, criterion_main};
use gatepost_api::ContainerEnds;
use gatepost_cel::{
    AccessDecisions, Allowance, Condition, ConditionsDecision, Input, JsonDocument, Request, User, decide,
};
use gatepost_wire::json_view;

/// A Deployment of about so many bytes, most of them in `spec`.
fn deployment(bytes: usize) -> String {
    let variable = r#"{"name":"SOME_VARIABLE","value":"a value of some length, as they are"},"#;
    let variables = variable.repeat(bytes / variable.len());
    format!(
        r#"{{"kind":"Deployment","apiVersion":"apps/v1","metadata":{{"name":"web","labels":{{"app":"web"}}}},"spec":{{"replicas":3,"template":{{"spec":{{"containers":[{{"name":"c","image":"registry/web:1","env":[{}]}}]}}}}}}}}"#,
        variables.trim_end_matches(',')
    )
}

/// How the object came.
#[derive(Clone)]
enum Came {
    OverGrpc,
    /// With what was noted when the review was read.
    InJson(Option<ContainerEnds>),
}

/// Ends noted of this object when a review in JSON is read.
fn noted(object: &str) -> Option<ContainerEnds> {
    let review = format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"u","kind":{{"group":"apps","version":"v1","kind":"Deployment"}},"resource":{{"group":"apps","version":"v1","resource":"deployments"}},"name":"web","namespace":"shop","operation":"UPDATE","userInfo":{{}},"object":{object}}}}}"#
    );
    json_view::view(review.into()).unwrap().object_ends
}

fn input<'a>(object: &'a str, came: &Came) -> Input<'a> {
    let mut request = Request::new(|| {
        Ok(User { groups: vec!["system:authenticated".to_owned(), "dev".to_owned()], ..User::default() })
    });
    request.resource = ["apps", "v1", "deployments"];
    (request.name, request.namespace, request.operation, request.username) = ("web", "shop", "UPDATE", "alice");
    let bytes = object.as_bytes().into();
    let object = Some(match came {
        Came::OverGrpc => JsonDocument::new(bytes),
        Came::InJson(None) => JsonDocument::checked(bytes),
        Came::InJson(Some(ends)) => JsonDocument::recorded(bytes, ends.clone()),
    });
    Input { request, object, old_object: None, namespace: None, decisions: AccessDecisions::default() }
}

fn decided(conditions: &[Condition], object: &str, came: &Came) -> bool {
    let steps = Cell::new(u64::MAX);
    let input = input(object, came);
    matches!(decide(conditions, &input, &Allowance { steps: &steps, over: &|| false }), ConditionsDecision::Matches)
}

fn conditions(criterion: &mut Criterion) {
    let by_request = [Condition::compile("c", "!('dev' in request.userInfo.groups)").unwrap()];
    criterion.bench_function("excluded by the request", |bench| {
        bench.iter(|| decided(black_box(&by_request), "{}", &Came::OverGrpc));
    });
    let expression = "object.metadata.labels.app == 'web' && object.spec.replicas > 1 && \
                      object.spec.template.spec.containers.all(c, c.image.startsWith('registry/'))";
    let by_object = [Condition::compile("c", expression).unwrap()];
    let object = deployment(50 << 10);
    let name = [Condition::compile("c", "object.metadata.name == 'web'").unwrap()];
    let ends = noted(&object);
    assert!(ends.is_some(), "nothing was noted");
    let ways =
        [("over gRPC", Came::OverGrpc), ("patched", Came::InJson(None)), ("in JSON, checked", Came::InJson(ends))];
    for (name_of_way, came) in ways {
        criterion.bench_function(&format!("decided by 50 KiB, {name_of_way}"), |bench| {
            bench.iter(|| decided(black_box(&by_object), &object, &came));
        });
        criterion.bench_function(&format!("a name in 50 KiB, {name_of_way}"), |bench| {
            bench.iter(|| decided(black_box(&name), &object, &came));
        });
    }
    criterion.bench_function("compile 1,000", |bench| {
        bench.iter(|| (0..1_000).for_each(|_| drop(Condition::compile("c", black_box(expression)))));
    });
}

/// The dearest single operations, each on a text or list near the limits of an evaluation.
fn dear_operations(criterion: &mut Criterion) {
    let list = vec!["0"; 300_000].join(",");
    let object = format!(r#"{{"s":"{}","l":[{list}]}}"#, "a".repeat(1 << 20));
    let mut group = criterion.benchmark_group("dear operations");
    group.sample_size(10);
    for expression in [
        "object.s.matches('a+b')",
        "object.s.matches('(?i)(a|b)*[^a-z]{20}')",
        "object.s.matches('(a?){250}b')",
        "object.s.findAll('a').size() > 0",
        "object.s.substring(0, 5000).findAll('[^b]*c|a').size() > 0",
        r"'x'.matches(object.s.substring(0, 10) + '\\pL{40}')",
        "object.s.split('').size() > 0",
        "isSemver('1.0.0-' + object.s)",
        "url('http://' + object.s).getHost() == ''",
        "double(object.s) == 1.0",
        "object.l.sum() > 0",
        "'%s'.format([object.l]).size() > 0",
        "object.s.indexOf('b') > 0",
        "object.s.lastIndexOf('b') > 0",
        "object.s.contains('aaaaaaaaab')",
    ] {
        let condition = [Condition::compile("c", expression).unwrap()];
        group.bench_function(expression, |bench| bench.iter(|| decided(&condition, &object, &Came::OverGrpc)));
    }
    group.finish();
}

criterion_group!(benches, conditions, dear_operations);
criterion_main!(benches);
