//! Protocols of hooks over HTTP/2: how a request is encoded, and how its answer is judged. Over HTTP/1.1, where only
//! POSTs are sent, `http1::exchange` writes requests and `http1::reader` judges answers.
//!
//! To add a protocol: a variant of [`HookRequest`], an arm in each match below, and its case in `http1::exchange`.
//! [`gatepost_api::Protocol`] lists the other places.
//! [`request_head`] has the heads of requests and answers, and the encoder that the requests over one HTTP/2 connection
//! share.

pub(super) mod request_head;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

pub use self::request_head::Method;
use self::request_head::{
    Field, INVALID_LENGTH, Media, RequestHeads, ResponseFields, ResponseHead, entries, write_path,
};
use super::{
    answer_buffer::AnswerBuffer,
    reply::{HttpReply, Reply},
};
use gatepost_api::{CallFailure, ForwardedContext, HttpForm};
use gatepost_http2_client::hpack::{FieldName, literal, short_literal};
use gatepost_wire::{inbound::FRAME_HEAD, names::NAMESPACE_LABELS};

/// Request to a hook, in the terms of its protocol.
#[derive(Clone, Debug)]
pub enum HookRequest {
    /// A gRPC call.
    Grpc(GrpcRequest),
    /// A POST.
    Http(HttpRequest),
}

/// A gRPC call.
#[derive(Clone, Debug)]
pub struct GrpcRequest {
    /// Method to call.
    pub method: Method,
    /// Value of [`NAMESPACE_LABELS`] as the caller sent it (base64). It is passed on unchanged.
    pub namespace_labels: Option<Bytes>,
}

/// A POST.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// Path, and query if there is one.
    pub path: Arc<str>,
    /// Form of the review: it decides the content type.
    pub form: HttpForm,
    /// Timeout in the path's query, as by kube-apiserver (`timeout=10s`, rounded up). It is that of the whole call,
    /// even if the request is sent again.
    pub timeout: Duration,
}

impl HookRequest {
    /// Appends the HTTP/2 header block of this request, with a body of `len` bytes and the time `left`.
    pub(super) fn write_head(
        &self,
        forwarded: &ForwardedContext,
        len: usize,
        left: Duration,
        heads: &mut RequestHeads,
        out: &mut Vec<u8>,
    ) {
        heads.begin(out);
        match self {
            Self::Grpc(GrpcRequest { method, namespace_labels }) => {
                for field in [Field::Path(*method), Field::Authority, Field::Te, Field::Grpc, Field::UserAgent] {
                    heads.field(field, out);
                }
                heads.forwarded(forwarded, out);
                heads.grpc_timeout(left, out);
                if let Some(value) = namespace_labels {
                    literal(FieldName::Text(NAMESPACE_LABELS.as_bytes()), value, out);
                }
            }
            // Path and length differ from call to call, and are literals.
            Self::Http(HttpRequest { path, form, timeout }) => {
                let media = Media::of(*form);
                heads.path.clear();
                write_path(path, *timeout, &mut heads.path);
                literal(FieldName::Static(entries::PATH), &heads.path, out);
                heads.field(Field::Authority, out);
                for field in [Field::ContentType(media), Field::Accept(media), Field::AcceptEncoding, Field::UserAgent]
                {
                    heads.field(field, out);
                }
                heads.forwarded(forwarded, out);
                short_literal(FieldName::Static(entries::CONTENT_LENGTH), format_args!("{len}"), out);
            }
        }
    }

    /// Returns the failure of the call if the head of its answer makes that certain: the answer is not from a gRPC
    /// server, or announces more than `limit` bytes. The rest of the answer is then not read.
    pub(super) fn early_failure(&self, head: &ResponseHead, limit: usize) -> Option<CallFailure> {
        match (self, head.status, head.fields.grpc) {
            (Self::Grpc(_), 200, Some(true)) => None,
            (Self::Grpc(_), 200, Some(false)) => Some(self.malformed("its content type is not application/grpc")),
            (Self::Grpc(_), 200, None) => Some(self.malformed("its answer has no content type")),
            (Self::Grpc(_), status, _) => Some(self.malformed(&format!("it answered with HTTP status {status}"))),
            (Self::Http(_), ..) => {
                let too_large = |len: u64| len > limit as u64 && len != INVALID_LENGTH;
                head.fields.content_length.is_some_and(too_large).then_some(CallFailure::TooLarge { limit })
            }
        }
    }

    /// Returns the number of bytes of a body that are not part of the answer.
    pub(super) fn overhead(&self) -> usize {
        match self {
            Self::Grpc(_) => FRAME_HEAD,
            Self::Http(_) => 0,
        }
    }

    /// Returns the failure of a call whose answer breaks the rules of the protocol.
    pub(super) fn malformed(&self, what: &str) -> CallFailure {
        match self {
            Self::Grpc(_) => CallFailure::NotGrpc(what.into()),
            Self::Http(_) => CallFailure::NotHttp(what.into()),
        }
    }

    /// Judges a complete answer over HTTP/2.
    pub(super) fn judge(
        &self,
        head: ResponseHead,
        trailers: Option<ResponseFields>,
        body: AnswerBuffer,
    ) -> Result<Reply, CallFailure> {
        match self {
            Self::Grpc(_) => judge_grpc(head.fields, trailers, body.finish()).map(Reply::Grpc),
            Self::Http(_) => judge_http(&head, body).map(Reply::Http),
        }
    }
}

/// Returns the message or the failure of a call whose answer is complete. If there are no trailers, the answer must
/// consist of headers only ("trailers-only").
fn judge_grpc(head: ResponseFields, trailers: Option<ResponseFields>, body: Bytes) -> Result<Bytes, CallFailure> {
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
fn percent_decoded(text: &[u8]) -> String {
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

/// Returns the reply or the failure of a complete response. Its trailers do not matter.
fn judge_http(head: &ResponseHead, body: AnswerBuffer) -> Result<HttpReply, CallFailure> {
    let ResponseHead { status, fields } = head;
    // RFC 9113 §8.1.1: these two may state the length of a body that they omit.
    let left_out = matches!(status, 204 | 304) && body.len() == 0;
    if fields.content_length.is_some_and(|len| len != body.len() as u64) && !left_out {
        return Err(CallFailure::NotHttp("its answer is not as long as its content-length says".into()));
    }
    let readable_type = fields.readable_type.unwrap_or(true);
    let reply = HttpReply::received(*status, fields.gzip == Some(true), body);
    Ok(HttpReply { retry_after: fields.retry_after, readable_type, ..reply })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::answer_buffer::AnswerBudget;

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
        assert_eq!(judge_grpc(answered(Some(6)), Some(status(0)), body()), Ok(Bytes::from_static(&[7])));
        let early = ResponseFields { grpc_status: Some(0), ..answered(None) };
        for (head, trailers) in [
            (early.clone(), Some(status(7))),
            (early.clone(), Some(status(0))),
            (early, None),
            (answered(None), Some(ResponseFields::default())),
            (answered(Some(7)), Some(status(0))),
        ] {
            let judged = judge_grpc(head.clone(), trailers.clone(), body());
            assert!(matches!(judged, Err(CallFailure::NotGrpc(_))), "{head:?} {trailers:?} {judged:?}");
        }
        let only = ResponseFields { grpc_status: Some(5), ..answered(None) };
        assert!(matches!(judge_grpc(only, None, Bytes::new()), Err(CallFailure::Grpc { code: "NOT_FOUND", .. })));
    }

    #[test]
    fn answers_without_grpc_headers_are_refused() {
        let call = || HookRequest::Grpc(GrpcRequest { method: Method::Review, namespace_labels: None });
        let refused = |status, grpc| {
            let fields = ResponseFields { grpc, ..Default::default() };
            call().early_failure(&ResponseHead { status, fields }, 10)
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

    fn head(status: u16, content_length: Option<u64>) -> ResponseHead {
        ResponseHead { status, fields: ResponseFields { content_length, ..Default::default() } }
    }

    #[test]
    fn a_response_must_have_the_announced_length() {
        let judge = |status, len, body: &'static [u8]| {
            let mut buffer = AnswerBuffer::new(&AnswerBudget::unlimited());
            buffer.extend(body).expect("room");
            judge_http(&head(status, len), buffer)
        };
        assert_eq!(judge(200, Some(2), b"{}"), Ok(HttpReply::new(200, "{}".into())));
        assert!(judge(200, None, b"{}").is_ok());
        assert!(judge(204, Some(7), b"").is_ok());
        for (status, len, body) in [(200, Some(3), &b"{}"[..]), (200, Some(1), b"{}"), (204, Some(7), b"x")] {
            assert!(matches!(judge(status, len, body), Err(CallFailure::NotHttp(_))), "{status} {len:?}");
        }
    }

    #[test]
    fn a_response_that_announces_too_much_is_refused() {
        let (path, form, timeout) = ("/".into(), HttpForm::Legacy, Duration::from_secs(1));
        let post = HookRequest::Http(HttpRequest { path, form, timeout });
        let early_failure = |len| post.early_failure(&head(200, Some(len)), 10);
        assert_eq!(early_failure(10), None);
        assert_eq!(early_failure(11), Some(CallFailure::TooLarge { limit: 10 }));
        assert_eq!(early_failure(INVALID_LENGTH), None, "judged with the body");
    }
}
