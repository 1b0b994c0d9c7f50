//! gRPC: writes the head of a call, and judges its headers, message and trailers.

use std::time::Duration;

use bytes::Bytes;

use super::request_head::{Field, Method, RequestHeads, ResponseFields, ResponseHead};
use gatepost_api::{CallFailure, ForwardedContext};
use gatepost_http2_client::hpack::{FieldName, literal};
use gatepost_wire::{inbound::FRAME_HEAD, names::NAMESPACE_LABELS};

/// A gRPC call.
#[derive(Clone, Debug)]
pub struct GrpcRequest {
    /// Method to call.
    pub method: Method,
    /// Value of [`NAMESPACE_LABELS`] as the caller sent it (base64). It is passed on unchanged.
    pub namespace_labels: Option<Bytes>,
}

impl GrpcRequest {
    /// Appends the header block of the call.
    pub(super) fn write_head(
        &self,
        forwarded: &ForwardedContext,
        left: Duration,
        heads: &mut RequestHeads,
        out: &mut Vec<u8>,
    ) {
        heads.begin(out);
        for field in [Field::Path(self.method), Field::Authority, Field::Te, Field::Grpc, Field::UserAgent] {
            heads.field(field, out);
        }
        heads.forwarded(forwarded, out);
        heads.grpc_timeout(left, out);
        if let Some(value) = &self.namespace_labels {
            literal(FieldName::Text(NAMESPACE_LABELS.as_bytes()), value, out);
        }
    }
}

/// Returns the failure of a call whose answer is not from a gRPC server.
pub(super) fn early_failure(head: &ResponseHead) -> Option<CallFailure> {
    let what = match (head.status, head.fields.grpc) {
        (200, Some(true)) => return None,
        (200, Some(false)) => "its content type is not application/grpc".to_owned(),
        (200, None) => "its answer has no content type".to_owned(),
        (status, _) => format!("it answered with HTTP status {status}"),
    };
    Some(CallFailure::NotGrpc(what))
}

/// Returns the message or the failure of a call whose answer is complete. If there are no trailers, the answer must
/// consist of headers only ("trailers-only").
pub(super) fn judge(head: ResponseFields, trailers: Option<ResponseFields>, body: Bytes) -> Result<Bytes, CallFailure> {
    let refused = |what: &str| Err(CallFailure::NotGrpc(what.into()));
    if head.content_length.is_some_and(|len| len != body.len() as u64) {
        return refused("its answer is not as long as its content-length says");
    }
    let end = match trailers {
        Some(_) if head.grpc_status.is_some() => return refused("it gave a grpc-status before the call's end"),
        Some(trailers) => trailers,
        None if !body.is_empty() => return refused("it ended the call without trailers"),
        None => head,
    };
    match end.grpc_status {
        Some(0) => message(body),
        Some(code) => Err(CallFailure::Grpc {
            code: code_name(code),
            message: percent_decoded(&end.grpc_message.unwrap_or_default()),
        }),
        None => refused("it ended the call without a grpc-status"),
    }
}

/// Returns the one message in its gRPC frame.
fn message(framed: Bytes) -> Result<Bytes, CallFailure> {
    let invalid = |what: &str| Err(CallFailure::Undecodable(what.into()));
    let Some((&[flag, l0, l1, l2, l3], rest)) = framed.split_first_chunk::<FRAME_HEAD>() else {
        return invalid("there is no whole message");
    };
    if flag != 0 {
        return invalid("the message is compressed, which was not offered");
    }
    let declared = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    if declared != rest.len() {
        return invalid("the message is not as long as its head says");
    }
    Ok(framed.slice(FRAME_HEAD..))
}

/// Returns the name of a gRPC status code, as in the gRPC specification.
fn code_name(code: u32) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    NAMES.get(code as usize).copied().unwrap_or("UNKNOWN")
}

/// Returns a hook's text for people: percent-decoded, without control characters, at most 256 characters.
pub(super) fn percent_decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let hex = |at: usize| after.get(at).and_then(|&digit| (digit as char).to_digit(16));
        match (byte, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).chars().filter(|c| !c.is_control()).take(256).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_message_is_percent_decoded_and_cut() {
        assert_eq!(percent_decoded(b"no%20way%21%0a"), "no way!");
        assert_eq!(percent_decoded(b"100% sure %z"), "100% sure %z");
        assert_eq!(percent_decoded(b"%c3%a9"), "é");
        assert_eq!(percent_decoded(&[b'x'; 999]).len(), 256);
    }

    #[test]
    fn a_grpc_status_comes_once_and_at_the_end() {
        let answered = |len| ResponseFields { grpc: Some(true), content_length: len, ..Default::default() };
        let status = |status| ResponseFields { grpc_status: Some(status), ..Default::default() };
        let body = || Bytes::from_static(&[0, 0, 0, 0, 1, 7]);
        assert_eq!(judge(answered(Some(6)), Some(status(0)), body()), Ok(Bytes::from_static(&[7])));
        let early = ResponseFields { grpc_status: Some(0), ..answered(None) };
        for (head, trailers) in [
            (early.clone(), Some(status(7))),
            (early.clone(), Some(status(0))),
            (early, None),
            (answered(None), Some(ResponseFields::default())),
            (answered(Some(7)), Some(status(0))),
        ] {
            let judged = judge(head.clone(), trailers.clone(), body());
            assert!(matches!(judged, Err(CallFailure::NotGrpc(_))), "{head:?} {trailers:?} {judged:?}");
        }
        let only = ResponseFields { grpc_status: Some(5), ..answered(None) };
        assert!(matches!(judge(only, None, Bytes::new()), Err(CallFailure::Grpc { code: "NOT_FOUND", .. })));
    }

    #[test]
    fn answers_without_grpc_headers_are_refused() {
        let refused = |status, grpc| {
            let fields = ResponseFields { grpc, ..Default::default() };
            early_failure(&ResponseHead { status, fields })
        };
        assert_eq!(refused(200, Some(true)), None);
        for (status, grpc) in [(204, Some(true)), (404, Some(true)), (200, Some(false)), (200, None)] {
            assert!(matches!(refused(status, grpc), Some(CallFailure::NotGrpc(_))), "{status} {grpc:?}");
        }
    }

    #[test]
    fn an_incomplete_grpc_message_is_refused() {
        let message = |framed: Vec<u8>| message(framed.into());
        assert_eq!(message(vec![0, 0, 0, 0, 2, 7, 8]), Ok(Bytes::from_static(&[7, 8])));
        assert!(message(vec![0, 0, 0, 0, 3, 7, 8]).is_err());
        assert!(message(vec![1, 0, 0, 0, 2, 7, 8]).is_err());
        assert!(message(vec![]).is_err());
    }
}
