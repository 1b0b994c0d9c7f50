//! What a gRPC call came to.

use bytes::Bytes;

use super::header_read::Headers;
use crate::{model::CallFailure, wire::inbound::FRAME_HEAD};

/// Judges a call whose last header block (trailers, or in a "trailers-only" answer the one there is) was `end`.
pub(super) fn judge(end: Headers, body: Bytes) -> Result<Bytes, CallFailure> {
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
    if headers.status != 200 {
        return Some(CallFailure::NotGrpc(format!("it answered with HTTP status {}", headers.status)));
    }
    (headers.grpc == Some(false)).then(|| CallFailure::NotGrpc("its content type is not application/grpc".into()))
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
    fn a_message_must_be_whole() {
        let message = |framed: Vec<u8>| message(framed.into());
        assert_eq!(message(vec![0, 0, 0, 0, 2, 7, 8]), Ok(Bytes::from_static(&[7, 8])));
        assert!(message(vec![0, 0, 0, 0, 3, 7, 8]).is_err());
        assert!(message(vec![1, 0, 0, 0, 2, 7, 8]).is_err());
        assert!(message(vec![]).is_err());
    }
}
