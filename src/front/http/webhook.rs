//! One review over plain HTTP, top to bottom; [`call`](crate::front::grpc::call) is the same road for gRPC.
//!
//! The caller's leaving is seen where the connection is served: it drops the future, and with it the hook calls.

use std::{pin::pin, time::Instant};

use http::{Response, request::Parts};

use super::{
    body::{Body, BodyReader},
    head::{Format, HttpHead},
    reply,
};
use crate::{
    front::{
        Front,
        catch_panic::catch_panic,
        connection::session::Session,
        encode::encode,
        outgoing::Outgoing,
        parse::parse,
        progress::{self, Progress},
        refusal::Refusal,
        route::WebhookRoute,
    },
    model::{Deadline, Review},
    review::{self, Caller},
    telemetry::{Metrics, Refused, RequestOutcome},
    wire::{envelope, json_view},
};

/// Answers one request, whatever happens in it.
pub(crate) async fn answer(
    front: &Front,
    session: &Session,
    worker: usize,
    route: WebhookRoute,
    parts: Parts,
    body: Body,
) -> Response<Outgoing> {
    let arrived = Instant::now();
    let metrics = &front.gate().metrics;
    let mut unanswered = Unanswered(Some(metrics));
    let answered = catch_panic(decide(front, session, worker, route, arrived, &parts, body)).await;
    unanswered.0 = None;
    answered.unwrap_or_else(|refusal| {
        if refusal == Refusal::Bug {
            metrics.request(worker, RequestOutcome::Internal, arrived.elapsed());
        }
        front.refused(session, &refusal)
    })
}

/// Head, body, review, verdict: the reply.
async fn decide(
    front: &Front,
    session: &Session,
    worker: usize,
    route: WebhookRoute,
    arrived: Instant,
    parts: &Parts,
    body: Body,
) -> Result<Response<Outgoing>, Refusal> {
    let gate = front.gate();
    let HttpHead { format, deadline, declared, hops } = HttpHead::read(parts, arrived, front.limits().timeout)?;
    let mut entered = front.enter(session, arrived)?;
    let review = {
        let timer = pin!(progress::timer(arrived, deadline));
        let progress = Progress::new(arrived, deadline, timer);
        let arriving = BodyReader::begin(body, declared, &mut entered, progress, front.limits().message_bytes)?;
        view(format, arriving, arrived, deadline, &gate.metrics).await?
    };
    let WebhookRoute { phase, other_versions, segment } = route;
    let caller = Caller {
        phase,
        deadline,
        worker,
        other_versions,
        segment,
        hops,
        stores_unfinished: false,
        namespace_labels: None,
        namespace_labels_text: None,
        audit_id: None,
    };
    let verdict = review::decide(gate, &review, &caller).await;
    let verdict = encode(review, verdict).await;
    Ok(reply::verdict(format, entered.decided(verdict, deadline)?))
}

/// Reads the body in the shape its format is viewed in.
async fn view(
    format: Format,
    mut arriving: BodyReader<'_, '_>,
    arrived: Instant,
    deadline: Deadline,
    metrics: &Metrics,
) -> Result<Review, Refusal> {
    Ok(match format {
        Format::Json => {
            let body = arriving.contiguous(metrics).await?;
            drop(arriving);
            parse(body.len(), arrived, deadline, || json_view::view(body)).await?
        }
        Format::Protobuf => {
            let rope = arriving.pieces(metrics).await?;
            drop(arriving);
            parse(rope.len(), arrived, deadline, || envelope::view(rope)).await?
        }
    })
}

/// A request whose future is dropped before its answer has lost its caller, and is counted as that.
struct Unanswered<'a>(Option<&'a Metrics>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(metrics) = self.0 {
            metrics.refused(Refused::Cancelled);
        }
    }
}
