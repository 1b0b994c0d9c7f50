//! The configuration's file.

use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::{
    attack::{Attack, Bounds, Serve},
    hook::Hook,
    stage::{Stage, pipe},
};

/// A file whose opening waits for as long as somebody else has a lease on it. Another one takes its place.
pub fn leased() -> Attack {
    Attack { name: "configuration-that-does-not-open", during: lease, ..swapped_for_a_pipe() }
}

/// Takes a lease on the file (fcntl(2), F_SETLEASE) and does not give it back when the kernel asks for it.
const LEASE: &str =
    r#"open(F, "<", $ARGV[0]) or die; $SIG{IO} = "IGNORE"; fcntl(F, 1024, 1) or die; $| = 1; print "held\n"; sleep 30"#;

fn lease(stage: &Stage) -> Result<String, String> {
    let file = stage.configuration();
    let again = file.with_file_name(".again");
    // No process may have it open at that moment.
    let held = (0..20).find_map(|_| {
        let mut perl = Command::new("perl");
        perl.args(["-e", LEASE]).arg(&file).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = perl.spawn().ok()?;
        let mut buffer = [0; 5];
        let held = child.stdout.as_mut().is_some_and(|stdout| stdout.read_exact(&mut buffer).is_ok());
        if !held {
            let _ = child.wait();
        }
        held.then_some(child)
    });
    let Some(mut holder) = held else {
        return Ok("NOT TRIED: no perl, or a file system without leases".to_owned());
    };
    thread::sleep(Duration::from_millis(2500));
    let _ = fs::write(&again, stage.document()).and_then(|()| fs::rename(&again, &file));
    // The lease is held on what was there.
    thread::sleep(Duration::from_millis(5500));
    let age = age(stage);
    let _ = holder.kill().and_then(|()| holder.wait());
    match age? {
        seconds if seconds < 3.0 => Ok(format!("the last good read is {seconds:.1} s old")),
        seconds => Err(format!("the last good read is {seconds:.1} s old, 5.5 s after the file was replaced")),
    }
}

/// Age of the last good read.
fn age(stage: &Stage) -> Result<f64, String> {
    let asked = Instant::now();
    // A late answer on a busy machine still has the age of the configuration.
    let page = stage.process.page("/metrics", Duration::from_secs(6));
    let page = page.ok_or_else(|| format!("no metrics after {:?}", asked.elapsed()))?;
    let age = page.lines().find_map(|line| line.strip_prefix("gatepost_config_age_seconds "));
    age.and_then(|age| age.trim().parse().ok()).ok_or_else(|| "no age in the metrics".to_owned())
}

/// File and pipe change places, as often as they may: between the look at what is there and its opening, too. Opening
/// the pipe in order to read waits for ever.
pub fn swapped_for_a_pipe() -> Attack {
    Attack {
        name: "configuration-swapped-for-a-pipe",
        item: "37",
        hooks: |notes| vec![Hook::good("configured", notes)],
        serve: Serve::PLAIN,
        during: swap,
        bounds: Bounds::USUAL,
    }
}

fn swap(stage: &Stage) -> Result<String, String> {
    let file = stage.configuration();
    let fifo = file.parent().and_then(|folder| folder.parent()).ok_or("no folder")?.join("fifo");
    if !pipe(&fifo) {
        return Err("there is no mkfifo".to_owned());
    }
    let began = Instant::now();
    let mut swaps = 0_u32;
    while began.elapsed() < Duration::from_millis(3200) {
        // There and back, so that the file is where it belongs at the end.
        for _ in 0..2 {
            renameat_with(CWD, &file, CWD, &fifo, RenameFlags::EXCHANGE).map_err(|error| error.to_string())?;
        }
        swaps += 1;
        if swaps.is_multiple_of(256) {
            thread::sleep(Duration::from_micros(200));
        }
    }
    // A good read ends staleness; without one it begins five seconds after the last. The bystander shows which.
    thread::sleep(Duration::from_millis(5500));
    match age(stage)? {
        seconds if seconds < 3.0 => Ok(format!("{swaps} swaps; the last good read is {seconds:.1} s old")),
        seconds => Err(format!("{swaps} swaps; the last good read is {seconds:.1} s old, 5.5 s after the last swap")),
    }
}
