//! Worst cases: inputs that make each parser of callers' and hooks' bytes work hardest, at any size.
//!
//! `benches/worst_cases.rs` measures them, `tests/linear_time/parsers_take_linear_time.rs` shows that their time is
//! linear. Whether an input is taken or refused does not matter: it is looked through all the same.

use std::{hint::black_box, time::Duration};

use bytes::Bytes;
use gatepost::review::{CallRecord, Decider, Ending, combine};
use gatepost_api::{FailurePolicy, HookType, HttpForm, ReviewVersion, Rope};
use gatepost_wire::{
    answer,
    encodings::{Encodings, HookEncoding},
    envelope, groups, http_answer, inbound, json_view, metadata,
    pb::k8s::io::{
        api::admission::v1::{AdmissionResponse, AdmissionReview},
        apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails},
    },
};
use prost::Message as _;

/// One parser and what it finds hardest.
#[derive(Clone, Copy)]
pub(crate) struct WorstCase {
    pub(crate) name: &'static str,
    /// Makes an input of about so many bytes, and what is to be measured.
    pub(crate) prepare: fn(usize) -> Box<dyn Fn()>,
}

macro_rules! cases {
    ($($name:literal: $prepare:expr;)*) => {
        /// All of them.
        pub(crate) const ALL: &[WorstCase] = &[$(WorstCase { name: $name, prepare: $prepare }),*];
    };
}

cases! {
    "protobuf, unknown fields": |size| viewed(&repeated(&field(90, b"x"), size), b"");
    "protobuf, unknown fields in pieces of 16 bytes": |size| viewed_in(16, repeated(&field(90, b"x"), size), b"");
    "protobuf, unknown fields of the request, in pieces": |size| {
        viewed_in(16, Vec::new(), &repeated(&field(90, b"x"), size))
    };
    "protobuf, groups of the user, in pieces": |size| {
        viewed_in(16, Vec::new(), &field(8, &repeated(&field(3, b"g"), size)))
    };
    "protobuf, a large object in pieces of 1 KiB": |size| {
        viewed_in(1024, Vec::new(), &field(9, &field(1, &vec![b'x'; size])))
    };
    "protobuf, nested unknown groups, in pieces": |size| viewed_in(16, repeated(&nested(), size), b"");
    "envelope, unknown fields in pieces": |size| {
        let mut bytes = b"k8s\0".to_vec();
        bytes.extend(repeated(&field(90, b"x"), size));
        let rope = in_pieces(16, bytes);
        Box::new(move || drop(black_box(envelope::view(rope.clone()))))
    };
    "user's groups, looked for in pieces": |size| {
        let wanted = ["none".into(), "nobody".into()];
        // A user has an end.
        let (times, size) = (size.div_ceil(1 << 19), size.min(1 << 19));
        let user = field(8, &repeated(&field(3, b"g"), size));
        let review = inbound::view(in_pieces(16, message(b"", &user))).expect("a review");
        Box::new(move || (0..times).for_each(|_| assert!(!groups::any_of(&review, &wanted))))
    };
    "JSON, unknown keys": |size| json_viewed("", &repeated(br#""k":0,"#, size));
    "JSON, blanks": |size| json_viewed("", &vec![b' '; size]);
    "JSON, empty objects": |size| json_viewed("", &within("\"k\":[", "{},", "{}],", size));
    "JSON, brackets": |size| json_viewed("", &within("\"k\":[", &format!("{}{},", "[".repeat(99), "]".repeat(99)), "0],", size));
    "JSON, numbers": |size| json_viewed("", &within("\"k\":[", "1,", "1],", size));
    "JSON, escapes": |size| json_viewed("", &within("\"k\":\"", "\\u00e9\\\"", "\",", size));
    "JSON, an escaped name": |size| json_viewed("", &within("\"name\":\"", "\\n", "\",", size));
    "JSON, extra of the user": |size| json_viewed("", &numbered("\"userInfo\":{\"extra\":{", |n| format!("\"{n}\":[],"), "\"k\":[]}},", size));
    "JSON, groups of the user": |size| json_viewed("", &within("\"userInfo\":{\"groups\":[", "\"g\",", "\"g\"]},", size));
    "JSON, from protobuf": |size| written(HookEncoding::Json(ReviewVersion::V1), size);
    "legacy JSON, from protobuf": |size| written(HookEncoding::Legacy, size);
    "labels, many": |size| labelled(&numbered("{\"metadata\":{\"labels\":{", |n| format!("\"{n}\":\"\","), "\"k\":\"\"}}}", size));
    "labels, given again and again": |size| labelled(&within("{\"metadata\":{", "\"labels\":{\"a\":\"b\"},", "\"k\":0}}", size));
    "metadata, given again and again": |size| labelled(&within("{", "\"metadata\":{\"labels\":{\"a\":\"b\"}},", "\"k\":0}", size));
    "labels, escaped": |size| labelled(&within("{\"metadata\":{\"labels\":{\"a\":\"", "\\n", "\"}}}", size));
    "namespace labels": |size| {
        let pair = |n: usize| field(1, &[field(1, n.to_string().as_bytes()), field(2, b"v")].concat());
        let bytes: Vec<u8> = (0..size / 12).flat_map(pair).collect();
        Box::new(move || drop(black_box(metadata::namespace_labels(&bytes))))
    };
    "gRPC answer, annotations": |size| {
        answered(&(0..size / 14).flat_map(|n| field(5, &[field(1, n.to_string().as_bytes()), field(2, b"v")].concat())).collect::<Vec<_>>())
    };
    "gRPC answer, warnings": |size| answered(&repeated(&field(7, b"w"), size));
    "gRPC answer, causes": |size| answered(&field(3, &field(5, &repeated(&field(4, b""), size))));
    "gRPC answer, status again and again": |size| answered(&repeated(&field(3, &field(3, b"m")), size));
    "JSON answer, annotations": |size| json_answered(&numbered("\"auditAnnotations\":{", |n| format!("\"{n}\":\"\","), "\"k\":\"\"}", size));
    "JSON answer, warnings": |size| json_answered(&within("\"warnings\":[", "\"w\",", "\"w\"]", size));
    "JSON answer, causes": |size| json_answered(&within("\"status\":{\"details\":{\"causes\":[", "{},", "{}]}}", size));
    "JSON answer, status again and again": |size| json_answered(&within("", "\"status\":{\"message\":\"m\"},", "\"k\":0", size));
    "JSON answer, escapes": |size| json_answered(&within("\"status\":{\"message\":\"", "\\u00e9", "\"}", size));
    "JSON answer, a request repeated": |size| {
        let answer = "\"g\"]}},\"response\":{\"uid\":\"u\",\"allowed\":true}}";
        decoded(within("{\"request\":{\"userInfo\":{\"groups\":[", "\"g\",", answer, size))
    };
    "JSON answer, a patch of numbers": |size| json_answered(&within("\"patch\":[", "1,", "1]", size));
    "JSON answer, a patch in base64": |size| json_answered(&within("\"patch\":\"", "AAAA", "\"", size));
    "YAML answer, comments": |size| decoded(repeated(b"# c\n", size));
    "YAML answer, a long text": |size| decoded(within("a: ", "b ", "\n", size));
    "YAML answer, a text over many lines": |size| decoded(within("a: \"", "b\\\n  ", "\"\n", size));
    "YAML answer, keys": |size| decoded(numbered("", |n| format!("k{n}: v\n"), "", size));
    "YAML answer, brackets": |size| decoded(within("a: [", "b, ", "]\n", size));
    "an error page": |size| {
        let page = Bytes::from(repeated(b"<p>", size));
        Box::new(move || drop(black_box(http_answer::decode(HookType::Validating, HttpForm::Json(ReviewVersion::V1), "u", 500, page.clone()))))
    };
    // The rest of an answer after it was decoded.
    "combine, annotations": |size| combined(AdmissionResponse {
        audit_annotations: (0..size / 20).map(|n| (format!("k{n}"), "v".to_owned())).collect(),
        ..AdmissionResponse::default()
    });
    "combine, bad annotations": |size| combined(AdmissionResponse {
        audit_annotations: (0..size / 20).map(|n| (format!("{n}-"), "v".to_owned())).collect(),
        ..AdmissionResponse::default()
    });
    "combine, repeated warnings": |size| combined(AdmissionResponse {
        warnings: (0..size / 4).map(|n| char::from_u32(0x4e00 + n as u32 % 2040).map(String::from).unwrap_or_default()).collect(),
        ..AdmissionResponse::default()
    });
    "combine, long warnings": |size| combined(AdmissionResponse {
        warnings: (0..8).map(|n| format!("{n}{}", "w".repeat(size / 8))).collect(),
        ..AdmissionResponse::default()
    });
    "combine, causes": |size| combined(AdmissionResponse {
        allowed: Some(false),
        status: Some(Status {
            details: Some(StatusDetails { causes: vec![StatusCause::default(); size / 2], ..StatusDetails::default() }),
            ..Status::default()
        }),
        ..AdmissionResponse::default()
    });
}

/// A field of protobuf, made of bytes.
fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::with_capacity(bytes.len() + 8);
    varint(u64::from(number) << 3 | 2, &mut field);
    varint(bytes.len() as u64, &mut field);
    field.extend_from_slice(bytes);
    field
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A group in a group in a group, each of number 15.
fn nested() -> Vec<u8> {
    [[0x7b; 90], [0x7c; 90]].concat()
}

fn repeated(item: &[u8], size: usize) -> Vec<u8> {
    item.repeat(size / item.len())
}

fn within(head: &str, item: &str, tail: &str, size: usize) -> Vec<u8> {
    [head.as_bytes(), &repeated(item.as_bytes(), size), tail.as_bytes()].concat()
}

fn numbered(head: &str, item: impl Fn(usize) -> String, tail: &str, size: usize) -> Vec<u8> {
    let mut bytes = head.as_bytes().to_vec();
    for number in 0.. {
        if bytes.len() >= size {
            break;
        }
        bytes.extend(item(number).into_bytes());
    }
    bytes.extend_from_slice(tail.as_bytes());
    bytes
}

/// A review with these fields beside the request, and in it.
fn message(beside: &[u8], within: &[u8]) -> Vec<u8> {
    let three = |third: &[u8]| [field(1, b"g"), field(2, b"v1"), field(3, third)].concat();
    let request =
        [field(1, b"u"), field(2, &three(b"Thing")), field(3, &three(b"things")), field(7, b"CREATE"), within.to_vec()];
    let body = [field(1, &request.concat()), beside.to_vec()].concat();
    let mut framed = vec![0];
    framed.extend((body.len() as u32).to_be_bytes());
    framed.extend(body);
    framed
}

fn in_pieces(size: usize, bytes: Vec<u8>) -> Rope {
    let bytes = Bytes::from(bytes);
    let cut = |start: usize| bytes.slice(start..bytes.len().min(start + size));
    Rope::new((0..bytes.len()).step_by(size).map(cut).collect::<Vec<_>>())
}

fn viewed(beside: &[u8], within: &[u8]) -> Box<dyn Fn()> {
    viewed_in(usize::MAX >> 1, beside.to_vec(), within)
}

fn viewed_in(size: usize, beside: Vec<u8>, within: &[u8]) -> Box<dyn Fn()> {
    let rope = in_pieces(size, message(&beside, within));
    Box::new(move || drop(black_box(inbound::view(rope.clone()))))
}

fn json_viewed(beside: &str, within: &[u8]) -> Box<dyn Fn()> {
    let head = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",{beside}"request":{{"uid":"u","operation":"CREATE","kind":{{"group":"g","version":"v1","kind":"Thing"}},"resource":{{"group":"g","version":"v1","resource":"things"}},"#
    );
    let body = Bytes::from([head.as_bytes(), within, br#""dryRun":false}}"#].concat());
    Box::new(move || drop(black_box(json_view::view(body.clone()))))
}

/// A protobuf review in pieces, written in the other encoding.
fn written(form: HookEncoding, size: usize) -> Box<dyn Fn()> {
    let object = within("{\"k\":[", "\"\\n\",", "{}]}", size / 2);
    let fields = [field(9, &field(1, &object)), field(8, &repeated(&field(3, b"g"), size.min(1 << 20) / 2))].concat();
    let review = inbound::view(in_pieces(64, message(b"", &fields))).expect("a review");
    Box::new(move || drop(black_box(Encodings::of(&review).get(form))))
}

fn labelled(object: &[u8]) -> Box<dyn Fn()> {
    let (len, rope) = (object.len(), in_pieces(16, object.to_vec()));
    Box::new(move || drop(black_box(metadata::labels(&rope, 0..len))))
}

fn answered(fields: &[u8]) -> Box<dyn Fn()> {
    let message = Bytes::from(field(2, &[&field(1, b"u"), &[0x10, 1][..], fields].concat()));
    Box::new(move || drop(black_box(answer::decode(HookType::Validating, "u", message.clone()))))
}

fn json_answered(fields: &[u8]) -> Box<dyn Fn()> {
    let head = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true,"#;
    decoded([head, fields, b"}}"].concat())
}

fn decoded(body: Vec<u8>) -> Box<dyn Fn()> {
    let body = Bytes::from(body);
    Box::new(move || {
        drop(black_box(http_answer::decode(
            HookType::Validating,
            HttpForm::Json(ReviewVersion::V1),
            "u",
            200,
            body.clone(),
        )))
    })
}

/// The answer of each of two hooks of one name, which therefore share their annotations' keys.
fn combined(response: AdmissionResponse) -> Box<dyn Fn()> {
    let response = AdmissionResponse { uid: Some("u".into()), allowed: response.allowed.or(Some(true)), ..response };
    let review = AdmissionReview { request: None, response: Some(response) };
    let answer = answer::decode(HookType::Validating, "u", review.encode_to_vec().into()).expect("an answer");
    Box::new(move || {
        let ending = || Ending::Answered(answer.clone());
        let call = || CallRecord::new(&Chained, HookType::Validating, ending(), Duration::ZERO);
        drop(black_box(combine(&[call(), call()], false)));
    })
}

/// A hook that may itself be a sidecar.
#[derive(Debug)]
struct Chained;

impl Decider for Chained {
    fn name(&self) -> &str {
        "a.example.com"
    }

    fn id(&self) -> &str {
        self.name()
    }

    fn failure_policy(&self) -> FailurePolicy {
        FailurePolicy::Fail
    }

    fn is_chained(&self) -> bool {
        true
    }
}
