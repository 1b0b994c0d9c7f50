//! Seeds: first inputs of fuzzing, made of the examples and of upstream's tables.

use std::{collections::BTreeMap, fs};

use bytes::Bytes;
use gatepost_api::{ReviewVersion, Rope, StatusInfo, Verdict};
use gatepost_wire::{
    encodings::{Encodings, HookEncoding},
    inbound, outbound,
    pb::k8s::io::{
        api::admission::v1::{AdmissionRequest, AdmissionReview},
        apimachinery::pkg::{
            apis::meta::v1::{GroupVersionKind, GroupVersionResource},
            runtime::RawExtension,
        },
    },
    review_json,
};
use prost::Message;
use serde_json::{Value, json};

/// File name to content.
type Files = BTreeMap<String, Vec<u8>>;

/// Real reviews, no two of them much alike.
const REVIEWS: [&str; 9] = [
    "configmap-create.json",
    "crd-object.yaml",
    "deployment-update.json",
    "namespace-create.yaml",
    "pod-create-dry-run.json",
    "pod-delete.json",
    "pods-exec-connect.json",
    "scale-update.json",
    "service-create.json",
];

/// The seeds of every target.
pub(crate) fn all() -> BTreeMap<&'static str, Files> {
    let mut all =
        BTreeMap::from([("configuration", configurations()), ("hook_answer", answers()), ("json_patch", patches())]);
    all.insert("match_condition", conditions());
    all.extend([("http1_reader", replies()), ("http2_frames", frames()), ("hpack", blocks())]);
    for (target, form) in [
        ("json_view", HookEncoding::Json(ReviewVersion::V1beta1)),
        ("protobuf_view", HookEncoding::Grpc),
        ("envelope", HookEncoding::Protobuf(ReviewVersion::V1)),
    ] {
        let files: &mut Files = all.entry(target).or_default();
        for (name, review) in reviews() {
            files.insert(name, written(&review, form));
        }
    }
    let json = all.entry("json_view").or_default();
    json.extend(odd_json());
    // As people write it, white space and all.
    let pod = read("examples/reviews/pod-create.json");
    json.insert("pod-create-as-written".into(), pod.into_bytes());
    all.entry("protobuf_view").or_default().extend(odd_protobuf());
    all.entry("envelope").or_default().extend(odd_envelopes());
    all
}

/// Objects and expressions (`fuzz/oracles/match_condition.rs`), some of those that are compared with kube-apiserver's own code.
fn conditions() -> Files {
    let cases: Value = serde_json::from_str(&read("tests/cel/cases.json")).unwrap();
    let expressions = cases["expressions"].as_array().unwrap().iter().filter_map(Value::as_str);
    let of_cases = expressions.step_by(67).enumerate();
    let mut files: Files = of_cases
        .map(|(n, text)| (format!("case-{n:02}"), format!("{}\n{text}", cases["object"]).into_bytes()))
        .collect();
    for (name, input) in [
        ("keys-twice", r#"{"a":1,"b":{"x":1},"a":2,"b":{"y":[1]}}"#.to_owned() + "\nobject.a == 2 && has(object.b.y)"),
        ("escapes", r#"{"a\u0062":"\u00e9\ud83d\ude00\n"}"#.to_owned() + "\n'%s'.format([object]) == object.ab"),
        ("numbers", r#"{"a":[-0,1.0,1e3,9223372036854775808,1e-400]}"#.to_owned() + "\nobject.a.all(x, x >= 0)"),
        ("nested", r#"{"a":[[{"b":[{}]}]]}"#.to_owned() + "\nobject.a[0][0].b[0] == {} && object == object"),
        (
            "grammar",
            "{}\n{?'a': -0x1u, T{`b-c`: r'''d''', ?e: [?f.?g, b'\\x00'[?0]]}.h: !i ? --1.5e-3 : .j.k(l)} // m".to_owned(),
        ),
        ("fault", "{}\n'é' in [1,\n\n  a.(b)]".to_owned()),
        ("not-json", "{\"a\":oops}\nobject.a == 1 || request.name == 'web'".to_owned()),
        ("loops", r#"{"a":[1,2,3]}"#.to_owned() + "\nobject.a.map(x, object.a.filter(y, y > x).size()).sum() == 3"),
        (
            "authorizer",
            "{}\nauthorizer.group('').resource('pods').check('get').allowed() || authorizer.path('/').check('g').errored()"
                .to_owned(),
        ),
    ] {
        files.insert(name.into(), input.into_bytes());
    }
    files
}

/// Scripts of `fuzz/oracles/http2.rs`: what servers say, and what happens meanwhile.
fn frames() -> Files {
    const SETTINGS: &[u8] = b"D\0\0\0";
    const ASK: &[u8] = b"\0\x05";
    const SEND: &[u8] = b"\x30";
    const HEAD: &[u8] = b"A\x04\x01\x01\x88";
    const GOAWAY: &[u8] = b"G\0\0\x08\0\0\0\x01\0\0\0\0";
    let asked = [SETTINGS, ASK, SEND].concat();
    let scripts: [(&str, Vec<&[u8]>); 14] = [
        ("answered", vec![HEAD, b"@\x01\x01\x03yes"]),
        ("answered-with-trailers", vec![HEAD, b"@\0\x01\x03yes", b"A\x05\x01\x05\0\x01a\x01b"]),
        ("answered-in-parts", vec![b"A\0\x01\x01\x88", b"I\x04\x01\x05\0\x01a\x01b", b"@\x09\x01\x03\x01a\0"]),
        ("announced-first", vec![b"A\x04\x01\x05\x08\x03103", HEAD, b"@\x01\x01\0"]),
        ("refused", vec![b"C\0\x01\x04\0\0\0\x07", ASK, SEND]),
        ("reset", vec![HEAD, b"C\0\x01\x04\0\0\0\x08"]),
        ("left", vec![ASK, SEND, ASK, GOAWAY, HEAD, b"@\x01\x01\0"]),
        ("no-window", vec![b"D\0\0\x06\0\x04\0\0\0\0", b"\x04\0", SEND, b"H\0\x03\x04\0\0\0\x09", SEND]),
        ("one-at-a-time", vec![b"D\0\0\x06\0\x03\0\0\0\x01", ASK, ASK, SEND, HEAD, b"@\x01\x01\0", SEND]),
        ("not-read", vec![b"\x1f\xff\x1f\xff", b"\x20\x09", b"\x31\x01", b"\x32\xff", SEND]),
        ("late", vec![b"\x1f\xff", b"\x28\xff", b"\x32\xff", HEAD, b"@\x01\x01\x03yes", SEND]),
        ("pinged", vec![b"F\0\0\x0812345678", b"F\x01\0\x0812345678", SEND]),
        ("of-another-kind", vec![b"K\xff\x09\x03abc", b"B\0\x01\x05\0\0\0\0\0", b"\x33\x09\0\0\0\x04\x01\0\0\0\0"]),
        ("no-http2", vec![b"\x33\x0bHTTP/1.1 40"]),
    ];
    let mut files: Files =
        scripts.into_iter().map(|(name, script)| (name.to_owned(), [&asked, &script.concat()[..]].concat())).collect();
    files.insert("from-the-beginning".into(), [ASK, SEND, SETTINGS, SEND, HEAD].concat());
    files
}

/// Answers over HTTP/1.1 (`fuzz/oracles/http1.rs`): the size of the parts they arrive in, and what is said.
fn replies() -> Files {
    let said: [(&str, u8, &str); 18] = [
        ("whole", 0, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes"),
        ("byte-by-byte", 1, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"),
        ("until-it-hangs-up", 7, "HTTP/1.1 200 OK\r\n\r\nall that there is"),
        ("of-1.0", 0, "HTTP/1.0 200 OK\r\n\r\nold"),
        ("in-chunks", 3, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n"),
        (
            "in-chunks-with-trailers",
            0,
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\ntrailer: x\r\n\r\nA;a=b\r\n0123456789\r\n0\r\nx: y\r\n\r\n",
        ),
        ("not-in-chunks", 0, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, gzip\r\n\r\n3\r\nyes"),
        (
            "announced-first",
            5,
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        ),
        ("switched", 0, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"),
        ("later", 0, "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n"),
        ("unchanged", 0, "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n"),
        ("lengths", 0, "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\ncontent-length: 2\r\n\r\nno"),
        ("other-lengths", 0, "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nno"),
        ("cut-short", 0, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nno"),
        ("too-long", 0, "HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\nno"),
        ("packed", 0, "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nno"),
        ("more-behind", 0, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nnoHTTP/1.1 200 OK\r\n\r\n"),
        ("no-http", 0, "SSH-2.0-OpenSSH_9.9\r\n"),
    ];
    let with_size = |(name, size, text): (&str, u8, &str)| (name.to_owned(), [&[size], text.as_bytes()].concat());
    said.into_iter().map(with_size).collect()
}

/// Scripts of `fuzz/oracles/hpack.rs`: RFC 7541's examples, and what is written.
fn blocks() -> Files {
    let read: [(&str, &[u8]); 9] = [
        ("literal-indexed", b"\x40\x0acustom-key\x0dcustom-header"),
        ("literal", b"\x04\x0c/sample/path"),
        ("literal-never-indexed", b"\x10\x08password\x06secret"),
        ("static", b"\x82\x86\x84"),
        ("huffman", b"\x48\x82\x64\x02\x58\x85\xae\xc3\x77\x1a\x4b\x61\x03abc"),
        ("dynamic", b"\x82\xbe"),
        ("resized", b"\x20\x88"),
        ("grown", b"\x3f\xe1\x1f\x88"),
        ("grpc", b"\x20\x88\x0f\x10\x8b\x1d\x75\xd0\x62\x0d\x26\x3d\x4c\x4d\x65\x64"),
    ];
    let written: [(&str, &[u8]); 4] = [
        ("write-twice", b"\0\x01\x02\x03\x04\x05\x07\x08\0\x01\x02\x03\x04\x05\x09"),
        ("write-without-table", b"\0\x05\x02\x07\0\0\x01\x05\x02\x08\0"),
        ("write-resized", b"\0\x01\x07\0\x07\x20\0\x01\x07\xff\0\x02\x08\0\x02"),
        ("write-foreign", b"\x06\xff\0\x06\x2a\x08\0\x06\0"),
    ];
    let read = read.into_iter().map(|(name, block)| (name.to_owned(), [&[0], block].concat()));
    let written = written.into_iter().map(|(name, script)| (name.to_owned(), [&[1], script].concat()));
    read.chain(written).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).expect("a file of this repository")
}

fn reviews() -> impl Iterator<Item = (String, AdmissionReview)> {
    REVIEWS.into_iter().map(|file| {
        let review = review_json::from_file(file, &read(&format!("examples/reviews/{file}")).into());
        (file.split('.').next().unwrap_or(file).to_owned(), review.expect("an example is a review"))
    })
}

fn written(review: &AdmissionReview, form: HookEncoding) -> Vec<u8> {
    let review = inbound::view(Rope::new([outbound::framed(review)])).expect("a review");
    Encodings::of(&review).get(form).expect("it can be written").chunks().concat()
}

/// JSON that the grammar allows and clients do not write.
fn odd_json() -> Files {
    let review = |request: &str| {
        let head = r#""apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview""#;
        let what = r#""kind":{"version":"v1","kind":"K"},"resource":{"version":"v1","resource":"ks"}"#;
        let what = if request.contains("\"kind\":null") { "" } else { what };
        let comma = if what.is_empty() { "" } else { "," };
        format!("{{{head},\"request\":{{\"uid\":\"u\",\"operation\":\"CREATE\"{comma}{what}{request}}}}}").into_bytes()
    };
    let odd = [
        ("escapes", r#","name":"\u00e9\ud83d\ude00\ud800\"\\\/\b\f\n\r\t","n\u0061mespace":"é😀""#),
        ("nulls", r#","name":null,"kind":null,"userInfo":null,"object":null,"dryRun":null,"options":null"#),
        ("numbers", r#","object":{"a":[-0,1.5e+300,1E-7,0.0,123456789012345678901234567890]}"#),
        ("user", r#","userInfo":{"username":"a","uid":"b","groups":["c",null],"extra":{"d/e":["f"],"g":null}}"#),
        (
            "asked",
            r#","requestKind":{"kind":"K","group":null,"version":"v2"},"subResource":"s","requestSubResource":"s",
               "requestResource":{"version":"v2","resource":"ks"}"#,
        ),
        ("asked-nothing", r#","requestKind":{},"requestResource":{}"#),
        ("empty", r#","name":"","subResource":"","namespace":"""#),
        ("blanks", " ,\n\t\"object\" :\r { \"a\" : [ ] , \"b\" : { } } , \"unknown\" : [ true , false ] "),
        ("field-twice", r#","name":"a","name":"b""#),
        ("nested", r#","object":{"a":[[[[[[[[[[[[{"b":[[[[[[[[[]]]]]]]]]}]]]]]]]]]]]]}"#),
    ];
    odd.into_iter().map(|(name, request)| (format!("odd-{name}"), review(request))).collect()
}

/// Protobuf that the format allows and clients do not write.
fn odd_protobuf() -> Files {
    let raw = |bytes: &'static [u8]| Some(RawExtension { raw: Some(Bytes::from_static(bytes)) });
    let text = |text: &str| Some(text.to_owned());
    let request = AdmissionRequest {
        uid: text("u"),
        operation: text("CREATE"),
        kind: Some(GroupVersionKind { version: text("v1"), kind: text("K"), ..Default::default() }),
        resource: Some(GroupVersionResource { version: text("v1"), resource: text("ks"), ..Default::default() }),
        ..Default::default()
    };
    let review = |request: AdmissionRequest| AdmissionReview { request: Some(request), response: None };
    let framed = |request: AdmissionRequest| outbound::framed(&review(request)).to_vec();
    // Two halves of one review, a message in it twice, and groups, which only old writers have.
    let mut merged = framed(request.clone());
    merged.extend(review(AdmissionRequest { object: raw(b"{}"), ..Default::default() }).encode_to_vec());
    let mut kinds = request.encode_to_vec();
    kinds.extend(AdmissionRequest { kind: request.kind.clone(), ..Default::default() }.encode_to_vec());
    let mut twice = vec![0; 5];
    prost::encoding::bytes::encode(1, &kinds, &mut twice);
    let mut groups = framed(request.clone());
    groups.extend([0xa3, 0x06, 0x08, 0x01, 0x13, 0x14, 0xa4, 0x06, 0xa9, 0x06, 1, 2, 3, 4, 5, 6, 7, 8]);
    [
        ("no-json", framed(AdmissionRequest { object: raw(b"\x0a\x03abc"), ..request.clone() })),
        ("blanks", framed(AdmissionRequest { old_object: raw(b" {\"a\":1}\n"), ..request.clone() })),
        // As Go's marshaller writes what is not set.
        ("empty", framed(AdmissionRequest { object: raw(b""), options: Some(RawExtension { raw: None }), ..request })),
        ("merged", merged),
        ("kind-twice", twice),
        ("nothing-to-look-at", framed(AdmissionRequest { uid: text("u"), ..Default::default() })),
        ("groups", groups),
    ]
    .map(|(name, bytes)| (format!("odd-{name}"), bytes))
    .into()
}

/// The same in envelopes, where they can be written.
fn odd_envelopes() -> Files {
    let wrapped = |(name, frame): (String, Vec<u8>)| {
        let review = inbound::view(Rope::new([frame.into()])).ok()?;
        let form = HookEncoding::Protobuf(ReviewVersion::V1beta1);
        Some((name, Encodings::of(&review).get(form).expect("it can be wrapped").chunks().concat()))
    };
    odd_protobuf().into_iter().filter_map(wrapped).collect()
}

/// An object and patches, a line each.
fn patches() -> Files {
    let vectors: Value = serde_json::from_str(&read("tests/vectors/json_patch.json")).expect("the vectors are JSON");
    let cases = vectors["cases"].as_array().expect("cases");
    let mut files: Files = cases
        .iter()
        .map(|case| (id(case).to_owned(), format!("{}\n{}", case["document"], case["patch"]).into_bytes()))
        .collect();
    let pod: Value = serde_json::from_str(&read("examples/reviews/pod-create.json")).expect("a review");
    let sidecar = json!([
        {"op": "test", "path": "/kind", "value": "Pod"},
        {"op": "add", "path": "/spec/containers/-", "value": {"name": "proxy", "image": "proxy@sha256:0"}},
        {"op": "add", "path": "/metadata/annotations", "value": {"sidecar.example.com/status": "injected"}},
    ]);
    let undone = json!([
        {"op": "move", "from": "/spec/containers/-1", "path": "/spec/containers/0"},
        {"op": "remove", "path": "/spec/containers/0"},
        {"op": "remove", "path": "/metadata/annotations/sidecar.example.com~1status"},
    ]);
    files.insert("pod-sidecar".into(), format!("{}\n{sidecar}\n{undone}", pod["request"]["object"]).into());
    for (name, lines) in [
        ("odd-keys-twice", "{\"a\":1,\"a\":{\"b\":2,\"b\":3}}\n[{\"op\":\"remove\",\"path\":\"/a/b\"}]"),
        ("odd-root", "{\"kind\":\"A\"}\n[{\"op\":\"replace\",\"path\":\"\",\"value\":[1]}]\n[]"),
        ("odd-blanks", " { \"a\" : [ 1 , 2 ] } \n [ { \"op\":\"copy\", \"from\":\"/a\", \"path\":\"/a/1\" } ] "),
    ] {
        files.insert(name.into(), lines.into());
    }
    files
}

fn configurations() -> Files {
    let mut files = Files::new();
    for file in ["minimal/gatepost", "mtls/gatepost", "namespaces/hooks", "namespaces/namespaces", "webhooks/policy"] {
        files.insert(
            format!("example-{}", file.replace('/', "-")),
            read(&format!("examples/config/{file}.yaml")).into(),
        );
    }
    let table = |name: &str| -> Value {
        serde_json::from_str(&read(&format!("tests/vectors/{name}.json"))).expect("the vectors are JSON")
    };
    for case in table("config_validation_create")["cases"].as_array().expect("cases") {
        let document = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": case["kinds"][0],
            "metadata": {"name": "config"}, "webhooks": case["webhooks"],
        });
        files.insert(format!("validation-{}", id(case)), document.to_string().into());
    }
    for (of, file, key) in [("rules", "rules", "rule_full"), ("selectors", "label_selector_match", "label_selector")] {
        let hook = |(index, case): (usize, &Value)| {
            let mut hook = json!({
                "name": format!("h{index}.example.com"), "clientConfig": {"url": format!("grpc://127.0.0.1:{index}1")},
                "failurePolicy": "Ignore", "timeout": "1500ms", "rules": [{
                    "operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods"],
                }],
            });
            if of == "rules" {
                hook["rules"][0] = case[key].clone();
            } else {
                hook["objectSelector"] = case[key].clone();
            }
            hook
        };
        let hooks: Vec<Value> = table(file)["cases"].as_array().expect("cases").iter().enumerate().map(hook).collect();
        for (part, hooks) in hooks.chunks(12).enumerate() {
            let document = json!({
                "apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration",
                "metadata": {"name": of}, "externalAdmissionHooks": hooks,
            });
            let yaml = serde_saphyr::to_string(&document).expect("YAML");
            files.insert(format!("{of}-{part}"), yaml.into());
        }
    }
    files.insert("odd-yaml".into(), ODD_YAML.into());
    files
}

/// YAML that the grammar allows and people do write: anchors, merges, several documents, blocks of text, comments.
const ODD_YAML: &str = "%YAML 1.2
---
# Two namespaces in a list, then a configuration with an anchor.
apiVersion: v1
kind: NamespaceList
items:
- {metadata: {name: a, labels: {\"k\": 'v'}}}
- metadata:
    name: b
---
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: anchors}
resourceInitializers:
- {apiGroup: apps, resource: deployments, initializers: [{name: a.example.com}]}
externalAdmissionHooks:
- &first
  name: one.example.com
  clientConfig: {url: grpc+unix:///run/one.sock}
  rules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods, pods/*]}]
- <<: *first
  name: >-
    two.example.com
...
";

fn answers() -> Files {
    let vectors: Value =
        serde_json::from_str(&read("tests/vectors/verify_response.json")).expect("the vectors are JSON");
    let mut files: Files = vectors["cases"]
        .as_array()
        .expect("cases")
        .iter()
        .map(|case| {
            let mut review = case["review"].clone();
            let response = review.get_mut("response").and_then(Value::as_object_mut);
            if let Some(response) = response.filter(|response| response.contains_key("patch_text")) {
                response.remove("patch_text");
                response.insert("patch".into(), "W3t9XQ==".into());
            }
            (format!("table-{}", id(case)), review.to_string().into())
        })
        .collect();
    let refusal = StatusInfo {
        code: 422,
        status: "Failure".into(),
        reason: "Invalid".into(),
        message: "no".into(),
        details_name: "n".into(),
        details_kind: "Pod".into(),
        retry_after_seconds: 3,
        ..StatusInfo::default()
    };
    let verdict = Verdict {
        refusal: Some(refusal),
        patch: None,
        warnings: vec!["a warning".into(), "é".into()],
        audit_annotations: vec![("h.example.com/key".into(), "value".into())],
    };
    for (name, verdict) in [("yes", Verdict::default()), ("no", verdict)] {
        let json = outbound::json(ReviewVersion::V1, "123", &verdict);
        let value: Value = serde_json::from_slice(&json).expect("JSON");
        files.insert(format!("{name}-yaml"), serde_saphyr::to_string(&value).expect("YAML").into());
        files.insert(format!("{name}-json"), json.into());
        files.insert(format!("{name}-envelope"), outbound::envelope(ReviewVersion::V1, "123", &verdict).into());
    }
    let odd = [
        ("seeds", r#"{"status":{"status":"Failure","message":"too big","reason":"Forbidden","code":403}}"#),
        ("status", r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcd is down","code":500}"#),
        (
            "twice",
            r#"{"response":{"uid":"1","uid":"123","allowed":false,"allowed":true,"warnings":["a"],"warnings":[null]}}"#,
        ),
        (
            "causes",
            r#"{"status":{"details":{"causes":[{"reason":"R","message":"M","field":"F"},null,{}],"retryAfterSeconds":-0}}}"#,
        ),
        (
            "merged",
            r#"{"response":{"uid":"123","allowed":true,"status":{"message":"m","details":{"name":"n","causes":[{"field":"a"},{"field":"b"}]}},
            "warnings":["a","b"],"auditAnnotations":{"k":"1"},"patch":"W10="},"response":{"allowed":false,"uid":null,"patch":[],
            "status":{"code":403,"metadata":{"continue":"c","remainingItemCount":7},"details":{"causes":[{"reason":"R"}],"causes":[null,null]}},
            "warnings":["c"],"warnings":[null,null],"auditAnnotations":{"l":null}}}"#,
        ),
        (
            "request",
            r#"{"KIND":"AdmissionReview","request":{"uid":"123","kind":{"group":null},"userInfo":{"groups":["g",null],"extra":{"k":["v"]}},
            "object":7,"dryRun":false,"other":[]},"status":5,"response":{"allowed":true,"patch":[1,null,255],"status":{"details":{}}}}"#,
        ),
        ("mistyped", r#"{"request":{"userInfo":{"extra":{"k":"v"}}},"response":{"allowed":true,"patch":"W1=="}}"#),
        ("documents", "response: {allowed: true}\n---\nresponse: {allowed: false}\n---\n[\n"),
        ("page", "<html><body>502 Bad Gateway</body></html>\r\n"),
        ("bomb", "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nresponse: {allowed: true}\n"),
    ];
    files.extend(odd.map(|(name, text)| (format!("odd-{name}"), text.into())));
    files
}

fn id(case: &Value) -> &str {
    case["id"].as_str().expect("an id")
}
