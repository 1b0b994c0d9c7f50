//! Story of the demo: reviews, a swap of the configuration, hooks that are killed, and an invalid configuration.

use std::time::{Duration, Instant};

use bytes::Bytes;
use gatepost_operator::command::counted;

use super::{
    Folder, HookCall, MAX_WAIT, READ_INTERVAL, Record, Stage, ensure, field, grouped, heading,
    hooks::{
        AUDIT_ALL, DOMAIN, FIRST, Hook, Hooks, NO_BALANCER, NO_LATEST, NO_PRIVILEGED, OWNER_LABEL, SECOND, SLOW,
        WARN_NO_LIMITS,
    },
    line, millis, object_bytes, perform as on_stage, status, until, verdict,
};
use crate::{
    hooks::Method,
    live::{LiveHook, Rotation},
};
use gatepost_api::verdict::REVISION_ANNOTATION;
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

macro_rules! example {
    ($name:literal) => {
        from_file($name, &Bytes::from_static(include_bytes!(concat!("../../../examples/reviews/", $name))))
            .map_err(|error| format!(concat!("examples/reviews/", $name, ": {}"), error))?
    };
}

/// Plays the story.
pub(super) fn perform() -> Result<(), String> {
    let began = Instant::now();
    let folder = Folder::new()?;
    let mut hooks = Hooks::start_first(&folder)?;
    on_stage(&folder, async |stage| {
        let (pod, service) = (example!("pod-create.json"), example!("service-create.json"));
        let (pod_latest, config_map) = (example!("pod-create-latest.json"), example!("configmap-create.json"));
        let mut story = Story { stage, hooks: &mut hooks, durations: Vec::new() };
        story.introduce();
        // Open the connections first, so that the measurements below do not include connecting.
        for review in [&pod, &example!("deployment-update.json"), &service] {
            story.send_review(review).await?;
        }
        heading("Reviews, one at a time");
        for (review, allowed) in [
            (&pod, true),
            (&pod_latest, false),
            (&example!("pod-create-privileged.json"), false),
            (&example!("pod-delete.json"), true),
            (&example!("deployment-update.json"), false),
            (&example!("crd-object.yaml"), true),
            (&big(config_map.clone()), true),
        ] {
            story.expect(review, "the wrong verdict", |result| result.response.allowed() == allowed).await?;
        }
        let slow = "the slow hook should have been ignored";
        story.expect(&service, slow, |result| result.is_allowed_without(&SLOW, FAILED_OPEN)).await?;
        story.swap(&pod, &service).await?;
        story.kill(&pod, &config_map).await?;
        story.spoil(&pod_latest).await?;
        story.sum_up(began).await
    })
}

/// Returns the review with a ConfigMap of [`BIG_OBJECT_BYTES`].
fn big(mut review: AdmissionReview) -> AdmissionReview {
    let head =
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"postcodes","namespace":"shop"},"data":{"all":""#;
    let tail = r#""}}"#;
    let numbers = (10_000..).flat_map(|number: u32| format!("{number} ").into_bytes());
    let numbers = numbers.take(BIG_OBJECT_BYTES - head.len() - tail.len());
    let object: Vec<u8> = head.bytes().chain(numbers).chain(tail.bytes()).collect();
    let request = review.request.get_or_insert_default();
    request.name = Some("postcodes".to_owned());
    request.object.get_or_insert_default().raw = Some(object.into());
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
    took: Duration,
}

impl ReviewResult {
    fn code(&self) -> i32 {
        status(&self.response).0
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
    /// Durations of the reviews that were shown, and of the crowds' reviews.
    durations: Vec<Duration>,
}

impl Story<'_, '_> {
    fn introduce(&self) {
        heading("A sidecar and six hooks (their names end with .example.com), in this process");
        line("");
        let addresses = &self.stage.sidecar.addresses;
        field("sidecar", format!("gRPC on {}, admin pages on {}", addresses.tcp, addresses.admin));
        field("config", self.hooks.folder.config().display().to_string());
        field("", format!("read every {READ_INTERVAL:?} here, so that nobody waits; every second by serve"));
        field("hooks", FIRST.map(|hook| hook.to_string()).join("\n"));
    }

    /// Sends a review without printing.
    async fn send_review(&self, review: &AdmissionReview) -> Result<ReviewResult, String> {
        let (response, took) = self.stage.send_review(Method::Review, review).await?;
        let uid = response.uid();
        let record = |log: &str| log.lines().find(|line| line.contains(uid)).map(Record::parse).transpose();
        let record = self.stage.audit_log(record).await?;
        Ok(ReviewResult { response, record, took })
    }

    /// Sends a review and prints everything about it.
    ///
    /// # Errors
    /// `otherwise` if the result is not as it should be.
    async fn expect(
        &mut self,
        review: &AdmissionReview,
        otherwise: &str,
        holds: impl FnOnce(&ReviewResult) -> bool,
    ) -> Result<(), String> {
        let metrics = &self.stage.sidecar.metrics;
        let before = metrics.copied_bytes();
        let result = self.send_review(review).await?;
        let copied = (metrics.copied_bytes() - before) as usize;
        let ReviewResult { response, record, took } = &result;
        self.durations.push(*took);
        let request = review.request.clone().unwrap_or_default();
        let bytes = object_bytes(&request);
        verdict(&title(&request), bytes, response, ["ALLOWED", "DENIED", "REJECTED"]);
        // Skip the revision, which is in every response.
        for (key, value) in response.audit_annotations.iter().filter(|(key, _)| *key != REVISION_ANNOTATION) {
            field("noted", format!("{key}: {value}").replace(DOMAIN, ""));
        }
        match &*record.hooks {
            [] => field("asked", "nobody: no rule matches"),
            calls => field("asked", calls.iter().map(outcome).collect::<Vec<_>>().join("\n")),
        }
        field("time", time(record, *took));
        let (copies, hooks) = (grouped(copied), counted(record.hooks.len(), "hook"));
        field("bytes", format!("{copies} of {} object bytes copied in user space, for {hooks}", grouped(bytes)));
        ensure(copied <= bytes / 10 + 1024, format_args!("{copied} of {bytes} object bytes were copied"))?;
        ensure(holds(&result), format_args!("{otherwise}: {}", status(response).1))
    }

    fn generation(&self) -> u64 {
        self.stage.sidecar.current.load().number
    }

    /// Returns the hook's state; `None` if the hook is not in force.
    fn live(&self, hook: &Hook) -> Option<LiveHook> {
        let generation = self.stage.sidecar.current.load();
        generation.hooks.iter().find(|live| short(&live.hook.name) == hook.name).cloned()
    }

    /// Removes one hook and adds another while a crowd sends reviews.
    async fn swap(&mut self, pod: &AdmissionReview, service: &AdmissionReview) -> Result<(), String> {
        heading("The configuration is swapped while two callers ask about Pods");
        line("");
        let (stage, name, first) = (self.stage, NO_BALANCER.name, self.generation());
        let durations = stage.with_crowd(pod, async |crowd| {
            crowd.answers(CROWD_ANSWERS / 4).await?;
            self.hooks.write(&self.hooks.document(&SECOND))?;
            let failure = || match self.live(&NO_BALANCER)?.rotation {
                Rotation::Probing { last_failure, .. } => last_failure,
                _ => None,
            };
            let why = until("a failed probe", || Ok(failure())).await?.to_string();
            ensure(self.live(&SLOW).is_none(), "the removed hook is still in force")?;
            // The new configuration is one generation, and each change of a hook's state is another.
            let second = self.generation();
            field("written", format!("hooks.yaml without {}, with {name}", SLOW.name));
            field("swapped", format!("generation {first} -> {second}: {} is gone, {name} is Probing", SLOW.name));
            // Do not print the path of the socket: it is in a temporary folder.
            let why = why.replace(&self.hooks.folder.0.display().to_string(), "").replace(" /", " ");
            field("waits", format!("{name} does not run yet: {why}"));
            let had_a_say = "a hook that is being probed had a say";
            self.expect(service, had_a_say, |result| result.is_allowed_without(&NO_BALANCER, PROBING)).await?;

            self.hooks.start(&NO_BALANCER)?;
            let is_active = || matches!(self.live(&NO_BALANCER)?.rotation, Rotation::Active { .. }).then_some(());
            until("the new hook's rotation", || Ok(is_active())).await?;
            let third = self.generation();
            line("");
            field("started", format!("{name} runs, and has passed its probe"));
            field("swapped", format!("generation {second} -> {third}: {name} is Active"));
            self.expect(service, "the new hook should have said no", |result| result.code() == 403).await?;
            crowd.answers(CROWD_ANSWERS / 4).await?;
            let decided = |number| {
                let generation = format!("\"generation\":{number},");
                stage.audit_log(move |log| Ok(log.contains(&generation).then_some(())))
            };
            decided(first).await?;
            decided(third).await
        });
        let durations = durations.await?;
        line("");
        let each = "each decided under one generation; none was disturbed";
        let count = grouped(durations.len());
        field("crowd", format!("{count} reviews meanwhile, {each}, p50 {}", median(&durations)));
        self.durations.extend(durations);
        Ok(())
    }

    /// Kills two hooks and starts them again, while a crowd sends reviews that they do not match.
    async fn kill(&mut self, pod: &AdmissionReview, config_map: &AdmissionReview) -> Result<(), String> {
        heading("Two hooks are killed while two callers ask about ConfigMaps");
        let stage = self.stage;
        let before = stage.with_crowd(config_map, async |crowd| crowd.answers(CROWD_ANSWERS).await).await?;
        let meanwhile = stage.with_crowd(config_map, async |crowd| {
            crowd.answers(CROWD_ANSWERS / 4).await?;
            self.kill_one(&WARN_NO_LIMITS);
            let open = "the dead hook should have been ignored";
            self.expect(pod, open, |result| result.is_allowed_without(&WARN_NO_LIMITS, FAILED_OPEN)).await?;
            self.kill_one(&NO_PRIVILEGED);
            let closed = "the dead hook should have rejected the Pod";
            let failed = |result: &ReviewResult| status(&result.response).1.contains("failed calling webhook");
            self.expect(pod, closed, |result| result.code() == 500 && failed(result)).await?;
            crowd.answers(CROWD_ANSWERS).await
        });
        let meanwhile = meanwhile.await?;
        line("");
        let reviews = format!("{} reviews that do not concern the dead", grouped(before.len() + meanwhile.len()));
        let (was, is) = (median(&before), median(&meanwhile));
        field("crowd", format!("{reviews}: all allowed, p50 {was} before, {is} meanwhile"));
        self.durations.extend(before.into_iter().chain(meanwhile));

        self.hooks.start(&WARN_NO_LIMITS)?;
        self.hooks.start(&NO_PRIVILEGED)?;
        let back = Instant::now();
        loop {
            let result = self.send_review(pod).await?;
            if [NO_LATEST, NO_PRIVILEGED, WARN_NO_LIMITS, AUDIT_ALL].iter().all(|hook| result.has_allowed(hook)) {
                break;
            }
            ensure(back.elapsed() < MAX_WAIT, "the hooks did not recover")?;
        }
        field("back", "both run again, and were asked again at once; without any command");
        Ok(())
    }

    fn kill_one(&mut self, hook: &Hook) {
        self.hooks.kill(hook);
        line("");
        field("killed", format!("{} (failurePolicy {})", hook.name, hook.failure_policy));
    }

    /// Writes an invalid configuration, which is reported and changes nothing else.
    async fn spoil(&mut self, pod_latest: &AdmissionReview) -> Result<(), String> {
        heading("An invalid configuration is written");
        line("");
        let in_force = self.generation();
        let rejected = &self.stage.sidecar.health.status.rejected;
        let good = self.hooks.document(&SECOND);
        let spoilt = good.replacen("failurePolicy", "failurPolicy", 1).replacen("timeout: 5s", "timeout: 5", 1);
        self.hooks.write(&spoilt.replacen(OWNER_LABEL.name, "Owner_Label", 1))?;
        let problems = &until("the rejection", || Ok(rejected.get())).await?.problems;
        problems.iter().for_each(|problem| field("problem", problem.to_string()));
        ensure(problems.len() == 3, format_args!("{} problems were found instead of 3", problems.len()))?;
        ensure(self.generation() == in_force, "an invalid configuration was put in force")?;
        field("in force", format!("generation {in_force} as before; what it forbids stays forbidden:"));
        let old = "the last good one is not in force";
        let is_old = |result: &ReviewResult| result.code() == 403 && result.record.generation == in_force;
        self.expect(pod_latest, old, is_old).await?;

        self.hooks.write(&good)?;
        until("the end of the rejection", || Ok(rejected.get().is_none().then_some(()))).await?;
        line("");
        field("mended", "the good one is back; nothing had to be swapped");
        ensure(self.generation() == in_force, "the same configuration was swapped in again")
    }

    async fn sum_up(&mut self, began: Instant) -> Result<(), String> {
        let (sent, rejected) = (self.stage.sent.get(), self.stage.rejected.get());
        let all =
            |log: &str| (log.lines().count() >= sent).then(|| log.lines().map(Record::parse).collect()).transpose();
        let records: Vec<Record> = self.stage.audit_log(all).await?;
        let (recorded, calls) = (records.len(), records.iter().map(|record| record.hooks.len()).sum());
        ensure(recorded == sent, format_args!("{sent} reviews were sent and {recorded} are in the audit log"))?;
        self.durations.sort_unstable();
        heading("Summary");
        line("");
        let (allowed, rejected) = (grouped(sent - rejected), grouped(rejected));
        field("reviews", format!("{}: {allowed} allowed, {rejected} rejected", grouped(sent)));
        field("hooks", format!("asked {} times; {} in force", grouped(calls), FIRST.len()));
        field("p50", format!("{} as the caller sees it", median(&self.durations)));
        let copied = grouped(self.stage.sidecar.metrics.copied_bytes() as usize);
        let bytes = grouped(self.stage.object_bytes.get());
        field("copied", format!("{copied} of {bytes} object bytes in user space, by the sidecar"));
        let swaps = self.generation() - 1;
        field("swaps", format!("{swaps} while serving, and one invalid configuration that changed nothing"));
        field("took", format!("{:.1} s; everything went as described", began.elapsed().as_secs_f64()));
        Ok(())
    }
}

/// Returns the median of a sorted list, in milliseconds.
fn median(sorted: &[Duration]) -> String {
    millis(sorted.get(sorted.len() / 2).copied().unwrap_or_default())
}

/// Returns a line with the hook, the duration and the outcome of a call, in the words of the audit log.
fn outcome(call: &HookCall) -> String {
    let failure = call.failure.as_ref().map_or_else(String::new, |failure| format!(": {failure}"));
    format!("{:<18}{:>8}  {}{failure}", short(&call.hook), millis(Duration::from_micros(call.took_us)), call.outcome)
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
