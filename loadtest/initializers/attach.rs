//! Attach: instances of initializers, which answer each task with a label, at once or after a while.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use gatepost_wire::pb::gatepost::v1::{
    Claim, Done, Heartbeat, InitializerAnswer, InitializerMessage, InitializerTask, initializer_answer::Outcome,
    initializer_message::Message as ToSidecar, initializers_client::InitializersClient,
    sidecar_message::Message as FromSidecar,
};
use serde_json::json;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{interval, sleep},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::Fallible;

/// Token of all of them.
pub(super) const TOKEN: &str = "load";
/// Tasks that an instance has at once: the most that it may ask for.
pub(super) const WINDOW: usize = 256;
/// Largest task.
const LARGEST: usize = 16 << 20;

/// `attach`: names to claim, where, and when to answer.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachSettings {
    /// The sidecar's gRPC address
    #[arg(long, value_name = "ADDRESS")]
    to: SocketAddr,
    /// A name to claim; repeat for more
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Instances of each name, each with a connection of its own
    #[arg(long, default_value_t = 1)]
    instances: usize,
    /// Time between a task and its answer
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0s")]
    delay: Duration,
    /// Say once so many tasks have been taken
    #[arg(long, default_value_t = 0)]
    tell: usize,
}

/// Tasks that all instances have taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Answers tasks until a stream ends, which is an error. Prints a line for each name once it is claimed.
pub(crate) fn run(settings: &AttachSettings) -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut instances = JoinSet::new();
        for name in &settings.names {
            for _ in 0..settings.instances {
                instances.spawn(serve(settings.to, name.clone(), settings.delay, settings.tell));
            }
        }
        while let Some(ended) = instances.join_next().await {
            ended??;
        }
        Ok(())
    })
}

/// One instance, until its stream ends.
async fn serve(to: SocketAddr, name: String, delay: Duration, tell: usize) -> Fallible<()> {
    let channel = Endpoint::from_shared(format!("http://{to}"))?.connect().await?;
    let (say, said) = mpsc::channel(2 * WINDOW);
    let claim = Claim { name: name.clone(), token: TOKEN.to_owned(), window: u32::try_from(WINDOW)? };
    say.send(message(ToSidecar::Claim(claim))).await?;
    let mut client = InitializersClient::new(channel).max_decoding_message_size(LARGEST);
    let mut inbound = client.attach(ReceiverStream::new(said)).await?.into_inner();
    let mut beat = interval(Duration::from_secs(3));
    loop {
        let arrived = tokio::select! {
            _ = beat.tick() => {
                say.send(message(ToSidecar::Heartbeat(Heartbeat {}))).await?;
                continue;
            }
            arrived = inbound.message() => arrived?,
        };
        match arrived.ok_or("the sidecar has ended the stream")?.message {
            Some(FromSidecar::Attached(_)) => println!("attached {name}"),
            Some(FromSidecar::Task(task)) => {
                if TAKEN.fetch_add(1, Ordering::Relaxed) + 1 == tell {
                    println!("taken {tell}");
                }
                let answer = answer(&name, &task);
                if delay.is_zero() {
                    say.send(answer).await?;
                } else {
                    let say = say.clone();
                    tokio::spawn(async move {
                        sleep(delay).await;
                        let _ = say.send(answer).await;
                    });
                }
            }
            Some(_) | None => {}
        }
    }
}

/// A label of the initializer's own.
fn answer(name: &str, task: &InitializerTask) -> InitializerMessage {
    let patch = json!([{"op": "add", "path": format!("/metadata/labels/{name}"), "value": "done"}]);
    let outcome = Some(Outcome::Done(Done { patch: patch.to_string().into(), add: Vec::new() }));
    message(ToSidecar::Answer(InitializerAnswer { task: task.task, attempt: task.attempt, outcome }))
}

fn message(message: ToSidecar) -> InitializerMessage {
    InitializerMessage { message: Some(message) }
}
