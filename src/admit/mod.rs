//! The story of one request.

use std::sync::Arc;

use crate::{
    live::Current,
    model::{Deadline, Labels, Phase, Review, Verdict},
    telemetry::{Audit, Metrics},
};

/// How many reasons a rejection gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reasons {
    /// The first denial or closed failure answers at once and cancels the calls still running.
    #[default]
    First,
    /// Every hook is waited for and every reason reported.
    All,
}

/// Everything `decide` needs that outlives one request.
#[derive(Debug)]
pub struct Gate {
    /// What is in force.
    pub current: Arc<Current>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// How many reasons a rejection gives.
    pub reasons: Reasons,
}

/// What the front knows of one call besides the review.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Which of the service's calls was made.
    pub phase: Phase,
    /// By when the verdict must be there.
    pub deadline: Deadline,
    /// The worker (0..n) on whose thread this runs; it picks the lane to each hook.
    pub worker: usize,
    /// Labels of the request's namespace, where the caller sent them.
    pub namespace_labels: Option<Labels>,
}

/// Decides one review.
pub async fn decide(_gate: &Gate, _review: &Review, _caller: &Caller) -> Verdict {
    Verdict::default()
}
