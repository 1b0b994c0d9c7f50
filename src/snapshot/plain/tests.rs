use proptest::{collection::vec, prelude::*, sample::select};

use super::{super::document::Documents, *};

const EXAMPLES: [&str; 6] = [
    include_str!("../../../examples/config/bypass/gatepost.yaml"),
    include_str!("../../../examples/config/minimal/gatepost.yaml"),
    include_str!("../../../examples/config/mtls/gatepost.yaml"),
    include_str!("../../../examples/config/namespaces/hooks.yaml"),
    include_str!("../../../examples/config/namespaces/namespaces.yaml"),
    include_str!("../../../examples/config/webhooks/policy.yaml"),
];

/// As `kubectl get --output yaml` prints it.
const PRINTED: &str = r#"apiVersion: v1
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  metadata:
    annotations:
      kubectl.kubernetes.io/last-applied-configuration: |
        {"apiVersion":"admissionregistration.k8s.io/v1","webhooks":[{"name":"a: b"}]}
    creationTimestamp: "2026-01-02T03:04:05Z"
    generation: 2
    labels: {}
    name: policy
    resourceVersion: "1234"
    uid: 5d1e6b9c-0a1b-4c2d-8e3f-123456789abc
  webhooks:
  - admissionReviewVersions:
    - v1
    clientConfig:
      caBundle: LS0tLS1CRUdJTg==
      url: https://127.0.0.1:8443/validate?timeout=1s
    matchConditions:
    - expression: '!("system:nodes" in request.userInfo.groups)'
      name: not-a-node
    name: images.policy.example.com
    namespaceSelector: {}
    rules:
    - apiGroups:
      - ""
      apiVersions:
      - '*'
      operations:
      - CREATE
      resources:
      - pods
      scope: '*'
    sideEffects: None
    timeoutSeconds: 10
kind: List
metadata:
  resourceVersion: ""
"#;

/// What is read here, which must be what serde-saphyr reads without a complaint.
fn plainly(text: &str) -> Option<Vec<Value>> {
    let plain = read(text)?;
    assert_eq!(Documents::of_yaml(text), (plain.clone(), 0), "{text:?}");
    Some(plain)
}

#[test]
fn what_programs_and_people_write_is_plain() {
    for text in EXAMPLES.into_iter().chain([PRINTED]) {
        assert!(plainly(text).is_some_and(|documents| !documents.is_empty()), "{text}");
        let written = |value: &serde_json::Value| format!("---\n{}", serde_saphyr::to_string(value).unwrap());
        let values: Vec<serde_json::Value> = serde_saphyr::from_multiple(text).unwrap();
        let again: String = values.iter().map(written).collect();
        assert!(plainly(&again).is_some(), "{again}");
    }
}

#[test]
fn plain_yaml_means_what_it_says() {
    let text = |text: &str| Value::Text(text.into());
    for (yaml, wanted) in [
        ("a: b", text("b")),
        ("a: b c:d#e # f", text("b c:d#e")),
        ("a: null", Value::Null),
        ("a:", Value::Null),
        ("a: # b", Value::Null),
        ("a: True", Value::Bool(true)),
        ("a: yes", text("yes")),
        ("a: 0", Value::Integer(0)),
        ("a: 999999999999999999", Value::Integer(999_999_999_999_999_999)),
        ("a: 10s", text("10s")),
        ("a: 127.0.0.1", text("127.0.0.1")),
        ("a: \"1 # b\"  # c", text("1 # b")),
        (r#"a: "\\\"'\\" "#, text(r#"\"'\"#)),
        (r#"a: '''\"''' "#, text(r#"'\"'"#)),
        ("a: |\n  b\n\n   c: \"\n\n# d", text("b\n\n c: \"\n")),
        ("a: |-\n  b\n\n", text("b")),
        ("a:\n- b\n-   - c", Value::List(vec![text("b"), Value::List(vec![text("c")])])),
        ("a: [b, 'c', [ ], {d:e: 1}]", {
            let map = Value::Map(vec![("d:e".into(), Value::Integer(1))]);
            Value::List(vec![text("b"), text("c"), Value::List(Vec::new()), map])
        }),
    ] {
        let wanted = Value::Map(vec![("a".into(), wanted)]);
        assert_eq!(plainly(&format!("{yaml}\n")), Some(vec![wanted]), "{yaml}");
    }
    let twice = Value::Map(vec![("a".into(), text("b")), ("a".into(), text("c"))]);
    assert_eq!(plainly("---\n---\na: b\na: c\n---\n# d\n---\n"), Some(vec![twice]));
}

#[test]
fn all_else_is_left() {
    for line in [
        "a: b\r",
        "a: é",
        "a:\tb",
        "a: &b c",
        "a: *b",
        "a: !b c",
        "a: >",
        "a: |2",
        "a: | # b",
        "a: |",
        "a: |\n  b\n \n",
        "a: \"\\n\"",
        "a: \"b",
        "a: 'b''",
        r#"a: "b\"#,
        "a: b: c",
        "a: b:",
        "a: 1.0",
        "a: 1e3",
        "a: 01",
        "a: 0x1",
        "a: 1_0",
        "a: -1",
        "a: ~",
        "a: .inf",
        "a: 1000000000000000000",
        "<<: {a: b}",
        "1: a",
        "null: a",
        "? a",
        "\"a\": b",
        "a : b",
        "b",
        "- ",
        "-",
        "a:\n  b",
        "a: b\n  c",
        "a: b\n  c: d",
        "- a\n b",
        " a: b\nc: d",
        "a:\n  b: c\n d: e",
        "a: [b",
        "a: [b,]",
        "a: [b c]",
        "a: [b: c]",
        "a: [b]c",
        "a: {b}",
        "a: {b:c}",
        "a: {b: }",
        "a: [-1]",
        "- a\nb: c",
        "--- a",
        "...",
        "%a",
        "a: b\n...",
    ] {
        assert_eq!(read(&format!("{line}\n")), None, "{line}");
    }
    assert_eq!(read("a: b"), None, "a line that does not end");
}

#[test]
fn what_is_read_is_well_within_the_limits() {
    let nested = |depth: usize| format!("{}a\n", "- ".repeat(depth));
    let bracketed = |depth: usize| format!("- {}{}\n", "[".repeat(depth), "]".repeat(depth));
    let key = |length: usize| format!("{}: b\n", "a".repeat(length));
    let documents = |count: usize| "---\na: b\n".repeat(count);
    let nodes = |count: usize| format!("- [{}a]\n", "a,".repeat(count));
    for (made, most) in [
        (&nested as &dyn Fn(usize) -> String, DEEPEST),
        (&bracketed, DEEPEST - 1),
        (&key, LONGEST_KEY),
        (&documents, MOST_DOCUMENTS - 1),
    ] {
        assert!(plainly(&made(most)).is_some(), "{most} can be read");
        assert_eq!(read(&made(most + 1)), None, "{} is left", most + 1);
    }
    assert!(read(&nodes(MOST_NODES - 4)).is_some());
    assert_eq!(read(&nodes(MOST_NODES - 3)), None);
    // Long scalars are no keys.
    for long in [["- ", "\n"], ["- [", "]\n"], ["- - \"", "\"\n"], ["- a: {b: '", "'}\n"]] {
        assert!(plainly(&long.join(&"a".repeat(5000))).is_some(), "{long:?}");
    }
}

/// What lines are made of: mostly what is plain, and enough of what is not.
fn any_line() -> impl Strategy<Value = String> {
    const DASHES: [&str; 8] = ["", "", "", "", "- ", "- ", "- - ", "-  "];
    const KEYS: [&str; 12] = ["a: ", "b: ", "a: ", "b:", "c/d:", "", "", "e:f: ", "null: ", "1: ", "\"a\": ", "<<: "];
    const VALUES: [&str; 56] = [
        "",
        "",
        "a",
        "b",
        "b c",
        "1",
        "10s",
        "true",
        "NULL",
        "~",
        "01",
        "1.5",
        "0x1f",
        "1e3",
        "1_0",
        "5d1e-1",
        "a:b",
        "a: b",
        "a:",
        "a#b",
        "#",
        "\"a\"",
        "'b # c'",
        "\"a",
        "'a''b'",
        "[]",
        "{}",
        "[a, b]",
        "[a,b,]",
        "[a b]",
        "[a, [1, {b: c}]]",
        "{a: b}",
        "{a: b, a: c}",
        "{a:b}",
        "{a}",
        "[a: b]",
        "[\"a\", '1']",
        "[a",
        "a]",
        "|",
        "|-",
        "|+",
        ">",
        "&a b",
        "*a",
        "!!str a",
        "!a b",
        "/a",
        "-",
        "a -",
        "---",
        "--- a",
        "[a]: b",
        "'a': b",
        "\"a\"b",
        "é",
    ];
    const ENDS: [&str; 8] = ["", "", "", "", "", "", " # c", " "];
    const WHOLE: [&str; 8] = ["", "---", "# a", "  # a", "  ", "...", "-", "%YAML 1.2"];
    let made = (0..4_usize, select(&DASHES), select(&KEYS), select(&VALUES), select(&ENDS));
    let made =
        made.prop_map(|(indent, dash, key, value, end)| format!("{:1$}{dash}{key}{value}{end}\n", "", indent * 2));
    prop_oneof![12 => made, 1 => select(&WHOLE).prop_map(|line| format!("{line}\n"))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_is_read_is_what_serde_saphyr_reads(lines in vec(any_line(), 1..7)) {
        plainly(&lines.concat());
    }

    /// One sign in another's place, in what is plain as it stands.
    #[test]
    fn a_slip_is_never_read_otherwise(
        at in any::<prop::sample::Index>(),
        sign in select(b" \n:-#[]{},\"'|a1~&*!".as_slice()),
        insert: bool,
    ) {
        let mut text = PRINTED.to_owned();
        let at = at.index(text.len());
        text.replace_range(at..at + usize::from(!insert), &char::from(sign).to_string());
        plainly(&text);
    }
}
