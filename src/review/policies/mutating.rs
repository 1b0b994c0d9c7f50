//! The phase of mutating policies: each changes the object for those after it.

use super::*;

/// Lets the mutating policies that match this request change the object, by name.
pub(in crate::review) async fn mutate<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>) -> Flow {
    // Of several segments of hooks, the first one begins the chain.
    let is_first = ctx.caller.segment.is_none_or(|segment| segment.number == 1);
    let applies = is_first && !draft.skips_hooks && ctx.mutates();
    if !applies || !ctx.generation.snapshot.has_policies(HookType::Mutating) {
        return Flow::Continue(());
    }
    // As upstream, before any of them changes the object.
    let tasks = Collecting(Facts::new(ctx, ctx.review, None)).tasks(draft, HookType::Mutating).await;
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
    match is_needed || !is_same {
        true => Box::pin(change(ctx, draft, tasks)).await,
        false => Flow::Continue(()),
    }
}

/// Evaluates mutating policies in order, each with the object of those before it.
async fn change<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>, mut tasks: Vec<PolicyTask>) -> Flow {
    let before = draft.object.clone();
    let review = ctx.current_review(before.as_ref());
    let namespace = namespace_object(ctx, review, &mut tasks).await;
    let mutating = Mutating {
        before: before.clone(),
        partial: Partial::default(),
        tasks,
        namespace,
        document: None,
        next: (0, 0, 0),
        is_needed: false,
    };
    let mutating = match mutating.run(ctx, review, draft).await {
        Ok(mutating) => mutating,
        Err(refusal) => return draft.refuse(refusal),
    };
    let Mutating { tasks, document, is_needed, .. } = mutating;
    if let Some((document, room)) = document {
        match completed(review, before.as_ref(), document, 0, room) {
            Ok(Some(object)) => draft.object = Some(Arc::new(object)),
            Ok(None) => {}
            Err(failure) => return draft.refuse(not_changed(&failure)),
        }
    }
    let again = |task: &PolicyTask| task.policy.definition.reinvocation == Reinvocation::IfNeeded;
    let tasks: Vec<_> = tasks.into_iter().filter(again).collect();
    if !tasks.is_empty() && !draft.is_rejected {
        draft.reinvocable = Some(Reinvocable { tasks, after: draft.object.clone(), is_needed });
    }
    draft.flow()
}

/// Returns the rejection of a request whose object policies have changed in a way that cannot be used.
fn not_changed(failure: &PatchFailure) -> StatusError {
    Box::new(match failure {
        PatchFailure::NoRoom => rejection::no_room("mutating admission policies"),
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
    took: Duration,
}

/// Mutating policies, while they are evaluated.
struct Mutating {
    before: Option<Arc<PatchedObject>>,
    tasks: Vec<PolicyTask>,
    namespace: Option<Bytes>,
    /// The object, once it is read, with its memory.
    document: Option<(Document, Reservation)>,
    /// Next evaluation: indexes of the task, the binding and the param.
    next: (usize, usize, usize),
    /// Results of the next task's evaluations before that one.
    partial: Partial,
    /// True if a policy has changed the object. As upstream, policies then decide once more, the same one included.
    is_needed: bool,
}

impl Mutating {
    /// Evaluates all policies, until the request's deadline, and adds their ends to the draft.
    async fn run<'a>(
        mut self,
        ctx: &'a ReviewContext<'a>,
        review: &Review,
        draft: &mut Draft<'a>,
    ) -> Result<Self, StatusError> {
        let until = ctx.caller.deadline.instant();
        let object = review.object.clone().unwrap_or_default();
        // The object, its text for expressions, and its parts that mutations make.
        let room = ctx.deps.memory.reserve(Purpose::Answer, 4 * object.len() + MIN_MUTATION_BYTES);
        let mut room = room.ok_or_else(|| not_changed(&PatchFailure::NoRoom))?;
        let document = document_of(review, object, self.before.as_ref(), &mut room).map_err(|why| not_changed(&why))?;
        self.document = Some((document, room));
        let steps = Cell::new(MAX_STEPS);
        let mut offloaded = is_large(&review.object) || is_large(&review.old_object);
        loop {
            let decisions = ctx.access.decisions();
            let (ends, suspended);
            (self, ends, suspended) = if offloaded {
                let (review, mutating) = (review.clone(), self);
                let evaluating = offload::evaluate(move || {
                    let steps = Cell::new(MAX_POLICY_STEPS);
                    let allowance = Allowance { steps: &steps, over: &|| Instant::now() >= until };
                    mutating.evaluate(&review, decisions, &allowance)
                });
                timeout_at(until.into(), evaluating).await.map_err(|_| Box::new(rejection::out_of_time()))?
            } else {
                let allowance = Allowance { steps: &steps, over: &|| now() >= until };
                self.evaluate(review, decisions, &allowance)
            };
            let _ = conclude(ctx, draft, HookType::Mutating, ends);
            match suspended {
                None => return Ok(self),
                Some(Suspended::Deadline) => return Err(Box::new(rejection::out_of_time())),
                Some(Suspended::Undecided(check)) => ctx.access.decide(review, vec![*check], until).await?,
                Some(Suspended::TooLong) if !offloaded => offloaded = true,
                Some(Suspended::TooLong) => {
                    let (task, ..) = self.next;
                    let Partial { mut outcome, took, .. } = std::mem::take(&mut self.partial);
                    let PolicyEnd { index, outcome: end, .. } = self.tasks[task].failed(&too_long());
                    outcome.join(end);
                    let end = PolicyEnd { index, outcome, took };
                    let _ = conclude(ctx, draft, HookType::Mutating, vec![end]);
                    self.next = (task + 1, 0, 0);
                }
            }
        }
    }

    /// Evaluates policies from the next one on, up to the first that is suspended.
    fn evaluate(
        mut self,
        review: &Review,
        decisions: AccessDecisions,
        allowance: &Allowance<'_>,
    ) -> (Self, Vec<PolicyEnd>, Option<Suspended>) {
        let Some((mut document, room)) = self.document.take() else { return (self, Vec::new(), None) };
        let namespace = self.namespace.clone();
        let namespace = namespace.as_deref().map(|object| JsonDocument::new(object.into()));
        let mut input = conditions::input(review, true, decisions, namespace);
        let current = document.rope();
        input.object = Some(JsonDocument::new(current.copy_of(0..current.len()).to_vec().into()));
        let (mut ends, mut suspended) = (Vec::new(), None);
        let (mut task, mut binding, mut param) = self.next;
        'tasks: while let Some(PolicyTask { index, policy, bindings, failure }) = self.tasks.get(task) {
            let began = Instant::now();
            let Partial { mut outcome, mut excluded, took } = std::mem::take(&mut self.partial);
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
                                Ok(Mutated { object, is_changed, outcome: end }) => {
                                    excluded.push(end.is_excluded);
                                    outcome.join(end);
                                    if is_changed {
                                        (document, self.is_needed) = (object, true);
                                    }
                                }
                                Err(why) => {
                                    suspended = Some(why);
                                    self.partial = Partial { outcome, excluded, took: took + began.elapsed() };
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
            ends.push(PolicyEnd { index: *index, outcome, took: took + began.elapsed() });
            (task, binding, param) = (task + 1, 0, 0);
        }
        (self.next, self.document) = ((task, binding, param), Some((document, room)));
        (self, ends, suspended)
    }
}
