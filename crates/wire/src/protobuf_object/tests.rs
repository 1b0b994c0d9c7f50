use bytes::Bytes;
use gatepost_api::{Gvk, Gvr, Operation};

use super::*;

/// Field `number` with these bytes.
fn field(number: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let mut field = vec![number << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut field);
    [&field[..], bytes].concat()
}

fn label(key: &str, value: &str) -> Vec<u8> {
    field(11, [field(1, key), field(2, value)].concat())
}

fn enveloped(version: &str, kind: &str, object: &[u8], rest: &[u8]) -> Vec<u8> {
    let types = [field(1, version), field(2, kind)].concat();
    [&MAGIC[..], &field(1, types), &field(2, object), rest].concat()
}

/// A Pod with this metadata.
fn pod(metadata: &[u8]) -> Vec<u8> {
    enveloped("v1", "Pod", &[field(1, metadata), field(2, "spec")].concat(), &[field(3, ""), field(4, "")].concat())
}

/// A review of a Pod's CREATE, whose object is `object` in two pieces, after another byte.
fn review(object: &[u8]) -> Review {
    let kind = Gvk { group: "".into(), version: "v1".into(), kind: "Pod".into() };
    let resource = Gvr { group: "".into(), version: "v1".into(), resource: "pods".into() };
    let (first, second) = object.split_at(object.len() / 2);
    let bytes = [&b"x"[..], first, second].map(Bytes::copy_from_slice);
    let place = Some(1..1 + object.len());
    Review { object: place, bytes: Rope::new(bytes), ..Review::bare(Operation::Create, kind, resource) }
}

fn labels_of(object: &[u8]) -> Result<Labels, String> {
    let review = review(object);
    labels(&review.bytes, review.object.expect("an object"))
}

#[test]
fn labels_of_object_in_protobuf_are_read() {
    let metadata =
        [field(1, "name"), label("app", "web"), field(12, "annotation"), label("app", "api"), label("a", "")];
    let object = pod(&metadata.concat());
    assert_eq!(check(&review(&object)), Ok(()));
    let expected: Labels = [("app", "api"), ("a", "")].into_iter().collect();
    assert_eq!(labels_of(&object), Ok(expected.clone()));
    let read = super::super::metadata::labels(&Rope::new([object.clone().into()]), 0..object.len());
    assert_eq!(read, Ok(Some(expected)), "whoever asks for labels need not know the encoding");
    assert_eq!(labels_of(&pod(b"")), Ok(Labels::default()));
}

#[test]
fn only_envelope_is_taken_for_protobuf() {
    assert!(has_any(&review(&pod(b""))));
    assert!(has_any(&Review { old_object: review(b"k8s\0").object, object: None, ..review(b"k8s\0") }));
    for other in [&b"{}"[..], b"", b"k8s", b"K8s\0.", b"null"] {
        assert!(!has_any(&review(other)), "{other:?}");
        assert_eq!(check(&review(other)), Ok(()), "{other:?}");
    }
}

#[test]
fn malformed_objects_are_named() {
    let object = field(1, label("app", "web"));
    let with = |rest: &[u8]| enveloped("v1", "Pod", &object, rest);
    let twice = [&object[..], &object].concat();
    for (object, why) in [
        (MAGIC.to_vec(), "the object has no metadata"),
        (enveloped("v1", "Pod", &field(2, "spec"), b""), "the object has no metadata"),
        (enveloped("v1", "Pod", &twice, b""), "the object's metadata is given twice"),
        (enveloped("v1", "Pod", &[8, 1], b""), "a field has the wrong wire type"),
        (with(&field(3, "gzip")), "encoded once more"),
        (with(&field(4, "application/json")), "must be application/vnd.kubernetes.protobuf"),
        (with(&field(2, "again")), "the envelope's raw is given twice"),
        (enveloped("v1", "Secret", &object, b""), "must be those of request.kind"),
        (enveloped("v2", "Pod", &object, b""), "must be those of request.kind"),
        (enveloped("/v1", "Pod", &object, b""), "must be those of request.kind"),
        (enveloped("apps/v1", "Pod", &object, b""), "must be those of request.kind"),
        (enveloped("v1", "Pod", &[vec![3 << 3 | 3; 200], object.clone()].concat(), b""), "nested too deep"),
    ] {
        let error = check(&review(&object)).expect_err(why);
        assert!(error.starts_with("request.object: ") && error.contains(why), "{error}");
    }
    let mut in_group = review(&enveloped("apps/v1", "Pod", &object, &field(4, CONTENT_TYPE)));
    in_group.kind.group = "apps".into();
    assert_eq!(check(&in_group), Ok(()));
}

#[test]
fn truncated_objects_are_errors() {
    let object = pod(&label("app", "web"));
    let whole = object.len() - 4;
    // The rest is two empty fields.
    for end in MAGIC.len()..whole {
        assert!(check(&review(&object[..end])).is_err(), "{end}");
        assert!(labels_of(&object[..end]).is_err(), "{end}");
    }
    for at in 0..object.len() {
        for byte in [0, 0x7f, 0x80, 0xff] {
            let mut other = object.clone();
            other[at] = byte;
            // Whatever it says, it must not panic.
            let _ = (check(&review(&other)), labels_of(&other));
        }
    }
}

#[test]
fn labels_are_bounded() {
    let many: Vec<u8> = (0..=1 << 16).flat_map(|n| label(&n.to_string(), "")).collect();
    assert!(labels_of(&pod(&many)).expect_err("too many").contains("at most 65,536 labels"));
    assert!(labels_of(&pod(&label("a", &"x".repeat(3 << 20)))).expect_err("too long").contains("2 MiB"));
    assert!(
        labels_of(&pod(&field(11, [field(1, "a"), field(2, [0xff])].concat()))).expect_err("no text").contains("UTF-8")
    );
    assert!(labels_of(&pod(&[11 << 3, 1])).expect_err("a number").contains("wire type"));
}
