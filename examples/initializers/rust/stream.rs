//! Stream of an initializer, from the claim of its name to the drain: the part that every initializer shares.

use std::time::Duration;

use gatepost::wire::pb::{
    gatepost::v1::{
        Claim, Done, Heartbeat, InitializerAnswer, InitializerMessage, InitializerTask, initializer_answer::Outcome,
        initializer_message::Message as ToSidecar, initializers_client::InitializersClient,
        sidecar_message::Message as FromSidecar,
    },
    k8s::io::apimachinery::pkg::apis::meta::v1::Status,
};
use tokio::{sync::mpsc, time::interval};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

/// An object and what stands around it; the library's default is 4 MiB.
const LARGEST: usize = 16 << 20;

/// Claims a name and has `act` do each task, one after another, until the stream ends.
pub(crate) async fn attach(
    client: InitializersClient<Channel>,
    claim: &Claim,
    act: impl Fn(&InitializerTask) -> Result<Vec<u8>, String>,
) -> Result<(), tonic::Status> {
    let (to, said) = mpsc::channel(16);
    let say = async |message| {
        let sent = to.send(InitializerMessage { message: Some(message) }).await;
        sent.map_err(|_| tonic::Status::cancelled("nobody reads what is said"))
    };
    say(ToSidecar::Claim(claim.clone())).await?;
    let mut client = client.max_decoding_message_size(LARGEST);
    let mut inbound = client.attach(ReceiverStream::new(said)).await?.into_inner();
    let mut beat = interval(Duration::from_secs(3));
    loop {
        let message = tokio::select! {
            _ = beat.tick() => {
                say(ToSidecar::Heartbeat(Heartbeat {})).await?;
                continue;
            }
            message = inbound.message() => message?,
        };
        match message.map(|message| message.message) {
            None => return Ok(()),
            Some(Some(FromSidecar::Attached(_))) => eprintln!("attached as {}", claim.name),
            Some(Some(FromSidecar::Task(task))) => {
                let outcome = match act(&task) {
                    Ok(patch) => Outcome::Done(Done { patch: patch.into(), add: Vec::new() }),
                    Err(why) => Outcome::Fail(Status {
                        code: Some(403),
                        reason: Some("Forbidden".into()),
                        message: Some(why),
                        ..Status::default()
                    }),
                };
                let (task, attempt) = (task.task, task.attempt);
                say(ToSidecar::Answer(InitializerAnswer { task, attempt, outcome: Some(outcome) })).await?;
            }
            Some(_) => {}
        }
    }
}
