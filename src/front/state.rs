//! State of the front: of all callers' connections, and of the calls of one connection.

use std::{sync::Arc, time::Instant};

use h2::server::SendResponse;
use http::Response;

use super::{
    accept::{
        client::{QuotaKind, Session},
        clients::Clients,
    },
    admin::readiness,
    answer,
    drain::DrainSignal,
    grpc::health_reflection::GrpcAuxServices,
    inflight::{Inflight, InflightGuard},
    limits::{Buffers, FrontLimits, Quota},
    outgoing::Outgoing,
    refusal::Refusal,
};
use crate::{live::ReplicaHealth, review::AdmissionDeps, telemetry::Reading};
use gatepost_base::memory::{MemoryBudget, Purpose};

/// State that all connections share.
#[derive(Debug)]
pub struct Front {
    /// Dependencies of reviews.
    pub deps: Arc<AdmissionDeps>,
    /// Health of this replica.
    pub health: Arc<ReplicaHealth>,
    /// Limits on callers.
    pub limits: FrontLimits,
    /// Reviews and verdicts in flight.
    pub inflight: Arc<Inflight>,
    /// Registry of the connected clients.
    pub(super) clients: Arc<Clients>,
    pub(super) aux_services: GrpcAuxServices,
    /// Limit on the number of calls of health and reflection.
    pub(super) aux_quota: Quota,
    /// Limit on the number of streams of instances, of apiservers that report unfinished objects, and of plugins.
    pub(super) attach_quota: Quota,
    /// Limit on the number of calls of apiservers that store unfinished objects.
    pub(super) initialization_quota: Quota,
}

/// State that the calls of one connection share.
#[derive(Debug)]
pub(crate) struct ConnectionContext {
    pub(crate) front: Arc<Front>,
    pub(crate) session: Arc<Session>,
    /// Number of the worker that serves the connection.
    pub(crate) worker: usize,
    pub(crate) drain: DrainSignal,
}

/// Reason why the front cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("the descriptors that reflection serves are broken; this is a bug in gatepost: {0}")]
pub struct BuildError(#[from] tonic_reflection::server::Error);

impl Front {
    /// Builds the front and registers its readings with the metrics of `deps`.
    pub fn new(
        deps: Arc<AdmissionDeps>,
        health: Arc<ReplicaHealth>,
        limits: FrontLimits,
        budget: Arc<MemoryBudget>,
    ) -> Result<Arc<Self>, BuildError> {
        observe_memory(&deps, &budget);
        let inflight = Inflight::new(budget, limits.message_bytes);
        let requests = Arc::clone(&inflight);
        deps.metrics.observe(Reading::InflightRequests, move || Some(requests.requests() as f64));
        let [objects, holds] = [(); 2].map(|()| Arc::clone(deps.current.stored()));
        let labelled = Arc::clone(deps.current.labelled());
        let unfinished = move || Some((objects.unfinished() + labelled.unfinished()) as f64);
        deps.metrics.observe(Reading::StoredUnfinished, unfinished);
        deps.metrics.observe(Reading::StoredHolds, move || Some(holds.held() as f64));
        readiness::observe(&deps, &health);
        let aux_services = GrpcAuxServices::new(Arc::clone(&health))?;
        let quota = |kind| Quota::new(kind, Arc::clone(inflight.budget()));
        Ok(Arc::new(Self {
            aux_quota: quota(QuotaKind::Aux),
            attach_quota: quota(QuotaKind::Attached),
            initialization_quota: quota(QuotaKind::Initialization),
            clients: Clients::new(limits.connections, Instant::now()),
            deps,
            health,
            limits,
            inflight,
            aux_services,
        }))
    }

    /// Begins one more review of `session`, whose head arrived at `arrived`.
    pub(super) fn enter<'a>(&'a self, session: &'a Session, arrived: Instant) -> Result<InflightGuard<'a>, Refusal> {
        self.inflight.enter(&self.clients, session, arrived)
    }

    /// Returns the memory budget of reviews and answers.
    pub(super) fn budget(&self) -> &Arc<MemoryBudget> {
        self.inflight.budget()
    }

    /// Returns the limits on the buffers of one connection.
    pub(super) fn buffers(&self) -> Buffers {
        Buffers::of(self.budget().limit())
    }

    /// Counts a refusal and sends it over HTTP/2.
    pub(super) fn send_refusal(&self, respond: &mut SendResponse<Outgoing>, refusal: &Refusal) {
        self.count(refusal);
        if *refusal != Refusal::Cancelled {
            // An error means that the caller is gone.
            let _ = answer::refuse(respond, refusal);
        }
    }

    /// Counts a refusal and returns it in plain HTTP. The connection is closed if the answer stays unwritten.
    pub(super) fn refusal_response(&self, session: &Session, refusal: &Refusal) -> Response<Outgoing> {
        self.count(refusal);
        let now = Instant::now();
        answer::http_refusal(refusal).map(|body| body.until(session.unsent.add(now, now)))
    }

    fn count(&self, refusal: &Refusal) {
        if let Some(reason) = refusal.metric_label() {
            self.deps.metrics.record_refusal(reason);
        }
    }
}

/// Registers the readings of the memory budget with the metrics.
fn observe_memory(deps: &AdmissionDeps, budget: &Arc<MemoryBudget>) {
    for purpose in Purpose::ALL {
        let reading = match purpose {
            Purpose::Review => Reading::HeldForReviews,
            Purpose::Answer => Reading::HeldForAnswers,
            Purpose::Queue => Reading::HeldForQueues,
            Purpose::Verdict => Reading::HeldForVerdicts,
        };
        let budget = Arc::clone(budget);
        deps.metrics.observe(reading, move || Some(budget.held_for(purpose) as f64));
    }
    let limit = budget.limit();
    deps.metrics.observe(Reading::MemoryLimit, move || Some(limit as f64));
}
