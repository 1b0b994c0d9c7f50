//! Call: one question on its way to one hook.

use std::{sync::Arc, time::Instant};

use super::{HookRequest, Responses, Reuse};
use crate::{
    model::{Hops, Rope},
    wire::names,
};

/// Method or path of the hook.
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
            Self::Review => names::REVIEW,
            Self::Mutate => names::MUTATE,
            Self::Validate => names::VALIDATE,
            Self::Health => names::HEALTH_CHECK,
        }
    }
}

/// One question on its way to one hook. Cloning it copies no body.
#[derive(Clone, Debug)]
pub struct Call {
    /// Request to send.
    pub request: HookRequest,
    /// The encoded review: the same rope for every hook that wants this encoding.
    pub body: Rope,
    /// End of the hook's own timeout; the rest of it is sent as `grpc-timeout`.
    pub deadline: Instant,
    /// Receiver of the answer.
    pub responses: Arc<Responses>,
    /// Tag of the call in `responses`.
    pub tag: u32,
    /// Which connection may carry it.
    pub reuse: Reuse,
    /// Number of earlier sends that were not processed; failures name it.
    pub resends: u8,
    /// The Gateposts that the review has passed through, this one included; sent to the hook.
    pub hops: Hops,
}

impl Call {
    /// True when nobody waits for the answer any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.responses.is_closed()
    }
}
