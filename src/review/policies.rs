//! Policies: the phases in which ValidatingAdmissionPolicies and MutatingAdmissionPolicies decide, in this process.
//!
//! The inputs of a decision are collected first, which may take a wait: labels of selectors, the namespace, params.
//! Then all policies of a phase are evaluated in one go: on the worker's thread within a number of steps, and beside it
//! if they take more, or if the objects are large. An access check without a decision suspends a policy until the
//! cluster's authorizer has decided.

mod evaluation;
mod mutating;
mod trial;

pub(super) use self::mutating::{mutate, reinvoke};
pub use self::trial::{PolicyTrial, try_policies};

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use self::evaluation::{Bounds, Evaluation, evaluate, too_long};
use super::{
    canary,
    comparison::Decision,
    conditions,
    context::{Reasons, ReviewContext, ServedView},
    draft::{Draft, Flow},
    facts::{Facts, SelectorError},
    policy_task::{BoundTask, Params, PolicyTask},
    record::{CallRecord, Decider, Ending},
    rejection, versions,
};
use crate::{
    live::{
        LivePolicy,
        cluster_objects::{ObjectQuery, ObjectsError},
    },
    telemetry::{PolicyOutcome, ShadowMetrics, ShadowOutcome},
};
use gatepost_api::{
    Answer, CallFailure, Denial, Enforcement, FailurePolicy, HookType, Review, Served, StatusCause, StatusInfo, Verdict,
};
use gatepost_base::clock::now;
use gatepost_cel::{AccessDecisions, Allowance, JsonDocument};
use gatepost_config::{Match, MatchKind, MatchSet};
use gatepost_policy::{
    AuditedFailure, Bound, MatchResources, Outcome, PARAMS_NOT_FOUND, ParamKind, ParamRef, Policy, Suspended,
};

/// Maximum time to wait for the namespace or the params of a policy. The wait is also limited to half of the time left.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of denials that a rejection by mutating policies names.
const MAX_CAUSES: usize = 64;

impl Decider for LivePolicy {
    fn name(&self) -> &str {
        &self.policy.definition.name
    }

    fn id(&self) -> &str {
        &self.policy.definition.name
    }

    fn failure_policy(&self) -> FailurePolicy {
        self.policy.definition.failure_policy
    }

    fn enforcement(&self) -> Enforcement {
        self.policy.enforcement
    }

    fn is_policy(&self) -> bool {
        true
    }
}

/// Returns true if a policy that decides now has a rule for this request.
pub(super) fn any_match(ctx: &ReviewContext<'_>) -> bool {
    let (served, mut matching) = (ctx.served(), MatchSet::new());
    ctx.generation.snapshot.matching_policies(ctx.review, served.as_ref().map(ServedView::served), &mut matching);
    matching
        .iter()
        .filter_map(|matched| ctx.generation.policies.get(matched.index as usize))
        .any(|live| ctx.calls(live.policy.definition.hook_type) && canary::policy_is_due(ctx, live))
}

/// Lets the validating policies that match this request decide.
pub(super) async fn validate<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>) -> Flow {
    if draft.skips_hooks || !ctx.validates() || !ctx.generation.snapshot.has_policies(HookType::Validating) {
        return Flow::Continue(());
    }
    let object = draft.object.clone();
    let review = ctx.current_review(object.as_ref());
    let mut tasks = matching_tasks(ctx, review, draft, HookType::Validating).await;
    if tasks.is_empty() {
        return Flow::Continue(());
    }
    let namespace = namespace_object(ctx, review, &mut tasks).await;
    let mut unfinished: Vec<_> = tasks.iter().map(|task| (task.index, task.rejects_no_failure())).collect();
    let mut ends = Vec::new();
    let mut bounds = Bounds::of_request(ctx, review, &tasks, namespace.as_ref());
    let evaluated = evaluate(ctx, review, Validating::new(tasks, namespace), &mut bounds, &mut ends).await;
    // The ends are those of the first tasks, in order.
    unfinished.drain(..ends.len().min(unfinished.len()));
    // Also before an error: what has denied the request does so however late the others are.
    conclude(ctx, draft, HookType::Validating, ends)?;
    let Err(refusal) = evaluated else { return Flow::Continue(()) };
    if !unfinished.iter().all(|(_, rejects_no_failure)| *rejects_no_failure) {
        return draft.refuse(refusal);
    }
    let indexes: Vec<_> = unfinished.into_iter().map(|(index, _)| index).collect();
    count_unfinished(ctx, draft, &indexes, &refusal);
    draft.flow()
}

/// Returns the policies of this type that apply to the review, in order.
async fn matching_tasks<'a>(
    ctx: &'a ReviewContext<'a>,
    review: &Review,
    draft: &mut Draft<'a>,
    hook_type: HookType,
) -> Vec<PolicyTask> {
    let served = ctx.served();
    let mut matching = MatchSet::new();
    ctx.generation.snapshot.matching_policies(review, served.as_ref().map(ServedView::served), &mut matching);
    match matching.is_empty() {
        true => Vec::new(),
        false => Collecting(Facts::new(ctx, review, None)).tasks(&matching, draft, hook_type).await,
    }
}

/// Collects the policies that apply, and what their evaluations need.
struct Collecting<'a: 'r, 'r>(Facts<'a, 'r>);

impl<'a: 'r, 'r> Collecting<'a, 'r> {
    /// Returns those of the matching policies that are of this type and apply, in order.
    async fn tasks(&mut self, matching: &MatchSet, draft: &mut Draft<'a>, hook_type: HookType) -> Vec<PolicyTask> {
        let (ctx, review) = (self.0.ctx, self.0.review);
        let served = ctx.served();
        let served = served.as_ref().map(ServedView::served);
        let mut tasks = Vec::with_capacity(matching.len());
        for &Match { index, how } in matching {
            let Some(live) = ctx.generation.policies.get(index as usize) else { continue };
            let definition = &live.policy.definition;
            let decides = definition.hook_type == hook_type
                && canary::policy_is_due(ctx, live)
                && !versions::is_for_other_review(ctx, &*live.policy, how, review);
            if !decides || live.awaits_all_params() || ctx.bypass.skips(&definition.name) {
                continue;
            }
            if ctx.bypass.break_glass_covers(&definition.name) {
                draft.break_glass_applied = true;
                continue;
            }
            let fails_open = ctx.bypass.fails_open(&definition.name);
            let enforcement = ctx.effective(live.policy.enforcement);
            let policy = match fails_open || enforcement != live.policy.enforcement {
                true => Arc::new(Policy { fails_open, enforcement, ..(*live.policy).clone() }),
                false => Arc::clone(&live.policy),
            };
            let mut task = PolicyTask { index: index as usize, policy, bindings: SmallVec::new(), failure: None };
            let constraints = &definition.constraints;
            let applies = match constraints.matches_names(review, served) {
                true => self.selects(constraints).await,
                false => Ok(false),
            };
            match applies {
                Ok(false) => continue,
                Ok(true) => {}
                Err(why) => task.failure = Some(why),
            }
            if let MatchKind::OtherVersion(wanted) = how
                && task.failure.is_none()
            {
                let wanted = wanted.resource(&*live.policy, review, served).to_string();
                let got = review.resource.to_string();
                task.failure = Some(CallFailure::OtherVersion { wanted, got }.to_string());
            }
            if task.failure.is_none() {
                match self.bindings(live, served).await {
                    Ok(bindings) => task.bindings = bindings,
                    Err(why) => task.failure = Some(why),
                }
            }
            if task.failure.is_some() || !task.bindings.is_empty() {
                tasks.push(task);
            }
        }
        tasks
    }

    /// Returns those tasks, with those bindings, whose selectors match the object as it is now.
    async fn still_apply(&mut self, tasks: Vec<PolicyTask>) -> Vec<PolicyTask> {
        let served = self.0.ctx.served();
        let served = served.as_ref().map(ServedView::served);
        let mut kept = Vec::new();
        for mut task in tasks {
            match self.applies(&task.policy.definition.constraints, served).await {
                Ok(false) => continue,
                Ok(true) => {}
                Err(why) => task.failure = Some(why),
            }
            let mut bindings = SmallVec::new();
            for mut bound in std::mem::take(&mut task.bindings) {
                let resources = task.policy.bindings[bound.index].match_resources.as_ref();
                let applies = match resources {
                    Some(resources) => self.applies(resources, served).await,
                    None => Ok(true),
                };
                match applies {
                    Ok(false) => continue,
                    Ok(true) => {}
                    Err(why) => bound.params = Err(why),
                }
                bindings.push(bound);
            }
            if task.failure.is_some() || !bindings.is_empty() {
                kept.push(PolicyTask { bindings, ..task });
            }
        }
        kept
    }

    /// Returns the bindings that apply, with their params.
    ///
    /// # Errors
    /// The kind of the params is not served, which is a fault of the policy.
    async fn bindings(
        &mut self,
        live: &LivePolicy,
        served: Option<&Served>,
    ) -> Result<SmallVec<[BoundTask; 1]>, String> {
        let (policy, mut bindings) = (&live.policy, SmallVec::new());
        for (index, binding) in policy.bindings.iter().enumerate() {
            if live.awaits_params_of(index) {
                continue;
            }
            let applies = match &binding.match_resources {
                Some(resources) => self.applies(resources, served).await,
                None => Ok(true),
            };
            let params = match applies {
                Ok(false) => continue,
                Err(why) => Err(why),
                Ok(true) => match (&policy.definition.param_kind, &binding.param_ref) {
                    (Some(kind), Some(param)) => {
                        let (ctx, review) = (self.0.ctx, self.0.review);
                        match params(ctx, review, kind, param).await {
                            Err(ObjectsError::UnknownKind(why)) => return Err(why),
                            Err(ObjectsError::Unusable(why) | ObjectsError::Unread(why)) => Err(why),
                            Ok(params) => Ok(params),
                        }
                    }
                    _ => Ok(smallvec![None]),
                },
            };
            // Without params and without an error, the binding is skipped.
            if params.as_ref().is_ok_and(Params::is_empty) {
                continue;
            }
            bindings.push(BoundTask { index, params });
        }
        Ok(bindings)
    }

    /// Returns true if these criteria match the request. As upstream, selectors that do not match outweigh errors, and
    /// so do rules.
    async fn applies(&mut self, criteria: &MatchResources, served: Option<&Served>) -> Result<bool, String> {
        Ok(criteria.matches_rules(self.0.review, served) && self.selects(criteria).await?)
    }

    /// Returns true if the selectors of these criteria match the request.
    async fn selects(&mut self, criteria: &MatchResources) -> Result<bool, String> {
        let (of_namespace, of_object) = (&criteria.namespace_selector, &criteria.object_selector);
        if of_namespace.is_empty() && of_object.is_empty() {
            return Ok(true);
        }
        while let Some(missing) = self.0.missing(of_namespace, of_object) {
            self.0.fetch(missing).await;
        }
        self.0.selects(of_namespace, of_object).map_err(|error| match error {
            SelectorError::Refused(refusal) => refusal.message.clone(),
            SelectorError::Unavailable(why) => why,
        })
    }
}

/// Returns the params of a binding. Upstream: `CollectParams` in
/// `k8s.io/apiserver/pkg/admission/plugin/policy/generic/policy_dispatcher.go`.
async fn params(
    ctx: &ReviewContext<'_>,
    review: &Review,
    kind: &ParamKind,
    param: &ParamRef,
) -> Result<Params, ObjectsError> {
    let Some(objects) = &ctx.deps.objects else {
        let why = format!("params of kind {} are in a cluster, and none is followed (--namespaces-from)", kind.kind);
        return Err(ObjectsError::Unread(why));
    };
    let query = ObjectQuery::params(kind, param, &review.namespace);
    let found = objects.read(&query, lookup_end(ctx)).await?;
    match found.is_empty() && param.deny_if_not_found {
        true => Err(ObjectsError::Unusable(PARAMS_NOT_FOUND.to_owned())),
        false => Ok(found.iter().cloned().map(Some).collect()),
    }
}

/// Returns the namespace of the request as JSON if a policy reads it. If it cannot be read, the policies that read it
/// fail. (Upstream rejects the request regardless of the failure policies.)
async fn namespace_object(ctx: &ReviewContext<'_>, review: &Review, tasks: &mut [PolicyTask]) -> Option<Bytes> {
    let is_namespace = *review.kind.kind == *"Namespace" && review.kind.group.is_empty();
    let reads = |task: &PolicyTask| task.failure.is_none() && task.policy.definition.uses_namespace();
    if !tasks.iter().any(reads) || is_namespace || review.namespace.is_empty() {
        return None;
    }
    let name = &*review.namespace;
    let found = match &ctx.deps.objects {
        Some(objects) => objects.read(&ObjectQuery::Namespace(name.into()), lookup_end(ctx)).await,
        None => Err(ObjectsError::Unread("no cluster is followed (--namespaces-from)".to_owned())),
    };
    let why = match found.as_deref() {
        Ok([object, ..]) => return Some(object.clone()),
        Ok([]) => format!("namespaces \"{name}\" not found"),
        Err(why) => format!("looking up namespace \"{name}\" for namespaceObject: {why}"),
    };
    tasks.iter_mut().filter(|task| reads(task)).for_each(|task| task.failure = Some(why.clone()));
    None
}

/// Returns the time at which a lookup is given up, so that the evaluation keeps the rest.
fn lookup_end(ctx: &ReviewContext<'_>) -> Instant {
    now() + LOOKUP_TIMEOUT.min(ctx.caller.deadline.left(now()) / 2)
}

/// End of one policy's evaluation.
struct PolicyEnd {
    index: usize,
    outcome: Outcome,
    /// True if a mutating policy has changed the object.
    is_changed: bool,
    took: Duration,
}

/// Validating policies, while they are evaluated.
struct Validating {
    /// Policies without an end.
    tasks: Vec<PolicyTask>,
    namespace: Option<Bytes>,
    /// End of the first of them, which was suspended after some of its bindings had denied the request.
    denied: Option<PolicyEnd>,
}

impl Validating {
    fn new(tasks: Vec<PolicyTask>, namespace: Option<Bytes>) -> Self {
        Self { tasks, namespace, denied: None }
    }
}

impl Evaluation for Validating {
    fn evaluate(
        mut self,
        review: &Review,
        decisions: AccessDecisions,
        allowance: &Allowance<'_>,
    ) -> (Self, Vec<PolicyEnd>, Option<Suspended>) {
        let mut ends = Vec::with_capacity(self.tasks.len());
        let suspended = run(review, &self.tasks, self.namespace.as_deref(), decisions, allowance, &mut ends);
        let suspended = suspended.map(|(suspended, denied)| {
            self.denied = denied;
            suspended
        });
        self.tasks.drain(..ends.len());
        (self, ends, suspended)
    }

    fn fail_next(&mut self) -> PolicyEnd {
        let task = self.tasks.remove(0);
        self.denied_next().unwrap_or_else(|| task.failed(&too_long()))
    }

    fn denied_next(&mut self) -> Option<PolicyEnd> {
        self.denied.take()
    }
}

/// Params of a binding without any.
const WITHOUT_PARAMS: &[Option<JsonDocument<'static>>] = &[None];

/// Evaluates policies in order, up to the first that is suspended, and adds the end of each to `ends`. Returns why it is
/// suspended, and its end if some of its bindings have denied the request.
fn run(
    review: &Review,
    tasks: &[PolicyTask],
    namespace: Option<&[u8]>,
    decisions: AccessDecisions,
    allowance: &Allowance<'_>,
    ends: &mut Vec<PolicyEnd>,
) -> Option<(Suspended, Option<PolicyEnd>)> {
    let input = conditions::input(review, true, decisions, namespace.map(|object| JsonDocument::new(object.into())));
    let mut began = Instant::now();
    for task in tasks {
        if let Some(why) = &task.failure {
            ends.push(task.failed(why));
            continue;
        }
        let documents: SmallVec<[_; 1]> = task.bindings.iter().map(BoundTask::documents).collect();
        let bound = task.bindings.iter().zip(&documents).map(|(bound, documents)| Bound {
            binding: &task.policy.bindings[bound.index],
            params: bound.params_of(documents),
        });
        let mut outcome = Outcome::default();
        let decided = gatepost_policy::decide_into(&mut outcome, &task.policy, bound, &input, allowance);
        // The next one begins where this one ends: reading the clock takes as long as a small expression.
        let ended = Instant::now();
        let took = ended.saturating_duration_since(began);
        let end = PolicyEnd { index: task.index, outcome, is_changed: false, took };
        if let Err(suspended) = decided {
            return Some((suspended, Some(end).filter(|end| !end.outcome.denials.is_empty())));
        }
        ends.push(end);
        began = ended;
    }
    None
}

impl BoundTask {
    /// Returns the params; none if the binding has none, or if they cannot be read.
    fn documents(&self) -> Vec<Option<JsonDocument<'_>>> {
        let all = self.params.iter().flatten().flatten();
        all.map(|bytes| Some(JsonDocument::new(bytes.as_ref().into()))).collect()
    }

    /// Returns the params, each for one evaluation, of these documents.
    fn params_of<'d>(
        &'d self,
        documents: &'d [Option<JsonDocument<'d>>],
    ) -> Result<&'d [Option<JsonDocument<'d>>], &'d str> {
        match &self.params {
            Ok(_) if documents.is_empty() => Ok(WITHOUT_PARAMS),
            Ok(_) => Ok(documents),
            Err(why) => Err(why),
        }
    }
}

impl PolicyTask {
    /// Returns the end of a policy that cannot be evaluated.
    fn failed(&self, why: &str) -> PolicyEnd {
        let outcome = gatepost_policy::failed(&self.policy, why);
        PolicyEnd { index: self.index, outcome, is_changed: false, took: Duration::ZERO }
    }
}

/// Adds the ends to the draft. As upstream, the client gets the first denial only; with [`Reasons::All`], that of each
/// policy.
fn conclude<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>, hook_type: HookType, ends: Vec<PolicyEnd>) -> Flow {
    // As upstream, a mutating policy's rejection names the denials of all.
    let named = if hook_type == HookType::Mutating { MAX_CAUSES } else { 0 };
    let denials = ends.iter().flat_map(|end| &end.outcome.denials).take(named);
    let mut causes: Vec<_> = denials.map(|denial| cause(&denial.message)).collect();
    for PolicyEnd { index, outcome, is_changed, took } in ends {
        let Some(live) = ctx.generation.policies.get(index) else { continue };
        let enforcement = ctx.effective(live.policy.enforcement);
        let counted = counted(&outcome, enforcement);
        canary::add_policy(&mut draft.compared, ctx, live, || {
            Decision::of_policy(ctx, (counted, is_changed), outcome.denials.first().map(|denial| &*denial.message))
        });
        if !ctx.is_shadow() {
            live.metrics.record(ctx.caller.worker, counted, took);
        }
        let Outcome { mut denials, warnings, audit_annotations, failures, .. } = outcome;
        draft.validation_failures.extend(failures);
        let mut answer = Answer { warnings, audit_annotations, ..Answer::default() };
        let is_told = ctx.deps.reasons == Reasons::All || !draft.is_rejected || !enforcement.denies();
        let denial = if denials.is_empty() || !is_told { None } else { Some(denials.swap_remove(0)) };
        let status = denial.as_ref().map(|denial| Box::new(denied(ctx.review, denial, &mut causes)));
        let failure = match (denial, status) {
            (Some(denial), Some(status)) if denial.is_error => Some(CallFailure::Evaluation(status)),
            (_, status) => {
                answer.denial = status.map(Denial);
                None
            }
        };
        let mut record = CallRecord::new(live, hook_type, Ending::Answered(answer), took);
        record.enforcement = enforcement;
        if let Some(failure) = failure {
            record.turn_into_failure(false, failure);
        }
        if ctx.is_shadow() {
            count_in_shadow(ctx, &live.metrics.shadow, &record, (counted, is_changed));
        }
        draft.add(record);
    }
    draft.flow()
}

/// Returns the outcome for metrics.
fn counted(outcome: &Outcome, enforcement: Enforcement) -> PolicyOutcome {
    match &*outcome.denials {
        [first, ..] if first.is_error && enforcement.denies() => PolicyOutcome::FailedClosed,
        [first, ..] if first.is_error => PolicyOutcome::FailedOpen,
        [_, ..] if enforcement.denies() => PolicyOutcome::Denied,
        [_, ..] => PolicyOutcome::WouldDeny,
        [] if outcome.failed_open > 0 => PolicyOutcome::FailedOpen,
        [] if outcome.is_excluded => PolicyOutcome::Excluded,
        [] => PolicyOutcome::Allowed,
    }
}

/// Counts the decision of a policy in shadow: its outcome, and whether it has changed the object.
fn count_in_shadow(
    ctx: &ReviewContext<'_>,
    shadow: &ShadowMetrics,
    record: &CallRecord<'_>,
    (outcome, is_changed): (PolicyOutcome, bool),
) {
    match outcome {
        PolicyOutcome::Denied | PolicyOutcome::WouldDeny => shadow.record_denial(record.would_be_denial(ctx)),
        PolicyOutcome::FailedOpen | PolicyOutcome::FailedClosed => shadow.record(ShadowOutcome::Failed),
        PolicyOutcome::Allowed | PolicyOutcome::Excluded if is_changed => shadow.record(ShadowOutcome::WouldPatch),
        PolicyOutcome::Allowed | PolicyOutcome::Excluded => shadow.record(ShadowOutcome::Allowed),
    }
}

/// Counts policies in shadow that were not evaluated, for this reason. What they would decide is unknown.
fn count_unfinished(ctx: &ReviewContext<'_>, draft: &mut Draft<'_>, indexes: &[usize], why: &StatusInfo) {
    let dropped = rejection::is_shadow_dropped(why);
    let outcome = if dropped { ShadowOutcome::Abandoned } else { ShadowOutcome::Failed };
    for live in indexes.iter().filter_map(|index| ctx.generation.policies.get(*index)) {
        canary::add_policy(&mut draft.compared, ctx, live, || Decision::Unknown);
        if ctx.is_shadow() {
            live.metrics.shadow.record(outcome);
        }
    }
}

/// Returns the rejection of the request. Upstream: `admission.NewForbidden`, with reason and code of the denial.
/// `causes`: the causes of a mutating policy's rejection; empty for a validating policy, whose only cause is the denial.
fn denied(review: &Review, denial: &gatepost_policy::Denial, causes: &mut Vec<StatusCause>) -> StatusInfo {
    let gatepost_policy::Denial { message, reason, code, .. } = denial;
    let mut status = rejection::conditions_failed(review, message);
    let causes = match std::mem::take(causes) {
        none if none.is_empty() => vec![cause(message)],
        causes => {
            // As upstream, which replaces the message.
            status.message.clone_from(message);
            causes
        }
    };
    StatusInfo { code: *code, reason: reason.as_str().to_owned(), causes, ..status }
}

fn cause(message: &str) -> StatusCause {
    StatusCause { message: message.to_owned(), ..StatusCause::default() }
}

/// Adds the failed validations of bindings with the action Audit to the verdict, as upstream does.
pub(super) fn annotate(draft: &Draft<'_>, verdict: &mut Verdict) {
    if let Some(failures) = AuditedFailure::annotation(&draft.validation_failures) {
        // Removes an annotation of a hook under this key.
        verdict.audit_annotations.retain(|(key, _)| key != AuditedFailure::KEY);
        verdict.audit_annotations.push((AuditedFailure::KEY.to_owned(), failures));
    }
}
