use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::{
    inbound, json_view,
    pb::k8s::io::{
        api::{
            admission::v1::{AdmissionRequest, AdmissionReview},
            authentication::v1::ExtraValue,
        },
        apimachinery::pkg::{
            apis::meta::v1::{GroupVersionKind, GroupVersionResource},
            runtime::RawExtension,
        },
    },
};

const OBJECT: &str = r#"{ "kind":"Deployment", "n": 1.50,"s":"\u00e9\n é" }"#;
const FORMS: [HookEncoding; 5] = [
    HookEncoding::Grpc,
    HookEncoding::Protobuf(ReviewVersion::V1),
    HookEncoding::Protobuf(ReviewVersion::V1beta1),
    HookEncoding::Json(ReviewVersion::V1),
    HookEncoding::Json(ReviewVersion::V1beta1),
];

fn raw(text: &str) -> Option<RawExtension> {
    Some(RawExtension { raw: Some(Bytes::copy_from_slice(text.as_bytes())) })
}

fn request() -> AdmissionRequest {
    let text = |text: &str| Some(text.to_owned());
    let kind = |group, version| {
        Some(GroupVersionKind { group: text(group), version: text(version), kind: text("Deployment") })
    };
    let resource = |group, version| {
        Some(GroupVersionResource { group: text(group), version: text(version), resource: text("deployments") })
    };
    AdmissionRequest {
        uid: text("u-\"1\""),
        kind: kind("apps", "v1"),
        resource: resource("apps", "v1"),
        sub_resource: text("scale"),
        name: text("web"),
        namespace: text("shop"),
        operation: text("UPDATE"),
        user_info: Some(UserInfo {
            username: text("ann\n"),
            uid: text("7"),
            groups: vec!["dev".into(), "é\\".into()],
            extra: [("a/b".into(), ExtraValue { items: vec!["c".into(), String::new()] })].into(),
        }),
        object: raw(OBJECT),
        old_object: raw(r#"{"kind":"Old"}"#),
        dry_run: Some(true),
        options: raw(r#"{"kind":"UpdateOptions"}"#),
        request_kind: kind("ext", "v1beta1"),
        request_resource: resource("ext", "v1beta1"),
        request_sub_resource: text("scale"),
    }
}

fn grpc(request: AdmissionRequest, cut: usize) -> Review {
    let message = crate::outbound::framed(&AdmissionReview { request: Some(request), response: None });
    let cut = cut.min(message.len());
    inbound::view(Rope::new([message.slice(..cut), message.slice(cut..)])).unwrap()
}

/// As a front would receive it: JSON in one piece, protobuf in two.
fn arrived(form: HookEncoding, rope: &Rope) -> Review {
    let whole = Bytes::from(rope.chunks().concat());
    let half = whole.len() / 2;
    let pieces = || Rope::new([whole.slice(..half), whole.slice(half..)]);
    match form {
        HookEncoding::Grpc => inbound::view(pieces()).unwrap(),
        HookEncoding::Protobuf(_) => envelope::view(pieces()).unwrap(),
        HookEncoding::Json(_) => json_view::view(whole).unwrap(),
        HookEncoding::Legacy => unreachable!("no review arrives so"),
    }
}

/// Everything a review says, whatever its encoding.
fn said(review: &Review) -> String {
    let bytes = |place: &Option<Range<usize>>| {
        place.clone().map(|place| String::from_utf8(review.bytes.copy_of(place).to_vec()).unwrap())
    };
    format!(
        "{:?}",
        (
            (&review.uid, &review.kind, &review.resource, &review.sub_resource, &review.operation, review.dry_run),
            (&review.request_kind, &review.request_resource, &review.request_sub_resource),
            (&review.name, &review.namespace, &review.username, user_of(review).unwrap()),
            [bytes(&review.object), bytes(&review.old_object), bytes(&review.options)],
        )
    )
}

#[test]
fn a_review_says_the_same_in_every_form() {
    let text = |text: &str| Some(text.to_owned());
    let kind = GroupVersionKind { version: text("v1"), kind: text("Thing"), ..Default::default() };
    let resource = GroupVersionResource { version: text("v1"), resource: text("things"), ..Default::default() };
    let bare = AdmissionRequest {
        uid: Some("u".into()),
        operation: Some("DELETE".into()),
        kind: Some(kind.clone()),
        resource: Some(resource.clone()),
        request_kind: Some(kind),
        request_resource: Some(resource),
        ..Default::default()
    };
    for request in [request(), bare] {
        let origin = grpc(request, usize::MAX);
        let wanted = said(&origin);
        for first in FORMS {
            let review = arrived(first, &Encodings::of(&origin).get(first).unwrap());
            assert_eq!(said(&review), wanted, "{first:?}");
            let encodings = Encodings::of(&review);
            for second in FORMS {
                let rope = encodings.get(second).unwrap();
                assert_eq!(rope.len(), rope.chunks().iter().map(Bytes::len).sum::<usize>());
                let again = arrived(second, &rope);
                assert_eq!(said(&again), wanted, "{first:?} to {second:?}");
                let encoding = match second {
                    HookEncoding::Protobuf(version) => Encoding::Envelope(version),
                    HookEncoding::Json(version) => Encoding::Json(version),
                    _ => Encoding::Grpc,
                };
                assert_eq!(again.encoding, encoding);
            }
        }
    }
}

#[test]
fn every_form_is_read_alike_by_prost_and_serde() {
    let origin = grpc(request(), 70);
    for first in FORMS {
        let review = arrived(first, &Encodings::of(&origin).get(first).unwrap());
        let encodings = Encodings::of(&review);
        let framed = encodings.get(HookEncoding::Grpc).unwrap().chunks().concat();
        assert_eq!(framed[..5], [&[0][..], &(framed.len() as u32 - 5).to_be_bytes()].concat());
        assert_eq!(AdmissionReview::decode(&framed[5..]).unwrap().request, Some(request()), "{first:?}");
        let text = encodings.get(HookEncoding::Json(ReviewVersion::V1beta1)).unwrap().chunks().concat();
        let wanted = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1",
            "request": {
                "uid": "u-\"1\"", "operation": "UPDATE", "name": "web", "namespace": "shop", "dryRun": true,
                "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                "resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "subResource": "scale",
                "requestKind": {"group": "ext", "version": "v1beta1", "kind": "Deployment"},
                "requestResource": {"group": "ext", "version": "v1beta1", "resource": "deployments"},
                "requestSubResource": "scale",
                "userInfo": {"username": "ann\n", "uid": "7", "groups": ["dev", "é\\"], "extra": {"a/b": ["c", ""]}},
                "object": serde_json::from_str::<Value>(OBJECT).unwrap(), "oldObject": {"kind": "Old"},
                "options": {"kind": "UpdateOptions"},
            }
        });
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), wanted, "{first:?}");
        let legacy = encodings.get(HookEncoding::Legacy).unwrap().chunks().concat();
        let wanted = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "spec": {
                "resource": "deployments", "subresource": "scale", "operation": "Update", "name": "web",
                "namespace": "shop", "group": "apps", "version": "v1", "dryRun": true,
                "object": serde_json::from_str::<Value>(OBJECT).unwrap(), "oldObject": {"kind": "Old"},
                "userInfo": {"name": "ann\n", "uid": "7", "groups": ["dev", "é\\"]},
            }
        });
        assert_eq!(serde_json::from_slice::<Value>(&legacy).unwrap(), wanted, "{first:?}");
    }
}

#[test]
fn what_is_absent_is_null_or_left_out_as_upstream_has_it() {
    let mut request = request();
    request.user_info = None;
    request.object = None;
    request.dry_run = None;
    (request.name, request.namespace) = (None, None);
    request.resource.as_mut().unwrap().resource = Some("things".into());
    (request.request_kind, request.request_resource, request.request_sub_resource) = (None, None, None);
    let review = grpc(request, usize::MAX);
    let text = Encodings::of(&review).get(HookEncoding::Json(ReviewVersion::V1)).unwrap().chunks().concat();
    let text: Value = serde_json::from_slice(&text).unwrap();
    let request = &text["request"];
    assert_eq!(
        (&request["object"], &request["dryRun"], &request["userInfo"]),
        (&Value::Null, &json!(false), &json!({}))
    );
    assert!(request.as_object().unwrap().contains_key("object"));
    assert!(
        !request.as_object().unwrap().contains_key("name") && !request.as_object().unwrap().contains_key("namespace")
    );
    // Nothing was converted, so what was asked for is what it is.
    assert_eq!(request["requestKind"], request["kind"]);
    assert_eq!(request["requestResource"], request["resource"]);
    assert_eq!(request["requestSubResource"], "scale");
}

#[test]
fn the_objects_bytes_are_shared_and_each_form_is_written_once() {
    let origin = grpc(request(), usize::MAX);
    for first in FORMS {
        let review = arrived(first, &Encodings::of(&origin).get(first).unwrap());
        let encodings = Encodings::of(&review);
        for second in FORMS.into_iter().chain([HookEncoding::Legacy]) {
            let rope = encodings.get(second).unwrap();
            for object in review.bytes.shared(review.object.clone().unwrap()) {
                let shared = rope.chunks().iter().any(|chunk| {
                    let whole = chunk.as_ptr_range();
                    whole.contains(&object.as_ptr()) && object.as_ptr_range().end <= whole.end
                });
                assert!(shared, "{first:?} to {second:?}");
            }
            assert!(std::ptr::eq(rope.chunks(), encodings.get(second).unwrap().chunks()), "written once");
            if first == second {
                assert!(std::ptr::eq(rope.chunks(), review.bytes.chunks()), "{first:?} is what arrived");
            }
        }
    }
}

#[test]
fn only_whole_objects_are_put_into_json() {
    for (object, why) in [
        (r#"{"a":1},"dryRun":false,"x":{}"#, "there is more after the object"),
        ("k8s\0\n", "this is not a JSON object"),
        ("{\"a\":\"\n\"}", "a control character"),
        ("[]", "this is not a JSON object"),
        ("null", "this is not a JSON object"),
    ] {
        for cut in [0, 60, 200] {
            for change in [0, 1, 2] {
                let mut request = request();
                *[&mut request.object, &mut request.old_object, &mut request.options][change] = raw(object);
                let review = grpc(request, cut);
                let encodings = Encodings::of(&review);
                for form in [
                    HookEncoding::Json(ReviewVersion::V1),
                    HookEncoding::Json(ReviewVersion::V1beta1),
                    HookEncoding::Legacy,
                ] {
                    let failure = encodings.get(form).unwrap_err();
                    let name = ["object", "oldObject", "options"][change];
                    assert!(matches!(failure, CallFailure::Unwritable(_)), "{failure:?}");
                    let shown = failure.to_string();
                    assert!(
                        shown.contains(&format!("its {name} is not one JSON object: ")) && shown.contains(why),
                        "{shown}"
                    );
                }
                assert!(encodings.get(HookEncoding::Protobuf(ReviewVersion::V1)).is_ok(), "protobuf carries anything");
            }
        }
    }
}

#[test]
fn an_envelope_is_what_gos_serializer_writes() {
    let review = grpc(request(), usize::MAX);
    let rope = Encodings::of(&review).get(HookEncoding::Protobuf(ReviewVersion::V1)).unwrap();
    let bytes = rope.chunks().concat();
    let head = b"k8s\0\x0a\x26\x0a\x13admission.k8s.io/v1\x12\x0fAdmissionReview\x12";
    assert_eq!(&bytes[..head.len()], head);
    assert_eq!(&bytes[bytes.len() - 4..], b"\x1a\0\x22\0");
}

#[test]
fn broken_envelopes_are_refused() {
    let shown = |bytes: &[u8]| envelope::view(Rope::new([Bytes::copy_from_slice(bytes)])).unwrap_err().to_string();
    assert!(shown(b"k8").contains("must begin with"));
    assert!(shown(b"{}{}").contains("must begin with"));
    assert_eq!(shown(b"k8s\0"), "kind must be AdmissionReview");
    assert!(shown(b"k8s\0\x0a\x7f").contains("longer than its message"));
    let typed = b"k8s\0\x0a\x26\x0a\x13admission.k8s.io/v1\x12\x0fAdmissionReview";
    assert_eq!(shown(typed), "the review has no request");
    assert!(shown(&[&typed[..], b"\x1a\x04gzip"].concat()).contains("encoded once more"));
    assert!(
        shown(&[&b"k8s\0\x0a\x26\x0a\x13admission.k8s.io/v2"[..], &typed[27..]].concat())
            .starts_with("apiVersion must be")
    );
    let review = grpc(request(), usize::MAX);
    let whole = Encodings::of(&review).get(HookEncoding::Protobuf(ReviewVersion::V1)).unwrap().chunks().concat();
    for end in 0..whole.len() - 4 {
        assert!(envelope::view(Rope::new([Bytes::copy_from_slice(&whole[..end])])).is_err(), "{end}");
    }
}

#[test]
fn a_review_about_another_object_says_all_else_as_before() {
    let objects = [r#"{"kind":"Deployment","a":[1,2]}"#, "{}", r#"{"kind":"Deployment","text":"é\\n","b":{"c":null}}"#];
    for first in FORMS {
        let mut review = arrived(first, &Encodings::of(&grpc(request(), 70)).get(first).unwrap());
        for text in objects {
            let wanted = said(&grpc(AdmissionRequest { object: raw(text), ..request() }, usize::MAX));
            let object = Rope::new([Bytes::from(&text[..1]), Bytes::from(&text[1..])]);
            review = with_object(&review, &object).unwrap();
            assert_eq!(said(&review), wanted, "{first:?}");
            let shared = review.bytes.shared(review.object.clone().unwrap()).next().unwrap();
            assert_eq!(shared.as_ptr(), object.chunks()[0].as_ptr(), "not copied");
            for second in FORMS {
                let again = arrived(second, &Encodings::of(&review).get(second).unwrap());
                assert_eq!(said(&again), wanted, "{first:?} to {second:?}");
            }
        }
    }
    let deleted = grpc(AdmissionRequest { object: None, ..request() }, 0);
    let object = Rope::new([Bytes::from_static(b"{}")]);
    assert!(matches!(with_object(&deleted, &object), Err(CallFailure::Unwritable(_))));
    let binary = grpc(AdmissionRequest { old_object: raw("k8s\0"), ..request() }, 0);
    assert!(matches!(with_object(&binary, &object), Err(CallFailure::Unwritable(_))));
}
