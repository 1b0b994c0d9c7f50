//! Evaluation: runs the policies of a phase in order, and waits while one is suspended: by an access check, or by a
//! thread beside the worker.

use std::{cell::Cell, time::Instant};

use bytes::Bytes;

use super::{
    super::{
        conditions::{self, MAX_OFFLOADED_STEPS, MAX_STEPS},
        context::ReviewContext,
        policy_task::PolicyTask,
        rejection::{self, StatusError},
    },
    PolicyEnd,
};
use gatepost_api::Review;
use gatepost_base::{clock::now, offload::OFFLOAD_THRESHOLD};
use gatepost_cel::{AccessDecisions, Allowance};
use gatepost_policy::Suspended;

/// Maximum number of steps of the policies of a request beside the worker's thread: about a second of a core. An
/// expensive policy takes as many as its cost, of which upstream allows ten millions for validations, and as many for
/// audit annotations.
const MAX_POLICY_STEPS: u64 = 6 * MAX_OFFLOADED_STEPS;

/// Returns true if the input of the policies is too large to be read on a worker's thread.
fn is_large(review: &Review, tasks: &[PolicyTask], namespace: Option<&Bytes>) -> bool {
    let params = tasks.iter().flat_map(|task| &task.bindings).flat_map(|bound| bound.params.iter().flatten());
    let read: usize = params.flatten().chain(namespace).map(Bytes::len).sum();
    let places = [&review.object, &review.old_object, &review.options, &review.user];
    read >= OFFLOAD_THRESHOLD || places.into_iter().any(conditions::is_large)
}

/// Policies of a phase, while they are evaluated in their order.
pub(super) trait Evaluation: Send + Sized + 'static {
    /// Evaluates policies from the next one on, up to the first that is suspended.
    fn evaluate(
        self,
        review: &Review,
        decisions: AccessDecisions,
        allowance: &Allowance<'_>,
    ) -> (Self, Vec<PolicyEnd>, Option<Suspended>);

    /// Fails the next policy, which takes too many steps, or denies by it if some of its bindings have.
    fn fail_next(&mut self) -> PolicyEnd;

    /// Returns the end of the next policy, which is not evaluated any further, if some of its bindings have denied the
    /// request.
    fn denied_next(&mut self) -> Option<PolicyEnd> {
        None
    }
}

/// Limits of an evaluation.
pub(super) struct Bounds {
    /// Steps left on the worker's thread.
    pub(super) steps: Cell<u64>,
    /// True if it runs beside the worker's thread.
    pub(super) is_offloaded: bool,
    /// The request's deadline; `None` if only access checks end by it.
    pub(super) until: Option<Instant>,
}

impl Bounds {
    /// Returns the bounds of policies that decide on a request.
    pub(super) fn of_request(
        ctx: &ReviewContext<'_>,
        review: &Review,
        tasks: &[PolicyTask],
        namespace: Option<&Bytes>,
    ) -> Self {
        let is_offloaded = is_large(review, tasks, namespace);
        Self { steps: Cell::new(MAX_STEPS), is_offloaded, until: Some(ctx.caller.deadline.instant()) }
    }
}

/// Evaluates policies. Adds the end of each to `ends`, also before an error.
///
/// # Errors
/// The deadline passes first, or a shadow is dropped.
pub(super) async fn evaluate<E: Evaluation>(
    ctx: &ReviewContext<'_>,
    review: &Review,
    mut evaluation: E,
    bounds: &mut Bounds,
    ends: &mut Vec<PolicyEnd>,
) -> Result<E, StatusError> {
    let until = bounds.until;
    loop {
        let decisions = ctx.access.decisions();
        let (found, suspended);
        (evaluation, found, suspended) = if bounds.is_offloaded {
            let review = review.clone();
            let evaluating = ctx.evaluate(move || {
                let steps = Cell::new(MAX_POLICY_STEPS);
                let over = || until.is_some_and(|until| Instant::now() >= until);
                evaluation.evaluate(&review, decisions, &Allowance { steps: &steps, over: &over })
            });
            evaluating.await?
        } else {
            let over = || until.is_some_and(|until| now() >= until);
            evaluation.evaluate(review, decisions, &Allowance { steps: &bounds.steps, over: &over })
        };
        let is_first = found.is_empty();
        match ends.is_empty() {
            true => *ends = found,
            false => ends.extend(found),
        }
        let waited = match suspended {
            None => return Ok(evaluation),
            Some(Suspended::Deadline) => Err(Box::new(rejection::out_of_time())),
            Some(Suspended::Undecided(check)) => {
                ctx.access.decide(review, vec![*check], ctx.caller.deadline.instant()).await
            }
            // One policy at fault stops no other: it fails alone, and only by steps of its own.
            Some(Suspended::TooLong) if bounds.is_offloaded && is_first => {
                ends.push(evaluation.fail_next());
                Ok(())
            }
            Some(Suspended::TooLong) => {
                bounds.is_offloaded = true;
                Ok(())
            }
        };
        if let Err(refusal) = waited {
            ends.extend(evaluation.denied_next());
            return Err(refusal);
        }
    }
}

pub(super) fn too_long() -> String {
    "the policy needs more than a second of processor time for this request: let it look at less of the object"
        .to_owned()
}
