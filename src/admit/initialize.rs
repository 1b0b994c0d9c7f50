//! Initialization in flight: new objects are initialized before anything is stored, while the call is held.
//!
//! It stands between the mutating and the validating hooks, so that these see what is stored. The pending list of the new
//! object is worked off in order ([`Initialization`] says whose turn it is); each initializer sees what those before it
//! have made of the object. Nothing exists before the last of them is done: an object that one of them refuses, or that
//! one that must act does not act on in time, is not created, and the caller is told so.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use smallvec::SmallVec;
use tokio::time::timeout_at;

use super::{
    Case,
    lookup::{Held, Lookup},
    now,
    patched::{Patched, patched},
    status,
    status::Refusal,
};
use crate::{
    initialize::{Initialization, Initializers, built_in, create, needs_permission},
    memory::Purpose,
    model::{FailurePolicy, Initializer, Operation, ResourceInitializers, Review, Verdict},
    offload::{self, LARGE},
    patch::Patch,
    telemetry::InitializerOutcome,
    wire::{annotations, groups},
};

/// The annotation by which a client that may says which initializers a new object gets: names joined by commas, or "" for
/// none. An apiserver drops `metadata.initializers`, which had this purpose.
pub const OWN_LIST: &str = "gatepost.dev/initializers";
/// Prefix of the audit annotations that name the initializers which acted.
const INITIALIZED: &str = "initialize.gatepost.dev";
/// What a kubelet puts onto the Pods that it runs from files: they run already.
// source: k8s.io/api/core/v1 MirrorPodAnnotationKey.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The group of all kubelets.
const NODES: &str = "system:nodes";
/// The most of a request's time that is kept for the answer.
const MARGIN: Duration = Duration::from_millis(250);

/// One initializer's turn at the object.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Its name.
    pub(super) name: Arc<str>,
    /// How it ended.
    pub(super) outcome: InitializerOutcome,
    /// How long it took.
    pub(super) took: Duration,
    /// What is said where it failed and is passed over.
    pub(super) passed_over: Option<String>,
}

/// Result of the phase.
#[derive(Debug, Default)]
pub(super) struct Initialized {
    /// Turns, in order.
    pub(super) runs: SmallVec<[Run; 4]>,
    /// The object, where something has changed it.
    pub(super) patched: Option<Arc<Patched>>,
    /// Why it is not created.
    pub(super) refusal: Option<Refusal>,
}

/// Why an initializer's turn has not ended as it should.
enum Failure {
    /// Its time, or the request's, is over.
    Late(Duration),
    /// It cannot act on this object.
    Unable(String),
}

/// Is there anything to be initialized in such requests? Asked first, of every request.
pub(super) fn concerns(case: Case<'_>) -> bool {
    let Case { review, generation, caller, .. } = case;
    // Behind the last of the mutating hooks, where these are registered apart.
    caller.segment.is_none_or(|segment| segment.number == segment.of)
        && review.operation == Operation::Create
        && review.sub_resource.is_empty()
        && review.object.is_some()
        && generation.snapshot.initializers_of(&review.resource.group, &review.resource.resource).is_some()
}

/// Initializes a new object, which is what `patched` has made of it.
pub(super) async fn initialize(case: Case<'_>, patched: Option<Arc<Patched>>) -> Initialized {
    let mut phase = Phase { case, initialized: Initialized { patched, ..Initialized::default() } };
    if let Err(refusal) = phase.run().await {
        phase.initialized.refusal = Some(refusal);
    }
    phase.initialized
}

struct Phase<'a> {
    case: Case<'a>,
    initialized: Initialized,
}

impl<'a> Phase<'a> {
    async fn run(&mut self) -> Result<(), Refusal> {
        let Case { review, generation, .. } = self.case;
        let entry = generation.snapshot.initializers_of(&review.resource.group, &review.resource.resource);
        let Some(entry) = entry else { return Ok(()) };
        let patched = self.initialized.patched.clone();
        let review = patched.as_ref().map_or(review, |patched| &patched.review);
        let mut lookup = self.case.lookup(review, None);
        let Some(list) = self.pending(entry, review, &mut lookup).await? else { return Ok(()) };
        let mut way = Initialization::new(list);
        while let Some(head) = way.head() {
            let began = now();
            let name: Arc<str> = head.into();
            let configured = entry.initializers.iter().find(|one| *one.name == *name);
            let ended = match configured {
                Some(one) => self.act(one, &mut lookup, began).await,
                // A list that a client wrote may name anybody.
                None => Ok(None),
            };
            let opened = self.case.bypass.fails_open(&name);
            let policy = configured.filter(|_| !opened).map_or(FailurePolicy::Ignore, |one| one.failure_policy);
            let (outcome, passed_over, refusal) = match ended {
                Ok(None) => (InitializerOutcome::Unchanged, None, None),
                Ok(Some(patched)) => {
                    self.initialized.patched = Some(patched);
                    (InitializerOutcome::Changed, None, None)
                }
                Err(failure) if policy == FailurePolicy::Ignore => {
                    (InitializerOutcome::FailedOpen, Some(failure.passed_over(&name)), None)
                }
                Err(failure) => (InitializerOutcome::FailedClosed, None, Some(failure.refusal(&name))),
            };
            // It is its turn: the step is taken.
            let _ = match outcome {
                InitializerOutcome::FailedOpen | InitializerOutcome::FailedClosed => way.late(&name, policy),
                _ => way.done(&name, Vec::new()),
            };
            self.ended(Run { name, outcome, took: now().saturating_duration_since(began), passed_over });
            if let Some(refusal) = refusal {
                return Err(refusal);
            }
        }
        Ok(())
    }

    fn ended(&mut self, run: Run) {
        let Case { generation, caller, .. } = self.case;
        if let Some(metrics) = generation.initializers.get(&run.name) {
            metrics.record(caller.worker, run.outcome, run.took);
        }
        self.initialized.runs.push(run);
    }

    /// The object's pending list: the client's own, or the configured names that it is selected for.
    async fn pending(
        &self,
        entry: &ResourceInitializers,
        review: &Review,
        lookup: &mut Lookup<'_>,
    ) -> Result<Option<Initializers>, Refusal> {
        let [written, mirror] = self.annotations(review).await?;
        let in_group = |wanted: &[Box<str>]| groups::any_of(review, wanted);
        // Anybody may write that annotation; a kubelet alone means it.
        let is_pod = &*entry.resource == "pods" && entry.api_group.is_empty();
        if is_pod && mirror.is_some() && in_group(&[NODES.into()]) {
            return Ok(None);
        }
        let written =
            written.map(|names| Initializers::of(names.split(',').map(str::trim).filter(|name| !name.is_empty())));
        let permitted = needs_permission(written.as_ref())
            && entry.may_initialize.as_ref().is_some_and(|who| who.is(&review.username, in_group));
        let mut names = Vec::new();
        if written.is_none() {
            for one in &entry.initializers {
                if self.is_selected(one, lookup).await? {
                    names.push(&*one.name);
                }
            }
        }
        create(written, names, permitted).map_err(|refused| Box::new(refused.into_status()))
    }

    async fn annotations(&self, review: &Review) -> Result<[Option<String>; 2], Refusal> {
        let Some(place) = review.object.clone() else { return Ok([None, None]) };
        let (bytes, size) = (review.bytes.clone(), place.len());
        let reading = offload::run(size, move || annotations::of_object(&bytes, place, [OWN_LIST, MIRROR]));
        match timeout_at(self.until().into(), reading).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(why)) => Err(Box::new(status::internal(&why))),
            Err(_) => Err(Box::new(status::out_of_time())),
        }
    }

    /// Does the initializer act on this object? One that a bypass or break-glass leaves out does not.
    async fn is_selected(&self, one: &Initializer, lookup: &mut Lookup<'_>) -> Result<bool, Refusal> {
        let bypass = self.case.bypass;
        if one.built_in.is_none() || bypass.skips(&one.name) || bypass.break_glass_covers(&one.name) {
            return Ok(false);
        }
        match known(lookup, |lookup| lookup.selected_by(&one.namespace_selector, &one.object_selector)).await {
            Err(_) if bypass.fails_open(&one.name) => Ok(false),
            selected => selected,
        }
    }

    /// Has the initializer act on the object; the object as it is then, where that changed it.
    async fn act(
        &self,
        one: &Initializer,
        lookup: &mut Lookup<'_>,
        began: Instant,
    ) -> Result<Option<Arc<Patched>>, Failure> {
        let until = self.until().min(began + one.timeout);
        let late = || Failure::Late(until.saturating_duration_since(began));
        if until <= began {
            return Err(late());
        }
        let Some(additions) = one.built_in.clone() else { return Ok(None) };
        let labels = if additions.reads_namespace() {
            let found = known(lookup, Lookup::namespace_labels).await;
            Some(found.map_err(|refusal| Failure::Unable(refusal.message))?)
        } else {
            None
        };
        let before = self.initialized.patched.clone();
        let review = before.as_ref().map_or(self.case.review, |before| &before.review).clone();
        let Some(place) = review.object.clone() else { return Ok(None) };
        // What is added is bounded, and an object that is new with it no larger than twice.
        let Some(room) = self.case.gate.memory.reserve(Purpose::Answer, place.len()) else {
            return Err(Failure::Unable("Gatepost has no memory free for the object; try again".to_owned()));
        };
        let size = place.len() + before.as_ref().map_or(0, |before| before.document.held());
        let work = move || {
            let object = review.bytes.copy_of(place);
            let facts = built_in::Facts {
                namespace: &review.namespace,
                name: &review.name,
                user: &review.username,
                namespace_labels: labels.as_ref(),
            };
            match built_in::patch(&additions, &object, facts)? {
                Some(text) => {
                    let patch = Patch::parse(text).map_err(|error| error.to_string())?;
                    patched(&review, before.as_ref(), &patch, room)
                }
                None => Ok(None),
            }
        };
        // It is gone through twice: once for what is missing, once to add it.
        let ended = if size < LARGE / 2 {
            work()
        } else {
            match timeout_at(until.into(), offload::run(LARGE, work)).await {
                Ok(ended) => ended,
                Err(_) => return Err(late()),
            }
        };
        ended.map(|changed| changed.map(Arc::new)).map_err(Failure::Unable)
    }

    /// The end of the request's time for initializers: what is left then is for the answer.
    fn until(&self) -> Instant {
        let Case { caller, began, .. } = self.case;
        let margin = MARGIN.min(caller.deadline.left(began) / 10);
        caller.deadline.instant().checked_sub(margin).unwrap_or(began)
    }
}

impl Failure {
    fn refusal(self, name: &str) -> Refusal {
        Box::new(match self {
            Self::Late(after) => status::initializer_late(name, after),
            Self::Unable(why) => status::initializer_failed(name, &why),
        })
    }

    /// The warning to whoever creates the object.
    fn passed_over(self, name: &str) -> String {
        let why = match self {
            Self::Late(after) => format!("did not act within {} ms", after.as_millis()),
            Self::Unable(why) => format!("could not act: {why}"),
        };
        format!("initializer \"{name}\" {why}; the object goes on without it")
    }
}

/// Says in the verdict which initializers acted, and warns of those that were passed over.
pub(super) fn report(runs: &[Run], verdict: &mut Verdict) {
    // As upstream's limit for all warnings of a request, in characters.
    const ALL_WARNINGS: usize = 4096;
    for (index, run) in runs.iter().enumerate() {
        let said = serde_json::json!({"initializer": &*run.name, "outcome": run.outcome.as_str()});
        verdict.audit_annotations.push((format!("{INITIALIZED}/index_{index}"), said.to_string()));
        let Some(warning) = &run.passed_over else { continue };
        let so_far: usize = verdict.warnings.iter().map(|warning| warning.chars().count()).sum();
        if so_far + warning.chars().count() <= ALL_WARNINGS {
            verdict.warnings.push(warning.clone());
        }
    }
}

/// What is to be known of the request's namespace or object, waiting where it must be found out first.
async fn known<'l, T>(lookup: &mut Lookup<'l>, look: impl Fn(&Lookup<'l>) -> Result<T, Held>) -> Result<T, Refusal> {
    let mut found = false;
    loop {
        match look(lookup) {
            Ok(known) => return Ok(known),
            Err(Held::Refused(refusal)) => return Err(refusal),
            Err(Held::Large) => lookup.read().await,
            Err(Held::Slow) => lookup.conditions.evaluate().await,
            Err(Held::Unknown(namespace)) if found => return Err(Box::new(status::namespace_not_found(&namespace))),
            Err(Held::Unknown(namespace)) => {
                found = true;
                lookup.find(&namespace).await;
            }
        }
    }
}
