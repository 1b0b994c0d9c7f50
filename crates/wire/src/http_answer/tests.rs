use prost::Message;

use super::*;
use crate::{
    outbound,
    pb::k8s::io::{
        api::admission::v1::{AdmissionResponse, AdmissionReview},
        apimachinery::pkg::apis::meta::v1::Status,
    },
};
use gatepost_api::{HookType, StatusCause, StatusInfo, StatusMetadata};

const V1: HttpForm = HttpForm::Json(ReviewVersion::V1);
const V1BETA1: HttpForm = HttpForm::Json(ReviewVersion::V1beta1);

fn of(form: HttpForm, status: u16, body: impl AsRef<[u8]>) -> Result<Answer, CallFailure> {
    decode(HookType::Validating, form, "123", status, Bytes::copy_from_slice(body.as_ref()))
}

fn error_of(form: HttpForm, status: u16, body: &str) -> String {
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
        "status":{"metadata":{"resourceVersion":"5"},"code":422,"status":"Failure","reason":"Invalid","message":"no",
        "details":{"name":"n","group":"g","kind":"k","uid":"u","retryAfterSeconds":3,
        "causes":[{"reason":"R","message":"M","field":"F"},{}]}}}"#);
    let wanted = Answer {
        denial: Some(Denial(Box::new(StatusInfo {
            code: 422,
            status: "Failure".into(),
            reason: "Invalid".into(),
            message: "no".into(),
            metadata: Some(Box::new(StatusMetadata { resource_version: "5".into(), ..StatusMetadata::default() })),
            has_details: true,
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
        let shown = error_of(form, 200, &body);
        assert!(shown.contains(wanted), "{shown:?} should say {wanted:?} of {body:?}");
    }
    assert_eq!(of(V1BETA1, 200, r#"{"response":{"allowed":true,"uid":"9","patch":"eA=="}}"#), Ok(Answer::default()));
    assert!(of(V1, 200, v1(r#"{"uid":"123","allowed":false,"allowed":true}"#)).unwrap().denial.is_none(), "last wins");
    let bomb = format!("a: &a [x,x]\n{}", (0..400).map(|n| format!("k{n}: [*a,*a]\n")).collect::<String>());
    assert!(error_of(V1, 200, &bomb).contains("neither JSON nor YAML"));
}

/// Result of an answer with these fields beside its type: `Ok` with the denial's code, message, reason and count of
/// causes, then warnings; or its failure. Asked of kube-apiserver's own decoder and checks (v1.36.3).
#[test]
fn keys_given_twice_merge_as_in_gos_decoder() {
    let said = |response: &str| {
        let body = format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",{response}}}"#);
        of(V1, 200, body).map(|answer| {
            let denial = answer.denial.map(|denial| {
                let StatusInfo { code, message, reason, details_name, causes, .. } = *denial.0;
                let causes = causes.into_iter().map(|cause| [cause.reason, cause.message, cause.field].join("/"));
                [vec![code.to_string(), message, reason, details_name], causes.collect()].concat().join(" ")
            });
            (denial.unwrap_or("yes".into()), answer.warnings.join(","), answer.audit_annotations)
        })
    };
    let yes =
        |response: &str| said(&format!(r#""response":{{"uid":"123","allowed":true,{response}}}"#)).map(|said| said.1);
    let no = |status: &str| said(&format!(r#""response":{{"uid":"123",{status}}}"#)).map(|said| said.0);
    // One after the other, with what the first has said and the second has not.
    let twice =
        r#""response":{"uid":"123","allowed":false,"status":{"code":403,"message":"m"}},"response":{"allowed":true}"#;
    assert_eq!(said(twice).map(|said| said.0), Ok("yes".into()));
    let twice = r#""response":{"uid":"123","allowed":false,"status":{"code":403,"message":"m"}},"response":{"status":{"reason":"R"}}"#;
    assert_eq!(said(twice).map(|said| said.0), Ok("403 m R ".into()));
    let gone = r#""response":{"uid":"123","allowed":true},"response":null,"response":{"uid":"123"}"#;
    assert_eq!(said(gone).map(|said| said.0), Ok("0   ".into()), "null empties");
    let nulls = r#""response":{"uid":"123","allowed":true,"uid":null,"allowed":null}"#;
    assert_eq!(said(nulls).map(|said| said.0), Ok("yes".into()), "and changes no text, number or flag");
    for (status, wanted) in [
        (r#""status":{"code":403,"message":"m"},"status":{"code":null,"reason":"R"}"#, "403 m R "),
        (r#""status":{"code":403,"message":"m"},"status":null,"status":{"reason":"R"}"#, "0  R "),
        (r#""status":{"details":{"name":"n"},"details":{"kind":"k"}}"#, "0   n"),
        (r#""status":{"details":{"name":"n"},"details":null,"details":{"kind":"k"}}"#, "0   "),
        (
            r#""status":{"details":{"causes":[{"reason":"a","field":"f"},{"reason":"b"}],"causes":[{"reason":"c"},null]}}"#,
            "0    c//f b//",
        ),
    ] {
        assert_eq!(no(status), Ok(wanted.into()), "{status}");
    }
    for (warnings, wanted) in [
        (r#""warnings":["a","b"],"warnings":["c"]"#, "c"),
        (r#""warnings":["a","b"],"warnings":[null]"#, "a"),
        (r#""warnings":["a","b"],"warnings":["c"],"warnings":[null,null]"#, "c,b"),
        (r#""warnings":["a","b"],"warnings":[],"warnings":[null,null]"#, ","),
        (r#""warnings":["a"],"warnings":null"#, ""),
    ] {
        assert_eq!(yes(warnings), Ok(wanted.into()), "{warnings}");
    }
    let twice =
        r#""response":{"uid":"123","allowed":true,"auditAnnotations":{"a":"1","b":"2"},"auditAnnotations":{"b":null}}"#;
    let annotations = [("a", "1"), ("b", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(said(twice).map(|said| said.2), Ok(annotations.to_vec()));
}

/// As kube-apiserver (v1.36.3) takes these in the answer of a validating webhook.
#[test]
fn what_is_not_looked_at_has_its_type_all_the_same() {
    let review = |fields: &str| {
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"123","allowed":true}},{fields}}}"#
        )
    };
    let answer = |fields: &str| v1(&format!(r#"{{"uid":"123","allowed":true,{fields}}}"#));
    let request = |field: &str| review(&format!(r#""request":{{{field}}}"#));
    for good in [
        review(r#""request":null"#),
        review(r#""request":{},"request":{"other":7}"#),
        review(r#""status":7,"spec":[]"#),
        request(r#""object":7,"options":[],"oldObject":null"#),
        request(r#""userInfo":{"username":null,"groups":["a",null],"extra":{"k":["v"],"l":null}},"dryRun":null"#),
        request(r#""kind":{"group":"g","version":"v1","kind":"K","more":{}},"requestKind":null"#),
        answer(r#""patch":[]"#),
        answer(r#""patch":null"#),
        answer(r#""patch":"""#),
        answer(r#""patch":"\r\n""#),
        answer(r#""status":{"metadata":null,"details":null,"kind":"Status","apiVersion":"v1"}"#),
        answer(r#""status":{"metadata":{"remainingItemCount":-9223372036854775808,"continue":null,"labels":7}}"#),
    ] {
        assert!(of(V1, 200, &good).is_ok_and(|answer| answer.denial.is_none()), "{good}: {:?}", of(V1, 200, &good));
    }
    for bad in [
        review(r#""request":7"#),
        review(r#""request":{"uid":7},"request":null"#),
        request(r#""uid":7"#),
        request(r#""kind":"Pod""#),
        request(r#""resource":{"group":[]}"#),
        request(r#""requestResource":[]"#),
        request(r#""dryRun":"false""#),
        request(r#""userInfo":{"groups":"a"}"#),
        request(r#""userInfo":{"groups":[1]}"#),
        request(r#""userInfo":{"extra":{"k":"v"}}"#),
        request(r#""operation":{}"#),
        answer(r#""patch":"W10""#),
        answer(r#""patch":"W10=="#),
        answer(r#""patch":"W10=x""#),
        answer(r#""patch":"!""#),
        answer(r#""patch":[256]"#),
        answer(r#""patch":[1.0]"#),
        answer(r#""patch":["a"]"#),
        answer(r#""patch":{}"#),
        answer(r#""patchType":7"#),
        answer(r#""status":{"metadata":[]}"#),
        answer(r#""status":{"metadata":{"resourceVersion":5}}"#),
        answer(r#""status":{"metadata":{"remainingItemCount":"5"}}"#),
        answer(r#""status":{"metadata":{"remainingItemCount":9223372036854775808}}"#),
        answer(r#""status":{"kind":7}"#),
        answer(r#""status":{"details":{"causes":[{"field":7}]}}"#),
    ] {
        assert_eq!(of(V1, 200, &bad).map_err(|failure| failure.kind().as_str()), Err("undecodable"), "{bad}");
        assert!(error_of(V1, 200, &bad).len() < 200);
    }
    for patch in
        [r#""patch":"W10=""#, r#""patch":"W1\n0=\n""#, r#""patch":"W11=""#, r#""patch":[91,93]"#, r#""patch":[null]"#]
    {
        assert_eq!(of(V1, 200, answer(patch)), Err(CallFailure::PatchFromValidating("patch")), "{patch}");
        let v1beta1 = format!(r#"{{"response":{{"allowed":true,{patch}}}}}"#);
        assert_eq!(of(V1BETA1, 200, v1beta1), Ok(Answer::default()), "{patch}");
    }
}

/// The type by which an answer is decoded is found by Go's own decoder, to which case is nothing; the one that is
/// checked later is read like the rest.
#[test]
fn an_answers_type_is_found_as_upstream_finds_it() {
    let of = |form, api_version: &str, kind: &str| {
        let body = format!(r#"{{"{api_version}","{kind}","response":{{"uid":"123","allowed":true}}}}"#);
        of(form, 200, body.replace('=', r#"":""#)).map(drop).map_err(|failure| failure.kind().as_str())
    };
    let good = ("apiVersion=admission.k8s.io/v1beta1", "kind=AdmissionReview");
    for (api_version, kind, wanted) in [
        (good.0, good.1, Ok(())),
        ("APIVERSION=admission.k8s.io/v1beta1", "Kind=AdmissionReview", Ok(())),
        ("apiVersion=/", "kind=", Ok(())),
        ("apiVersion=admission.k8s.io/", good.1, Ok(())),
        ("apiVersion=admission.k8s.io", good.1, Err("invalid")),
        ("apiVersion=a/b/c", good.1, Err("undecodable")),
        (good.0, "kind=Review", Err("invalid")),
        (good.0, "\\u212aind=Review", Err("invalid")),
        ("apiver\\u017fion=v1", good.1, Err("invalid")),
        ("apiVersion=v1", "apiversion=admission.k8s.io/v1beta1", Ok(())),
        ("apiversion=admission.k8s.io/v1beta1", "apiVersion=v1", Err("invalid")),
    ] {
        assert_eq!(of(V1BETA1, api_version, kind), wanted, "{api_version} {kind}");
    }
    assert_eq!(of(V1, "ApiVersion=admission.k8s.io/v1", good.1), Err("invalid"), "checked as it is stated");
    assert_eq!(of(V1, "apiVersion=admission.k8s.io/", good.1), Err("invalid"));
}

#[test]
fn of_several_yaml_documents_the_first_is_the_answer() {
    let body = |first: &str, rest: &str| {
        format!("apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nresponse: {first}\n---\n{rest}")
    };
    let yes = body("{uid: '123', allowed: true}", "response: {allowed: false}\n---\n[\n");
    assert_eq!(of(V1, 200, yes), Ok(Answer::default()));
    let no = body("{uid: '123', allowed: false}", "response: {uid: '123', allowed: true}\n");
    assert!(of(V1, 200, no).is_ok_and(|answer| answer.denial.is_some()));
    assert!(of(V1, 200, v1(r#"{"uid":"123","allowed":true}"#) + "\n{}").is_err(), "of several in JSON none is");
}

#[test]
fn other_statuses_are_call_failures_with_what_was_said() {
    let failure = |form, status, body: &str| of(form, status, body).unwrap_err();
    let http = |status, message: &str| CallFailure::Http { status, message: message.into() };
    for status in [199, 207, 302, 400, 404, 500] {
        assert_eq!(
            failure(V1, status, &v1(r#"{"uid":"123","allowed":true}"#)).kind().as_str(),
            "http_status",
            "{status}"
        );
    }
    for status in [301, 302, 303, 307, 308] {
        let shown = failure(V1, status, "<a href=\"/elsewhere\">").to_string();
        assert!(
            shown.contains(&format!("HTTP status {status}: a redirect, and redirects are not followed")),
            "{shown}"
        );
    }
    assert_eq!(failure(V1, 304, ""), http(304, ""));
    assert_eq!(failure(V1, 503, ""), http(503, ""));
    assert_eq!(failure(V1, 404, " page\nnot found\n"), http(404, "page not found"));
    assert_eq!(failure(V1, 500, r#"{"kind":"Status","message":"etcd is down"}"#), http(500, "etcd is down"));
    let other = r#"{"apiVersion":"example.com/v1","kind":"Status","message":"etcd is down"}"#;
    assert_eq!(failure(V1, 500, other), http(500, other));
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
        let rope = crate::envelope::wrap(ReviewVersion::V1, &Rope::new([message.into()]), 0..len);
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
            "JSON is recognized"
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
