//! Tests of whole applications.

use std::sync::Arc;

use bytes::Bytes;
use gatepost_json::Rope;
use serde_json::{Value, json};

use crate::*;

fn document(object: &str) -> Document {
    Document::new(Rope::new([Bytes::copy_from_slice(object.as_bytes())])).expect("an object")
}

fn text(rope: &Rope) -> String {
    String::from_utf8(rope.to_bytes().to_vec()).expect("UTF-8")
}

fn apply(object: &str, patch: &str) -> Result<String, PatchError> {
    let patch = Patch::parse(Bytes::copy_from_slice(patch.as_bytes()))?;
    let patched = document(object).patched(&patch, PatchLimits::default())?;
    Ok(text(patched.rope()))
}

#[test]
fn patches_apply_as_the_upstream_library_does() {
    let vectors = include_str!("../../../tests/vectors/json_patch.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert!(cases.len() >= 39);
    for case in cases {
        let result = apply(&case["document"].to_string(), &case["patch"].to_string());
        let expect = &case["expect"];
        assert_eq!(result.is_ok(), expect["applies"] == true, "{}: {result:?}", case["id"]);
        if let Ok(result) = result {
            assert_eq!(serde_json::from_str::<Value>(&result).unwrap(), expect["result"], "{}", case["id"]);
        } else if let Some(reason) = expect.get("reason") {
            assert_eq!(reason, "test failed");
            let failed = matches!(result, Err(PatchError::Operation { fault: OperationFault::TestFailed, .. }));
            assert!(failed, "{}: {result:?}", case["id"]);
        }
    }
}

#[test]
fn untouched_parts_stay_as_written() {
    let object = "{ \"a\" : [ 1.0, 2 ,\n3 ],  \"b\":{\"x\":\"\\u0041\" , \"y\" : null}\t}";
    for (patch, wanted) in [
        (json!([]), object.to_owned()),
        (json!([{"op": "test", "path": "/b/x", "value": "\u{41}"}]), String::new()),
        (json!([{"op": "add", "path": "/a/1", "value": 7}]), object.replace("1.0,", "1.0,7,")),
        (json!([{"op": "replace", "path": "/b/y", "value": {"z": 1}}]), object.replace("null", "{\"z\":1}")),
        (json!([{"op": "add", "path": "/b/n", "value": true}]), object.replace("null", "null,\"n\":true")),
        (json!([{"op": "remove", "path": "/a"}]), object.replace(" \"a\" : [ 1.0, 2 ,\n3 ],  ", "")),
    ] {
        match apply(object, &patch.to_string()) {
            Ok(text) => assert_eq!(text.replace(" ", ""), wanted.replace(" ", ""), "{patch}"),
            Err(error) => assert!(wanted.is_empty(), "{patch}: {error}"),
        }
    }
}

#[test]
fn test_operation_takes_no_more_memory_than_predicted() {
    let items = |count: usize| format!("[{}1]", "0,".repeat(count));
    let members = (0..5000).map(|n| format!("\"{n}\":{n}")).collect::<Vec<_>>().join(",");
    for (object, value) in [
        (format!("{{\"a\":{}}}", items(5000)), items(5000).replace("1]", "2]")),
        (format!("{{\"a\":{{{members}}}}}"), "{}".to_owned()),
        (format!("{{\"a\":{{{members}}}}}"), format!("{{{members},\"x\":1}}")),
    ] {
        let patch = format!(r#"[{{"op":"test","path":"/a","value":{value}}}]"#);
        let patch = Patch::parse(patch.into()).unwrap();
        let mut tree = document(&object).tree.clone();
        let before = Document::held_by(&tree);
        let mut application = apply::Application::of(&patch, &mut tree, 0);
        assert_eq!(application.apply(&patch.operations[0]), Err(OperationFault::TestFailed));
        let (held, said) = (Document::held_by(&tree) - before, patch.compared(object.len()));
        assert!((1000..said).contains(&held), "{held} of {said}");
    }
    let none = Patch::parse(r#"[{"op":"test","path":"/a","value":1},{"op":"add","path":"/b","value":[]}]"#.into());
    assert_eq!(none.unwrap().compared(1000), 0);
}

fn patch(operations: &[String]) -> Patch {
    Patch::parse(format!("[{}]", operations.join(",")).into()).unwrap()
}

/// Arrays nested `depth` deep around `inner`.
fn nested(depth: usize, inner: &str) -> String {
    format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth))
}

fn scanned(tree: &tree::Tree) -> usize {
    tree.texts.iter().map(|text| text.scanned).sum()
}

#[test]
fn opening_nested_containers_scans_linearly() {
    const CYCLES: usize = 200;
    let value = nested(7 * CYCLES + 1, &format!("\"{}\"", "x".repeat(100 << 10)));
    let mut operations = vec![format!(r#"{{"op":"add","path":"/x","value":{value}}}"#)];
    for _ in 0..CYCLES {
        operations.extend([
            r#"{"op":"move","from":"/x/0/0/0/0/0/0/0","path":"/x"}"#.to_owned(),
            r#"{"op":"add","path":"/s","value":[ ]}"#.to_owned(),
            r#"{"op":"copy","from":"/s","path":"/c"}"#.to_owned(),
            r#"{"op":"add","path":"/c/-","value":1}"#.to_owned(),
        ]);
    }
    let patch = patch(&operations);
    let patched = document("{}").patched(&patch, PatchLimits::default()).unwrap();
    let (scanned, bytes) = (scanned(&patched.tree), patch.size());
    assert!(scanned < 20 * bytes, "{scanned} bytes are passed over, of a patch of {bytes}");
}

#[test]
fn test_of_a_deep_value_compares_linearly() {
    let filler = "x".repeat(100 << 10);
    for (ours, other, equal) in [
        (format!("\"{filler}a\""), format!("\"{filler}b\""), false),
        (format!("{{\"a\":\"{filler}\",\"b\":2}}"), format!("{{\"b\":2,\"a\":\"{filler}\"}}"), true),
        (format!("[\"{filler}\",{{}}]"), format!("[\"{filler}\",[]]"), false),
    ] {
        let object = format!("{{\"x\":{}}}", nested(2000, &ours));
        let patch = patch(&[format!(r#"{{"op":"test","path":"/x","value":{}}}"#, nested(2000, &other))]);
        let mut tree = document(&object).tree.clone();
        let applied = apply::Application::of(&patch, &mut tree, 0).apply(&patch.operations[0]);
        assert_eq!(applied, if equal { Ok(()) } else { Err(OperationFault::TestFailed) });
        let (compared, scanned, bytes) = (tree.compared, scanned(&tree), object.len());
        assert!(compared < 12 * bytes, "{compared} bytes are compared, of {bytes}");
        assert!(scanned < 40 * bytes, "{scanned} bytes are passed over, of {bytes}");
    }
}

#[test]
fn repeated_members_are_not_scanned_by_each_test() {
    const MEMBERS: usize = 5000;
    let object = format!("{{\"o\":{{{}\"a\":1}}}}", "\"a\":0,".repeat(MEMBERS));
    let test = r#"{"op":"test","path":"/o","value":{"a":1}}"#.to_owned();
    let patched = document(&object).patched(&patch(&[test.clone(), test]), PatchLimits::default()).unwrap();
    let most = patched.tree.nodes.iter().map(|node| node.all_pieces().count()).max();
    assert!(most < Some(10), "{most:?}");
    assert!(patched.difference().is_none());
    assert_eq!(text(patched.rope()), r#"{"o":{"a":1}}"#);
}

#[test]
fn rewritten_copy_counts_as_held_memory() {
    let object = format!(r#"{{"x":[{}1 ]}}"#, "0,".repeat(50_000));
    let operations = [
        r#"{"op":"copy","from":"/x","path":"/y"}"#,
        r#"{"op":"remove","path":"/x"}"#,
        r#"{"op":"remove","path":"/y"}"#,
        r#"{"op":"add","path":"/z","value":1}"#,
    ];
    let patch = patch(&operations.map(str::to_owned));
    let patched = document(&object).patched(&patch, PatchLimits::default()).unwrap();
    assert_eq!(text(patched.rope()), r#"{"z":1}"#);
    assert!(patched.held() > 100_000, "{} bytes are held of a copy of {}", patched.held(), object.len());
    let little = PatchLimits { held: 64 << 10, ..PatchLimits::default() };
    assert_eq!(document(&object).patched(&patch, little).unwrap_err(), PatchError::NoRoom);
}

#[test]
fn difference_is_no_longer_than_its_size() {
    let key = "/~\\\"\\n".repeat(1000);
    let object = format!(r#"{{"{key}":{{"a":[{}1]}},"b":{{"c":1}}}}"#, "0,".repeat(9_000));
    let inner = "~1~0\\\"\\n".repeat(1000);
    let operations: Vec<_> = (0..20).map(|at| format!(r#"{{"op":"remove","path":"/{inner}/a/{at}"}}"#)).collect();
    let patched = document(&object).patched(&patch(&operations), PatchLimits::default()).unwrap();
    let (size, difference) = (patched.changes().unwrap().size(), patched.difference().unwrap());
    assert!(difference.len() <= size && size < 2 * object.len(), "{} {size} {}", difference.len(), object.len());
    let again = document(&object).patched(&Patch::parse(text(&difference).into()).unwrap(), PatchLimits::default());
    assert_eq!(text(again.unwrap().rope()), text(patched.rope()));
}

#[test]
fn cancelled_patch_stops() {
    let cancelled = Some(Arc::new(true.into()));
    let patch = patch(&[r#"{"op":"add","path":"/a","value":1}"#.to_owned()]);
    let error = document("{}").patched_unless(&patch, PatchLimits::default(), cancelled.as_ref()).unwrap_err();
    assert_eq!(error, PatchError::Cancelled);
    let mut tree = document("{}").tree.clone();
    let text = tree.add_text(text::Text::arrived("[]".into(), None));
    let value = node::Value::Raw(text::Span { text, start: 0, end: 2 });
    assert!(matches!(tree.opened(value), Ok(Some(_))));
    tree.cancelled = cancelled;
    assert_eq!(tree.opened(value), Err(OperationFault::Cancelled), "also within an operation");
}

#[test]
fn last_of_repeated_keys_in_a_value_counts() {
    for (value, kept) in [
        (r#"{"x":1,"x":2}"#, r#"{"x":2}"#),
        (r#"{ "x" : 1 , "y":3, "\u0078" : 2 }"#, r#"{"y":3,"\u0078":2}"#),
        (r#"{"x":{"y":1,"y":2},"x":{"z":[{"a":"a","a":"}"},{"a":1}]}}"#, r#"{"x":{"z":[{"a":"}"},{"a":1}]}}"#),
        (r#"[{"x":1},{"x":1},"x",{"":[],"":{},"":","}]"#, r#"[{"x":1},{"x":1},"x",{"":","}]"#),
        (r#"{"x":1,"x":2,"x":3,"\"":"\"","\\":4}"#, r#"{"x":3,"\"":"\"","\\":4}"#),
        (r#"{"x":["y","y"],"y":{"x":"x","y":"x"}}"#, r#"{"x":["y","y"],"y":{"x":"x","y":"x"}}"#),
    ] {
        let patch = format!(r#"[{{"op":"add","path":"/a","value":{value}}},{{"op":"copy","from":"/a","path":"/b"}}]"#);
        let patched = apply("{}", &patch).unwrap();
        assert_eq!(patched.replace(' ', ""), format!(r#"{{"a":{kept},"b":{kept}}}"#), "{value}");
    }
    let test = r#"[{"op":"test","path":"/a","value":{"x":1,"x":2}}]"#;
    assert!(apply(r#"{"a":{"x":2}}"#, test).is_ok());
    assert!(apply(r#"{"a":{"x":1}}"#, test).is_err());
}

#[test]
fn deep_value_may_have_repeated_keys() {
    let value = format!("{}1{}", r#"{"x":0,"x":"#.repeat(9_000), "}".repeat(9_000));
    let patched = apply("{}", &format!(r#"[{{"op":"add","path":"/a","value":{value}}}]"#)).unwrap();
    assert_eq!(patched, format!(r#"{{"a":{}1{}}}"#, r#"{"x":"#.repeat(9_000), "}".repeat(9_000)));
}
