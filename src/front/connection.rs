//! Front: state that all callers' connections share, and the beginning of a connection.

use std::{sync::Arc, time::Instant};

use h2::server::SendResponse;
use http::Response;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::timeout,
};

use self::session::Session;
use super::{
    FrontLimits,
    accept::{
        clients::{Admitted, Clients},
        life::Life,
        sniff::{self, Spoken},
    },
    admin::readiness,
    answer,
    grpc::{
        health_reflection::GrpcAuxServices,
        quota::{Places, Quota},
    },
    http::reply,
    inflight::{Inflight, InflightGuard},
    limits,
    outgoing::Outgoing,
    refusal::Refusal,
};
use crate::{
    memory::{MemoryBudget, Purpose},
    review::Gate,
    telemetry::{Reading, Refused},
};

/// State that all connections share.
#[derive(Debug)]
pub struct Front {
    gate: Arc<Gate>,
    limits: FrontLimits,
    inflight: Arc<Inflight>,
    clients: Arc<Clients>,
    aux_services: GrpcAuxServices,
    attaching: Quota,
    initializing: Quota,
}

/// Reason why the front cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("the descriptors that reflection serves are broken; this is a bug in gatepost: {0}")]
pub struct BuildError(#[from] tonic_reflection::server::Error);

impl Front {
    /// Builds the front and registers what it knows with the gate's metrics.
    pub fn new(gate: Arc<Gate>, limits: FrontLimits, budget: Arc<MemoryBudget>) -> Result<Arc<Self>, BuildError> {
        let inflight = Inflight::new(Arc::clone(&budget), limits.message_bytes);
        let requests = Arc::clone(&inflight);
        gate.metrics.observe(Reading::InflightRequests, move || Some(requests.requests() as f64));
        let [objects, holds] = [(); 2].map(|()| Arc::clone(gate.current.stored()));
        let labelled = Arc::clone(gate.current.labelled());
        let unfinished = move || Some((objects.unfinished() + labelled.unfinished()) as f64);
        gate.metrics.observe(Reading::StoredUnfinished, unfinished);
        gate.metrics.observe(Reading::StoredHolds, move || Some(holds.held() as f64));
        observe_memory(&gate, &budget);
        readiness::observe(&gate);
        let aux_services = GrpcAuxServices::new(Arc::clone(&gate.current))?;
        let clients = Clients::new(limits.connections, Instant::now());
        let (attaching, initializing) = (Quota::of(Places::Attached), Quota::of(Places::Initialization));
        Ok(Arc::new(Self { gate, limits, inflight, clients, aux_services, attaching, initializing }))
    }

    /// The gate reviews are brought to.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Limits on callers.
    pub fn limits(&self) -> &FrontLimits {
        &self.limits
    }

    /// Reviews and verdicts in flight.
    pub fn inflight(&self) -> &Arc<Inflight> {
        &self.inflight
    }

    /// Connected clients.
    pub(super) fn clients(&self) -> &Arc<Clients> {
        &self.clients
    }

    /// One more review, whose head arrived then on that connection.
    pub(super) fn enter<'a>(&'a self, session: &'a Session, arrived: Instant) -> Result<InflightGuard<'a>, Refusal> {
        self.inflight.enter(&self.clients, session, arrived)
    }

    /// Limits on the buffers of one connection.
    pub(super) fn buffers(&self) -> limits::Buffers {
        limits::Buffers::of(self.inflight.budget().limit())
    }

    /// Places of initializers' instances.
    pub(super) fn attaching(&self) -> &Quota {
        &self.attaching
    }

    /// Places of calls of apiservers that store unfinished objects.
    pub(super) fn initializing(&self) -> &Quota {
        &self.initializing
    }

    pub(super) fn aux_services(&self) -> &GrpcAuxServices {
        &self.aux_services
    }

    /// Counts and answers a refusal.
    pub(super) fn refuse(&self, respond: &mut SendResponse<Outgoing>, refusal: &Refusal) {
        self.count(refusal);
        if *refusal != Refusal::Cancelled {
            // An error here says that the caller is gone.
            let _ = answer::refuse(respond, refusal);
        }
    }

    /// Counts a refusal and puts it in plain HTTP, for whoever reads it soon.
    pub(super) fn refused(&self, session: &Session, refusal: &Refusal) -> Response<Outgoing> {
        self.count(refusal);
        let now = Instant::now();
        reply::refusal(refusal).map(|body| body.until(session.unsent().add(now, now)))
    }

    fn count(&self, refusal: &Refusal) {
        if let Some(reason) = refusal.counted() {
            self.gate.metrics.refused(reason);
        }
    }

    /// Serves one connection on the runtime this is polled on, until the caller closes it or `life` ends it: from
    /// [`Life::Draining`] on, calls under way are finished, and new ones taken only in a short [`grace`]. The version
    /// of The first bytes give the version of HTTP.
    pub(super) async fn serve<Io>(
        self: Arc<Self>,
        worker: usize,
        io: Io,
        admitted: &Admitted,
        life: watch::Receiver<Life>,
    ) where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let session = admitted.session();
        let spoken = tokio::select! {
            biased;
            spoken = timeout(limits::HANDSHAKE, sniff::spoken(io)) => spoken,
            () = grace::over(life.clone(), grace::length(&self.limits)) => return,
            () = session.evicted() => return self.gate.metrics.refused(Refused::Evicted),
        };
        match spoken {
            Ok(Ok(Spoken::Http2(io))) => self.serve_http2(worker, io, session, life).await,
            Ok(Ok(Spoken::Http1(io))) => self.serve_http1(worker, io, session, life).await,
            Ok(Ok(Spoken::Nothing)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a connection broke before it began"),
            Err(_) => self.gate.metrics.refused(Refused::Protocol),
        }
    }
}

/// Registers the readings of the memory budget with the metrics.
fn observe_memory(gate: &Gate, budget: &Arc<MemoryBudget>) {
    for purpose in Purpose::ALL {
        let reading = match purpose {
            Purpose::Review => Reading::HeldForReviews,
            Purpose::Answer => Reading::HeldForAnswers,
            Purpose::Queue => Reading::HeldForQueues,
            Purpose::Verdict => Reading::HeldForVerdicts,
        };
        let budget = Arc::clone(budget);
        gate.metrics.observe(reading, move || Some(budget.held_for(purpose) as f64));
    }
    let limit = budget.limit();
    gate.metrics.observe(Reading::MemoryLimit, move || Some(limit as f64));
}

pub(crate) mod flood;
pub(crate) mod grace;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod keepalive;
pub(crate) mod partial;
pub(crate) mod session;
pub(crate) mod stall_limit;
#[cfg(test)]
#[path = "connection/tests.rs"]
mod tests;
pub(crate) mod unsent;
