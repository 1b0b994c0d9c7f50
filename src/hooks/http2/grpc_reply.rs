//! What a gRPC call came to.

use bytes::Bytes;

use super::header_read::Headers;
use crate::{model::CallFailure, wire::inbound::FRAME_HEAD};

/// Judges a call that has ended with these trailers; without any, its headers must have been all there was
/// ("trailers-only").
pub(super) fn judge(headers: Headers, trailers: Option<Headers>, body: Bytes) -> Result<Bytes, CallFailure> {
    let refused = |what: &str| Err(CallFailure::NotGrpc(what.into()));
    if headers.content_length.is_some_and(|len| len != body.len() as u64) {
        return refused("its answer is not as long as its content-length says");
    }
    let end = match trailers {
        Some(_) if headers.grpc_status.is_some() => return refused("it gave a grpc-status before the call's end"),
        Some(trailers) if trailers.status != 0 => return refused("its trailers have an HTTP status"),
        Some(trailers) => trailers,
        None if !body.is_empty() => return refused("it ended the call without trailers"),
        None => headers,
    };
    match end.grpc_status {
        Some(0) => message(body),
        Some(code) => Err(CallFailure::Grpc {
            code: code_name(code),
            message: percent_decoded(&end.grpc_message.unwrap_or_default()),
        }),
        None => Err(CallFailure::NotGrpc("it ended the call without a grpc-status".into())),
    }
}

/// The headers of something that is no gRPC server.
pub(super) fn refused(headers: &Headers) -> Option<CallFailure> {
    if headers.status == 0 {
        return Some(CallFailure::NotGrpc("its answer has no HTTP status".into()));
    }
    if headers.status != 200 {
        return Some(CallFailure::NotGrpc(format!("it answered with HTTP status {}", headers.status)));
    }
    match headers.grpc {
        Some(true) => None,
        Some(false) => Some(CallFailure::NotGrpc("its content type is not application/grpc".into())),
        None => Some(CallFailure::NotGrpc("its answer has no content type".into())),
    }
}

/// The one message inside its gRPC frame.
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

/// Name of a gRPC status code, as in the gRPC specification.
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

/// A hook's text as people may read it: percent-decoded, no control characters, at most 256 characters.
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
    fn a_hook_s_text_is_made_readable() {
        assert_eq!(percent_decoded(b"no%20way%21%0a"), "no way!");
        assert_eq!(percent_decoded(b"100% sure %z"), "100% sure %z");
        assert_eq!(percent_decoded(b"%c3%a9"), "é");
        assert_eq!(percent_decoded(&[b'x'; 999]).len(), 256);
    }

    #[test]
    fn an_answer_says_once_and_at_its_end_how_it_went() {
        let answered = |len| Headers { status: 200, grpc: Some(true), content_length: len, ..Default::default() };
        let status = |status| Headers { grpc_status: Some(status), ..Default::default() };
        let body = || Bytes::from_static(&[0, 0, 0, 0, 1, 7]);
        assert_eq!(judge(answered(Some(6)), Some(status(0)), body()), Ok(Bytes::from_static(&[7])));
        let early = Headers { grpc_status: Some(0), ..answered(None) };
        let with_status = Headers { status: 200, ..status(0) };
        for (headers, trailers) in [
            (early.clone(), Some(status(7))),
            (early.clone(), Some(status(0))),
            (early, None),
            (answered(None), Some(with_status)),
            (answered(None), Some(Headers::default())),
            (answered(Some(7)), Some(status(0))),
        ] {
            let told = judge(headers.clone(), trailers.clone(), body());
            assert!(matches!(told, Err(CallFailure::NotGrpc(_))), "{headers:?} {trailers:?} {told:?}");
        }
        let only = Headers { grpc_status: Some(5), ..answered(None) };
        assert!(matches!(judge(only, None, Bytes::new()), Err(CallFailure::Grpc { code: "NOT_FOUND", .. })));
    }

    #[test]
    fn headers_must_be_those_of_grpc() {
        let refused = |status, grpc| refused(&Headers { status, grpc, ..Default::default() });
        assert_eq!(refused(200, Some(true)), None);
        for (status, grpc) in [(0, Some(true)), (404, Some(true)), (200, Some(false)), (200, None)] {
            assert!(matches!(refused(status, grpc), Some(CallFailure::NotGrpc(_))), "{status} {grpc:?}");
        }
    }

    #[test]
    fn a_message_must_be_whole() {
        let message = |framed: Vec<u8>| message(framed.into());
        assert_eq!(message(vec![0, 0, 0, 0, 2, 7, 8]), Ok(Bytes::from_static(&[7, 8])));
        assert!(message(vec![0, 0, 0, 0, 3, 7, 8]).is_err());
        assert!(message(vec![1, 0, 0, 0, 2, 7, 8]).is_err());
        assert!(message(vec![]).is_err());
    }
}
