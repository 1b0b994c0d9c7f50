mod goodbyes;
mod late;
mod rules;
mod starved;
mod torn;
mod unread;

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc::{UnboundedSender, unbounded_channel},
    task::JoinHandle,
};

use super::{Alarm, DriveOutcome, Http2Connection, Limits};
use crate::hooks::{
    Arrival, Call, FailedCall, Reply, Responses, answer_buffer::AnswerBudget, commands::Command,
    http2::testing::ScriptedHook, protocol::request_head::RequestHeads,
};
use gatepost_api::CallFailure;
use gatepost_base::memory::MemoryBudget;

/// A connection to a scripted hook, and what a test holds of both.
struct Scene {
    hook: ScriptedHook<DuplexStream>,
    commands: UnboundedSender<Command>,
    budget: Arc<MemoryBudget>,
    responses: Arc<Responses>,
    ended: JoinHandle<DriveOutcome<DuplexStream>>,
}

const BATCH: usize = 64 << 10;

/// A budget of that size, and a connection's bounds.
fn limits(budget: usize) -> (Arc<MemoryBudget>, Limits) {
    let budget = MemoryBudget::new(budget);
    let answers = AnswerBudget::new(&budget);
    let limits = Limits { batch: BATCH, answer: 1 << 20, answers, memory: Arc::clone(&budget) };
    (budget, limits)
}

/// Connects and shakes hands; the pipe between them holds so much each way.
async fn connected(pipe: usize, budget: usize, settings: &[(u16, u32)]) -> Scene {
    let (ours, theirs) = duplex(pipe);
    let (budget, limits) = limits(budget);
    let mut connection = Http2Connection::new(ours, limits, RequestHeads::new(false, "hook:1", None));
    let (hook, greeted) = tokio::join!(ScriptedHook::greet(theirs, settings), connection.handshake());
    greeted.expect("greeted");
    let (commands, mut received) = unbounded_channel();
    let ended = tokio::spawn(async move { connection.drive(&mut received, Vec::new()).await });
    Scene { hook, commands, budget, responses: Arc::default(), ended }
}

impl Scene {
    fn submit(&self, call: Call) {
        self.commands.send(Command::Call(call)).expect("the connection is driven");
    }

    /// The next arrival: tag, and reply or failure.
    async fn arrived(&self) -> (u32, Result<Reply, CallFailure>) {
        let (tag, result) = self.arrival().await;
        (tag, result.map_err(|lost| lost.failure))
    }

    async fn arrival(&self) -> Arrival {
        let mut arrived = self.responses.take().await;
        assert_eq!(arrived.len(), 1, "{arrived:?}");
        arrived.remove(0)
    }

    /// Failure of the next call to arrive.
    async fn lost(&self) -> FailedCall {
        self.arrival().await.1.expect_err("no answer")
    }

    async fn failure(&self) -> String {
        self.arrived().await.1.expect_err("a failure").to_string()
    }
}

fn body(len: usize) -> Bytes {
    vec![b'x'; len].into()
}

#[tokio::test(start_paused = true)]
async fn an_alarm_rings_at_the_earliest_time_it_was_set_for() {
    let began = tokio::time::Instant::now().into_std();
    let at = |secs| began + Duration::from_secs(secs);
    let mut alarm = Alarm::default();
    for (set, other, rings) in [(3, 3, 3), (9, 5, 5), (7, 9, 7)] {
        let first = poll_fn(|cx| Poll::Ready(alarm.poll(cx, Some(at(set))))).await;
        assert!(first.is_pending());
        poll_fn(|cx| alarm.poll(cx, Some(at(other)))).await;
        let now = tokio::time::Instant::now().into_std();
        assert!(now >= at(rings) && now < at(rings + 1), "{:?}", now - began);
    }
    assert!(poll_fn(|cx| Poll::Ready(alarm.poll(cx, None))).await.is_pending());
}
