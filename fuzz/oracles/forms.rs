//! Every form of a review that was viewed, read again: each says what the review says.

use bytes::Bytes;
use gatepost_api::{CallFailure, Encoding, Review, ReviewVersion, Rope};
use gatepost_wire::{
    encodings::{Encodings, HookEncoding},
    envelope, inbound, json_view,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    json,
    said::{Said, by_prost},
    unknown,
};

const FORMS: [HookEncoding; 6] = [
    HookEncoding::Grpc,
    HookEncoding::Protobuf(ReviewVersion::V1),
    HookEncoding::Protobuf(ReviewVersion::V1beta1),
    HookEncoding::Json(ReviewVersion::V1),
    HookEncoding::Json(ReviewVersion::V1beta1),
    HookEncoding::Legacy,
];

/// Checks all forms of a review that says this.
pub(crate) fn check(review: &Review, said: &Said) {
    let encodings = Encodings::of(review);
    let arrived_in_json = matches!(review.encoding, Encoding::Json(_));
    let fit_for_json =
        arrived_in_json || said.user.is_some() && said.objects.iter().flatten().all(|object| json::is_object(object));
    for form in FORMS {
        let in_json = matches!(form, HookEncoding::Json(_) | HookEncoding::Legacy);
        match encodings.get(form) {
            Ok(rope) => {
                assert!(fit_for_json || !in_json, "{form:?} holds what is no JSON object, or a broken userInfo");
                let said = if in_json && !arrived_in_json { said.clone().spelt_out() } else { said.clone() };
                says(form, &rope, review, &said);
            }
            Err(CallFailure::Unwritable(why)) => {
                assert!(in_json && !fit_for_json, "{form:?} could not be written: {why}");
            }
            Err(other) => panic!("{form:?} failed as {}: {other}", other.kind().as_str()),
        }
    }
}

/// Reads a form with our own view and with another's decoder.
fn says(form: HookEncoding, rope: &Rope, review: &Review, said: &Said) {
    let whole = Bytes::from(rope.chunks().concat());
    let again = || Rope::new([whole.clone()]);
    let (ours, message) = match form {
        HookEncoding::Grpc => (inbound::view(again()), whole.slice(inbound::FRAME_HEAD..)),
        HookEncoding::Protobuf(_) => {
            (envelope::view(again()), unknown::open(&whole).expect("what we write is an envelope").message)
        }
        HookEncoding::Json(_) => {
            assert_eq!(json::read(&whole).as_ref(), Ok(said), "{form:?}, as others read it");
            let ours = json_view::view(whole).expect("what we write is a review");
            return assert_eq!(Said::by(&ours), *said, "{form:?}, as we read it again");
        }
        HookEncoding::Legacy => return legacy(&whole, said),
    };
    let ours = ours.expect("what we write is a review");
    assert_eq!(Said::by(&ours), *said, "{form:?}, as we read it again");
    match review.encoding {
        Encoding::Json(_) => {
            assert_eq!(by_prost(message).as_ref(), Ok(&Some(said.clone())), "{form:?}, as others read it");
        }
        // A protobuf review is passed on as it is, with the parts that the view does not look into.
        Encoding::Grpc | Encoding::Envelope(_) => {
            assert_eq!(
                message,
                review.bytes.copy_of(review.message.clone()),
                "{form:?} is not the message that arrived"
            );
        }
    }
}

/// The seeds' contract has no view of ours; what it must hold are the same objects and names.
fn legacy(whole: &[u8], said: &Said) {
    #[derive(Deserialize)]
    struct Review<'a> {
        #[serde(borrow)]
        spec: Spec<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec<'a> {
        name: String,
        namespace: String,
        resource: String,
        #[serde(borrow)]
        object: Option<&'a RawValue>,
        #[serde(borrow)]
        old_object: Option<&'a RawValue>,
        dry_run: bool,
    }
    let Review { spec } = serde_json::from_slice(whole).expect("the seeds' form is JSON");
    let object = |raw: Option<&RawValue>| raw.map(|raw| raw.get().as_bytes().to_vec());
    assert_eq!([object(spec.object), object(spec.old_object)], said.objects[..2]);
    assert_eq!(
        (spec.name, spec.namespace, spec.resource, spec.dry_run),
        (said.name.clone(), said.namespace.clone(), said.resource[2].clone(), said.dry_run)
    );
}
