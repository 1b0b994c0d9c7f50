//! Reviews over gRPC, and the health and reflection services beside them. [`call`] is the road of one.

pub(crate) mod attach;
pub(crate) mod call;
pub(crate) mod follow;
mod frames;
pub(crate) mod head;
pub(crate) mod health_reflection;
pub(crate) mod inbound;
mod incoming;
pub(crate) mod initialization;
pub(crate) mod message;
pub(crate) mod quota;
