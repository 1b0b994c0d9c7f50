//! Answer of a hook, made from the first bytes of the review.

use bytes::{BufMut, Bytes, BytesMut};
use gatepost_wire::pb::k8s::io::{
    api::admission::v1::{AdmissionResponse, AdmissionReview},
    apimachinery::pkg::apis::meta::v1::Status,
};
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Response};
use prost::encoding::decode_varint;

use crate::Fallible;

/// Bytes of a body that hold the gRPC header, the review's head and the uid.
pub(super) const BEGINNING: usize = 128;

/// Field 1, length-delimited: `AdmissionReview.request`, and in it `AdmissionRequest.uid`.
const FIELD_ONE: u8 = 0x0a;

/// `allowed`, where the body is as long as its header says and begins with a uid; else a denial that says so.
pub(super) fn verdict(beginning: &[u8], length: usize) -> Bytes {
    let uid = uid(beginning).and_then(|uid| std::str::from_utf8(uid).ok());
    let whole = announced(beginning).is_some_and(|announced| announced + 5 == length);
    let problem = match (uid, whole) {
        (Some(_), true) => None,
        (None, _) => Some("the review does not begin with a uid".to_owned()),
        (_, false) => Some(format!("{length} bytes arrived, {:?} + 5 were announced", announced(beginning))),
    };
    let response = AdmissionResponse {
        uid: uid.map(str::to_owned),
        allowed: Some(problem.is_none()),
        status: problem.map(|problem| Status { message: Some(problem), code: Some(400), ..Default::default() }),
        ..Default::default()
    };
    gatepost_wire::outbound::framed(&AdmissionReview { request: None, response: Some(response) })
}

/// `grpc.health.v1.HealthCheckResponse` with status SERVING.
pub(super) fn serving() -> Bytes {
    frame(&[0x08, 0x01])
}

/// Headers, one message, trailers with gRPC status OK.
pub(super) fn send(respond: &mut SendResponse<Bytes>, message: Bytes) -> Fallible<()> {
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let mut stream = respond.send_response(response, false)?;
    stream.send_data(message, false)?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers)?;
    Ok(())
}

fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// The message length in the gRPC header.
fn announced(beginning: &[u8]) -> Option<usize> {
    let length: [u8; 4] = beginning.get(1..5)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()
}

fn uid(beginning: &[u8]) -> Option<&[u8]> {
    let mut rest = beginning.get(5..)?.strip_prefix(&[FIELD_ONE])?;
    decode_varint(&mut rest).ok()?;
    let mut rest = rest.strip_prefix(&[FIELD_ONE])?;
    let length = decode_varint(&mut rest).ok()?;
    rest.get(..usize::try_from(length).ok()?)
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::{
        review::{Subject, UID, framed},
        size::Size,
    };

    fn said(answer: &Bytes) -> AdmissionResponse {
        AdmissionReview::decode(&answer[5..]).expect("decodes").response.expect("has a response")
    }

    #[test]
    fn a_whole_review_is_allowed_under_its_own_uid() {
        let body = framed(Subject::Pod, Size(2048));
        let response = said(&verdict(&body[..BEGINNING], body.len()));
        assert_eq!((response.uid.as_deref(), response.allowed), (Some(UID), Some(true)));
    }

    #[test]
    fn a_review_cut_short_is_denied() {
        let body = framed(Subject::Pod, Size(2048));
        assert_eq!(said(&verdict(&body[..BEGINNING], body.len() - 1)).allowed, Some(false));
        assert_eq!(said(&verdict(&body[..7], 7)).allowed, Some(false));
    }
}
