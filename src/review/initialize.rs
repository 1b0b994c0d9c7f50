//! Initialization in flight: new objects are initialized before they are stored, while the caller waits.
//!
//! | initialized | who holds the object | what releases it |
//! | --- | --- | --- |
//! | in flight (here) | `Hub::ask` holds the request | an answer, the turn's deadline, no instance attached |
//! | by a label, after it is stored | `read-proxy` hides it and holds its create | the label is removed, or the object |
//! | by a caller that stores it unfinished | that caller hides it; `StoredObjects` lists it | an update empties its list |
//!
//! The phase runs between the mutating and the validating hooks, so that validating hooks see the object that is
//! stored. The initializers in the new object's pending list act in order ([`Initialization`] tracks whose turn it is),
//! each on the object as those before it have changed it. Nothing is stored before the last one is done. If an
//! initializer rejects the object, or one that must act does not act in time, the object is not created and the caller
//! gets an error.
//!
//! An attached initializer is a process. `turn` calls [`Hub::ask`](gatepost_initializers::Hub::ask), which holds the
//! request until an instance answers over its stream (`front::grpc::attach`), the turn's deadline passes, or no instance
//! is attached. `failure` decides whether the request is then rejected or goes on without the initializer.
//!
//! A caller that stores unfinished objects (`stored`) gets the object with the rest of the list once the next
//! initializer acts on the stored object; the update that removes its name continues the list. For a resource that a
//! stock apiserver stores unfinished (`by_label`), objects are marked, and are initialized after they are stored.

mod stored;
mod turn;

use std::sync::Arc;

use serde_json::json;
use tokio::time::timeout_at;

pub use self::stored::{ObjectRead, ReadPolicy, read_policy};
use self::turn::{ParallelCalls, Turn, TurnEffect, initializers_deadline, turn_deadline};
use super::{
    context::ReviewContext,
    draft::{Draft, Flow, InitializerTurn},
    facts::Facts,
    failure::{self, is_skipped_on_failure, is_unproven, turn_refusal, turn_warning},
    rejection::{self, StatusError},
    verdict::MAX_WARNINGS,
    versions,
};
use crate::telemetry::InitializerOutcome;
use gatepost_api::{
    FailurePolicy, Gvr, Initializer, Operation, ResourceInitializers, Review, Verdict, initialization::VERB,
};
use gatepost_base::clock::now;
use gatepost_cel::{AccessCheck, AccessTarget, ResourceAccess, Subject};
use gatepost_initializers::{
    Initialization, Initializers, ListError, TurnFailure, check_known, create, needs_permission,
};
use gatepost_wire::{groups, metadata};

/// Annotation with which a permitted client chooses the initializers of a new object: names joined by commas, or "" for
/// none. It replaces `metadata.initializers`, which an apiserver drops.
const OWN_LIST: &str = "gatepost.dev/initializers";
/// Prefix of the audit annotations that name the initializers which acted.
const INITIALIZED: &str = "initialize.gatepost.dev";
/// Annotation that a kubelet adds to Pods that it runs from files. Such Pods run already.
// source: k8s.io/api/core/v1 MirrorPodAnnotationKey.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Group of all kubelets.
const NODES: &str = "system:nodes";

/// Reads the list of the stored object that an update changes, if the caller stores unfinished objects.
pub(super) async fn find_stored_list(ctx: &ReviewContext<'_>, draft: &mut Draft<'_>) -> Flow {
    let ReviewContext { review, caller, .. } = ctx;
    if !caller.stores_unfinished || review.operation != Operation::Update || review.old_object.is_none() {
        return Flow::Continue(());
    }
    draft.stored_list = match Box::pin(stored::stored_list(ctx, review, review.old_object.clone())).await {
        Err(refusal) if !ctx.bypass.skips_all() => return draft.refuse(refusal),
        list => list.transpose(),
    };
    // A change of an unfinished object is part of its CREATE. The hooks of the CREATE see its result.
    draft.skips_hooks |= matches!(&draft.stored_list, Some(Ok(list)) if list.is_unfinished());
    Flow::Continue(())
}

/// Initializes a new object, or continues the initialization of one that is updated. Validating hooks of a CREATE are
/// called only once the object is initialized, and so see the object that becomes visible.
pub(super) async fn initialize<'a>(ctx: &'a ReviewContext<'a>, draft: &mut Draft<'a>) -> Flow {
    if versions::is_converted(ctx) {
        Flow::Continue(())
    } else if ctx.mutates() && may_need_initializers(ctx) {
        Box::pin(InitializingPhase::new(ctx, draft).run()).await
    } else if !ctx.mutates() && stored::must_check_marks(ctx) {
        Box::pin(InitializingPhase::new(ctx, draft).run_mark_check()).await
    } else {
        Flow::Continue(())
    }
}

/// Returns true if an object of this request may be read for its initializers.
pub(super) fn reads_objects(ctx: &ReviewContext<'_>) -> bool {
    ctx.caller.stores_unfinished
        || if ctx.mutates() { may_need_initializers(ctx) } else { stored::must_check_marks(ctx) }
}

/// Returns true if such a request may need initializers. Called first, for every request.
fn may_need_initializers(ctx: &ReviewContext<'_>) -> bool {
    let ReviewContext { review, caller, .. } = ctx;
    let creates = review.operation == Operation::Create && review.sub_resource.is_empty();
    let updates = review.operation == Operation::Update;
    let is_concerned = if caller.stores_unfinished {
        // The lists in its objects decide which initializers still act.
        creates || updates
    } else {
        (creates || updates) && ctx.initializers().is_some_and(|entry| creates || entry.by_label)
    };
    // Only in the last segment, if the mutating hooks are registered in segments.
    is_concerned && review.object.is_some() && caller.segment.is_none_or(|segment| segment.number == segment.of)
}

struct InitializingPhase<'a, 'd> {
    ctx: &'a ReviewContext<'a>,
    draft: &'d mut Draft<'a>,
    /// Name of the creator, if another user makes the request: an update of an object that is stored unfinished.
    creator: Option<Arc<str>>,
    /// True if it ended because Gatepost has no memory, which is no fault of the object.
    no_room: bool,
    /// True if the object is stored and others must still act.
    is_unfinished: bool,
}

impl<'a, 'd> InitializingPhase<'a, 'd> {
    fn new(ctx: &'a ReviewContext<'a>, draft: &'d mut Draft<'a>) -> Self {
        Self { ctx, draft, creator: None, no_room: false, is_unfinished: false }
    }

    async fn run(mut self) -> Flow {
        match self.initialize().await {
            Err(refusal) => self.draft.refuse(refusal),
            Ok(()) if self.is_unfinished => Flow::Break(()),
            Ok(()) => Flow::Continue(()),
        }
    }

    async fn initialize(&mut self) -> Result<(), StatusError> {
        let ctx = self.ctx;
        let entry = ctx.initializers();
        if ctx.caller.stores_unfinished {
            let nobody = stored::no_initializers(ctx.review);
            return self.run_stored(entry.unwrap_or(&nobody)).await;
        }
        let Some(entry) = entry else { return Ok(()) };
        if entry.by_label {
            return self.run_labelled(entry).await;
        }
        let object = self.draft.object.clone();
        let review = ctx.current_review(object.as_ref());
        let mut facts = Facts::new(ctx, review, None);
        let Some(list) = self.pending(entry, review, None, &mut facts).await? else { return Ok(()) };
        self.run_list(entry, &mut Initialization::new(list), &mut facts).await
    }

    /// Runs the initializers in order, until the list ends or an initializer acts on the stored object.
    async fn run_list(
        &mut self,
        entry: &ResourceInitializers,
        initialization: &mut Initialization,
        facts: &mut Facts<'_, '_>,
    ) -> Result<(), StatusError> {
        let ctx = self.ctx;
        let mut parallel = ParallelCalls::default();
        while let Some(head) = initialization.head() {
            let name: Arc<str> = head.into();
            let configured = entry.initializers.iter().find(|one| *one.name == *name);
            let in_flight = configured.is_some_and(Initializer::acts_in_flight);
            if ctx.caller.stores_unfinished && !in_flight {
                break;
            }
            let object = self.draft.object.clone();
            if parallel.is_empty() {
                parallel.start(ctx, entry, initialization, object.as_ref(), facts).await;
            }
            let answer = match parallel.wait_for_answer(&name, object.as_ref()).await {
                Ok(answer) => answer,
                Err((name, failure)) => {
                    let took = parallel.began.map(|began| now().saturating_duration_since(began)).unwrap_or_default();
                    let refusal = turn_refusal(failure, &name);
                    self.record_turn(InitializerTurn {
                        name,
                        outcome: InitializerOutcome::Rejected,
                        took,
                        warning: None,
                    });
                    return Err(refusal);
                }
            };
            let was_parallel = answer.is_some();
            let began = parallel.began.filter(|_| was_parallel).unwrap_or_else(now);
            let creator = self.creator.clone();
            let is_skipped = configured.is_none_or(|one| is_skipped_on_failure(ctx, one));
            let turn = |one| {
                let until = turn_deadline(ctx, entry, one, initialization, 1, began);
                Turn { ctx, one, before: object, began, until, creator }
            };
            let ended = match (configured, answer) {
                (Some(one), Some(Ok(answer))) => turn(one).apply_answer(answer).await,
                (Some(_), Some(Err(failure))) => Err(failure),
                (Some(one), None) if is_unproven(ctx, one) => Err(TurnFailure::Unproven),
                (Some(one), None) => turn(one).act(facts).await,
                // The list of a stored object may contain any name.
                (None, _) => Ok(TurnEffect::default()),
            };
            // It is this initializer's turn, so only an invalid addition is an error.
            let ended = ended.and_then(|TurnEffect { changed, adds }| {
                let known = |add: &str| entry.initializers.iter().any(|one| &*one.name == add);
                match adds.iter().all(|add| known(add)).then(|| initialization.done(&name, adds)) {
                    Some(Ok(_)) => Ok(changed),
                    _ => Err(TurnFailure::Unable(
                        "it adds initializers that this resource has not, or that had a turn".into(),
                    )),
                }
            });
            let (mut warning, mut refusal) = (None, None);
            let outcome = match ended {
                Ok(None) => InitializerOutcome::Unchanged,
                Ok(Some(changed)) => {
                    self.draft.object = Some(changed);
                    InitializerOutcome::Changed
                }
                Err(failure) => {
                    let outcome = failure::turn_outcome(ctx, &name, is_skipped, &failure);
                    if outcome == InitializerOutcome::FailedOpen {
                        let _ = initialization.time_out(&name, FailurePolicy::Ignore);
                        warning = Some(turn_warning(&failure, &name));
                    } else {
                        self.no_room |= failure.is_no_room();
                        refusal = Some(self.refusal(failure, &name, configured));
                    }
                    outcome
                }
            };
            if was_parallel {
                parallel.set_object(self.draft.object.as_ref());
            }
            self.record_turn(InitializerTurn { name, outcome, took: now().saturating_duration_since(began), warning });
            if let Some(refusal) = refusal {
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Returns the rejection for an initializer that must act and has failed. If it timed out because another one used
    /// up the request's time, the rejection names that one.
    fn refusal(&self, failure: TurnFailure, name: &str, one: Option<&Initializer>) -> StatusError {
        let TurnFailure::Late(after) = failure else { return turn_refusal(failure, name) };
        let had_less = one.is_some_and(|one| after < one.timeout);
        let slowest = self.draft.initializers.iter().max_by_key(|turn| turn.took);
        let slower = slowest.filter(|turn| had_less && turn.took > after).map(|turn| (&*turn.name, turn.took));
        Box::new(rejection::initializer_late(name, after, slower))
    }

    fn record_turn(&mut self, turn: InitializerTurn) {
        self.draft.is_initializer_denial |= turn.outcome == InitializerOutcome::Rejected;
        if let Some(metrics) = self.ctx.generation.initializers.get(&turn.name) {
            metrics.record(self.ctx.caller.worker, turn.outcome, turn.took);
        }
        self.draft.initializers.push(turn);
    }

    /// Records that an initializer is skipped before its turn, as it is unknown whether it acts.
    fn skip(&mut self, name: &Arc<str>, failure: &TurnFailure) {
        let took = now().saturating_duration_since(self.ctx.began);
        let warning = Some(turn_warning(failure, name));
        let (name, outcome) = (Arc::clone(name), InitializerOutcome::FailedOpen);
        self.record_turn(InitializerTurn { name, outcome, took, warning });
    }

    /// Returns the rejection of a list that the requester is not allowed to write, and records it as a denial.
    fn denied(&mut self, refused: ListError) -> StatusError {
        self.draft.is_initializer_denial = true;
        Box::new(refused.into_status())
    }

    /// Returns the object's pending list. If the request's deadline passed before it was known which initializers act,
    /// and none of them must act, the object goes on without them.
    async fn pending(
        &mut self,
        entry: &ResourceInitializers,
        review: &Review,
        field: Option<Initializers>,
        facts: &mut Facts<'_, '_>,
    ) -> Result<Option<Initializers>, StatusError> {
        let refusal = match self.find_pending(entry, review, field, facts).await {
            Err(refusal) => refusal,
            pending => return pending,
        };
        if *refusal != rejection::out_of_time() || !failure::skips_all_unselected(self.ctx, entry) {
            return Err(refusal);
        }
        let late = TurnFailure::Late(now().saturating_duration_since(self.ctx.began));
        entry.initializers.iter().for_each(|one| self.skip(&one.name, &late));
        Ok(None)
    }

    /// Returns the object's pending list: the client's own, from `field` or the annotation, or the configured names
    /// whose selectors match the object.
    async fn find_pending(
        &mut self,
        entry: &ResourceInitializers,
        review: &Review,
        field: Option<Initializers>,
        facts: &mut Facts<'_, '_>,
    ) -> Result<Option<Initializers>, StatusError> {
        let [written, mirror] = self.annotations(review).await?;
        let in_group = |wanted: &[Box<str>]| groups::any_of(review, wanted);
        // Any client may write this annotation, so it is ignored unless a kubelet sends it.
        let is_pod = &*entry.resource == "pods" && entry.api_group.is_empty();
        if is_pod && mirror.is_some() && in_group(&[NODES.into()]) {
            return Ok(None);
        }
        let named = |names: &str| Initializers::of(names.split(',').map(str::trim).filter(|name| !name.is_empty()));
        let skips_all = self.ctx.bypass.skips_all();
        let written = written.filter(|_| field.is_none() && !skips_all);
        // A client can act for any name in the field by updating the stored object, but not for a name in the
        // annotation.
        let is_annotated = written.is_some();
        let written = field.or_else(|| written.as_deref().map(named));
        let listed = || entry.may_initialize.as_ref().is_some_and(|who| who.matches(&review.username, in_group));
        let permitted = needs_permission(written.as_ref()) && (listed() || self.may_initialize(review).await?);
        let mut names = Vec::new();
        if written.is_none() && !skips_all {
            let longest = entry.initializers.iter().map(|one| one.timeout).max().unwrap_or_default();
            let until = initializers_deadline(self.ctx).min(now() + longest);
            for one in &entry.initializers {
                let later = entry.by_label || self.ctx.caller.stores_unfinished;
                let selected = timeout_at(until.into(), self.is_selected(one, later, facts)).await;
                // If the labels are unavailable, each initializer that selects by them has failed.
                if let Some(why) = facts.unavailable()
                    && failure::skips_without_labels(one)
                    && matches!(selected, Ok(Err(_)))
                {
                    self.skip(&one.name, &TurnFailure::Unable(why.to_owned()));
                    continue;
                }
                if selected.unwrap_or_else(|_| Err(Box::new(rejection::out_of_time())))? {
                    names.push(&*one.name);
                }
            }
        }
        let known = entry.initializers.iter().map(|one| &*one.name);
        let list = create(written, names, permitted).and_then(|list| {
            list.as_ref().filter(|_| is_annotated).map_or(Ok(()), |list| check_known(list, known))?;
            Ok(list)
        });
        let list = list.map_err(|refused| match is_annotated {
            true => self.denied(refused.written_at(&format!("metadata.annotations[{OWN_LIST}]"))),
            false => self.denied(refused),
        })?;
        Ok(list.and_then(|list| self.without_bypassed(list)))
    }

    /// Returns the list without names that a bypass or break-glass skips.
    fn without_bypassed(&self, mut list: Initializers) -> Option<Initializers> {
        let bypass = &self.ctx.bypass;
        let all = bypass.skips_all();
        list.pending.retain(|name| !all && !bypass.skips(name) && !bypass.break_glass_covers(name));
        list.normalized()
    }

    /// Returns true if the cluster's authorizer allows the user to `initialize` the resource. Without a cluster, no
    /// user may.
    async fn may_initialize(&self, review: &Review) -> Result<bool, StatusError> {
        let ReviewContext { deps, access, .. } = self.ctx;
        if deps.authorizer.is_none() {
            return Ok(false);
        }
        let check = check(review);
        access.decide(review, vec![check.clone()], initializers_deadline(self.ctx)).await?;
        let why = match access.decisions().get(&check) {
            Some(Ok(decided)) => return Ok(decided.allowed),
            Some(Err(why)) => why.clone(),
            None => "it was not asked".into(),
        };
        let what =
            format!("cannot find out whether you may {VERB:?} this resource: the authorizer cannot be asked: {why}");
        Err(Box::new(rejection::internal(&what)))
    }

    async fn annotations(&self, review: &Review) -> Result<[Option<String>; 2], StatusError> {
        let Some(place) = review.object.clone() else { return Ok([None, None]) };
        let (bytes, size) = (review.bytes.clone(), place.len());
        // Without the margin of `initializers_deadline`, as the object may need no initializer.
        self.ctx.run_reading(size, move || metadata::annotations(&bytes, place, [OWN_LIST, MIRROR])).await
    }

    /// Returns true if the initializer acts on this object. Returns false if a bypass or break-glass skips it. `later`:
    /// others may act on the stored object.
    async fn is_selected(
        &self,
        one: &Initializer,
        later: bool,
        facts: &mut Facts<'_, '_>,
    ) -> Result<bool, StatusError> {
        let bypass = &self.ctx.bypass;
        let nobody_acts = !one.acts_in_flight() && !later;
        if nobody_acts || bypass.skips(&one.name) || bypass.break_glass_covers(&one.name) {
            return Ok(false);
        }
        match facts.fetch_and_select(&one.namespace_selector, &one.object_selector).await {
            Err(_) if failure::skips_unknown_selection(self.ctx, one) => Ok(false),
            selected => selected,
        }
    }
}

/// Returns the check of whether the requester may `initialize` the object that the review creates.
// source: kubernetes/apiserver 1.13 pkg/admission/plugin/initialization, canInitialize.
fn check(review: &Review) -> AccessCheck {
    let Gvr { group, resource, .. } = &review.resource;
    permission(group, resource, &review.namespace, &review.name)
}

/// Returns the check of whether the requester may `initialize` a resource, or one object of it.
pub(super) fn permission(group: &str, resource: &str, namespace: &str, name: &str) -> AccessCheck {
    let target = AccessTarget::Resource(ResourceAccess {
        group: group.into(),
        resource: resource.into(),
        namespace: namespace.into(),
        name: name.into(),
        ..ResourceAccess::default()
    });
    AccessCheck { subject: Subject::Requester, verb: VERB.into(), target }
}

/// Adds to the verdict which initializers acted, and warnings about those that were skipped. The warning that the
/// object waits comes first, so that no limit cuts it.
pub(super) fn report(draft: &Draft<'_>, verdict: &mut Verdict) {
    if let Some(pending) = &draft.pending_warning {
        verdict.warnings.insert(0, pending.clone());
    }
    for (index, turn) in draft.initializers.iter().enumerate() {
        let said = json!({"initializer": &*turn.name, "outcome": turn.outcome.as_str()});
        verdict.audit_annotations.push((format!("{INITIALIZED}/index_{index}"), said.to_string()));
        let Some(warning) = &turn.warning else { continue };
        let so_far: usize = verdict.warnings.iter().map(|warning| warning.chars().count()).sum();
        if so_far + warning.chars().count() <= MAX_WARNINGS {
            verdict.warnings.push(warning.clone());
        }
    }
}
