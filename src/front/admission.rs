//! One review from head to verdict, over gRPC or plain HTTP.

use std::{future::poll_fn, panic::AssertUnwindSafe, pin::pin, task::Poll, time::Instant};

use futures_util::FutureExt;
use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, Response, request::Parts};
use tokio::time::timeout_at;

use super::{
    answer::{self, encode},
    body::{self, Body, BodyReader},
    head::{Format, GrpcHead, HttpHead},
    outgoing::Outgoing,
    refusal::Refusal,
    route::WebhookRoute,
    state::ConnectionContext,
};
use crate::{
    review::{self, Caller, OtherVersions},
    telemetry::{Metrics, RefusalReason, RequestOutcome, Throttle},
};
use gatepost_api::{Deadline, Phase, Review};
use gatepost_base::offload;
use gatepost_wire::{
    envelope,
    inbound::{self, ViewError},
    json_view,
};

/// Answers one review over gRPC, even if it is refused or panics.
pub(super) async fn answer_grpc(
    context: &ConnectionContext,
    phase: Phase,
    headers: &HeaderMap,
    body: RecvStream,
    mut respond: SendResponse<Outgoing>,
) {
    let arrived = Instant::now();
    match catch_panic(context, arrived, decide_grpc(context, phase, headers, arrived, body, &mut respond)).await {
        // An error means that the caller is gone.
        Ok(message) => drop(answer::send_message(&mut respond, message)),
        Err(refusal) => context.front.send_refusal(&mut respond, &refusal),
    }
}

/// Decides one review over gRPC and returns the framed answer.
async fn decide_grpc(
    context: &ConnectionContext,
    phase: Phase,
    headers: &HeaderMap,
    arrived: Instant,
    body: RecvStream,
    respond: &mut SendResponse<Outgoing>,
) -> Result<Outgoing, Refusal> {
    let ConnectionContext { front, session, worker, .. } = context;
    let (deps, limits) = (&front.deps, &front.limits);
    let GrpcHead { deadline, stores_unfinished, forwarded, audit_id, namespace_labels, other_versions } =
        GrpcHead::read(headers, arrived, limits.timeout)?;
    let mut inflight = front.enter(session, arrived)?;
    let message = {
        let timer = pin!(body::timer(arrived, deadline));
        let body = Body::Http2(body);
        let body = BodyReader::begin(body, None, &mut inflight, deadline, timer, limits.message_bytes);
        body?.message(&deps.metrics).await?
    };
    let review = parse(message.len(), arrived, deadline, || inbound::view(message)).await?;
    let (namespace_labels, namespace_labels_text) = namespace_labels.map(|sent| (sent.labels, sent.text)).unzip();
    let caller = Caller {
        phase,
        deadline,
        worker: *worker,
        other_versions,
        segment: None,
        forwarded,
        stores_unfinished,
        namespace_labels,
        namespace_labels_text,
        audit_id,
    };
    let (verdict, shadow) = {
        let mut deciding = pin!(review::decide_with_shadow(deps, &review, &caller));
        // If the caller cancels, dropping `deciding` cancels the hook calls.
        poll_fn(|cx| match deciding.as_mut().poll(cx) {
            Poll::Ready(verdict) => Poll::Ready(Ok(verdict)),
            Poll::Pending => respond.poll_reset(cx).map(|_| Err(Refusal::Cancelled)),
        })
        .await?
    };
    Ok(inflight.into_verdict(encode(review, verdict).await, deadline)?.then(shadow))
}

/// Answers one review over plain HTTP, even if it is refused or panics. If the caller disconnects, the connection drops
/// this future, and with it the hook calls.
pub(super) async fn answer_http(
    context: &ConnectionContext,
    route: WebhookRoute,
    parts: &Parts,
    body: Body,
) -> Response<Outgoing> {
    let arrived = Instant::now();
    let mut unanswered = Unanswered(Some(&context.front.deps.metrics));
    let answered = catch_panic(context, arrived, decide_http(context, route, arrived, parts, body)).await;
    unanswered.0 = None;
    answered.unwrap_or_else(|refusal| context.front.refusal_response(&context.session, &refusal))
}

/// Decides one review over plain HTTP and returns the answer.
async fn decide_http(
    context: &ConnectionContext,
    route: WebhookRoute,
    arrived: Instant,
    parts: &Parts,
    body: Body,
) -> Result<Response<Outgoing>, Refusal> {
    let ConnectionContext { front, session, worker, .. } = context;
    let (deps, limits) = (&front.deps, &front.limits);
    let HttpHead { format, deadline, declared, forwarded } = HttpHead::read(parts, arrived, limits.timeout)?;
    let mut inflight = front.enter(session, arrived)?;
    let review = {
        let timer = pin!(body::timer(arrived, deadline));
        let mut body = BodyReader::begin(body, declared, &mut inflight, deadline, timer, limits.message_bytes)?;
        match format {
            Format::Json => {
                let json = body.contiguous(&deps.metrics).await?;
                drop(body);
                parse(json.len(), arrived, deadline, || json_view::view(json)).await?
            }
            Format::Protobuf => {
                let rope = body.pieces(&deps.metrics).await?;
                drop(body);
                parse(rope.len(), arrived, deadline, || envelope::view(rope)).await?
            }
        }
    };
    let WebhookRoute { phase, one_version, segment } = route;
    let other_versions = if one_version { OtherVersions::ReviewedSeparately } else { OtherVersions::Fail };
    let caller = Caller {
        phase,
        deadline,
        worker: *worker,
        other_versions,
        segment,
        forwarded,
        stores_unfinished: false,
        namespace_labels: None,
        namespace_labels_text: None,
        audit_id: None,
    };
    let (verdict, shadow) = review::decide_with_shadow(deps, &review, &caller).await;
    let verdict = inflight.into_verdict(encode(review, verdict).await, deadline)?.then(shadow);
    Ok(answer::http_verdict(format, verdict))
}

/// Parses a review of `bytes` bytes within its deadline. A large review is parsed on another thread, so that the worker
/// serves other calls meanwhile.
async fn parse(
    bytes: usize,
    arrived: Instant,
    deadline: Deadline,
    view: impl FnOnce() -> Result<Review, ViewError> + Send + 'static,
) -> Result<Review, Refusal> {
    match timeout_at(deadline.instant().into(), offload::run(bytes, view)).await {
        Ok(viewed) => Ok(viewed?),
        Err(_) => Err(Refusal::Deadline { within: deadline.instant() - arrived, received: bytes }),
    }
}

/// Runs one call, so that a panic ends only that call. Unwind safety: the state of a panicked call (its message and its
/// review) is dropped with the future. The panic's message is not logged here, since it may quote the object.
///
/// Not an `async fn`: that would store the call's future twice, and each of them is moved to the heap.
fn catch_panic<T>(
    context: &ConnectionContext,
    arrived: Instant,
    deciding: impl Future<Output = Result<T, Refusal>>,
) -> impl Future<Output = Result<T, Refusal>> {
    AssertUnwindSafe(deciding).catch_unwind().map(move |ended| {
        ended.unwrap_or_else(|_| {
            static PANICS: Throttle = Throttle::new();
            if let Some(suppressed) = PANICS.pass() {
                tracing::error!(suppressed, "a panic while handling a review; this is a bug in gatepost");
            }
            context.front.deps.metrics.request(context.worker, RequestOutcome::Internal, arrived.elapsed());
            Err(Refusal::Bug)
        })
    })
}

/// Counts a request as cancelled if its future is dropped before the answer.
struct Unanswered<'a>(Option<&'a Metrics>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(metrics) = self.0 {
            metrics.record_refusal(RefusalReason::Cancelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::front::{accept::client::Identity, drain, testing::front};

    #[tokio::test]
    async fn panic_refusal_does_not_reveal_the_object() {
        let front = front(1 << 20);
        let admitted = front.clients.admit(Identity::Loopback, Instant::now()).expect("room");
        let (_life, drain) = drain::channel(front.limits.drain);
        let context = ConnectionContext { front, session: Arc::clone(&admitted.session), worker: 0, drain };
        let panicking = async { panic!("secret") };
        let refusal = catch_panic::<()>(&context, Instant::now(), panicking).await.expect_err("refused");
        assert_eq!(refusal.to_string(), "the request could not be handled; this is a bug in gatepost");
        assert_eq!(catch_panic(&context, Instant::now(), async { Ok(1) }).await, Ok(1));
    }
}
