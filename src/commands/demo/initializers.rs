//! `demo --initializers`: built-in initializers and a process prepare new Pods before anyone sees them.

use std::{
    future::pending,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{signal, sync::mpsc, task::JoinSet, time::sleep};
use tonic::transport::Endpoint;

use super::{
    Folder, Stage, ensure, field, heading, line, millis, object_bytes, perform as on_stage, status, text, until,
    verdict,
};
use crate::{hooks::Method, live::attendance};
use gatepost_client::{InitializerClient, NewObject, ObjectChange, ObjectRefusal};
use gatepost_wire::{
    pb::k8s::io::api::{
        admission::v1::{AdmissionRequest, AdmissionResponse, AdmissionReview},
        authentication::v1::UserInfo,
    },
    request::create,
};

const NAME: &str = "digest.example.com";
const TOKEN: &str = "open-sesame";
/// Image with a digest, which the digest initializer does not change.
const PROXY: &str = "proxy@sha256:6d2e0d9ba56d7e2a9c9d1a5be4a2d39c9f4f0c4a5b5ae7e5a1d0fa1f4c6bb7a1";
/// Image that the digest initializer knows, and the image that replaces it.
const IMAGE: (&str, &str) = (
    "registry.example/shop:1",
    "registry.example/shop@sha256:4bcff63911fcb4448bd4fdacec207030997caf25e9bea4045fa6c8c44de311d1",
);

/// Runs the demo. With `stay`, then waits for further initializers to attach.
pub(super) fn perform(stay: bool) -> Result<(), String> {
    let folder = Folder::new()?;
    folder.write("initializers.yaml", &configuration())?;
    on_stage(&folder, async |stage| {
        let story = Story(stage);
        story.play().await?;
        if stay { story.stay().await } else { Ok(()) }
    })
}

fn configuration() -> String {
    let digest: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        r#"
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {{name: initializers}}
resourceInitializers:
- resource: pods
  mayInitialize: {{groups: [cluster-operators]}}
  initializers:
  - name: team.example.com
    builtIn:
      labels: {{team: "${{namespace.labels.team}}"}}
      env: [{{name: TEAM, value: "${{namespace.labels.team}}"}}]
  - name: sidecar.example.com
    builtIn: {{containers: [{{name: proxy, image: "{PROXY}"}}]}}
  - name: {NAME}
    failurePolicy: Fail
    timeout: 2s
    sideEffects: None
    attach: {{tokenSha256: ["{digest}"]}}
  - name: audit.example.com
    timeout: 200ms
    attach: {{commonNames: [audit]}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: shop, labels: {{team: red}}}}
"#
    )
}

struct Story<'a>(&'a Stage);

impl Story<'_> {
    async fn play(&self) -> Result<(), String> {
        heading("Initializers of new Pods, in order (a sidecar in this process, and no apiserver)");
        line("");
        field("built in", "team.example.com: a label and a variable, from the namespace's label team");
        field("", "sidecar.example.com: a container");
        field("a process", format!("{NAME}: images by digest; failurePolicy Fail, timeout 2s"));
        field("nobody", "audit.example.com: never attaches; failurePolicy Ignore, timeout 200ms");

        heading(format!("Nobody acts as {NAME} yet"));
        let response = self.create("web", IMAGE.0, "ann", json!({})).await?;
        let (code, message) = status(&response);
        ensure(code == 504, format_args!("it should have been late: {message}"))?;

        let (tasks, mut repeats) = mpsc::channel(16);
        let instance = self.attach(false, tasks)?;
        self.instances(1).await?;
        heading(format!("A process attaches as {NAME}"));
        let response = self.create("web", IMAGE.0, "ann", json!({})).await?;
        let patch = String::from_utf8_lossy(response.patch());
        let prepared = [r#""team""#, r#""TEAM""#, PROXY, IMAGE.1].iter().all(|wanted| patch.contains(wanted));
        ensure(response.allowed() && prepared, format_args!("it should have been prepared: {patch}"))?;
        let warned = response.warnings.iter().any(|warning| warning.contains("audit.example.com"));
        ensure(warned, "no warning says that audit.example.com was passed over")?;
        ensure(repeats.recv().await == Some(false), "it was not asked once")?;

        heading("It refuses a Pod, in its own words");
        let response = self.create("odd", "registry.example/odd:2", "ann", json!({})).await?;
        let (code, message) = status(&response);
        let is_refused = code == 403 && message.contains("no digest is known");
        ensure(is_refused, format_args!("it should have refused: {message}"))?;

        heading("the annotation gatepost.dev/initializers: \"\" skips initializers, for users with permission");
        let none = json!({"gatepost.dev/initializers": ""});
        let response = self.create("web", "registry.example/odd:2", "ann", none.clone()).await?;
        ensure(status(&response).0 == 403, "ann must not be allowed to skip initializers")?;
        let response = self.create("web", "registry.example/odd:2", "operator", none).await?;
        ensure(response.allowed() && response.patch().is_empty(), status(&response).1)?;

        heading("A process takes a Pod and crashes; another finishes it");
        drop(instance);
        self.instances(0).await?;
        let (tasks, mut repeats) = mpsc::channel(16);
        let hanging = self.attach(true, tasks.clone())?;
        self.instances(1).await?;
        let crashing = async {
            let first = repeats.recv().await;
            let other = self.attach(false, tasks)?;
            self.instances(2).await?;
            drop(hanging);
            let second = repeats.recv().await;
            let is_repeat = (first, second) == (Some(false), Some(true));
            ensure(is_repeat, format_args!("repeats were {first:?} and {second:?}"))?;
            Ok(other)
        };
        let (response, _other) = tokio::try_join!(self.create("web", IMAGE.0, "ann", json!({})), crashing)?;
        ensure(response.allowed(), status(&response).1)?;
        field("attempts", "1 by the process that crashed, 2 by the other, which can tell that it is a repeat");
        line("");
        field("ended", "everything went as described");
        Ok(())
    }

    /// Creates a Pod whenever an initializer attaches, until Ctrl-C.
    async fn stay(&self) -> Result<(), String> {
        let address = self.0.sidecar.addresses.tcp;
        heading("It stays until Ctrl-C. Attach an initializer of your own:");
        let image = format!("{}={}", IMAGE.0, IMAGE.1);
        line(format!("\n    export TOKEN={TOKEN}"));
        line(format!("    cargo run --example initializer-rust -- --to http://{address} {image}"));
        line(format!("    (cd examples/initializers/go && go run . -to {address} {image})"));
        line(format!("    python examples/initializers/python/initializer.py --to {address} {image}"));
        // First wait until the instances of the demo are gone.
        self.instances(0).await?;
        let mut before = 0;
        loop {
            let now = attendance(&self.0.sidecar.current, Instant::now());
            let instances = now.iter().find(|one| &*one.name == NAME).map_or(0, |one| one.instances);
            if instances > before {
                heading(format!("{instances} attached as {NAME}; a Pod is created"));
                let response = self.create("web", IMAGE.0, "ann", json!({})).await?;
                let pinned = String::from_utf8_lossy(response.patch()).contains(IMAGE.1);
                let word = match (response.allowed(), pinned) {
                    (true, true) => "prepared",
                    (true, false) => "created, and its image has no digest",
                    (false, _) => "refused",
                };
                field("it is", word);
            } else if instances < before {
                heading(format!("{instances} attached as {NAME}"));
            }
            before = instances;
            tokio::select! {
                () = sleep(Duration::from_millis(200)) => {}
                _ = signal::ctrl_c() => return Ok(()),
            }
        }
    }

    /// Sends the review of a new Pod and prints the result.
    async fn create(
        &self,
        name: &str,
        image: &str,
        user: &str,
        annotations: Value,
    ) -> Result<AdmissionResponse, String> {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
            "spec": {"containers": [{"name": "app", "image": image}]},
        });
        let groups = if user == "operator" { vec!["cluster-operators".to_owned()] } else { Vec::new() };
        let request = AdmissionRequest {
            name: Some(name.to_owned()),
            namespace: Some("shop".to_owned()),
            user_info: Some(UserInfo { username: Some(user.to_owned()), groups, ..UserInfo::default() }),
            dry_run: Some(false),
            ..create("", "Pod", "pods", object.to_string().into())
        };
        let bytes = object_bytes(&request);
        let review = AdmissionReview { request: Some(request), response: None };
        let (response, took) = self.0.send_review(Method::Mutate, &review).await?;
        let title = format!("CREATE pods shop/{name}, {image}, by {user}");
        verdict(&title, bytes, &response, ["CREATED", "REFUSED", "REFUSED"]);
        let mut turns = Vec::new();
        for (_, turn) in response.audit_annotations.iter().filter(|(key, _)| key.starts_with("initialize.")) {
            let turn: Value = serde_json::from_str(turn).unwrap_or_default();
            let [name, outcome] = ["initializer", "outcome"].map(|key| turn[key].as_str().unwrap_or_default());
            turns.push(format!("{name:<22}{outcome}"));
        }
        field("turns", turns.join("\n"));
        let patch: Vec<Value> = serde_json::from_slice(response.patch()).unwrap_or_default();
        field("patch", patch.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"));
        field("took", millis(took));
        Ok(response)
    }

    async fn instances(&self, wanted: usize) -> Result<(), String> {
        until("an instance to come or go", || {
            let names = self.0.sidecar.current.hub().desk(|desk| desk.names());
            let instances = names.iter().find(|one| &*one.name == NAME).map_or(0, |one| one.instances);
            Ok((instances == wanted).then_some(()))
        })
        .await
    }

    /// Attaches an instance that sends to `tasks` whether each task is a repeat. With `hangs`, it never answers.
    fn attach(&self, hangs: bool, tasks: mpsc::Sender<bool>) -> Result<Instance, String> {
        let sidecar = format!("http://{}", self.0.sidecar.addresses.tcp);
        let channel = Endpoint::from_shared(sidecar).map_err(text)?.connect_lazy();
        let act = move |object: NewObject| {
            let tasks = tasks.clone();
            async move {
                let _ = tasks.send(object.is_repeat()).await;
                if hangs { pending().await } else { pin_images(&object) }
            }
        };
        let client = InitializerClient::new(NAME, TOKEN);
        let mut instance = Instance::new();
        instance.spawn(client.run([channel], act, pending()));
        Ok(instance)
    }
}

/// One attached instance of the digest initializer. Dropping it ends its stream, as a crash does.
type Instance = JoinSet<()>;

/// Replaces the known image of the Pod's own container by its digest. Refuses other images.
fn pin_images(object: &NewObject) -> Result<ObjectChange, ObjectRefusal> {
    let pod: Value = object.read()?;
    let image = pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default();
    if image != IMAGE.0 {
        return Err(ObjectRefusal::new(403, "Forbidden", format!("no digest is known of image {image:?}")));
    }
    let replaced = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": IMAGE.1}]);
    Ok(ObjectChange::patch(&replaced))
}
