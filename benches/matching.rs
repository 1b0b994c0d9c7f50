//! Which hooks does a request concern?
//!
//! Hypothesis: at most 1 µs a request at 10, 1,000 and 10,000 rules of which 4 match, and 0 allocations (shown by
//! `tests/matching_allocates_nothing.rs`); the cost does not grow with the rules that do not match. Beside it in the
//! same run stands the linear scan, as kube-apiserver does it. Unit: time per request.
#![allow(clippy::expect_used, reason = "a bench stops where its own setup is wrong")]

#[path = "common/allocator.rs"]
mod allocator;

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gatepost_api::{Gvk, Gvr, Operation, Review, RuleTarget};
use gatepost_config::{Match, MatchKind, MatchSet, Snapshot, SourceFile, load};

const RULES: [usize; 3] = [10, 1_000, 10_000];

/// Hooks with one rule each. Four see the request below, each in another way; of the rest, half are about a resource
/// of their own and half about the same resource in a group of their own.
fn configuration(rules: usize) -> SourceFile {
    let hooks: Vec<String> = (0..rules)
        .map(|n| {
            let (groups, versions, resources, scope) = match n * 4 / rules {
                quarter if n == quarter * rules / 4 + rules / 8 => match quarter {
                    0 => ("\"apps\"".into(), "\"v1\"", "\"deployments\"".into(), "Namespaced"),
                    1 => ("\"\", \"apps\", \"batch\"".into(), "\"v1\"", "\"pods\", \"deployments\"".into(), "*"),
                    2 => ("\"*\"".into(), "\"*\"", "\"*/*\"".into(), "*"),
                    _ => ("\"apps\"".into(), "\"*\"", "\"deployments/*\"".into(), "*"),
                },
                _ if n % 2 == 0 => ("\"apps\"".into(), "\"v1\"", format!("\"things{n}\""), "*"),
                _ => (format!("\"group{n}.example.com\""), "\"v1\"", "\"deployments\"".into(), "Namespaced"),
            };
            format!(
                r#"{{"name": "hook{n}", "clientConfig": {{"url": "grpc://127.0.0.1:9001"}}, "rules": [{{
                "operations": ["CREATE", "UPDATE"], "apiGroups": [{groups}], "apiVersions": [{versions}],
                "resources": [{resources}], "scope": "{scope}"}}]}}"#
            )
        })
        .collect();
    let text = format!(
        r#"{{"apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration",
        "metadata": {{"name": "bench"}}, "externalAdmissionHooks": [{}]}}"#,
        hooks.join(",\n")
    );
    SourceFile { name: "bench.json".into(), bytes: Bytes::from(text) }
}

fn compiled(file: &SourceFile) -> Snapshot {
    load(std::slice::from_ref(file), &|_: &str| Err(std::io::ErrorKind::NotFound.into())).expect("no problem")
}

fn review() -> Review {
    let kind = Gvk { group: "apps".into(), version: "v1".into(), kind: "Deployment".into() };
    let resource = Gvr { group: "apps".into(), version: "v1".into(), resource: "deployments".into() };
    let bare = Review::bare(Operation::Create, kind, resource);
    Review {
        uid: "3f0a4f4c-0f10-4d62-9b1e-2f7b0c4b8e11".into(),
        name: "web".into(),
        namespace: "shop".into(),
        username: "system:serviceaccount:kube-system:deployment-controller".into(),
        ..bare
    }
}

/// kube-apiserver's way: every rule of every hook, one after the other.
fn scan(snapshot: &Snapshot, review: &Review, out: &mut MatchSet) {
    out.clear();
    let made = RuleTarget::as_made(review);
    let seen = (0..).zip(&snapshot.hooks).filter(|(_, hook)| hook.rules.iter().any(|rule| rule.matches(&made)));
    out.extend(seen.map(|(hook, _)| Match { index: hook, how: MatchKind::AsMade }));
}

fn matching(c: &mut Criterion) {
    let mut group = c.benchmark_group("match");
    for rules in RULES {
        let (snapshot, review) = (compiled(&configuration(rules)), review());
        let (mut by_index, mut by_scan) = (MatchSet::new(), MatchSet::new());
        snapshot.matching(&review, None, &mut by_index);
        scan(&snapshot, &review, &mut by_scan);
        assert_eq!((by_index.len(), &by_index), (4, &by_scan));
        group.bench_function(BenchmarkId::new("index", rules), |b| {
            b.iter(|| snapshot.matching(black_box(&review), None, &mut by_index));
        });
        group.bench_function(BenchmarkId::new("scan", rules), |b| {
            b.iter(|| scan(&snapshot, black_box(&review), &mut by_scan));
        });
    }
    group.finish();
}

criterion_group!(benches, matching);
criterion_main!(benches);
