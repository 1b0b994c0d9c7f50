//! The phase of mutating policies: each changes the object for those after it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    super::{
        conditions,
        context::ReviewContext,
        draft::{Draft, Flow},
        facts::Facts,
        object::{PatchFailure, PatchedObject, completed, document_of},
        policy_task::{PolicyTask, Reinvocable},
        rejection::{self, StatusError},
    },
    Bounds, Collecting, Evaluation, PolicyEnd, conclude, count_unfinished, evaluate, matching_tasks, namespace_object,
    too_long,
};
use gatepost_api::{HookType, Review};
use gatepost_base::memory::Reservation;
use gatepost_cel::{AccessDecisions, Allowance, JsonDocument};
use gatepost_json_patch::Document;
use gatepost_policy::{Mutated, MutationLimits, Outcome, Suspended, document::Reinvocation, mutate as mutate_one};

/// Description of the patches in a rejection.
const PATCHES: &str = "patches of mutating admission policies";
/// Memory for the results of mutations, in bytes, in addition to several times the object.
const MIN_MUTATION_BYTES: usize = 256 << 10;

/// Lets the mutating policies that match this request change the object, by name.
pub(in crate::review) async fn mutate<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>) -> Flow {
    // If there are several segments of hooks, the first one begins the chain.
    let is_first = ctx.caller.segment.is_none_or(|segment| segment.number == 1);
    let applies = is_first && !draft.skips_hooks && ctx.mutates();
    if !applies || !ctx.generation.snapshot.has_policies(HookType::Mutating) {
        return Flow::Continue(());
    }
    // As upstream, before any of them changes the object.
    let tasks = matching_tasks(ctx, ctx.review, draft, HookType::Mutating).await;
    match tasks.is_empty() || ctx.review.object.is_none() {
        true => Flow::Continue(()),
        false => Box::pin(change(ctx, draft, tasks)).await,
    }
}

/// Lets those mutating policies decide once more that say `reinvocationPolicy: IfNeeded`, if the object has changed
/// since.
pub(in crate::review) async fn reinvoke<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>) -> Flow {
    let Some(Reinvocable { tasks, after, is_needed }) = draft.reinvocable.take() else { return Flow::Continue(()) };
    let is_same = match (&after, &draft.object) {
        (Some(after), Some(object)) => Arc::ptr_eq(after, object),
        (None, None) => true,
        _ => false,
    };
    if !is_needed && is_same {
        return Flow::Continue(());
    }
    let object = draft.object.clone();
    let tasks = Collecting(Facts::new(ctx, ctx.current_review(object.as_ref()), None)).still_apply(tasks).await;
    match tasks.is_empty() {
        true => Flow::Continue(()),
        false => Box::pin(change(ctx, draft, tasks)).await,
    }
}

/// Evaluates mutating policies in order, each with the object of those before it.
async fn change<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>, mut tasks: Vec<PolicyTask>) -> Flow {
    let before = draft.object.clone();
    let review = ctx.current_review(before.as_ref());
    let namespace = namespace_object(ctx, review, &mut tasks).await;
    let mut mutating = Mutating::new(before.clone(), tasks, namespace);
    let fails_open = mutating.tasks.iter().all(PolicyTask::rejects_no_failure);
    let mut ends = Vec::new();
    let indexes: Vec<_> = mutating.tasks.iter().map(|task| task.index).collect();
    let ended = match mutating.read_object(ctx, review) {
        Ok(()) => {
            let mut bounds = Bounds::of_request(ctx, review, &mutating.tasks, mutating.namespace.as_ref());
            evaluate(ctx, review, mutating, &mut bounds, &mut ends).await
        }
        Err(refusal) => Err(refusal),
    };
    if let Err(why) = &ended {
        count_unfinished(ctx, draft, &indexes[ends.len().min(indexes.len())..], why);
    }
    let _ = conclude(ctx, draft, HookType::Mutating, ends);
    if ctx.is_shadow() {
        return Flow::Continue(());
    }
    let mutating = match ended {
        Ok(mutating) => mutating,
        // Their earlier changes are lost as well.
        Err(_) if fails_open => return draft.flow(),
        Err(refusal) => return draft.refuse(refusal),
    };
    let Mutating { mut tasks, document, applied, is_needed, .. } = mutating;
    if let Some((document, room)) = document {
        match completed(review, before.as_ref(), document, 0, room) {
            Ok(Some(object)) => draft.object = Some(Arc::new(object)),
            Ok(None) => {}
            Err(_) if fails_open => return draft.flow(),
            Err(failure) => return draft.refuse(not_changed(&failure)),
        }
    }
    for (number, task) in tasks.iter_mut().enumerate() {
        task.retain_params(|binding, param| applied.binary_search(&(number, binding, param)).is_ok());
    }
    tasks.retain(|task| task.policy.definition.reinvocation == Reinvocation::IfNeeded && !task.bindings.is_empty());
    if !tasks.is_empty() && !draft.is_rejected {
        draft.reinvocable = Some(Reinvocable { tasks, after: draft.object.clone(), is_needed });
    }
    draft.flow()
}

/// Evaluates one policy, for a trial. Returns its end, and the object that it leaves.
pub(super) async fn try_policy(
    ctx: &ReviewContext<'_>,
    before: Option<Arc<PatchedObject>>,
    task: PolicyTask,
    namespace: Option<Bytes>,
    bounds: &mut Bounds,
) -> Result<(PolicyEnd, Option<Arc<PatchedObject>>), StatusError> {
    let review = ctx.current_review(before.as_ref());
    let mut mutating = Mutating::new(before.clone(), vec![task], namespace);
    mutating.read_object(ctx, review)?;
    let mut ends = Vec::new();
    let mutating = evaluate(ctx, review, mutating, bounds, &mut ends).await?;
    let end = ends.pop().ok_or_else(|| Box::new(rejection::out_of_time()))?;
    let Some((document, room)) = mutating.document else { return Ok((end, before)) };
    let changed = completed(review, before.as_ref(), document, 0, room).map_err(|why| not_changed(&why))?;
    Ok((end, changed.map(Arc::new).or(before)))
}

/// Returns the rejection of a request whose object policies have changed in a way that cannot be used.
fn not_changed(failure: &PatchFailure) -> StatusError {
    Box::new(match failure {
        PatchFailure::NoRoom => rejection::no_room(PATCHES),
        PatchFailure::Inapplicable(why) | PatchFailure::TooLarge(why) => {
            rejection::internal(&format!("mutating admission policies: {why}"))
        }
    })
}

/// Results of those evaluations of a policy that have ended. They outlive a suspension: a denial among them counts.
#[derive(Default)]
struct Partial {
    outcome: Outcome,
    /// Whether the match conditions excluded the request, for each evaluation.
    excluded: Vec<bool>,
    is_changed: bool,
    took: Duration,
}

/// Mutating policies, while they are evaluated.
struct Mutating {
    before: Option<Arc<PatchedObject>>,
    tasks: Vec<PolicyTask>,
    namespace: Option<Bytes>,
    /// In shadow, the object before all policies, once it is read: no policy sees what another one has changed.
    arrived: Option<Document>,
    /// The object, once it is read, with its memory.
    document: Option<(Document, Reservation)>,
    /// Next evaluation: indexes of the task, the binding and the param.
    next: (usize, usize, usize),
    /// Results of the next task's evaluations before that one.
    partial: Partial,
    /// Evaluations whose match conditions hold, in order. Only they are repeated.
    applied: Vec<(usize, usize, usize)>,
    /// True if a policy has changed the object. As upstream, policies then decide once more, the same one included.
    is_needed: bool,
}

impl Mutating {
    fn new(before: Option<Arc<PatchedObject>>, tasks: Vec<PolicyTask>, namespace: Option<Bytes>) -> Self {
        let (partial, arrived, document, applied) = (Partial::default(), None, None, Vec::new());
        Self { before, tasks, namespace, arrived, document, next: (0, 0, 0), partial, applied, is_needed: false }
    }

    /// Reads the object.
    fn read_object(&mut self, ctx: &ReviewContext<'_>, review: &Review) -> Result<(), StatusError> {
        let object = review.object.clone().unwrap_or_default();
        // The object, its text for expressions, and its parts that mutations make.
        let mut room = ctx.reserve(4 * object.len() + MIN_MUTATION_BYTES, PATCHES)?;
        let document = document_of(review, object, self.before.as_ref(), &mut room).map_err(|why| not_changed(&why))?;
        self.arrived = ctx.is_shadow().then(|| document.clone());
        self.document = Some((document, room));
        Ok(())
    }
}

impl Evaluation for Mutating {
    fn evaluate(
        mut self,
        review: &Review,
        decisions: AccessDecisions,
        allowance: &Allowance<'_>,
    ) -> (Self, Vec<PolicyEnd>, Option<Suspended>) {
        let Some((mut document, room)) = self.document.take() else { return (self, Vec::new(), None) };
        let namespace = self.namespace.clone();
        let namespace = namespace.as_deref().map(|object| JsonDocument::new(object.into()));
        let current = document.rope().to_bytes();
        let arrived = self.arrived.clone().map(|arrived| (arrived.rope().to_bytes(), arrived));
        let mut input = conditions::input(review, true, decisions, namespace);
        input.object = Some(JsonDocument::new(current.as_ref().into()));
        let (mut ends, mut suspended) = (Vec::new(), None);
        let (mut task, mut binding, mut param) = self.next;
        'tasks: while let Some(PolicyTask { index, policy, bindings, failure }) = self.tasks.get(task) {
            let began = Instant::now();
            if let Some((text, arrived)) = &arrived
                && (binding, param) == (0, 0)
                && !arrived.rope().is_same(document.rope())
            {
                (document, input.object) = (arrived.clone(), Some(JsonDocument::new(text.as_ref().into())));
            }
            let Partial { mut outcome, mut excluded, mut is_changed, took } = std::mem::take(&mut self.partial);
            if let Some(why) = failure {
                outcome = gatepost_policy::failed(policy, why);
            }
            while let Some(bound) = bindings.get(binding) {
                let of_policy = &policy.bindings[bound.index];
                match &bound.params {
                    Err(why) => outcome.join(gatepost_policy::binding_failed(policy, of_policy, why)),
                    Ok(params) => {
                        while let Some(one) = params.get(param) {
                            let params = one.as_ref().map(|bytes| JsonDocument::new(bytes.as_ref().into()));
                            let which = (&**policy, &**of_policy, params.as_ref());
                            match mutate_one(which, &mut input, &document, &MutationLimits::default(), allowance) {
                                Ok(Mutated { object, is_changed: by_this, is_applied, outcome: end }) => {
                                    if is_applied {
                                        self.applied.push((task, binding, param));
                                    }
                                    excluded.push(end.is_excluded);
                                    outcome.join(end);
                                    if by_this {
                                        (document, self.is_needed, is_changed) = (object, true, true);
                                    }
                                }
                                Err(why) => {
                                    suspended = Some(why);
                                    let took = took + began.elapsed();
                                    self.partial = Partial { outcome, excluded, is_changed, took };
                                    break 'tasks;
                                }
                            }
                            param += 1;
                        }
                    }
                }
                (binding, param) = (binding + 1, 0);
            }
            outcome.is_excluded = !excluded.is_empty() && excluded.iter().all(|excluded| *excluded);
            ends.push(PolicyEnd { index: *index, outcome, is_changed, took: took + began.elapsed() });
            (task, binding, param) = (task + 1, 0, 0);
        }
        (self.next, self.document) = ((task, binding, param), Some((document, room)));
        (self, ends, suspended)
    }

    fn fail_next(&mut self) -> PolicyEnd {
        let (task, ..) = self.next;
        let Partial { mut outcome, is_changed, took, .. } = std::mem::take(&mut self.partial);
        let PolicyEnd { index, outcome: end, .. } = self.tasks[task].failed(&too_long());
        outcome.join(end);
        self.next = (task + 1, 0, 0);
        PolicyEnd { index, outcome, is_changed, took }
    }
}
