//! gRPC calls that are no reviews: streams of initializers and apiservers, calls about unfinished objects, health and
//! reflection.

pub(crate) mod attach;
pub(crate) mod follow;
pub(crate) mod health_reflection;
pub(crate) mod initialization;
mod messages;
