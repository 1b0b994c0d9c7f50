mod goodbyes;
mod late;
mod rules;
mod starved;
mod torn;
mod unread;

use std::sync::Arc;

use bytes::Bytes;
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc::{UnboundedSender, unbounded_channel},
    task::JoinHandle,
};

use super::{Ended, Http2Connection, Limits};
use crate::{
    hooks::{
        Arrival, Call, FailedCall, Reply, Responses, answer_room::AnswerRoom, command::Command,
        http2::scripted::Scripted,
    },
    memory::MemoryBudget,
    model::CallFailure,
};

/// A connection to a scripted hook, and what a test holds of both.
struct Scene {
    hook: Scripted<DuplexStream>,
    commands: UnboundedSender<Command>,
    budget: Arc<MemoryBudget>,
    responses: Arc<Responses>,
    ended: JoinHandle<Ended<DuplexStream>>,
}

const BATCH: usize = 64 << 10;

/// A budget of that size, and a connection's bounds.
fn limits(budget: usize) -> (Arc<MemoryBudget>, Limits) {
    let budget = MemoryBudget::new(budget);
    let answers = AnswerRoom::of_one_hook(&budget);
    let limits = Limits { batch: BATCH, answer: 1 << 20, answers, budget: Arc::clone(&budget) };
    (budget, limits)
}

/// Connects and shakes hands; the pipe between them holds so much each way.
async fn connected(pipe: usize, budget: usize, settings: &[(u16, u32)]) -> Scene {
    let (ours, theirs) = duplex(pipe);
    let (budget, limits) = limits(budget);
    let mut connection = Http2Connection::new(ours, limits, false, "hook:1");
    let (hook, greeted) = tokio::join!(Scripted::greet(theirs, settings), connection.handshake());
    greeted.expect("greeted");
    let (commands, mut received) = unbounded_channel();
    let ended = tokio::spawn(async move { connection.drive(&mut received, Vec::new()).await });
    Scene { hook, commands, budget, responses: Arc::default(), ended }
}

impl Scene {
    fn ask(&self, call: Call) {
        self.commands.send(Command::Ask(call)).expect("the connection is driven");
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
