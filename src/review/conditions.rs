//! Conditions: results of hooks' `matchConditions` for one review, and of the access checks that they make. Each hook
//! is decided once, and each check asked for once.

use std::{
    borrow::Cow,
    cell::{Cell, OnceCell},
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use smallvec::SmallVec;
use tokio::{sync::oneshot, time::timeout_at};

use super::rejection::{self, StatusError};
use crate::{
    live::{Authorizer, LiveHook, authorizer::Decided},
    telemetry::HookMetrics,
};
use gatepost_api::{ContainerEnds, Deadline, Encoding, Gvk, Gvr, Review, RuleTarget};
use gatepost_base::{
    clock::now,
    offload::{self, LARGE},
};
use gatepost_cel::{
    AccessCheck, AccessDecision, AccessDecisions, Allowance, Condition, ConditionsDecision, Input, JsonDocument,
    Request,
};
use gatepost_wire::encodings;

/// Steps that one request may take on its worker's thread: about two milliseconds.
const MAX_STEPS: u64 = 50_000;

/// Steps that the conditions of one hook may take beside the worker: about 200 ms of a core. Counted rather than timed,
/// so that the same request ends in the same way on a busy machine.
const MAX_STEPS_BESIDE: u64 = 100 * MAX_STEPS;

/// As upstream words a cost limit, with what to do.
const TOO_LONG: &str = "the match conditions need more than 200 ms of processor time for this request: let them look at less of the object";

/// Bytes of text that are looked at once, for whether they are UTF-8, in the time of a step.
const BYTES_CHECKED_PER_STEP: usize = 256;

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

/// Conditions of a hook that will be evaluated beside the worker.
struct SlowConditions {
    hook: u32,
    conditions: Arc<[Condition]>,
    metrics: Arc<HookMetrics>,
}

/// Conditions of hooks about one review.
pub(super) struct Conditions<'a> {
    review: &'a Review,
    deadline: Deadline,
    worker: usize,
    access: &'a Access<'a>,
    /// Steps that are left on the worker.
    steps: Cell<u64>,
    /// Results by hook, ascending.
    results: SmallVec<[(u32, ConditionsResult); 2]>,
    /// Hooks whose conditions will be evaluated beside the worker.
    slow: Vec<SlowConditions>,
    /// Access checks that wait for a decision, each with the hook whose conditions make it.
    undecided: Vec<(u32, AccessCheck)>,
}

impl<'a> Conditions<'a> {
    /// Nothing is evaluated yet. A call with this deadline decides, on this worker.
    pub(super) fn new(review: &'a Review, deadline: Deadline, worker: usize, access: &'a Access<'a>) -> Self {
        Self {
            review,
            deadline,
            worker,
            access,
            steps: Cell::new(MAX_STEPS),
            results: SmallVec::new(),
            slow: Vec::new(),
            undecided: Vec::new(),
        }
    }

    /// Result of the conditions of hook number `hook`, once they are decided.
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

    /// Are there hooks that [`Conditions::evaluate`] is to decide?
    pub(super) fn are_pending(&self) -> bool {
        !self.slow.is_empty() || !self.undecided.is_empty()
    }

    /// Must these conditions be waited for, whatever they say?
    pub(super) fn must_wait(&self, conditions: &[Condition]) -> bool {
        let large = is_large(&self.review.object) || is_large(&self.review.old_object);
        conditions.iter().any(|condition| condition.asks_authorizer() || large && condition.reads_objects())
    }

    /// Decides the conditions of hook number `hook`, or leaves that to [`Conditions::evaluate`].
    pub(super) fn decide(&mut self, inputs: &Inputs<'a>, hook: u32, live: &LiveHook, conditions: &Arc<[Condition]>) {
        if self.result(hook).is_some() {
            return;
        }
        let began = Instant::now();
        match self.evaluate_here(inputs, conditions).map_or(Err(Pending::Slow), ConditionsResult::try_from) {
            Ok(ConditionsResult::Failed(_)) if self.deadline.left(now()).is_zero() => self.insert(hook, out_of_time()),
            Ok(result) => {
                live.metrics.conditions_evaluated(self.worker, began.elapsed());
                self.insert(hook, result);
            }
            Err(Pending::Slow) if self.slow.iter().any(|other| other.hook == hook) => {}
            Err(Pending::Slow) => {
                let (conditions, metrics) = (Arc::clone(conditions), Arc::clone(&live.metrics));
                self.slow.push(SlowConditions { hook, conditions, metrics });
            }
            Err(Pending::Access(_)) if self.undecided.iter().any(|(other, _)| *other == hook) => {}
            Err(Pending::Access(check)) => self.undecided.push((hook, check)),
        }
    }

    fn evaluate_here<'c>(&self, inputs: &'c Inputs<'a>, conditions: &'c [Condition]) -> Option<ConditionsDecision<'c>> {
        let Self { review, deadline, steps, .. } = self;
        let allowance = Allowance { steps, over: &|| deadline.left(now()).is_zero() };
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

    /// The input, for whose making steps are taken.
    fn input(&self, objects: bool) -> Input<'a> {
        let Self { review, steps, access, .. } = self;
        let len = |place: &Option<Range<usize>>| place.as_ref().map_or(0, Range::len);
        let of_objects = if objects { len(&review.object) + len(&review.old_object) } else { 0 };
        let bytes = len(&review.options) + of_objects;
        steps.set(steps.get().saturating_sub((bytes / BYTES_CHECKED_PER_STEP) as u64));
        input(review, objects, access.decisions())
    }

    /// Evaluates beside the worker what takes longer, and has access checks decided; within the request's time.
    /// Conditions that wait for an access check must then be decided again. That ends: each round decides a check, of
    /// which two fit into what an expression may cost.
    pub(super) async fn evaluate(&mut self) {
        let until = self.deadline.instant();
        let slow = std::mem::take(&mut self.slow);
        if !slow.is_empty() {
            self.evaluate_beside(slow, until).await;
        }
        let (hooks, checks): (Vec<u32>, Vec<AccessCheck>) = std::mem::take(&mut self.undecided).into_iter().unzip();
        if !checks.is_empty()
            && let Err(refusal) = self.access.decide(self.review, checks, until).await
        {
            hooks.into_iter().for_each(|hook| self.insert(hook, ConditionsResult::Refused(refusal.clone())));
        }
    }

    async fn evaluate_beside(&mut self, slow: Vec<SlowConditions>, until: Instant) {
        let (worker, hooks): (_, Vec<u32>) = (self.worker, slow.iter().map(|slow| slow.hook).collect());
        let (review, decisions) = (self.review.clone(), self.access.decisions());
        let evaluating = offload::evaluate(move || {
            let input = input(&review, true, decisions);
            let evaluate = |SlowConditions { hook, conditions, metrics }: &SlowConditions| {
                let (began, steps) = (Instant::now(), Cell::new(MAX_STEPS_BESIDE));
                let allowance = Allowance { steps: &steps, over: &|| Instant::now() >= until };
                let result = ConditionsResult::try_from(gatepost_cel::decide(conditions, &input, &allowance));
                metrics.conditions_evaluated(worker, began.elapsed());
                (*hook, result)
            };
            slow.iter().map(evaluate).collect::<Vec<_>>()
        });
        let Ok(results) = timeout_at(until.into(), evaluating).await else {
            return hooks.into_iter().for_each(|hook| self.insert(hook, out_of_time()));
        };
        let is_over = Instant::now() >= until;
        for (hook, result) in results {
            match result {
                Ok(ConditionsResult::Failed(_)) if is_over => self.insert(hook, out_of_time()),
                Ok(result) => self.insert(hook, result),
                Err(Pending::Access(check)) => self.undecided.push((hook, check)),
                Err(Pending::Slow) => self.insert(hook, ConditionsResult::Failed(TOO_LONG.to_owned())),
            }
        }
    }
}

/// Inputs of expressions, made once for all hooks that are decided together: with an access check that is decided
/// meanwhile, they are others.
#[derive(Default)]
pub(super) struct Inputs<'a> {
    /// The request without its objects.
    without_objects: OnceCell<Input<'a>>,
    with_objects: OnceCell<Input<'a>>,
}

/// An evaluation that ends with the request's time is no failure of the hook's, which `Ignore` would pass over.
fn out_of_time() -> ConditionsResult {
    ConditionsResult::Refused(Box::new(rejection::out_of_time()))
}

/// Is it too large to be read on a worker?
pub(super) fn is_large(place: &Option<Range<usize>>) -> bool {
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

/// Access checks of one request, of all hooks together.
const MAX_ACCESS_CHECKS: usize = 64;

/// Access checks of one review, as the cluster's authorizer decides them.
#[derive(Debug)]
pub(super) struct Access<'a> {
    authorizer: Option<&'a Authorizer>,
    decisions: Mutex<AccessDecisions>,
}

impl<'a> Access<'a> {
    pub(super) fn new(authorizer: Option<&'a Authorizer>) -> Self {
        Self { authorizer, decisions: Mutex::default() }
    }

    /// All decisions so far.
    pub(super) fn decisions(&self) -> AccessDecisions {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has these checks decided, all at once.
    ///
    /// # Errors
    /// The request's time ends before that.
    pub(super) async fn decide(
        &self,
        review: &Review,
        checks: Vec<AccessCheck>,
        until: Instant,
    ) -> Result<(), StatusError> {
        let out_of_time = |_| Box::new(rejection::out_of_time());
        let len = review.user.as_ref().map_or(0, Range::len);
        let theirs = review.clone();
        let reading = offload::run(len, move || user_of(&theirs));
        let user = timeout_at(until.into(), reading).await.map_err(out_of_time)?.map(Arc::new);
        let username: Arc<str> = Arc::from(&*review.username);
        let mut waiting: Vec<(AccessCheck, oneshot::Receiver<Decided>)> = Vec::new();
        let mut many = self.decisions().len();
        for check in checks {
            if self.decisions().get(&check).is_some() || waiting.iter().any(|(other, _)| *other == check) {
                continue;
            }
            many += 1;
            let asked = match (self.authorizer, &user) {
                (_, Err(why)) => Err(why.clone()),
                (None, _) => Err("no cluster is followed".to_owned()),
                _ if many > MAX_ACCESS_CHECKS => {
                    Err(format!("a request makes at most {MAX_ACCESS_CHECKS} access checks"))
                }
                (Some(authorizer), Ok(user)) => authorizer.ask(&username, user, check.clone()),
            };
            match asked {
                Ok(decided) => waiting.push((check, decided)),
                Err(why) => self.insert(check, Err(why)),
            }
        }
        for (check, decided) in waiting {
            let decided = timeout_at(until.into(), decided).await.map_err(out_of_time)?;
            self.insert(check, decided.unwrap_or_else(|_| Err("nobody asks the cluster any more".to_owned())));
        }
        Ok(())
    }

    fn insert(&self, check: AccessCheck, decided: Result<AccessDecision, String>) {
        let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        decisions.insert(check, decided.map_err(Into::into));
    }
}

/// The user who makes the request.
pub(super) fn user_of(review: &Review) -> Result<gatepost_cel::User, String> {
    let user = encodings::user_of(review).map_err(|failure| failure.to_string())?;
    Ok(gatepost_cel::User {
        uid: user.uid.unwrap_or_default(),
        groups: user.groups,
        extra: user.extra.into_iter().map(|(key, values)| (key, values.items)).collect(),
    })
}
