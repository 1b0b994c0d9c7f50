//! `demo`: runs a sidecar and hooks in this process, sends reviews, swaps the configuration, and kills hooks.
//!
//! The demo checks its results and fails if one is unexpected, so that it is also a test.

mod hooks;
mod initializers;
mod stage;

use std::time::{Duration, Instant};

use bytes::Bytes;
use gatepost_operator::command::{CommandExit, complain, counted};

use self::{
    hooks::{
        AUDIT_ALL, DOMAIN, FIRST, Hook, HookTransport, Hooks, NO_BALANCER, NO_LATEST, NO_PRIVILEGED, OWNER_LABEL,
        SECOND, SLOW, WARN_NO_LIMITS,
    },
    stage::{
        BAD, Crowd, Folder, GOOD, HookCall, MAX_WAIT, READ_INTERVAL, Record, Records, Stage, ensure, field, fields,
        grouped, heading, line, median, millis, object_bytes, status, until, verdict,
    },
};
use crate::{
    hooks::Method,
    live::{LiveHook, Rotation},
};
use gatepost_api::verdict::REVISION;
use gatepost_wire::{
    pb::k8s::io::api::admission::v1::{AdmissionRequest, AdmissionResponse, AdmissionReview},
    review_json::from_file,
};

/// Prefix of the keys of annotations that name hooks which failed open.
const FAILED_OPEN: &str = "failed-open.";
/// Prefix of the keys of annotations that name hooks which are still being probed.
const PROBING: &str = "probing.";
/// Number of the crowd's answers that show that nothing was disturbed.
const CROWD_ANSWERS: usize = 200;
/// Size of the big ConfigMap, in bytes.
const BIG_OBJECT_BYTES: usize = 500 << 10;

const EXAMPLES: &str = "\
Examples:
  gatepost demo
  gatepost demo --initializers
      Pods get a label, a variable, a sidecar and images by digest; one is refused, one process crashes.
  gatepost demo --initializers --stay
      The same; then examples/initializers may attach.
  NO_COLOR=1 gatepost demo | less

Exit codes:
  0  everything went as described
  1  something did not; stderr says what";

/// See it work: a sidecar, hooks and reviews, all in this process
///
/// Needs nothing else on the machine. Starts a sidecar and six hooks on free ports of 127.0.0.1 and unix sockets, with
/// fresh certificates and a configuration in a temporary folder. Sends it reviews as a kube-apiserver would, and shows
/// for each the verdict, which hooks were called, where the time went, and how many object bytes were copied. Then it
/// swaps the configuration, kills hooks and brings them back, and writes an invalid configuration, all while reviews
/// are being sent. It ends by itself after a few seconds, and leaves nothing behind.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Demo {
    /// Show initializers instead: new Pods are prepared before anyone sees them
    #[arg(long)]
    initializers: bool,

    /// Stay afterwards until Ctrl-C, for initializers of your own
    #[arg(long, requires = "initializers")]
    stay: bool,
}

impl Demo {
    /// Runs the demo.
    pub fn run(&self) -> CommandExit {
        match if self.initializers { initializers::perform(self.stay) } else { perform() } {
            Ok(()) => CommandExit::Good,
            Err(what) => complain(&format!("the demo did not go as it should: {what}")),
        }
    }
}

macro_rules! example {
    ($name:literal) => {
        from_file($name, &Bytes::from_static(include_bytes!(concat!("../../examples/reviews/", $name))))
            .map_err(|error| format!(concat!("examples/reviews/", $name, ": {}"), error))?
    };
}

fn perform() -> Result<(), String> {
    let began = Instant::now();
    let folder = Folder::new()?;
    let mut hooks = Hooks::start_first(&folder)?;
    stage::perform(&folder, async |stage| {
        let records = Records::open(&folder)?;
        let hooks = &mut hooks;
        let mut story = Story { stage, hooks, records, took: Vec::new(), rejected: 0, object_bytes: 0 };
        story.introduce();
        let (pod, service) = (example!("pod-create.json"), example!("service-create.json"));
        let (pod_latest, config_map) = (example!("pod-create-latest.json"), example!("configmap-create.json"));
        // Open the connections first, so that the measurements below do not include connecting.
        for review in [&pod, &example!("deployment-update.json"), &service] {
            story.ask(review).await?;
        }
        story.review(&pod, &pod_latest, &config_map, &service).await?;
        story.swap(&pod, &service).await?;
        story.kill(&pod, &config_map).await?;
        story.spoil(&pod_latest).await?;
        story.sum_up(began).await
    })
}

/// Returns the review with a ConfigMap of [`BIG_OBJECT_BYTES`].
fn big(config_map: &AdmissionReview) -> AdmissionReview {
    let mut review = config_map.clone();
    let head =
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"postcodes","namespace":"shop"},"data":{"all":""#;
    let tail = r#""}}"#;
    let numbers = (10_000..).flat_map(|number: u32| format!("{number} ").into_bytes()).map(char::from);
    let object = head.chars().chain(numbers.take(BIG_OBJECT_BYTES - head.len() - tail.len())).chain(tail.chars());
    if let Some(request) = &mut review.request {
        request.name = Some("postcodes".to_owned());
        request.object.get_or_insert_default().raw = Some(object.collect::<String>().into());
    }
    review
}

/// Returns a title such as `CREATE pods shop/basket-debug`.
fn title(request: &AdmissionRequest) -> String {
    let resource = request.resource.clone().unwrap_or_default();
    let dot = if resource.group().is_empty() { "" } else { "." };
    let object = match (request.namespace(), request.name()) {
        ("", name) => name.to_owned(),
        (namespace, "") => format!("in {namespace}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    format!("{} {}{dot}{} {object}", request.operation(), resource.resource(), resource.group())
}

fn short(name: &str) -> &str {
    name.strip_suffix(DOMAIN).unwrap_or(name)
}

/// Response of a review, and its audit record.
struct ReviewResult {
    response: AdmissionResponse,
    record: Record,
}

impl ReviewResult {
    fn code(&self) -> i32 {
        status(&self.response).0
    }

    fn message(&self) -> &str {
        status(&self.response).1
    }

    /// Returns true if the review is allowed and an annotation with this prefix names the hook.
    fn is_allowed_without(&self, hook: &Hook, prefix: &str) -> bool {
        let mut annotations = self.response.audit_annotations.iter();
        self.response.allowed() && annotations.any(|(key, name)| key.starts_with(prefix) && short(name) == hook.name)
    }

    fn has_allowed(&self, hook: &Hook) -> bool {
        self.record.hooks.iter().any(|call| short(&call.hook) == hook.name && call.outcome == "allowed")
    }
}

struct Story<'a, 'f> {
    stage: &'a Stage,
    hooks: &'a mut Hooks<'f>,
    records: Records,
    /// Durations of the reviews, measured by their callers.
    took: Vec<Duration>,
    rejected: usize,
    object_bytes: usize,
}

impl Story<'_, '_> {
    fn introduce(&self) {
        heading("A sidecar and six hooks (their names end with .example.com), in this process");
        line("");
        let addresses = &self.stage.sidecar.addresses;
        field("sidecar", format!("gRPC on {}, admin pages on {}", addresses.tcp, addresses.admin));
        field("config", self.hooks.folder.config().display().to_string());
        field("", format!("read every {READ_INTERVAL:?} here, so that nobody waits; every second by serve"));
        let lines = FIRST.map(|Hook { name, transport, failure_policy, timeout, rule: [operations, _, resources] }| {
            let transport = match transport {
                HookTransport::MutualTls => "mutual TLS",
                HookTransport::Plaintext => "plaintext",
                HookTransport::UnixSocket => "unix socket",
            };
            let rule = format!("{operations} of {resources}").replace('"', "");
            format!("{name:<18}{transport:<13}{failure_policy:<8}{timeout:<6}{rule}")
        });
        fields("hooks", lines);
    }

    /// Sends a review without printing. Returns its result and its duration.
    async fn ask(&mut self, review: &AdmissionReview) -> Result<(ReviewResult, Duration), String> {
        self.object_bytes += review.request.as_ref().map_or(0, object_bytes);
        let (response, took) = self.stage.ask(Method::Review, review).await?;
        self.rejected += usize::from(!response.allowed());
        let record = self.records.of(response.uid()).await?;
        Ok((ReviewResult { response, record }, took))
    }

    /// Sends a review and prints everything about it.
    async fn show(&mut self, review: &AdmissionReview) -> Result<ReviewResult, String> {
        let metrics = &self.stage.sidecar.metrics;
        let before = metrics.copied_bytes();
        let (reviewed, took) = self.ask(review).await?;
        let copied = (metrics.copied_bytes() - before) as usize;
        self.took.push(took);
        let Some(request) = &review.request else { return Ok(reviewed) };
        let (bytes, ReviewResult { response, record }) = (object_bytes(request), &reviewed);
        let (colour, word) = match (response.allowed(), reviewed.code()) {
            (true, _) => (GOOD, "ALLOWED"),
            (false, 403) => (BAD, "DENIED"),
            (false, _) => (BAD, "REJECTED"),
        };
        verdict(&title(request), bytes, colour, word);
        if !response.allowed() {
            field("message", format!("{} {}", reviewed.code(), reviewed.message()));
        }
        for warning in &response.warnings {
            field("warning", warning);
        }
        // Skip the revision, which is in every response.
        for (key, value) in response.audit_annotations.iter().filter(|(key, _)| *key != REVISION) {
            field("noted", format!("{key}: {value}").replace(DOMAIN, ""));
        }
        fields("asked", record.hooks.iter().map(outcome));
        if record.hooks.is_empty() {
            field("asked", "nobody: no rule matches");
        }
        field("time", time(record, took));
        let (copies, hooks) = (grouped(copied), counted(record.hooks.len(), "hook"));
        field("bytes", format!("{copies} of {} object bytes copied in user space, for {hooks}", grouped(bytes)));
        ensure(copied <= bytes / 10 + 1024, || format!("{copied} of {bytes} object bytes were copied"))?;
        Ok(reviewed)
    }

    fn generation(&self) -> u64 {
        self.stage.sidecar.current.load().number
    }

    /// Returns the hook's state; `None` if the hook is not in force.
    fn live(&self, hook: &Hook) -> Option<LiveHook> {
        let generation = self.stage.sidecar.current.load();
        generation.hooks.iter().find(|live| short(&live.hook.name) == hook.name).cloned()
    }

    /// Adds the reviews of a crowd to the totals.
    fn count_crowd(&mut self, review: &AdmissionReview, took: Vec<Duration>) {
        self.stage.sent.update(|sent| sent + took.len());
        self.object_bytes += review.request.as_ref().map_or(0, object_bytes) * took.len();
        self.took.extend(took);
    }

    /// Sends reviews one at a time.
    async fn review(
        &mut self,
        pod: &AdmissionReview,
        pod_latest: &AdmissionReview,
        config_map: &AdmissionReview,
        service: &AdmissionReview,
    ) -> Result<(), String> {
        heading("Reviews, one at a time");
        for (review, allowed) in [
            (pod, true),
            (pod_latest, false),
            (&example!("pod-create-privileged.json"), false),
            (&example!("pod-delete.json"), true),
            (&example!("deployment-update.json"), false),
            (&example!("crd-object.yaml"), true),
            (&big(config_map), true),
        ] {
            let reviewed = self.show(review).await?;
            ensure(reviewed.response.allowed() == allowed, || format!("the wrong verdict: {}", reviewed.message()))?;
        }
        let reviewed = self.show(service).await?;
        let ignored = reviewed.is_allowed_without(&SLOW, FAILED_OPEN);
        ensure(ignored, || format!("the slow hook should have been ignored: {}", reviewed.message()))
    }

    /// Removes one hook and adds another while a crowd sends reviews.
    async fn swap(&mut self, pod: &AdmissionReview, service: &AdmissionReview) -> Result<(), String> {
        heading("The configuration is swapped while two callers ask about Pods");
        line("");
        let crowd = Crowd::start(&self.stage.endpoint, pod)?;
        crowd.answers(CROWD_ANSWERS / 4).await?;
        let first = self.generation();
        let name = NO_BALANCER.name;

        self.hooks.write(&self.hooks.document(&SECOND))?;
        let why = until("a failed probe", || {
            Ok(self.live(&NO_BALANCER).and_then(|live| match live.rotation {
                Rotation::Probing { last_failure, .. } => Some(last_failure?.to_string()),
                _ => None,
            }))
        })
        .await?;
        ensure(self.live(&SLOW).is_none(), || "the removed hook is still in force".to_owned())?;
        // The new configuration is one generation, and each change of a hook's state is another.
        let second = self.generation();
        field("written", format!("hooks.yaml without {}, with {name}", SLOW.name));
        field("swapped", format!("generation {first} -> {second}: {} is gone, {name} is Probing", SLOW.name));
        // Do not print the path of the socket: it is in a temporary folder.
        let why = why.replace(&self.hooks.folder.0.display().to_string(), "").replace(" /", " ");
        field("waits", format!("{name} does not run yet: {why}"));
        let reviewed = self.show(service).await?;
        let passed_over = reviewed.is_allowed_without(&NO_BALANCER, PROBING);
        ensure(passed_over, || format!("a hook that is being probed had a say: {}", reviewed.message()))?;

        self.hooks.start(&NO_BALANCER)?;
        let is_active = || matches!(self.live(&NO_BALANCER)?.rotation, Rotation::Active { .. }).then_some(());
        until("the new hook's rotation", || Ok(is_active())).await?;
        let third = self.generation();
        line("");
        field("started", format!("{name} runs, and has passed its probe"));
        field("swapped", format!("generation {second} -> {third}: {name} is Active"));
        let reviewed = self.show(service).await?;
        ensure(reviewed.code() == 403, || "the new hook should have said no".to_owned())?;

        crowd.answers(CROWD_ANSWERS / 4).await?;
        let took = crowd.end().await?;
        let (count, p50) = (grouped(took.len()), median(&took));
        self.count_crowd(pod, took);
        self.records.all(self.stage.sent.get()).await?;
        let decided = [first, third].iter().all(|number| self.records.by_generation.contains_key(number));
        ensure(decided, || "a generation decided nothing".to_owned())?;
        line("");
        let each = "each decided under one generation; none was disturbed";
        field("crowd", format!("{count} reviews meanwhile, {each}, p50 {p50}"));
        Ok(())
    }

    /// Kills two hooks and starts them again, while a crowd sends reviews that they do not match.
    async fn kill(&mut self, pod: &AdmissionReview, config_map: &AdmissionReview) -> Result<(), String> {
        heading("Two hooks are killed while two callers ask about ConfigMaps");
        let crowd = Crowd::start(&self.stage.endpoint, config_map)?;
        crowd.answers(CROWD_ANSWERS).await?;
        let mut took = crowd.end().await?;
        let crowd = Crowd::start(&self.stage.endpoint, config_map)?;
        crowd.answers(CROWD_ANSWERS / 4).await?;

        let reviewed = self.kill_one(&WARN_NO_LIMITS, pod).await?;
        let ignored = reviewed.is_allowed_without(&WARN_NO_LIMITS, FAILED_OPEN);
        ensure(ignored, || format!("the dead hook should have been ignored: {}", reviewed.message()))?;

        let reviewed = self.kill_one(&NO_PRIVILEGED, pod).await?;
        let rejected = reviewed.code() == 500 && reviewed.message().contains("failed calling webhook");
        ensure(rejected, || "the dead hook should have rejected the Pod".to_owned())?;

        crowd.answers(CROWD_ANSWERS).await?;
        let during = crowd.end().await?;
        line("");
        let (was, is) = (median(&took), median(&during));
        took.extend(during);
        let count = grouped(took.len());
        let reviews = format!("{count} reviews that do not concern the dead");
        field("crowd", format!("{reviews}: all allowed, p50 {was} before, {is} meanwhile"));
        self.count_crowd(config_map, took);

        self.hooks.start(&WARN_NO_LIMITS)?;
        self.hooks.start(&NO_PRIVILEGED)?;
        let back = Instant::now();
        loop {
            let (reviewed, _) = self.ask(pod).await?;
            if [NO_LATEST, NO_PRIVILEGED, WARN_NO_LIMITS, AUDIT_ALL].iter().all(|hook| reviewed.has_allowed(hook)) {
                break;
            }
            ensure(back.elapsed() < MAX_WAIT, || "the hooks did not recover".to_owned())?;
        }
        field("back", "both run again, and were asked again at once; without any command");
        Ok(())
    }

    async fn kill_one(&mut self, hook: &Hook, pod: &AdmissionReview) -> Result<ReviewResult, String> {
        self.hooks.kill(hook);
        line("");
        field("killed", format!("{} (failurePolicy {})", hook.name, hook.failure_policy));
        self.show(pod).await
    }

    /// Writes an invalid configuration, which is reported and changes nothing else.
    async fn spoil(&mut self, pod_latest: &AdmissionReview) -> Result<(), String> {
        heading("An invalid configuration is written");
        line("");
        let in_force = self.generation();
        let good = self.hooks.document(&SECOND);
        let spoilt = good.replacen("failurePolicy", "failurPolicy", 1).replacen("timeout: 5s", "timeout: 5", 1);
        self.hooks.write(&spoilt.replacen(OWNER_LABEL.name, "Owner_Label", 1))?;
        let rejection = until("the rejection", || Ok(self.stage.sidecar.health.status.rejected.get())).await?;
        for problem in &rejection.problems {
            field("problem", problem.to_string());
        }
        let problems = rejection.problems.len();
        ensure(problems == 3, || format!("{problems} problems were found instead of 3"))?;
        ensure(self.generation() == in_force, || "an invalid configuration was put in force".to_owned())?;
        field("in force", format!("generation {in_force} as before; what it forbids stays forbidden:"));
        let reviewed = self.show(pod_latest).await?;
        let is_old = reviewed.code() == 403 && reviewed.record.generation == in_force;
        ensure(is_old, || "the last good one is not in force".to_owned())?;

        self.hooks.write(&good)?;
        until("the end of the rejection", || {
            Ok(self.stage.sidecar.health.status.rejected.get().is_none().then_some(()))
        })
        .await?;
        line("");
        field("mended", "the good one is back; nothing had to be swapped");
        ensure(self.generation() == in_force, || "the same configuration was swapped in again".to_owned())
    }

    async fn sum_up(&mut self, began: Instant) -> Result<(), String> {
        let sent = self.stage.sent.get();
        self.records.all(sent).await?;
        let recorded = self.records.reviews;
        ensure(recorded == sent, || format!("{sent} reviews were sent and {recorded} are in the audit log"))?;
        self.took.sort_unstable();
        let copied = self.stage.sidecar.metrics.copied_bytes() as usize;
        heading("Summary");
        line("");
        let (allowed, rejected) = (grouped(sent - self.rejected), grouped(self.rejected));
        field("reviews", format!("{}: {allowed} allowed, {rejected} rejected", grouped(sent)));
        field("hooks", format!("asked {} times; {} in force", grouped(self.records.calls), FIRST.len()));
        field("p50", format!("{} as the caller sees it", median(&self.took)));
        let (copied, bytes) = (grouped(copied), grouped(self.object_bytes));
        field("copied", format!("{copied} of {bytes} object bytes in user space, by the sidecar"));
        let swaps = self.generation() - 1;
        field("swaps", format!("{swaps} while serving, and one invalid configuration that changed nothing"));
        field("took", format!("{:.1} s; everything went as described", began.elapsed().as_secs_f64()));
        Ok(())
    }
}

/// Returns a line with the hook, the duration and the outcome of a call.
fn outcome(call: &HookCall) -> String {
    let failure = match call.failure.as_deref() {
        Some("timeout") => "no answer in time",
        Some("connect") => "cannot connect",
        Some("connection") => "connection lost",
        Some("grpc_status") => "gRPC error",
        other => other.unwrap_or_default(),
    };
    let how = match &*call.outcome {
        "allowed" => "yes".to_owned(),
        "denied" => "NO".to_owned(),
        "failed_open" => format!("{failure}: ignored"),
        "failed_closed" => failure.to_owned(),
        other => other.to_owned(),
    };
    format!("{:<18}{:>8}  {how}", short(&call.hook), millis(Duration::from_micros(call.took_us)))
}

/// Returns the duration of a review and its parts.
fn time(record: &Record, took: Duration) -> String {
    let decided = Duration::from_micros(record.took_us);
    let ended = record.hooks.iter().filter(|call| call.outcome != "cancelled");
    let hook = Duration::from_micros(ended.map(|call| call.took_us).max().unwrap_or_default());
    format!(
        "{} = {} slowest hook + {} deciding + {} to and from the caller",
        millis(took),
        millis(hook),
        millis(decided.saturating_sub(hook)),
        millis(took.saturating_sub(decided)),
    )
}
