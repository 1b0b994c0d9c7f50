//! Conditions: results of hooks' `matchConditions` for one request, each hook decided at most once.

use std::{
    borrow::Cow,
    cell::{Cell, OnceCell, RefCell},
    ops::Range,
    sync::Arc,
    time::Instant,
};

use rustc_hash::FxHashMap;

use super::{
    access::{Access, user_of},
    caller::Caller,
    status,
    status::StatusError,
};
use crate::{
    cel::{self, AccessCheck, AccessDecisions, Allowance, Condition, ConditionsDecision, Input, JsonDocument, Request},
    clock::now,
    live::{Generation, LiveHook},
    model::{ContainerEnds, Encoding, Gvk, Gvr, Review, RuleTarget},
    offload::{self, LARGE},
    telemetry::{HookMetrics, UnmetConditions},
};

/// Steps that one request may take on its worker's thread: about two milliseconds.
const STEPS: u64 = 50_000;

/// Steps that the conditions of one hook may take beside the worker: about 200 ms of a core. Counted rather than timed,
/// so that the same request ends in the same way on a busy machine.
const STEPS_BESIDE: u64 = 100 * STEPS;

/// As upstream words a cost limit, with what to do.
const TOO_LONG: &str = "the match conditions need more than 200 ms of processor time for this request: let them look at less of the object";

/// Bytes of text that are looked at once, for whether they are UTF-8, in the time of a step.
const LOOKED_AT_A_STEP: usize = 256;

/// Decision of a hook's conditions.
#[derive(Clone, Debug)]
pub(super) enum ConditionsResult {
    /// It is asked.
    Asked,
    /// It is not asked.
    Excluded,
    /// Its failure policy decides; as upstream words it.
    Failed(String),
    /// The request's time ended before that was known.
    Refused(StatusError),
}

/// Reasons why conditions are still undecided.
pub(super) enum Pending {
    /// They would take too long here.
    Slow,
    /// They make an access check that has no decision.
    Access(AccessCheck),
}

impl TryFrom<ConditionsDecision<'_>> for ConditionsResult {
    type Error = Pending;

    fn try_from(decision: ConditionsDecision<'_>) -> Result<Self, Pending> {
        Ok(match decision {
            ConditionsDecision::Matches => Self::Asked,
            ConditionsDecision::Excluded(_) => Self::Excluded,
            ConditionsDecision::Failed(why) => Self::Failed(why),
            ConditionsDecision::TooLong => return Err(Pending::Slow),
            ConditionsDecision::Undecided(check) => return Err(Pending::Access(*check)),
        })
    }
}

/// Conditions of a hook that are to be evaluated beside the worker.
struct Slow {
    hook: u32,
    conditions: Arc<[Condition]>,
    metrics: Arc<HookMetrics>,
}

/// The conditions of hooks about one review.
pub(super) struct Conditions<'a> {
    review: &'a Review,
    caller: &'a Caller,
    access: &'a Access<'a>,
    steps: Cell<u64>,
    /// Hooks whose conditions are to be evaluated beside the worker.
    slow: RefCell<Vec<Slow>>,
    /// Access checks that are to be decided, each with the hook whose conditions make it.
    undecided: RefCell<Vec<(u32, AccessCheck)>>,
    said: FxHashMap<u32, ConditionsResult>,
    /// The hook whose conditions have no value, where that rejects the request.
    failed: Cell<Option<u32>>,
}

impl<'a> Conditions<'a> {
    pub(super) fn new(review: &'a Review, caller: &'a Caller, access: &'a Access<'a>) -> Self {
        let (steps, slow, undecided) = (Cell::new(STEPS), RefCell::default(), RefCell::default());
        Self { review, caller, access, steps, slow, undecided, said: FxHashMap::default(), failed: Cell::new(None) }
    }

    /// Counts the request as one that the conditions of the hook looked at last reject, if they do.
    pub(super) fn count_rejection(&self, generation: &Generation) {
        if let Some(live) = self.failed.take().and_then(|hook| generation.hooks.get(hook as usize)) {
            live.metrics.conditions_unmet(UnmetConditions::Failed);
        }
    }

    /// Are there hooks that [`Conditions::evaluate`] is to decide?
    pub(super) fn has_slow(&self) -> bool {
        !self.slow.borrow().is_empty() || !self.undecided.borrow().is_empty()
    }

    /// Evaluates beside the worker what takes longer, and has access checks decided; within the request's time.
    /// Conditions that wait for a decision are evaluated anew by whoever looks next. That ends: each round decides a
    /// check, of which two fit into what an expression may cost.
    pub(super) async fn evaluate(&mut self) {
        let until = self.caller.deadline.instant();
        let slow = self.slow.take();
        if !slow.is_empty() {
            self.evaluate_beside(slow, until).await;
        }
        let (hooks, checks): (Vec<u32>, Vec<AccessCheck>) = self.undecided.take().into_iter().unzip();
        if !checks.is_empty()
            && let Err(refusal) = self.access.decide(self.review, checks, until).await
        {
            self.said.extend(hooks.into_iter().map(|hook| (hook, ConditionsResult::Refused(refusal.clone()))));
        }
    }

    async fn evaluate_beside(&mut self, slow: Vec<Slow>, until: Instant) {
        let (worker, hooks): (_, Vec<u32>) = (self.caller.worker, slow.iter().map(|slow| slow.hook).collect());
        let (review, decisions) = (self.review.clone(), self.access.decisions());
        let evaluating = offload::evaluate(move || {
            let input = input(&review, true, decisions);
            let say = |Slow { hook, conditions, metrics }: &Slow| {
                let (began, steps) = (Instant::now(), Cell::new(STEPS_BESIDE));
                let allowance = Allowance { steps: &steps, over: &|| Instant::now() >= until };
                let said = ConditionsResult::try_from(cel::decide(conditions, &input, &allowance));
                metrics.conditions_evaluated(worker, began.elapsed());
                (*hook, said)
            };
            slow.iter().map(say).collect::<Vec<_>>()
        });
        let Ok(said) = tokio::time::timeout_at(until.into(), evaluating).await else {
            return self.said.extend(hooks.into_iter().map(|hook| (hook, out_of_time())));
        };
        let is_over = Instant::now() >= until;
        for (hook, said) in said {
            match said {
                Ok(ConditionsResult::Failed(_)) if is_over => drop(self.said.insert(hook, out_of_time())),
                Ok(said) => drop(self.said.insert(hook, said)),
                Err(Pending::Access(check)) => self.undecided.get_mut().push((hook, check)),
                Err(Pending::Slow) => {
                    self.said.insert(hook, ConditionsResult::Failed(TOO_LONG.to_owned()));
                }
            }
        }
    }
}

/// Decisions made at once, within one look at all hooks: an object is located once for all expressions.
pub(super) struct Judge<'a> {
    conditions: &'a Conditions<'a>,
    /// The request without its objects, and with them.
    request: OnceCell<Input<'a>>,
    whole: OnceCell<Input<'a>>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(conditions: &'a Conditions<'a>) -> Self {
        Self { conditions, request: OnceCell::new(), whole: OnceCell::new() }
    }

    /// Decision about hook number `hook`; `None` where [`Conditions::evaluate`] is to make it.
    pub(super) fn say(&self, hook: u32, live: &LiveHook, conditions: &Arc<[Condition]>) -> Option<ConditionsResult> {
        if conditions.is_empty() {
            return Some(ConditionsResult::Asked);
        }
        if let Some(said) = self.conditions.said.get(&hook) {
            return Some(said.clone());
        }
        let began = Instant::now();
        match self.at_once(conditions).map_or(Err(Pending::Slow), ConditionsResult::try_from) {
            Ok(ConditionsResult::Failed(_)) if self.conditions.caller.deadline.left(now()).is_zero() => {
                return Some(out_of_time());
            }
            Ok(said) => {
                live.metrics.conditions_evaluated(self.conditions.caller.worker, began.elapsed());
                return Some(said);
            }
            Err(Pending::Slow) => {
                let mut slow = self.conditions.slow.borrow_mut();
                if !slow.iter().any(|other| other.hook == hook) {
                    let (conditions, metrics) = (Arc::clone(conditions), Arc::clone(&live.metrics));
                    slow.push(Slow { hook, conditions, metrics });
                }
            }
            Err(Pending::Access(check)) => {
                let mut undecided = self.conditions.undecided.borrow_mut();
                if !undecided.iter().any(|(other, _)| *other == hook) {
                    undecided.push((hook, check));
                }
            }
        }
        None
    }

    /// The conditions of this hook, the one that is looked at, reject the request; `None`: they do not.
    pub(super) fn rejected_by(&self, hook: Option<u32>) {
        self.conditions.failed.set(hook);
    }

    /// Will these conditions have to be waited for, whatever they say?
    pub(super) fn waits(&self, conditions: &[Condition]) -> bool {
        let Conditions { review, .. } = self.conditions;
        let large = is_large(&review.object) || is_large(&review.old_object);
        conditions.iter().any(|condition| condition.asks_authorizer() || large && condition.reads_objects())
    }

    fn at_once<'c>(&'c self, conditions: &'c [Condition]) -> Option<ConditionsDecision<'c>> {
        let Conditions { review, caller, steps, .. } = self.conditions;
        let deadline = caller.deadline;
        let allowance = Allowance { steps, over: &|| deadline.left(now()).is_zero() };
        if is_large(&review.options) || is_large(&review.user) {
            return None;
        }
        let input: &'c Input<'c> = if conditions.iter().any(Condition::reads_objects) {
            if is_large(&review.object) || is_large(&review.old_object) {
                return None;
            }
            self.whole.get_or_init(|| self.input(true))
        } else {
            self.request.get_or_init(|| self.input(false))
        };
        Some(cel::decide(conditions, input, &allowance))
    }

    /// The input, for whose making steps are taken: each hook of a mutating phase has a judge of its own.
    fn input(&self, objects: bool) -> Input<'a> {
        let Conditions { review, steps, access, .. } = self.conditions;
        let len = |place: &Option<Range<usize>>| place.as_ref().map_or(0, Range::len);
        let of_objects = if objects { len(&review.object) + len(&review.old_object) } else { 0 };
        let bytes = len(&review.options) + of_objects;
        steps.set(steps.get().saturating_sub((bytes / LOOKED_AT_A_STEP) as u64));
        input(review, objects, access.decisions())
    }
}

/// An evaluation that ends with the request's time is no failure of the hook's, which `Ignore` would pass over.
fn out_of_time() -> ConditionsResult {
    ConditionsResult::Refused(Box::new(status::out_of_time()))
}

/// Is it too large to be read on a worker?
fn is_large(place: &Option<Range<usize>>) -> bool {
    place.as_ref().is_some_and(|place| place.len() >= LARGE)
}

/// Input of an expression. As upstream, `resource` is what the client asked for, and `kind` that of the object
/// as it is written.
fn input(review: &Review, objects: bool, decisions: AccessDecisions) -> Input<'_> {
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
    Input { request, object: object(&review.object, &review.object_ends), old_object, decisions }
}

fn kind_of(Gvk { group, version, kind }: &Gvk) -> [&str; 3] {
    [group, version, kind]
}

fn resource_of(Gvr { group, version, resource }: &Gvr) -> [&str; 3] {
    [group, version, resource]
}

/// Shared where it lies in one piece. A review in JSON was checked when it was read, and so were patches of its object.
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
