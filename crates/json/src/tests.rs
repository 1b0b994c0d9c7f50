use proptest::prelude::*;
use serde::de::IgnoredAny;

use crate::{text::past_blanks, *};

/// A Deployment of the usual kind: short keys, nesting, numbers, escapes, text beyond ASCII.
const OBJECT: &str = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"app":"web"},
 "annotations":{"note":"a \"quoted\" \\ text\n\u00e9\ud83d\ude00 é 😀","empty":""},"generation":12},
	"spec":{"replicas":-3,"ratio":1.50e+2,"zero":0,"on":true,"off":false,"none":null,"list":[1,[],{},[{"a":[0.5]}]],
 "containers":[{"name":"c","image":"r/i:1","args":["--a","--b=\\\\"],"ports":[{"containerPort":80}]}]}}"#;

fn ours(text: &str) -> bool {
    skip(text, 0).is_ok_and(|end| past_blanks(text, end) == text.len())
}

fn check(text: &str) {
    assert_eq!(ours(text), serde_json::from_str::<IgnoredAny>(text).is_ok(), "{text:?}");
}

#[test]
fn skip_accepts_what_serde_accepts() {
    check(OBJECT);
    assert!(ours(OBJECT));
    let pieces = [
        "",
        "{}",
        "[]",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\"}",
        "{\"a\":}",
        "{:1}",
        "{1:1}",
        "[1 2]",
        "[1}",
        "{\"a\":1]",
        "]",
        "01",
        "-",
        "-0",
        "1.",
        "1.e1",
        ".1",
        "1e",
        "1e+",
        "1E-9",
        "+1",
        "NaN",
        "tru",
        "truex",
        "nulll",
        "null",
        "\"",
        "\"a",
        "\"a\\",
        "\"\\u12",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\x\"",
        "\"\t\"",
        "[\"a\"\"b\"]",
        "[1\"a\"]",
        "[\"a\"1]",
        "[true\"a\"]",
        "[\\\"a\"]",
        "[\"\\\\\"]",
        "[\"\\\\\\\"]",
        "[a]",
        "[1,\u{a0}2]",
        "\u{feff}{}",
        "{\"a\":1}}",
        "[[]",
        "[,1]",
        "{,}",
        "[1\u{1}]",
        "[\u{1}]",
        "[\"\u{7f}\"]",
        "[1:2]",
        "{\"a\":1:2}",
        "{\"a\",\"b\"}",
        "[{]}",
        "{\"a\":[}]",
        "[1{}]",
        "[{}1]",
        "[]\u{c}",
        "[\"\\\n\"]",
        "[/**/]",
    ];
    for piece in pieces {
        // At every place of a block, inside and outside of a larger value.
        for blanks in (0..=66).step_by(1) {
            let indent = " ".repeat(blanks);
            check(&format!("{indent}{piece}"));
            check(&format!("[{indent}{piece}]"));
            check(&format!("{{\"k\":{indent}{piece}}}"));
        }
    }
}

#[test]
fn nesting_is_limited_as_in_go() {
    for (open, close) in [("[", "]"), ("{\"a\":[", "]}")] {
        let levels = open.len() - open.replace(['{', '['], "").len();
        let nested = |depth: usize| open.repeat(depth / levels) + &close.repeat(depth / levels);
        assert!(ours(&nested(MAX_DEPTH)));
        let error = skip(&nested(MAX_DEPTH + levels), 0).unwrap_err();
        assert!(error.what.contains("deeper than 10000"), "{error}");
    }
    let mixed: String = (0..200).map(|at| if at % 3 == 0 { "{\"k\":" } else { "[" }).collect();
    let close: String = (0..200).rev().map(|at| if at % 3 == 0 { '}' } else { ']' }).collect();
    check(&format!("{mixed}1{close}"));
    check(&format!("{mixed}1{}", close.replacen("]}", "}]", 1)));
}

#[test]
fn errors_have_the_place_and_nothing_of_the_text() {
    let message = |text: &str| skip(text, 0).unwrap_err().to_string();
    assert_eq!(message(r#"{"secret" 1}"#), "byte 10: expected `:`");
    assert_eq!(message(r#"{"secret":1,}"#), "byte 12: expected a key");
    assert_eq!(message(r#"["a" "b"]"#), "byte 5: expected `,` or `]`");
    assert_eq!(message("[\"a\u{1}\"]"), "byte 3: a control character must be escaped in a string");
    assert_eq!(message(r#"["\q"]"#), "byte 3: this is no escape");
    assert_eq!(message(r#"[01]"#), "byte 1: expected a value");
    assert_eq!(message("[1"), "byte 2: the text ends inside a value");
    assert_eq!(object(b"{} x", 0).unwrap_err().to_string(), "byte 3: there is more after the object");
    assert_eq!(object(b" []", 0).unwrap_err().to_string(), "byte 1: this is not a JSON object");
    assert_eq!(object(b"{\"a\":\"\xff\"}", 0).unwrap_err().to_string(), "byte 6: this is not UTF-8");
    assert_eq!(object(b"\n{ } ", 0), Ok(()));
}

#[test]
fn strings_are_unescaped_as_in_go() {
    let said = |raw: &str| JsonText::read(raw, 0).unwrap().0.plain().into_owned();
    assert_eq!(said(r#""plain é""#), "plain é");
    assert_eq!(said(r#""\"\\\/\b\f\n\r\t\u0041""#), "\"\\/\u{8}\u{c}\n\r\tA");
    assert_eq!(said(r#""\ud83d\ude00x""#), "😀x");
    assert_eq!(said(r#""\ud83dx\ude00""#), "\u{fffd}x\u{fffd}");
    assert_eq!(said(r#""\ud83d\ud83d\ude00""#), "\u{fffd}😀");
    assert_eq!(said(r#""\ud83d\u0041\ud83d\n\ud83d""#), "\u{fffd}A\u{fffd}\n\u{fffd}");
}

#[test]
fn skip_stops_at_the_end_of_the_value() {
    for value in [OBJECT, "12", "\"a\\\"b\"", "true", "[]"] {
        for behind in ["", ",\"\u{1}\\q", "]x", "}", " junk \\"] {
            let text = format!("  {value}{behind}");
            assert_eq!(skip(&text, 2), Ok(2 + value.len()), "{text:?}");
            assert_eq!(skip(&text, 0), Ok(2 + value.len()), "{text:?}");
        }
    }
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        "[ -~\\\\\"\\n\\t\u{0}-\u{1f}é😀]{0,70}".prop_map(Into::into),
    ];
    leaf.prop_recursive(8, 96, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            proptest::collection::btree_map("[a-z\\\\\"]{0,9}", inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// One change of a text: what a broken sender or an attacker may make of it.
fn mutate(text: &str, kind: u8, at: usize, byte: u8) -> Option<String> {
    let mut bytes = text.as_bytes().to_vec();
    let at = at % (bytes.len() + 1);
    let signs = b"{}[]:,\"\\ \n\t0-e.unt\x01\x7f";
    match kind % 5 {
        0 => bytes.truncate(at),
        1 => *bytes.get_mut(at)? ^= byte,
        2 => bytes.insert(at, signs[usize::from(byte) % signs.len()]),
        3 if at < bytes.len() => drop(bytes.remove(at)),
        _ => *bytes.get_mut(at)? = signs[usize::from(byte) % signs.len()],
    }
    String::from_utf8(bytes).ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn skip_accepts_any_json(value in json(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        prop_assert!(ours(&text), "{}", text);
    }

    #[test]
    fn skip_judges_mutated_json_as_serde_does(
        value in json(), kinds in proptest::collection::vec((any::<u8>(), any::<usize>(), any::<u8>()), 1..4),
    ) {
        for start in [value.to_string(), OBJECT.to_owned()] {
            let mut text = start;
            for (kind, at, byte) in &kinds {
                text = mutate(&text, *kind, *at, *byte).unwrap_or(text);
                check(&text);
            }
        }
    }

    #[test]
    fn skip_judges_random_text_as_serde_does(text in "[\\[\\]{}:,\"\\\\ \\n0-9eE.+a-fnu-]{0,200}") {
        check(&text);
        check(&format!("[\"{text}\"]"));
        check(&format!("[{text}]"));
    }

    #[test]
    fn strings_have_the_value_that_serde_reads(text in "[ -~\u{0}-\u{1f}é😀]{0,40}") {
        let json = serde_json::to_string(&text).unwrap();
        let (read, end) = JsonText::read(&json, 0).unwrap();
        prop_assert_eq!((&*read.plain(), end), (text.as_str(), json.len()));
    }
}

#[test]
fn strings_of_every_length_end_at_their_quote() {
    for len in 0..300 {
        let plain = "é".repeat(len % 7) + &"x".repeat(len);
        assert_eq!(string(&format!("\"{plain}\" \""), 0).unwrap(), plain);
        let escaped = format!("\"{plain}\\n{plain}\"");
        assert_eq!(string(&escaped, 0).unwrap(), format!("{plain}\n{plain}"));
        assert!(string(&format!("\"{plain}\n{plain}\""), 0).is_err());
        assert!(string(&format!("\"{plain}"), 0).is_err());
    }
}
