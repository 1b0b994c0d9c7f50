//! Progress: pace at which a review has to arrive.
//!
//! A caller that announces much and sends little holds its place in the memory budget at the cost of the others. So
//! after [`GRACE`] a review that is not whole must have come with [`RATE`] on average. That is far below what any
//! network brings on which an apiserver waits for its webhooks, and the grace is longer than what a busy machine keeps
//! a caller from writing.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::time::Sleep;

use super::refusal::Refusal;
use crate::model::Deadline;

/// Time for a review to arrive, however slowly it comes.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes a second that are then expected, on average since the head.
const RATE: usize = 16 << 10;
/// Interval at which the pace is checked.
const EVERY: Duration = Duration::from_secs(1);

/// A review on its way: when its head came, and by when the rest must be there.
#[derive(Debug)]
pub(super) struct Progress<'a> {
    arrived: Instant,
    deadline: Instant,
    timer: Pin<&'a mut Sleep>,
}

/// The request's only timer, to be pinned; tokio registers it only when the body is not already there.
pub(super) fn timer(arrived: Instant, deadline: Deadline) -> Sleep {
    tokio::time::sleep_until((arrived + GRACE).min(deadline.instant()).into())
}

impl<'a> Progress<'a> {
    pub(super) fn new(arrived: Instant, deadline: Deadline, timer: Pin<&'a mut Sleep>) -> Self {
        Self { arrived, deadline: deadline.instant(), timer }
    }

    /// The next payload of a body from which `received` bytes have come; refused when they come too slowly.
    pub(super) async fn next<T>(
        &mut self,
        received: usize,
        mut payload: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, Refusal> {
        poll_fn(|cx| match payload(cx) {
            Poll::Ready(payload) => Poll::Ready(Ok(payload)),
            Poll::Pending => self.poll(cx, received).map(Err),
        })
        .await
    }

    /// Pending while it comes fast enough; else why it is refused.
    fn poll(&mut self, cx: &mut Context<'_>, received: usize) -> Poll<Refusal> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = self.timer.deadline().into_std();
            let within = now - self.arrived;
            if now >= self.deadline {
                return Poll::Ready(Refusal::Deadline { within, received });
            }
            if (received as u128) * 1000 < RATE as u128 * within.as_millis() {
                return Poll::Ready(Refusal::Stalled { within, received });
            }
            self.timer.as_mut().reset((now + EVERY).min(self.deadline).into());
        }
    }
}
