//! Encodings of one review for hooks. Each is written at most once.
//!
//! The object's bytes are never copied: each encoding consists of small owned pieces and slices of the received bytes.

mod json;

use std::{cell::OnceCell, ops::Range};

use gatepost_api::{CallFailure, Encoding, Gvk, Gvr, HttpForm, Protocol, Review, ReviewVersion, Rope};
use prost::Message;

use super::{
    envelope,
    inbound::FRAME_HEAD,
    json::Cursor,
    pb::k8s::io::{
        api::{admission::v1::AdmissionRequest, authentication::v1::UserInfo},
        apimachinery::pkg::apis::meta::v1::{GroupVersionKind, GroupVersionResource},
    },
    user,
    walk::{Pieces, field_len},
};

/// Encoding in which a hook receives a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookEncoding {
    /// One gRPC message, including the frame header.
    Grpc,
    /// Protobuf in Kubernetes' envelope.
    Protobuf(ReviewVersion),
    /// An AdmissionReview in JSON.
    Json(ReviewVersion),
    /// JSON in the `legacy` contract.
    Legacy,
}

impl HookEncoding {
    const fn index(self) -> usize {
        match self {
            Self::Grpc => 0,
            Self::Protobuf(version) => 1 + version.index(),
            Self::Json(version) => 3 + version.index(),
            Self::Legacy => 5,
        }
    }
}

impl From<&Protocol> for HookEncoding {
    fn from(protocol: &Protocol) -> Self {
        match protocol {
            Protocol::Grpc => Self::Grpc,
            Protocol::Http { form, .. } => (*form).into(),
        }
    }
}

impl From<HttpForm> for HookEncoding {
    fn from(form: HttpForm) -> Self {
        match form {
            HttpForm::Json(version) => Self::Json(version),
            HttpForm::Protobuf(version) => Self::Protobuf(version),
            HttpForm::Legacy => Self::Legacy,
        }
    }
}

pub use json::with_object;

type EncodingCell = OnceCell<Result<Rope, CallFailure>>;

/// Encodings of one review.
#[derive(Debug)]
pub struct Encodings<'a> {
    review: &'a Review,
    /// The written encodings, by [`HookEncoding::index`].
    written: [EncodingCell; 6],
    /// The bare protobuf message, if the review arrived in JSON.
    message: EncodingCell,
    /// Result of checking whether a protobuf review can be written in JSON.
    fit_for_json: OnceCell<Result<(), CallFailure>>,
}

impl<'a> Encodings<'a> {
    /// Creates the encodings of a review. None is written yet.
    pub fn of(review: &'a Review) -> Self {
        Self { review, written: Default::default(), message: OnceCell::new(), fit_for_json: OnceCell::new() }
    }

    /// Creates the encodings of a review, of which those in `written` exist already.
    pub fn with(review: &'a Review, written: Vec<(HookEncoding, Result<Rope, CallFailure>)>) -> Self {
        let encodings = Self::of(review);
        for (form, written) in written {
            let _ = encodings.written[form.index()].set(written);
        }
        encodings
    }

    /// Returns true if this encoding must be written because the review arrived in another one.
    pub fn must_write(review: &Review, form: HookEncoding) -> bool {
        match (form, review.encoding) {
            (HookEncoding::Grpc, Encoding::Grpc) => false,
            (HookEncoding::Protobuf(wanted), Encoding::Envelope(arrived))
            | (HookEncoding::Json(wanted), Encoding::Json(arrived)) => wanted != arrived,
            _ => true,
        }
    }

    /// Returns the review in this encoding. These are the received bytes if it arrived in this encoding.
    ///
    /// # Errors
    /// `Unwritable`: an object in a protobuf review is not JSON, or the user cannot be read.
    pub fn get(&self, form: HookEncoding) -> Result<Rope, CallFailure> {
        let review = self.review;
        if !Self::must_write(review, form) {
            return Ok(review.bytes.clone());
        }
        let written = self.written[form.index()].get_or_init(|| match form {
            HookEncoding::Grpc => self.message().map(|(rope, range)| framed(&rope, range)),
            HookEncoding::Protobuf(version) => {
                self.message().map(|(rope, range)| envelope::wrap(version, &rope, range))
            }
            HookEncoding::Json(version) => match review.encoding {
                Encoding::Json(_) => json::write_version(review, version),
                _ => self
                    .objects_are_json()
                    .and_then(|()| json::write_review(review, version))
                    .map(|review| review.bytes),
            },
            HookEncoding::Legacy => self.objects_are_json().and_then(|()| json::legacy_review(review)),
        });
        written.clone()
    }

    /// Returns the bare protobuf message as a rope and its range in the rope.
    fn message(&self) -> Result<(Rope, Range<usize>), CallFailure> {
        match self.review.encoding {
            Encoding::Grpc | Encoding::Envelope(_) => Ok((self.review.bytes.clone(), self.review.message.clone())),
            Encoding::Json(_) => {
                let message = self.message.get_or_init(|| write_message(self.review)).clone()?;
                let whole = 0..message.len();
                Ok((message, whole))
            }
        }
    }

    /// Checks that the objects are JSON. In a JSON review they have been checked; in a protobuf review they may be
    /// anything.
    fn objects_are_json(&self) -> Result<(), CallFailure> {
        if let Encoding::Json(_) = self.review.encoding {
            return Ok(());
        }
        self.fit_for_json.get_or_init(|| json::check_objects(self.review, false)).clone()
    }
}

/// Writes the message in `range` as one gRPC message.
fn framed(rope: &Rope, range: Range<usize>) -> Rope {
    let mut pieces = Pieces::default();
    let mut head = [0; FRAME_HEAD];
    // The length of a received message is limited to far less than 4 GiB.
    head[1..].copy_from_slice(&u32::try_from(range.len()).unwrap_or(u32::MAX).to_be_bytes());
    pieces.own(head);
    pieces.share(rope, range);
    pieces.rope()
}

/// Returns the user of the review, with all fields.
///
/// # Errors
/// `Unwritable`: the user cannot be read.
pub fn user_of(review: &Review) -> Result<UserInfo, CallFailure> {
    let Some(place) = review.user.clone() else { return Ok(UserInfo::default()) };
    let bytes = review.bytes.copy_of(place);
    let user = match review.encoding {
        Encoding::Json(_) => {
            std::str::from_utf8(&bytes).ok().and_then(|text| user::from_json(&mut Cursor::new(text)).ok()?)
        }
        Encoding::Grpc | Encoding::Envelope(_) => UserInfo::decode(bytes).ok(),
    };
    user.ok_or_else(|| CallFailure::Unwritable("its userInfo cannot be read".into()))
}

/// Writes a review that arrived in JSON as a bare protobuf AdmissionReview. Field numbers:
/// `proto/k8s.io/api/admission/v1/generated.proto`.
fn write_message(review: &Review) -> Result<Rope, CallFailure> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let request = AdmissionRequest {
        uid: text(&review.uid),
        kind: Some(gvk(&review.kind)),
        resource: Some(gvr(&review.resource)),
        sub_resource: text(&review.sub_resource),
        name: text(&review.name),
        namespace: text(&review.namespace),
        operation: text(review.operation.as_str()),
        user_info: review.user.is_some().then(|| user_of(review)).transpose()?,
        dry_run: Some(review.dry_run),
        request_kind: review.request_kind.as_ref().map(gvk),
        request_resource: review.request_resource.as_ref().map(gvr),
        request_sub_resource: text(&review.request_sub_resource),
        // Appended below without a copy.
        object: None,
        old_object: None,
        options: None,
    };
    // Fields may come in any order, so all small ones form one piece.
    let objects = [(9, &review.object), (10, &review.old_object), (12, &review.options)];
    let objects = objects.map(|(number, place)| place.clone().map(|place| (number, place)));
    let objects_len: usize = objects.iter().flatten().map(|(_, place)| field_len(field_len(place.len()))).sum();
    let mut pieces = Pieces::default();
    pieces.field(1, request.encoded_len() + objects_len);
    pieces.own(request.encode_to_vec());
    for (number, place) in objects.into_iter().flatten() {
        pieces.field(number, field_len(place.len()));
        pieces.field(1, place.len());
        pieces.share(&review.bytes, place);
    }
    Ok(pieces.rope())
}

fn gvk(Gvk { group, version, kind }: &Gvk) -> GroupVersionKind {
    GroupVersionKind {
        group: Some(group.to_string()),
        version: Some(version.to_string()),
        kind: Some(kind.to_string()),
    }
}

fn gvr(Gvr { group, version, resource }: &Gvr) -> GroupVersionResource {
    GroupVersionResource {
        group: Some(group.to_string()),
        version: Some(version.to_string()),
        resource: Some(resource.to_string()),
    }
}

#[cfg(test)]
mod tests;
