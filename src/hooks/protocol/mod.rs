//! Protocols of hooks: how a request is encoded, and how its answer is judged.
//!
//! To add a protocol: a variant of [`HookRequest`], a file for it, and an arm in each match below.
//!
//! | file | owns |
//! | --- | --- |
//! | `grpc` | a gRPC call |
//! | `http` | a POST of a review |
//! | `fields` | heads of answers, and the fields in them that either acts on |
//! | `request_head` | heads of requests, and the encoder that those over one HTTP/2 connection share |

mod grpc;
mod http;
pub(super) mod request_head;

use std::time::Duration;

use self::request_head::{RequestHeads, ResponseFields, ResponseHead};
use super::{answer_buffer::AnswerBuffer, reply::Reply};
use gatepost_api::{CallFailure, Hops};
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
    /// Appends the header block, over HTTP/2, of this request with a body of `len` bytes and the time `left`.
    pub(super) fn write_head(
        &self,
        hops: Hops,
        len: usize,
        left: Duration,
        heads: &mut RequestHeads,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Grpc(request) => request.write_head(hops, left, heads, out),
            Self::Http(request) => request.write_head(hops, len, heads, out),
        }
    }

    /// Failure that is certain from the head of an answer, whose rest is then not read.
    pub(super) fn refuses(&self, head: &ResponseHead, limit: usize) -> Option<CallFailure> {
        match self {
            Self::Grpc(_) => grpc::refuses(head),
            Self::Http(_) => http::refuses(head, limit),
        }
    }

    /// Number of bytes of a body that are not part of the answer.
    pub(super) fn overhead(&self) -> usize {
        match self {
            Self::Grpc(_) => FRAME_HEAD,
            Self::Http(_) => 0,
        }
    }

    /// Failure of a call whose answer breaks the rules of the protocol.
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
