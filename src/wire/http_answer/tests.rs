use prost::Message;

use super::*;
use crate::{
    model::{StatusCause, StatusInfo},
    wire::{
        outbound,
        pb::k8s::io::{
            api::admission::v1::{AdmissionResponse, AdmissionReview},
            apimachinery::pkg::apis::meta::v1::Status,
        },
    },
};

const V1: HttpForm = HttpForm::Json(ReviewVersion::V1);
const V1BETA1: HttpForm = HttpForm::Json(ReviewVersion::V1beta1);

fn of(form: HttpForm, status: u16, body: impl AsRef<[u8]>) -> Result<Answer, CallFailure> {
    decode(form, "123", status, Bytes::copy_from_slice(body.as_ref()))
}

fn told(form: HttpForm, status: u16, body: &str) -> String {
    of(form, status, body).unwrap_err().to_string()
}

/// A v1 answer with that response.
fn v1(response: &str) -> String {
    format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{response}}}"#)
}

#[test]
fn every_field_of_a_denial_is_read() {
    let body =
        v1(r#"{"uid":"123","allowed":false,"extra":[{}],"warnings":["a\ud83d","b"],"auditAnnotations":{"k":"v"},
        "status":{"metadata":{},"code":422,"status":"Failure","reason":"Invalid","message":"no",
        "details":{"name":"n","group":"g","kind":"k","uid":"u","retryAfterSeconds":3,
        "causes":[{"reason":"R","message":"M","field":"F"},{}]}}}"#);
    let wanted = Answer {
        denial: Some(Denial(Box::new(StatusInfo {
            code: 422,
            status: "Failure".into(),
            reason: "Invalid".into(),
            message: "no".into(),
            details_name: "n".into(),
            details_group: "g".into(),
            details_kind: "k".into(),
            details_uid: "u".into(),
            causes: vec![
                StatusCause { reason: "R".into(), message: "M".into(), field: "F".into() },
                StatusCause::default(),
            ],
            retry_after_seconds: 3,
        }))),
        warnings: vec!["a\u{fffd}".into(), "b".into()],
        audit_annotations: vec![("k".into(), "v".into())],
        ..Answer::default()
    };
    for status in [200, 201, 206] {
        assert_eq!(of(V1, status, &body).as_ref(), Ok(&wanted));
    }
    let yaml = "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nresponse:\n  uid: '123'\n  allowed: true\n  warnings: [x]\n";
    assert_eq!(of(V1, 200, yaml).map(|answer| (answer.denial, answer.warnings)), Ok((None, vec!["x".into()])));
}

#[test]
fn what_is_no_answer_says_why() {
    for (form, body, wanted) in [
        (V1, String::new(), "the answer cannot be decoded: the body is empty"),
        (V1, " \n".into(), "the body is empty"),
        (V1, "{".into(), "not JSON at byte 1"),
        (V1, "a: [".into(), "neither JSON nor YAML"),
        (V1, "ok".into(), "the answer must be an object"),
        (V1, "[]".into(), "the answer must be an object"),
        (V1, format!("{} x", v1("null")), "there is more after the value"),
        (V1, v1("{}").replace("response", "Response"), "response was absent"),
        (V1, v1(r#"{"uid":"123","allowed":"yes"}"#), "response.allowed must be a boolean"),
        (V1, v1(r#"{"uid":"123","status":{"code":"403"}}"#), "status.code must be an integer of 32 bits"),
        (V1, v1(r#"{"uid":"123","status":{"code":1.5}}"#), "status.code must be an integer of 32 bits"),
        (V1, v1(r#"{"uid":"124","allowed":true}"#), "expected response.uid=\"123\", got \"124\""),
        (V1, v1(r#"{"uid":"123","allowed":true,"patch":"W10="}"#), "may not return response.patch"),
        (V1, v1(r#"{"uid":"123","allowed":true,"patchType":""}"#), "may not return response.patch"),
        (
            V1,
            r#"{"response":{"uid":"123","allowed":true}}"#.into(),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
        ),
        (V1BETA1, v1(r#"{"allowed":true}"#), "expected webhook response of admission.k8s.io/v1beta1"),
        (V1BETA1, r#"{"kind":"Status"}"#.into(), "expected webhook response of admission.k8s.io/v1beta1"),
    ] {
        let told = told(form, 200, &body);
        assert!(told.contains(wanted), "{told:?} should say {wanted:?} of {body:?}");
    }
    assert_eq!(of(V1BETA1, 200, r#"{"response":{"allowed":true,"uid":"9","patch":"x"}}"#), Ok(Answer::default()));
    assert!(of(V1, 200, v1(r#"{"uid":"123","allowed":false,"allowed":true}"#)).unwrap().denial.is_none(), "last wins");
    let bomb = format!("a: &a [x,x]\n{}", (0..400).map(|n| format!("k{n}: [*a,*a]\n")).collect::<String>());
    assert!(told(V1, 200, &bomb).contains("neither JSON nor YAML"));
}

#[test]
fn other_statuses_are_call_failures_with_what_was_said() {
    let failure = |form, status, body: &str| of(form, status, body).unwrap_err();
    let http = |status, message: &str| CallFailure::Http { status, message: message.into() };
    for status in [199, 207, 302, 400, 404, 500] {
        assert_eq!(failure(V1, status, &v1(r#"{"uid":"123","allowed":true}"#)).kind(), "http_status", "{status}");
    }
    assert_eq!(failure(V1, 503, ""), http(503, ""));
    assert_eq!(failure(V1, 404, " page\nnot found\n"), http(404, "page not found"));
    assert_eq!(failure(V1, 500, r#"{"kind":"Status","message":"etcd is down"}"#), http(500, "etcd is down"));
    let long = failure(V1, 500, &"x".repeat(100_000)).to_string();
    assert!(long.len() < 300, "{long}");
    assert_eq!(failure(V1, 204, "").to_string(), "the answer cannot be decoded: the body is empty");
}

#[test]
fn enveloped_answers_are_read() {
    let protobuf = HttpForm::Protobuf(ReviewVersion::V1);
    let enveloped = |response: Option<AdmissionResponse>| {
        let message = AdmissionReview { request: None, response }.encode_to_vec();
        let len = message.len();
        let rope = crate::wire::envelope::wrap(ReviewVersion::V1, &Rope::new([message.into()]), 0..len);
        rope.chunks().concat()
    };
    let no = AdmissionResponse {
        uid: Some("123".into()),
        status: Some(Status { code: Some(403), ..Default::default() }),
        ..Default::default()
    };
    for form in [protobuf, V1] {
        let denial = of(form, 200, enveloped(Some(no.clone()))).unwrap().denial.unwrap();
        assert_eq!(denial.0.code, 403);
        assert_eq!(of(form, 200, enveloped(None)), Err(CallFailure::NoResponse));
        assert!(of(form, 200, b"k8s\0\xff").unwrap_err().to_string().contains("cannot be decoded"));
        assert!(
            of(form, 200, outbound::json(ReviewVersion::V1, "123", &Default::default())).is_ok(),
            "JSON is told apart"
        );
    }
    assert!(of(V1BETA1, 200, enveloped(Some(no))).unwrap_err().to_string().contains("expected webhook response of"));
    assert_eq!(of(protobuf, 204, ""), Ok(Answer::default()));
    assert!(of(protobuf, 200, "").is_err());
}

#[test]
fn the_seeds_contract_is_three_statuses() {
    let legacy = HttpForm::Legacy;
    assert_eq!(of(legacy, 200, "anything"), Ok(Answer::default()));
    assert_eq!(of(legacy, 204, ""), Ok(Answer::default()));
    let no = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","spec":{"x":[]},
        "status":{"status":"Failure","message":"too big","reason":"Forbidden","code":403}}"#;
    let short = r#"{"status":{"status":"Failure","message":"too big","reason":"Forbidden","code":403}}"#;
    for body in [no, short] {
        let denial = of(legacy, 400, body).unwrap().denial.unwrap();
        assert_eq!((denial.0.code, &*denial.0.message, &*denial.0.reason), (403, "too big", "Forbidden"));
    }
    for (status, body, message) in [
        (400, "Bad Request", "Bad Request"),
        (400, "{}", "{}"),
        (400, r#"{"kind":"Status","status":"Failure","message":"cannot parse"}"#, "cannot parse"),
        (201, "", ""),
        (500, "oops", "oops"),
    ] {
        assert_eq!(of(legacy, status, body), Err(CallFailure::Http { status, message: message.into() }));
    }
}
