//! Protocol: encoding of requests to a hook, and judgement of its answers. One file for each, and its place in
//! [`HookRequest`].
//!
//! | file | owns |
//! | --- | --- |
//! | `grpc` | gRPC: the head of a call, what its headers and trailers say |
//! | `http` | a POST of a review, and its response |
//! | `fields` | the fields of responses that either acts on |
//! | `request_head` | what the heads of all requests over one HTTP/2 connection share |

pub(super) mod fields;
pub(super) mod grpc;
pub(super) mod http;
pub(super) mod request_head;

use std::time::Duration;

use self::{fields::ResponseFields, request_head::RequestHeads};
use super::{collected::Collected, reply::Reply};
use crate::model::{CallFailure, Hops};

pub use self::{grpc::GrpcRequest, http::HttpRequest};

/// Request to a hook, in the terms of its protocol.
#[derive(Clone, Debug)]
pub enum HookRequest {
    /// A gRPC call.
    Grpc(GrpcRequest),
    /// A POST.
    Http(HttpRequest),
}

/// Encoding of requests and judgement of responses over HTTP/2, for one protocol.
pub(super) trait Protocol {
    /// Appends the header block of a request with a body of `len` bytes and so much time left.
    fn write_head(&self, hops: Hops, len: usize, left: Duration, heads: &mut RequestHeads, out: &mut Vec<u8>);

    /// Is it clear by the head of its answer that there will be none? Then the rest need not be heard.
    fn refuses(&self, head: &ResponseHead, limit: usize) -> Option<CallFailure>;

    /// Bytes of a body that are not the answer's own.
    fn envelope(&self) -> usize;

    /// The hook broke the rules of the protocol.
    fn malformed(&self, what: &str) -> CallFailure;

    /// Judges an answer that has ended.
    fn judge(
        &self,
        head: ResponseHead,
        trailers: Option<ResponseFields>,
        body: Collected,
    ) -> Result<Reply, CallFailure>;
}

/// Head of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseHead {
    /// The final status, 200 to 999.
    pub(super) status: u16,
    pub(super) fields: ResponseFields,
}

impl HookRequest {
    /// The request in the terms of its protocol.
    pub(super) fn protocol(&self) -> &dyn Protocol {
        match self {
            Self::Grpc(request) => request,
            Self::Http(request) => request,
        }
    }
}
