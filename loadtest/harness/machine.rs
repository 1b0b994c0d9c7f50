//! Machine: description of the machine of a run, without its host name.

use std::{fs, path::Path, process::Command, thread, time::SystemTime};

/// Which core the sidecar gets, and which generator and hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pinning {
    pub(crate) sidecar: Option<usize>,
    pub(crate) load: Option<usize>,
}

impl Pinning {
    /// Core 0 for the sidecar, core 1 for the rest; nothing, loudly, where that cannot be done.
    pub(crate) fn detect() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let taskset = Command::new("taskset").arg("--version").output().is_ok_and(|output| output.status.success());
        if cores >= 2 && taskset {
            return Self { sidecar: Some(0), load: Some(1) };
        }
        eprintln!(
            "WARNING: NOT PINNED ({cores} core(s), taskset {}): the sidecar shares its core with the load, and CPU \
             and latency below are not comparable with pinned runs. Install util-linux, use two cores.",
            if taskset { "present" } else { "absent" }
        );
        Self { sidecar: None, load: None }
    }

    /// For the README.
    pub(crate) fn describe(self) -> String {
        match (self.sidecar, self.load) {
            (Some(sidecar), Some(load)) => format!("sidecar on core {sidecar}, generator and hooks on core {load}"),
            _ => "NOT PINNED".to_owned(),
        }
    }
}

/// `2026-11-21-1032`, UTC.
pub(crate) fn stamp() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    format!("{}-{}{}", &now[..10], &now[11..13], &now[14..16])
}

/// Markdown lines about the machine, the build and the commit.
pub(crate) fn describe() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name));
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or("unknown").trim().to_owned();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel: String = kernel.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    [
        format!("- CPU: {}, {cores} cores", model.unwrap_or("unknown").trim()),
        format!("- memory: {memory}"),
        format!("- Linux {}", kernel.trim_end_matches('.')),
        format!("- {}", output("rustc", &["--version"])),
        format!("- commit {}{}", output("git", &["rev-parse", "--short=12", "HEAD"]), dirty()),
        format!("- load average when it began: {}", load_average()),
    ]
    .join("\n")
}

/// The three load averages.
pub(crate) fn load_average() -> String {
    let averages = fs::read_to_string(Path::new("/proc/loadavg")).unwrap_or_default();
    averages.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn dirty() -> &'static str {
    // Results being written are no change to what is measured.
    let status = output("git", &["status", "--porcelain", "--", ".", ":(exclude)loadtest/results"]);
    if status.is_empty() { "" } else { " with uncommitted changes" }
}

/// Output of a program, on one line.
pub(crate) fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(|_| "unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
