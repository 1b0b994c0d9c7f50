//! Call: one question on its way to one hook.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::Inbox;
use crate::model::{HttpForm, Rope};

/// Request metadata that carries the namespace's labels; passed on to hooks, so that sidecars chain.
pub const NAMESPACE_LABELS: &str = "gatepost-namespace-labels-bin";

/// What is called at the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `gatepost.v1.Admission/Review`
    Review,
    /// `gatepost.v1.Admission/Mutate`
    Mutate,
    /// `gatepost.v1.Admission/Validate`
    Validate,
    /// `grpc.health.v1.Health/Check`
    Health,
}

impl Method {
    /// The request path.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Review => "/gatepost.v1.Admission/Review",
            Self::Mutate => "/gatepost.v1.Admission/Mutate",
            Self::Validate => "/gatepost.v1.Admission/Validate",
            Self::Health => "/grpc.health.v1.Health/Check",
        }
    }
}

/// What is asked of a hook, as its transport puts it.
#[derive(Clone, Debug)]
pub enum Request {
    /// A gRPC call.
    Grpc {
        /// What is called.
        method: Method,
        /// Value of [`NAMESPACE_LABELS`] as the caller sent it (base64).
        namespace_labels: Option<Bytes>,
    },
    /// A POST. The time left is added to the path's query as kube-apiserver does (`timeout=10s`, rounded up).
    Http {
        /// Path, and query where there is one.
        path: Arc<str>,
        /// Decides content type and what is accepted.
        form: HttpForm,
    },
}

/// What a hook sent back, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The one message of a gRPC call that ended with OK.
    Grpc(Bytes),
    /// An HTTP response, whatever its status.
    Http(HttpReply),
}

impl Reply {
    /// Length of its body in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Grpc(message) => message.len(),
            Self::Http(reply) => reply.body.len(),
        }
    }

    /// True when its body is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An HTTP response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    /// Its status.
    pub status: u16,
    /// `retry-after`, where it is a number of seconds (or a date, then from now); client-go reads only seconds.
    pub retry_after: Option<Duration>,
    /// The whole body.
    pub body: Bytes,
}

/// One question on its way to one hook. Cloning it copies no body.
#[derive(Clone, Debug)]
pub struct Call {
    /// What is asked.
    pub request: Request,
    /// The encoded review: the same rope for every hook that wants this encoding.
    pub body: Rope,
    /// When the hook's own timeout ends; sent to it as `grpc-timeout` or `timeout`.
    pub deadline: Instant,
    /// Where the answer goes.
    pub inbox: Arc<Inbox>,
    /// By which the inbox's owner knows this call.
    pub tag: u32,
    /// Asking twice does no harm: a call of which the hook may have seen something is made once more where its
    /// connection turns out to have been dead.
    pub again: bool,
    /// How often it was sent anew because the hook said that it had not looked at it.
    pub resends: u8,
}

impl Call {
    /// True when nobody waits for the answer any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.inbox.is_closed()
    }
}
