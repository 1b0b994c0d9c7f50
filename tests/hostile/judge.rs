//! Judge: plays an attack, and holds what it cost against its bounds.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    attack::{Attack, Bounds},
    bystander::{Bystander, Seen},
    notes::Notes,
    stage::Stage,
};

/// Times that a bystander's latency is looked at before it counts: the machine is not ours alone.
const LOOKS: usize = 3;
/// Time for which the bystander is watched while nothing happens.
const QUIET: Duration = Duration::from_millis(600);
/// Latency may grow by that much before its ratio means anything; by more where the sidecar is not optimized.
const FLOOR: Duration = Duration::from_millis(if cfg!(debug_assertions) { 100 } else { 20 });

/// Outcome of an attack.
pub struct Outcome {
    /// Figures for people.
    pub figures: String,
    /// Faults that were found.
    pub faults: Vec<String>,
    /// Last lines of the sidecar's log, to explain a fault.
    pub log: Vec<String>,
}

/// The bystander of a sidecar that is not attacked: what the machine does to everybody.
pub struct Control(Stage);

impl Control {
    pub fn start() -> Self {
        Self(Stage::set(Notes::default(), Vec::new(), crate::attack::Serve::PLAIN))
    }
}

/// Plays the attack; again where only latency was bad.
pub fn judge(attack: &Attack, control: &Control) -> Outcome {
    let mut look = 1;
    loop {
        let (outcome, only_slow) = once(attack, control);
        if !only_slow || look == LOOKS {
            return outcome;
        }
        look += 1;
    }
}

fn once(attack: &Attack, control: &Control) -> (Outcome, bool) {
    let notes = Notes::default();
    let hooks = (attack.hooks)(&notes);
    let mut stage = Stage::set(notes, hooks, attack.serve);
    let mut faults = Vec::new();

    let quiet = watched(&stage, control, || thread::sleep(QUIET)).1;
    let base = Base::of(&stage);
    if attack.serve.stalled_log {
        stage.process.stall_log();
    }
    let began = Instant::now();
    let (message, during, beside) = watched(&stage, control, || (attack.during)(&stage));
    let took = began.elapsed();
    let peak = stage.process.peak().saturating_sub(base.resident);
    let mut figures = match message {
        Ok(message) => message,
        Err(wrong) => {
            faults.push(wrong);
            String::new()
        }
    };
    if !attack.bounds.ends {
        if let Some(first) = during.failed.first() {
            faults.push(format!(
                "{} of {} of the bystander's reviews failed: {first}",
                during.failed.len(),
                during.asked
            ));
        }
        if peak > attack.bounds.peak {
            faults.push(format!("{} MiB more at the peak", peak >> 20));
        }
        faults.extend(settled(&mut stage, &base, &attack.bounds));
    }
    stage.process.read_log();
    faults.extend(stopped(&mut stage, attack.bounds.ends));
    let (wrong, allowed) = stage.allowed_without_a_yes();
    faults.extend(wrong.into_iter().take(3));
    let logged = stage.process.logged();
    if logged > attack.bounds.log {
        faults.push(format!("{} KiB of log", logged >> 10));
    }

    let slow = (!attack.bounds.ends).then(|| slowed(&quiet, &during, &beside)).flatten();
    let only_slow = faults.is_empty() && slow.is_some();
    faults.extend(slow);
    let separator = if figures.is_empty() { "" } else { "; " };
    figures.push_str(&format!(
        "{separator}{:.1} s; p99 {:.1} ms quiet, {:.1} ms attacked, {:.1} ms elsewhere; peak +{} MiB, {allowed} allowed, {} KiB of log",
        took.as_secs_f64(),
        quiet.p99().as_secs_f64() * 1e3,
        during.p99().as_secs_f64() * 1e3,
        beside.p99().as_secs_f64() * 1e3,
        peak >> 20,
        logged >> 10,
    ));
    let log = stage.process.log();
    let log = log.lines().rev().take(4).map(|line| line.chars().take(300).collect()).collect();
    (Outcome { figures, faults, log }, only_slow)
}

/// Watches both bystanders while that happens.
fn watched<T>(stage: &Stage, control: &Control, happens: impl FnOnce() -> T) -> (T, Seen, Seen) {
    let bystanders = [stage, &control.0].map(|stage| Bystander::start(stage.process.tcp));
    let value = happens();
    let [here, elsewhere] = bystanders.map(Bystander::stop);
    (value, here, elsewhere)
}

/// Did the attack make the bystander wait? Waits of others at the same time are the machine's doing.
fn slowed(quiet: &Seen, during: &Seen, beside: &Seen) -> Option<String> {
    let base = quiet.p99().max(beside.p99());
    let most = (base * 3 / 2).max(base + FLOOR);
    (during.p99() > most).then(|| {
        format!(
            "the bystander's p99 is {:?}: {:?} when quiet, {:?} at a sidecar that is not attacked",
            during.p99(),
            quiet.p99(),
            beside.p99()
        )
    })
}

/// State of the process before the attack.
struct Base {
    resident: u64,
    descriptors: usize,
}

impl Base {
    fn of(stage: &Stage) -> Self {
        Self { resident: stage.process.resident(), descriptors: stage.process.descriptors() }
    }
}

/// Waits until the sidecar is as it was; what is not, when time is up.
fn settled(stage: &mut Stage, base: &Base, bounds: &Bounds) -> Vec<String> {
    let until = Instant::now() + bounds.settled_within;
    loop {
        // An allocator gives back what was freed when it is asked for something, not while everybody sleeps.
        let asking = Bystander::start(stage.process.tcp);
        thread::sleep(Duration::from_millis(300));
        asking.stop();
        let mut faults = Vec::new();
        let (resident, descriptors) = (stage.process.resident(), stage.process.descriptors());
        if resident > base.resident + bounds.left {
            faults.push(format!("{} MiB more are left", (resident - base.resident) >> 20));
        }
        if descriptors > base.descriptors + bounds.descriptors {
            faults.push(format!("{} descriptors are left of {}", descriptors, base.descriptors));
        }
        if faults.is_empty() || Instant::now() > until {
            let before = stage.process.cpu();
            thread::sleep(Duration::from_millis(1000));
            let used = stage.process.cpu().saturating_sub(before);
            if used > bounds.idle_cpu {
                faults.push(format!("{used:?} of processor time in a second of rest"));
            }
        }
        if faults.is_empty() || Instant::now() > until {
            return faults;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Is it alive, does it stop on a signal, and has nothing panicked?
fn stopped(stage: &mut Stage, ends: bool) -> Vec<String> {
    let mut faults = Vec::new();
    if !ends {
        match stage.process.ended(Duration::ZERO) {
            Some(status) => faults.push(format!("it has ended: {status}")),
            None if !stage.process.lives() => faults.push("/livez does not answer".to_owned()),
            None => {}
        }
        stage.process.terminate();
    }
    // --max-deadline is 3 s; the rest is for a busy machine.
    match stage.process.ended(Duration::from_secs(8)) {
        Some(status) if status.code().is_some_and(|code| code == 0 || code == 3) => {}
        Some(status) => faults.push(format!("it ended with {status}")),
        None => faults.push("it does not stop".to_owned()),
    }
    let log = stage.process.log();
    if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
        faults.push(format!("a panic: {line}"));
    }
    faults
}
