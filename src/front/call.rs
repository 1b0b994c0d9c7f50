//! One review over gRPC, top to bottom; [`webhook`](super::webhook) is the same road for plain HTTP.

use std::{future::poll_fn, pin::pin, task::Poll, time::Instant};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::HeaderMap;
use tokio::time::timeout_at;

use super::{Front, answer, caught::caught, head::Head, message::Message, parse::parse, refusal::Refusal};
use crate::{
    admit::{self, Caller, OtherVersions},
    model::Phase,
    telemetry::RequestOutcome,
    wire::{inbound, outbound},
};

/// Answers one call, whatever happens in it.
pub(super) async fn answer(
    front: &Front,
    worker: usize,
    phase: Phase,
    headers: HeaderMap,
    body: RecvStream,
    mut respond: SendResponse<Bytes>,
) {
    let arrived = Instant::now();
    let verdict = caught(decide(front, worker, phase, arrived, &headers, body, &mut respond)).await;
    if verdict == Err(Refusal::Bug) {
        front.gate().metrics.request(worker, RequestOutcome::Internal, arrived.elapsed());
    }
    match verdict {
        // An error here says that the caller is gone.
        Ok(message) => drop(answer::verdict(&mut respond, message)),
        Err(refusal) => front.refuse(&mut respond, &refusal),
    }
}

/// Headers, message, review, verdict: the framed answer.
async fn decide(
    front: &Front,
    worker: usize,
    phase: Phase,
    arrived: Instant,
    headers: &HeaderMap,
    mut body: RecvStream,
    respond: &mut SendResponse<Bytes>,
) -> Result<Bytes, Refusal> {
    let gate = front.gate();
    let head = Head::read(headers, arrived, front.limits().timeout)?;
    let mut entered = front.inflight().enter();
    let mut message = Message::default();
    let reading = message.read(&mut body, &mut entered, &gate.metrics, front.limits().message_bytes);
    // The call's only timer; tokio registers it only when the message is not already there.
    match timeout_at(head.deadline.instant().into(), reading).await {
        Ok(read) => read?,
        Err(_) => {
            let within = head.deadline.instant() - arrived;
            return Err(Refusal::Deadline { within, received: message.received() });
        }
    }
    drop(body);
    let rope = message.into_rope();
    let review = parse(rope.len(), arrived, head.deadline, || inbound::view(rope)).await?;
    let (namespace_labels, namespace_labels_text) = match head.namespace_labels {
        Some(sent) => (Some(sent.labels), Some(sent.text)),
        None => (None, None),
    };
    let other_versions = OtherVersions::Fail;
    let caller =
        Caller { phase, deadline: head.deadline, worker, other_versions, namespace_labels, namespace_labels_text };
    let mut deciding = pin!(admit::decide(gate, &review, &caller));
    // A caller that goes away cancels the hook calls: leaving drops `deciding`.
    let verdict = poll_fn(|cx| match deciding.as_mut().poll(cx) {
        Poll::Ready(verdict) => Poll::Ready(Ok(verdict)),
        Poll::Pending => respond.poll_reset(cx).map(|_| Err(Refusal::Cancelled)),
    })
    .await?;
    Ok(outbound::encode(&review.uid, &verdict))
}
