//! Protocols of hooks over HTTP/2: how a request is encoded, and how its answer is judged. Over HTTP/1.1, where only
//! POSTs are sent, `http1::exchange` writes requests and `http1::reader` judges answers.
//!
//! To add a protocol: a variant of [`HookRequest`], a file for it, an arm in each match below, and its case in
//! `http1::exchange`.
//!
//! | file | owns |
//! | --- | --- |
//! | `grpc` | a gRPC call |
//! | `http` | a POST of a review |
//! | `request_head` | heads of requests, and the encoder that those over one HTTP/2 connection share |
//! | `request_head` | heads of answers, and the fields in them that matter to either protocol |

mod grpc;
mod http;
pub(super) mod request_head;

use std::time::Duration;

use self::request_head::{RequestHeads, ResponseFields, ResponseHead};
use super::{answer_buffer::AnswerBuffer, reply::Reply};
use gatepost_api::{CallFailure, ForwardedContext};
use gatepost_wire::inbound::FRAME_HEAD;

pub use self::{grpc::GrpcRequest, http::HttpRequest, request_head::Method};

/// Request to a hook, in the terms of its protocol.
#[derive(Clone, Debug)]
pub enum HookRequest {
    /// A gRPC call.
    Grpc(GrpcRequest),
    /// A POST.
    Http(HttpRequest),
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
        match self {
            Self::Grpc(request) => request.write_head(forwarded, left, heads, out),
            Self::Http(request) => request.write_head(forwarded, len, heads, out),
        }
    }

    /// Returns the failure of the call if the head of its answer makes that certain. The rest of the answer is then not
    /// read.
    pub(super) fn early_failure(&self, head: &ResponseHead, limit: usize) -> Option<CallFailure> {
        match self {
            Self::Grpc(_) => grpc::early_failure(head),
            Self::Http(_) => http::early_failure(head, limit),
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
            Self::Grpc(_) => grpc::judge(head.fields, trailers, body.finish()).map(Reply::Grpc),
            Self::Http(_) => http::judge(&head, body).map(Reply::Http),
        }
    }
}
