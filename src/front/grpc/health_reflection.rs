//! Health and reflection: stock tonic, called on the same port.
//!
//! Their calls are few and small, and are kept so: what one may send, how long one that is no watch may last, how many
//! there may be, and each has its place in the memory budget ([`Quota`]).

use std::{
    convert::Infallible,
    fmt,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use futures_util::future::BoxFuture;
use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body;
use tokio::{sync::watch, time::timeout};
use tonic::Code;
use tonic_health::{ServingStatus, server::HealthReporter};
use tonic_reflection::server::{Builder, Error};
use tower_service::Service;

use super::{
    head,
    inbound::{self, Inbound},
    quota::{Cost, Quota},
};
use crate::{
    front::{
        Front,
        accept::life::Life,
        admin::readiness::Readiness,
        answer::{GRPC_MESSAGE, GRPC_STATUS},
        connection::session::Session,
        outgoing::Outgoing,
        refusal::Refusal,
        route::Route,
    },
    live::Current,
    wire::names,
};

/// The descriptors of `proto/`, which reflection serves.
use crate::wire::DESCRIPTORS;
/// All that one call of health may send: a service's name.
const HEALTH: Cost = Cost { sent: 4 << 10, held: 16 << 10 };
/// All that one call of reflection may send, in many small messages; what it is answered is larger.
const REFLECTION: Cost = Cost { sent: 64 << 10, held: 256 << 10 };

/// A tonic service without its type.
type Called = Box<dyn Fn(Request<Inbound>) -> BoxFuture<'static, Response<tonic::body::Body>> + Send + Sync>;

/// Health and reflection.
pub(crate) struct GrpcAuxServices {
    current: Arc<Current>,
    reporter: HealthReporter,
    /// The status last reported: 0 none, 1 serving, 2 not.
    reported: AtomicU8,
    quota: Quota,
    health: Called,
    reflection_v1: Called,
    reflection_v1alpha: Called,
}

impl fmt::Debug for GrpcAuxServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcAuxServices").finish_non_exhaustive()
    }
}

fn called<S>(service: S) -> Called
where
    S: Service<Request<Inbound>, Response = Response<tonic::body::Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    Box::new(move |request| {
        // Tonic's generated services are always ready.
        let response = service.clone().call(request);
        Box::pin(async move {
            match response.await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        })
    })
}

impl GrpcAuxServices {
    /// Health follows `current`'s readiness; reflection serves `proto/` and the health service.
    pub(crate) fn new(current: Arc<Current>) -> Result<Self, Error> {
        let (reporter, health) = tonic_health::server::health_reporter();
        let builder = || {
            Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        Ok(Self {
            current,
            reporter,
            reported: AtomicU8::new(0),
            quota: Quota::default(),
            health: called(health),
            reflection_v1: called(builder().build_v1()?),
            reflection_v1alpha: called(builder().build_v1alpha()?),
        })
    }

    /// Reports the present status to the health service where it has changed.
    pub(crate) async fn refresh_health(&self) {
        let (number, status) = match Readiness::of(&self.current) {
            Readiness::Ready => (1, ServingStatus::Serving),
            Readiness::NeverRead
            | Readiness::Rejected
            | Readiness::Nameless
            | Readiness::Stale
            | Readiness::Unreachable
            | Readiness::Draining => (2, ServingStatus::NotServing),
        };
        if self.reported.swap(number, Ordering::AcqRel) != number {
            for service in ["", names::ADMISSION] {
                self.reporter.set_service_status(service, status).await;
            }
        }
    }

    /// Answers one call; ends its stream when the server drains, since a watch would otherwise last for ever.
    pub(crate) async fn answer(
        &self,
        front: &Front,
        session: &Session,
        route: Route,
        request: Request<RecvStream>,
        mut respond: SendResponse<Outgoing>,
        life: watch::Receiver<Life>,
    ) {
        let (service, cost) = match route {
            Route::ReflectionV1 => (&self.reflection_v1, REFLECTION),
            Route::ReflectionV1Alpha => (&self.reflection_v1alpha, REFLECTION),
            _ => (&self.health, HEALTH),
        };
        let _taken = match self.quota.take(session, front.inflight().budget(), cost) {
            Ok(taken) => taken,
            Err(refusal) => return front.refuse(&mut respond, &refusal),
        };
        let longest = front.limits().timeout;
        let within = if request.uri().path() == names::HEALTH_WATCH {
            None
        } else {
            Some(head::aux_timeout(request.headers()).map_or(longest, |timeout| timeout.min(longest)))
        };
        let (request, body) = inbound::split(request);
        let answering = async {
            if matches!(route, Route::Health) {
                self.refresh_health().await;
            }
            // An error here says that the caller is gone.
            let _ = pump(service(request).await, &mut respond, life).await;
            Ok(())
        };
        let ended = async {
            tokio::select! {
                biased;
                refusal = body.feed(cost.sent) => Err(refusal),
                ended = answering => ended,
            }
        };
        let ended = match within {
            None => ended.await,
            Some(within) => timeout(within, ended).await.unwrap_or(Err(Refusal::ColdDeadline { within })),
        };
        if let Err(refusal) = ended {
            // A response that has begun is reset.
            front.refuse(&mut respond, &refusal);
        }
    }
}

/// Sends a tonic response, each frame when the window has room for it.
async fn pump(
    response: Response<tonic::body::Body>,
    respond: &mut SendResponse<Outgoing>,
    mut life: watch::Receiver<Life>,
) -> Result<(), h2::Error> {
    let (parts, body) = response.into_parts();
    let ended = body.is_end_stream();
    let mut stream = respond.send_response(Response::from_parts(parts, ()), ended)?;
    if ended {
        return Ok(());
    }
    let mut body = pin!(body);
    let mut draining = pin!(async move { life.wait_for(|life| *life != Life::Serving).await.map(drop) });
    loop {
        let frame = tokio::select! {
            biased;
            frame = poll_fn(|cx| body.as_mut().poll_frame(cx)) => frame,
            reset = poll_fn(|cx| stream.poll_reset(cx)) => return reset.map(drop),
            _ = &mut draining => return stream.send_trailers(status(Code::Unavailable, "shutting down")),
        };
        let Some(frame) = frame else { return stream.send_data(Outgoing::default(), true) };
        let Ok(frame) = frame else {
            return stream.send_trailers(status(Code::Internal, "the response broke off"));
        };
        match frame.into_data() {
            Ok(mut data) => {
                while !data.is_empty() {
                    stream.reserve_capacity(data.len());
                    let Some(room) = poll_fn(|cx| stream.poll_capacity(cx)).await.transpose()? else { return Ok(()) };
                    stream.send_data(data.split_to(room.min(data.len())).into(), false)?;
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return stream.send_trailers(trailers);
                }
            }
        }
    }
}

fn status(code: Code, message: &'static str) -> HeaderMap {
    HeaderMap::from_iter([
        (GRPC_STATUS, HeaderValue::from(code as i32)),
        (GRPC_MESSAGE, HeaderValue::from_static(message)),
    ])
}

#[cfg(test)]
#[path = "health_reflection/tests.rs"]
mod tests;
