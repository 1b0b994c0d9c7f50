//! Digest: an initializer's process, played by a task: it attaches, and puts images by their digests into new Pods.

use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::wire::pb::gatepost::v1::{
    Claim, Done, InitializerAnswer, InitializerMessage, InitializerTask, initializer_answer::Outcome,
    initializer_message::Message as ToSidecar, initializers_client::InitializersClient,
    sidecar_message::Message as FromSidecar,
};
use crate::wire::pb::k8s::io::apimachinery::pkg::apis::meta::v1::Status;

/// The image that it knows, and the one that Pods get instead.
pub(super) const IMAGE: (&str, &str) = (
    "registry.example/shop:1",
    "registry.example/shop@sha256:4bcff63911fcb4448bd4fdacec207030997caf25e9bea4045fa6c8c44de311d1",
);

/// One attached instance. Dropping it ends its stream, as a crash does.
pub(super) struct Instance(JoinHandle<()>);

impl Drop for Instance {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Instance {
    /// Attaches. One that hangs takes a task and does not answer; it reports each task by its attempt.
    pub(super) fn attach(to: String, claim: Claim, hangs: bool, tasks: mpsc::Sender<u32>) -> Self {
        Self(tokio::spawn(async move {
            // The story sees by itself that nobody answers.
            if let Err(error) = serve(to, claim, hangs, tasks).await {
                tracing::debug!(%error, "an initializer's stream has ended");
            }
        }))
    }
}

async fn serve(
    to: String,
    claim: Claim,
    hangs: bool,
    tasks: mpsc::Sender<u32>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (say, said) = mpsc::channel(16);
    say.send(InitializerMessage { message: Some(ToSidecar::Claim(claim)) }).await?;
    let channel = Endpoint::from_shared(to)?.connect().await?;
    let mut incoming = InitializersClient::new(channel).attach(ReceiverStream::new(said)).await?.into_inner();
    while let Some(message) = incoming.message().await? {
        let Some(FromSidecar::Task(task)) = message.message else { continue };
        let _ = tasks.send(task.attempt).await;
        if hangs {
            continue;
        }
        let (id, attempt) = (task.task, task.attempt);
        let outcome = Some(act(&task));
        let answer = InitializerAnswer { task: id, attempt, outcome };
        say.send(InitializerMessage { message: Some(ToSidecar::Answer(answer)) }).await?;
    }
    Ok(())
}

/// A patch, or a refusal of an image that it does not know.
fn act(task: &InitializerTask) -> Outcome {
    let request = task.review.as_ref().and_then(|review| review.request.as_ref());
    let raw = request.and_then(|request| request.object.as_ref()?.raw.as_deref()).unwrap_or_default();
    let pod: Value = serde_json::from_slice(raw).unwrap_or_default();
    let of =
        |list: &'static str| pod["spec"][list].as_array().into_iter().flatten().enumerate().map(move |one| (list, one));
    let mut patch = Vec::new();
    for (list, (at, container)) in ["initContainers", "containers"].into_iter().flat_map(of) {
        match container["image"].as_str().unwrap_or_default() {
            image if image == IMAGE.0 => {
                patch.push(json!({"op": "replace", "path": format!("/spec/{list}/{at}/image"), "value": IMAGE.1}));
            }
            image if image.contains('@') => {}
            image => {
                return Outcome::Fail(Status {
                    code: Some(403),
                    reason: Some("Forbidden".to_owned()),
                    message: Some(format!("no digest is known of image {image:?}")),
                    ..Status::default()
                });
            }
        }
    }
    Outcome::Done(Done { patch: Value::from(patch).to_string().into(), add: Vec::new() })
}
