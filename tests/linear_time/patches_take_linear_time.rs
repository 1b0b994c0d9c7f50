//! Patches take time that grows with the object and the patch, not with their product, whatever operations there are.
//! The measure is this thread's CPU time for one size and for sixteen times as many operations on an object sixteen
//! times as large.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{hint::black_box, time::Duration};

use crate::cpu;
use bytes::Bytes;
use gatepost_api::Rope;
use gatepost_json_patch::{Document, Patch, PatchLimits};

/// Operations of the smaller patch.
const SMALL: usize = 200;
const TIMES: usize = 16;
/// Three times linear, as `parsers_take_linear_time.rs` has it.
const BOUND: u32 = 48;
const LEAST: Duration = Duration::from_micros(500);

/// An object and a patch of so many operations.
type Made = (String, Vec<String>);

/// Some number below `n`, another one each time.
fn scattered(at: usize, n: usize) -> usize {
    at.wrapping_mul(2_654_435_761) % n
}

fn items(n: usize) -> String {
    vec!["[0]"; n].join(",")
}

fn members(n: usize) -> String {
    (0..n).map(|n| format!("\"k{n}\":[{n}]")).collect::<Vec<_>>().join(",")
}

/// A name, and what makes it.
type Case = (&'static str, fn(usize) -> Made);

const CASES: &[Case] = &[
    ("inserted at the front", |n| {
        (format!("{{\"l\":[{}]}}", items(n * 16)), vec![r#"{"op":"add","path":"/l/0","value":1}"#.into(); n])
    }),
    ("inserted, replaced, removed all over", |n| {
        let at = |op: usize| {
            let op_name = ["add", "replace", "remove", "test"][op % 4];
            let value = if op % 4 == 3 { "null" } else { "[1]" };
            let index = scattered(op, n * 8);
            if op % 4 == 3 {
                format!(r#"{{"op":"add","path":"/l/{index}/0","value":{value}}}"#)
            } else {
                format!(r#"{{"op":"{op_name}","path":"/l/{index}","value":{value}}}"#)
            }
        };
        (format!("{{\"l\":[{}]}}", items(n * 16)), (0..n).map(at).collect())
    }),
    ("members all over", |n| {
        let at = |op: usize| format!(r#"{{"op":"replace","path":"/o/k{}","value":1}}"#, scattered(op, n * 16));
        (format!("{{\"o\":{{{}}}}}", members(n * 8)), (0..n).map(at).collect())
    }),
    ("members added and removed", |n| {
        let at = |op: usize| match op % 2 {
            0 => format!(r#"{{"op":"add","path":"/o/n{op}","value":1}}"#),
            _ => format!(r#"{{"op":"remove","path":"/o/k{op}"}}"#),
        };
        (format!("{{\"o\":{{{}}}}}", members(n)), (0..n).map(at).collect())
    }),
    ("keys written twice in values", |n| {
        let nested = |inner: String| format!(r#"{{"x":{inner},"x":{inner}}}"#, inner = inner);
        let twice = (0..n).map(|at| format!(r#""k{at}":[{at}],"\u006b{at}":{{}}"#)).collect::<Vec<_>>().join(",");
        let value = nested(format!("{{{twice}}}"));
        (r#"{"l":[]}"#.to_owned(), vec![format!(r#"{{"op":"add","path":"/l/-","value":{value}}}"#); 4])
    }),
    ("the inner one moved out", |n| {
        // No deeper than JSON may be: beyond, more inside.
        let depth = n.min(9_000);
        let object = format!("{}{}{}", "{\"x\":".repeat(depth), items_of_strings(n), "}".repeat(depth));
        (object, vec![r#"{"op":"move","from":"/x/x","path":"/x"}"#.into(); depth - 2])
    }),
    ("the inner one moved out, and small ones opened between", |n| {
        let depth = 7 * (n / 4) + 1;
        let object = format!("{{\"x\":{}\"{}\"{}}}", "[".repeat(depth), "x".repeat(n * 64), "]".repeat(depth));
        let at = |op: usize| match op % 4 {
            0 => r#"{"op":"move","from":"/x/0/0/0/0/0/0/0","path":"/x"}"#.to_owned(),
            1 => r#"{"op":"add","path":"/s","value":[ ]}"#.to_owned(),
            2 => r#"{"op":"copy","from":"/s","path":"/c"}"#.to_owned(),
            _ => r#"{"op":"add","path":"/c/-","value":1}"#.to_owned(),
        };
        (object, (0..n).map(at).collect())
    }),
    ("a test of what lies deep", |n| {
        let depth = n.min(9_000);
        let nested = |inner: String| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
        let filler = "x".repeat(n * 64);
        let (ours, other) = (format!(r#"{{"a":"{filler}","b":2}}"#), format!(r#"{{"b":2,"a":"{filler}"}}"#));
        let test = format!(r#"{{"op":"test","path":"/x","value":{}}}"#, nested(other));
        (format!("{{\"x\":{}}}", nested(ours)), vec![test])
    }),
    ("tests of what stood there twice", |n| {
        let object = format!("{{\"o\":{{{}\"a\":1}}}}", "\"a\":0,".repeat(n * 16));
        (object, vec![r#"{"op":"test","path":"/o","value":{"a":1}}"#.into(); n])
    }),
    ("tests of what is full of blanks", |n| {
        let object = format!("{{\"o\":{{ \"a\" : [{}1] , \"b\":{{}}}}}}", " ".repeat(n * 64));
        (object, vec![r#"{"op":"test","path":"/o","value":{"b":{},"a":[1]}}"#.into(); n])
    }),
    ("copies of what is full of blanks", |n| {
        let object = format!("{{\"o\":{{ \"a\" : [{}1]}}}}", " ".repeat(n * 64));
        (object, vec![r#"{"op":"copy","from":"/o","path":"/p"}"#.into(); n])
    }),
    ("copies of what was emptied", |n| {
        let removed = (0..n / 2).map(|at| format!(r#"{{"op":"remove","path":"/o/k{at}"}}"#));
        let copied = (0..n / 2).map(|at| format!(r#"{{"op":"copy","from":"/o","path":"/p/p{at}"}}"#));
        (format!("{{\"o\":{{{}}},\"p\":{{}}}}", members(n / 2)), removed.chain(copied).collect())
    }),
    ("copies, each opened", |n| {
        let at = |op: usize| match op % 2 {
            0 => format!(r#"{{"op":"copy","from":"/o","path":"/p{op}"}}"#),
            _ => format!(r#"{{"op":"add","path":"/p{}/a/b","value":1}}"#, op - 1),
        };
        (r#"{"o":{"a":{"b":[1,2,3]}}}"#.into(), (0..n).map(at).collect())
    }),
];

fn items_of_strings(n: usize) -> String {
    format!("[{}]", vec!["\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\""; n].join(","))
}

/// The quickest of some runs.
fn quickest((object, operations): Made, runs: usize) -> Duration {
    let object = Bytes::from(object);
    let patch = Bytes::from(format!("[{}]", operations.join(",")));
    let work = || {
        let patch = Patch::parse(patch.clone()).expect("a patch");
        let document = Document::new(Rope::new([object.clone()])).expect("an object");
        let patched = document.patched(&patch, PatchLimits::default()).expect("it applies");
        black_box(patched.difference());
    };
    (0..runs).map(|_| cpu::of(work)).min().unwrap_or_default()
}

#[test]
fn sixteen_times_as_much_takes_sixteen_times_as_long() {
    for (name, make) in CASES {
        let small = quickest(make(SMALL), 5).max(LEAST);
        let mut large = Duration::MAX;
        let linear = (0..3).any(|_| {
            large = large.min(quickest(make(SMALL * TIMES), 1));
            large <= small * BOUND
        });
        println!("{name}: {small:?}, {large:?}");
        assert!(linear, "{name}: {small:?} becomes {large:?}");
    }
}
