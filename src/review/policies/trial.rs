//! Trials: what each policy makes of a review, for the reports of commands. Nothing is counted, and no hook is called.

use std::{cell::Cell, sync::Arc, time::Duration};

use super::{
    super::{
        conditions,
        context::{AdmissionDeps, Caller, ReviewContext},
        draft::Draft,
        policy_task::PolicyTask,
        rejection::{self, StatusError},
    },
    Bounds, PolicyEnd, Validating, evaluate, matching_tasks, mutating, namespace_object,
};
use gatepost_api::{HookType, Review};
use gatepost_cel::{Allowance, JsonDocument};
use gatepost_policy::{Explanation, Outcome, Policy, explain};

/// Decision of one policy about a review.
#[derive(Debug)]
pub struct PolicyTrial {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its outcome.
    pub outcome: Outcome,
    /// Steps of the evaluation, as it counts them against its bound.
    pub steps: u64,
    /// Time of the evaluation; of a validating policy, of the last run, if access checks were decided between two.
    pub took: Duration,
    /// Explanations of the expressions that are not true.
    pub explanations: Vec<Explanation>,
}

/// Evaluates the policies of all phases that apply to a review, in their order. An evaluation may
/// take as many steps as its cost allows. Mutating policies count once, as if none of them were invoked again. Ends
/// early at an error that rejects the request regardless of the policies' decisions.
pub async fn try_policies(
    deps: &AdmissionDeps,
    review: &Review,
    caller: &Caller,
    is_explained: bool,
) -> Vec<PolicyTrial> {
    let generation = deps.current.enter();
    let ctx = ReviewContext::of(deps, review, caller, &generation, None);
    let mut trials = Vec::new();
    // The error is in the verdict.
    let _ = try_all(&ctx, is_explained, &mut trials).await;
    trials
}

async fn try_all<'a>(
    ctx: &'a ReviewContext<'a>,
    is_explained: bool,
    trials: &mut Vec<PolicyTrial>,
) -> Result<(), StatusError> {
    let (mut draft, mut object) = (Draft::default(), None);
    for hook_type in [HookType::Mutating, HookType::Validating] {
        let changed = object.clone();
        let review = ctx.current_review(changed.as_ref());
        if ctx.bypass.skips_all() || hook_type == HookType::Mutating && review.object.is_none() {
            continue;
        }
        let mut tasks = matching_tasks(ctx, review, &mut draft, hook_type).await;
        let namespace = namespace_object(ctx, review, &mut tasks).await;
        for task in tasks {
            let policy = Arc::clone(&task.policy);
            let mut bounds = Bounds { steps: Cell::new(u64::MAX), is_offloaded: false, until: None };
            let (end, taken);
            let mut explanations = Vec::new();
            match hook_type {
                HookType::Mutating => {
                    (end, object) = mutating::try_policy(ctx, object, task, namespace.clone(), &mut bounds).await?;
                    taken = u64::MAX - bounds.steps.get();
                }
                HookType::Validating => {
                    let mut ends = Vec::new();
                    let validating = Validating::new(vec![task.clone()], namespace.clone());
                    evaluate(ctx, review, validating, &mut bounds, &mut ends).await?;
                    end = ends.pop().ok_or_else(|| Box::new(rejection::out_of_time()))?;
                    taken = u64::MAX - bounds.steps.get();
                    if is_explained {
                        let allowance = Allowance { steps: &bounds.steps, over: &|| false };
                        explanations = explained(ctx, review, &task, namespace.as_deref(), &allowance);
                    }
                }
            }
            let PolicyEnd { outcome, took, .. } = end;
            trials.push(PolicyTrial { policy, outcome, steps: taken, took, explanations });
        }
    }
    Ok(())
}

/// Returns explanations of the expressions of a policy that are not true.
fn explained(
    ctx: &ReviewContext<'_>,
    review: &Review,
    task: &PolicyTask,
    namespace: Option<&[u8]>,
    allowance: &Allowance<'_>,
) -> Vec<Explanation> {
    let namespace = namespace.map(|object| JsonDocument::new(object.into()));
    let input = conditions::input(review, true, ctx.access.decisions(), namespace);
    let mut explanations = Vec::new();
    for bound in &task.bindings {
        let documents = bound.documents();
        for param in bound.params_of(&documents).into_iter().flatten() {
            let more = explain(&task.policy, param.as_ref(), &input, allowance);
            let new: Vec<_> = more.into_iter().filter(|one| !explanations.contains(one)).collect();
            explanations.extend(new);
        }
    }
    explanations
}
