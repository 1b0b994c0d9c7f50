use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::pb::k8s::io::{
    api::{
        admission::v1::{AdmissionRequest, AdmissionReview},
        authentication::v1::UserInfo,
    },
    apimachinery::pkg::{
        apis::meta::v1::{GroupVersionKind, GroupVersionResource},
        runtime::RawExtension,
    },
};

fn raw(text: &'static str) -> Option<RawExtension> {
    Some(RawExtension { raw: Some(Bytes::from_static(text.as_bytes())) })
}

fn request() -> AdmissionRequest {
    AdmissionRequest {
        uid: Some("u-1".into()),
        kind: Some(GroupVersionKind {
            group: Some("apps".into()),
            version: Some("v1".into()),
            kind: Some("Deployment".into()),
        }),
        resource: Some(GroupVersionResource {
            group: Some("apps".into()),
            version: Some("v1".into()),
            resource: Some("deployments".into()),
        }),
        sub_resource: Some("scale".into()),
        name: Some("web".into()),
        namespace: Some("shop".into()),
        operation: Some("UPDATE".into()),
        user_info: Some(UserInfo { username: Some("ann".into()), groups: vec!["g".into()], ..Default::default() }),
        object: raw(r#"{"kind":"Deployment"}"#),
        old_object: raw(r#"{"kind":"Old"}"#),
        dry_run: Some(true),
        options: raw("{}"),
        request_kind: None,
        request_resource: Some(GroupVersionResource {
            group: Some("extensions".into()),
            version: Some("v1beta1".into()),
            resource: Some("deployments".into()),
        }),
        request_sub_resource: Some("scale".into()),
    }
}

fn framed(message: &[u8]) -> Bytes {
    let mut framed = vec![0];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    framed.into()
}

fn review_of(request: AdmissionRequest) -> Vec<u8> {
    AdmissionReview { request: Some(request), response: None }.encode_to_vec()
}

/// The message in pieces that end at these places.
fn pieces(message: &Bytes, cuts: &[usize]) -> Rope {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (message.len() + 1)).collect();
    ends.push(message.len());
    ends.sort_unstable();
    let mut start = 0;
    let mut chunks = Vec::new();
    for end in ends {
        chunks.push(message.slice(start..end));
        start = end;
    }
    Rope::new(chunks)
}

fn bytes_at(review: &Review, place: &Option<Range<usize>>) -> Option<Vec<u8>> {
    place.clone().map(|at| review.bytes.copy_of(at).to_vec())
}

/// prost's reading of the same message: the oracle.
fn check_against_prost(message: &[u8], review: &Review) {
    let oracle = AdmissionReview::decode(message).expect("prost reads it").request.expect("request");
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    assert_eq!(review.uid, text(&oracle.uid));
    assert_eq!(review.name, text(&oracle.name));
    assert_eq!(review.namespace, text(&oracle.namespace));
    assert_eq!(review.sub_resource, text(&oracle.sub_resource));
    assert_eq!(review.operation.as_str(), text(&oracle.operation));
    assert_eq!(review.dry_run, oracle.dry_run.unwrap_or_default());
    assert_eq!(review.username, text(&oracle.user_info.unwrap_or_default().username));
    let gvk = oracle.kind.unwrap_or_default();
    assert_eq!(review.kind.group, text(&gvk.group));
    assert_eq!(review.kind.version, text(&gvk.version));
    assert_eq!(review.kind.kind, text(&gvk.kind));
    let gvr = oracle.resource.unwrap_or_default();
    assert_eq!(review.resource.group, text(&gvr.group));
    assert_eq!(review.resource.version, text(&gvr.version));
    assert_eq!(review.resource.resource, text(&gvr.resource));
    assert_eq!(
        review.request_resource.clone().map(|gvr| gvr.group.to_string()),
        oracle.request_resource.map(|gvr| text(&gvr.group))
    );
    let object = |raw: Option<RawExtension>| Some(raw?.raw?.to_vec()).filter(|raw| !raw.is_empty());
    assert_eq!(bytes_at(review, &review.object), object(oracle.object));
    assert_eq!(bytes_at(review, &review.old_object), object(oracle.old_object));
    assert_eq!(bytes_at(review, &review.options), object(oracle.options));
}

proptest! {
    #[test]
    fn pieces_do_not_change_what_is_seen(cuts in prop::collection::vec(any::<usize>(), 0..20)) {
        let message = review_of(request());
        let review = view(pieces(&framed(&message), &cuts)).expect("a review");
        check_against_prost(&message, &review);
    }

    /// Any bytes: no panic, and where both we and prost accept them, both see the same.
    #[test]
    fn damaged_messages_are_refused_or_read_as_prost_reads_them(
        at in any::<usize>(), byte in any::<u8>(), cut in any::<usize>(), cuts in prop::collection::vec(any::<usize>(), 0..4),
    ) {
        let mut message = review_of(request());
        let len = message.len();
        message[at % len] = byte;
        if cut % 3 == 0 {
            message.truncate(cut % len);
        }
        let ours = view(pieces(&framed(&message), &cuts));
        let prost = AdmissionReview::decode(&message[..]);
        match (&ours, &prost) {
            (Ok(review), Ok(_)) => check_against_prost(&message, review),
            // prost reads fields that we only pass by (the extra values of a user, a response).
            (Ok(_), Err(_)) => {}
            (Err(ViewError::Undecodable(_)), Ok(_)) => prop_assert!(false, "refused what prost reads: {ours:?}"),
            (Err(_), _) => {}
        }
    }
}

/// A field of protobuf, made of bytes.
fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut field);
    prost::encoding::encode_varint(bytes.len() as u64, &mut field);
    field.extend(bytes);
    field
}

/// The fields of a message, each as it stands there.
fn fields(message: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let rope = Rope::new([Bytes::copy_from_slice(message)]);
    let (mut walk, mut fields, mut start) = (Walk::over(&rope, 0..message.len()), Vec::new(), 0);
    while let Some((number, value)) = walk.next().expect("protobuf") {
        let end = match value {
            Value::Bytes(at) => at.end,
            // Its key and the one byte of a flag.
            _ => start + 2,
        };
        fields.push((number, message[start..end].to_vec()));
        start = end;
    }
    fields
}

#[test]
fn fields_may_come_in_any_order() {
    let mut parts: Vec<Vec<u8>> = fields(&request().encode_to_vec()).into_iter().map(|(_, bytes)| bytes).collect();
    parts.reverse();
    let message = field(1, &parts.concat());
    let review = view(pieces(&framed(&message), &[])).expect("a review");
    check_against_prost(&message, &review);
}

/// Protobuf would take the last, or merge the two: a hook that is sent JSON, and one that reads the bytes in another
/// way, would then judge another request than we have matched.
#[test]
fn any_field_given_twice_is_refused() {
    let whole = AdmissionRequest {
        user_info: Some(UserInfo { uid: Some("7".into()), ..request().user_info.unwrap() }),
        request_kind: request().kind,
        ..request()
    };
    let shown = |message: &[u8]| view(pieces(&framed(message), &[])).expect_err("refused").to_string();
    let (message, inner) = (review_of(whole.clone()), whole.encode_to_vec());
    let mut twice = Vec::new();
    twice.push(shown(&[&message[..], &message].concat()));
    let parts = fields(&inner);
    assert_eq!(parts.len(), 15);
    for (number, part) in &parts {
        twice.push(shown(&field(1, &[&inner[..], part].concat())));
        let rope = Rope::new([Bytes::copy_from_slice(part)]);
        let Some((_, Value::Bytes(at))) = Walk::over(&rope, 0..part.len()).next().expect("a field") else {
            continue;
        };
        if !matches!(number, 2 | 3 | 8 | 9 | 10 | 12 | 13 | 14) {
            continue;
        }
        for (inside, again) in fields(&part[at.clone()]) {
            let grown = field(*number, &[&part[at.clone()], &again].concat());
            let others = parts.iter().filter(|(other, _)| other != number).flat_map(|(_, part)| part.clone());
            let message = field(1, &others.chain(grown).collect::<Vec<_>>());
            // Groups and extra are lists.
            match (number, inside) {
                (8, 3..) => drop(view(pieces(&framed(&message), &[])).expect("two groups")),
                _ => twice.push(shown(&message)),
            }
        }
    }
    assert_eq!(
        twice.iter().filter_map(|shown| shown.strip_suffix(" is given twice")).collect::<Vec<_>>(),
        [
            "request",
            "request.uid",
            "request.kind",
            "request.kind.group",
            "request.kind.version",
            "request.kind.kind",
            "request.resource",
            "request.resource.group",
            "request.resource.version",
            "request.resource.resource",
            "request.subResource",
            "request.name",
            "request.namespace",
            "request.operation",
            "request.userInfo",
            "request.userInfo.username",
            "request.userInfo.uid",
            "request.object",
            "request.object.raw",
            "request.oldObject",
            "request.oldObject.raw",
            "request.dryRun",
            "request.options",
            "request.options.raw",
            "request.requestKind",
            "request.requestKind.group",
            "request.requestKind.version",
            "request.requestKind.kind",
            "request.requestResource",
            "request.requestResource.group",
            "request.requestResource.version",
            "request.requestResource.resource",
            "request.requestSubResource",
        ]
    );
    assert!(twice.iter().all(|shown| shown.ends_with(" is given twice")), "{twice:?}");
}

/// As `k8s.io/api/admission/v1` writes a DELETE: `object` and `options` are there, and empty.
#[test]
fn an_extension_without_bytes_is_no_object() {
    let empty = Some(RawExtension { raw: None });
    let none = Some(RawExtension { raw: Some(Bytes::new()) });
    let message = review_of(AdmissionRequest { object: empty, options: none, ..request() });
    let review = view(pieces(&framed(&message), &[])).expect("a review");
    assert_eq!((review.object, review.options), (None, None));
    assert!(review.old_object.is_some());
}

#[test]
fn unknown_fields_and_groups_are_passed_by() {
    let mut inner = request().encode_to_vec();
    // Field 100: a group with a varint and a nested group inside; field 101: fixed64.
    inner.extend([0xa3, 0x06, 0x08, 0x01, 0x13, 0x14, 0xa4, 0x06]);
    inner.extend([0xa9, 0x06, 1, 2, 3, 4, 5, 6, 7, 8]);
    let mut message = vec![0x0a];
    prost::encoding::encode_varint(inner.len() as u64, &mut message);
    message.extend(inner);
    let review = view(pieces(&framed(&message), &[7])).expect("a review");
    check_against_prost(&message, &review);
}

#[test]
fn the_object_is_the_very_memory_that_arrived() {
    let message = framed(&review_of(request()));
    let review = view(Rope::new(vec![message.clone()])).expect("a review");
    let at = review.object.clone().expect("object");
    let slice = review.bytes.contiguous(at.clone()).expect("one piece");
    assert_eq!(slice.as_ptr(), message[at].as_ptr());
}

#[test]
fn what_is_not_a_review_is_named() {
    let of = |message: &[u8]| view(pieces(&framed(message), &[])).map(|_| ()).expect_err("refused");
    assert_eq!(of(&[]), ViewError::NoRequest);
    assert_eq!(of(&review_of(AdmissionRequest { uid: None, ..request() })), ViewError::NoUid);
    let groups = vec!["g".repeat(1 << 10); 1 << 10];
    let user_info = Some(UserInfo { groups, ..Default::default() });
    let crowd = of(&review_of(AdmissionRequest { user_info, ..request() }));
    assert_eq!(crowd.to_string(), "request.userInfo is longer than 1048576 bytes");
    assert_eq!(
        of(&review_of(AdmissionRequest { operation: Some("create".into()), ..request() })),
        ViewError::Operation
    );
    assert_eq!(of(&[0x0a, 0x05, 1]), ViewError::Undecodable("a field is longer than its message"));
    assert_eq!(of(&[0x08, 0x05]), ViewError::Undecodable("a field has the wrong wire type"));
    assert_eq!(of(&[0x0a, 0x03, 0x0a, 0x01, 0xff]), ViewError::Undecodable("a text field is not UTF-8"));
    assert_eq!(of(&[0xff; 12]), ViewError::Undecodable("a number is too large"));
}
