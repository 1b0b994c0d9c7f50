//! Call: one question on its way to one hook.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use super::Inbox;
use crate::model::Rope;

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

/// One question on its way to one hook. Cloning it copies no body.
#[derive(Clone, Debug)]
pub struct Call {
    /// What is called.
    pub method: Method,
    /// The framed message: the same rope for every hook.
    pub body: Rope,
    /// When the hook's own timeout ends; sent to it as `grpc-timeout`.
    pub deadline: Instant,
    /// Value of [`NAMESPACE_LABELS`] as the caller sent it (base64).
    pub namespace_labels: Option<Bytes>,
    /// Where the answer goes.
    pub inbox: Arc<Inbox>,
    /// By which the inbox's owner knows this call.
    pub tag: u32,
}

impl Call {
    /// True when nobody waits for the answer any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.inbox.is_closed()
    }
}
