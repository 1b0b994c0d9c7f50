use proptest::prelude::*;

use super::*;
use crate::{pb::k8s::io::api::admission::v1::AdmissionRequest, review_json};
use gatepost_api::Operation;

const REVIEW: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",
 "request":{"uid":"u-1","kind":{"group":"apps","version":"v1","kind":"Deployment"},
  "resource":{"group":"apps","version":"v1","resource":"deployments"},"subResource":"scale",
  "requestKind":{"group":"ext","version":"v1beta1","kind":"Deployment"},
  "requestResource":{"group":"ext","version":"v1beta1","resource":"deployments"},"requestSubResource":"scale",
  "name":"web","namespace":"shop","operation":"UPDATE",
  "userInfo":{"username":"ann","uid":"7","groups":["dev","ops"],"extra":{"a":["b","c"]}} ,
  "object":{ "n" : 1.50,   "s": "\u00e9}" } ,"oldObject":{"kind":"Old"},"dryRun":true,"options":{"kind":"UpdateOptions"}}}"#;

fn error_of(text: &str) -> String {
    view(Bytes::copy_from_slice(text.as_bytes())).unwrap_err().to_string()
}

fn at(review: &Review, place: &NullableRange) -> Option<Bytes> {
    place.clone().map(|at| review.bytes.copy_of(at))
}

#[test]
fn ends_of_what_is_large_in_an_object_are_noted_from_where_it_begins() {
    let large = format!("[\"{}\"]", "x".repeat(5_000));
    let with =
        |old: &str| REVIEW.replace(r#""s": "\u00e9}""#, &format!(r#""s":{large}"#)).replace(r#"{"kind":"Old"}"#, old);
    let review = view(with(&format!(r#"{{"o":{large}}}"#)).into()).unwrap();
    for (place, ends) in [(&review.object, &review.object_ends), (&review.old_object, &review.old_object_ends)] {
        let object = at(&review, place).unwrap();
        let ends = ends.as_ref().unwrap();
        assert_eq!((ends.len(), ends[0]), (2, (0, object.len() as u32)));
        assert_eq!(&object[ends[1].0 as usize..ends[1].1 as usize], large.as_bytes());
    }
    assert_eq!(view(with("null").into()).unwrap().old_object_ends, None);
    assert_eq!(view(REVIEW.into()).unwrap().object_ends, None, "nothing in it is large");
    let patched = crate::encodings::with_object(&review, &Rope::new([Bytes::from_static(b"{}")])).unwrap();
    assert_eq!(patched.object_ends, None, "it is another object");
    assert_eq!(patched.old_object_ends, review.old_object_ends);
}

/// serde's reading of the same text: the oracle.
fn check_against_serde(body: &Bytes, review: &Review) {
    let oracle: AdmissionRequest = review_json::from_json(body).unwrap().request.unwrap();
    assert_eq!(review.uid, oracle.uid());
    assert_eq!(review.name, oracle.name());
    assert_eq!(review.namespace, oracle.namespace());
    assert_eq!(review.sub_resource, oracle.sub_resource());
    assert_eq!(review.request_sub_resource, oracle.request_sub_resource());
    assert_eq!(review.operation.as_str(), oracle.operation());
    assert_eq!(review.dry_run, oracle.dry_run());
    let kind = |kind: &Gvk| [&kind.group, &kind.version, &kind.kind].map(|text| Some(text.to_string()));
    let resource = |of: &Gvr| [&of.group, &of.version, &of.resource].map(|text| Some(text.to_string()));
    assert_eq!(Some(kind(&review.kind)), oracle.kind.map(|kind| [kind.group, kind.version, kind.kind]));
    assert_eq!(review.request_kind.as_ref().map(kind), oracle.request_kind.map(|of| [of.group, of.version, of.kind]));
    assert_eq!(Some(resource(&review.resource)), oracle.resource.map(|of| [of.group, of.version, of.resource]));
    assert_eq!(
        review.request_resource.as_ref().map(resource),
        oracle.request_resource.map(|of| [of.group, of.version, of.resource])
    );
    let raw = |extension: Option<crate::pb::k8s::io::apimachinery::pkg::runtime::RawExtension>| extension?.raw;
    for (place, wanted) in [
        (&review.object, raw(oracle.object)),
        (&review.old_object, raw(oracle.old_object)),
        (&review.options, raw(oracle.options)),
    ] {
        let ours = at(review, place);
        assert_eq!(ours, wanted);
        assert_eq!(ours.map(|bytes| bytes.as_ptr()), wanted.map(|bytes| bytes.as_ptr()), "in the body's buffer");
    }
    let user = oracle.user_info.unwrap();
    assert_eq!(review.username, user.username());
    let ours = at(review, &review.user).unwrap();
    let ours = std::str::from_utf8(&ours).unwrap();
    assert_eq!(user::from_json(&mut Cursor::new(ours)), Ok(Some(user)));
    assert!(ours.ends_with('}'));
}

#[test]
fn a_review_is_read_as_serde_reads_it() {
    let body = Bytes::from_static(REVIEW.as_bytes());
    let review = view(body.clone()).unwrap();
    check_against_serde(&body, &review);
    assert_eq!((review.message.clone(), review.encoding), (0..REVIEW.len(), Encoding::Json(ReviewVersion::V1)));
    assert!(body.as_ptr_range().contains(&review.name.as_ptr()), "short fields share the body");
    let escaped = REVIEW.replace("\"uid\":\"u-1\"", "\"\\u0075id\":\"u\\u002d\\ud800\"");
    assert_eq!(view(escaped.into()).unwrap().uid, "u-\u{fffd}");
}

#[test]
fn null_and_absent_are_nothing() {
    let bare = |request: &str| {
        let text = format!(
            r#"{{"request":{request},"extra":[1],"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1"}}"#
        );
        view(text.into())
    };
    const WHAT: &str = r#""uid":"u","operation":"DELETE","kind":{"version":"v1","kind":"Thing","group":null},
        "resource":{"version":"v1","resource":"things"}"#;
    let review = bare(&format!(r#"{{{WHAT},"UID":"x","more":{{"uid":[]}}}}"#)).unwrap();
    assert_eq!((review.operation, review.encoding), (Operation::Delete, Encoding::Json(ReviewVersion::V1beta1)));
    let null = bare(&format!(
        r#"{{{WHAT},"subResource":null,"requestKind":null,"requestResource":null,"name":null,
        "userInfo":null,"object":null,"oldObject":null,"options":null,"dryRun":null}}"#,
    ))
    .unwrap();
    for review in [review, null] {
        assert_eq!((review.kind.group, review.resource.group), Default::default());
        assert_eq!((review.request_kind, review.request_resource, review.sub_resource), Default::default());
        assert_eq!((review.user, review.object, review.old_object, review.options), Default::default());
        assert_eq!((review.name, review.username, review.dry_run), Default::default());
    }
    assert_eq!(bare("null").unwrap_err(), ViewError::NoRequest);
    assert_eq!(bare("{}").unwrap_err(), ViewError::NoUid);
    assert_eq!(bare(r#"{"uid":"u","operation":"create"}"#).unwrap_err(), ViewError::Operation);
    let nothing = r#"{"uid":"u","operation":"DELETE","kind":null,"resource":null}"#;
    assert_eq!(bare(nothing).unwrap_err(), ViewError::Lacks("request.kind.version"));
}

#[test]
fn what_is_wrong_is_reported_with_its_field() {
    let with = |from: &str, to: &str| error_of(&REVIEW.replacen(from, to, 1));
    for (from, to, wanted) in [
        (r#""dryRun":true"#, r#""dryRun":"yes""#, "request.dryRun must be a boolean"),
        (r#""name":"web""#, r#""name":7"#, "request.name must be a string"),
        (r#""object":{ "n" : 1.50,   "s": "\u00e9}" }"#, r#""object":[{}]"#, "request.object must be an object"),
        (r#""oldObject":{"kind":"Old"}"#, r#""oldObject":"x""#, "request.oldObject must be an object"),
        (r#""options":{"#, r#""options":true,"x":{"#, "request.options must be an object"),
        (r#"{"group":"apps","version":"v1","kind":"Deployment"}"#, "[]", "request.kind must be an object"),
        (r#""version":"v1","resource""#, r#""version":{},"resource""#, "request.resource.version must be a string"),
        (r#"["dev","ops"]"#, r#"["dev",1]"#, "request.userInfo.groups must be a string"),
        (r#"["b","c"]"#, r#""b""#, "request.userInfo.extra must be an array"),
        (r#""uid":"u-1""#, r#""uid":"u-1","\u0075id":"u-2""#, "request.uid is given twice"),
        (r#""dryRun":true"#, r#""dryRun":null,"dryRun":true"#, "request.dryRun is given twice"),
        (r#""oldObject":{"kind":"Old"}"#, r#""object":{}"#, "request.object is given twice"),
        (r#""kind":"AdmissionReview""#, r#""kind":"AdmissionReview","kind":"AdmissionReview""#, "kind is given twice"),
        (r#""request":"#, r#""request":null,"request":"#, "request is given twice"),
        (r#"{"group":"apps""#, r#"{"group":"","group":"apps""#, "request.kind.group is given twice"),
        (r#""username":"ann""#, r#""username":"ann","username":"bob""#, "request.userInfo.username is given twice"),
        (r#"{"a":["b","c"]}"#, r#"{"a":[],"a":["b"]}"#, "a key of request.userInfo.extra is given twice"),
        ("io/v1\"", "io/v2\"", "apiVersion must be admission.k8s.io/v1 or admission.k8s.io/v1beta1"),
        ("AdmissionReview", "Pod", "kind must be AdmissionReview"),
        (r#""apiVersion":"admission.k8s.io/v1","#, "", "apiVersion must be"),
        (r#""n" : 1.50,"#, r#""n" : 01,"#, "the message is not JSON at byte"),
    ] {
        assert!(REVIEW.contains(from), "{from}");
        let shown = with(from, to);
        assert!(shown.starts_with(wanted), "{shown:?} should say {wanted:?}");
    }
    assert_eq!(
        error_of(&format!("{REVIEW} {{")),
        format!("the message is not JSON at byte {}: there is more after the value", REVIEW.len() + 1)
    );
    assert_eq!(error_of("[]"), "the review must be an object");
    assert_eq!(error_of("null"), "the review must be an object");
    assert!(error_of("").starts_with("the message is not JSON at byte 0"));
    assert_eq!(view(Bytes::from_static(b"{\"\xff")).unwrap_err(), ViewError::NotUtf8(2));
    for end in 0..REVIEW.len() {
        view(Bytes::from_static(&REVIEW.as_bytes()[..end])).unwrap_err();
    }
}

proptest! {
    #[test]
    fn what_is_accepted_is_json_and_nothing_panics(at in 0..REVIEW.len(), byte: u8, insert: bool) {
        let mut bytes = REVIEW.as_bytes().to_vec();
        if insert { bytes.insert(at, byte) } else { bytes[at] = byte }
        let body = Bytes::from(bytes);
        if view(body.clone()).is_ok() {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
        }
    }
}
