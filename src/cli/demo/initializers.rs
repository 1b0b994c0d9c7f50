//! The story of initializers: new Pods are prepared before anyone sees them, by built-in initializers and by a process.

use std::{
    cell::Cell,
    fs,
    path::PathBuf,
    process,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{runtime::Builder, signal, sync::mpsc};

use super::{
    digest::{IMAGE, Instance},
    ensure,
    reviews::object_bytes,
    screen::{Screen, Tint},
    stage::READ_EVERY,
    wait::{LONG, until},
};
use crate::wire::pb::gatepost::v1::Claim;
use crate::{
    cli::ask::ReviewClient,
    hooks::Method,
    live::attendance,
    model::{Endpoint, Transport, hook::Address},
    runtime::{Running, Settings, Sidecar},
    wire::{
        pb::k8s::io::api::{
            admission::v1::{AdmissionRequest, AdmissionResponse, AdmissionReview},
            authentication::v1::UserInfo,
        },
        request::create,
    },
};

const NAME: &str = "digest.example.com";
const TOKEN: &str = "open-sesame";
/// An image in its own right, so that the digest initializer leaves it alone.
const PROXY: &str = "proxy@sha256:6d2e0d9ba56d7e2a9c9d1a5be4a2d39c9f4f0c4a5b5ae7e5a1d0fa1f4c6bb7a1";

/// Plays the story; then stays for initializers of others, where that is wanted.
pub(super) fn perform(stay: bool) -> Result<(), String> {
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(|error| format!("cannot start: {error}"))?;
    let stage = runtime.block_on(async { Stage::set() })?;
    let played = runtime.block_on(async {
        stage.play().await?;
        if stay { stage.stay().await } else { Ok(()) }
    });
    // Every connection of ours ends with the runtime; a sidecar that drains waits for its callers.
    drop(runtime);
    let drained = stage.sidecar.stop();
    played?;
    ensure(drained.complete(), || "the sidecar did not drain".to_owned())
}

/// A folder that goes with the demo.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Stage {
    screen: Screen,
    sidecar: Running,
    caller: ReviewClient,
    /// Reviews so far: each has a uid of its own, as one that came again would not be asked about.
    sent: Cell<u32>,
    _folder: Folder,
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

impl Stage {
    fn set() -> Result<Self, String> {
        let folder = Folder(std::env::temp_dir().join(format!("gatepost-demo-initializers-{}", process::id())));
        let named = |error: std::io::Error| format!("cannot write to {}: {error}; set TMPDIR", folder.0.display());
        fs::create_dir_all(&folder.0).map_err(named)?;
        fs::write(folder.0.join("initializers.yaml"), configuration()).map_err(named)?;
        let settings = Settings { read_every: READ_EVERY, ..Settings::local(&folder.0) };
        let sidecar = Sidecar::start(settings).map_err(|error| error.to_string())?;
        let address = sidecar.addresses.tcp;
        let caller = ReviewClient::open(&Endpoint {
            address: Address::Tcp { host: address.ip().to_string().into(), port: address.port() },
            tls: None,
            transport: Transport::Grpc,
        });
        let caller = caller.map_err(|error| error.to_string())?;
        Ok(Self { screen: Screen::new(), sidecar, caller, sent: Cell::new(0), _folder: folder })
    }

    async fn play(&self) -> Result<(), String> {
        self.introduce();
        self.nobody().await?;
        let instance = self.attached().await?;
        self.refused().await?;
        self.passed_by().await?;
        self.crashed(instance).await
    }

    fn introduce(&self) {
        let screen = &self.screen;
        screen.heading("Initializers of new Pods, in order (a sidecar in this process, and no apiserver)");
        screen.line("");
        screen.field("built in", "team.example.com: a label and a variable, from the namespace's label team");
        screen.field("", "sidecar.example.com: a container");
        screen.field("a process", &format!("{NAME}: images by digest; failurePolicy Fail, timeout 2s"));
        screen.field("nobody", "audit.example.com: never attaches; failurePolicy Ignore, timeout 200ms");
    }

    /// The process is not there yet.
    async fn nobody(&self) -> Result<(), String> {
        self.screen.heading(&format!("Nobody acts as {NAME} yet"));
        let response = self.create("web", IMAGE.0, "ann", &[]).await?;
        ensure(code(&response) == 504, || format!("it should have been late: {}", message(&response)))
    }

    /// It comes, and a Pod is prepared.
    async fn attached(&self) -> Result<Instance, String> {
        let (tasks, mut attempts) = mpsc::channel(16);
        let instance = Instance::attach(self.url(), claim(), false, tasks);
        self.instances(1).await?;
        self.screen.heading(&format!("A process attaches as {NAME}"));
        let response = self.create("web", IMAGE.0, "ann", &[]).await?;
        let patch = String::from_utf8_lossy(response.patch()).into_owned();
        let prepared = [r#""team""#, r#""TEAM""#, PROXY, IMAGE.1].iter().all(|wanted| patch.contains(wanted));
        ensure(response.allowed() && prepared, || format!("it should have been prepared: {patch}"))?;
        ensure(response.warnings.iter().any(|warning| warning.contains("audit.example.com")), || {
            "no warning says that audit.example.com was passed over".to_owned()
        })?;
        ensure(attempts.recv().await == Some(1), || "it was not asked once".to_owned())?;
        Ok(instance)
    }

    /// It says no.
    async fn refused(&self) -> Result<(), String> {
        self.screen.heading("It refuses a Pod, in its own words");
        let response = self.create("odd", "registry.example/odd:2", "ann", &[]).await?;
        let no = code(&response) == 403 && message(&response).contains("no digest is known");
        ensure(no, || format!("it should have refused: {}", message(&response)))
    }

    /// An operator writes the list himself.
    async fn passed_by(&self) -> Result<(), String> {
        self.screen.heading("gatepost.dev/initializers: \"\" passes them by, for those who may");
        let none = [("gatepost.dev/initializers", "")];
        let response = self.create("web", "registry.example/odd:2", "ann", &none).await?;
        ensure(code(&response) == 403, || "she may not".to_owned())?;
        let response = self.create("web", "registry.example/odd:2", "operator", &none).await?;
        ensure(response.allowed() && response.patch().is_empty(), || message(&response).to_owned())
    }

    /// It hangs with a Pod and is killed; another has its turn.
    async fn crashed(&self, instance: Instance) -> Result<(), String> {
        self.screen.heading("A process takes a Pod and crashes; another finishes it");
        drop(instance);
        self.instances(0).await?;
        let (tasks, mut attempts) = mpsc::channel(16);
        let hanging = Instance::attach(self.url(), claim(), true, tasks.clone());
        self.instances(1).await?;
        let crashing = async {
            let first = attempts.recv().await;
            let other = Instance::attach(self.url(), claim(), false, tasks);
            self.instances(2).await?;
            drop(hanging);
            let second = attempts.recv().await;
            ensure((first, second) == (Some(1), Some(2)), || format!("the attempts were {first:?} and {second:?}"))?;
            Ok::<_, String>(other)
        };
        let (response, other) = tokio::join!(self.create("web", IMAGE.0, "ann", &[]), crashing);
        let (response, _other) = (response?, other?);
        ensure(response.allowed(), || message(&response).to_owned())?;
        self.screen
            .field("attempts", "1 by the process that crashed, 2 by the other, which can tell that it is a repeat");
        self.screen.line("");
        self.screen.field("ended", "everything went as described");
        Ok(())
    }

    /// Until somebody ends it.
    async fn stay(&self) -> Result<(), String> {
        let address = self.sidecar.addresses.tcp;
        let screen = &self.screen;
        screen.heading("It stays until Ctrl-C. Attach an initializer of your own:");
        screen.line("");
        screen.line(&format!("    export TOKEN={TOKEN}"));
        let image = format!("{}={}", IMAGE.0, IMAGE.1);
        screen.line(&format!("    cargo run --example initializer-rust -- --to http://{address} {image}"));
        screen.line(&format!("    (cd examples/initializers/go && go run . -to {address} {image})"));
        screen.line(&format!("    python examples/initializers/python/initializer.py --to {address} {image}"));
        // The last one of the story goes first.
        self.instances(0).await?;
        let mut before = 0;
        loop {
            let now = attendance(&self.sidecar.current, Instant::now());
            let instances = now.iter().find(|one| &*one.name == NAME).map_or(0, |one| one.instances);
            if instances > before {
                screen.heading(&format!("{instances} attached as {NAME}; a Pod is created"));
                let response = self.create("web", IMAGE.0, "ann", &[]).await?;
                let pinned = String::from_utf8_lossy(response.patch()).contains(IMAGE.1);
                let word = match (response.allowed(), pinned) {
                    (true, true) => "prepared",
                    (true, false) => "created, and its image has no digest",
                    (false, _) => "refused",
                };
                screen.field("it is", word);
            } else if instances < before {
                screen.heading(&format!("{instances} attached as {NAME}"));
            }
            before = instances;
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
                _ = signal::ctrl_c() => return Ok(()),
            }
        }
    }

    /// Has a Pod reviewed, and shows what became of it.
    async fn create(
        &self,
        name: &str,
        image: &str,
        user: &str,
        notes: &[(&str, &str)],
    ) -> Result<AdmissionResponse, String> {
        let began = Instant::now();
        self.sent.set(self.sent.get() + 1);
        let uid = format!("00000000-0000-4000-8000-{:012}", self.sent.get());
        let request = request(&uid, name, image, user, notes);
        let bytes = object_bytes(&request);
        let review = AdmissionReview { request: Some(request), response: None };
        let answer = self.caller.ask(Method::Mutate, &review, LONG).await.map_err(|error| error.to_string())?;
        let response = answer.response.ok_or("the sidecar sent no response")?;
        let screen = &self.screen;
        let ending = if response.allowed() { (Tint::Good, "CREATED") } else { (Tint::Bad, "REFUSED") };
        screen.verdict(&format!("CREATE pods shop/{name}, {image}, by {user}"), bytes, ending);
        if !response.allowed() {
            screen.field("message", &format!("{} {}", code(&response), message(&response)));
        }
        for warning in &response.warnings {
            screen.field("warning", warning);
        }
        let turns = response.audit_annotations.iter().filter(|(key, _)| key.starts_with("initialize."));
        for (index, (_, said)) in turns.enumerate() {
            let said: Value = serde_json::from_str(said).unwrap_or_default();
            let (name, outcome) = (said["initializer"].as_str(), said["outcome"].as_str());
            let label = if index == 0 { "turns" } else { "" };
            screen.field(label, &format!("{:<22}{}", name.unwrap_or_default(), outcome.unwrap_or_default()));
        }
        let patch: Vec<Value> = serde_json::from_slice(response.patch()).unwrap_or_default();
        for (index, operation) in patch.iter().enumerate() {
            let label = if index == 0 { "patch" } else { "" };
            screen.field(label, &operation.to_string());
        }
        screen.field("took", &super::screen::millis(began.elapsed()));
        Ok(response)
    }

    async fn instances(&self, wanted: usize) -> Result<(), String> {
        until("an instance to come or go", || {
            let names = self.sidecar.current.hub().names();
            Ok(names.iter().find(|one| &*one.name == NAME).map_or(0, |one| one.instances) == wanted)
        })
        .await
    }

    fn url(&self) -> String {
        format!("http://{}", self.sidecar.addresses.tcp)
    }
}

fn claim() -> Claim {
    Claim { name: NAME.to_owned(), token: TOKEN.to_owned(), window: 0 }
}

fn code(response: &AdmissionResponse) -> i32 {
    response.status.as_ref().map_or(0, |status| status.code())
}

fn message(response: &AdmissionResponse) -> &str {
    response.status.as_ref().map_or("", |status| status.message())
}

/// CREATE of a Pod with one container.
fn request(uid: &str, name: &str, image: &str, user: &str, notes: &[(&str, &str)]) -> AdmissionRequest {
    let text = |text: &str| Some(text.to_owned());
    let notes: Value = notes.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "annotations": notes},
        "spec": {"containers": [{"name": "app", "image": image}]},
    });
    let groups = if user == "operator" { vec!["cluster-operators".to_owned()] } else { Vec::new() };
    AdmissionRequest {
        name: text(name),
        namespace: text("shop"),
        user_info: Some(UserInfo { username: text(user), groups, ..UserInfo::default() }),
        dry_run: Some(false),
        ..create(uid, "Pod", "pods", object.to_string().into())
    }
}
