//! Conditions: results of hooks' `matchConditions`.
//!
//! A [`Conditions`] decides each hook once for one state of the object; after a patch, a new one decides the hooks that
//! follow.

use std::{
    borrow::Cow,
    cell::{Cell, OnceCell},
    ops::Range,
    sync::Arc,
    time::Instant,
};

use smallvec::SmallVec;

use super::{
    access::user_of,
    context::ReviewContext,
    rejection::{self, StatusError},
};
use crate::{live::LiveHook, telemetry::HookMetrics};
use gatepost_api::{ContainerEnds, Encoding, Gvk, Gvr, Review, RuleTarget};
use gatepost_base::offload::OFFLOAD_THRESHOLD;
use gatepost_cel::{
    AccessCheck, AccessDecisions, Allowance, Condition, ConditionsDecision, Input, JsonDocument, Request,
};

/// Maximum number of steps of one [`Conditions`] on its worker's thread: about two milliseconds.
pub(super) const MAX_STEPS: u64 = 50_000;

/// Maximum number of steps of one hook's conditions off the worker's thread: about 200 ms of a core. A count instead of
/// a time, so that a request ends in the same way on a busy machine.
pub(super) const MAX_OFFLOADED_STEPS: u64 = 100 * MAX_STEPS;

/// Error text for conditions that exceed [`MAX_OFFLOADED_STEPS`].
const TOO_LONG: &str = "the match conditions need more than 200 ms of processor time for this request: let them look at less of the object";

/// Number of bytes of text that can be checked for UTF-8 in the time of one step.
const BYTES_CHECKED_PER_STEP: usize = 256;

/// Result of a hook's conditions.
#[derive(Clone, Debug)]
pub(super) enum ConditionsResult {
    /// They all match: the hook is called.
    Matches,
    /// One does not match: the hook is not called.
    Excluded,
    /// They failed, with upstream's error text: the hook's failure policy applies.
    Failed(String),
    /// The request's deadline passed before they were decided, or a shadow was dropped: the request is rejected with
    /// this.
    OutOfTime(StatusError),
}

/// Reason why conditions are undecided.
pub(super) enum UndecidedReason {
    /// They take too many steps for the worker's thread.
    Slow,
    /// They need the decision of this access check.
    Access(AccessCheck),
}

impl TryFrom<ConditionsDecision<'_>> for ConditionsResult {
    type Error = UndecidedReason;

    fn try_from(decision: ConditionsDecision<'_>) -> Result<Self, UndecidedReason> {
        Ok(match decision {
            ConditionsDecision::Matches => Self::Matches,
            ConditionsDecision::Excluded(_) => Self::Excluded,
            ConditionsDecision::Failed(why) => Self::Failed(why),
            ConditionsDecision::TooLong => return Err(UndecidedReason::Slow),
            ConditionsDecision::Undecided(check) => return Err(UndecidedReason::Access(*check)),
        })
    }
}

/// Conditions of a hook that are to be evaluated off the worker's thread.
struct SlowConditions {
    /// Index of the hook in the snapshot.
    hook: u32,
    conditions: Arc<[Condition]>,
    metrics: Arc<HookMetrics>,
}

/// Conditions of hooks for one state of a review's object.
pub(super) struct Conditions<'a> {
    ctx: &'a ReviewContext<'a>,
    review: &'a Review,
    /// Number of steps left on the worker's thread.
    steps: Cell<u64>,
    /// Results by the hook's index in the snapshot, ascending.
    results: SmallVec<[(u32, ConditionsResult); 2]>,
    /// Hooks whose conditions are to be evaluated off the worker's thread.
    slow: Vec<SlowConditions>,
    /// Access checks to be decided, each with the index in the snapshot of the hook whose conditions need it.
    undecided: Vec<(u32, AccessCheck)>,
}

impl<'a> Conditions<'a> {
    /// Creates conditions without results for this state of the review.
    pub(super) fn new(ctx: &'a ReviewContext<'a>, review: &'a Review) -> Self {
        Self {
            ctx,
            review,
            steps: Cell::new(MAX_STEPS),
            results: SmallVec::new(),
            slow: Vec::new(),
            undecided: Vec::new(),
        }
    }

    /// Returns the result of the hook at the snapshot's index `hook`; `None` if it is undecided.
    pub(super) fn result(&self, hook: u32) -> Option<&ConditionsResult> {
        let place = self.results.binary_search_by_key(&hook, |(known, _)| *known).ok()?;
        self.results.get(place).map(|(_, result)| result)
    }

    fn insert(&mut self, hook: u32, result: ConditionsResult) {
        match self.results.binary_search_by_key(&hook, |(known, _)| *known) {
            Ok(place) => self.results[place].1 = result,
            Err(place) => self.results.insert(place, (hook, result)),
        }
    }

    /// Returns true if [`Conditions::evaluate`] has hooks to decide.
    pub(super) fn are_pending(&self) -> bool {
        !self.slow.is_empty() || !self.undecided.is_empty()
    }

    /// Returns true if deciding these conditions may need an access check or a large object.
    pub(super) fn must_wait(&self, conditions: &[Condition]) -> bool {
        let large = is_large(&self.review.object) || is_large(&self.review.old_object);
        conditions.iter().any(|condition| condition.uses_authorizer() || large && condition.reads_objects())
    }

    /// Decides the conditions of the hook at the snapshot's index `hook`, or queues them for [`Conditions::evaluate`].
    pub(super) fn try_decide(
        &mut self,
        inputs: &Inputs<'a>,
        hook: u32,
        live: &LiveHook,
        conditions: &Arc<[Condition]>,
    ) {
        if self.result(hook).is_some() {
            return;
        }
        let began = Instant::now();
        match self.evaluate_on_worker(inputs, conditions).map_or(Err(UndecidedReason::Slow), ConditionsResult::try_from)
        {
            Ok(ConditionsResult::Failed(_)) if self.ctx.is_out_of_time() => self.insert(hook, out_of_time()),
            Ok(result) => {
                live.metrics.conditions_evaluated(self.ctx.caller.worker, began.elapsed());
                self.insert(hook, result);
            }
            Err(UndecidedReason::Slow) if self.slow.iter().any(|other| other.hook == hook) => {}
            Err(UndecidedReason::Slow) => {
                let (conditions, metrics) = (Arc::clone(conditions), Arc::clone(&live.metrics));
                self.slow.push(SlowConditions { hook, conditions, metrics });
            }
            Err(UndecidedReason::Access(_)) if self.undecided.iter().any(|(other, _)| *other == hook) => {}
            Err(UndecidedReason::Access(check)) => self.undecided.push((hook, check)),
        }
    }

    fn evaluate_on_worker<'c>(
        &self,
        inputs: &'c Inputs<'a>,
        conditions: &'c [Condition],
    ) -> Option<ConditionsDecision<'c>> {
        let Self { ctx, review, steps, .. } = self;
        let allowance = Allowance { steps, over: &|| ctx.is_out_of_time() };
        if is_large(&review.options) || is_large(&review.user) {
            return None;
        }
        let input = if conditions.iter().any(Condition::reads_objects) {
            if is_large(&review.object) || is_large(&review.old_object) {
                return None;
            }
            inputs.with_objects.get_or_init(|| self.input(true))
        } else {
            inputs.without_objects.get_or_init(|| self.input(false))
        };
        Some(gatepost_cel::decide(conditions, input, &allowance))
    }

    /// Makes the input, and takes steps for its size.
    fn input(&self, objects: bool) -> Input<'a> {
        let Self { ctx, review, steps, .. } = self;
        let len = |place: &Option<Range<usize>>| place.as_ref().map_or(0, Range::len);
        let of_objects = if objects { len(&review.object) + len(&review.old_object) } else { 0 };
        let bytes = len(&review.options) + of_objects;
        steps.set(steps.get().saturating_sub((bytes / BYTES_CHECKED_PER_STEP) as u64));
        input(review, objects, ctx.access.decisions(), None)
    }

    /// Evaluates slow conditions off the worker's thread and has access checks decided, until the request's deadline.
    /// Conditions that needed an access check must then be decided again. This ends: each round decides a check, and
    /// the cost limit of an expression allows only two checks.
    pub(super) async fn evaluate(&mut self) {
        let until = self.ctx.caller.deadline.instant();
        let slow = std::mem::take(&mut self.slow);
        if !slow.is_empty() {
            self.evaluate_offloaded(slow, until).await;
        }
        let (hooks, checks): (Vec<u32>, Vec<AccessCheck>) = std::mem::take(&mut self.undecided).into_iter().unzip();
        if !checks.is_empty()
            && let Err(refusal) = self.ctx.access.decide(self.review, checks, until).await
        {
            hooks.into_iter().for_each(|hook| self.insert(hook, ConditionsResult::OutOfTime(refusal.clone())));
        }
    }

    async fn evaluate_offloaded(&mut self, slow: Vec<SlowConditions>, until: Instant) {
        let (worker, hooks): (_, Vec<u32>) = (self.ctx.caller.worker, slow.iter().map(|slow| slow.hook).collect());
        let (review, decisions) = (self.review.clone(), self.ctx.access.decisions());
        let evaluating = self.ctx.evaluate(move || {
            let input = input(&review, true, decisions, None);
            let evaluate = |SlowConditions { hook, conditions, metrics }: &SlowConditions| {
                let (began, steps) = (Instant::now(), Cell::new(MAX_OFFLOADED_STEPS));
                let allowance = Allowance { steps: &steps, over: &|| Instant::now() >= until };
                let result = ConditionsResult::try_from(gatepost_cel::decide(conditions, &input, &allowance));
                metrics.conditions_evaluated(worker, began.elapsed());
                (*hook, result)
            };
            slow.iter().map(evaluate).collect::<Vec<_>>()
        });
        let results = match evaluating.await {
            Ok(results) => results,
            Err(refusal) => {
                let refused = |hook| self.insert(hook, ConditionsResult::OutOfTime(refusal.clone()));
                return hooks.into_iter().for_each(refused);
            }
        };
        let is_over = Instant::now() >= until;
        for (hook, result) in results {
            match result {
                Ok(ConditionsResult::Failed(_)) if is_over => self.insert(hook, out_of_time()),
                Ok(result) => self.insert(hook, result),
                Err(UndecidedReason::Access(check)) => self.undecided.push((hook, check)),
                Err(UndecidedReason::Slow) => self.insert(hook, ConditionsResult::Failed(TOO_LONG.to_owned())),
            }
        }
    }
}

/// Inputs of expressions, made once for all hooks that are decided together. They contain the decided access checks, so
/// they must be made anew after a further decision.
#[derive(Default)]
pub(super) struct Inputs<'a> {
    /// Input without the objects.
    without_objects: OnceCell<Input<'a>>,
    with_objects: OnceCell<Input<'a>>,
}

/// Returns the result once the request's deadline has passed. It is no failure of the hook, so the policy `Ignore` does
/// not apply.
fn out_of_time() -> ConditionsResult {
    ConditionsResult::OutOfTime(Box::new(rejection::out_of_time()))
}

/// Returns true if this range is too large to be read on a worker's thread.
pub(super) fn is_large(place: &Option<Range<usize>>) -> bool {
    place.as_ref().is_some_and(|place| place.len() >= OFFLOAD_THRESHOLD)
}

/// Makes the input of an expression. As in upstream, `resource` is the one of the client's request, and `kind` that of
/// the object in the review. `namespace` is the object of the request's namespace, which only policies read.
pub(super) fn input<'a>(
    review: &'a Review,
    objects: bool,
    decisions: AccessDecisions,
    namespace: Option<JsonDocument<'a>>,
) -> Input<'a> {
    let made = RuleTarget::as_made(review);
    let mut request = Request::new(move || user_of(review));
    request.kind = kind_of(&review.kind);
    request.request_kind = kind_of(review.request_kind.as_ref().unwrap_or(&review.kind));
    request.resource = resource_of(made.resource);
    request.sub_resource = made.sub_resource;
    request.name = &review.name;
    request.namespace = &review.namespace;
    request.operation = review.operation.as_str();
    request.dry_run = review.dry_run;
    request.username = &review.username;
    request.user_bytes = review.user.as_ref().map_or(0, Range::len);
    request.options = review.options.clone().map(|place| document(review, place, None));
    let object = |place: &Option<Range<usize>>, ends: &Option<ContainerEnds>| {
        place.clone().filter(|_| objects).map(|place| document(review, place, ends.clone()))
    };
    let old_object = object(&review.old_object, &review.old_object_ends);
    Input { request, object: object(&review.object, &review.object_ends), old_object, namespace, decisions }
}

fn kind_of(Gvk { group, version, kind }: &Gvk) -> [&str; 3] {
    [group, version, kind]
}

fn resource_of(Gvr { group, version, resource }: &Gvr) -> [&str; 3] {
    [group, version, resource]
}

/// Returns the JSON at `place`, borrowed if it is contiguous. JSON reviews were validated when they were read, and so
/// were patches of their objects.
fn document(review: &Review, place: Range<usize>, ends: Option<ContainerEnds>) -> JsonDocument<'_> {
    let bytes = match review.bytes.contiguous(place.clone()) {
        Some(bytes) => Cow::Borrowed(bytes),
        None => Cow::Owned(review.bytes.copy_of(place).into()),
    };
    match review.encoding {
        Encoding::Json(_) => match ends {
            Some(ends) => JsonDocument::recorded(bytes, ends),
            None => JsonDocument::checked(bytes),
        },
        Encoding::Envelope(_) | Encoding::Grpc => JsonDocument::new(bytes),
    }
}
