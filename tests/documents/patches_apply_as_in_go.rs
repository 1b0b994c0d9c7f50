//! Patches come to what the library of kube-apiserver makes of them: a table of its own answers, and a plain
//! implementation of RFC 6902 beside it (`fuzz/oracles/json_patch.rs`) for what proptest thinks of.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use bytes::Bytes;
use gatepost_api::Rope;
use gatepost_json_patch::{Document, Patch, PatchError, PatchLimits};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::oracles;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    document: String,
    patch: String,
    outcome: String,
    result: Option<String>,
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn text(rope: &Rope) -> String {
    String::from_utf8(rope.to_bytes().to_vec()).expect("UTF-8")
}

/// The object in one piece and in pieces of a few bytes.
fn forms(object: &str) -> [Rope; 2] {
    let whole = bytes(object);
    let pieces: Vec<_> = (0..whole.len()).step_by(3).map(|at| whole.slice(at..whole.len().min(at + 3))).collect();
    [Rope::new([whole]), Rope::new(pieces)]
}

fn apply(object: Rope, patch: &str) -> Result<Document, PatchError> {
    let patch = Patch::parse(bytes(patch))?;
    let applied = Document::new(object.clone())?.patched(&patch, PatchLimits::default());
    // A text known to be JSON is not checked once more, with the same result.
    let checked = Document::checked(object).expect("it was checked").patched(&patch, PatchLimits::default());
    let said = |applied: &Result<Document, PatchError>| match applied {
        Ok(document) => Ok(text(document.rope())),
        Err(error) => Err(error.clone()),
    };
    assert_eq!(said(&checked), said(&applied));
    applied
}

#[test]
fn the_table_of_go_holds() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("../patches/odd.json")).unwrap();
    assert!(rows.len() > 500);
    let mut different = Vec::new();
    for row in rows {
        for object in forms(&row.document) {
            let got = apply(object.clone(), &row.patch);
            let same = match (&*row.outcome, &got) {
                ("panic", _) => true,
                ("undecodable", Err(error)) => error.is_undecodable(),
                ("error", Err(error)) => !error.is_undecodable(),
                ("result", Ok(document)) => {
                    let wanted: Value = serde_json::from_str(row.result.as_deref().unwrap()).unwrap();
                    let back = document.difference().map_or_else(|| "[]".to_owned(), |patch| text(&patch));
                    let again = apply(object, &back).unwrap_or_else(|error| panic!("{}: {back}: {error}", row.patch));
                    assert_eq!(
                        serde_json::from_str::<Value>(&text(again.rope())).unwrap(),
                        wanted,
                        "{} {}: {back}",
                        row.document,
                        row.patch
                    );
                    serde_json::from_str::<Value>(&text(document.rope())).unwrap() == wanted
                }
                _ => false,
            };
            if !same {
                let got = got.map(|document| text(document.rope()));
                different.push(format!(
                    "{} {}\n  Go: {} {:?}\n  us: {got:?}",
                    row.document, row.patch, row.outcome, row.result
                ));
            }
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

#[test]
fn copy_omits_removed_members() {
    let object = Rope::new([bytes(r#"{"a":{"name":"x"},"metadata":null}"#)]);
    let patch = r#"[{"op":"remove","path":"/a/name"},{"op":"copy","from":"/a","path":"/metadata"}]"#;
    let document = apply(object, patch).unwrap();
    assert_eq!(text(document.rope()), r#"{"a":{},"metadata":{}}"#);
    assert_eq!(document.changed_identity(), []);
}

/// Few different ones, so that paths meet what is there.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "c", "metadata", "name"]).prop_map(str::to_owned),
        1 => prop::sample::select(vec!["", "~", "/", "~1", "0", "-", "\"", "é"]).prop_map(str::to_owned),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Into::into),
        (0..20).prop_map(Into::into),
        "[a-c\"\\\\<é]{0,5}".prop_map(Into::into),
        Just(json!("x".repeat(100))),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..7).prop_map(Into::into),
            prop::collection::btree_map(key(), inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(key(), value(), 0..6).prop_map(|map| Value::Object(map.into_iter().collect()))
}

fn path() -> impl Strategy<Value = String> {
    let index = prop::sample::select(vec!["0", "1", "2", "3", "-1", "-2", "-", "01", "+1"]).prop_map(str::to_owned);
    let step = prop_oneof![3 => key(), 2 => index];
    prop::collection::vec(step, 0..4).prop_map(|steps| {
        let escaped = steps.into_iter().map(|step| step.replace('~', "~0").replace('/', "~1"));
        escaped.map(|step| format!("/{step}")).collect()
    })
}

/// A path into the value; `choices` say which way, and how it ends.
fn path_in(mut at: &Value, choices: &[u8]) -> String {
    let mut path = String::new();
    for choice in choices {
        let choice = usize::from(*choice);
        at = match at {
            Value::Object(members) if !members.is_empty() => {
                let (key, inner) = members.iter().nth(choice % members.len()).expect("there");
                path += &format!("/{}", key.replace('~', "~0").replace('/', "~1"));
                inner
            }
            Value::Array(items) if !items.is_empty() => {
                let index = choice % items.len();
                path += &if choice > 200 { format!("/-{}", items.len() - index) } else { format!("/{index}") };
                &items[index]
            }
            _ => break,
        };
    }
    path
}

#[derive(Clone, Debug)]
struct Draft {
    op: &'static str,
    /// Paths drawn blindly, and choices on the way through the object.
    paths: [(String, Vec<u8>); 2],
    blind: [bool; 2],
    value: Value,
}

fn draft() -> impl Strategy<Value = Draft> {
    let ops = prop::sample::select(vec!["add", "add", "remove", "replace", "move", "copy", "test"]);
    let place = || (path(), prop::collection::vec(any::<u8>(), 0..5));
    let blind = || prop::bool::weighted(0.2);
    (ops, [place(), place()], [blind(), blind()], value()).prop_map(|(op, paths, blind, value)| Draft {
        op,
        paths,
        blind,
        value,
    })
}

/// The operations on the object; those that do not apply are mostly left out, so that long patches apply too.
fn operations(object: &Value, drafts: &[Draft], keep: bool) -> (Vec<Value>, Value) {
    let mut now = object.clone();
    let mut operations = Vec::new();
    for Draft { op, paths, blind, value } in drafts {
        let [path, from] = [0, 1].map(|n| if blind[n] { paths[n].0.clone() } else { path_in(&now, &paths[n].1) });
        let value = match *op {
            "test" if !blind[1] => now.pointer(&path).cloned().unwrap_or_default(),
            _ => value.clone(),
        };
        let operation = json!({"op": op, "path": path, "from": from, "value": value});
        let text = json!([operation]).to_string();
        match apply(Rope::new([bytes(&now.to_string())]), &text) {
            Ok(document) => now = serde_json::from_str(&self::text(document.rope())).unwrap(),
            Err(_) if keep => {}
            Err(_) => continue,
        }
        operations.push(operation);
    }
    (operations, now)
}

/// An object with one large object, some of its keys twice, and one large array; more than are ever looked at one by
/// one.
fn large() -> impl Strategy<Value = String> {
    let item = prop_oneof![
        5 => (0..100_u32).prop_map(|n| n.to_string()),
        2 => (0..9_usize).prop_map(|n| format!("{{\"a\":[{n}],\"b\":\"{}\"}}", "x".repeat(n * 20))),
        1 => Just("null".to_owned()),
    ];
    let items = prop::collection::vec(item, 100..700);
    (items.clone(), items, prop::sample::select(vec!["", " ", "\n  "])).prop_map(|(members, items, blank)| {
        let key = |n: usize| if n % 50 == 9 { "k7".to_owned() } else { format!("k{}", n % 400) };
        let members: Vec<_> =
            members.iter().enumerate().map(|(n, value)| format!("\"{}\":{blank}{value}", key(n))).collect();
        let separator = format!(",{blank}");
        format!(
            "{{\"metadata\":{{\"name\":\"n\"}},\"o\":{{{}}},\"l\":[{blank}{}]}}",
            members.join(&separator),
            items.join(&separator)
        )
    })
}

#[derive(Clone, Debug)]
struct Touch {
    op: &'static str,
    in_array: bool,
    at: u16,
}

fn touch() -> impl Strategy<Value = Touch> {
    let ops = prop::sample::select(vec!["add", "add", "remove", "replace", "move", "copy", "test", "inside", "whole"]);
    (ops, any::<bool>(), any::<u16>()).prop_map(|(op, in_array, at)| Touch { op, in_array, at })
}

/// Operations that apply, on the large containers.
fn touched(object: &str, touches: &[Touch]) -> Vec<Value> {
    let mut now: Value = serde_json::from_str(object).expect("an object");
    let mut operations = Vec::new();
    for Touch { op, in_array, at } in touches {
        let at = usize::from(*at);
        let items = now["l"].as_array().expect("an array").len();
        let place = |at: usize| match in_array {
            true if at.is_multiple_of(7) => format!("/l/-{}", at % (items - 1) + 1),
            true => format!("/l/{}", at % items),
            false => format!("/o/k{}", at % 450),
        };
        let (path, from) = (place(at), place(at / 3));
        let there = |path: &str| now.pointer(path).cloned().unwrap_or_default();
        let operation = match *op {
            "test" => json!({"op": "test", "path": path, "value": there(&path)}),
            "whole" if at.is_multiple_of(5) => json!({"op": "test", "path": "/o", "value": now["o"]}),
            "whole" if at.is_multiple_of(3) => json!({"op": "test", "path": "/l", "value": now["l"]}),
            "whole" => json!({"op": "copy", "from": "/o", "path": "/copy"}),
            "inside" => json!({"op": "add", "path": format!("{path}/c"), "value": at}),
            op => json!({"op": op, "path": path, "from": from, "value": {"at": at}}),
        };
        // Go distinguishes a null that is given from others, and the oracle does not.
        if operation["value"].is_null() && *op == "test" {
            continue;
        }
        if let Ok(document) = apply(Rope::new([bytes(&now.to_string())]), &json!([operation]).to_string()) {
            now = serde_json::from_str(&text(document.rope())).expect("JSON");
            operations.push(operation);
        }
    }
    operations
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn large_containers_are_patched_alike(object in large(), touches in prop::collection::vec(touch(), 0..60)) {
        let operations = touched(&object, &touches);
        oracles::check("json_patch", format!("{}\n{}", object.replace('\n', "\t"), Value::from(operations)).as_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn patches_apply_as_in_a_plain_implementation(
        object in object(),
        patches in prop::collection::vec(prop::collection::vec(draft(), 0..12), 0..4),
        keep in prop::bool::weighted(0.1), pretty: bool,
    ) {
        let mut input = object.to_string();
        if pretty {
            input = input.replace(',', " ,\t").replace(':', " : ").replace('[', "[ ").replace('}', " }");
        }
        let mut now = object;
        for drafts in patches {
            let (operations, after) = operations(&now, &drafts, keep);
            now = after;
            input += &format!("\n{}", Value::from(operations));
        }
        oracles::check("json_patch", input.as_bytes());
    }

    /// Cuts of the bytes, and the spread of operations over patches, make no difference.
    #[test]
    fn cuts_make_no_difference(object in object(), drafts in prop::collection::vec(draft(), 0..16), cut: u8) {
        // Within one patch, a null that was given is distinguished from others.
        let drafts: Vec<_> = drafts
            .into_iter()
            .map(|draft| if draft.value.is_null() { Draft { value: json!(0), ..draft } } else { draft })
            .collect();
        let (operations, _) = operations(&object, &drafts, false);
        let [whole, pieces] = forms(&object.to_string());
        let apply = |object: Rope, patches: &[&[Value]]| {
            let document = Document::new(object).unwrap();
            let patched = patches.iter().try_fold(document, |document, patch| {
                document.patched(&Patch::parse(bytes(&Value::from(patch.to_vec()).to_string()))?, PatchLimits::default())
            });
            patched.map(|document| (text(document.rope()), document.difference().map(|patch| text(&patch)), document.changed_identity()))
        };
        let (first, second) = operations.split_at(usize::from(cut) % (operations.len() + 1));
        let at_once = apply(whole.clone(), &[&operations]);
        prop_assert_eq!(&apply(pieces, &[&operations]), &at_once);
        prop_assert_eq!(&apply(whole, &[first, second]).ok(), &at_once.ok());
    }
}
