//! Tests of whole applications.

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::model::Rope;

fn document(object: &str) -> Document {
    Document::new(Rope::new([Bytes::copy_from_slice(object.as_bytes())])).expect("an object")
}

fn text(rope: &Rope) -> String {
    String::from_utf8(rope.copy_of(0..rope.len()).to_vec()).expect("UTF-8")
}

fn apply(object: &str, patch: &str) -> Result<String, PatchError> {
    let patch = Patch::parse(Bytes::copy_from_slice(patch.as_bytes()))?;
    let patched = document(object).patched(&patch, Limits::default())?;
    Ok(text(patched.rope()))
}

#[test]
fn vectors_of_the_library_hold() {
    let vectors = include_str!("../../tests/vectors/json_patch.json");
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
            let failed = matches!(result, Err(PatchError::Operation { fault: Fault::TestFailed, .. }));
            assert!(failed, "{}: {result:?}", case["id"]);
        }
    }
}

#[test]
fn what_no_operation_touches_stays_as_it_is_written() {
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
fn what_a_test_opens_is_no_more_than_it_says_beforehand() {
    let items = |count: usize| format!("[{}1]", "0,".repeat(count));
    let members = (0..5000).map(|n| format!("\"{n}\":{n}")).collect::<Vec<_>>().join(",");
    for (object, value) in [
        (format!("{{\"a\":{}}}", items(5000)), items(5000).replace("1]", "2]")),
        (format!("{{\"a\":{{{members}}}}}"), "{}".to_owned()),
        (format!("{{\"a\":{{{members}}}}}"), format!("{{{members},\"x\":1}}")),
    ] {
        let patch = format!(r#"[{{"op":"test","path":"/a","value":{value}}}]"#);
        let patch = Patch::parse(patch.into()).unwrap();
        let mut tree = document(&object).tree().clone();
        let before = Document::held_by(&tree);
        let mut application = apply::Application::of(&patch, &mut tree, 0);
        assert_eq!(application.apply(&patch.operations[0]), Err(Fault::TestFailed));
        let (held, said) = (Document::held_by(&tree) - before, patch.compared(object.len()));
        assert!((1000..said).contains(&held), "{held} of {said}");
    }
    let none = Patch::parse(r#"[{"op":"test","path":"/a","value":1},{"op":"add","path":"/b","value":[]}]"#.into());
    assert_eq!(none.unwrap().compared(1000), 0);
}
