//! Encodings of one review for hooks. Each is written at most once.
//!
//! The object's bytes are never copied: each encoding consists of small owned pieces and slices of the received bytes.

mod json;
mod protobuf;

use std::{cell::OnceCell, ops::Range};

use super::{envelope, inbound::FRAME_HEAD, user, walk::Pieces};
use crate::pb::k8s::io::api::authentication::v1::UserInfo;
use gatepost_api::{CallFailure, Encoding, HttpForm, Protocol, Review, ReviewVersion, Rope};

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
    grpc: EncodingCell,
    protobuf: [EncodingCell; 2],
    json: [EncodingCell; 2],
    legacy: EncodingCell,
    /// The bare protobuf message, if the review arrived in JSON.
    message: EncodingCell,
    /// Result of checking whether a protobuf review can be written in JSON.
    fit_for_json: OnceCell<Result<(), CallFailure>>,
}

impl<'a> Encodings<'a> {
    /// Creates the encodings of a review. None is written yet.
    pub fn of(review: &'a Review) -> Self {
        Self {
            review,
            grpc: OnceCell::new(),
            protobuf: Default::default(),
            json: Default::default(),
            legacy: OnceCell::new(),
            message: OnceCell::new(),
            fit_for_json: OnceCell::new(),
        }
    }

    /// Creates the encodings of a review, of which those in `written` exist already.
    pub fn with(review: &'a Review, written: Vec<(HookEncoding, Result<Rope, CallFailure>)>) -> Self {
        let encodings = Self::of(review);
        for (form, written) in written {
            let _ = encodings.cell(form).set(written);
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

    fn cell(&self, form: HookEncoding) -> &EncodingCell {
        match form {
            HookEncoding::Grpc => &self.grpc,
            HookEncoding::Protobuf(version) => &self.protobuf[version.index()],
            HookEncoding::Json(version) => &self.json[version.index()],
            HookEncoding::Legacy => &self.legacy,
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
        let written = self.cell(form).get_or_init(|| match form {
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
                let message = self.message.get_or_init(|| protobuf::write_message(self.review)).clone()?;
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
        self.fit_for_json.get_or_init(|| json::objects_are_fit(self.review)).clone()
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
    match review.encoding {
        Encoding::Json(_) => user::in_json(&bytes),
        Encoding::Grpc | Encoding::Envelope(_) => user::in_protobuf(bytes),
    }
    .ok_or_else(|| CallFailure::Unwritable("its userInfo cannot be read".into()))
}

#[cfg(test)]
mod tests;
