//! Time to compile a changed configuration.
//!
//! From the bytes of the source's files to the snapshot that a request can use: reading the documents, checking all
//! that they say, filing the rules. 1,000 hooks with 10 rules each, in a hundred objects of ten hooks: all of it in one
//! file, as YAML and as JSON, and an object a file, as a folder has them or a store. Hypothesis: under 50 ms for
//! 10,000 rules where one object has changed, as in nearly every change, and for all of it in JSON. All of it in YAML
//! takes some times as long, which reviews do not notice (`loadtest/swap/run --yaml`). `hazards` is what is looked for
//! in a snapshot before it is put in force. With a match condition for each hook, a thousand expressions are compiled
//! besides: at most 100 ms for all of it. Unit: time per configuration.
#![allow(clippy::expect_used, reason = "a bench stops where its own setup is wrong")]

#[path = "common/allocator.rs"]
mod allocator;

use std::{hint::black_box, io};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gatepost_api::Labels;
use gatepost_config::{LoadCache, NO_PAUSE, Problem, Snapshot, SourceFile, load};
use serde_json::{Value, json};

const OBJECTS: usize = 100;
const HOOKS: usize = 10;
const RULES: usize = 10;

/// One object, as people write them: each rule about some resources of one group.
fn object(number: usize, timeout: &str) -> Value {
    let rule = |hook: usize, rule: usize| {
        json!({
            "operations": ["CREATE", "UPDATE"],
            "apiGroups": [format!("group{}.example.com", (number + rule) % 40)],
            "apiVersions": ["v1", "v1beta1"],
            "resources": [format!("things{hook}"), format!("others{rule}"), "pods/status"],
            "scope": "Namespaced",
        })
    };
    let hook = |hook: usize| {
        json!({
            "name": format!("hook-{hook}.team-{number}.example.com"),
            "clientConfig": {"url": format!("grpc://127.0.0.1:{}", 10_000 + (number * HOOKS + hook))},
            "failurePolicy": "Ignore",
            "timeout": timeout,
            "sideEffects": "None",
            "namespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]},
            ]},
            "rules": (0..RULES).map(|number| rule(hook, number)).collect::<Vec<_>>(),
        })
    };
    json!({
        "apiVersion": "gatepost.dev/v1alpha1",
        "kind": "AdmissionControlConfiguration",
        "metadata": {"name": format!("team-{number}")},
        "externalAdmissionHooks": (0..HOOKS).map(hook).collect::<Vec<_>>(),
    })
}

/// Worst case of the hazards: every hook must approve every other one's pods, and runs in its own namespace.
fn over_pods(number: usize) -> Value {
    let mut object = object(number, "1s");
    for (hook, entry) in object["externalAdmissionHooks"].as_array_mut().into_iter().flatten().enumerate() {
        entry["failurePolicy"] = "Fail".into();
        entry["clientConfig"]["url"] = format!("grpc://hook.team-{}.svc:443", number * HOOKS + hook).into();
        for rule in entry["rules"].as_array_mut().into_iter().flatten() {
            (rule["apiGroups"], rule["resources"]) = (json!([""]), json!(["pods"]));
        }
    }
    object
}

/// Each hook with a match condition of its own.
fn with_conditions(number: usize) -> Value {
    let mut object = object(number, "1s");
    for (hook, entry) in object["externalAdmissionHooks"].as_array_mut().into_iter().flatten().enumerate() {
        let expression = format!(
            "!('team-{number}' in request.userInfo.groups) && object.metadata.labels.app != 'app-{hook}' && \
             object.spec.template.spec.containers.all(c, c.image.startsWith('registry/'))"
        );
        entry["matchConditions"] = json!([{"name": "c", "expression": expression}]);
    }
    object
}

/// A tenth of them are those that the hooks run in; each says its runlevel.
fn namespace(number: usize) -> (Box<str>, Labels) {
    let (name, level) = (format!("team-{number}"), (number % 5).to_string());
    let labels = [("kubernetes.io/metadata.name", &*name), ("gatepost.dev/runlevel", &*level)];
    (name.as_str().into(), labels.into_iter().collect())
}

fn yaml(object: &Value) -> String {
    format!("---\n{}", serde_saphyr::to_string(object).expect("YAML"))
}

fn file(name: impl Into<String>, text: String) -> SourceFile {
    SourceFile { name: name.into(), bytes: text.into() }
}

fn each(form: fn(&Value) -> String, extension: &str) -> Vec<SourceFile> {
    (0..OBJECTS).map(|n| file(format!("team-{n}.{extension}"), form(&object(n, "1s")))).collect()
}

fn one(form: fn(&Value) -> String, extension: &str) -> Vec<SourceFile> {
    vec![file(format!("all.{extension}"), (0..OBJECTS).map(|n| form(&object(n, "1s"))).collect())]
}

fn no_file(_: &str) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::NotFound.into())
}

fn compiled(files: &[SourceFile]) -> Snapshot {
    checked(load(files, &no_file))
}

fn checked(loaded: Result<Snapshot, Vec<Problem>>) -> Snapshot {
    let snapshot = loaded.expect("no problem");
    assert_eq!(snapshot.hooks.len(), OBJECTS * HOOKS);
    snapshot
}

fn compile(c: &mut Criterion) {
    let mut group = c.benchmark_group("compile");
    group.sample_size(20);
    for (form, files) in [
        ("json, one file", one(Value::to_string, "json")),
        ("yaml, one file", one(yaml, "yaml")),
        ("json, a file each", each(Value::to_string, "json")),
        ("yaml, a file each", each(yaml, "yaml")),
    ] {
        let bytes: usize = files.iter().map(|file| file.bytes.len()).sum();
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(form, |b| b.iter_with_large_drop(|| compiled(black_box(&files))));
    }
    // As in a running sidecar: the other 99 objects were read before.
    for (form, written, extension) in [
        ("json, one object changed", Value::to_string as fn(&Value) -> String, "json"),
        ("yaml, one object changed", yaml, "yaml"),
    ] {
        let (before, mut after) = (each(written, extension), each(written, extension));
        after[7].bytes = written(&object(7, "2s")).into();
        let mut known = LoadCache::default();
        let mut turn = 0;
        group.bench_function(form, |b| {
            b.iter_with_large_drop(|| {
                turn += 1;
                checked(known.load(black_box(if turn % 2 == 0 { &before } else { &after }), &no_file, NO_PAUSE))
            });
        });
    }
    let files = one(Value::to_string, "json");
    let mut known = LoadCache::default();
    group.bench_function("nothing changed", |b| {
        b.iter_with_large_drop(|| checked(known.load(black_box(&files), &no_file, NO_PAUSE)));
    });
    let conditions = [file("all.json", (0..OBJECTS).map(|n| with_conditions(n).to_string()).collect())];
    group.bench_function("json, one file, a match condition for each hook", |b| {
        b.iter_with_large_drop(|| compiled(black_box(&conditions)));
    });
    let snapshot = compiled(&files);
    group.bench_function("hazards", |b| b.iter(|| black_box(&snapshot).hazards().len()));
    let worst = compiled(&[file("all.json", (0..OBJECTS).map(|n| over_pods(n).to_string()).collect())]);
    let worst = worst.with_namespaces((0..OBJECTS * HOOKS * 10).map(namespace));
    group.bench_function("hazards, each hook over pods and in a namespace of its own", |b| {
        b.iter(|| black_box(&worst).hazards().len());
    });
    group.bench_function("drop", |b| b.iter_batched(|| compiled(&files), drop, BatchSize::LargeInput));
    group.finish();
}

criterion_group!(benches, compile);
criterion_main!(benches);
