//! An instance on a connection in memory, where there is little memory left.

use bytes::{Buf, BytesMut};
use h2::{
    SendStream,
    client::{self, ResponseFuture, SendRequest},
};
use http::Request;
use prost::Message as _;
use tokio::{sync::watch, task::JoinHandle};

use super::*;
use crate::{
    front::{
        drain::ServerStage,
        testing::{connect, front},
    },
    telemetry::Metrics,
};
use gatepost_base::memory::{MemoryBudget, Purpose, Reservation};
use gatepost_config::SourceFile;
use gatepost_initializers::hub::{Contribution, TaskMessage};
use gatepost_wire::{
    outbound::framed,
    pb::gatepost::v1::{
        Claim as Claims, Done, Heartbeat, InitializerAnswer, InitializerMessage, InitializerTask, SidecarMessage,
        initializer_answer::Outcome, initializer_message::Message as ToSidecar,
        sidecar_message::Message as FromSidecar,
    },
};

const NAME: &str = "a.example.com";

struct World {
    front: Arc<Front>,
    send: SendRequest<Bytes>,
    asked: u8,
    _life: watch::Sender<ServerStage>,
}

/// A front with this initializer, and a connection to it.
async fn world(initializer: &str) -> World {
    let front = front(64 << 20);
    let text = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: t}}\n\
         resourceInitializers:\n- resource: pods\n  initializers:\n  - {{name: {NAME}, {initializer}}}\n"
    );
    let files = [SourceFile { name: "t.yaml".into(), bytes: text.into() }];
    let snapshot = gatepost_config::load(&files, &|path| std::fs::read(path)).expect("a valid configuration");
    front.deps.current.publish(Arc::new(Generation::of(Arc::new(snapshot), &Metrics::new(1))));
    let (io, life, _serving) = connect(&front);
    let (send, connection) = client::handshake(io).await.expect("handshake");
    tokio::spawn(connection);
    World { front, send, asked: 0, _life: life }
}

/// The same, whose initializer anybody may claim who knows the token "x".
async fn claimable() -> World {
    world("attach: {tokenSha256: ['2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881']}").await
}

impl World {
    async fn begin(&self) -> (ResponseFuture, SendStream<Bytes>) {
        let request = Request::post("http://gatepost/gatepost.v1.Initializers/Attach");
        let request = request.header("content-type", "application/grpc").body(()).expect("request");
        self.send.clone().ready().await.expect("ready").send_request(request, false).expect("sent")
    }

    async fn attach(&self) -> Instance {
        let (response, to) = self.begin().await;
        let mut instance = Instance { to, response: Some(response), from: None, buffer: BytesMut::new() };
        instance.say(ToSidecar::Claim(Claims { name: NAME.to_owned(), token: "x".to_owned(), window: 1 }));
        assert!(matches!(instance.next().await, FromSidecar::Attached(_)));
        instance
    }

    /// Holds an object about which the review has that many bytes.
    fn hold(&mut self, bytes: usize) -> JoinHandle<Result<Contribution, TurnFailure>> {
        self.asked += 1;
        let room = MemoryBudget::unlimited().empty(Purpose::Queue);
        let (review, digest) = (vec![b'x'; bytes].into(), [self.asked; 32]);
        let message = TaskMessage { review, namespace_labels: Vec::new(), digest, room };
        let hub = Arc::clone(self.front.deps.current.hub());
        tokio::spawn(async move {
            let deadline = Instant::now() + Duration::from_secs(20);
            hub.ask(&NAME.into(), message, deadline).await.map(|(answered, _)| answered)
        })
    }

    /// Holds all memory that is for answers, but for so many bytes.
    fn fill(&self, but: usize) -> Reservation {
        let budget = self.front.inflight.budget();
        budget.reserve(Purpose::Answer, budget.free(Purpose::Answer) - but).expect("room")
    }
}

struct Instance {
    to: SendStream<Bytes>,
    response: Option<ResponseFuture>,
    from: Option<RecvStream>,
    buffer: BytesMut,
}

impl Instance {
    fn say(&mut self, message: ToSidecar) {
        self.to.send_data(framed(&InitializerMessage { message: Some(message) }), false).expect("sent");
    }

    async fn next(&mut self) -> FromSidecar {
        if let Some(response) = self.response.take() {
            self.from = Some(response.await.expect("answered").into_body());
        }
        let from = self.from.as_mut().expect("a body");
        loop {
            if let Some(&[_, a, b, c, d]) = self.buffer.first_chunk::<5>()
                && self.buffer.len() >= 5 + u32::from_be_bytes([a, b, c, d]) as usize
            {
                self.buffer.advance(5);
                let message = self.buffer.split_to(u32::from_be_bytes([a, b, c, d]) as usize).freeze();
                return SidecarMessage::decode(message).expect("a message").message.expect("of a known kind");
            }
            let data = poll_fn(|cx| from.poll_data(cx)).await.expect("the stream lives").expect("data");
            from.flow_control().release_capacity(data.len()).expect("released");
            self.buffer.extend_from_slice(&data);
        }
    }

    async fn task(&mut self) -> InitializerTask {
        match self.next().await {
            FromSidecar::Task(task) => task,
            other => panic!("{other:?}"),
        }
    }

    fn done(&mut self, task: &InitializerTask, patch: usize) {
        let done = Done { patch: vec![b' '; patch].into(), add: Vec::new() };
        let (task, attempt) = (task.task, task.attempt);
        self.say(ToSidecar::Answer(InitializerAnswer { task, attempt, outcome: Some(Outcome::Done(done)) }));
    }

    /// The stream lives, and takes the next task.
    async fn works(&mut self, world: &mut World) {
        let held = world.hold(10);
        let task = self.task().await;
        assert_eq!(task.attempt, 1);
        self.done(&task, 2);
        assert!(held.await.expect("held").is_ok());
    }
}

#[tokio::test]
async fn attached_task_ends_alone_without_memory() {
    let mut world = claimable().await;
    let mut instance = world.attach().await;
    let full = world.fill(1000);
    let held = world.hold(100_000);
    let task = instance.task().await;
    drop(full);
    instance.done(&task, 10);
    assert!(held.await.expect("held").is_ok(), "its review has room already");

    let full = world.fill(100);
    assert_eq!(world.hold(10).await.expect("held"), Err(TurnFailure::NoRoom));
    drop(full);
    instance.works(&mut world).await;
}

#[tokio::test]
async fn attached_answer_without_memory_ends_its_task_alone() {
    let mut world = claimable().await;
    let mut instance = world.attach().await;
    let held = world.hold(10);
    let task = instance.task().await;
    let full = world.fill(0);
    instance.say(ToSidecar::Heartbeat(Heartbeat {}));
    instance.done(&task, 100_000);
    assert_eq!(held.await.expect("held"), Err(TurnFailure::NoRoom));
    drop(full);
    instance.works(&mut world).await;
}

#[tokio::test]
async fn attached_answer_that_is_too_long_ends_its_task_alone() {
    let mut world = claimable().await;
    let mut instance = world.attach().await;
    let held = world.hold(10);
    let task = instance.task().await;
    instance.done(&task, 4 << 20);
    assert_eq!(held.await.expect("held"), Err(TurnFailure::Unable("its answer is longer than 4 MiB".into())));
    instance.works(&mut world).await;
    assert!(world.front.inflight.budget().held() <= STREAM_MEMORY, "nothing of it is held");
}

#[tokio::test]
async fn attached_stream_without_a_claim_holds_nothing() {
    let status = async |response: ResponseFuture| {
        let response = response.await.expect("answered");
        response.headers().get("grpc-status").map(|status| status.to_str().expect("text").to_owned())
    };
    let claimable = claimable().await;
    let (response, mut to) = claimable.begin().await;
    to.send_data(Bytes::from_static(&[0, 0, 0, 0x40, 1]), false).expect("sent");
    assert_eq!(status(response).await.as_deref(), Some("8"), "a claim of 16 KiB and a byte");
    assert_eq!(claimable.front.inflight.budget().held(), 0);
    // Where there is nothing to claim, nothing is read.
    let unclaimable = world("builtIn: {labels: {a: b}}").await;
    let (response, _to) = unclaimable.begin().await;
    assert_eq!(status(response).await.as_deref(), Some("7"));
}
