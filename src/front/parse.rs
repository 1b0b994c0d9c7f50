//! Parse: a review's bytes to the review, within its deadline and, where they are many, beside the worker.

use std::time::Instant;

use tokio::time::timeout_at;

use super::refusal::Refusal;
use crate::{
    model::{Deadline, Review},
    offload,
    wire::inbound::ViewError,
};

/// Views `bytes` bytes that are complete. While they wait for their turn, or are viewed, others are served.
pub(super) async fn parse(
    bytes: usize,
    arrived: Instant,
    deadline: Deadline,
    view: impl FnOnce() -> Result<Review, ViewError> + Send + 'static,
) -> Result<Review, Refusal> {
    match timeout_at(deadline.instant().into(), offload::run(bytes, view)).await {
        Ok(viewed) => Ok(viewed?),
        Err(_) => Err(Refusal::Deadline { within: deadline.instant() - arrived, received: bytes }),
    }
}
