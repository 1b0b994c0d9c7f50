//! Health and reflection: tonic's services on the same port.
//!
//! Their calls are few and small. Limits apply to the bytes that a call sends, to the duration of a call that is no
//! watch, and to the number of calls; each call reserves memory ([`Quota`](crate::front::limits::Quota)).
//!
//! A call's body is read here and not by the service: data that a service does not read would stay in the connection's
//! window, which no limit counts. The body is small enough to be queued.

use std::{
    convert::Infallible,
    fmt,
    future::{pending, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use h2::{RecvStream, server::SendResponse};
use http::{Request, Response};
use http_body::{Body, Frame};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::timeout,
};
use tonic::Code;
use tonic_health::{ServingStatus, server::HealthReporter};
use tonic_reflection::server::{Builder, Error};
use tower_service::Service;

use crate::{
    front::{
        admin::readiness::Readiness, answer::trailers, drain::DrainSignal, head::aux_timeout, outgoing::Outgoing,
        refusal::Refusal,
    },
    live::ReplicaHealth,
};
use gatepost_wire::{DESCRIPTORS, names};

/// Bytes for which an empty frame counts.
const EMPTY_FRAME_COST: usize = 64;

/// tonic service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuxService {
    Health,
    ReflectionV1,
    ReflectionV1Alpha,
}

impl AuxService {
    /// Returns the most bytes that one call may send: a service's name for health, many small messages for reflection.
    fn max_sent(self) -> usize {
        match self {
            Self::Health => 4 << 10,
            Self::ReflectionV1 | Self::ReflectionV1Alpha => 64 << 10,
        }
    }

    /// Returns the memory of one call: responses of reflection are larger than its requests.
    pub(crate) fn memory(self) -> usize {
        4 * self.max_sent()
    }
}

/// tonic service without its type.
type ErasedService = Box<dyn Fn(Request<AuxBody>) -> BoxFuture<'static, Response<tonic::body::Body>> + Send + Sync>;

/// Health and reflection services.
pub(crate) struct GrpcAuxServices {
    readiness: Arc<ReplicaHealth>,
    reporter: HealthReporter,
    /// Status that was last reported: 0 none, 1 serving, 2 not serving.
    reported: AtomicU8,
    health: ErasedService,
    reflection_v1: ErasedService,
    reflection_v1alpha: ErasedService,
}

impl fmt::Debug for GrpcAuxServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcAuxServices").finish_non_exhaustive()
    }
}

fn erased<S>(service: S) -> ErasedService
where
    S: Service<Request<AuxBody>, Response = Response<tonic::body::Body>, Error = Infallible>,
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
    /// Creates the services. Health reports `readiness`; reflection serves `proto/` and the health service.
    pub(crate) fn new(readiness: Arc<ReplicaHealth>) -> Result<Self, Error> {
        let (reporter, health) = tonic_health::server::health_reporter();
        let builder = || {
            Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        Ok(Self {
            readiness,
            reporter,
            reported: AtomicU8::new(0),
            health: erased(health),
            reflection_v1: erased(builder().build_v1()?),
            reflection_v1alpha: erased(builder().build_v1alpha()?),
        })
    }

    /// Reports the present status to the health service if it has changed.
    pub(crate) async fn refresh_health(&self) {
        let is_ready = Readiness::of(&self.readiness).is_ready();
        let (number, status) = if is_ready { (1, ServingStatus::Serving) } else { (2, ServingStatus::NotServing) };
        if self.reported.swap(number, Ordering::AcqRel) != number {
            for service in ["", names::ADMISSION] {
                self.reporter.set_service_status(service, status).await;
            }
        }
    }

    /// Answers one call. Its stream ends when the server drains, since a watch would never end. A call that is no watch
    /// may take `max_timeout`.
    pub(crate) async fn answer(
        &self,
        service: AuxService,
        request: Request<RecvStream>,
        respond: &mut SendResponse<Outgoing>,
        max_timeout: Duration,
        drain: &DrainSignal,
    ) -> Result<(), Refusal> {
        let is_watch = request.uri().path() == names::HEALTH_WATCH;
        let within = aux_timeout(request.headers()).map_or(max_timeout, |timeout| timeout.min(max_timeout));
        let (request, body) = split(request);
        let answering = async {
            let call = match service {
                AuxService::Health => {
                    self.refresh_health().await;
                    &self.health
                }
                AuxService::ReflectionV1 => &self.reflection_v1,
                AuxService::ReflectionV1Alpha => &self.reflection_v1alpha,
            };
            // An error means that the caller is gone.
            let _ = pump(call(request).await, respond, drain).await;
            Ok(())
        };
        let ended = async {
            tokio::select! {
                biased;
                refusal = body.feed(service.max_sent()) => Err(refusal),
                ended = answering => ended,
            }
        };
        if is_watch {
            return ended.await;
        }
        timeout(within, ended).await.unwrap_or(Err(Refusal::CallDeadline { within }))
    }
}

/// Sends a tonic response, each frame when the window has room for it.
async fn pump(
    response: Response<tonic::body::Body>,
    respond: &mut SendResponse<Outgoing>,
    drain: &DrainSignal,
) -> Result<(), h2::Error> {
    let (parts, body) = response.into_parts();
    let ended = body.is_end_stream();
    let mut stream = respond.send_response(Response::from_parts(parts, ()), ended)?;
    if ended {
        return Ok(());
    }
    let mut body = pin!(body);
    let mut draining = pin!(drain.begun());
    loop {
        let frame = tokio::select! {
            biased;
            frame = poll_fn(|cx| body.as_mut().poll_frame(cx)) => frame,
            reset = poll_fn(|cx| stream.poll_reset(cx)) => return reset.map(drop),
            () = &mut draining => return stream.send_trailers(trailers(Code::Unavailable, "shutting down")),
        };
        let Some(frame) = frame else { return stream.send_data(Outgoing::default(), true) };
        let Ok(frame) = frame else {
            return stream.send_trailers(trailers(Code::Internal, "the response broke off"));
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

/// Body of a call, for tonic.
#[derive(Debug)]
struct AuxBody(UnboundedReceiver<Result<Frame<Bytes>, h2::Error>>);

/// Reader of a call's body.
#[derive(Debug)]
struct AuxBodyReader {
    body: RecvStream,
    to: UnboundedSender<Result<Frame<Bytes>, h2::Error>>,
}

/// Splits a request into tonic's request and the reader that feeds its body.
fn split(request: Request<RecvStream>) -> (Request<AuxBody>, AuxBodyReader) {
    let (to, from) = unbounded_channel();
    let (parts, body) = request.into_parts();
    (Request::from_parts(parts, AuxBody(from)), AuxBodyReader { body, to })
}

impl AuxBodyReader {
    /// Reads the whole body. Returns only if it is longer than `limit`.
    async fn feed(self, limit: usize) -> Refusal {
        let Self { mut body, to } = self;
        let mut sent = 0;
        while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
            sent += data.as_ref().map_or(0, Bytes::len).max(EMPTY_FRAME_COST);
            if sent > limit {
                return Refusal::AuxTooLong { limit };
            }
            if let Ok(data) = &data {
                let _ = body.flow_control().release_capacity(data.len());
            }
            // Copied, as the slice would keep its read buffer alive. An error means that the service dropped the body.
            let _ = to.send(data.map(|data| Frame::data(Bytes::copy_from_slice(&data))));
        }
        if let Ok(Some(trailers)) = poll_fn(|cx| body.poll_trailers(cx)).await {
            let _ = to.send(Ok(Frame::trailers(trailers)));
        }
        drop(to);
        pending().await
    }
}

impl Body for AuxBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        Poll::Ready(ready!(self.0.poll_recv(cx)))
    }
}

#[cfg(test)]
mod tests;
