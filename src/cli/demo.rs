//! `demo`: a sidecar and hooks in this process, real reviews, a swap, a death, and an ending.
//!
//! It asserts its own story: any other course ends it with a failure, so that it is a test as well.

mod cast;
mod certificates;
mod crowd;
mod digest;
mod hook;
mod initializers;
mod policies;
mod records;
mod reviews;
mod screen;
mod stage;
mod wait;

use std::time::Instant;

use cast::{AUDIT_ALL, FIRST, NO_BALANCER, NO_LATEST, NO_PRIVILEGED, OWNER_LABEL, SECOND, SLOW, WARN_NO_LIMITS};
use crowd::{Crowd, median};
use reviews::Reviews;
use screen::{Screen, grouped, millis};
use stage::Stage;
use tokio::runtime::Builder;
use wait::until;

use super::{CommandExit, complain};

/// Prefix of annotations of hooks that failed open.
const FAILED_OPEN: &str = "failed-open.";
/// Prefix of annotations of hooks that are still being probed.
const PROBING: &str = "probing.";
/// Answers of the crowd that show that nothing was disturbed.
const ENOUGH: usize = 200;

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
/// for each the verdict, which hooks were asked, where the time went, and how many object bytes were copied. Then it
/// swaps the configuration, kills hooks and brings them back, and writes an invalid configuration, all while reviews
/// are being asked. It ends by itself after a few seconds, and leaves nothing behind.
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
    /// Plays it.
    pub fn run(&self) -> CommandExit {
        let performed = if self.initializers { initializers::perform(self.stay) } else { perform() };
        match performed {
            Ok(()) => CommandExit::Good,
            Err(what) => complain(&format!("the demo did not go as it should: {what}")),
        }
    }
}

fn perform() -> Result<(), String> {
    let began = Instant::now();
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(|error| format!("cannot start: {error}"))?;
    let mut stage = runtime.block_on(async { Stage::set(Screen::new()) })?;
    let played = runtime.block_on(play(&mut stage, began));
    // Every connection of ours ends with the runtime; a sidecar that drains waits for its callers.
    drop(runtime);
    let drained = stage.sidecar.stop();
    played?;
    ensure(drained.complete(), || "the sidecar did not drain".to_owned())
}

/// # Errors
/// The text of `otherwise`, unless it holds.
fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

async fn play(stage: &mut Stage, began: Instant) -> Result<(), String> {
    let reviews = Reviews::read()?;
    // Connections are made by being used; what is measured below is warm.
    for review in [&reviews.pod, &reviews.deployment, &reviews.service] {
        stage.ask(review).await?;
    }
    ask(stage, &reviews).await?;
    swap(stage, &reviews).await?;
    kill(stage, &reviews).await?;
    spoil(stage, &reviews).await?;
    sum_up(stage, began).await
}

/// One review at a time.
async fn ask(stage: &mut Stage, reviews: &Reviews) -> Result<(), String> {
    stage.screen.heading("Reviews, one at a time");
    for (review, allowed) in [
        (&reviews.pod, true),
        (&reviews.pod_latest, false),
        (&reviews.pod_privileged, false),
        (&reviews.pod_delete, true),
        (&reviews.deployment, false),
        (&reviews.custom, true),
        (&reviews.big_config_map, true),
    ] {
        let reviewed = stage.show(review).await?;
        ensure(reviewed.response.allowed() == allowed, || format!("the wrong verdict: {}", reviewed.message()))?;
    }
    let reviewed = stage.show(&reviews.service).await?;
    let open = reviewed.response.allowed() && reviewed.annotated(FAILED_OPEN, &SLOW);
    ensure(open, || format!("the slow hook should have been ignored: {}", reviewed.message()))
}

/// One hook goes and another comes, while a crowd asks.
async fn swap(stage: &mut Stage, reviews: &Reviews) -> Result<(), String> {
    stage.screen.heading("The configuration is swapped while two callers ask about Pods");
    stage.screen.line("");
    let crowd = Crowd::start(&stage.sidecar_at, &reviews.pod)?;
    crowd.answers(ENOUGH / 4).await?;
    let first = stage.generation();

    stage.cast.write(&stage.cast.document(&SECOND))?;
    let why = stage.probed(&NO_BALANCER).await?;
    ensure(stage.live(&SLOW).is_none(), || "the removed hook is still in force".to_owned())?;
    // Taken in is one generation, each change of a hook's state is another.
    let second = stage.generation();
    stage.screen.field("written", &format!("hooks.yaml without {}, with {}", SLOW.name, NO_BALANCER.name));
    let swapped = format!("generation {first} -> {second}: {} is gone, {} is Probing", SLOW.name, NO_BALANCER.name);
    stage.screen.field("swapped", &swapped);
    // The path of a socket in a temporary folder is of no use to a reader.
    let why = why.replace(&stage.cast.folder().display().to_string(), "");
    stage.screen.field("waits", &format!("{} does not run yet: {}", NO_BALANCER.name, why.replace(" /", " ")));
    let reviewed = stage.show(&reviews.service).await?;
    let passed_over = reviewed.response.allowed() && reviewed.annotated(PROBING, &NO_BALANCER);
    ensure(passed_over, || format!("a hook that is being probed had a say: {}", reviewed.message()))?;

    stage.cast.enter(&NO_BALANCER)?;
    stage.active(&NO_BALANCER).await?;
    let third = stage.generation();
    let active = format!("generation {second} -> {third}: {} is Active", NO_BALANCER.name);
    stage.screen.line("");
    stage.screen.field("started", &format!("{} runs, and has passed its probe", NO_BALANCER.name));
    stage.screen.field("swapped", &active);
    let reviewed = stage.show(&reviews.service).await?;
    ensure(reviewed.code() == 403, || "the new hook should have said no".to_owned())?;

    crowd.answers(ENOUGH / 4).await?;
    let took = crowd.end().await?;
    stage.crowded(&reviews.pod, took.len());
    stage.records.all(stage.sent).await?;
    let decided = |generation: u64| stage.records.by_generation.get(&generation).copied().unwrap_or_default();
    ensure([first, third].iter().all(|&n| decided(n) > 0), || "a generation decided nothing".to_owned())?;
    stage.screen.line("");
    let crowd = format!("{} reviews meanwhile, each decided under one generation", grouped(took.len() as u64));
    stage.screen.field("crowd", &format!("{crowd}; none was disturbed, p50 {}", millis(median(&took))));
    stage.took.extend(took);
    Ok(())
}

/// Two hooks die and come back, while a crowd asks about something else.
async fn kill(stage: &mut Stage, reviews: &Reviews) -> Result<(), String> {
    stage.screen.heading("Two hooks are killed while two callers ask about ConfigMaps");
    let crowd = Crowd::start(&stage.sidecar_at, &reviews.config_map)?;
    crowd.answers(ENOUGH).await?;
    let before = crowd.end().await?;
    let crowd = Crowd::start(&stage.sidecar_at, &reviews.config_map)?;
    crowd.answers(ENOUGH / 4).await?;

    stage.cast.kill(&WARN_NO_LIMITS);
    stage.screen.line("");
    stage.screen.field("killed", &format!("{} (failurePolicy {})", WARN_NO_LIMITS.name, WARN_NO_LIMITS.failure_policy));
    let reviewed = stage.show(&reviews.pod).await?;
    let open = reviewed.response.allowed() && reviewed.annotated(FAILED_OPEN, &WARN_NO_LIMITS);
    ensure(open, || format!("the dead hook should have been ignored: {}", reviewed.message()))?;

    stage.cast.kill(&NO_PRIVILEGED);
    stage.screen.line("");
    stage.screen.field("killed", &format!("{} (failurePolicy {})", NO_PRIVILEGED.name, NO_PRIVILEGED.failure_policy));
    let reviewed = stage.show(&reviews.pod).await?;
    let closed = reviewed.code() == 500 && reviewed.message().contains("failed calling webhook");
    ensure(closed, || "the dead hook should have rejected the Pod".to_owned())?;

    crowd.answers(ENOUGH).await?;
    let during = crowd.end().await?;
    stage.screen.line("");
    let (was, is) = (millis(median(&before)), millis(median(&during)));
    let crowd = format!("{} reviews that do not concern the dead", grouped((before.len() + during.len()) as u64));
    stage.screen.field("crowd", &format!("{crowd}: all allowed, p50 {was} before, {is} meanwhile"));
    stage.crowded(&reviews.config_map, before.len() + during.len());
    stage.took.extend(before.into_iter().chain(during));

    stage.cast.enter(&WARN_NO_LIMITS)?;
    stage.cast.enter(&NO_PRIVILEGED)?;
    let back = Instant::now();
    loop {
        let (reviewed, _) = stage.ask(&reviews.pod).await?;
        if [NO_LATEST, NO_PRIVILEGED, WARN_NO_LIMITS, AUDIT_ALL].iter().all(|part| reviewed.outcome(part) == "allowed")
        {
            break;
        }
        ensure(back.elapsed() < wait::LONG, || "the hooks did not recover".to_owned())?;
    }
    stage.screen.field("back", "both run again, and were asked again at once; without any command");
    Ok(())
}

/// An invalid configuration changes nothing but what is reported.
async fn spoil(stage: &mut Stage, reviews: &Reviews) -> Result<(), String> {
    stage.screen.heading("An invalid configuration is written");
    stage.screen.line("");
    let in_force = stage.generation();
    let good = stage.cast.document(&SECOND);
    let spoilt = good.replacen("failurePolicy", "failurPolicy", 1).replacen("timeout: 5s", "timeout: 5", 1).replacen(
        OWNER_LABEL.name,
        "Owner_Label",
        1,
    );
    stage.cast.write(&spoilt)?;
    let current = &stage.sidecar.current;
    until("the rejection", || Ok(current.status().rejected.get().is_some())).await?;
    let problems = current.status().rejected.get().map(|rejection| rejection.problems.clone()).unwrap_or_default();
    for problem in &problems {
        stage.screen.field("problem", &problem.to_string());
    }
    ensure(problems.len() == 3, || format!("{} problems were found instead of 3", problems.len()))?;
    ensure(stage.generation() == in_force, || "an invalid configuration was put in force".to_owned())?;
    stage.screen.field("in force", &format!("generation {in_force} as before; what it forbids stays forbidden:"));
    let reviewed = stage.show(&reviews.pod_latest).await?;
    ensure(reviewed.code() == 403 && reviewed.record.generation == in_force, || {
        "the last good one is not in force".to_owned()
    })?;

    stage.cast.write(&good)?;
    let current = &stage.sidecar.current;
    until("the end of the rejection", || Ok(current.status().rejected.get().is_none())).await?;
    stage.screen.line("");
    stage.screen.field("mended", "the good one is back; nothing had to be swapped");
    ensure(stage.generation() == in_force, || "the same configuration was swapped in again".to_owned())
}

async fn sum_up(stage: &mut Stage, began: Instant) -> Result<(), String> {
    stage.records.all(stage.sent).await?;
    let (screen, records) = (&stage.screen, &stage.records);
    ensure(records.reviews == stage.sent, || {
        format!("{} reviews were sent and {} are in the audit log", stage.sent, records.reviews)
    })?;
    stage.took.sort_unstable();
    let number = |number: usize| grouped(number as u64);
    let copied = stage.sidecar.metrics.copied_bytes();
    screen.heading("Summary");
    screen.line("");
    let allowed = number(stage.sent - stage.rejected);
    screen.field("reviews", &format!("{}: {allowed} allowed, {} rejected", number(stage.sent), number(stage.rejected)));
    screen.field("hooks", &format!("asked {} times; {} in force", number(records.asked), FIRST.len()));
    screen.field("p50", &format!("{} as the caller sees it", millis(median(&stage.took))));
    let bytes = grouped(stage.object_bytes);
    screen.field("copied", &format!("{} of {bytes} object bytes in user space, by the sidecar", grouped(copied)));
    let swaps = stage.generation() - 1;
    screen.field("swaps", &format!("{swaps} while serving, and one invalid configuration that changed nothing"));
    screen.field("took", &format!("{:.1} s; everything went as described", began.elapsed().as_secs_f64()));
    Ok(())
}
