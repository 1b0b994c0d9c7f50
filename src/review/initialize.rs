//! Initialization in flight: new objects are initialized before anything is stored, while the call is held.
//!
//! It stands between the mutating and the validating hooks, so that these see what is stored. The pending list of the new
//! object is worked off in order ([`Initialization`] says whose turn it is); each initializer sees what those before it
//! have made of the object. Nothing exists before the last of them is done: an object that one of them refuses, or that
//! one that must act does not act on in time, is not created, and the caller gets an error.
//!
//! For a caller that stores unfinished objects (`stored`), the list goes into the object where it comes to a name whose
//! owner updates the stored object, and goes on with the update that removes that name. For a resource that a stock
//! apiserver stores unfinished, objects are marked, and initialized afterwards (`label`).

mod act;
mod label;
mod parallel;
mod run;
mod stored;

use crate::model::initialization::VERB;
use std::sync::Arc;

use act::{Acted, Failure, Turn, end_of, is_passed_over, is_unproven, until};
pub(super) use label::{guard, is_guarded};
use parallel::ParallelCalls;
use run::slowest;
pub(super) use run::{Run, report};
use smallvec::SmallVec;
pub(super) use stored::{Field, before, finds_a_list};
use tokio::time::timeout_at;

use super::{
    case::Case,
    lookup::{Lookup, known},
    patched::Patched,
    status,
    status::StatusError,
};
use crate::{
    cel::{AccessCheck, AccessTarget, ResourceAccess, Subject},
    clock::now,
    initialize::{Initialization, Initializers, RefusedList, check_known, create, needs_permission},
    model::{FailurePolicy, Gvr, Initializer, Operation, ResourceInitializers, Review},
    offload,
    telemetry::InitializerOutcome,
    wire::{annotations, groups},
};

/// The annotation by which a client that may says which initializers a new object gets: names joined by commas, or ""
/// for none. An apiserver drops `metadata.initializers`, which had this purpose.
pub const OWN_LIST: &str = "gatepost.dev/initializers";
/// Annotation that a kubelet puts onto the Pods that it runs from files: they run already.
// source: k8s.io/api/core/v1 MirrorPodAnnotationKey.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The group of all kubelets.
const NODES: &str = "system:nodes";

/// Result of the phase.
#[derive(Debug, Default)]
pub(super) struct Initialized {
    /// Turns, in order.
    pub(super) runs: SmallVec<[Run; 4]>,
    /// The object, where something has changed it.
    pub(super) patched: Option<Arc<Patched>>,
    /// Rejection of the object, where it is not created.
    pub(super) refusal: Option<StatusError>,
    /// It is stored, and others must still act.
    pub(super) unfinished: bool,
    /// Warning that it is stored and waits.
    pub(super) pending: Option<String>,
    /// The rejection is an initializer's own no, or the requester may not write the list so.
    pub(super) denied: bool,
}

/// Is there anything to be initialized in such requests? Asked first, of every request.
pub(super) fn concerns(case: Case<'_>) -> bool {
    let Case { review, generation, caller, .. } = case;
    let creates = review.operation == Operation::Create && review.sub_resource.is_empty();
    let configured = || generation.snapshot.initializers_of(&review.resource.group, &review.resource.resource);
    let concerned = if caller.stores_unfinished {
        // Its objects say for themselves what must still be done.
        creates || review.operation == Operation::Update
    } else {
        let by_label = || configured().is_some_and(|entry| entry.by_label);
        creates && configured().is_some() || review.operation == Operation::Update && by_label()
    };
    // Behind the last of the mutating hooks, where these are registered apart.
    concerned && review.object.is_some() && caller.segment.is_none_or(|segment| segment.number == segment.of)
}

/// Initializes a new object, which is what `patched` has made of it; `before` is the list of one that is updated, as far as
/// it could be read.
pub(super) async fn initialize(
    case: Case<'_>,
    patched: Option<Arc<Patched>>,
    before: Result<Option<Field>, StatusError>,
) -> Initialized {
    let initialized = Initialized { patched, ..Initialized::default() };
    let mut phase = InitializingPhase { case, initialized, creator: None, no_room: false };
    if let Err(refusal) = phase.run(before).await {
        phase.initialized.refusal = Some(refusal);
    }
    phase.initialized
}

struct InitializingPhase<'a> {
    case: Case<'a>,
    initialized: Initialized,
    /// The creator's name, where the request is another's: an update of an object that is stored unfinished.
    creator: Option<Arc<str>>,
    /// It has ended for want of room, which says nothing of the object.
    no_room: bool,
}

impl<'a> InitializingPhase<'a> {
    async fn run(&mut self, before: Result<Option<Field>, StatusError>) -> Result<(), StatusError> {
        let Case { review, generation, caller, .. } = self.case;
        let entry = generation.snapshot.initializers_of(&review.resource.group, &review.resource.resource);
        if caller.stores_unfinished {
            let nobody = stored::nobody(review);
            return self.run_stored(entry.unwrap_or(&nobody), before).await;
        }
        let Some(entry) = entry else { return Ok(()) };
        if entry.by_label {
            return self.run_labelled(entry).await;
        }
        let patched = self.initialized.patched.clone();
        let review = patched.as_ref().map_or(review, |patched| &patched.review);
        let mut lookup = self.case.lookup(review, None);
        let pending = self.pending(entry, review, None, &mut lookup).await;
        let pending = pending.or_else(|refusal| self.unselected(entry, refusal).map(|()| None))?;
        let Some(list) = pending else { return Ok(()) };
        self.work_off(entry, &mut Initialization::new(list), &mut lookup).await
    }

    /// Runs each initializer in its turn, up to the end of the list or to one that acts on the stored object.
    async fn work_off(
        &mut self,
        entry: &ResourceInitializers,
        way: &mut Initialization,
        lookup: &mut Lookup<'_>,
    ) -> Result<(), StatusError> {
        let mut ahead = ParallelCalls::default();
        while let Some(head) = way.head() {
            let name: Arc<str> = head.into();
            let configured = entry.initializers.iter().find(|one| *one.name == *name);
            let in_flight = configured.is_some_and(Initializer::acts_in_flight);
            if self.case.caller.stores_unfinished && !in_flight {
                break;
            }
            let object = self.initialized.patched.clone();
            if ahead.is_empty() {
                ahead.ask(self.case, entry, way, (object.as_ref(), &mut *lookup)).await;
            }
            let asked = match ahead.take(&name, object.as_ref()).await {
                Ok(asked) => asked,
                Err((name, failure)) => {
                    let took = ahead.began.map(|began| now().saturating_duration_since(began)).unwrap_or_default();
                    let refusal = failure.refusal(&name);
                    self.ended(Run { name, outcome: InitializerOutcome::Rejected, took, passed_over: None });
                    return Err(refusal);
                }
            };
            let counted = asked.is_some();
            let began = ahead.began.filter(|_| counted).unwrap_or_else(now);
            let (case, creator) = (self.case, self.creator.clone());
            let passes = configured.is_none_or(|one| is_passed_over(case, one));
            let turn = |one| {
                let until = until(case, (entry, one), (way, 1), began);
                Turn { case, one, before: object, began, until, creator }
            };
            let ended = match (configured, asked) {
                (Some(one), Some(Ok(answer))) => turn(one).acted(answer).await,
                (Some(_), Some(Err(failure))) => Err(failure),
                (Some(one), None) if is_unproven(case, one) => Err(Failure::Unproven),
                (Some(one), None) => turn(one).act(lookup).await,
                // The list of an object that is stored may name anybody.
                (None, _) => Ok(Acted::default()),
            };
            let bypass = case.bypass;
            let opened = bypass.fails_open(&name) || bypass.break_glass_covers(&name);
            // It is its turn, so every step is taken but that of a wrong addition.
            let ended = ended.and_then(|Acted { changed, adds }| {
                let known = |add: &str| entry.initializers.iter().any(|one| &*one.name == add);
                match adds.iter().all(|add| known(add)).then(|| way.done(&name, adds)) {
                    Some(Ok(_)) => Ok(changed),
                    _ => Err(Failure::Unable(
                        "it adds initializers that this resource has not, or that had a turn".into(),
                    )),
                }
            });
            let no_room = matches!(&ended, Err(failure) if failure.is_no_room());
            let (outcome, passed_over, refusal) = match ended {
                Ok(None) => (InitializerOutcome::Unchanged, None, None),
                Ok(Some(patched)) => {
                    self.initialized.patched = Some(patched);
                    (InitializerOutcome::Changed, None, None)
                }
                Err(failure)
                    if opened && !failure.is_rejection()
                        || passes && failure.may_open()
                        // Its first instance may have attached since it was asked.
                        || matches!(failure, Failure::Unproven) =>
                {
                    let _ = way.time_out(&name, FailurePolicy::Ignore);
                    (InitializerOutcome::FailedOpen, Some(failure.passed_over(&name)), None)
                }
                Err(failure) if failure.is_rejection() => {
                    (InitializerOutcome::Rejected, None, Some(failure.refusal(&name)))
                }
                Err(failure) if failure.is_shed() => (InitializerOutcome::Shed, None, Some(failure.refusal(&name))),
                Err(Failure::Late(after)) => {
                    let refusal =
                        status::initializer_late(&name, after, slowest(&self.initialized.runs, after, configured));
                    (InitializerOutcome::FailedClosed, None, Some(Box::new(refusal)))
                }
                Err(failure) => (InitializerOutcome::FailedClosed, None, Some(failure.refusal(&name))),
            };
            self.no_room |= no_room && refusal.is_some();
            if counted {
                ahead.is_now(self.initialized.patched.as_ref());
            }
            self.ended(Run { name, outcome, took: now().saturating_duration_since(began), passed_over });
            if let Some(refusal) = refusal {
                return Err(refusal);
            }
        }
        Ok(())
    }

    fn ended(&mut self, run: Run) {
        self.initialized.denied |= run.outcome == InitializerOutcome::Rejected;
        let Case { generation, caller, .. } = self.case;
        if let Some(metrics) = generation.initializers.get(&run.name) {
            metrics.record(caller.worker, run.outcome, run.took);
        }
        self.initialized.runs.push(run);
    }

    /// Rejection of a list that the requester may not write so.
    fn denied(&mut self, refused: RefusedList) -> StatusError {
        self.initialized.denied = true;
        Box::new(refused.into_status())
    }

    /// The request's time was over before it was known which initializers act. Where none of them must, the object goes on
    /// without them.
    fn unselected(&mut self, entry: &ResourceInitializers, refusal: StatusError) -> Result<(), StatusError> {
        let (case, Case { bypass, began, .. }) = (self.case, self.case);
        let opens = |one: &Initializer| {
            one.failure_policy == FailurePolicy::Ignore || bypass.fails_open(&one.name) || is_unproven(case, one)
        };
        if *refusal != status::out_of_time() || !entry.initializers.iter().all(opens) {
            return Err(refusal);
        }
        let took = now().saturating_duration_since(began);
        for one in &entry.initializers {
            let (name, passed_over) = (Arc::clone(&one.name), Failure::Late(took).passed_over(&one.name));
            let outcome = InitializerOutcome::FailedOpen;
            self.ended(Run { name, outcome, took, passed_over: Some(passed_over) });
        }
        Ok(())
    }

    /// The object's pending list: the client's own, in the object's `field` or annotation, or the configured names that it is
    /// selected for.
    async fn pending(
        &mut self,
        entry: &ResourceInitializers,
        review: &Review,
        field: Option<Initializers>,
        lookup: &mut Lookup<'_>,
    ) -> Result<Option<Initializers>, StatusError> {
        let [written, mirror] = self.annotations(review).await?;
        let in_group = |wanted: &[Box<str>]| groups::any_of(review, wanted);
        // Anybody may write that annotation; a kubelet alone means it.
        let is_pod = &*entry.resource == "pods" && entry.api_group.is_empty();
        if is_pod && mirror.is_some() && in_group(&[NODES.into()]) {
            return Ok(None);
        }
        let named = |names: &str| Initializers::of(names.split(',').map(str::trim).filter(|name| !name.is_empty()));
        let skips_all = self.case.bypass.skips_all();
        let written = written.filter(|_| field.is_none() && !skips_all);
        // Clients may act for any name in the field, by updating the stored object; for one in the annotation nobody does.
        let is_annotated = written.is_some();
        let written = field.or_else(|| written.as_deref().map(named));
        let listed = || entry.may_initialize.as_ref().is_some_and(|who| who.is(&review.username, in_group));
        let permitted = needs_permission(written.as_ref()) && (listed() || self.may_initialize(review).await?);
        let mut names = Vec::new();
        if written.is_none() && !skips_all {
            let longest = entry.initializers.iter().map(|one| one.timeout).max().unwrap_or_default();
            let until = end_of(self.case).min(now() + longest);
            for one in &entry.initializers {
                let later = entry.by_label || self.case.caller.stores_unfinished;
                let selected = timeout_at(until.into(), self.is_selected(one, later, lookup)).await;
                // Labels that are not to be had are a failure of each initializer that selects by them.
                if let Some(why) = lookup.unavailable()
                    && one.failure_policy == FailurePolicy::Ignore
                    && !one.namespace_selector.is_empty()
                    && matches!(selected, Ok(Err(_)))
                {
                    let (name, took) = (Arc::clone(&one.name), now().saturating_duration_since(self.case.began));
                    let passed_over = Some(Failure::Unable(why.to_owned()).passed_over(&name));
                    self.ended(Run { name, outcome: InitializerOutcome::FailedOpen, took, passed_over });
                    continue;
                }
                if selected.unwrap_or_else(|_| Err(Box::new(status::out_of_time())))? {
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
        Ok(list.and_then(|list| self.without_left_out(list)))
    }

    /// The list without those that a bypass or break-glass leaves out, whoever wrote it.
    fn without_left_out(&self, mut list: Initializers) -> Option<Initializers> {
        let bypass = self.case.bypass;
        let all = bypass.skips_all();
        list.pending.retain(|name| !all && !bypass.skips(name) && !bypass.break_glass_covers(name));
        list.normalized()
    }

    /// May the user `initialize` the resource, by the answer of the cluster's apiserver? Without a cluster, no user
    /// may.
    async fn may_initialize(&self, review: &Review) -> Result<bool, StatusError> {
        let Case { gate, access, .. } = self.case;
        if gate.authorizer.is_none() {
            return Ok(false);
        }
        let check = check(review);
        access.decide(review, vec![check.clone()], end_of(self.case)).await?;
        let why = match access.decisions().get(&check) {
            Some(Ok(decided)) => return Ok(decided.allowed),
            Some(Err(why)) => why.clone(),
            None => "it was not asked".into(),
        };
        let what =
            format!("cannot find out whether you may {VERB:?} this resource: the authorizer cannot be asked: {why}");
        Err(Box::new(status::internal(&what)))
    }

    async fn annotations(&self, review: &Review) -> Result<[Option<String>; 2], StatusError> {
        let Some(place) = review.object.clone() else { return Ok([None, None]) };
        let (bytes, size) = (review.bytes.clone(), place.len());
        let reading = offload::run(size, move || annotations::of_object(&bytes, place, [OWN_LIST, MIRROR]));
        // No margin: nothing may have to act.
        match timeout_at(self.case.caller.deadline.instant().into(), reading).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(why)) => Err(Box::new(status::internal(&why))),
            Err(_) => Err(Box::new(status::out_of_time())),
        }
    }

    /// Does the initializer act on this object? One that a bypass or break-glass leaves out does not. `later`: others may
    /// act on the stored object.
    async fn is_selected(&self, one: &Initializer, later: bool, lookup: &mut Lookup<'_>) -> Result<bool, StatusError> {
        let bypass = self.case.bypass;
        let nobody_acts = !one.acts_in_flight() && !later;
        if nobody_acts || bypass.skips(&one.name) || bypass.break_glass_covers(&one.name) {
            return Ok(false);
        }
        match known(lookup, |lookup| lookup.selected_by(&one.namespace_selector, &one.object_selector)).await {
            Err(_) if bypass.fails_open(&one.name) || is_unproven(self.case, one) => Ok(false),
            selected => selected,
        }
    }
}

/// May the requester `initialize` what the review creates?
// source: kubernetes/apiserver 1.13 pkg/admission/plugin/initialization, canInitialize.
fn check(review: &Review) -> AccessCheck {
    let Gvr { group, resource, .. } = &review.resource;
    permission((group, resource), (&review.namespace, &review.name))
}

/// The requester's permission to `initialize` a resource, or one object of it.
pub(super) fn permission((group, resource): (&str, &str), (namespace, name): (&str, &str)) -> AccessCheck {
    let target = AccessTarget::Resource(ResourceAccess {
        group: group.into(),
        resource: resource.into(),
        namespace: namespace.into(),
        name: name.into(),
        ..ResourceAccess::default()
    });
    AccessCheck { subject: Subject::Requester, verb: VERB.into(), target }
}
