//! ReviewContext: the inputs of the decision about one review. Phases change only `access`, which collects decided
//! access checks.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout_at,
};
use tracing::{Span, debug_span};

use super::{
    access::Access,
    bypass::BypassDecision,
    comparison::Compared,
    rejection::{self, StatusError},
};
use crate::{
    live::{
        Authorizer, BreakGlassDocuments, ClusterObjects, ConfigurationStatus, Current, Discovery, Generation,
        Namespaces, discovery::DiscoveryView,
    },
    telemetry::{Audit, Metrics, ShadowDrop},
};
use gatepost_api::{
    Deadline, Dispatch, Enforcement, ForwardedContext, Gvr, HookType, Hops, Labels, Phase, ResourceInitializers,
    Review, Served, registration::Segment,
};
use gatepost_base::{
    clock::now,
    memory::{MemoryBudget, Purpose, Reservation},
    offload::{self, OFFLOAD_THRESHOLD},
};

/// Maximum time to wait for the apiserver to list its resources. After this time, calls of hooks that may want the
/// request in another version fail.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of requests that are decided in shadow at the same time.
const MAX_SHADOWS: usize = 64;

/// Reasons that a rejection reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reasons {
    /// The first denial or closed failure. The request is rejected immediately, and the calls still running are
    /// cancelled.
    #[default]
    First,
    /// The first one, and those of the hooks that answer within this time after it. Their warnings are kept too.
    Within(Duration),
    /// All of them. Every hook is waited for.
    All,
}

/// Default dispatch of mutating hooks, for hooks that do not set their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speculation {
    /// Calls one by one, or together.
    pub dispatch: Dispatch,
    /// Maximum probability, in percent, that an earlier hook of a batch patches. Above it, no further hook joins the
    /// batch.
    pub max_chance: u8,
}

impl Default for Speculation {
    /// Calls together, while a call is more likely to count than to be discarded.
    fn default() -> Self {
        Self { dispatch: Dispatch::Speculative, max_chance: 50 }
    }
}

/// Slots of requests that are decided in shadow.
#[derive(Debug)]
pub struct ShadowSlots(Arc<Semaphore>);

impl ShadowSlots {
    /// Takes a slot until the result is dropped; `None` if there is none.
    pub(super) fn try_take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}

impl Default for ShadowSlots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_SHADOWS)))
    }
}

/// Dependencies of decisions that outlive one review.
#[derive(Debug)]
pub struct AdmissionDeps {
    /// Generation in force.
    pub current: Arc<Current>,
    /// State of the configuration besides the generation, for messages.
    pub status: Arc<ConfigurationStatus>,
    /// Break-glass documents.
    pub break_glass: Arc<BreakGlassDocuments>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Audit log.
    pub audit: Arc<Audit>,
    /// Reasons that a rejection reports.
    pub reasons: Reasons,
    /// True if patches of mutating hooks are put into audit annotations, as kube-apiserver does at the level Request.
    pub patch_annotations: bool,
    /// Default dispatch of mutating hooks.
    pub speculation: Speculation,
    /// Memory budget for patched objects, and for requests that are decided in shadow.
    pub memory: Arc<MemoryBudget>,
    /// Slots of requests that are decided in shadow.
    pub shadow_slots: ShadowSlots,
    /// Namespaces of the cluster; `None` if no cluster is watched.
    pub namespaces: Option<Arc<Namespaces>>,
    /// Objects of the cluster that policies read; `None` if no cluster is watched.
    pub objects: Option<Arc<ClusterObjects>>,
    /// Resources and versions that the cluster serves; `None` if no cluster is watched.
    pub discovery: Option<Arc<Discovery>>,
    /// Authorizer of the cluster, for access checks; `None` if there is no cluster.
    pub authorizer: Option<Arc<Authorizer>>,
}

impl AdmissionDeps {
    /// Creates what decisions by this generation need: without a cluster, an audit log and a bound on memory.
    pub fn new(current: Arc<Current>, metrics: Arc<Metrics>) -> Self {
        Self {
            current,
            status: Arc::default(),
            break_glass: Arc::default(),
            metrics,
            audit: Arc::new(Audit::off()),
            reasons: Reasons::First,
            patch_annotations: false,
            speculation: Speculation::default(),
            memory: MemoryBudget::unlimited(),
            shadow_slots: ShadowSlots::default(),
            namespaces: None,
            objects: None,
            discovery: None,
            authorizer: None,
        }
    }
}

/// Treatment of hooks that want the object in a version other than the review's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OtherVersions {
    /// Their calls fail. No other review calls them, and they must not be skipped silently.
    #[default]
    Fail,
    /// They are skipped. The caller sends a review of its own for each version.
    ReviewedSeparately,
    /// They are skipped, and the verdict names the versions that they want of these, in which the caller can send the
    /// request. The caller then sends a review in each.
    Listed(Arc<ListedVersions>),
}

/// Versions of a request's resource in which the caller can send it, in the order that it prefers.
#[derive(Debug, PartialEq, Eq)]
pub struct ListedVersions {
    pub(super) resources: Vec<Gvr>,
    /// The same, for rules.
    served: Served,
}

impl ListedVersions {
    /// Creates the list.
    pub fn new(resources: Vec<Gvr>) -> Self {
        let mut served = Served::default();
        for Gvr { group, version, resource } in &resources {
            served.add(group, version, resource);
        }
        Self { resources, served }
    }
}

/// Resources that the cluster or the caller serves.
pub(super) enum ServedView<'a> {
    /// From the cluster's discovery.
    Cluster(DiscoveryView),
    /// From the caller's list.
    Caller(&'a Served),
}

impl ServedView<'_> {
    /// Returns the resources and versions.
    pub(super) fn served(&self) -> &Served {
        match self {
            Self::Cluster(view) => view.served(),
            Self::Caller(served) => served,
        }
    }
}

/// Facts about one call of the caller that are not in its review.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Method of the service that was called.
    pub phase: Phase,
    /// Deadline of the verdict.
    pub deadline: Deadline,
    /// Index of the worker on whose thread the decision runs. It selects the worker's client of each hook.
    pub worker: usize,
    /// Treatment of hooks that want the object in another version.
    pub other_versions: OtherVersions,
    /// Segment of the mutating hooks to call; `None` for all of them.
    pub segment: Option<Segment>,
    /// Headers that go on to the hooks. Their `hops` count the Gateposts before this one.
    pub forwarded: ForwardedContext,
    /// True if the caller stores new objects before they are initialized, and hides them until they are.
    pub stores_unfinished: bool,
    /// Labels of the request's namespace, if the caller sent them.
    pub namespace_labels: Option<Labels>,
    /// Those labels in base64 as they arrived. They are passed on to the hooks, so that sidecars can be chained.
    pub namespace_labels_text: Option<Bytes>,
    /// Identifier of the client's request in the caller's audit log, short and of plain characters, for Gatepost's own
    /// log.
    pub audit_id: Option<Box<str>>,
}

impl Caller {
    /// Creates a caller that sends nothing but its review.
    pub fn new(phase: Phase, deadline: Deadline) -> Self {
        Self {
            phase,
            deadline,
            worker: 0,
            other_versions: OtherVersions::Fail,
            segment: None,
            forwarded: Hops::default().into(),
            stores_unfinished: false,
            namespace_labels: None,
            namespace_labels_text: None,
            audit_id: None,
        }
    }
}

/// Inputs of the decision about one review.
#[derive(Debug)]
pub(super) struct ReviewContext<'a> {
    pub(super) deps: &'a AdmissionDeps,
    /// The review as it arrived.
    pub(super) review: &'a Review,
    pub(super) caller: &'a Caller,
    pub(super) began: Instant,
    /// Age of the configuration when the decision began; `None` before the first good read.
    pub(super) age: Option<Duration>,
    pub(super) generation: &'a Generation,
    pub(super) bypass: BypassDecision<'a>,
    /// Access checks decided so far, in all phases.
    pub(super) access: Access<'a>,
    /// Set after the verdict, to its comparison: only hooks and policies in shadow decide, and nothing has an
    /// effect.
    pub(super) shadow: Option<&'a Compared>,
}

impl<'a> ReviewContext<'a> {
    /// Creates the context of a decision that begins now. The age of the configuration is not checked.
    pub(super) fn of(
        deps: &'a AdmissionDeps,
        review: &'a Review,
        caller: &'a Caller,
        generation: &'a Generation,
        shadow: Option<&'a Compared>,
    ) -> Self {
        let began = now();
        let bypass = BypassDecision::of(generation, deps.break_glass.open(began), review);
        let access = Access::new(deps.authorizer.as_deref());
        Self { deps, review, caller, began, age: None, generation, bypass, access, shadow }
    }

    /// Returns the span of the review. While the debug level is off, a span costs one load of its callsite's state.
    pub(super) fn span(&self) -> Span {
        let Self { review, generation, .. } = self;
        debug_span!(
            "review",
            uid = %review.uid,
            kind = %review.kind.kind,
            namespace = %review.namespace,
            operation = review.operation.as_str(),
            revision = %generation.revision,
        )
    }

    /// Returns true if mutating hooks and initializers are to be called.
    pub(super) fn mutates(&self) -> bool {
        matches!(self.caller.phase, Phase::Mutate | Phase::Review)
    }

    /// Returns true if validating hooks are to be called.
    pub(super) fn validates(&self) -> bool {
        matches!(self.caller.phase, Phase::Validate | Phase::Review)
    }

    /// Returns true if hooks and policies of this type are to be called.
    pub(super) fn calls(&self, hook_type: HookType) -> bool {
        match hook_type {
            HookType::Mutating => self.mutates(),
            HookType::Validating => self.validates(),
        }
    }

    /// Returns true after the verdict: only hooks and policies in shadow decide, and nothing has an effect.
    pub(super) fn is_shadow(&self) -> bool {
        self.shadow.is_some()
    }

    /// Returns the effect of rejections now, of a hook or policy with this enforcement.
    pub(super) fn effective(&self, enforcement: Enforcement) -> Enforcement {
        if self.is_shadow() { Enforcement::Shadow } else { enforcement }
    }

    /// Returns true if the request's deadline has passed.
    pub(super) fn is_out_of_time(&self) -> bool {
        self.caller.deadline.left(now()).is_zero()
    }

    /// Returns the initializers that are configured for the review's resource.
    pub(super) fn initializers(&self) -> Option<&'a ResourceInitializers> {
        let resource = &self.review.resource;
        self.generation.snapshot.initializers_of(&resource.group, &resource.resource)
    }

    /// Returns the resources that are served; `None` if the caller lists none and no cluster is watched.
    pub(super) fn served(&self) -> Option<ServedView<'a>> {
        match &self.caller.other_versions {
            // Newer than discovery, and of the server that has the resource.
            OtherVersions::Listed(listed) => Some(ServedView::Caller(&listed.served)),
            _ => self.deps.discovery.as_ref().map(|discovery| ServedView::Cluster(discovery.look(now()))),
        }
    }

    /// Runs `reading`, which reads `bytes` bytes of the review: off the worker's thread if there are many, and until
    /// the request's deadline.
    pub(super) async fn run_reading<T: Send + 'static>(
        &self,
        bytes: usize,
        reading: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, StatusError> {
        let read = match bytes < OFFLOAD_THRESHOLD {
            true => reading(),
            false => self.in_time(self.run_offloaded(bytes, reading)).await??,
        };
        read.map_err(|why| Box::new(rejection::internal(&why)))
    }

    /// Evaluates expressions off the worker's thread, until the request's deadline.
    ///
    /// # Errors
    /// The deadline passes first (504); in shadow, there is no idle thread (503).
    pub(super) async fn evaluate<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StatusError> {
        if !self.is_shadow() {
            return self.in_time(offload::evaluate(work)).await;
        }
        match self.in_time(offload::run_spare(work)).await {
            Ok(Some(done)) => Ok(done),
            // The deadline mostly passes before the turn comes.
            Ok(None) | Err(_) => Err(drop_shadow(&self.deps.metrics, ShadowDrop::Threads)),
        }
    }

    /// Runs work on `bytes` bytes, which are many, off the worker's thread.
    ///
    /// # Errors
    /// In shadow, there is no idle thread (503).
    pub(super) fn run_offloaded<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        bytes: usize,
        work: F,
    ) -> impl Future<Output = Result<T, StatusError>> + Send + use<T, F> {
        let in_shadow = self.is_shadow().then(|| Arc::clone(&self.deps.metrics));
        async move {
            let Some(metrics) = in_shadow else { return Ok(offload::run(bytes, work).await) };
            offload::run_spare(work).await.ok_or_else(|| drop_shadow(&metrics, ShadowDrop::Threads))
        }
    }

    /// Reserves memory for the patched object; `patch` says whose patch it is.
    ///
    /// # Errors
    /// There is none (503).
    pub(super) fn reserve(&self, bytes: usize, patch: &str) -> Result<Reservation, StatusError> {
        let mut room = self.deps.memory.empty(Purpose::Answer);
        match self.is_shadow() {
            true if room.try_grow_spare(bytes) => Ok(room),
            true => Err(drop_shadow(&self.deps.metrics, ShadowDrop::Memory)),
            false if room.try_grow(bytes) => Ok(room),
            false => Err(Box::new(rejection::no_room(patch))),
        }
    }

    /// Waits for `work` until the request's deadline.
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, StatusError> {
        let ended = timeout_at(self.caller.deadline.instant().into(), work).await;
        ended.map_err(|_| Box::new(rejection::out_of_time()))
    }

    /// Refreshes the list of resources that the cluster serves, until the request's deadline.
    pub(super) async fn refresh_discovery(&self) {
        let Some(discovery) = &self.deps.discovery else { return };
        let until = self.caller.deadline.instant().min(now() + DISCOVERY_TIMEOUT);
        let _ = timeout_at(until.into(), discovery.refresh(now())).await;
    }
}

/// Counts that something in shadow is not decided. Returns the error that ends it.
fn drop_shadow(metrics: &Metrics, reason: ShadowDrop) -> StatusError {
    metrics.record_shadow_drop(reason);
    Box::new(rejection::shadow_dropped())
}
