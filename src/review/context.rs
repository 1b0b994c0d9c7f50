//! ReviewContext: everything that the decision about one review may look at. No phase changes it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::time::timeout_at;
use tracing::{Span, debug_span};

use super::{
    bypass::BypassDecision,
    conditions::Access,
    object::{PatchFailure, PatchedObject, patched, room_for, scanned},
    rejection::{self, StatusError},
};
use crate::{
    live::{
        Authorizer, BreakGlasses, ConfigurationStatus, Current, Discovery, Generation, Namespaces,
        discovery::DiscoveryView,
    },
    telemetry::{Audit, Metrics},
};
use gatepost_api::{Deadline, Dispatch, Hops, Labels, Phase, ResourceInitializers, Review, registration::Segment};
use gatepost_base::{
    clock::now,
    memory::MemoryBudget,
    offload::{self, LARGE},
};
use gatepost_json_patch::Patch;

/// An apiserver that takes longer to list what it serves is not waited for: hooks that may mean the request in another
/// version then fail their call.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(3);

/// Reasons that a rejection gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reasons {
    /// The first denial or closed failure answers at once and cancels the calls still running.
    #[default]
    First,
    /// The first one, and those of the hooks that answer within so long after it, so that their warnings are kept.
    Within(Duration),
    /// Every hook is waited for and every reason reported.
    All,
}

/// Default mode of asking mutating hooks, for hooks that do not set their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speculation {
    /// One by one, or together.
    pub dispatch: Dispatch,
    /// No hook is asked behind others of which one patches with a greater chance than this, in percent.
    pub most_chance: u8,
}

impl Default for Speculation {
    /// Together, as long as a call is more likely to count than to be discarded.
    fn default() -> Self {
        Self { dispatch: Dispatch::Speculative, most_chance: 50 }
    }
}

/// Everything that decisions need and that outlives one review.
#[derive(Debug)]
pub struct AdmissionDeps {
    /// Generation in force.
    pub current: Arc<Current>,
    /// What was read and is not in force, for messages.
    pub status: Arc<ConfigurationStatus>,
    /// Open break-glass.
    pub break_glass: Arc<BreakGlasses>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// Reasons that a rejection gives.
    pub reasons: Reasons,
    /// Are the patches of mutating hooks put into audit annotations, as kube-apiserver does at the level Request?
    pub patch_annotations: bool,
    /// Default mode of asking mutating hooks.
    pub speculation: Speculation,
    /// Memory budget that patched objects are reserved in.
    pub memory: Arc<MemoryBudget>,
    /// The cluster's namespaces, where they are followed.
    pub namespaces: Option<Arc<Namespaces>>,
    /// Resources and versions that the cluster serves.
    pub discovery: Option<Arc<Discovery>>,
    /// The authorizer of the cluster, for conditions that ask it.
    pub authorizer: Option<Arc<Authorizer>>,
}

/// Treatment of hooks that want a review's object in a version other than the one it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherVersions {
    /// Their call fails: no other review asks them, and they must not be passed over in silence.
    #[default]
    Fail,
    /// They are passed over: the caller asks about each version in a review of its own.
    AskedApart,
}

/// Facts of one call that the front knows besides the review.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Which of the service's calls was made.
    pub phase: Phase,
    /// Latest time for the verdict.
    pub deadline: Deadline,
    /// The worker (0..n) on whose thread this runs; it picks the worker's client of each hook.
    pub worker: usize,
    /// Hooks that want the object in another version.
    pub other_versions: OtherVersions,
    /// The mutating hooks that are asked, where not all are.
    pub segment: Option<Segment>,
    /// The Gateposts that the review has passed through before.
    pub hops: Hops,
    /// The caller stores new objects before they are initialized, and hides them until they are.
    pub stores_unfinished: bool,
    /// Labels of the request's namespace, where the caller sent them.
    pub namespace_labels: Option<Labels>,
    /// The same labels as they came (base64), passed on to the hooks so that sidecars chain.
    pub namespace_labels_text: Option<Bytes>,
    /// Identifier of the client's request in the caller's audit log, short and of plain characters: for our own.
    pub audit_id: Option<Box<str>>,
}

/// One review that is being decided.
#[derive(Debug)]
pub(super) struct ReviewContext<'a> {
    pub(super) deps: &'a AdmissionDeps,
    /// The review as it arrived.
    pub(super) review: &'a Review,
    pub(super) caller: &'a Caller,
    pub(super) began: Instant,
    /// Age of the configuration when the decision began.
    pub(super) age: Option<Duration>,
    pub(super) generation: &'a Generation,
    pub(super) bypass: BypassDecision<'a>,
    /// Decided access checks: those of one phase hold in the next.
    pub(super) access: Access<'a>,
}

impl<'a> ReviewContext<'a> {
    /// Span of the review. While the debug level is off, it costs one load of its callsite's state.
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

    /// Are mutating hooks and initializers asked for?
    pub(super) fn mutates(&self) -> bool {
        matches!(self.caller.phase, Phase::Mutate | Phase::Review)
    }

    /// Are validating hooks asked for?
    pub(super) fn validates(&self) -> bool {
        matches!(self.caller.phase, Phase::Validate | Phase::Review)
    }

    /// Is the request's time over?
    pub(super) fn is_out_of_time(&self) -> bool {
        self.caller.deadline.left(now()).is_zero()
    }

    /// The review about the object as something has left it, or as it arrived.
    pub(super) fn about<'r>(&self, object: Option<&'r Arc<PatchedObject>>) -> &'r Review
    where
        'a: 'r,
    {
        object.map_or(self.review, |object| &object.review)
    }

    /// Initializers that are configured for the review's resource.
    pub(super) fn initializers(&self) -> Option<&'a ResourceInitializers> {
        let resource = &self.review.resource;
        self.generation.snapshot.initializers_of(&resource.group, &resource.resource)
    }

    /// What the cluster serves, where it is followed.
    pub(super) fn served(&self) -> Option<DiscoveryView> {
        self.deps.discovery.as_ref().map(|discovery| discovery.look(now()))
    }

    /// Result of reading that many bytes of the review, beside the worker where they are many and within the request's
    /// time.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        bytes: usize,
        reading: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, StatusError> {
        let read = self.in_time(offload::run(bytes, reading)).await?;
        read.map_err(|why| Box::new(rejection::internal(&why)))
    }

    /// Applies a patch, whose text has that many bytes, to the object of `review`, which is what `before` has made of it:
    /// beside the worker where there is much to go through, and within the request's time.
    pub(super) async fn apply(
        &self,
        patch: Patch,
        text: usize,
        review: &Review,
        before: Option<&Arc<PatchedObject>>,
    ) -> Result<Result<Option<PatchedObject>, PatchFailure>, StatusError> {
        // All that the review holds, what patches have opened before, and the patch.
        let before_bytes = before.map_or(0, |before| before.document.held() + before.document.rope().len());
        let size = review.bytes.len() + before_bytes + scanned(&patch, text);
        let Some(room) = room_for(&patch, text, review, before, &self.deps.memory) else {
            return Ok(Err(PatchFailure::NoRoom));
        };
        if size < LARGE {
            return Ok(patched(review, before, &patch, room, None));
        }
        let (review, before) = (review.clone(), before.cloned());
        let applying = move |cancelled: &_| patched(&review, before.as_ref(), &patch, room, Some(cancelled));
        self.in_time(offload::run_unless_dropped(size, applying)).await
    }

    /// Result of this work, within the request's time.
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, StatusError> {
        let ended = timeout_at(self.caller.deadline.instant().into(), work).await;
        ended.map_err(|_| Box::new(rejection::out_of_time()))
    }

    /// Reads again what the cluster serves, within the request's time.
    pub(super) async fn refresh_discovery(&self) {
        let Some(discovery) = &self.deps.discovery else { return };
        let until = self.caller.deadline.instant().min(now() + DISCOVERY_TIMEOUT);
        let _ = timeout_at(until.into(), discovery.refresh(now())).await;
    }
}
