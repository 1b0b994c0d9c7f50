//! Keys that callers choose are in maps whose hashes have a key of their own: texts that are made to have one hash
//! under rustc-hash, which has none, take no longer than others. The measure is this thread's CPU time.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    cell::Cell,
    collections::HashSet,
    hash::{BuildHasher, Hash},
    time::{Duration, Instant},
};

use crate::cpu;
use gatepost::live::namespaces::Namespaces;
use gatepost_api::Labels;
use gatepost_cel::{AccessDecisions, Allowance, Condition, ConditionsDecision, Input, JsonDocument, Request, decide};
use rustc_hash::{FxBuildHasher, FxHashSet};

const KEYS: usize = 16_000;
/// As the others in this folder.
const BOUND: u32 = 3;
const LEAST: Duration = Duration::from_millis(5);

/// Beginning of a text of 64 letters whose first two blocks leave, as what the third is multiplied with, nothing but
/// letters: with these in the third block the product is 0, whatever the other 8 letters of it are.
fn head() -> [u8; 40] {
    const SEED: u64 = 0x243f_6a88_85a3_08d3;
    const MORE: u64 = 0xa409_3822_299f_31d0;
    let mix = |x: u64, y: u64| {
        let full = u128::from(x) * u128::from(y);
        full as u64 ^ (full >> 64) as u64
    };
    let mut head = [b'a'; 40];
    for number in 0_u64.. {
        head[..16].copy_from_slice(letters(number).repeat(2).as_slice());
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let third = mix(SEED ^ word(0), MORE ^ word(8)).to_le_bytes();
        if third.iter().all(u8::is_ascii_alphanumeric) {
            head[32..].copy_from_slice(&third);
            break;
        }
    }
    head
}

fn letters(mut number: u64) -> [u8; 8] {
    [0; 8].map(|_| {
        let letter = b'a' + (number % 26) as u8;
        number /= 26;
        letter
    })
}

/// Texts of 64 letters: of one hash, and others.
fn keys() -> [Vec<String>; 2] {
    let text = |head: &[u8], number: u64, tail: &str| {
        let middle = letters(number);
        String::from_utf8([head, &middle, tail.as_bytes()].concat()).expect("letters")
    };
    let (head, tail) = (head(), "sixteen-letters.");
    let alike: Vec<_> = (0..KEYS as u64).map(|number| text(&head, number, tail)).collect();
    let others = (0..KEYS as u64).map(|number| text(&[b'a'; 40], number.wrapping_mul(7_919), tail)).collect();
    let hashes: HashSet<u64> = alike.iter().map(hash_of).collect();
    assert_eq!(hashes.len(), 1, "rustc-hash has changed: find another way to make its hashes equal");
    [alike, others]
}

fn hash_of(text: impl Hash) -> u64 {
    FxBuildHasher.hash_one(text)
}

/// Do keys of one hash take about as long as others?
fn are_alike(work: impl Fn(&[String])) -> bool {
    let [alike, others] = keys();
    let quickest = |keys: &[String], runs: usize| (0..runs).map(|_| cpu::of(|| work(keys))).min().unwrap_or_default();
    let plain = quickest(&others, 3).max(LEAST);
    (0..3).any(|_| quickest(&alike, 1) <= plain * BOUND)
}

/// Evaluates an expression that holds for an object.
fn evaluate(expression: &str, object: &str) {
    let conditions = [Condition::compile("c", expression).expect("valid")];
    let object = Some(JsonDocument::checked(object.as_bytes().into()));
    let input = Input {
        request: Request::new(|| Err("nobody".to_owned())),
        object,
        old_object: None,
        namespace: None,
        decisions: AccessDecisions::default(),
    };
    let steps = Cell::new(u64::MAX);
    let decision = decide(&conditions, &input, &Allowance { steps: &steps, over: &|| false });
    assert_eq!(decision, ConditionsDecision::Matches);
}

#[test]
fn maps_that_expressions_make() {
    assert!(are_alike(|keys| {
        let entries: Vec<_> = keys.iter().map(|key| format!("\"{key}\":\"\"")).collect();
        let object = format!(r#"{{"data":{{{}}}}}"#, entries.join(","));
        evaluate("object.data.transformMap(k, v, v).size() >= 0", &object);
    }));
}

#[test]
fn parameters_of_urls() {
    assert!(are_alike(|keys| {
        let query: Vec<_> = keys.iter().take(9_900).map(|key| format!("{key}=1")).collect();
        let object = format!(r#"{{"url":"https://a.example.com/?{}"}}"#, query.join("&"));
        evaluate("url(object.url).getQuery().size() >= 9900", &object);
    }));
}

#[test]
fn names_of_namespaces() {
    assert!(are_alike(|keys| {
        let (namespaces, _questions) = Namespaces::new(Instant::now());
        namespaces.replace(keys.iter().map(|key| (key.as_str().into(), Labels::default())));
        assert_eq!(namespaces.len(), KEYS);
    }));
}

#[test]
fn a_map_whose_hashes_have_no_secret_is_found() {
    assert!(!are_alike(|keys| assert_eq!(keys.iter().take(4_000).collect::<FxHashSet<_>>().len(), 4_000)));
}
