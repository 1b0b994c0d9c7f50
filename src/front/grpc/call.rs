//! One review over gRPC, top to bottom; [`webhook`](crate::front::http::webhook) is the same road for plain HTTP.

use std::{future::poll_fn, pin::pin, task::Poll, time::Instant};

use h2::{RecvStream, server::SendResponse};
use http::HeaderMap;

use super::{head::GrpcHead, message::MessageBuilder};
use crate::{
    front::{
        Front, answer,
        catch_panic::catch_panic,
        connection::session::Session,
        encode::encode,
        outgoing::Outgoing,
        parse::parse,
        progress::{self, Progress},
        refusal::Refusal,
    },
    model::Phase,
    review::{self, Caller, OtherVersions},
    telemetry::RequestOutcome,
    wire::inbound,
};

/// Answers one call, whatever happens in it.
pub(crate) async fn answer(
    front: &Front,
    session: &Session,
    worker: usize,
    phase: Phase,
    headers: HeaderMap,
    body: RecvStream,
    mut respond: SendResponse<Outgoing>,
) {
    let arrived = Instant::now();
    let deciding = async {
        let head = GrpcHead::read(&headers, arrived, front.limits().timeout)?;
        decide(front, session, worker, phase, head, body, &mut respond).await
    };
    let verdict = catch_panic(deciding).await;
    if matches!(verdict, Err(Refusal::Bug)) {
        front.gate().metrics.request(worker, RequestOutcome::Internal, arrived.elapsed());
    }
    match verdict {
        // An error here says that the caller is gone.
        Ok(message) => drop(answer::verdict(&mut respond, message)),
        Err(refusal) => front.refuse(&mut respond, &refusal),
    }
}

/// Message, review, verdict: the framed answer.
async fn decide(
    front: &Front,
    session: &Session,
    worker: usize,
    phase: Phase,
    head: GrpcHead,
    mut body: RecvStream,
    respond: &mut SendResponse<Outgoing>,
) -> Result<Outgoing, Refusal> {
    let gate = front.gate();
    let mut entered = front.enter(session, head.arrived)?;
    let mut message = MessageBuilder::default();
    {
        let timer = pin!(progress::timer(head.arrived, head.deadline));
        let mut progress = Progress::new(head.arrived, head.deadline, timer);
        message.read(&mut body, &mut entered, &mut progress, &gate.metrics, front.limits().message_bytes).await?;
    }
    drop(body);
    let rope = message.into_rope();
    let review = parse(rope.len(), head.arrived, head.deadline, || inbound::view(rope)).await?;
    let (namespace_labels, namespace_labels_text) = match head.namespace_labels {
        Some(sent) => (Some(sent.labels), Some(sent.text)),
        None => (None, None),
    };
    let other_versions = OtherVersions::Fail;
    let GrpcHead { deadline, stores_unfinished, hops, audit_id, .. } = head;
    let segment = None;
    let caller = Caller {
        phase,
        deadline,
        worker,
        other_versions,
        segment,
        hops,
        stores_unfinished,
        namespace_labels,
        namespace_labels_text,
        audit_id,
    };
    let verdict = {
        let mut deciding = pin!(review::decide(gate, &review, &caller));
        // A caller that goes away cancels the hook calls: leaving drops `deciding`.
        poll_fn(|cx| match deciding.as_mut().poll(cx) {
            Poll::Ready(verdict) => Poll::Ready(Ok(verdict)),
            Poll::Pending => respond.poll_reset(cx).map(|_| Err(Refusal::Cancelled)),
        })
        .await?
    };
    let verdict = encode(review, verdict).await;
    entered.decided(verdict, head.deadline)
}
